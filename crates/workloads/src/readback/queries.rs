//! Queries about the state, each retried until it is answered; and sequences without gap or duplicate.

use crate::limits::CHECK_ATTEMPTS_MAX;
use e3_loadgen::ledger::Rows;
pub(crate) use e3_loadgen::record;
use e3_loadgen::workload::{Call, Check};
use e3_model::Slot;
use e3_wire::entry::{Outcome, Reply};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Status of an answer about something that is not there.
pub(crate) const NOT_FOUND: u32 = 2;

/// Reads the record of an answer with status 0.
pub(crate) fn answer<T: DeserializeOwned>(reply: Option<&Reply>) -> Option<T> {
    let reply = reply.filter(|r| r.outcome == Outcome::Done && r.status == 0)?;
    ciborium::from_reader(&reply.payload[..]).ok()
}

/// Reads the record of the first answer, without which the load of an application cannot begin.
pub(crate) fn first_answer<T: DeserializeOwned>(reply: &Reply) -> Result<T, String> {
    answer(Some(reply)).ok_or_else(|| String::from_utf8_lossy(&reply.payload).into_owned())
}

/// The reply of an application that did what it was asked.
#[cfg(test)]
pub(crate) fn done(payload: &impl serde::Serialize) -> Reply {
    Reply {
        outcome: Outcome::Done,
        status: 0,
        payload: record(payload),
    }
}

/// Whether a request certainly had no effect: no attempt was admitted.
pub(crate) fn not_admitted(reply: Option<&Reply>) -> bool {
    reply.is_some_and(|r| e3_client_core::is_refusal(r.outcome))
}

/// Whether the application, not the platform, gave the outcome.
pub(crate) fn handled(reply: Option<&Reply>) -> bool {
    reply.is_some_and(|r| r.outcome == Outcome::Done)
}

/// A key whose slot a shard owns, of so many.
pub(crate) fn key_of_shard(shard: u16, shards: u16) -> Vec<u8> {
    let keys = (0u32..).map(|n| format!("shard{shard}-{n}").into_bytes());
    let mut owned = keys.filter(|k| Slot::of(k).shard(shards).0 == shard);
    owned.next().expect("every shard owns slots")
}

/// Queries in order, each retried until it has an answer.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    calls: Vec<Call>,
    to_ask: VecDeque<(usize, u32)>,
    asked: BTreeMap<usize, u32>,
}

impl Queries {
    /// These, known by their place.
    pub(crate) fn new(calls: Vec<Call>) -> Queries {
        Queries {
            to_ask: (0..calls.len()).map(|at| (at, 0)).collect(),
            calls,
            ..Queries::default()
        }
    }

    pub(crate) fn next(&mut self) -> Check {
        let Some((at, attempts)) = self.to_ask.pop_front() else {
            return if self.asked.is_empty() {
                Check::Finished
            } else {
                Check::Wait
            };
        };
        self.asked.insert(at, attempts + 1);
        let mut call = self.calls[at].clone();
        call.tag = at as u64;
        Check::Ask(call)
    }

    /// Notes an answer; if it is not valid, the query is sent again.
    pub(crate) fn on_answer(&mut self, tag: u64, good: bool) {
        let at = tag as usize;
        match self.asked.remove(&at) {
            Some(attempts) if !good && attempts < CHECK_ATTEMPTS_MAX => {
                self.to_ask.push_back((at, attempts));
            }
            Some(_) | None => {}
        }
    }

    /// Part that is answered, 0..=1.
    pub(crate) fn progress(&self) -> f64 {
        let open = self.to_ask.len() + self.asked.len();
        1.0 - open as f64 / self.calls.len().max(1) as f64
    }
}

/// Numbers that an application gives to the requests of each kind: whatever is lost or repeated on
/// the way, those of one kind must follow each other without a gap and without a repeat.
#[derive(Debug, Default)]
pub(crate) struct Sequences<K> {
    numbers: BTreeMap<K, BTreeSet<u64>>,
    /// The last number of each kind before the load, where it is known.
    before: BTreeMap<K, u64>,
    /// Requests of each kind that may have taken a number that nobody was told.
    unsure: BTreeMap<K, u64>,
    accepted: u64,
    repeated: u64,
}

impl<K: Ord> Sequences<K> {
    /// Notes the last number that a kind had before the load.
    pub(crate) fn begin_after(&mut self, kind: K, number: u64) {
        self.before.insert(kind, number);
    }

    /// The number that a kind must have come to: that before the load, and one for each request.
    pub(crate) fn expected(&self, kind: &K) -> Option<u64> {
        let numbers = self.numbers.get(kind).map_or(0, BTreeSet::len) as u64;
        Some(self.before.get(kind)? + numbers)
    }

    pub(crate) fn add(&mut self, kind: K, number: u64) {
        self.accepted += 1;
        let new = self.numbers.entry(kind).or_default().insert(number);
        self.repeated += u64::from(!new);
    }

    /// Notes a request without an outcome: it may have taken a number.
    pub(crate) fn add_unsure(&mut self, kind: K) {
        *self.unsure.entry(kind).or_default() += 1;
    }

    /// Each kind with its highest number, if it has one and every request of it has an outcome.
    pub(crate) fn sure(&self) -> impl Iterator<Item = (&K, u64)> {
        let sure = self
            .numbers
            .iter()
            .filter(|(k, _)| !self.unsure.contains_key(k));
        sure.filter_map(|(k, numbers)| Some((k, *numbers.last()?)))
    }

    /// The number of kinds with requests without an outcome.
    pub(crate) fn unsure_kinds(&self) -> u64 {
        self.unsure.len() as u64
    }

    /// As rows: each accepted request one number; a number given twice is a request without a row
    /// of its own, as is one from before the load; one that is left out, and that no request without
    /// an outcome can have taken, is a request that took effect twice.
    pub(crate) fn rows(&self) -> Rows {
        let mut rows = Rows {
            expected: self.accepted,
            missing: self.repeated,
            ..Rows::default()
        };
        for (kind, numbers) in &self.numbers {
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
                continue;
            };
            let before = self
                .before
                .get(kind)
                .copied()
                .unwrap_or(first.saturating_sub(1));
            let new = numbers.iter().filter(|n| **n > before).count() as u64;
            rows.found += numbers.len() as u64;
            rows.missing += numbers.len() as u64 - new;
            let unsure = self.unsure.get(kind).copied().unwrap_or_default();
            rows.repeated += last.saturating_sub(before + new + unsure);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_repeats_are_counted() {
        let mut s = Sequences::default();
        for n in [4, 3, 5, 7, 7] {
            s.add("a", n);
        }
        s.add("b", 1);
        let rows = s.rows();
        assert_eq!((rows.expected, rows.found), (6, 5));
        assert_eq!((rows.missing, rows.repeated), (1, 1));
    }

    #[test]
    fn numbers_go_on_from_those_before_the_load() {
        let mut s = Sequences::default();
        s.begin_after("a", 10);
        [11, 12, 13].into_iter().for_each(|n| s.add("a", n));
        assert_eq!((s.rows().missing, s.rows().repeated), (0, 0));
        assert_eq!((s.expected(&"a"), s.expected(&"b")), (Some(13), None));
        // the first number is missing: an effect without a request
        let mut s = Sequences::default();
        s.begin_after("a", 10);
        [12, 13].into_iter().for_each(|n| s.add("a", n));
        assert_eq!((s.rows().missing, s.rows().repeated), (0, 1));
        assert_eq!(s.sure().collect::<Vec<_>>(), [(&"a", 13)]);
        // unless one without an outcome took it
        s.add_unsure("a");
        assert_eq!((s.rows().missing, s.rows().repeated), (0, 0));
        assert_eq!((s.sure().count(), s.unsure_kinds()), (0, 1));
        // the state was lost
        let mut s = Sequences::default();
        s.begin_after("a", 10);
        [1, 2, 3].into_iter().for_each(|n| s.add("a", n));
        assert_eq!((s.rows().missing, s.rows().repeated), (3, 0));
    }

    #[test]
    fn queries_are_retried_until_they_are_answered() {
        let call = |n: u64| Call {
            tag: 0,
            key: vec![n as u8],
            payload: vec![],
        };
        let mut q = Queries::new(vec![call(0), call(1)]);
        let Check::Ask(first) = q.next() else {
            panic!("a query")
        };
        assert_eq!(first, call(0));
        assert!(matches!(q.next(), Check::Ask(c) if c.tag == 1));
        assert_eq!(q.next(), Check::Wait);
        q.on_answer(0, false);
        q.on_answer(1, true);
        for _ in 1..CHECK_ATTEMPTS_MAX {
            assert!(matches!(q.next(), Check::Ask(c) if c.tag == 0));
            q.on_answer(0, false);
        }
        assert_eq!(q.next(), Check::Finished);
        assert_eq!(q.progress(), 1.0);
    }

    #[test]
    fn every_shard_has_a_key() {
        for shard in 0..12 {
            let key = key_of_shard(shard, 12);
            assert_eq!(Slot::of(&key).shard(12).0, shard);
        }
    }
}
