//! Questions about the state of services, asked until they are answered, and for each service how many
//! facts are what the ledger says.

use super::questions::Questions;
use super::{Call, Check};
use crate::verdict::ServiceCheck;
use std::collections::BTreeMap;

/// A question, as its workload knows it.
pub(super) trait Ask: Copy {
    /// The service that it is about.
    fn service(self) -> &'static str;
}

/// Facts of an answer: those that are what the ledger says, and those that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) right: u64,
    pub(super) wrong: u64,
}

impl Facts {
    /// One fact.
    pub(super) fn one(right: bool) -> Facts {
        Facts {
            right: u64::from(right),
            wrong: u64::from(!right),
        }
    }

    /// One fact more.
    pub(super) fn add(&mut self, right: bool) {
        self.right += u64::from(right);
        self.wrong += u64::from(!right);
    }
}

/// All questions of a load, and what came of them.
#[derive(Debug)]
pub(super) struct Checks<Q> {
    asked: Vec<Q>,
    questions: Questions,
    /// By service: facts, and questions that were answered.
    found: BTreeMap<&'static str, (Facts, u64)>,
}

impl<Q: Ask> Checks<Q> {
    pub(super) fn new(all: Vec<(Q, Call)>) -> Checks<Q> {
        let (asked, calls) = all.into_iter().unzip();
        Checks {
            asked,
            questions: Questions::new(calls),
            found: BTreeMap::new(),
        }
    }

    pub(super) fn next(&mut self) -> Check {
        self.questions.next()
    }

    /// The question of a tag.
    pub(super) fn asked(&self, tag: u64) -> Option<Q> {
        self.asked.get(tag as usize).copied()
    }

    /// Takes what an answer says; None if it is none, so that the question is asked again.
    pub(super) fn take(&mut self, tag: u64, facts: Option<Facts>) {
        if let (Some(asked), Some(facts)) = (self.asked(tag), facts) {
            let (all, answered) = self.found.entry(asked.service()).or_default();
            all.right += facts.right;
            all.wrong += facts.wrong;
            *answered += 1;
        }
        self.questions.on_answer(tag, facts.is_some());
    }

    /// Part that is answered, 0..=1.
    pub(super) fn progress(&self) -> f64 {
        self.questions.progress()
    }

    /// Questions that have no answer.
    pub(super) fn unanswered(&self) -> u64 {
        let answered: u64 = self.found.values().map(|(_, answered)| answered).sum();
        self.asked.len() as u64 - answered
    }

    /// What came of the questions about a service. `unsure` facts are not known to the ledger.
    pub(super) fn of(
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

impl ServiceCheck {
    /// With facts that show only when all answers are there.
    pub(super) fn with(self, facts: Facts) -> ServiceCheck {
        match self.unread {
            0 => ServiceCheck {
                right: facts.right,
                wrong: facts.wrong,
                ..self
            },
            _ => self,
        }
    }
}

/// Before they are begun, there are none.
impl<Q: Ask> Default for Checks<Q> {
    fn default() -> Self {
        Checks::new(Vec::new())
    }
}
