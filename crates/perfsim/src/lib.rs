//! The performance simulator: what an application on a cluster of hosts and SmartNICs can carry, how
//! long its requests take, and what they cost in joules. Everything that it says is modelled.
//!
//! It is a discrete-event simulation of queues. Requests move through the models of [`e3_hardware`] on
//! the instances that the product's own placement chose; handlers are service times from profiles. It
//! runs no code of a service and no message of the product; crate `sim` does, for faults. The design is
//! in docs/design/026-performance-simulator.md.
//!
//! Nothing here reads a clock. The same input and seed give the same bytes.

mod arena;
mod drive;
mod energy;
mod event;
mod input;
pub mod limits;
mod load;
mod measure;
mod model;
mod paths;
mod plane;
mod queue;
mod report;
mod simulator;
mod station;
mod summary;
mod sweep;
mod threads;
mod totals;

pub use input::{HostPort, Input, ModelError, Options, Steering};
pub use load::{Load, LoadError};
pub use plane::{Action, Arrival, DataPlane};
pub use report::{
    Bottleneck, Energy, Latency, NodeLoad, NodeReport, Report, Resource, Sample, ServiceReport,
    Span, Step,
};
pub use simulator::{Controller, NoController, Run, Simulator};
pub use sweep::{Point, Sweep, sweep, sweep_with};
