//! Bounds of a node process.

use std::time::Duration;

/// Period of the clock that preempts long handlers.
pub(crate) const PREEMPTION_TICK: Duration = Duration::from_micros(200);
/// Bound of one instance's linear memory.
pub const INSTANCE_MEMORY_LEN_MAX: usize = 256 << 20;
/// How late a timer may be where delays are emulated.
pub(crate) const EMULATION_TIMER_SLACK_NS: u64 = 1_000;
/// Instances of one node.
pub(crate) const INSTANCES_MAX: u32 = 512;
