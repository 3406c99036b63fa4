//! The node's clock: time since the Unix epoch that never goes back.

use e3_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Wall time at start plus monotonic time since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_unix: Timestamp,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            start: Instant::now(),
            start_unix: Timestamp::ZERO + unix.into(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.start_unix + self.start.elapsed().into()
    }

    /// Processor time of this process.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let t = clock_gettime(ClockId::ProcessCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    }
}
