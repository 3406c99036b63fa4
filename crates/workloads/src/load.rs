//! A workload in two halves: a generator decides what an application is sent, an oracle knows what the
//! answers and the state must be. [`Load`] joins them: it keeps what is in flight, and asks the oracle's
//! queries before and after the load.

use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::handled;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Check, Finding, Judged, Verified, Workload};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::Reply;
use std::collections::BTreeMap;

/// Decides what an application is sent.
pub(crate) trait Generator<O: Oracle> {
    /// Senders and requests, for the report.
    fn describe(&self) -> String;
    /// The next request, which may depend on earlier answers; None if every sender waits for one.
    fn next(&mut self, oracle: &mut O) -> Option<(Call, O::Sent)>;
    /// A request has ended, so its sender may send the next one.
    fn on_outcome(&mut self, _: &O::Sent, _: Judged) {}
}

/// Knows what an application must answer, and what state it must have.
pub(crate) trait Oracle {
    /// Name of the application.
    const NAME: &'static str;
    /// Time between the load and the queries after it.
    const SETTLE: Nanos = Nanos(0);
    /// What must be known of a request to judge its answer.
    type Sent;
    /// A query about the state.
    type Asked: Ask;

    /// The time, set before each request.
    fn at(&mut self, _: Timestamp) {}
    /// The first request.
    fn probe(&self) -> Call;
    /// Takes the answer to it; an error is the reason in words.
    fn on_probe(&self, reply: &Reply) -> Result<(), String>;
    /// Queries before the load.
    fn baseline(&self) -> Vec<(Self::Asked, Call)>;
    /// Takes an answer before the load; None if it is not valid, so that the query is sent again.
    fn on_baseline(&mut self, asked: Self::Asked, reply: Option<&Reply>) -> Option<()>;
    /// Judges the outcome of a request.
    fn on_outcome(&mut self, sent: &Self::Sent, reply: Option<&Reply>) -> Judged;
    /// Queries after the load.
    fn checks(&self) -> Vec<(Self::Asked, Call)>;
    /// Compares an answer after the load with what was sent; None if it is not valid, so that the
    /// query is sent again.
    fn on_check(&mut self, asked: Self::Asked, reply: Option<&Reply>) -> Option<Facts>;
    /// Rows against accepted requests.
    fn rows(&self) -> Rows;
    /// What was read back of each service.
    fn services(&self, checks: &Checks<Self::Asked>) -> Vec<ServiceCheck>;
    /// What the application found.
    fn findings(&self) -> Vec<Finding>;
}

/// A generator and its oracle as one workload.
pub(crate) struct Load<G, O: Oracle> {
    pub(crate) generator: G,
    pub(crate) oracle: O,
    pub(crate) in_flight: BTreeMap<u64, O::Sent>,
    last_tag: u64,
    baseline: Checks<O::Asked>,
    /// Queries after the load, and the time from which they are sent.
    checks: Option<(Timestamp, Checks<O::Asked>)>,
}

impl<O: Oracle, G: Generator<O>> Load<G, O> {
    pub(crate) fn new(generator: G, oracle: O) -> Load<G, O> {
        Load {
            generator,
            baseline: Checks::new(oracle.baseline()),
            oracle,
            in_flight: BTreeMap::new(),
            last_tag: 0,
            checks: None,
        }
    }
}

impl<O: Oracle, G: Generator<O>> Workload for Load<G, O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn describe(&self) -> String {
        self.generator.describe()
    }

    fn probe(&mut self) -> Call {
        self.oracle.probe()
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        self.oracle.on_probe(reply)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let asked = self.baseline.asked(tag);
        let taken = asked.and_then(|asked| self.oracle.on_baseline(asked, reply));
        self.baseline.take(tag, taken.map(|()| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn at(&mut self, now: Timestamp) {
        self.oracle.at(now);
    }

    fn next(&mut self) -> Option<Call> {
        let (call, sent) = self.generator.next(&mut self.oracle)?;
        self.last_tag += 1;
        let tag = self.last_tag;
        self.in_flight.insert(tag, sent);
        Some(Call { tag, ..call })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let Some(sent) = self.in_flight.remove(&tag) else {
            return Judged::refused(handled(reply));
        };
        let judged = self.oracle.on_outcome(&sent, reply);
        self.generator.on_outcome(&sent, judged);
        judged
    }

    fn next_check(&mut self, now: Timestamp) -> Check {
        let oracle = &self.oracle;
        let (from, checks) = self
            .checks
            .get_or_insert_with(|| (now + O::SETTLE, Checks::new(oracle.checks())));
        if now < *from {
            Check::At(*from)
        } else {
            checks.next()
        }
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let Some((_, checks)) = &mut self.checks else {
            return;
        };
        let asked = checks.asked(tag);
        let facts = asked.and_then(|asked| self.oracle.on_check(asked, reply));
        checks.take(tag, facts);
    }

    fn checked(&self) -> f64 {
        let checks = self.checks.as_ref();
        checks.map_or(0.0, |(_, checks)| checks.progress())
    }

    fn verify(&self) -> Verified {
        let none = Checks::default();
        let checks = self.checks.as_ref().map_or(&none, |(_, checks)| checks);
        Verified {
            rows: Rows {
                checks_failed: checks.unanswered(),
                ..self.oracle.rows()
            },
            checks: self.oracle.services(checks),
            findings: self.oracle.findings(),
        }
    }
}
