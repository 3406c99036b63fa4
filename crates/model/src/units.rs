//! Quantities with their units, written in manifests as `"50ms"` or `"64Mi"`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema)]
#[schemars(with = "String", extend("pattern" = r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)$"))]
pub struct Nanos(pub u64);

/// An amount of memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema)]
#[schemars(with = "String", extend("pattern" = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|k|M|G)?$"))]
pub struct Bytes(pub u64);

/// Power.
#[derive(
    Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Watts(pub f64);

/// Energy.
#[derive(
    Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Joules(pub f64);

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {what}")]
pub struct QuantityError {
    value: String,
    what: &'static str,
}

/// Reads a whole number as it is printed: digits, without a sign or leading zeros, which `str::parse`
/// would take.
pub fn whole<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    let leads = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && !leads)
}

fn parse(
    s: &str,
    units: &[(&str, u64)],
    bare: Option<u64>,
    what: &'static str,
) -> Result<u64, QuantityError> {
    let error = || QuantityError {
        value: s.to_string(),
        what,
    };
    let at = s
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(s.len());
    let (number, unit) = s.split_at(at);
    let factor = if unit.is_empty() {
        bare.ok_or_else(error)?
    } else {
        units.iter().find(|(u, _)| *u == unit).ok_or_else(error)?.1
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(error);
    }
    let value = number.parse::<f64>().map_err(|_| error())? * factor as f64;
    if value.is_finite() && value < u64::MAX as f64 {
        Ok(value.round() as u64)
    } else {
        Err(error())
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;
    fn from_str(s: &str) -> Result<Self, QuantityError> {
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        parse(
            s,
            &units,
            None,
            "a duration such as 50ms (ns, us, ms, s, m, h)",
        )
        .map(Nanos)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(s: &str) -> Result<Self, QuantityError> {
        let units = [
            ("k", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
        ];
        parse(
            s,
            &units,
            Some(1),
            "an amount of memory such as 64Mi (k, M, G, Ki, Mi, Gi)",
        )
        .map(Bytes)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        for (size, unit) in units {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}ns", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (size, unit) in [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

macro_rules! serde_as_text {
    ($t:ty) => {
        impl Serialize for $t {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Text {
                    S(String),
                    N(serde::de::IgnoredAny),
                }
                match Text::deserialize(d)? {
                    Text::S(s) => s.parse().map_err(serde::de::Error::custom),
                    Text::N(_) => Err(serde::de::Error::custom(
                        "a quantity must be text with a unit, such as \"50ms\" or \"64Mi\"",
                    )),
                }
            }
        }
    };
}
serde_as_text!(Nanos);
serde_as_text!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_round_trip() {
        for s in ["50ms", "5s", "7us", "3ns", "2h"] {
            assert_eq!(s.parse::<Nanos>().unwrap().to_string(), s);
        }
        for s in ["64Mi", "4Gi", "100", "3Ki"] {
            assert_eq!(s.parse::<Bytes>().unwrap().to_string(), s);
        }
        assert_eq!("1.5ms".parse::<Nanos>().unwrap(), Nanos(1_500_000));
        for s in ["", "50", "ms", "-1s", "+1s", "1e400s", "50 ms", "5y"] {
            assert!(s.parse::<Nanos>().is_err(), "{s}");
        }
        assert!("+64Mi".parse::<Bytes>().is_err());
        // More than a float holds exactly: every point in time since 1970.
        for ns in [u64::MAX, (1 << 53) + 1, 1_767_225_600_123_456_789] {
            assert_eq!(Nanos(ns).to_string().parse::<Nanos>(), Ok(Nanos(ns)));
            assert_eq!(Bytes(ns).to_string().parse::<Bytes>(), Ok(Bytes(ns)));
        }
        for s in ["18446744073709551616ns", "18446744073709552s", "1e9ns"] {
            assert!(s.parse::<Nanos>().is_err(), "{s}");
        }
    }

    #[test]
    fn a_whole_number_is_digits() {
        assert_eq!([whole("0"), whole("65535")], [Some(0u16), Some(65535)]);
        for wrong in ["", "+3", "-3", "-0", "03", "3 ", "65536", "0x3"] {
            assert_eq!(whole::<u16>(wrong), None, "{wrong:?}");
        }
    }
}
