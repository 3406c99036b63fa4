//! Meters of the machine at hand: what it draws, measured.

pub mod limits;
pub mod meter;

pub use meter::{Meter, MeterError, Probe, Reading};
