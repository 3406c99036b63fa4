//! Why a load could not be run.

use crate::limits::{RATE_RPS_MAX, REQUESTS_MAX, SENSORS_MAX, THERMOSTATS_MAX};

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No node of the application is known.
    #[error("application {app} has no node that takes requests")]
    NoNodes {
        /// The application.
        app: String,
    },
    /// An address that cannot be read.
    #[error("address {address:?} of a node is not IP:PORT")]
    Address {
        /// The address.
        address: String,
    },
    /// An address outside of this machine.
    #[error("address {address} of a node is not a loopback address")]
    NotLoopback {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// Nobody answers.
    #[error("no answer from any of {nodes} nodes within {waited_s} s")]
    NoAnswer {
        /// How many were asked.
        nodes: usize,
        /// How long.
        waited_s: u64,
    },
    /// No node serves a shard.
    #[error("no node has served the shard {shard} for {waited_s} s")]
    NotServed {
        /// The shard.
        shard: e3_model::ShardKey,
        /// How long it was tried.
        waited_s: u64,
    },
    /// The nodes do not know the application.
    #[error("application {app} takes no requests: {reason}")]
    NoSuchApplication {
        /// The application.
        app: String,
        /// What the node said.
        reason: String,
    },
    /// The first request had no useful answer.
    #[error("first request to application {app} failed: {reason}")]
    FirstRequest {
        /// The application.
        app: String,
        /// What came back.
        reason: String,
    },
    /// The state before the load could not be read.
    #[error(
        "application {app} left {unanswered} questions about its state before the load unanswered"
    )]
    Baseline {
        /// The application.
        app: String,
        /// Questions.
        unanswered: u64,
    },
    /// Somebody stopped the load before its first request.
    #[error("stopped before the load began: nothing was sent")]
    Stopped,
    /// The workload needs a secret that was not given.
    #[error("workload {workload} needs the secret {secret}")]
    MissingSecret {
        /// The workload.
        workload: &'static str,
        /// The secret.
        secret: &'static str,
    },
    /// The rate is out of bounds.
    #[error("rate is {rate_rps} requests/s, must be over 0 and at most {RATE_RPS_MAX}")]
    Rate {
        /// The rate.
        rate_rps: f64,
    },
    /// The run is too long for its rate.
    #[error("run has {requests} requests, must be 1..={REQUESTS_MAX}")]
    Requests {
        /// Rate times duration.
        requests: u64,
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
        /// What it says.
        text: String,
    },
    /// A line of the route table cannot be read.
    #[error("routes: line {line} is {text:?}, must be PREFIX/LEN NEXTHOP")]
    Route {
        /// Line of the file, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A line of the words of mails cannot be read.
    #[error(
        "words of mails: line {line} is {text:?}, must be a word and its two counts, or eleven deciles"
    )]
    MailWords {
        /// Line of the file, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A file of traffic cannot be sent.
    #[error("{file}{place}: {reason}")]
    Traffic {
        /// The file.
        file: String,
        /// Where in it.
        place: crate::traffic::Place,
        /// What is wrong there.
        reason: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}
