//! Random scenarios of the simulator on all cores: many seeds, failures shrunk and printed with the
//! command that replays them, and the check that deliberate faults are found.

#[cfg(feature = "deliberate-faults")]
pub mod deliberate;
pub mod fleet;
pub mod record;
