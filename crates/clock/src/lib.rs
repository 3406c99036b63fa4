//! The clock of every process: time since the Unix epoch that never goes back.
//!
//! Wall time is read once, at the start; from then on a clock counts that is never set. So a step of the
//! wall clock changes nothing in a process that runs. On Linux that clock goes on while the machine is
//! suspended, so that the time is right after it.

use e3_model::Timestamp;
#[cfg(feature = "clock-offset")]
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the wall time of new clocks is off by, in milliseconds.
#[cfg(feature = "clock-offset")]
static OFFSET_MS: AtomicI64 = AtomicI64::new(0);

/// Sets the wall time of all clocks that are made from now on off by this.
#[cfg(feature = "clock-offset")]
pub fn set_offset_ms(ms: i64) {
    OFFSET_MS.store(ms, Ordering::Relaxed);
}

/// Wall time at start plus time that has passed since.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What [`counted`] said at the start.
    start: Duration,
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
            let by = Duration::from_millis(ms.unsigned_abs());
            if ms < 0 {
                since.saturating_sub(by)
            } else {
                since + by
            }
        };
        Clock {
            start: counted(),
            start_unix: Timestamp::ZERO + since.into(),
        }
    }

    /// The time; never earlier than it was at any call before.
    pub fn now(&self) -> Timestamp {
        self.start_unix + counted().saturating_sub(self.start).into()
    }
}

/// Time that has passed since some moment before. `Instant` would stand still in a machine that is suspended
/// (Linux, clock_gettime(2)).
#[cfg(target_os = "linux")]
fn counted() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time that has passed since some moment before.
#[cfg(not(target_os = "linux"))]
fn counted() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_wall_and_passes() {
        let unix =
            || Timestamp::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap().into();
        let before: Timestamp = unix();
        let clock = Clock::new();
        let first = clock.now();
        assert!(first >= before);
        let mut last = first;
        while last == first {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        // What has passed of the wall's time by now has passed here, unless somebody set the wall clock.
        assert!(last.since(before).as_millis() < 60_000);
    }
}
