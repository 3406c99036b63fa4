//! Processor time that was used, as the kernel counts it.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Of this thread.
pub(crate) fn of_thread() -> Duration {
    used(ClockId::ThreadCPUTime)
}

/// Of this process.
pub(crate) fn of_process() -> Duration {
    used(ClockId::ProcessCPUTime)
}

fn used(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
