//! The workload of the key-value store: every sender appends numbers to items of its own.
//!
//! An item then lists the appends that took effect, in order: a number that is missing was lost, one
//! that is there twice took effect twice. A sender has one request in flight, so retries cannot
//! reorder its numbers. Items belong to this run, so a load can be repeated.

mod items;

use crate::inputs::Inputs;
use crate::limits::WRITERS_MAX;
use crate::readback::checks::{Ask, Checks, Facts};
use e3_loadgen::ledger::{Meaning, Rows};
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use items::{Fate, compare, numbers};
use std::collections::VecDeque;

const NAME: &str = "kvs";
const WHAT: &str = "numbers that senders have appended to their items";
/// Appends per second that one sender makes at most, by there being more senders.
const RATE_PER_WRITER_MAX: f64 = 10.0;
/// Senders at least, so that all shards have some.
const WRITERS_MIN: f64 = 16.0;
/// Numbers of one item: a short one is cheap to write again.
const NUMBERS_PER_ITEM: usize = 128;

/// One sender.
#[derive(Debug)]
struct Writer {
    fates: Vec<Fate>,
}

/// Reads an item back.
#[derive(Clone, Copy, Debug)]
struct Item {
    writer: u32,
    item: u32,
}

impl Ask for Item {
    fn service(self) -> &'static str {
        NAME
    }
}

/// The workload.
#[derive(Debug)]
pub struct Kvs {
    run: String,
    writers: Vec<Writer>,
    free: VecDeque<u32>,
    checks: Option<Checks<Item>>,
    rows: Rows,
}

impl Kvs {
    /// As many senders as suit the rate, unless the inputs say how many.
    pub fn new(inputs: &Inputs) -> Kvs {
        let fit = (inputs.rate_rps / RATE_PER_WRITER_MAX).max(WRITERS_MIN);
        let fit = (fit as u32).min(WRITERS_MAX);
        let count = inputs.senders.unwrap_or(fit).clamp(1, WRITERS_MAX);
        let mut order: Vec<u32> = (0..count).collect();
        let mut random = Random::new(inputs.seed);
        for at in (1..order.len()).rev() {
            order.swap(at, random.index(at + 1));
        }
        Kvs {
            run: inputs.run_name(),
            writers: order.iter().map(|_| Writer { fates: vec![] }).collect(),
            free: order.into(),
            checks: None,
            rows: Rows::default(),
        }
    }

    fn key(&self, writer: u32, item: usize) -> String {
        format!("c{}-{writer:x}-{item:x}", self.run)
    }

    fn get(&self, tag: u64, writer: u32, item: usize) -> Call {
        let key = self.key(writer, item);
        Call {
            tag,
            payload: format!("get {key}\r\n").into_bytes(),
            key: key.into_bytes(),
        }
    }

    /// Every item that may be there.
    fn all_items(&self) -> Vec<(Item, Call)> {
        let mut all = Vec::new();
        for (writer, w) in (0..).zip(&self.writers) {
            for item in 0..w.fates.len().div_ceil(NUMBERS_PER_ITEM) {
                let what = Item {
                    writer,
                    item: item as u32,
                };
                all.push((what, self.get(0, writer, item)));
            }
        }
        all
    }
}

impl Workload for Kvs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        format!("{} senders that append to their items", self.writers.len())
    }

    fn probe(&mut self) -> Call {
        self.get(0, 0, 0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        match numbers(&reply.payload) {
            Some(_) => Ok(()),
            None => Err(String::from_utf8_lossy(&reply.payload).trim().to_string()),
        }
    }

    fn next(&mut self) -> Option<Call> {
        let writer = self.free.pop_front()?;
        let number = self.writers[writer as usize].fates.len();
        self.writers[writer as usize].fates.push(Fate::Unknown);
        let key = self.key(writer, number / NUMBERS_PER_ITEM);
        let data = format!("{number},");
        // Both or nothing, whatever became of the request before.
        let payload = format!(
            "add {key} 0 0 0 noreply\r\n\r\nappend {key} 0 0 {}\r\n{data}\r\n",
            data.len()
        );
        Some(Call {
            tag: u64::from(writer),
            key: key.into_bytes(),
            payload: payload.into_bytes(),
        })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        self.free.push_back(tag as u32);
        let fate = self.writers[tag as usize].fates.last_mut();
        let Some(reply) = reply else {
            return Judged::by_status(None);
        };
        let stored = reply.outcome == Outcome::Done && reply.payload == b"STORED\r\n";
        if let Some(fate) = fate {
            *fate = if stored { Fate::Stored } else { Fate::Refused };
        }
        match reply.outcome {
            Outcome::Done => Judged {
                meaning: Some(if stored {
                    Meaning::Accepted
                } else {
                    Meaning::Refused
                }),
                expected: stored,
            },
            _ => Judged::refused(false),
        }
    }

    fn next_check(&mut self, _: Timestamp) -> Check {
        if self.checks.is_none() {
            self.checks = Some(Checks::new(self.all_items()));
        }
        let checks = self.checks.as_mut();
        checks.map_or(Check::Finished, Checks::next)
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let Some(checks) = &mut self.checks else {
            return;
        };
        let done = reply.filter(|r| r.outcome == Outcome::Done);
        let found = done.and_then(|r| numbers(&r.payload));
        let facts = checks.asked(tag).zip(found).map(|(asked, found)| {
            let all = &self.writers[asked.writer as usize].fates;
            let first = asked.item as usize * NUMBERS_PER_ITEM;
            let last = all.len().min(first + NUMBERS_PER_ITEM);
            let rows = compare(first, &all[first..last], &found);
            self.rows.expected += rows.expected;
            self.rows.found += rows.found;
            self.rows.missing += rows.missing;
            self.rows.repeated += rows.repeated;
            self.rows.unexpected += rows.unexpected;
            let wrong = rows.missing + rows.repeated + rows.unexpected;
            Facts {
                right: rows.expected - rows.missing,
                wrong,
            }
        });
        checks.take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.as_ref().map_or(0.0, Checks::progress)
    }

    fn verify(&self) -> Verified {
        let all = self.writers.iter().flat_map(|w| &w.fates);
        let unsure = all.filter(|fate| **fate == Fate::Unknown).count() as u64;
        let Some(checks) = &self.checks else {
            let why = "it was not read back";
            return Verified {
                checks: vec![ServiceCheck::unreadable(NAME, why)],
                ..Verified::default()
            };
        };
        Verified {
            rows: Rows {
                checks_failed: checks.unanswered(),
                ..self.rows
            },
            checks: vec![checks.of(NAME, WHAT, unsure)],
            findings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn text(payload: &[u8]) -> Reply {
        Reply {
            outcome: Outcome::Done,
            status: 0,
            payload: payload.to_vec(),
        }
    }

    /// A store that applies the n-th append as often as `times` says.
    fn run(times: impl Fn(u64) -> usize) -> Verified {
        let inputs = Inputs {
            rate_rps: 20.0,
            ..Inputs::default()
        };
        let mut load = Kvs::new(&inputs);
        let mut items: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for n in 0..4000 {
            let call = load.next().unwrap();
            let data = call.payload.split(|b| *b == b'\n').nth(3).unwrap();
            for _ in 0..times(n) {
                let item = items.entry(call.key.clone()).or_default();
                item.extend_from_slice(data.trim_ascii_end());
            }
            load.on_outcome(call.tag, Some(&text(b"STORED\r\n")));
        }
        while let Check::Ask(call) = load.next_check(Timestamp(0)) {
            let item = items.get(&call.key).cloned().unwrap_or_default();
            let mut reply = format!("VALUE k 0 {}\r\n", item.len()).into_bytes();
            reply.extend_from_slice(&item);
            reply.extend_from_slice(b"\r\nEND\r\n");
            load.on_check(Timestamp(0), call.tag, Some(&text(&reply)));
        }
        load.verify()
    }

    #[test]
    fn every_number_is_found_once() {
        let right = run(|_| 1);
        assert_eq!((right.rows.expected, right.rows.found), (4000, 4000));
        assert_eq!(right.checks[0].wrong + right.checks[0].unread, 0);
        assert_eq!(right.checks[0].right, 4000);
        let twice = run(|n| 1 + usize::from(n == 7));
        assert_eq!((twice.rows.repeated, twice.checks[0].wrong), (1, 1));
        let lost = run(|n| usize::from(n != 7));
        assert_eq!((lost.rows.missing, lost.checks[0].wrong), (1, 1));
    }

    #[test]
    fn the_seed_decides_the_order_of_senders() {
        let tags = |seed| {
            let inputs = Inputs {
                seed,
                ..Inputs::default()
            };
            let mut load = Kvs::new(&inputs);
            let mut tag = || load.next().unwrap().tag;
            [tag(), tag(), tag(), tag(), tag(), tag()]
        };
        assert_eq!(tags(1), tags(1));
        assert_ne!(tags(1), tags(2));
    }
}
