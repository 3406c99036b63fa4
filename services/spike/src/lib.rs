//! Finds spikes in a series of readings, one series for each routing key.
//!
//! Measured values often follow the time of day, so the level alone says little; a faulty sensor or an
//! open window shows in the *change*. The score ([`score`]) is the Z-score of the change since the last
//! good reading against a window of the last good changes:
//!
//! - A spike does not enter the window, and the next reading is compared with the last good one, so the
//!   return to normal is not a second spike.
//! - After [`OUTLIERS_MAX`] outliers in a row the level has moved: the reading becomes the new level.
//! - A short window says little about the variance, so the variance is shrunk towards a prior
//!   (`prior-sd`, with the weight of [`score::PRIOR_CHANGES`] changes). Detection works from the second
//!   reading on, and small changes of a constant series are not spikes.
//! - After a gap, a change had more time to grow: the standard deviation is scaled with the square root of
//!   the elapsed intervals. After [`GAP_INTERVALS_MAX`] the reading becomes the new level.
//!
//! Input: the field `value` (config `field`) is the reading, a number within ±1e100; `time` (config `time`)
//! is its time in whole seconds. The service adds `z`, the score, and `spike`, 1 if the absolute score is at
//! least the threshold, else 0. A reading that is not newer than the last one is ignored; it has the score
//! 0, as has a new level after a gap. The service must receive every reading: without the small changes
//! the variance would be too large.
//!
//! Query ([`Stage::query`]) `spikes`: returns the spikes of the request's own key from the time `from` on
//! (seconds; default: all) in order: `times`, `values`, `z`, and `more`, 1 if there are more than the 1024
//! of one reply (query again from the last time plus 1), else 0.
//!
//! Configuration: `field`, `time`, `z` (threshold, above 0, default 4.5), `window` (changes, 1..=168,
//! default 24), `prior-sd` (above 0, default 0.7), `interval-s` (of the readings, above 0, default 3600),
//! and that of [`Stage`]. Collections: hash map `levels` (key -> last good reading), array `windows`
//! (key -> changes), ordered map `spikes` (key, its length, time -> reading, score).

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod score;
mod store;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use e3_sdk::{Array, Error, HashMap, OrderedMap, Request, Service, config, config_or, reply};
use score::z_score;
use store::{Level, Reading, SPIKE_KEY_EXTRA_BYTES, Spike, spike_key};

/// This many outliers in a row are a new level.
pub const OUTLIERS_MAX: u8 = 3;
/// After a silence of this many intervals the level is taken again.
pub const GAP_INTERVALS_MAX: f64 = 6.0;
/// Longest window.
pub const WINDOW_MAX: usize = 168;
/// Readings lie within plus and minus this, so that no square runs over.
pub const READING_MAX: f64 = 1e100;
/// Most spikes of one answer.
pub const SPIKES_MAX: usize = 1024;
/// The prior's spread lies between this and [`READING_MAX`].
pub const PRIOR_SD_MIN: f64 = 1e-100;
/// Bytes of a spike in an answer: three numbers with their heads.
const ANSWER_BYTES: usize = 27;
const _: () = assert!(SPIKES_MAX * ANSWER_BYTES + 64 <= VALUE_BYTES_MAX);
/// Longest routing key whose spikes can be kept.
pub const SERIES_BYTES_MAX: usize = KEY_BYTES_MAX - SPIKE_KEY_EXTRA_BYTES - 1;

/// The service.
#[derive(Debug)]
pub struct Detector {
    stage: Stage,
    field: String,
    time: String,
    z_threshold: f64,
    window_len: usize,
    prior_sd: f64,
    interval_s: f64,
    levels: HashMap,
    windows: Array,
    spikes: OrderedMap,
    window: Vec<f64>,
    out: Builder,
}

impl Service for Detector {
    fn init() -> Result<Self, Error> {
        let above = |name, default: f64, min: f64| {
            let number: f64 = config_or(name, default)?;
            if (min..=READING_MAX).contains(&number) {
                Ok(number)
            } else {
                Err(Error::Config {
                    name,
                    value: format!("{number}"),
                })
            }
        };
        let window_len: usize = config_or("window", 24)?;
        if !(1..=WINDOW_MAX).contains(&window_len) {
            return Err(Error::Config {
                name: "window",
                value: format!("{window_len}"),
            });
        }
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "value".into()),
            time: config("time").unwrap_or_else(|| "time".into()),
            z_threshold: above("z", 4.5, f64::MIN_POSITIVE)?,
            window_len,
            prior_sd: above("prior-sd", 0.7, PRIOR_SD_MIN)?,
            interval_s: above("interval-s", 3600.0, f64::MIN_POSITIVE)?,
            levels: HashMap::open("levels")?,
            windows: Array::open("windows")?,
            spikes: OrderedMap::open("spikes")?,
            window: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.stage.refuse(&error),
        };
        request.with_key(|key| self.on_record(request, &record, key))
    }
}

impl Detector {
    fn on_record(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        key: &[u8],
    ) -> Result<(), Error> {
        let query = self.stage.query(request, record)?;
        if query == Query::Forwarded {
            return Ok(());
        }
        if key.len() > SERIES_BYTES_MAX {
            let why = format!(
                "routing key: has {} bytes, must have at most {SERIES_BYTES_MAX}",
                key.len()
            );
            return reply(status::MALFORMED, why.as_bytes());
        }
        match query {
            Query::None | Query::Forwarded => {}
            Query::Mine("spikes") => return self.on_spikes(record, key),
            Query::Mine(op) => {
                let why = format!("is {op:?}, must be \"spikes\"");
                return self.stage.refuse(&RecordError::value("op", why));
            }
        }
        let reading = match self.reading(record) {
            Ok(reading) => reading,
            Err(error) => return self.stage.refuse(&error),
        };
        let z = self.on_reading(key, reading)?;
        if !self.stage.has_output() {
            return Ok(());
        }
        let spike = z.abs() >= self.z_threshold;
        let out = self.out.clear().copy(record, &["z", "spike"]);
        out.field("z", Value::Float(z))
            .field("spike", Value::Int(spike.into()));
        self.stage.forward_record(request, out)
    }

    fn reading(&self, record: &Record<'_>) -> Result<Reading, RecordError> {
        let (value, time_s) = (record.number(&self.field)?, record.int(&self.time)?);
        if value.abs() > READING_MAX {
            let why = format!("is {value:e}, must be within ±{READING_MAX:e}");
            return Err(RecordError::value(&self.field, why));
        }
        Ok(Reading { value, time_s })
    }

    /// Takes a reading; its score.
    fn on_reading(&mut self, key: &[u8], reading: Reading) -> Result<f64, Error> {
        let new_level = Level::of(reading).to_bytes();
        let mut buffer = [0; Level::BYTES];
        let level = self.levels.get(key, &mut buffer)?;
        let Some(level) = level.and_then(Level::from_bytes) else {
            self.levels.put(key, &new_level)?;
            return Ok(0.0);
        };
        if reading.time_s <= level.seen_s {
            return Ok(0.0);
        }
        let elapsed_s = reading.time_s.saturating_sub(level.good.time_s) as f64;
        let intervals = (elapsed_s / self.interval_s).max(1.0);
        if intervals > GAP_INTERVALS_MAX {
            self.levels.put(key, &new_level)?;
            return Ok(0.0);
        }
        self.load_window(key)?;
        let change = reading.value - level.good.value;
        let z = z_score(change, intervals, &self.window, self.prior_sd);
        if z.abs() < self.z_threshold {
            // of a longer window that was configured before, too
            for _ in self.window_len..=self.window.len() {
                self.windows.pop_front(key)?;
            }
            self.windows
                .push(key, &(change / intervals).to_le_bytes())?;
            self.levels.put(key, &new_level)?;
            return Ok(z);
        }
        let value = reading.value;
        let spike = spike_key(key, reading.time_s);
        self.spikes.put(&spike, &Spike { value, z }.to_bytes())?;
        let outliers = level.outliers + 1;
        let level = if outliers >= OUTLIERS_MAX {
            Level::of(reading)
        } else {
            Level {
                seen_s: reading.time_s,
                outliers,
                ..level
            }
        };
        self.levels.put(key, &level.to_bytes())?;
        Ok(z)
    }

    fn load_window(&mut self, key: &[u8]) -> Result<(), Error> {
        self.window.clear();
        self.windows.for_each(key, 0, |change| {
            if let Ok(change) = change.try_into() {
                self.window.push(f64::from_le_bytes(change));
            }
            Ok(())
        })
    }

    fn on_spikes(&mut self, record: &Record<'_>, key: &[u8]) -> Result<(), Error> {
        let from_s = match record.has("from").then(|| record.int("from")) {
            None => i64::MIN,
            Some(Ok(from_s)) => from_s,
            Some(Err(error)) => return self.stage.refuse(&error),
        };
        let mut times = Vec::new();
        let mut spikes = Vec::new();
        let mut more = false;
        // the largest key of the series, and one byte more
        let mut to = spike_key(key, i64::MAX);
        to.push(0);
        let mut scan = self.spikes.scan(&spike_key(key, from_s), &to);
        while let Some((key, value)) = scan.next()? {
            let Some((time_s, spike)) = Spike::parse(key, value) else {
                continue;
            };
            if spikes.len() == SPIKES_MAX {
                more = true;
                break;
            }
            times.push(time_s);
            spikes.push(spike);
        }
        let out = self.out.clear();
        let len = spikes.len();
        out.array("times", len, |a| {
            times.iter().for_each(|t| a.push(Value::Int(*t)));
        })
        .array("values", len, |a| {
            spikes.iter().for_each(|s| a.push(Value::Float(s.value)));
        })
        .array("z", len, |a| {
            spikes.iter().for_each(|s| a.push(Value::Float(s.z)));
        })
        .field("more", Value::Int(more.into()));
        reply(status::OK, out.bytes())
    }
}

e3_sdk::service!(Detector, request_capacity = 16384);
