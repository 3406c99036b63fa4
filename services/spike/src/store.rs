//! How levels and spikes are stored.

use alloc::vec::Vec;

/// A reading and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) value: f64,
    pub(crate) time_s: i64,
}

/// The last good reading, and how many outliers came since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) good: Reading,
    /// Time of the last reading of any kind.
    pub(crate) seen_s: i64,
    pub(crate) outliers: u8,
}

impl Level {
    pub(crate) const BYTES: usize = 25;

    pub(crate) fn of(reading: Reading) -> Self {
        Self {
            good: reading,
            seen_s: reading.time_s,
            outliers: 0,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.good.value.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.good.time_s.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seen_s.to_le_bytes());
        bytes[24] = self.outliers;
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (value, rest) = bytes.split_first_chunk()?;
        let (time_s, rest) = rest.split_first_chunk()?;
        let (seen_s, rest) = rest.split_first_chunk()?;
        Some(Self {
            good: Reading {
                value: f64::from_le_bytes(*value),
                time_s: i64::from_le_bytes(*time_s),
            },
            seen_s: i64::from_le_bytes(*seen_s),
            outliers: *rest.first()?,
        })
    }
}

/// A spike, found by its series and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spike {
    pub(crate) value: f64,
    pub(crate) z: f64,
}

/// Bytes of a spike's key beyond the series' own.
pub(crate) const SPIKE_KEY_EXTRA_BYTES: usize = 2 + 8;

/// The series' length, so that the spikes of one series lie together and no other's among them; the
/// series; the time, with the sign bit flipped, so that the order of bytes is that of times.
pub(crate) fn spike_key(series: &[u8], time_s: i64) -> Vec<u8> {
    let len = (series.len() as u16).to_be_bytes();
    let time = (time_s ^ i64::MIN).to_be_bytes();
    [&len, series, &time].concat()
}

impl Spike {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.value.to_le_bytes());
        bytes[8..].copy_from_slice(&self.z.to_le_bytes());
        bytes
    }

    /// The time and the spike of an entry.
    pub(crate) fn parse(key: &[u8], value: &[u8]) -> Option<(i64, Self)> {
        let time_s = i64::from_be_bytes(*key.last_chunk()?) ^ i64::MIN;
        let (value, z) = value.split_first_chunk()?;
        let (value, z) = (
            f64::from_le_bytes(*value),
            f64::from_le_bytes(z.try_into().ok()?),
        );
        Some((time_s, Self { value, z }))
    }
}
