//! The workload against a hub in a few lines, as it should be and with faults.

use super::generator::Senders;
use super::load;
use super::nearest::Nearest;
use super::oracle::{Hub, K, POINTS, SHARDS};
use crate::inputs::Inputs;
use crate::load::Load;
use crate::readback::queries::record;
use crate::tokens::TokenKey;
use e3_loadgen::ledger::Meaning;
use e3_loadgen::workload::{Call, Check, Verified, Workload};
use e3_model::{Nanos, Slot, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is wrong with the hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Counts one report twice.
    CountsTwice,
    /// Stores one report twice.
    StoresTwice,
    /// Forgets a row, and gives its number again.
    LosesARow,
    /// Does not keep the latest values any more.
    KeepsTheOld,
    /// Says another class.
    ClassifiesWrongly,
    /// Takes a bad token.
    TakesAnyToken,
}

struct Fake {
    fault: Fault,
    token_key: TokenKey,
    nearest: Nearest,
    counts: BTreeMap<String, u64>,
    rows: BTreeMap<String, Vec<(i64, f64)>>,
    latest: BTreeMap<String, (i64, f64, String)>,
    reports: u64,
}

#[derive(Deserialize)]
struct Said {
    user: String,
    expiry: i64,
    token: ciborium::Value,
    path: Option<String>,
    at: Option<String>,
    topic: Option<String>,
    time: Option<i64>,
    value: Option<f64>,
    features: Option<Vec<f64>>,
}

#[derive(Serialize)]
struct Held<'a> {
    done: bool,
    last_time: Option<i64>,
    last_value: Option<f64>,
    last_class: Option<&'a str>,
}

#[derive(Serialize)]
struct Stored<'a> {
    row: usize,
    count: u64,
    class: &'a str,
}

#[derive(Serialize)]
struct Summed {
    rows: [(usize, Option<f64>, Option<i64>); 1],
}

fn reply(status: u32, payload: Vec<u8>) -> Reply {
    Reply {
        outcome: Outcome::Done,
        status,
        payload,
    }
}

impl Fake {
    fn new(fault: Fault) -> Fake {
        Fake {
            fault,
            token_key: TokenKey::new(b"key"),
            nearest: Nearest::new(POINTS, K),
            counts: BTreeMap::new(),
            rows: BTreeMap::new(),
            latest: BTreeMap::new(),
            reports: 0,
        }
    }

    fn answer(&mut self, call: &Call) -> Reply {
        let said: Said = ciborium::from_reader(&call.payload[..]).unwrap();
        assert_eq!(call.key, said.user.as_bytes());
        let token = self.token_key.mint(&said.user, said.expiry);
        let good = said.token.as_bytes().unwrap() == &token.tag;
        if !good && self.fault != Fault::TakesAnyToken {
            return reply(3, b"token: is not that of this user and expiry".to_vec());
        }
        match (said.path.as_deref(), said.at.as_deref()) {
            (Some("/reports"), None) => self.report(&said),
            (Some("/history"), None) => {
                let rows = self.rows.get(&said.user).map_or(&[][..], |r| r);
                let sum = rows.iter().map(|r| r.1).reduce(|a, b| a + b);
                let last = rows.iter().map(|r| r.0).max();
                let rows = [(rows.len(), sum, last)];
                reply(0, record(&Summed { rows }))
            }
            (None, Some("kvs")) => {
                let held = self.latest.get(&said.user);
                let latest = Held {
                    done: held.is_some(),
                    last_time: held.map(|h| h.0),
                    last_value: held.map(|h| h.1),
                    last_class: held.map(|h| &*h.2),
                };
                reply(0, record(&latest))
            }
            (None, Some("count")) => {
                let topic = said.topic.unwrap();
                let shard = |key: &[u8]| Slot::of(key).shard(SHARDS);
                assert_eq!(shard(&call.key), shard(topic.as_bytes()));
                let count = self.counts.get(&topic).copied().unwrap_or(0);
                reply(0, record(&BTreeMap::from([("count", count)])))
            }
            _ => panic!("an unknown query"),
        }
    }

    fn report(&mut self, said: &Said) -> Reply {
        self.reports += 1;
        let wrong = |fault| self.fault == fault && self.reports == 100;
        let count = self.counts.entry(said.topic.clone().unwrap()).or_default();
        *count += if wrong(Fault::CountsTwice) { 2 } else { 1 };
        let class = if wrong(Fault::ClassifiesWrongly) {
            "none"
        } else {
            self.nearest.class(said.features.as_ref().unwrap())
        };
        let (time, value) = (said.time.unwrap(), said.value.unwrap());
        if self.fault != Fault::KeepsTheOld || self.reports < 100 {
            let latest = (time, value, class.to_string());
            self.latest.insert(said.user.clone(), latest);
        }
        let rows = self.rows.entry(said.user.clone()).or_default();
        if wrong(Fault::StoresTwice) {
            rows.push((time, value));
        }
        rows.push((time, value));
        let kept = Stored {
            row: rows.len(),
            count: *count,
            class,
        };
        if wrong(Fault::LosesARow) {
            rows.pop();
        }
        reply(0, record(&kept))
    }
}

fn workload(seed: u64) -> Load<Senders, Hub> {
    let inputs = Inputs {
        seed,
        rate_rps: 200.0,
        duration: Duration::from_secs(10),
        now: Timestamp::ZERO + Nanos::from_secs(1_000),
        ..Inputs::default()
    };
    load(&inputs, b"key").unwrap()
}

fn before(hub: &mut Fake, w: &mut Load<Senders, Hub>) {
    while let Check::Ask(call) = w.next_baseline() {
        w.on_baseline(call.tag, Some(&hub.answer(&call)));
    }
    assert_eq!(w.baseline_unanswered(), 0);
}

/// Sends so many reports and reads everything back; also how many were judged wrong.
fn run(fault: Fault, seed: u64, requests: u32) -> (Verified, u64, u64) {
    let (mut hub, mut w) = (Fake::new(fault), workload(seed));
    let probe = w.probe();
    w.on_probe(&hub.answer(&probe)).unwrap();
    // an earlier load has left something
    hub.counts.insert("site00/power".into(), 70);
    before(&mut hub, &mut w);
    let (mut wrong, mut unauthorized) = (0, 0);
    for _ in 0..requests {
        let call = w.next().unwrap();
        let judged = w.on_outcome(call.tag, Some(&hub.answer(&call)));
        wrong += u64::from(!judged.expected);
        unauthorized += u64::from(judged.meaning == Some(Meaning::Unauthorized));
    }
    while let Check::Ask(call) = w.next_check(Timestamp(0)) {
        let reply = hub.answer(&call);
        w.on_check(Timestamp(0), call.tag, Some(&reply));
    }
    assert_eq!(w.checked(), 1.0);
    (w.verify(), wrong, unauthorized)
}

fn finding(verified: &Verified, what: &str) -> (u64, u64) {
    let found = verified.findings.iter().find(|f| f.what == what).unwrap();
    (found.right, found.of)
}

#[test]
fn a_hub_that_is_right_is_found_right() {
    let (verified, wrong, unauthorized) = run(Fault::None, 1, 3000);
    let rows = verified.rows;
    assert_eq!((rows.missing, rows.repeated, rows.checks_failed), (0, 0, 0));
    assert_eq!(
        (rows.expected, rows.found, wrong),
        (3000 - unauthorized, 3000 - unauthorized, 0)
    );
    assert!((10..60).contains(&unauthorized), "{unauthorized}");
    for what in [
        "rows stored",
        "latest values",
        "topics counted",
        "classified as the points say",
    ] {
        let (right, of) = finding(&verified, what);
        assert!(right == of && of > 10, "{what}: {right} of {of}");
    }
    let services: Vec<_> = verified.checks.iter().map(|c| c.service).collect();
    assert_eq!(services, ["apigw", "count", "kvs", "sql"]);
    for check in verified.checks.iter().filter(|c| c.readable) {
        assert!(check.right > 0, "{check:?}");
        assert_eq!(check.wrong + check.unread + check.unsure, 0, "{check:?}");
    }
    let (right, of) = finding(&verified, "states recognised");
    println!("states recognised: {right} of {of}");
    assert!(right * 100 > of * 90 && right < of, "{right} of {of}");
}

#[test]
fn each_fault_of_a_hub_is_found() {
    for (fault, numbers_wrong, finding_wrong) in [
        (Fault::CountsTwice, true, Some("topics counted")),
        (Fault::StoresTwice, true, Some("rows stored")),
        (Fault::LosesARow, true, Some("rows stored")),
        (Fault::KeepsTheOld, false, Some("latest values")),
        (
            Fault::ClassifiesWrongly,
            false,
            Some("classified as the points say"),
        ),
    ] {
        let (verified, wrong, _) = run(fault, 2, 1500);
        let rows = verified.rows;
        let what = format!("{fault:?}: {rows:?}");
        assert_eq!(rows.missing + rows.repeated > 0, numbers_wrong, "{what}");
        assert_eq!((wrong, rows.checks_failed), (0, 0), "{what}");
        for found in &verified.findings {
            let right = finding_wrong != Some(found.what) && found.what != "states recognised";
            assert!(!right || found.right == found.of, "{what}: {found:?}");
            assert!(right || found.right < found.of, "{what}: {found:?}");
        }
    }
    let (_, wrong, unauthorized) = run(Fault::TakesAnyToken, 2, 1000);
    assert!(wrong > 0 && unauthorized == 0);
}

#[test]
fn what_is_unsure_is_not_judged() {
    let (mut hub, mut w) = (Fake::new(Fault::None), workload(3));
    before(&mut hub, &mut w);
    for n in 0..2000 {
        let call = w.next().unwrap();
        let answer = hub.answer(&call);
        // every tenth answer is lost on its way
        let judged = w.on_outcome(call.tag, (n % 10 > 0).then_some(&answer));
        assert!(judged.expected);
    }
    while let Check::Ask(call) = w.next_check(Timestamp(0)) {
        w.on_check(Timestamp(0), call.tag, Some(&hub.answer(&call)));
    }
    let verified = w.verify();
    for what in ["rows stored", "latest values", "topics counted"] {
        let (right, of) = finding(&verified, what);
        assert_eq!(right, of, "{what}");
    }
}

#[test]
fn the_seed_decides_everything() {
    let calls = |seed| {
        let (mut hub, mut w) = (Fake::new(Fault::None), workload(seed));
        let mut calls = Vec::new();
        for _ in 0..2000 {
            let call = w.next().unwrap();
            w.on_outcome(call.tag, Some(&hub.answer(&call)));
            calls.push(call);
        }
        calls
    };
    assert_eq!(calls(4), calls(4));
    assert_ne!(calls(4), calls(5));
}

#[test]
fn a_seed_can_be_used_again() {
    let mut hub = Fake::new(Fault::None);
    for run in 0..3 {
        let inputs = Inputs {
            seed: 6,
            rate_rps: 200.0,
            duration: Duration::from_secs(10),
            now: Timestamp::ZERO + Nanos::from_secs(1_000),
            run,
            ..Inputs::default()
        };
        let mut w = load(&inputs, b"key").unwrap();
        before(&mut hub, &mut w);
        for _ in 0..1000 {
            let call = w.next().unwrap();
            w.on_outcome(call.tag, Some(&hub.answer(&call)));
        }
        while let Check::Ask(call) = w.next_check(Timestamp(0)) {
            w.on_check(Timestamp(0), call.tag, Some(&hub.answer(&call)));
        }
        let verified = w.verify();
        assert_eq!((verified.rows.missing, verified.rows.repeated), (0, 0));
        assert!(verified.checks.iter().all(|c| c.wrong == 0), "{run}");
    }
}
