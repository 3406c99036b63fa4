//! Workloads: what an application is sent, and how its state read back is judged.

mod alerts;
mod cells;
mod checks;
mod counts;
mod floods;
mod gateway;
pub mod health;
mod iot_dh;
mod iot_ts;
mod kept;
pub mod mails;
mod models;
mod nearest;
mod nfv_din;
mod nfv_fin;
mod nfv_ifid;
mod packet_totals;
pub mod packets;
mod plain;
mod questions;
mod readback;
mod replay;
mod rta_ptc;
mod rta_sf;
mod rta_shm;
mod runbooks;
mod score;
mod sealed;
pub mod sensors;
mod temperatures;
mod thermostats;
pub mod tweets;

pub use iot_dh::IotDh;
pub use iot_ts::{IotTs, Settings};
pub use nfv_din::NfvDin;
pub use nfv_fin::NfvFin;
pub use nfv_ifid::NfvIfid;
pub use plain::Plain;
pub(crate) use questions::record;
pub use replay::Replay;
pub use rta_ptc::RtaPtc;
pub use rta_sf::RtaSf;
pub use rta_shm::RtaShm;

use crate::LoadError;
use crate::ledger::{Meaning, Rows};
use crate::verdict::ServiceCheck;
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One request to the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The workload's own mark; comes back with the answer.
    pub tag: u64,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// Next step of reading the state back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// Ask this.
    Ask(Call),
    /// Nothing to ask before this time.
    At(Timestamp),
    /// Nothing to ask before an answer comes.
    Wait,
    /// All is read.
    Finished,
}

/// What an answer of the application means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Its meaning; None if the platform, not the application, gave the outcome.
    pub meaning: Option<Meaning>,
    /// False if it is wrong for what was asked.
    pub expected: bool,
}

impl Judged {
    /// Done as it should be.
    pub fn accepted() -> Judged {
        Judged {
            meaning: Some(Meaning::Accepted),
            expected: true,
        }
    }

    /// By the status of the answer, where nobody knows what it had to be.
    pub fn by_status(reply: Option<&Reply>) -> Judged {
        let done = reply.filter(|r| r.outcome == Outcome::Done);
        let meaning = done.map(|r| match r.status {
            0 => Meaning::Accepted,
            _ => Meaning::Refused,
        });
        Judged {
            meaning,
            expected: true,
        }
    }

    /// Refused by the application, as the request was meant to be.
    pub fn refused_on_purpose() -> Judged {
        Judged {
            meaning: Some(Meaning::RefusedOnPurpose),
            expected: true,
        }
    }

    /// Not done: by the application, which is wrong here, or by the platform.
    pub fn refused(by_application: bool) -> Judged {
        Judged {
            meaning: by_application.then_some(Meaning::Refused),
            expected: !by_application,
        }
    }
}

/// How well injected spikes were found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spikes {
    /// Spikes in accepted readings.
    pub injected: u64,
    /// Spikes that the application recorded.
    pub detected: u64,
    /// Recorded spikes that were injected.
    pub hits: u64,
    /// Hits among the recorded ones; None if none was recorded.
    pub precision: Option<f64>,
    /// Hits among the injected ones; None if none was injected.
    pub recall: Option<f64>,
}

/// What an application found of what there was to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Right ones.
    pub right: u64,
    /// Of so many.
    pub of: u64,
    /// How it was judged.
    pub how: &'static str,
}

/// What came of reading the state back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Rows against accepted updates.
    pub rows: Rows,
    /// What was read back of each stateful service.
    pub checks: Vec<ServiceCheck>,
    /// Score of spike detection, if the workload has spikes.
    pub spikes: Option<Spikes>,
    /// Other findings of the application.
    pub findings: Vec<Finding>,
}

/// What an application is sent.
pub trait Workload {
    /// Name.
    fn name(&self) -> &'static str;
    /// Keys that requests are sent for, for the report ("1000 thermostats").
    fn describe(&self) -> String;
    /// The first request: changes nothing, shows that the application answers.
    fn probe(&mut self) -> Call;
    /// Takes the answer to it; an error ends the run before it began.
    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError>;
    /// The next question about the state before the load, where earlier loads may have left some.
    fn next_baseline(&mut self) -> Check {
        Check::Finished
    }
    /// Takes the answer to it.
    fn on_baseline(&mut self, _tag: u64, _reply: Option<&Reply>) {}
    /// Questions about the state before the load that had no answer.
    fn baseline_unanswered(&self) -> u64 {
        0
    }
    /// The time, told before every [`Workload::next`].
    fn at(&mut self, _: Timestamp) {}
    /// When each request is due, since the load began, in order; None = at the load's rate.
    fn schedule(&self) -> Option<Arc<[Nanos]>> {
        None
    }
    /// The next request; None if every sender waits for an answer.
    fn next(&mut self) -> Option<Call>;
    /// Takes the outcome of a request; None if there was no answer.
    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged;
    /// The next question about the state, after the load.
    fn next_check(&mut self, now: Timestamp) -> Check;
    /// Takes the answer to a question.
    fn on_check(&mut self, now: Timestamp, tag: u64, reply: Option<&Reply>);
    /// Part of the state that has been read back, 0..=1.
    fn checked(&self) -> f64;
    /// Result, when all is read.
    fn verify(&self) -> Verified;
}

/// What workloads are made from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Seed of all that is random.
    pub seed: u64,
    /// Offered rate.
    pub rate_rps: f64,
    /// Length of the load.
    pub duration: Duration,
    /// Time since the Unix epoch, for the expiry of tokens.
    pub now: Timestamp,
    /// Secrets of the application.
    pub secrets: BTreeMap<String, Vec<u8>>,
    /// Senders; None = as many as suit rate and duration.
    pub senders: Option<u32>,
    /// Number of the run, which no other has. It is part of the names of senders whose state must
    /// begin empty, so that an application can be loaded any number of times, with any seed.
    pub run: u64,
}

impl Inputs {
    /// The run's number as it is part of names.
    fn run_name(&self) -> String {
        format!("{:010x}", self.run & 0xff_ffff_ffff)
    }
}

/// Secrets that the workload of an application needs.
pub fn secrets(application: &str) -> &'static [&'static str] {
    match application {
        "iot-dh" | "iot-ts" => &["token-key"],
        _ => &[],
    }
}

/// The workload of an application, by its name; small plain requests if it has none of its own.
pub fn for_application(application: &str, inputs: &Inputs) -> Result<Box<dyn Workload>, LoadError> {
    let token_key = |workload| {
        let key = inputs.secrets.get("token-key");
        key.cloned().ok_or(LoadError::MissingSecret {
            workload,
            secret: "token-key",
        })
    };
    match application {
        "iot-dh" => Ok(Box::new(IotDh::new(inputs, &token_key("iot-dh")?)?)),
        "iot-ts" => {
            let settings = Settings::new(inputs, token_key("iot-ts")?);
            Ok(Box::new(IotTs::new(settings)?))
        }
        "nfv-din" => Ok(Box::new(NfvDin::new(inputs)?)),
        "nfv-fin" => Ok(Box::new(NfvFin::new(inputs))),
        "nfv-ifid" => Ok(Box::new(NfvIfid::new(inputs)?)),
        "rta-ptc" => Ok(Box::new(RtaPtc::new(inputs))),
        "rta-sf" => Ok(Box::new(RtaSf::new(inputs)?)),
        "rta-shm" => Ok(Box::new(RtaShm::new(inputs))),
        _ => Ok(Box::new(Plain::new(inputs.seed))),
    }
}
