//! What a run measured.

use crate::ledger::LedgerReport;
use crate::verdict::{ClusterChange, ServiceCheck, Verdict, judge};
use crate::workload::Finding;
use e3_model::Latency;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Verdict on the load.
    pub verdict: Verdict,
    /// Why it is not `proved`, one reason each.
    pub reasons: Vec<String>,
    /// What was read back of each stateful service.
    pub checks: Vec<ServiceCheck>,
    /// What the controller says of state lost and dead letters; None if it was not asked.
    pub cluster: Option<ClusterChange>,
    /// The load was stopped before its end; the rest of the report is about what was sent.
    pub stopped_early: bool,
    /// Workload.
    pub workload: String,
    /// What it sent.
    pub senders: String,
    /// Seed; the same seed sends the same, but for the names of senders.
    pub seed: u64,
    /// Length of the load.
    pub duration_s: f64,
    /// Requests due per second.
    pub offered_rps: f64,
    /// Requests handled by the application within the load's duration, per second.
    pub achieved_rps: f64,
    /// Latency of the requests that the application handled, from the time that each was due.
    pub latency: Latency,
    /// Longest time without an outcome while requests were in flight.
    pub longest_pause_ms: f64,
    /// The load in steps of 100 ms.
    pub timeline: Vec<Step>,
    /// Outcomes of the requests.
    pub ledger: LedgerReport,
    /// Findings about the application.
    pub findings: Vec<Finding>,
}

impl LoadReport {
    /// Takes into account what the controller says.
    pub fn judge_with(&mut self, cluster: Option<ClusterChange>) {
        self.cluster = cluster;
        (self.verdict, self.reasons) = judge(&self.ledger, &self.checks, cluster.as_ref());
    }
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// Its start, since the load began.
    pub at_ms: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests handled by the application.
    pub done: u64,
    /// Other outcomes.
    pub other: u64,
    /// Longest latency of the requests handled.
    pub latency_us_max: f64,
    /// Longest time without an outcome that ended in it, while requests were in flight.
    pub pause_ms_max: f64,
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Waiting for the first answer.
    Probe,
    /// Reading the state of earlier loads.
    Baseline,
    /// Sending.
    Load,
    /// Waiting for the last answers.
    Drain,
    /// Reading the state back.
    Check,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Where it is.
    pub phase: Phase,
    /// Part of this phase that is over, 0..=1.
    pub fraction: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests handled by the application.
    pub done: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// Median latency so far, in microseconds.
    pub p50_us: f64,
}

/// The latency of requests that are counted in nanoseconds.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Latency {
        avg_us: histogram.mean() / 1e3,
        p50_us: at(0.5),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        max_us: histogram.max() as f64 / 1e3,
    }
}
