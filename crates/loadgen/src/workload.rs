//! Workloads: what an application is sent, and how its state read back is judged.

use crate::ledger::{Meaning, Rows};
use crate::verdict::ServiceCheck;
pub use e3_client::Call;
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use serde::Serialize;
use std::sync::Arc;

/// Next step of reading the state back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// Ask this.
    Ask(Call),
    /// Nothing to ask before this time.
    At(Timestamp),
    /// Nothing to ask before an answer comes.
    Wait,
    /// All is read.
    Finished,
}

/// What an answer of the application means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Its meaning; None if the platform, not the application, gave the outcome.
    pub meaning: Option<Meaning>,
    /// False if it is wrong for what was asked.
    pub expected: bool,
}

impl Judged {
    /// Done as it should be.
    pub fn accepted() -> Judged {
        Judged {
            meaning: Some(Meaning::Accepted),
            expected: true,
        }
    }

    /// By the status of the answer, where the right answer is not known.
    pub fn by_status(reply: Option<&Reply>) -> Judged {
        let done = reply.filter(|r| r.outcome == Outcome::Done);
        let meaning = done.map(|r| match r.status {
            0 => Meaning::Accepted,
            _ => Meaning::Refused,
        });
        Judged {
            meaning,
            expected: true,
        }
    }

    /// Refused by the application, as the request was meant to be.
    pub fn refused_on_purpose() -> Judged {
        Judged {
            meaning: Some(Meaning::RefusedOnPurpose),
            expected: true,
        }
    }

    /// Not done: by the application, which is wrong here, or by the platform.
    pub fn refused(by_application: bool) -> Judged {
        Judged {
            meaning: by_application.then_some(Meaning::Refused),
            expected: !by_application,
        }
    }
}

/// Something that was measured about an application, such as recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Right ones.
    pub right: u64,
    /// Of so many.
    pub of: u64,
    /// How it was judged.
    pub how: &'static str,
}

/// Result of reading the state back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Rows against accepted updates.
    pub rows: Rows,
    /// What was read back of each stateful service.
    pub checks: Vec<ServiceCheck>,
    /// Findings.
    pub findings: Vec<Finding>,
}

/// What an application is sent.
pub trait Workload {
    /// Name.
    fn name(&self) -> &'static str;
    /// Keys that requests are sent for, for the report ("1000 thermostats").
    fn describe(&self) -> String;
    /// The first request. It changes nothing and shows that the application answers.
    fn probe(&mut self) -> Call;
    /// Takes the answer to it; an error, the reason in words, prevents the load.
    fn on_probe(&mut self, reply: &Reply) -> Result<(), String>;
    /// The next query about the state before the load, where earlier loads may have left some.
    fn next_baseline(&mut self) -> Check {
        Check::Finished
    }
    /// Takes the answer to it.
    fn on_baseline(&mut self, _tag: u64, _reply: Option<&Reply>) {}
    /// Queries about the state before the load that had no answer.
    fn baseline_unanswered(&self) -> u64 {
        0
    }
    /// The time, set before every [`Workload::next`].
    fn at(&mut self, _: Timestamp) {}
    /// When each request is due, since the load began, in order; None = at the load's rate.
    fn schedule(&self) -> Option<Arc<[Nanos]>> {
        None
    }
    /// The next request; None if every sender waits for an answer.
    fn next(&mut self) -> Option<Call>;
    /// Takes the outcome of a request; None if there was no answer.
    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged;
    /// The next query about the state, after the load. By default the state is not read back.
    fn next_check(&mut self, _now: Timestamp) -> Check {
        Check::Finished
    }
    /// Takes the answer to a query.
    fn on_check(&mut self, _now: Timestamp, _tag: u64, _reply: Option<&Reply>) {}
    /// Part of the state that has been read back, 0..=1.
    fn checked(&self) -> f64 {
        1.0
    }
    /// Result, when all is read.
    fn verify(&self) -> Verified {
        Verified::default()
    }
}
