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
    pub pauses: Pauses,
}

/// Outcomes of requests and the times between them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pauses {
    /// When a request had its outcome last, or was sent while none was in flight.
    since: u64,
    longest: u64,
    /// Of the present step.
    step: StepOutcomes,
}

/// Outcomes in a step of the timeline.
#[derive(Clone, Copy, Default)]
pub(crate) struct StepOutcomes {
    pub other: u64,
    pub latency_max: u64,
    pub pause_max: u64,
}

impl Pauses {
    /// The same without what was found so far.
    pub fn fresh(&self) -> Pauses {
        Pauses {
            since: self.since,
            ..Pauses::default()
        }
    }

    /// A request is sent.
    #[inline]
    pub fn on_sent(&mut self, now: u64, is_only_one: bool) {
        if is_only_one {
            self.since = now;
        }
    }

    /// A request has its outcome: its latency, or None if it was refused.
    #[inline]
    pub fn on_outcome(&mut self, now: u64, latency: Option<u64>) {
        let pause = now - self.since;
        self.since = now;
        self.longest = self.longest.max(pause);
        let step = &mut self.step;
        step.pause_max = step.pause_max.max(pause);
        step.other += u64::from(latency.is_none());
        step.latency_max = step.latency_max.max(latency.unwrap_or(0));
    }

    /// A step ends.
    pub fn take_step(&mut self) -> StepOutcomes {
        std::mem::take(&mut self.step)
    }

    /// The longest pause until now, the one that lasts included.
    pub fn longest(&self, now: u64, in_flight: usize) -> u64 {
        let lasts = if in_flight > 0 { now - self.since } else { 0 };
        self.longest.max(lasts)
    }
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
            pauses: Pauses::default(),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.weight_nj.len() * size_of::<f64>()
            + self.latency.distinct_values() * size_of::<u64>()
            + self.timeline.len() * size_of::<Step>()
    }
}
