//! Inputs of workloads.

use e3_model::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

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
    pub(crate) fn run_name(&self) -> String {
        format!("{:010x}", self.run & 0xff_ffff_ffff)
    }
}
