//! How long replies take, and so how long to wait for one.

use crate::limits::{REPLY_TIME_HALVED_AFTER, SLOW_REPLY_WAIT_MAX};
use e3_model::{Nanos, Timestamp};

/// How long the slower replies of late took. A slower one moves it half the way; without one it halves with time.
///
/// If waits did not depend on it, an overload would not end: as soon as requests queued for longer than the first wait,
/// each would be sent again, and the copies would keep the queue long. A mean of the latest replies would not do: after a
/// few of a fast shard those of a slow one still take as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyTime {
    slow: Nanos,
    at: Timestamp,
}

impl ReplyTime {
    /// Takes the time from an attempt to the reply to it.
    pub fn record(&mut self, now: Timestamp, took: Nanos) {
        let lately = self.lately(now);
        if took >= lately {
            (self.slow, self.at) = ((lately + took) / 2, now);
        }
    }

    /// How long to wait for a reply before it counts as lost.
    pub fn wait(&self, now: Timestamp) -> Nanos {
        (self.lately(now) * 2).min(SLOW_REPLY_WAIT_MAX)
    }

    fn lately(&self, now: Timestamp) -> Nanos {
        let halvings = self.at.until(now).0 / REPLY_TIME_HALVED_AFTER.0;
        Nanos(self.slow.0 >> halvings.min(63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);
    const MILLI: Nanos = Nanos::from_millis(1);

    #[test]
    fn the_wait_follows_the_replies_up_to_its_bound() {
        let mut replies = ReplyTime::default();
        let mut now = Timestamp(0);
        assert_eq!(replies.wait(now), Nanos::ZERO);
        let mut after = |took: Nanos| {
            now += SECOND * 12;
            (0..100).for_each(|_| replies.record(now, took));
            replies.wait(now)
        };
        // Halves are rounded down.
        assert_eq!(after(SECOND), SECOND * 2 - Nanos(2));
        assert_eq!(after(SECOND * 20), SLOW_REPLY_WAIT_MAX);
        assert!(after(MILLI * 5) < MILLI * 11);
    }

    #[test]
    fn after_replies_of_a_fast_shard_those_of_a_slow_one_are_still_awaited() {
        let mut replies = ReplyTime::default();
        let mut now = Timestamp(0);
        for _ in 0..100 {
            for took in [SECOND, MILLI] {
                (0..20).for_each(|_| replies.record(now, took));
                now += MILLI * 400;
                assert!(replies.wait(now) > SECOND * 3 / 2);
            }
        }
        now += SECOND * 4;
        (0..20).for_each(|_| replies.record(now, MILLI));
        assert!(replies.wait(now) < SECOND / 4);
    }
}
