//! The performance simulator: what an application on a cluster of hosts and SmartNICs can carry, how
//! long its requests take, and what they cost in joules. Everything that it says is modelled.
//!
//! It is a discrete-event simulation of queues. Requests move through the models of [`e3_hardware`] on
//! the instances that the product's own placement chose; handlers are service times from profiles. It
//! runs no code of a service and no message of the product; crate `sim` does, for faults. The design is
//! in docs/design/026-performance-simulator.md.
//!
//! Nothing here reads a clock. The same input and seed give the same bytes.

mod acting;
mod arena;
mod check;
mod control;
mod draining;
mod drive;
mod energy;
mod event;
mod failing;
mod faults;
mod fifo;
mod input;
pub mod limits;
mod load;
mod measure;
mod model;
mod moves;
mod paths;
mod plane;
mod queue;
mod report;
mod services;
mod simulator;
mod station;
mod summary;
mod sweep;
mod threads;
mod totals;
mod turning;
mod turns;

pub use control::{Action, Controller, Heartbeat, InstanceCount, NoController, Outcome};
pub use faults::{Failing, Fault};
pub use input::{HostPort, Input, ModelError, Options, Steering};
pub use load::{Load, LoadError};
pub use plane::{Arrival, DataPlane, NodeAction};
pub use report::{
    Bottleneck, Disruption, Dropped, Energy, NodeLoad, NodeReport, Report, Resource, Sample,
    ServiceReport, Span, Step,
};
pub use simulator::{Run, Simulator};
pub use sweep::{Effort, Point, Sweep, sweep, sweep_with};
