//! Exponential moving average of a series of readings, one series for each routing key.
//!
//! Readings may come at uneven intervals, so the weight of a reading depends on the time since the
//! previous one: `ema += (1 - exp(-dt / T)) * (value - ema)`, the exact step of a first-order low-pass
//! filter with time constant `T` whose input is held since the previous reading (Eckner, "Algorithms for
//! unevenly spaced time series"). The first reading is the first average. A reading that is not newer than
//! the last accepted one is ignored.
//!
//! Input: the field `value` (config `field`) is the reading, a number within ±1e150; `time` (config `time`)
//! is its time in whole seconds. The service adds `ema`, the average after the reading, and `samples`, the
//! number of accepted readings. An ignored reading gets the current values.
//!
//! Query ([`Stage::query`]) `get`: returns `ema`, `time` (of the last accepted reading) and `samples` of
//! the request's own key; NOT_FOUND if there is no reading yet.
//!
//! Configuration: `field`, `time`, `time-constant-s` (`T`, above 0, default 21600, six hours), and that of
//! [`Stage`]. Collections: hash map `averages` (key -> average, time), counter `samples` (key -> accepted
//! readings).

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;

use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Counter, Error, HashMap, Request, Service, config, config_or, reply};

/// Readings lie within plus and minus this, so that no average runs over.
pub const READING_MAX: f64 = 1e150;

/// A reading and its time.
#[derive(Clone, Copy, Debug)]
struct Reading {
    value: f64,
    time_s: i64,
}

/// The average after the readings so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Average {
    ema: f64,
    updated_s: i64,
}

impl Average {
    const BYTES: usize = 16;

    fn step(self, reading: Reading, time_constant_s: f64) -> Self {
        let elapsed_s = reading.time_s.saturating_sub(self.updated_s) as f64;
        let weight = -libm::expm1(-elapsed_s / time_constant_s);
        Self {
            ema: self.ema + weight * (reading.value - self.ema),
            updated_s: reading.time_s,
        }
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.ema.to_le_bytes());
        bytes[8..].copy_from_slice(&self.updated_s.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ema, updated_s) = bytes.split_first_chunk()?;
        Some(Self {
            ema: f64::from_le_bytes(*ema),
            updated_s: i64::from_le_bytes(updated_s.try_into().ok()?),
        })
    }
}

/// The service.
#[derive(Debug)]
pub struct Ema {
    stage: Stage,
    field: String,
    time: String,
    time_constant_s: f64,
    averages: HashMap,
    samples: Counter,
    out: Builder,
}

impl Service for Ema {
    fn init() -> Result<Self, Error> {
        let time_constant_s: f64 = config_or("time-constant-s", 21_600.0)?;
        if !(time_constant_s.is_finite() && time_constant_s > 0.0) {
            return Err(Error::Config {
                name: "time-constant-s",
                value: format!("{time_constant_s}"),
            });
        }
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "value".into()),
            time: config("time").unwrap_or_else(|| "time".into()),
            time_constant_s,
            averages: HashMap::open("averages")?,
            samples: Counter::open("samples")?,
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

impl Ema {
    fn on_record(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        key: &[u8],
    ) -> Result<(), Error> {
        match self.stage.query(request, record)? {
            Query::None => {}
            Query::Forwarded => return Ok(()),
            Query::Mine("get") => return self.on_get(key),
            Query::Mine(op) => {
                let why = format!("is {op:?}, must be \"get\"");
                return self.stage.refuse(&RecordError::value("op", why));
            }
        }
        match self.reading(record) {
            Ok(reading) => self.on_reading(request, record, key, reading),
            Err(error) => self.stage.refuse(&error),
        }
    }

    fn reading(&self, record: &Record<'_>) -> Result<Reading, RecordError> {
        let (value, time_s) = (record.number(&self.field)?, record.int(&self.time)?);
        if value.abs() <= READING_MAX {
            Ok(Reading { value, time_s })
        } else {
            let why = format!("is {value:e}, must be within ±{READING_MAX:e}");
            Err(RecordError::value(&self.field, why))
        }
    }

    fn on_reading(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        key: &[u8],
        reading: Reading,
    ) -> Result<(), Error> {
        let (average, samples) = match self.load(key)? {
            Some(average) if reading.time_s <= average.updated_s => {
                (average, self.samples.get(key))
            }
            stored => {
                let average = match stored {
                    Some(average) => average.step(reading, self.time_constant_s),
                    None => Average {
                        ema: reading.value,
                        updated_s: reading.time_s,
                    },
                };
                self.averages.put(key, &average.to_bytes())?;
                (average, self.samples.fetch_add(key, 1) + 1)
            }
        };
        if !self.stage.has_output() {
            return Ok(());
        }
        let out = self.out.clear().copy(record, &["ema", "samples"]);
        out.field("ema", Value::Float(average.ema))
            .field("samples", Value::Int(samples));
        self.stage.forward_record(request, out)
    }

    fn on_get(&mut self, key: &[u8]) -> Result<(), Error> {
        let Some(average) = self.load(key)? else {
            return reply(status::NOT_FOUND, b"ema: no reading yet for this key");
        };
        let out = self.out.clear();
        out.field("ema", Value::Float(average.ema))
            .field("time", Value::Int(average.updated_s))
            .field("samples", Value::Int(self.samples.get(key)));
        reply(status::OK, out.bytes())
    }

    fn load(&self, key: &[u8]) -> Result<Option<Average>, Error> {
        let mut buffer = [0; Average::BYTES];
        let bytes = self.averages.get(key, &mut buffer)?;
        Ok(bytes.and_then(Average::from_bytes))
    }
}

e3_sdk::service!(Ema, request_capacity = 16384);
