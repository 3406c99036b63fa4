//! Errors that prevent a load.

use crate::limits::{RATE_RPS_MAX, REQUESTS_MAX};
use crate::traffic::items::Place;
use e3_client::ClientError;

/// An error that prevents a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No node answers.
    #[error("no answer from any of {nodes} nodes within {waited_s} s")]
    NoAnswer {
        /// How many were asked.
        nodes: usize,
        /// How long.
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
        "application {app} left {unanswered} queries about its state before the load without a reply"
    )]
    Baseline {
        /// The application.
        app: String,
        /// Queries.
        unanswered: u64,
    },
    /// Somebody stopped the load before its first request.
    #[error("stopped before the load began: nothing was sent")]
    Stopped,
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
    /// A file of traffic cannot be sent.
    #[error("{file}{place}: {reason}")]
    Traffic {
        /// The file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong there.
        reason: String,
    },
}
