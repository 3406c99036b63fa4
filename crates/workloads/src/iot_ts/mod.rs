//! The workload of the thermostat application (IOT-TS).
//!
//! Each thermostat replays hourly climate normals of a real station from an offset of its own, with
//! injected spikes. A few updates carry a bad token and must be refused. A thermostat has at most one
//! update in flight, so retries cannot reorder its readings. What it sends depends on the seed and its
//! number alone, not on timing. Its name contains the number of the run, so every load starts with
//! thermostats that the application does not know.

mod expected;
mod messages;
mod readback;
mod temperatures;
#[cfg(test)]
mod tests;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::limits::THERMOSTATS_MAX;
use crate::readback::queries::answer;
use crate::tokens::{Token, TokenKey, is_for_the_token, is_nothing};
use e3_loadgen::ledger::Meaning;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use messages::{Counted, Stored, count, first_failed, update};
use readback::Readback;
use std::collections::VecDeque;
use temperatures::{Series, stations};

/// Thermostats, if rate and duration allow.
const THERMOSTATS: u32 = 1000;
/// Readings that each thermostat should get in a run, by having fewer thermostats.
const READINGS_MIN: f64 = 10.0;
/// Updates per second that one thermostat may send; above it, there are more thermostats.
const RATE_PER_THERMOSTAT_MAX: f64 = 20.0;
/// One reading in so many is a spike.
const SPIKE_ONE_IN: u64 = 200;
/// No spike among a thermostat's first readings: detection needs a level first.
const SPIKE_AFTER: usize = 2;
/// Height of a spike in tenths of a degree.
const SPIKE_HEIGHT: std::ops::RangeInclusive<i16> = 120..=200;
/// One update in so many carries a bad token.
const BAD_TOKEN_ONE_IN: u64 = 100;
/// Time of the data's first hour: 2010-01-01 00:00.
const FIRST_HOUR_S: i64 = 1_262_304_000;
/// Seconds between two readings.
pub(super) const HOUR_S: i64 = 3600;
/// Life of a token.
const TOKEN_LIFE_S: i64 = 7 * 86_400;

/// What the workload is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed.
    pub seed: u64,
    /// Thermostats.
    pub thermostats: u32,
    /// Value of the application's secret `token-key`.
    pub token_key: Vec<u8>,
    /// Time since the Unix epoch.
    pub now: Timestamp,
    /// Number of the run as it is part of names.
    pub run: String,
}

impl Settings {
    /// As many thermostats as suit rate and duration, unless the inputs say how many.
    pub fn new(inputs: &Inputs, token_key: Vec<u8>) -> Settings {
        let requests = inputs.rate_rps * inputs.duration.as_secs_f64();
        let fit = (requests / READINGS_MIN).clamp(1.0, f64::from(THERMOSTATS));
        let fit = fit.max(inputs.rate_rps / RATE_PER_THERMOSTAT_MAX);
        let fit = fit.ceil().min(f64::from(THERMOSTATS_MAX)) as u32;
        Settings {
            seed: inputs.seed,
            thermostats: inputs.senders.unwrap_or(fit),
            token_key,
            now: inputs.now,
            run: inputs.run_name(),
        }
    }
}

/// Outcome of a thermostat's reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Not answered, or not yet.
    Unknown,
    /// Stored, according to the application.
    Accepted,
    /// Not stored, according to the application or the platform.
    Refused,
}

/// One reading that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    /// Tenths of a degree.
    pub(super) decidegrees_c: i16,
    /// A spike was added to it.
    pub(super) spike: bool,
    /// Its outcome.
    pub(super) fate: Fate,
}

/// One thermostat.
#[derive(Debug)]
pub(super) struct Thermostat {
    pub(super) user: String,
    pub(super) token: Token,
    station: usize,
    offset: usize,
    random: Random,
    pub(super) sent: Vec<Sent>,
    /// The update in flight carries a bad token.
    bad_token: bool,
}

impl Thermostat {
    /// Time of its `n`th reading.
    pub(super) fn reading_time_s(&self, n: usize) -> i64 {
        FIRST_HOUR_S + (self.offset + n) as i64 * HOUR_S
    }
}

/// The workload.
pub struct IotTs {
    stations: [Series; 2],
    thermostats: Vec<Thermostat>,
    token_key: TokenKey,
    now_s: i64,
    free: VecDeque<u32>,
    readback: Readback,
}

impl IotTs {
    /// Thermostats with their tokens.
    pub fn new(settings: Settings) -> Result<IotTs, WorkloadError> {
        let count = settings.thermostats;
        if count == 0 || count > THERMOSTATS_MAX {
            return Err(WorkloadError::Thermostats { thermostats: count });
        }
        let stations = stations()?;
        let token_key = TokenKey::new(&settings.token_key);
        let now_s = settings.now.since(Timestamp::ZERO).as_secs() as i64;
        let mut random = Random::new(settings.seed);
        let thermostats: Vec<Thermostat> = (0..count)
            .map(|n| {
                let user = format!("t{}-{n:04x}", settings.run);
                let mut random = Random::new(random.next_u64());
                let station = (n % 2) as usize;
                Thermostat {
                    token: token_key.mint(&user, now_s + TOKEN_LIFE_S),
                    user,
                    station,
                    offset: random.below(stations[station].len() as u64) as usize,
                    random,
                    sent: Vec::new(),
                    bad_token: false,
                }
            })
            .collect();
        Ok(IotTs {
            stations,
            token_key,
            now_s,
            free: (0..count).collect(),
            readback: Readback::new(&thermostats),
            thermostats,
        })
    }

    /// The token that must be refused: forged, expired, or another thermostat's.
    fn bad_token(&mut self, index: usize) -> Token {
        let thermostat = &mut self.thermostats[index];
        match thermostat.random.below(3) {
            0 => {
                let mut token = thermostat.token.clone();
                token.tag[0] ^= 1;
                token
            }
            1 => self.token_key.mint(&thermostat.user, self.now_s - 1),
            _ => {
                let other = format!("{}x", thermostat.user);
                self.token_key.mint(&other, self.now_s + TOKEN_LIFE_S)
            }
        }
    }

    fn next_reading(&mut self, index: usize) -> Sent {
        let thermostat = &mut self.thermostats[index];
        let series = &self.stations[thermostat.station];
        let n = thermostat.sent.len();
        let real = series[(thermostat.offset + n) % series.len()];
        let spike = thermostat.random.one_in(SPIKE_ONE_IN) && n >= SPIKE_AFTER;
        let mut decidegrees_c = real;
        if spike {
            let span = u64::from(SPIKE_HEIGHT.end().abs_diff(*SPIKE_HEIGHT.start())) + 1;
            let height = SPIKE_HEIGHT.start() + thermostat.random.below(span) as i16;
            decidegrees_c += if thermostat.random.one_in(2) {
                height
            } else {
                -height
            };
        }
        Sent {
            decidegrees_c,
            spike,
            fate: Fate::Unknown,
        }
    }
}

/// A reading's value as it is sent.
pub(super) fn celsius(decidegrees_c: i16) -> f64 {
    f64::from(decidegrees_c) / 10.0
}

impl Workload for IotTs {
    fn name(&self) -> &'static str {
        "iot-ts"
    }

    fn describe(&self) -> String {
        format!(
            "{} thermostats with hourly readings",
            self.thermostats.len()
        )
    }

    fn probe(&mut self) -> Call {
        let thermostat = &self.thermostats[0];
        count(0, &thermostat.user, &thermostat.token)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        let counted = answer::<Counted>(Some(reply)).is_some();
        // No table before the first row.
        if counted || is_nothing(reply) {
            Ok(())
        } else {
            Err(first_failed(reply))
        }
    }

    fn next(&mut self) -> Option<Call> {
        let index = self.free.pop_front()?;
        let at = index as usize;
        let bad = self.thermostats[at].random.one_in(BAD_TOKEN_ONE_IN);
        let reading_time_s = self.thermostats[at].reading_time_s(self.thermostats[at].sent.len());
        let (token, decidegrees_c) = if bad {
            // The good update of this hour comes next, so that there is no gap.
            (self.bad_token(at), 0)
        } else {
            let sent = self.next_reading(at);
            self.thermostats[at].sent.push(sent);
            (self.thermostats[at].token.clone(), sent.decidegrees_c)
        };
        let thermostat = &mut self.thermostats[at];
        thermostat.bad_token = bad;
        let celsius = celsius(decidegrees_c);
        let tag = u64::from(index);
        Some(update(
            tag,
            &thermostat.user,
            &token,
            reading_time_s,
            celsius,
        ))
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        self.free.push_back(tag as u32);
        let thermostat = &mut self.thermostats[tag as usize];
        let bad_token = thermostat.bad_token;
        let Some(reply) = reply else {
            return Judged {
                meaning: None,
                expected: true,
            };
        };
        let meaning = match (reply.outcome, reply.status) {
            (Outcome::Done, 0) => Some(Meaning::Accepted),
            (Outcome::Done, _) => Some(match is_for_the_token(reply) {
                Some(true) => Meaning::Unauthorized,
                Some(false) => Meaning::RateLimited,
                None => Meaning::Refused,
            }),
            _ => None,
        };
        if !bad_token && let Some(sent) = thermostat.sent.last_mut() {
            let stored = meaning == Some(Meaning::Accepted);
            sent.fate = if stored {
                Fate::Accepted
            } else {
                Fate::Refused
            };
        }
        let stored = || answer::<Stored>(Some(reply)).is_some_and(|s| s.row > 0);
        let expected = match meaning {
            None | Some(Meaning::RateLimited) => true,
            Some(Meaning::Accepted) => !bad_token && stored(),
            Some(Meaning::Unauthorized) => bad_token,
            Some(Meaning::Refused | Meaning::RefusedOnPurpose) => false,
        };
        Judged { meaning, expected }
    }

    fn next_check(&mut self, now: Timestamp) -> Check {
        self.readback.next(now, &self.thermostats)
    }

    fn on_check(&mut self, now: Timestamp, tag: u64, reply: Option<&Reply>) {
        self.readback.on_answer(now, tag, reply);
    }

    fn checked(&self) -> f64 {
        self.readback.progress()
    }

    fn verify(&self) -> Verified {
        self.readback.verify(&self.thermostats)
    }
}
