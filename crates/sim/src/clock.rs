//! The clock of one simulated process: wrong by an offset, and fast or slow.

use e3_model::{Nanos, Timestamp};

const MILLION: i64 = 1_000_000;
/// No run takes so long.
const FOREVER: Nanos = Nanos::from_secs(100 * 365 * 86_400);

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
        SimClock {
            set: now,
            shown: Timestamp(now.0.saturating_add_signed(offset_ms * MILLION)),
            fast_ppm,
        }
    }

    /// The time that it shows at a true time.
    pub fn shown(&self, at: Timestamp) -> Timestamp {
        if *self == SimClock::TRUE {
            return at;
        }
        let passed = difference(at, self.set);
        let ahead = scale(passed, self.fast_ppm, MILLION);
        Timestamp(self.shown.0.saturating_add_signed(passed + ahead))
    }

    /// The first true time at which it shows `shown` or more.
    pub fn when(&self, shown: Timestamp) -> Timestamp {
        if *self == SimClock::TRUE || shown > self.shown + FOREVER {
            return shown;
        }
        let counted = difference(shown, self.shown);
        let ahead = scale(counted, self.fast_ppm, MILLION + self.fast_ppm);
        // Rounded down, since what is ahead was rounded down.
        let passed = counted - ahead - 1;
        let mut at = Timestamp(self.set.0.saturating_add_signed(passed));
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

/// `a - b` in nanoseconds.
fn difference(a: Timestamp, b: Timestamp) -> i64 {
    a.0.wrapping_sub(b.0) as i64
}

/// `span * by / of`, rounded down. Called for every event, so the usual spans do without a division
/// of 128 bits, which took 5 % of a run.
fn scale(span: i64, by: i64, of: i64) -> i64 {
    match span.checked_mul(by) {
        Some(product) => product.div_euclid(of),
        None => (i128::from(span) * i128::from(by)).div_euclid(i128::from(of)) as i64,
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
                assert!(clock.shown(Timestamp(at.0 - 1)) < shown, "it is the first");
            }
            assert_eq!(clock.when(Timestamp::MAX), Timestamp::MAX);
        }
    }
}
