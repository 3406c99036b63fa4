//! Waits between attempts.

use crate::limits::{RETRY_AFTER, RETRY_AFTER_MAX, RETRY_GROWTH};
use e3_model::Nanos;

/// The wait before the next attempt: it grows by [`RETRY_GROWTH`] up to [`RETRY_AFTER_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct Backoff(Nanos);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(RETRY_AFTER)
    }
}

impl Backoff {
    /// The wait after an attempt; the one after the next attempt is longer.
    pub fn next_wait(&mut self) -> Nanos {
        let wait = self.0;
        self.0 = (wait * RETRY_GROWTH.0 / RETRY_GROWTH.1).min(RETRY_AFTER_MAX);
        wait
    }
}
