//! A token bucket: permits are added at a steady rate up to a maximum.
//!
//! Double precision, as in the paper's IOT-TS: it is slow on SmartNIC cores without a floating-point unit.

use core::fmt;

use e3_sdk::{Error, config_or};

const NANOS: f64 = 1e9;

/// Rate and capacity of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Permits per second.
    pub rate: f64,
    /// Most permits.
    pub burst: f64,
}

impl Limit {
    /// From the configuration: `rate` above 0 (default 50) and `burst` of at least 1 (default 100).
    pub fn open() -> Result<Self, Error> {
        let bounded = |name, default: f64, min: f64| {
            let number: f64 = config_or(name, default)?;
            if number.is_finite() && number >= min {
                Ok(number)
            } else {
                Err(Error::Config {
                    name,
                    value: alloc::format!("{number}"),
                })
            }
        };
        Ok(Self {
            rate: bounded("rate", 50.0, f64::MIN_POSITIVE)?,
            burst: bounded("burst", 100.0, 1.0)?,
        })
    }
}

/// How long to wait for a permit, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    micros: i64,
}

impl Wait {
    /// A century, longer than any useful wait.
    const MICROS_MAX: i64 = 100 * 365 * 24 * 3600 * 1_000_000;
}

impl fmt::Display for Wait {
    /// Seconds, to the millisecond if that is exact, else to the microsecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, us) = (self.micros / 1_000_000, self.micros % 1_000_000);
        match us % 1000 {
            0 => write!(f, "{s}.{:03} s", us / 1000),
            _ => write!(f, "{s}.{us:06} s"),
        }
    }
}

/// A bucket in which `permits` were left at `at` (nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    permits: f64,
    at: i64,
}

impl Bucket {
    /// Bytes of a stored bucket.
    pub const BYTES: usize = 16;

    /// A full bucket.
    pub fn full(limit: Limit, now: i64) -> Self {
        Self {
            permits: limit.burst,
            at: now,
        }
    }

    /// The bucket with one permit less, or the time until there is one.
    pub fn draw(self, limit: Limit, now: i64) -> Result<Self, Wait> {
        let permits = self.permits_at(limit, now);
        if permits < 1.0 {
            return Err(self.wait(limit, now, permits));
        }
        Ok(Self {
            permits: permits - 1.0,
            at: now.max(self.at),
        })
    }

    fn permits_at(self, limit: Limit, now: i64) -> f64 {
        let elapsed_s = now.saturating_sub(self.at).max(0) as f64 / NANOS;
        (self.permits + elapsed_s * limit.rate).min(limit.burst)
    }

    /// The wait from `now` on with `permits` left; after it there is a permit.
    fn wait(self, limit: Limit, now: i64, permits: f64) -> Wait {
        // time may have gone back since the last draw
        let ahead_ns = self.at.saturating_sub(now).max(0) as f64;
        let micros = ((1.0 - permits) / limit.rate * NANOS + ahead_ns) / 1000.0;
        let mut micros = micros.min(Wait::MICROS_MAX as f64) as i64;
        // rounding may leave the result just below one permit
        let mut step = 1;
        let has_permit = |micros: i64| {
            self.permits_at(limit, now.saturating_add(micros.saturating_mul(1000))) >= 1.0
        };
        while micros < Wait::MICROS_MAX && !has_permit(micros) {
            micros = (micros + step).min(Wait::MICROS_MAX);
            step *= 2;
        }
        Wait { micros }
    }

    /// As it is stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.permits.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    /// From what is stored.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (permits, at) = bytes.split_first_chunk()?;
        Some(Self {
            permits: f64::from_le_bytes(*permits),
            at: i64::from_le_bytes(at.try_into().ok()?),
        })
    }
}
