//! The clock of every process: time since the Unix epoch that never goes back.
//!
//! Wall time is read once, at the start; from then on the monotonic clock counts. So a step of the
//! wall clock changes nothing in a process that runs.

use e3_model::Timestamp;
#[cfg(feature = "clock-offset")]
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the wall time of new clocks is off by, in milliseconds.
#[cfg(feature = "clock-offset")]
static OFFSET_MS: AtomicI64 = AtomicI64::new(0);

/// Sets the wall time of all clocks that are made from now on off by this.
#[cfg(feature = "clock-offset")]
pub fn set_offset_ms(ms: i64) {
    OFFSET_MS.store(ms, Ordering::Relaxed);
}

/// Wall time at start plus monotonic time since.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_unix: Timestamp,
}

impl Clock {
    /// A clock that reads the wall time now. A wall clock before 1970 counts as 1970.
    #[expect(
        clippy::new_without_default,
        reason = "it reads the wall time, which a default value should not"
    )]
    pub fn new() -> Clock {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        #[cfg(feature = "clock-offset")]
        let since = {
            let ms = OFFSET_MS.load(Ordering::Relaxed);
            let by = std::time::Duration::from_millis(ms.unsigned_abs());
            if ms < 0 {
                since.saturating_sub(by)
            } else {
                since + by
            }
        };
        Clock {
            start: Instant::now(),
            start_unix: Timestamp::ZERO + since.into(),
        }
    }

    /// The time; never earlier than it was at any call before.
    pub fn now(&self) -> Timestamp {
        self.start_unix + self.start.elapsed().into()
    }
}
