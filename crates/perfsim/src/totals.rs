//! Counters of a run.

use crate::model::Model;
use crate::report::Step;
use hdrhistogram::Histogram;

const SIGNIFICANT_DIGITS: u8 = 3;

/// What was counted when.
#[derive(Clone, Default)]
pub(crate) struct Mark {
    pub at: u64,
    pub joules: Vec<f64>,
    pub work: Vec<u64>,
    pub ports: Vec<(u64, u64)>,
    pub dma: Vec<u64>,
    /// By thread.
    pub busy: Vec<u64>,
    pub uplink: u64,
    pub arrived: u64,
    pub done: u64,
    pub failed: u64,
}

/// The counters.
pub(crate) struct Totals {
    pub arrived: u64,
    pub done: u64,
    /// Requests whose clients gave up.
    pub failed: u64,
    /// Answered later than users accept.
    pub late: u64,
    pub messages_lost: u64,
    pub moves: u64,
    pub copies: u64,
    pub copied_bytes: u64,
    pub latency: Histogram<u64>,
    pub latency_sum: f64,
    /// By node and service.
    pub weight_nj: Vec<f64>,
    /// Of requests that arrived and were answered while it was measured.
    pub request_weight_nj: f64,
    /// Of requests that had arrived before.
    pub other_weight_nj: f64,
    /// By service.
    pub handled: Vec<u64>,
    pub sojourn_ns: Vec<f64>,
    /// Where the measurement begins.
    pub begin: Mark,
    /// At the last tick.
    pub tick: Mark,
    /// In flight and arrived in the middle of the measurement.
    pub middle: Option<(usize, u64)>,
    pub timeline: Vec<Step>,
}

impl Totals {
    pub fn new(model: &Model) -> Totals {
        let services = model.services.len();
        Totals {
            arrived: 0,
            done: 0,
            failed: 0,
            late: 0,
            messages_lost: 0,
            moves: 0,
            copies: 0,
            copied_bytes: 0,
            latency: Histogram::new_with_bounds(
                1,
                crate::limits::DURATION_MAX.0,
                SIGNIFICANT_DIGITS,
            )
            .expect("a valid precision"),
            latency_sum: 0.0,
            weight_nj: vec![0.0; model.nodes.len() * services],
            request_weight_nj: 0.0,
            other_weight_nj: 0.0,
            handled: vec![0; services],
            sojourn_ns: vec![0.0; services],
            begin: Mark::default(),
            tick: Mark::default(),
            middle: None,
            timeline: Vec::new(),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.weight_nj.len() * size_of::<f64>()
            + self.latency.distinct_values() * size_of::<u64>()
            + self.timeline.len() * size_of::<Step>()
    }
}
