//! Benchmarks: what each group measures, its figures with their aims, and the page of results.
//!
//! A group is a module. [`engine`] measures in this process; [`services`] reads the figures of a
//! program of its own, which contains the services compiled natively; [`demo`] searches for the
//! highest rate of a cluster that its caller has started; [`chaos`] and [`state`] judge what a caller measured
//! under faults, in migrations, and against the systems of [`peers`]; [`control`] places in this process, [`sim`] simulates. All of them give [`Figure`]s.
//!
//! Machines are shared and noisy. Wherever possible a figure is the ratio of the medians of
//! alternating rounds of what is measured and of a reference, so that it can be compared between
//! machines.

pub mod chaos;
pub mod control;
pub mod demo;
pub mod engine;
mod figure;
mod machine;
pub mod page;
pub mod peers;
pub mod services;
pub mod sim;
pub mod state;
pub mod twin;

pub use figure::{Better, Figure, Report, Table, median};
pub use machine::Machine;
