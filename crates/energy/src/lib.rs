//! Meters: what the machine draws, measured.
//!
//! [`meter::Meter`] reads one thing: a processor's counter ([`rapl`]), a sensor of the kernel
//! ([`hwmon`], [`bluefield`]), or a management controller ([`ipmi`], [`redfish`]). [`discover`] lists
//! what is there, [`choice`] picks the meters that together measure a node once, and
//! [`sampler::Sampler`] reads them. [`integrator::Integrator`] makes joules of readings; it does no I/O.

pub mod bluefield;
pub mod choice;
pub mod discover;
pub mod hwmon;
pub mod integrator;
pub mod ipmi;
pub mod limits;
pub mod meter;
mod process;
pub mod rapl;
pub mod redfish;
pub mod sampler;
mod sysfs;

pub use choice::{Choice, ChoiceError, MeterConfig};
pub use discover::{Found, discover};
pub use meter::{Meter, MeterError, Reading};
pub use sampler::Sampler;
pub use sysfs::SYSFS;
