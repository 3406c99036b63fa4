//! The exactly-once ledger: one record for each request of the load.
//!
//! A request has exactly one outcome. A later reply must be an identical duplicate or the refusal of a
//! retry; anything else contradicts the outcome.

use e3_client::{Completed, Duplicate};
use e3_client_core::is_refusal;
use e3_wire::entry::{Outcome, Reply};
use serde::Serialize;
use std::hash::Hasher;

/// What an answer of the application means, by the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// The request did what it asks for.
    Accepted,
    /// Refused: its sender may not do this. Wrong unless it was sent to be refused.
    Unauthorized,
    /// Refused: too many requests of this sender.
    RateLimited,
    /// Refused, as the request was sent to be.
    RefusedOnPurpose,
    /// Refused with another status of the application.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    reply: Option<(Outcome, u64)>,
    attempts: u16,
}

/// Records and counts.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Number of the first request of the load; the others follow without a gap.
    first_seq: u64,
    records: Vec<Record>,
    report: LedgerReport,
}

/// What the ledger says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerReport {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were due but could not be sent before the load ended.
    pub not_sent: u64,
    /// Requests that were due while no sender was free, and had to wait: the client was saturated.
    pub saturated: u64,
    /// Attempts beyond the first.
    pub repeats: u64,
    /// Handled by the application.
    pub done: u64,
    /// Of these: did what they ask for.
    pub accepted: u64,
    /// Of these: refused as unauthorized.
    pub unauthorized: u64,
    /// Of these: refused by the application's rate limit.
    pub rate_limited: u64,
    /// Of these: refused as they were sent to be.
    pub refused_on_purpose: u64,
    /// Of these: refused otherwise.
    pub refused: u64,
    /// Answers of the application that are wrong for what was asked.
    pub wrong: u64,
    /// Not admitted.
    pub overloaded: u64,
    /// Not handled before their deadline.
    pub expired: u64,
    /// Dead-lettered: the handler failed in every attempt.
    pub failed: u64,
    /// Rejected by the platform.
    pub rejected: u64,
    /// No outcome at all: lost.
    pub unknown: u64,
    /// Duplicates of the first answer; harmless.
    pub replies_repeated: u64,
    /// Answers that differ from the first one.
    pub replies_contradictory: u64,
    /// Answers to no request of this load, or unreadable.
    pub replies_stray: u64,
    /// Rows that must be there: one for each accepted update.
    pub rows_expected: u64,
    /// Rows that are there.
    pub rows_found: u64,
    /// Accepted updates without a row.
    pub rows_missing: u64,
    /// Rows beyond the first of an update.
    pub rows_repeated: u64,
    /// Rows that no accepted or unknown update explains, or with another content.
    pub rows_unexpected: u64,
    /// Queries about the state that had no answer.
    pub checks_failed: u64,
}

/// Counts of the rows read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// See [`LedgerReport::rows_expected`].
    pub expected: u64,
    /// See [`LedgerReport::rows_found`].
    pub found: u64,
    /// See [`LedgerReport::rows_missing`].
    pub missing: u64,
    /// See [`LedgerReport::rows_repeated`].
    pub repeated: u64,
    /// See [`LedgerReport::rows_unexpected`].
    pub unexpected: u64,
    /// See [`LedgerReport::checks_failed`].
    pub checks_failed: u64,
}

impl Ledger {
    /// A ledger for the requests from `first_seq` on.
    pub fn new(first_seq: u64) -> Ledger {
        Ledger {
            first_seq,
            ..Ledger::default()
        }
    }

    /// Notes a request as sent. Panics if the numbers have a gap.
    pub fn on_sent(&mut self, seq: u64) {
        assert_eq!(
            seq,
            self.first_seq + self.records.len() as u64,
            "requests are numbered"
        );
        self.records.push(Record {
            reply: None,
            attempts: 1,
        });
        self.report.sent += 1;
    }

    /// Requests sent.
    pub fn sent(&self) -> u64 {
        self.report.sent
    }

    /// Figures so far.
    pub fn counts(&self) -> &LedgerReport {
        &self.report
    }

    fn record(&mut self, seq: u64) -> Option<&mut Record> {
        let index = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        self.records.get_mut(index)
    }

    /// Notes the outcome of a request; `meaning` is what the workload makes of it, `expected` whether
    /// it had to be so.
    pub fn on_outcome(&mut self, completed: &Completed, meaning: Option<Meaning>, expected: bool) {
        let Some(record) = self.record(completed.seq) else {
            return;
        };
        assert!(record.reply.is_none(), "the client gives one outcome");
        record.attempts = completed.attempts;
        record.reply = completed.reply.as_ref().map(|r| (r.outcome, digest(r)));
        let report = &mut self.report;
        report.repeats += u64::from(completed.attempts.saturating_sub(1));
        report.wrong += u64::from(!expected);
        match completed.reply.as_ref().map(|r| r.outcome) {
            None | Some(Outcome::Unknown) => report.unknown += 1,
            Some(Outcome::Overloaded) => report.overloaded += 1,
            Some(Outcome::Expired) => report.expired += 1,
            Some(Outcome::Failed) => report.failed += 1,
            Some(Outcome::Rejected | Outcome::Conflict) => report.rejected += 1,
            Some(Outcome::Done) => {
                report.done += 1;
                match meaning {
                    Some(Meaning::Accepted) => report.accepted += 1,
                    Some(Meaning::Unauthorized) => report.unauthorized += 1,
                    Some(Meaning::RateLimited) => report.rate_limited += 1,
                    Some(Meaning::RefusedOnPurpose) => report.refused_on_purpose += 1,
                    Some(Meaning::Refused) | None => report.refused += 1,
                }
            }
        }
    }

    /// Notes an answer after the outcome.
    pub fn on_duplicate(&mut self, duplicate: &Duplicate) {
        let Some(record) = self.record(duplicate.seq).copied() else {
            return;
        };
        let reply = (duplicate.reply.outcome, digest(&duplicate.reply));
        match record.reply {
            Some(first) if first == reply => self.report.replies_repeated += 1,
            // One of several attempts was not admitted: it does not speak for the others.
            Some(_) if record.attempts > 1 && is_refusal(reply.0) => {}
            Some(_) => self.report.replies_contradictory += 1,
            // Too late: the outcome stays unknown.
            None => self.report.replies_stray += 1,
        }
    }

    /// Notes an answer to no request.
    pub fn on_stray(&mut self, count: u64) {
        self.report.replies_stray += count;
    }

    /// Notes a request that was due while no sender was free.
    pub fn on_saturated(&mut self) {
        self.report.saturated += 1;
    }

    /// Notes requests that were due and never sent.
    pub fn on_not_sent(&mut self, count: u64) {
        self.report.not_sent += count;
    }

    /// Closes the ledger with what was read back.
    pub fn close(mut self, rows: Rows) -> LedgerReport {
        let r = &mut self.report;
        r.rows_expected = rows.expected;
        r.rows_found = rows.found;
        r.rows_missing = rows.missing;
        r.rows_repeated = rows.repeated;
        r.rows_unexpected = rows.unexpected;
        r.checks_failed = rows.checks_failed;
        let outcomes = r.done + r.overloaded + r.expired + r.failed + r.rejected + r.unknown;
        assert_eq!(outcomes, r.sent, "every request has been given an outcome");
        self.report
    }
}

impl LedgerReport {
    /// Requests without an outcome, and accepted updates without a row.
    pub fn lost(&self) -> u64 {
        self.unknown + self.rows_missing
    }

    /// Requests with several outcomes, and rows that should not be there.
    pub fn repeated(&self) -> u64 {
        self.replies_contradictory + self.rows_repeated + self.rows_unexpected
    }

    /// Requests without effect although nothing went wrong: not admitted, or refused by the
    /// application.
    pub fn refused_in_all(&self) -> u64 {
        self.overloaded + self.rejected + self.rate_limited + self.refused
    }
}

fn digest(reply: &Reply) -> u64 {
    // Keys are fixed, so that equal replies have equal digests; nobody attacks this hash.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u8(reply.outcome.code());
    hasher.write_u32(reply.status);
    hasher.write(&reply.payload);
    hasher.finish()
}
