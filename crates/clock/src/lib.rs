//! The clock of every process: time since the Unix epoch that never goes back.
//!
//! Wall time is read once, at the start; from then on the monotonic clock counts. So a step of the
//! wall clock changes nothing in a process that runs.

use e3_model::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
