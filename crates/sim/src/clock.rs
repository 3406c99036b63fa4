//! The clock of one simulated process: wrong by an offset, and fast or slow.

use e3_model::{Nanos, Timestamp};

const MILLION: i128 = 1_000_000;

/// A clock that shows `shown` at the true time `set` and runs fast by some millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimClock {
    set: Timestamp,
    shown: Timestamp,
    fast_ppm: i64,
}

impl SimClock {
    /// A correct clock.
    pub const TRUE: SimClock = SimClock {
        set: Timestamp::ZERO,
        shown: Timestamp::ZERO,
        fast_ppm: 0,
    };

    /// A clock that is off by `offset_ms` at the true time `now`.
    pub fn new(now: Timestamp, offset_ms: i64, fast_ppm: i64) -> SimClock {
        let offset_ns = i128::from(offset_ms) * MILLION;
        let shown = (i128::from(now.0) + offset_ns).max(0);
        SimClock {
            set: now,
            shown: Timestamp(shown as u64),
            fast_ppm,
        }
    }

    /// The time that it shows at a true time.
    pub fn shown(&self, at: Timestamp) -> Timestamp {
        if *self == SimClock::TRUE {
            return at;
        }
        let passed = i128::from(at.0) - i128::from(self.set.0);
        let counted = passed * (MILLION + i128::from(self.fast_ppm)) / MILLION;
        Timestamp((i128::from(self.shown.0) + counted).max(0) as u64)
    }

    /// The first true time at which it shows `shown` or more.
    pub fn when(&self, shown: Timestamp) -> Timestamp {
        if *self == SimClock::TRUE || shown == Timestamp::MAX {
            return shown;
        }
        let counted = i128::from(shown.0) - i128::from(self.shown.0);
        let passed = counted * MILLION / (MILLION + i128::from(self.fast_ppm));
        let at = (i128::from(self.set.0) + passed).clamp(0, i128::from(u64::MAX - 2));
        let mut at = Timestamp(at as u64);
        while self.shown(at) < shown {
            at += Nanos(1);
        }
        at
    }

    /// The same clock, which from now on runs fast by `drift_ppm` millionths.
    pub fn drift(&self, now: Timestamp, fast_ppm: i64) -> SimClock {
        SimClock {
            set: now,
            shown: self.shown(now),
            fast_ppm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_shows_and_when_it_shows_it_agree() {
        let now = Timestamp(1_000_000_000_000);
        for (offset_ms, fast_ppm) in [(0, 0), (70, 0), (-3_000, 250), (5, -180)] {
            let clock = SimClock::new(now, offset_ms, fast_ppm);
            for span in [0, 1, 999, 1_000_003, 77_000_000_019] {
                let shown = clock.shown(now + Nanos(span));
                let at = clock.when(shown);
                assert!(clock.shown(at) >= shown);
                assert!(at <= now + Nanos(span + 1));
            }
        }
    }
}
