//! The workload against a spam filter that is right, and against ones that are not.

use super::load;
use super::messages::Told;
use super::oracle::{DETECTION, SHARDS, Verdict};
use crate::inputs::Inputs;
use crate::oracles::models::Detector;
use crate::readback::queries::done;
use e3_loadgen::workload::{Check, Verified, Workload};
use e3_model::{Slot, Timestamp};
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    CountsTwice,
    LearnsTwice,
    Forgets,
    MistakesSpam,
    SleepsThroughBursts,
}

/// A message as the application reads it.
#[derive(Deserialize)]
struct Said {
    sender: String,
    recipient: String,
    serial: i64,
    rate: f64,
    text: String,
    told: Option<String>,
}

#[derive(Serialize)]
struct Reported<'a> {
    sender: &'a str,
    spike: u8,
    count: u64,
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_verdict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_count: Option<u64>,
}

#[derive(Serialize)]
struct Found {
    done: bool,
    last_verdict: Option<String>,
    last_count: Option<u64>,
}

/// A query as the application reads it.
#[derive(Deserialize)]
struct Asks {
    at: String,
}

#[derive(Serialize)]
struct Counts {
    count: u64,
}

#[derive(Serialize)]
struct Times {
    times: Vec<i64>,
}

#[derive(Serialize)]
struct Documents {
    classes: [&'static str; 2],
    documents: Told,
}

#[derive(Default)]
struct Fake {
    counts: BTreeMap<String, u64>,
    learned: BTreeMap<u16, u64>,
    /// By shard.
    documents: BTreeMap<u16, Told>,
    detectors: BTreeMap<String, Detector>,
    last: BTreeMap<String, Verdict>,
    rates: BTreeMap<String, f64>,
}

fn shard_of_slot(slot: u16) -> u16 {
    e3_model::Slot(slot).shard(SHARDS).0
}

impl Fake {
    fn documents(&self, key: &[u8]) -> Reply {
        let shard = Slot::of(key).shard(SHARDS).0;
        done(&Documents {
            classes: ["ham", "spam"],
            documents: self.documents.get(&shard).copied().unwrap_or_default(),
        })
    }
}

fn wrong_services(verified: &Verified) -> Vec<&'static str> {
    let wrong = verified.checks.iter().filter(|c| c.wrong > 0);
    wrong.map(|c| c.service).collect()
}

fn run(wrong: Wrong) -> Verified {
    let inputs = Inputs {
        seed: 11,
        now: Timestamp(1_700_000_000_000_000_000),
        ..Inputs::default()
    };
    let mut load = load(&inputs).unwrap();
    let mut filter = Fake::default();
    // an earlier load has left something
    filter.documents.insert(3, [7, 5]);
    while let Check::Ask(call) = load.next_baseline() {
        let asks: Asks = ciborium::from_reader(&call.payload[..]).unwrap();
        let reply = match &*asks.at {
            "count" => done(&Counts { count: 0 }),
            _ => filter.documents(&call.key),
        };
        load.on_baseline(call.tag, Some(&reply));
    }
    for n in 0..6000u32 {
        let call = load.next().unwrap();
        let said: Said = ciborium::from_reader(&call.payload[..]).unwrap();
        assert_eq!(call.key, said.sender.as_bytes());
        let count = filter.counts.entry(said.sender.clone()).or_default();
        *count += 1 + u64::from(wrong == Wrong::CountsTwice && n == 3000);
        let slot = Slot::of(said.recipient.as_bytes()).0;
        let learned = said.told.is_some().then(|| {
            let learned = filter.learned.entry(slot).or_default();
            let more = 1 + u64::from(wrong == Wrong::LearnsTwice && n > 3000);
            *learned += more;
            let shard = filter.documents.entry(shard_of_slot(slot)).or_default();
            shard[usize::from(said.told.as_deref() == Some("spam"))] += more;
            *learned
        });
        let detector = filter.detectors.entry(said.sender.clone());
        let detector = detector.or_insert_with(|| Detector::new(DETECTION));
        if wrong != Wrong::SleepsThroughBursts {
            detector.add(said.serial, said.rate);
        }
        // uses the label that the workload itself drew
        let spam = load.in_flight[&call.tag].mail.spam && wrong != Wrong::MistakesSpam;
        let verdict = if spam { "spam" } else { "ham" };
        let before = filter.rates.insert(said.sender.clone(), said.rate);
        let sudden = before.is_some_and(|rate| (said.rate - rate).abs() > 12.0);
        let (last_verdict, last_count) = filter.last.get(&said.sender).cloned().unzip();
        let remembered = (verdict.to_owned(), *count);
        if wrong != Wrong::Forgets || !n.is_multiple_of(50) {
            filter.last.insert(said.sender.clone(), remembered);
        }
        assert!(!said.text.is_empty());
        let reply = done(&Reported {
            sender: &said.sender,
            spike: u8::from(sudden && wrong != Wrong::SleepsThroughBursts),
            count: *count,
            verdict,
            learned,
            last_verdict,
            last_count,
        });
        let judged = load.on_outcome(call.tag, Some(&reply));
        assert!(judged.expected);
    }
    while let Check::Ask(call) = load.next_check(Timestamp(0)) {
        let asks: Asks = ciborium::from_reader(&call.payload[..]).unwrap();
        let sender = String::from_utf8(call.key.clone()).unwrap();
        let reply = match &*asks.at {
            "bayes" => Some(filter.documents(&call.key)),
            "count" => Some(done(&Counts {
                count: filter.counts[&sender],
            })),
            "spike" => Some(done(&Times {
                times: filter.detectors[&sender].spikes.iter().copied().collect(),
            })),
            _ => None,
        };
        if let Some(reply) = reply {
            load.on_check(Timestamp(0), call.tag, Some(&reply));
            continue;
        }
        let (last_verdict, last_count) = filter.last.get(&sender).cloned().unzip();
        let reply = done(&Found {
            done: last_count.is_some(),
            last_verdict,
            last_count,
        });
        load.on_check(Timestamp(0), call.tag, Some(&reply));
    }
    load.verify()
}

fn share(verified: &Verified, what: &str) -> f64 {
    let finding = verified.findings.iter().find(|f| f.what == what).unwrap();
    assert!(finding.of > 0, "{what}");
    finding.right as f64 / finding.of as f64
}

#[test]
fn a_filter_that_is_right_is_found_right() {
    let verified = run(Wrong::Nothing);
    for finding in &verified.findings {
        assert!(finding.of > 0 && finding.right == finding.of, "{finding:?}");
    }
    let services: Vec<_> = verified.checks.iter().map(|c| c.service).collect();
    assert_eq!(services, ["spike", "count", "bayes", "kvs"]);
    for check in &verified.checks {
        assert!(check.right > 0, "{check:?}");
        assert_eq!(check.wrong + check.unread + check.unsure, 0, "{check:?}");
    }
    let rows = verified.rows;
    assert_eq!((rows.expected, rows.found), (6000, 6000));
    assert_eq!((rows.missing, rows.repeated), (0, 0));
}

#[test]
fn what_is_wrong_is_found_wrong() {
    let twice = run(Wrong::CountsTwice);
    assert_eq!(
        (twice.rows.repeated, &wrong_services(&twice)[..]),
        (1, &["count"][..])
    );
    let twice = run(Wrong::LearnsTwice);
    assert!(share(&twice, "learned once") < 0.9);
    assert_eq!(wrong_services(&twice), ["bayes"]);
    let forgetful = run(Wrong::Forgets);
    assert_eq!(wrong_services(&forgetful), ["kvs"]);
    assert!(share(&forgetful, "verdicts remembered") < 1.0);
    assert!(share(&forgetful, "verdicts read back") < 1.0);
    let sleepy = run(Wrong::SleepsThroughBursts);
    assert_eq!(share(&sleepy, "bursts found"), 0.0);
    assert_eq!(wrong_services(&sleepy), ["spike"]);
    let blind = run(Wrong::MistakesSpam);
    assert_eq!(share(&blind, "spam found"), 0.0);
}

#[test]
fn a_mail_without_an_answer_leaves_its_sender_unjudged() {
    let mut load = load(&Inputs::default()).unwrap();
    let call = load.next().unwrap();
    let sender = load.in_flight[&call.tag].mail.sender;
    assert!(load.generator.busy.contains(&sender));
    load.oracle.senders.entry(sender).or_default().last = Some(("ham".into(), 7));
    let judged = load.on_outcome(call.tag, None);
    assert_eq!(judged.meaning, None);
    assert!(!load.generator.busy.contains(&sender));
    assert_eq!(load.oracle.senders[&sender].last, None);
}
