//! The program's clock.

use e3_model::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Time since the Unix epoch that never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_unix: Timestamp,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            start: Instant::now(),
            start_unix: Timestamp::ZERO + since.into(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.start_unix + self.start.elapsed().into()
    }
}
