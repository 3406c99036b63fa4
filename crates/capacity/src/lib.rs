//! Capacity planning: how many servers of which type carry a load, what they draw and cost over years, which
//! type is cheapest when, and which uncertain input changes that.
//!
//! [`closed`] finds the smallest cluster by placement's closed form, [`sizing`] confirms it by the performance
//! simulator. [`cost`] has the formulas of cost and carbon, [`plan`] joins both and varies every uncertain input
//! one by one, [`compare`] says who wins. Everything here is modelled. The design is in
//! docs/design/029-capacity-planning.md.
//!
//! Nothing here reads a clock or a file. The same input and seed give the same bytes.

pub mod candidate;
pub mod closed;
pub mod compare;
pub mod cost;
pub mod inputs;
pub mod limits;
pub mod outputs;
pub mod plan;
pub mod report;
pub mod sizing;

pub use candidate::{Candidate, CandidateError};
pub use inputs::{InputError, Settings};
pub use plan::{Entrant, PlanError, plan};
pub use report::Plan;
