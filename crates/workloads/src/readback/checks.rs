//! Checks of services: queries about their state, and for each service the facts that agree with the
//! ledger and those that differ.

use crate::readback::queries::Queries;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Check};
use std::collections::BTreeMap;

/// A query, as its workload knows it.
pub(crate) trait Ask: Copy {
    /// The service that it is about.
    fn service(self) -> &'static str;
}

/// Facts of an answer: those that are what the ledger says, and those that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) right: u64,
    pub(crate) wrong: u64,
}

impl Facts {
    /// One fact.
    pub(crate) fn one(right: bool) -> Facts {
        Facts {
            right: u64::from(right),
            wrong: u64::from(!right),
        }
    }

    /// One fact more.
    pub(crate) fn add(&mut self, right: bool) {
        self.right += u64::from(right);
        self.wrong += u64::from(!right);
    }
}

/// All queries of a load and their results.
#[derive(Debug)]
pub(crate) struct Checks<Q> {
    asked: Vec<Q>,
    queries: Queries,
    /// By service: facts, and queries that were answered.
    found: BTreeMap<&'static str, (Facts, u64)>,
}

impl<Q: Ask> Checks<Q> {
    pub(crate) fn new(all: Vec<(Q, Call)>) -> Checks<Q> {
        let (asked, calls) = all.into_iter().unzip();
        Checks {
            asked,
            queries: Queries::new(calls),
            found: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Check {
        self.queries.next()
    }

    /// The query of a tag.
    pub(crate) fn asked(&self, tag: u64) -> Option<Q> {
        self.asked.get(tag as usize).copied()
    }

    /// Takes the facts of an answer; None if it is not valid, so that the query is sent again.
    pub(crate) fn take(&mut self, tag: u64, facts: Option<Facts>) {
        if let (Some(asked), Some(facts)) = (self.asked(tag), facts) {
            let (all, answered) = self.found.entry(asked.service()).or_default();
            all.right += facts.right;
            all.wrong += facts.wrong;
            *answered += 1;
        }
        self.queries.on_answer(tag, facts.is_some());
    }

    /// Part that is answered, 0..=1.
    pub(crate) fn progress(&self) -> f64 {
        self.queries.progress()
    }

    /// Queries that have no answer.
    pub(crate) fn unanswered(&self) -> u64 {
        let answered: u64 = self.found.values().map(|(_, answered)| answered).sum();
        self.asked.len() as u64 - answered
    }

    /// Result of the queries about a service. `unsure` facts are not known to the ledger.
    pub(crate) fn of(
        &self,
        service: &'static str,
        what: &'static str,
        unsure: u64,
    ) -> ServiceCheck {
        let asked = self.asked.iter().filter(|q| q.service() == service).count() as u64;
        let (facts, answered) = self.found.get(service).copied().unwrap_or_default();
        ServiceCheck {
            readable: true,
            right: facts.right,
            wrong: facts.wrong,
            unread: asked - answered,
            unsure,
            ..ServiceCheck::unreadable(service, what)
        }
    }
}

/// Facts that show only when all answers are there.
pub(crate) trait WithFacts {
    /// With these facts, if every query is answered.
    fn with_facts(self, facts: Facts) -> Self;
}

impl WithFacts for ServiceCheck {
    fn with_facts(self, facts: Facts) -> ServiceCheck {
        if self.unread > 0 {
            return self;
        }
        ServiceCheck {
            right: facts.right,
            wrong: facts.wrong,
            ..self
        }
    }
}

/// No queries.
impl<Q: Ask> Default for Checks<Q> {
    fn default() -> Self {
        Checks::new(Vec::new())
    }
}
