//! Errors that prevent a workload.

use crate::limits::{SENSORS_MAX, THERMOSTATS_MAX};

/// An error that prevents a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The workload needs a secret that was not given.
    #[error("workload {workload} needs the secret {secret}")]
    MissingSecret {
        /// The workload.
        workload: &'static str,
        /// The secret.
        secret: &'static str,
    },
    /// Too many thermostats.
    #[error("thermostats is {thermostats}, must be 1..={THERMOSTATS_MAX}")]
    Thermostats {
        /// How many were asked for.
        thermostats: u32,
    },
    /// Too many sensors, or none.
    #[error("sensors is {sensors}, must be 1..={SENSORS_MAX}")]
    Sensors {
        /// How many were asked for.
        sensors: u32,
    },
    /// A row of the temperatures cannot be read.
    #[error(
        "temperatures: line {line} is {text:?}, must be three whole numbers, the last two -1000..=1000"
    )]
    Temperatures {
        /// Line of the file, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// A line of the route table cannot be read.
    #[error("routes: line {line} is {text:?}, must be PREFIX/LEN NEXTHOP")]
    Route {
        /// Line of the file, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// A line of the words of mails cannot be read.
    #[error(
        "words of mails: line {line} is {text:?}, must be a word and its two counts, or eleven deciles"
    )]
    MailWords {
        /// Line of the file, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
}
