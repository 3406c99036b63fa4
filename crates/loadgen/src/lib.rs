//! Load generator and exactly-once ledger: sends requests to an application at a given rate, and
//! checks the outcome of each by its reply and by the state read back.
//!
//! - [`workload`]: the trait of a workload: what is sent, and how the state read back is judged.
//! - [`ledger`]: one record for each request that was sent.
//! - [`traffic`]: requests from files: captures of packets, tables, lines of JSON.
//! - [`verdict`]: what was checked, and the result.
//! - [`run`]: the load itself, open loop, measured from the time that a request was due
//!   (Tene, "How NOT to measure latency", 2013: no coordinated omission).

mod due;
mod error;
pub mod ledger;
pub mod limits;
mod record;
pub mod report;
mod run;
pub mod traffic;
pub mod verdict;
pub mod workload;

pub use error::LoadError;
pub use record::record;
pub use report::{LoadReport, Phase, Progress};
pub use run::{Config, run};
pub use verdict::{ClusterChange, ServiceCheck, Verdict};
pub use workload::Workload;
