//! How many requests a token may make: a token bucket for each, which fills with time.

use e3_model::{Nanos, Timestamp};
use std::collections::BTreeMap;

/// Requests of one token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Requests in a second, in the long run.
    pub per_second: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
}

/// How much each token has left. There are no more buckets than tokens.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// Until there is one more.
    interval: Nanos,
    /// How many there are after a pause.
    burst: u32,
    /// By name of the token: when its bucket is full again.
    full_at: BTreeMap<String, Timestamp>,
}

impl Buckets {
    pub(crate) fn new(limit: RateLimit) -> Buckets {
        let interval = Nanos(1_000_000_000 / u64::from(limit.per_second.max(1)));
        Buckets::every(interval, limit.burst)
    }

    pub(crate) fn every(interval: Nanos, burst: u32) -> Buckets {
        Buckets {
            interval,
            burst: burst.max(1),
            full_at: BTreeMap::new(),
        }
    }

    /// Takes one request, or says how long to wait for it (the virtual scheduling algorithm of ITU-T
    /// I.371: the time at which the bucket is full stands for its content).
    pub(crate) fn take(&mut self, name: &str, now: Timestamp) -> Result<(), Nanos> {
        let room = self.interval * u64::from(self.burst);
        let full_at = self.full_at.get(name).copied().unwrap_or(now).max(now);
        let next = full_at + self.interval;
        if next > now + room {
            return Err(next.since(now + room));
        }
        // A full bucket needs no entry, so tokens that are not used take no memory.
        self.full_at.retain(|_, full_at| *full_at > now);
        self.full_at.insert(name.to_string(), next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_burst_and_then_its_rate_and_others_have_theirs() {
        let limit = RateLimit {
            per_second: 10,
            burst: 3,
        };
        let mut buckets = Buckets::new(limit);
        let at = |ms: u64| Timestamp::ZERO + Nanos::from_millis(1_000 + ms);
        for _ in 0..3 {
            assert_eq!(buckets.take("a", at(0)), Ok(()));
        }
        assert_eq!(buckets.take("a", at(0)), Err(Nanos::from_millis(100)));
        assert_eq!(buckets.take("a", at(40)), Err(Nanos::from_millis(60)));
        assert_eq!(buckets.take("b", at(40)), Ok(()));
        assert_eq!(buckets.take("a", at(100)), Ok(()));
        assert!(buckets.take("a", at(100)).is_err());
        // After a pause only the one that is used takes memory.
        assert_eq!(buckets.take("c", at(10_000)), Ok(()));
        assert_eq!(buckets.full_at.len(), 1);
        for _ in 0..3 {
            assert_eq!(buckets.take("a", at(10_000)), Ok(()));
        }
        assert!(buckets.take("a", at(10_000)).is_err());
    }
}
