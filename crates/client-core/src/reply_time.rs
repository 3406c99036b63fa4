//! How long replies take, and so how long to wait for one.

use crate::limits::SLOW_REPLY_WAIT_MAX;
use e3_model::Nanos;

/// Smoothed time of the latest replies, as in TCP's retransmission timer (RFC 6298).
///
/// With waits that do not depend on it an overload would keep itself up: as soon as requests queue for longer than the
/// first wait, each is sent again, and the copies keep the nodes so busy that the queue stays long.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyTime(Option<Nanos>);

impl ReplyTime {
    /// Takes the time from an attempt to the reply to it.
    pub fn record(&mut self, took: Nanos) {
        let smoothed = self.0.unwrap_or(took);
        self.0 = Some(Nanos((smoothed.0 * 7 + took.0) / 8));
    }

    /// A reply that has not come within this time is probably lost: twice the smoothed time. Requests before this one
    /// may have become twice as many since the last reply.
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
