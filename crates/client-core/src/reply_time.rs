//! How long replies take, and so how long to wait for one.

use crate::limits::SLOW_REPLY_WAIT_MAX;
use e3_model::Nanos;

/// Smoothed time of the latest replies, as in TCP's retransmission timer (RFC 6298).
///
/// If waits did not depend on it, an overload would not end: as soon as requests queued for longer than the first wait,
/// each would be sent again, and the copies would keep the queue long.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyTime(Option<Nanos>);

impl ReplyTime {
    /// Takes the time from an attempt to the reply to it.
    pub fn record(&mut self, took: Nanos) {
        let smoothed = self.0.unwrap_or(took);
        self.0 = Some(Nanos((smoothed.0 * 7 + took.0) / 8));
    }

    /// How long to wait for a reply before it counts as lost: twice the smoothed time.
    pub fn wait(&self) -> Nanos {
        self.0
            .map_or(Nanos::ZERO, |t| (t * 2).min(SLOW_REPLY_WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_replies_up_to_its_bound() {
        let second = Nanos::from_secs(1);
        let mut replies = ReplyTime::default();
        assert_eq!(replies.wait(), Nanos::ZERO);
        let mut after = |took: Nanos| {
            (0..100).for_each(|_| replies.record(took));
            replies.wait()
        };
        assert_eq!(after(second), second * 2);
        assert_eq!(after(second * 20), SLOW_REPLY_WAIT_MAX);
        assert!(after(Nanos::from_millis(5)) < Nanos::from_millis(11));
    }
}
