//! Client, workloads and the exactly-once ledger: sends requests to an application at a given rate, and
//! checks by the answers and by the state read back what became of each.
//!
//! - [`requests`]: the client's side of the protocol as a state machine without I/O.
//! - [`client`]: the same on a UDP socket.
//! - [`letters`]: dead letters, read and replayed.
//! - [`ledger`]: one record for each request that was sent.
//! - [`traffic`]: requests from files: captures of packets, tables, lines of JSON.
//! - [`workload`]: what is sent, and how the state read back is held against it.
//! - [`verdict`]: what was checked, and what came of it.
//! - [`run`]: the load itself, open loop, measured from the time that a request was due
//!   (Tene, "How NOT to measure latency", 2013: no coordinated omission).

pub mod client;
mod error;
pub mod ledger;
pub mod letters;
pub mod limits;
pub mod random;
pub mod report;
pub mod requests;
mod run;
pub mod traffic;
pub mod verdict;
pub mod workload;

pub use client::Refresh;
pub use error::LoadError;
pub use report::{LoadReport, Phase, Progress};
pub use run::{Config, run};
pub use verdict::{ClusterChange, ServiceCheck, Verdict};
pub use workload::{Inputs, Workload};
