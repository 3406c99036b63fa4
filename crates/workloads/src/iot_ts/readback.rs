//! Reads rows, averages, spikes and ratings of each thermostat back through the application, and
//! compares them with what was sent.

use super::expected::Expected;
use super::messages::{self, Rated, Selected, select};
use super::{Fate, HOUR_S, Sent, Thermostat, celsius};
use crate::limits::{CHECK_ATTEMPTS_MAX, CHECK_RETRY_AFTER};
use crate::oracles::models::Average;
use crate::readback::checks::Facts;
use crate::readback::queries::answer;
use crate::readback::score::Score;
use crate::tokens::is_nothing;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Check, Verified};
use e3_model::Timestamp;
use e3_wire::entry::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Readings that one query asks for: their rows fit in one reply even if some are repeated.
const WINDOW_READINGS: i64 = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Rows with a time in `from..to`.
    Rows { from: i64, to: i64 },
    /// Spikes from this time on.
    Spikes { from: i64 },
    /// The average.
    Average,
    /// The rating of a comfort programme; none where nothing was ever rated.
    Rating { item: Option<i64> },
}

impl What {
    fn service(self) -> &'static str {
        match self {
            What::Rows { .. } => "sql",
            What::Spikes { .. } => "spike",
            What::Average => "ema",
            What::Rating { .. } => "recommend",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Query {
    thermostat: usize,
    what: What,
    attempts: u32,
}

#[derive(Debug, Default)]
struct Found {
    rows: BTreeMap<i64, Vec<f64>>,
    spikes: BTreeSet<i64>,
}

/// Queries and answers.
#[derive(Debug)]
pub(super) struct Readback {
    prepared: bool,
    /// By the time before which they are not asked.
    waiting: BTreeMap<(Timestamp, u64), Query>,
    asked: BTreeMap<u64, Query>,
    next_tag: u64,
    answered: u64,
    failed: Vec<Query>,
    found: Vec<Found>,
    /// The state that services must have for each thermostat; none where that is not known.
    expected: Vec<Option<Expected>>,
    averages: Facts,
    ratings: Facts,
}

impl Readback {
    pub(super) fn new(thermostats: &[Thermostat]) -> Readback {
        Readback {
            prepared: false,
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_tag: 0,
            answered: 0,
            failed: Vec::new(),
            found: thermostats.iter().map(|_| Found::default()).collect(),
            expected: Vec::new(),
            averages: Facts::default(),
            ratings: Facts::default(),
        }
    }

    fn ask(&mut self, thermostat: usize, what: What) {
        let query = Query {
            thermostat,
            what,
            attempts: 0,
        };
        self.wait(Timestamp::ZERO, query);
    }

    fn wait(&mut self, until: Timestamp, query: Query) {
        self.waiting.insert((until, self.next_tag), query);
        self.next_tag += 1;
    }

    /// The rows of all thermostats, then what the other services keep of each. Those queries follow
    /// the readings on the same channels, so their answers include them.
    fn prepare(&mut self, thermostats: &[Thermostat]) {
        self.prepared = true;
        for (thermostat, t) in thermostats.iter().enumerate() {
            // Windows that cover all times, so that no row is missed.
            let mut from = i64::MIN;
            let mut n = WINDOW_READINGS;
            while n < t.sent.len() as i64 {
                let to = t.reading_time_s(n as usize);
                self.ask(thermostat, What::Rows { from, to });
                (from, n) = (to, n + WINDOW_READINGS);
            }
            self.ask(thermostat, What::Rows { from, to: i64::MAX });
        }
        self.expected = thermostats.iter().map(Expected::of).collect();
        for thermostat in 0..thermostats.len() {
            self.ask(thermostat, What::Spikes { from: i64::MIN });
            let Some(expected) = &self.expected[thermostat] else {
                continue;
            };
            let items: Vec<i64> = expected.ratings.0.keys().copied().collect();
            self.ask(thermostat, What::Average);
            if items.is_empty() {
                self.ask(thermostat, What::Rating { item: None });
            }
            for item in items {
                self.ask(thermostat, What::Rating { item: Some(item) });
            }
        }
    }

    pub(super) fn next(&mut self, now: Timestamp, thermostats: &[Thermostat]) -> Check {
        if !self.prepared {
            self.prepare(thermostats);
        }
        match self.waiting.first_key_value() {
            None if self.asked.is_empty() => Check::Finished,
            None => Check::Wait,
            Some(((at, _), _)) if *at > now => Check::At(*at),
            Some(_) => {
                let ((_, tag), query) = self.waiting.pop_first().expect("looked at");
                self.asked.insert(tag, query);
                let Thermostat { user, token, .. } = &thermostats[query.thermostat];
                Check::Ask(match query.what {
                    What::Rows { from, to } => select(tag, user, token, from, to),
                    What::Spikes { from } => messages::spikes(tag, user, token, from),
                    What::Average => messages::average(tag, user, token),
                    What::Rating { item } => messages::rating(tag, user, token, item),
                })
            }
        }
    }

    pub(super) fn on_answer(&mut self, now: Timestamp, tag: u64, reply: Option<&Reply>) {
        let Some(mut query) = self.asked.remove(&tag) else {
            return;
        };
        if reply.is_some_and(|reply| self.take(query, reply)) {
            self.answered += 1;
            return;
        }
        query.attempts += 1;
        if query.attempts >= CHECK_ATTEMPTS_MAX {
            self.failed.push(query);
            return;
        }
        let delay = CHECK_RETRY_AFTER * (1 << (query.attempts - 1));
        self.wait(now + delay, query);
    }

    /// Takes an answer; false if it is none to this query.
    fn take(&mut self, query: Query, reply: &Reply) -> bool {
        let nothing = is_nothing(reply);
        match (query.what, &self.expected[query.thermostat]) {
            (What::Average, Some(expected)) => {
                let right = expected.is_average(answer::<Average>(Some(reply)), nothing);
                return take_fact(&mut self.averages, right);
            }
            (What::Rating { item }, Some(expected)) => {
                let right = expected.is_rating(item, answer::<Rated>(Some(reply)), nothing);
                return take_fact(&mut self.ratings, right);
            }
            _ => {}
        }
        if nothing {
            // Nothing was ever stored there, or nothing detected.
            return true;
        }
        match query.what {
            What::Average | What::Rating { .. } => true,
            What::Rows { from, to } => self.take_rows(query, from, to, reply),
            What::Spikes { .. } => self.take_spikes(query, reply),
        }
    }

    fn take_rows(&mut self, query: Query, from: i64, to: i64, reply: &Reply) -> bool {
        match answer::<Selected>(Some(reply)) {
            Some(Selected { rows, more: 0 }) => {
                let found = &mut self.found[query.thermostat];
                for (time, celsius) in rows {
                    found.rows.entry(time).or_default().push(celsius);
                }
                true
            }
            Some(_) => self.halve(query, from, to),
            None => false,
        }
    }

    fn take_spikes(&mut self, query: Query, reply: &Reply) -> bool {
        let Some(spikes) = answer::<messages::Spikes>(Some(reply)) else {
            return false;
        };
        let found = &mut self.found[query.thermostat];
        found.spikes.extend(&spikes.times);
        if let (What::Spikes { from }, 1.., Some(last)) =
            (query.what, spikes.more, spikes.times.last())
        {
            // From the last one on; past it if all had one time.
            let from = (*last).max(from.saturating_add(1));
            self.ask(query.thermostat, What::Spikes { from });
        }
        true
    }

    /// Asks for the two halves of a window whose rows did not fit in one reply.
    fn halve(&mut self, query: Query, from: i64, to: i64) -> bool {
        let found_rows = from.max(0)..to.min(1 << 40);
        let middle = found_rows.start + (found_rows.end - found_rows.start) / 2;
        if found_rows.end - found_rows.start <= HOUR_S || middle <= from || middle >= to {
            return false;
        }
        for what in [
            What::Rows { from, to: middle },
            What::Rows { from: middle, to },
        ] {
            self.ask(query.thermostat, what);
        }
        true
    }

    pub(super) fn progress(&self) -> f64 {
        let left = (self.waiting.len() + self.asked.len()) as f64;
        let done = (self.answered + self.failed.len() as u64) as f64;
        if left + done == 0.0 {
            0.0
        } else {
            done / (left + done)
        }
    }

    /// Queries that have no answer.
    fn unread(&self) -> impl Iterator<Item = &Query> {
        let open = self.waiting.values().chain(self.asked.values());
        self.failed.iter().chain(open)
    }

    pub(super) fn verify(&self, thermostats: &[Thermostat]) -> Verified {
        let mut rows = Rows {
            checks_failed: self.unread().count() as u64,
            ..Rows::default()
        };
        // What could not be read is reported as such, not as missing.
        let unread = self
            .unread()
            .filter(|q| matches!(q.what, What::Rows { .. }));
        let unread: BTreeSet<usize> = unread.map(|q| q.thermostat).collect();
        let mut spikes = Spikes::default();
        for (index, (t, found)) in thermostats.iter().zip(&self.found).enumerate() {
            let sent = t.sent.iter().enumerate();
            let sent = sent.map(|(n, sent)| (t.reading_time_s(n), sent)).collect();
            found.count_rows(&sent, !unread.contains(&index), &mut rows);
            found.count_spikes(&sent, &mut spikes);
        }
        Verified {
            rows,
            checks: self.checks(&rows),
            findings: vec![
                Score(spikes.right, spikes.injected)
                    .finding("spikes found", "injected spikes that were found (recall)"),
                Score(spikes.right, spikes.found).finding(
                    "spikes right",
                    "spikes found that were injected (precision)",
                ),
            ],
        }
    }

    fn checks(&self, rows: &Rows) -> Vec<ServiceCheck> {
        let unsure = self.expected.iter().filter(|k| k.is_none()).count() as u64;
        let mut spikes = Facts::default();
        for (expected, found) in self.expected.iter().zip(&self.found) {
            if let Some(expected) = expected {
                spikes.add(expected.spikes.spikes == found.spikes);
            }
        }
        let stored = Facts {
            right: rows.expected - rows.missing,
            wrong: rows.missing + rows.repeated + rows.unexpected,
        };
        let of = |service: &'static str, what, facts: Facts, unsure| {
            let unread = self.unread().filter(|q| q.what.service() == service);
            ServiceCheck {
                readable: true,
                right: facts.right,
                wrong: facts.wrong,
                unread: unread.count() as u64,
                unsure,
                ..ServiceCheck::unreadable(service, what)
            }
        };
        let (averages, ratings) = (self.averages, self.ratings);
        let of_ema = "averages, with time and samples";
        let of_recommend = "ratings of comfort programmes";
        vec![
            ServiceCheck::unreadable(
                "apigw",
                "its permits refill within 2 s and have no read operation",
            ),
            of("sql", "rows of accepted readings", stored, 0),
            of("ema", of_ema, averages, unsure),
            of("spike", "spikes of each thermostat", spikes, unsure),
            of("recommend", of_recommend, ratings, unsure),
        ]
    }
}

/// Counts a fact; false if there is none.
fn take_fact(facts: &mut Facts, right: Option<bool>) -> bool {
    if let Some(right) = right {
        facts.add(right);
    }
    right.is_some()
}

/// Readings of a thermostat by their time.
type Readings<'a> = BTreeMap<i64, &'a Sent>;

/// Spikes over all thermostats.
#[derive(Default)]
struct Spikes {
    injected: u64,
    found: u64,
    right: u64,
}

impl Found {
    /// Compares the rows of a thermostat with its readings. `whole`: all its rows were read.
    fn count_rows(&self, sent: &Readings<'_>, whole: bool, rows: &mut Rows) {
        for (time, sent) in sent {
            let values = self.rows.get(time).map_or(&[][..], Vec::as_slice);
            let right = values.iter().filter(|v| **v == celsius(sent.decidegrees_c));
            let right = right.count() as u64;
            match sent.fate {
                Fate::Accepted => {
                    rows.expected += 1;
                    rows.missing += u64::from(right == 0 && whole);
                }
                Fate::Unknown => {}
                Fate::Refused => rows.unexpected += right.min(1),
            }
            rows.repeated += right.saturating_sub(1);
            rows.unexpected += values.len() as u64 - right;
        }
        for (time, values) in &self.rows {
            rows.found += values.len() as u64;
            if !sent.contains_key(time) {
                rows.unexpected += values.len() as u64;
            }
        }
    }

    /// Compares the spikes of a thermostat with its readings.
    fn count_spikes(&self, sent: &Readings<'_>, spikes: &mut Spikes) {
        let injected = |s: &Sent| s.spike && s.fate == Fate::Accepted;
        spikes.injected += sent.values().filter(|s| injected(s)).count() as u64;
        for time in &self.spikes {
            match sent.get(time) {
                // It may or may not have been stored: it counts neither way.
                Some(sent) if sent.fate == Fate::Unknown => {}
                Some(sent) => {
                    spikes.found += 1;
                    spikes.right += u64::from(injected(sent));
                }
                None => spikes.found += 1,
            }
        }
    }
}
