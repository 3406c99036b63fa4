//! Finds spikes in the readings of each thermostat.
//!
//! Temperature follows the day, so a level says little; what a fault of a sensor or an open
//! window shows in is the *change*. The statistic is the Z-score of the change since the last
//! good reading against the window of the last good changes:
//!
//! - A spike does not poison its window: its change does not enter the window, and the next
//!   reading is compared with the last good one, so that the way back is no second spike.
//! - After [`OUTLIERS_MAX`] outliers in a row the level has moved; the reading is taken as the
//!   new level.
//! - A short window says little about the spread, so the variance is shrunk towards a prior
//!   (`prior-sd-c`, worth [`PRIOR_CHANGES`] changes); detection works from the second reading on
//!   and a constant series does not make every flicker a spike.
//! - After a gap the change has had more time: its spread grows with the square root of the
//!   intervals passed. After [`GAP_INTERVALS_MAX`] the level is taken anew.
//!
//! Needs to see every reading (`spike-change-c: 0` of `sql`): changes below a threshold that
//! were left out would widen the spread. A reading that is not newer than the last is ignored.
//!
//! Needs the hash collection `levels` (thermostat -> last good reading), the array collection
//! `windows` (thermostat -> changes) and the ordered collection `spikes` (thermostat, time ->
//! reading, Z-score). Configuration: `z` (threshold, default 4.5), `window` (changes, default
//! 24), `prior-sd-c` (default 0.7), `interval-s` (of the readings, default 3600).

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::string::ToString;
use alloc::vec::Vec;

use e3_iot_messages::{AnalysisMessage, Reading, Reply, Spike, limits, routing_key};
use e3_sdk::{Array, Error, HashMap, OrderedMap, Request, Service, config_or, reply};

/// This many outliers in a row are a new level.
pub const OUTLIERS_MAX: u8 = 3;
/// Changes that the prior spread counts for.
pub const PRIOR_CHANGES: f64 = 6.0;
/// After a silence of this many intervals the level is taken anew.
pub const GAP_INTERVALS_MAX: f64 = 6.0;
/// Longest window.
pub const WINDOW_MAX: usize = 168;

/// The last good reading, and how many outliers came since.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    temperature_c: f64,
    reading_time_s: i64,
    /// Time of the last reading of any kind.
    seen_s: i64,
    outliers: u8,
}

impl Level {
    const BYTES: usize = 25;

    fn of(reading: &Reading) -> Self {
        Self {
            temperature_c: reading.temperature_c,
            reading_time_s: reading.reading_time_s,
            seen_s: reading.reading_time_s,
            outliers: 0,
        }
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.temperature_c.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.reading_time_s.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seen_s.to_le_bytes());
        bytes[24] = self.outliers;
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (temperature_c, rest) = bytes.split_first_chunk()?;
        let (reading_time_s, rest) = rest.split_first_chunk()?;
        let (seen_s, rest) = rest.split_first_chunk()?;
        Some(Self {
            temperature_c: f64::from_le_bytes(*temperature_c),
            reading_time_s: i64::from_le_bytes(*reading_time_s),
            seen_s: i64::from_le_bytes(*seen_s),
            outliers: *rest.first()?,
        })
    }
}

/// Z-score of a change over `intervals` against the window of changes.
fn z_score(change_c: f64, intervals: f64, window: &[f64], prior_sd_c: f64) -> f64 {
    let weight = PRIOR_CHANGES + window.len() as f64;
    let mean = window.iter().sum::<f64>() / weight;
    let squares: f64 = window.iter().map(|c| (c - mean) * (c - mean)).sum();
    let variance = (PRIOR_CHANGES * (prior_sd_c * prior_sd_c + mean * mean) + squares) / weight;
    (change_c - intervals * mean) / libm::sqrt(variance * intervals)
}

/// Finds spikes.
#[derive(Debug)]
pub struct Detector {
    levels: HashMap,
    windows: Array,
    spikes: OrderedMap,
    z_threshold: f64,
    window_len: usize,
    prior_sd_c: f64,
    interval_s: f64,
    window: Vec<f64>,
    out: Vec<u8>,
}

impl Service for Detector {
    fn init() -> Result<Self, Error> {
        let window_len: usize = config_or("window", 24)?;
        Ok(Self {
            levels: HashMap::open("levels")?,
            windows: Array::open("windows")?,
            spikes: OrderedMap::open("spikes")?,
            z_threshold: config_or("z", 4.5)?,
            window_len: window_len.clamp(1, WINDOW_MAX),
            prior_sd_c: config_or("prior-sd-c", 0.7)?,
            interval_s: config_or("interval-s", 3600.0)?,
            window: Vec::new(),
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match AnalysisMessage::decode(request.payload()) {
            Ok(AnalysisMessage::Reading(reading)) => self.on_reading(&reading),
            Ok(AnalysisMessage::Query {
                thermostat,
                from_time_s,
            }) => self.on_query(thermostat, from_time_s),
            Err(error) => self.answer(&Reply::Malformed(error.to_string())),
        }
    }
}

impl Detector {
    fn on_reading(&mut self, reading: &Reading) -> Result<(), Error> {
        let key = routing_key(reading.thermostat);
        let mut room = [0; Level::BYTES];
        let level = self.levels.get(&key, &mut room)?;
        let Some(level) = level.and_then(Level::from_bytes) else {
            return self.levels.put(&key, &Level::of(reading).to_bytes());
        };
        if reading.reading_time_s <= level.seen_s {
            return Ok(());
        }
        let elapsed_s = reading.reading_time_s.saturating_sub(level.reading_time_s) as f64;
        let intervals = (elapsed_s / self.interval_s).max(1.0);
        if intervals > GAP_INTERVALS_MAX {
            return self.levels.put(&key, &Level::of(reading).to_bytes());
        }
        self.load_window(&key)?;
        let change_c = reading.temperature_c - level.temperature_c;
        let z = z_score(change_c, intervals, &self.window, self.prior_sd_c);
        if z.abs() < self.z_threshold {
            if self.window.len() == self.window_len {
                self.windows.pop_front(&key)?;
            }
            self.windows
                .push(&key, &(change_c / intervals).to_le_bytes())?;
            return self.levels.put(&key, &Level::of(reading).to_bytes());
        }
        let spike_key = spike_key(reading.thermostat, reading.reading_time_s);
        let mut value = [0; 16];
        value[..8].copy_from_slice(&reading.temperature_c.to_le_bytes());
        value[8..].copy_from_slice(&z.to_le_bytes());
        self.spikes.put(&spike_key, &value)?;
        let outliers = level.outliers + 1;
        let level = if outliers >= OUTLIERS_MAX {
            Level::of(reading)
        } else {
            Level {
                seen_s: reading.reading_time_s,
                outliers,
                ..level
            }
        };
        self.levels.put(&key, &level.to_bytes())
    }

    fn load_window(&mut self, key: &[u8]) -> Result<(), Error> {
        self.window.clear();
        let mut room = [0; 8];
        for index in 0..self.windows.len(key) {
            let Some(change) = self.windows.get(key, index, &mut room)? else {
                break;
            };
            if let Ok(change) = change.try_into() {
                self.window.push(f64::from_le_bytes(change));
            }
        }
        Ok(())
    }

    fn on_query(&mut self, thermostat: u32, from_time_s: i64) -> Result<(), Error> {
        let from = spike_key(thermostat, from_time_s);
        // The largest key of the thermostat, and one byte more.
        let mut to = [0xff; SPIKE_KEY_BYTES + 1];
        to[..SPIKE_KEY_BYTES].copy_from_slice(&spike_key(thermostat, i64::MAX));
        let mut scan = self.spikes.scan(&from, &to);
        let mut spikes = Vec::new();
        let mut more = false;
        while let Some((key, value)) = scan.next()? {
            if spikes.len() == limits::SPIKES_MAX {
                more = true;
                break;
            }
            spikes.extend(decode_spike(key, value));
        }
        self.answer(&Reply::Spikes { spikes, more })
    }

    fn answer(&mut self, answer: &Reply) -> Result<(), Error> {
        self.out.clear();
        answer.encode(&mut self.out);
        reply(answer.status(), &self.out)
    }
}

const SPIKE_KEY_BYTES: usize = 12;

/// Thermostat, then time, so that byte order is time order (the sign bit is flipped).
fn spike_key(thermostat: u32, reading_time_s: i64) -> [u8; SPIKE_KEY_BYTES] {
    let mut key = [0; SPIKE_KEY_BYTES];
    key[..4].copy_from_slice(&routing_key(thermostat));
    key[4..].copy_from_slice(&(reading_time_s ^ i64::MIN).to_be_bytes());
    key
}

fn decode_spike(key: &[u8], value: &[u8]) -> Option<Spike> {
    let reading_time_s = i64::from_be_bytes(*key.last_chunk()?) ^ i64::MIN;
    let (temperature_c, rest) = value.split_first_chunk()?;
    Some(Spike {
        reading_time_s,
        temperature_c: f64::from_le_bytes(*temperature_c),
        z: f64::from_le_bytes(*rest.first_chunk()?),
    })
}

e3_sdk::service!(Detector, request_capacity = 2048);

#[cfg(test)]
mod tests;
