//! Exponential moving average of each thermostat's readings.
//!
//! Readings do not come at even intervals (`sql` passes on only what differs enough from the
//! last one passed on), so the weight of a reading follows from the time since the one before:
//! `average += (1 - exp(-dt / T)) * (reading - average)`, the exact step of a first-order low-pass
//! with time constant `T` and an input held since the last reading (Eckner, "Algorithms for
//! unevenly spaced time series"). A reading that is not newer than the last one is not taken.
//!
//! Needs the hash collection `averages` (thermostat -> average, time) and the counter collection
//! `samples` (fetch-and-add by thermostat). Configuration: `time-constant-s` (default 21600,
//! six hours).

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use e3_iot_messages::{AnalysisMessage, Reading, Reply, routing_key};
use e3_sdk::{Counter, Error, HashMap, Request, Service, config_or, reply};

/// The average after the readings so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Average {
    average_c: f64,
    updated_s: i64,
}

impl Average {
    const BYTES: usize = 16;

    fn step(self, reading: &Reading, time_constant_s: f64) -> Self {
        let elapsed_s = reading.reading_time_s.saturating_sub(self.updated_s) as f64;
        let weight = 1.0 - libm::exp(-elapsed_s / time_constant_s);
        Self {
            average_c: self.average_c + weight * (reading.temperature_c - self.average_c),
            updated_s: reading.reading_time_s,
        }
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.average_c.to_le_bytes());
        bytes[8..].copy_from_slice(&self.updated_s.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (average_c, updated_s) = bytes.split_at_checked(8)?;
        Some(Self {
            average_c: f64::from_le_bytes(average_c.try_into().ok()?),
            updated_s: i64::from_le_bytes(updated_s.try_into().ok()?),
        })
    }
}

/// Averages.
#[derive(Debug)]
pub struct Ema {
    averages: HashMap,
    samples: Counter,
    time_constant_s: f64,
    out: Vec<u8>,
}

impl Service for Ema {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            averages: HashMap::open("averages")?,
            samples: Counter::open("samples")?,
            time_constant_s: config_or("time-constant-s", 21_600.0)?,
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match AnalysisMessage::decode(request.payload()) {
            Ok(AnalysisMessage::Reading(reading)) => self.on_reading(&reading),
            Ok(AnalysisMessage::Query { thermostat, .. }) => self.on_query(thermostat),
            Err(error) => self.answer(&Reply::Malformed(error.to_string())),
        }
    }
}

impl Ema {
    fn on_reading(&self, reading: &Reading) -> Result<(), Error> {
        let key = routing_key(reading.thermostat);
        let average = match self.load(&key)? {
            None => Average {
                average_c: reading.temperature_c,
                updated_s: reading.reading_time_s,
            },
            Some(average) if reading.reading_time_s <= average.updated_s => return Ok(()),
            Some(average) => average.step(reading, self.time_constant_s),
        };
        self.averages.put(&key, &average.to_bytes())?;
        self.samples.fetch_add(&key, 1);
        Ok(())
    }

    fn on_query(&mut self, thermostat: u32) -> Result<(), Error> {
        let key = routing_key(thermostat);
        let answer = match self.load(&key)? {
            Some(average) => Reply::Ema {
                average_c: average.average_c,
                updated_s: average.updated_s,
                samples: self.samples.get(&key).max(0) as u64,
            },
            None => Reply::NotFound(format!("thermostat {thermostat}: no reading yet")),
        };
        self.answer(&answer)
    }

    fn load(&self, key: &[u8]) -> Result<Option<Average>, Error> {
        let mut room = [0; Average::BYTES];
        let bytes = self.averages.get(key, &mut room)?;
        Ok(bytes.and_then(Average::from_bytes))
    }

    fn answer(&mut self, answer: &Reply) -> Result<(), Error> {
        self.out.clear();
        answer.encode(&mut self.out);
        reply(answer.status(), &self.out)
    }
}

e3_sdk::service!(Ema, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_iot_messages::status;
    use e3_sdk::testing::{Call, Host, Kind, Outcome};

    fn host() -> Host {
        Host::new()
            .collection("averages", Kind::Hash)
            .collection("samples", Kind::Counter)
            .config("time-constant-s", "7200")
    }

    fn send(host: &Host, ema: &mut Ema, message: &AnalysisMessage) -> Outcome {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        host.call(
            ema,
            &Call {
                payload,
                ..Call::default()
            },
        )
    }

    fn ask(host: &Host, ema: &mut Ema, thermostat: u32) -> Reply {
        let query = AnalysisMessage::Query {
            thermostat,
            from_time_s: 0,
        };
        let outcome = send(host, ema, &query);
        Reply::decode(outcome.replies[0].0, &outcome.replies[0].1).unwrap()
    }

    /// Against the defining integral: a low-pass driven by each reading held since the one
    /// before, integrated in steps of a second.
    #[test]
    fn equals_the_low_pass_integrated_in_small_steps() {
        let host = host();
        let mut ema = Ema::init().unwrap();
        let readings = [
            (0, 10.0),
            (3600, 12.0),
            (3700, 30.0),
            (20_000, 11.0),
            (20_001, -4.0),
        ];
        let mut naive = readings[0].1;
        let mut last_s = 0;
        for (reading_time_s, temperature_c) in readings {
            for _ in last_s..reading_time_s {
                naive += (temperature_c - naive) * (1.0 - (-1.0_f64 / 7200.0).exp());
            }
            last_s = reading_time_s;
            let reading = Reading {
                thermostat: 3,
                reading_time_s,
                temperature_c,
            };
            let outcome = send(&host, &mut ema, &AnalysisMessage::Reading(reading));
            assert_eq!((outcome.result, outcome.replies.len()), (Ok(()), 0));
        }
        let Reply::Ema {
            average_c,
            updated_s,
            samples,
        } = ask(&host, &mut ema, 3)
        else {
            panic!("no average");
        };
        assert!((average_c - naive).abs() < 1e-9, "{average_c} != {naive}");
        assert_eq!((updated_s, samples), (20_001, 5));
        assert_eq!(ask(&host, &mut ema, 4).status(), status::NOT_FOUND);
    }

    #[test]
    fn late_and_malformed_readings_change_nothing() {
        let host = host();
        let mut ema = Ema::init().unwrap();
        let mut reading = Reading {
            thermostat: 3,
            reading_time_s: 100,
            temperature_c: 10.0,
        };
        send(&host, &mut ema, &AnalysisMessage::Reading(reading));
        let before = host.state();
        reading.temperature_c = 20.0;
        let outcome = send(&host, &mut ema, &AnalysisMessage::Reading(reading));
        assert_eq!(outcome.result, Ok(()));
        let outcome = host.call(&mut ema, &Call::default());
        assert_eq!(outcome.replies[0].0, status::MALFORMED);
        assert_eq!(host.state(), before);
    }
}
