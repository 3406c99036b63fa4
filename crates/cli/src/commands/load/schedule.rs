//! A workload whose requests are due at given times.

use e3_loadgen::Workload;
use e3_loadgen::workload::{Call, Check, Judged, Verified};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::Reply;
use std::sync::Arc;

/// The workload, with its times.
pub struct Scheduled {
    /// What is sent.
    pub workload: Box<dyn Workload>,
    /// When each request is due, since the load began.
    pub times: Arc<[Nanos]>,
}

impl Workload for Scheduled {
    fn schedule(&self) -> Option<Arc<[Nanos]>> {
        Some(self.times.clone())
    }

    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn describe(&self) -> String {
        self.workload.describe()
    }

    fn probe(&mut self) -> Call {
        self.workload.probe()
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        self.workload.on_probe(reply)
    }

    fn next_baseline(&mut self) -> Check {
        self.workload.next_baseline()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        self.workload.on_baseline(tag, reply);
    }

    fn baseline_unanswered(&self) -> u64 {
        self.workload.baseline_unanswered()
    }

    fn at(&mut self, now: Timestamp) {
        self.workload.at(now);
    }

    fn next(&mut self) -> Option<Call> {
        self.workload.next()
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        self.workload.on_outcome(tag, reply)
    }

    fn next_check(&mut self, now: Timestamp) -> Check {
        self.workload.next_check(now)
    }

    fn on_check(&mut self, now: Timestamp, tag: u64, reply: Option<&Reply>) {
        self.workload.on_check(now, tag, reply);
    }

    fn checked(&self) -> f64 {
        self.workload.checked()
    }

    fn verify(&self) -> Verified {
        self.workload.verify()
    }
}
