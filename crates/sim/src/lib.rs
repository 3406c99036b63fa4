//! Discrete-event simulator: virtual time, a network with faults, and the product's own state
//! machines driven by it.
//!
//! A run is a function of its seed. [`Cluster`] drives the same [`e3_dataplane::Worker`] as the real
//! node, and [`Controller`] the same [`e3_control::Control`] as the real controller. Services are plain
//! functions with a service time, so nothing here needs WebAssembly. Each state machine checks its
//! invariants as it runs.

pub mod asks;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod controller;
pub mod damage;
mod disk;
mod effects;
mod layout;
pub mod ledger;
pub mod nemesis;
pub mod network;
pub mod scenario;
mod segments;
pub mod service;
mod ticks;
pub mod topics;

pub use client::Client;
pub use cluster::Cluster;
pub use controller::Controller;
pub use damage::Damage;
pub use nemesis::{Failure, Summary, run, shrink};
pub use network::Faults;
pub use scenario::{Act, Fault, Scenario, draw};
