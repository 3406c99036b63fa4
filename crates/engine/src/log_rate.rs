//! How many lines an instance may log: all instances share a file, and a disk.

use crate::limits::{LOG_LINES_MAX, LOG_LINES_PER_S};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A token bucket, at first full.
#[derive(Default)]
pub(crate) struct LogRate {
    /// When the bucket is full again if nothing is logged.
    full_at: Cell<Option<Instant>>,
    dropped: Cell<u64>,
}

impl LogRate {
    /// Takes a line, and says how many were dropped before it; None if this one is dropped.
    pub(crate) fn take(&self, now: Instant) -> Option<u64> {
        let line = Duration::from_secs(1) / LOG_LINES_PER_S;
        let full_at = self.full_at.get().map_or(now, |at| at.max(now)) + line;
        if full_at.duration_since(now) > line * LOG_LINES_MAX {
            self.dropped.set(self.dropped.get() + 1);
            return None;
        }
        self.full_at.set(Some(full_at));
        Some(self.dropped.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_lines_at_the_rate_with_what_was_dropped() {
        let (rate, now) = (LogRate::default(), Instant::now());
        let passed = (0..LOG_LINES_MAX + 5).filter(|_| rate.take(now).is_some());
        assert_eq!(passed.count(), LOG_LINES_MAX as usize);
        let later = now + Duration::from_secs(1) / LOG_LINES_PER_S;
        assert_eq!(rate.take(later), Some(5));
        assert_eq!(rate.take(later), None);
        let much_later = later + Duration::from_secs(3600);
        assert_eq!(rate.take(much_later), Some(1));
        assert_eq!(rate.take(much_later), Some(0));
    }
}
