//! Points in time and spans between them, as two types, so that they cannot be confused.
//!
//! All arithmetic saturates: a deadline from the network may be any number.

use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::time::Duration;

/// A point in time: nanoseconds since the Unix epoch, or since the start of a simulation.
/// Written in JSON as the span since then, as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema)]
pub struct Timestamp(#[schemars(with = "Nanos")] pub u64);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Nanos(self.0).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        Nanos::deserialize(d).map(|since| Timestamp(since.0))
    }
}

impl Timestamp {
    /// Before every other point in time.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After every other point in time.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The span from `earlier` to this point; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Timestamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// The span from this point to `later`; zero if `later` is not later.
    pub const fn until(self, later: Timestamp) -> Nanos {
        later.since(self)
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);
    /// The longest span.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }
    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }
    /// From whole microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }
    /// From seconds; a negative number or none is zero.
    pub fn from_secs_f64(s: f64) -> Nanos {
        Nanos((s * 1e9).round() as u64)
    }
    /// As whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// As whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// As seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add<Nanos> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Nanos) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Nanos> for Timestamp {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Sub<Nanos> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Nanos) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Nanos) {
        *self = *self - other;
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(spans: I) -> Nanos {
        spans.fold(Nanos::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let second = Nanos::from_secs(1);
        assert_eq!(Timestamp::MAX + second, Timestamp::MAX);
        assert_eq!(Timestamp::ZERO - second, Timestamp::ZERO);
        assert_eq!(Timestamp(5).since(Timestamp(7)), Nanos::ZERO);
        assert_eq!(Timestamp(5).until(Timestamp(7)), Nanos(2));
        assert_eq!(second - Nanos::MAX, Nanos::ZERO);
        assert_eq!(Nanos::MAX * 2, Nanos::MAX);
        assert_eq!(
            [second, second / 2].into_iter().sum::<Nanos>(),
            Nanos::from_millis(1_500)
        );
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
    }

    #[test]
    fn a_timestamp_is_written_like_the_span_since_the_epoch() {
        let at = Timestamp::ZERO + Nanos::from_millis(1_500);
        assert_eq!(serde_json::to_string(&at).unwrap(), r#""1500ms""#);
        assert_eq!(
            serde_json::from_str::<Timestamp>(r#""1500ms""#).unwrap(),
            at
        );
        assert!(serde_json::from_str::<Timestamp>("1500").is_err());
    }
}
