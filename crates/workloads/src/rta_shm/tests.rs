//! The workload against monitoring that is right, and against some that is not.

use super::load;
use super::oracle::Sums;
use super::runbooks::Runbooks;
use crate::inputs::Inputs;
use crate::readback::queries::{NOT_FOUND, done};
use e3_loadgen::workload::{Check, Verified, Workload};
use e3_model::Timestamp;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    StoresTwice,
    LosesARow,
    CountsTwice,
    AveragesLate,
    RanksOtherwise,
}

/// A report as the application reads it.
#[derive(Deserialize)]
struct Said {
    host: String,
    report: i64,
    cpu: i64,
    severity: String,
    event: String,
    log: String,
}

#[derive(Serialize)]
struct Answered {
    event: String,
    count: u64,
    ema: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    documents: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scores: Vec<f64>,
}

#[derive(Serialize)]
struct Ema {
    ema: f64,
    time: i64,
    samples: u64,
}

#[derive(Serialize)]
struct Table {
    rows: Vec<(String, i64, i64, i64)>,
}

#[derive(Serialize)]
struct Number {
    count: u64,
}

#[derive(Deserialize)]
struct Asks {
    #[serde(default)]
    host: String,
    event: Option<String>,
    since: Option<i64>,
}

fn run(wrong: Wrong) -> Verified {
    let inputs = Inputs {
        seed: 12,
        now: Timestamp(1_700_000_000_000_000_000),
        ..Inputs::default()
    };
    let mut load = load(&inputs);
    let runbooks = Runbooks::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut averages: BTreeMap<String, (f64, i64, u64)> = BTreeMap::new();
    let mut rows: BTreeMap<String, Vec<(String, i64, i64)>> = BTreeMap::new();
    // an earlier load has left something of one server
    counts.insert("host003/info".into(), 40);
    let left = |host: &str| (host == "host003").then_some((123.0, 1_600_000_000_000, 40));
    let nothing = Reply {
        outcome: e3_wire::entry::Outcome::Done,
        status: NOT_FOUND,
        payload: Vec::new(),
    };
    while let Check::Ask(call) = load.next_baseline() {
        let asked: Asks = ciborium::from_reader(&call.payload[..]).unwrap();
        let reply = match asked.event {
            Some(event) => done(&Number {
                count: counts.get(&event).copied().unwrap_or(0),
            }),
            None => match left(&asked.host) {
                Some((ema, time, samples)) => done(&Ema { ema, time, samples }),
                None => nothing.clone(),
            },
        };
        load.on_baseline(call.tag, Some(&reply));
    }
    assert_eq!(load.baseline_unanswered(), 0);
    for n in 0..1500 {
        let call = load.next().unwrap();
        let said: Said = ciborium::from_reader(&call.payload[..]).unwrap();
        assert_eq!(call.key, said.host.as_bytes());
        let odd = n == 750;
        let times = match wrong {
            Wrong::StoresTwice if odd => 2,
            Wrong::LosesARow if odd => 0,
            _ => 1,
        };
        let table = rows.entry(said.host.clone()).or_default();
        table.extend((0..times).map(|_| (said.severity.clone(), said.report, said.cpu)));
        let count = counts.entry(said.event.clone()).or_default();
        *count += 1 + u64::from(wrong == Wrong::CountsTwice && odd);
        let load_now = said.cpu as f64;
        let late = if wrong == Wrong::AveragesLate {
            0.9
        } else {
            1.0
        };
        let before = averages.get(&said.host).copied().or(left(&said.host));
        let (average, samples) = match before {
            None => (load_now, 1),
            Some((ema, at, samples)) => {
                let decay = (-((said.report - at) as f64) / 12.0).exp();
                (load_now + (ema - load_now) * decay * late, samples + 1)
            }
        };
        averages.insert(said.host.clone(), (average, said.report, samples));
        let mut best = match &*said.severity {
            "info" => Vec::new(),
            _ => runbooks.best(&said.log, 3),
        };
        if wrong == Wrong::RanksOtherwise {
            best.reverse();
        }
        let (documents, scores) = best.into_iter().unzip();
        let reply = done(&Answered {
            event: said.event,
            count: *count,
            ema: average,
            documents,
            scores,
        });
        assert!(load.on_outcome(call.tag, Some(&reply)).expected);
    }
    while let Check::Ask(call) = load.next_check(Timestamp(0)) {
        let asked: Asks = ciborium::from_reader(&call.payload[..]).unwrap();
        if let Some(event) = asked.event {
            let count = counts.get(&event).copied().unwrap_or(0);
            load.on_check(Timestamp(0), call.tag, Some(&done(&Number { count })));
            continue;
        }
        let reply = match asked.since {
            None => {
                let (ema, time, samples) = averages[&asked.host];
                done(&Ema { ema, time, samples })
            }
            Some(since) => {
                let mut groups: BTreeMap<&String, Sums> = BTreeMap::new();
                for (severity, report, cpu) in &rows[&asked.host] {
                    let (n, sum, moment) = groups.entry(severity).or_default();
                    *n += 1;
                    *sum += cpu;
                    *moment += cpu * (report - since);
                }
                let groups = groups.into_iter();
                let rows = groups.map(|(s, (n, sum, moment))| (s.clone(), n, sum, moment));
                done(&Table {
                    rows: rows.collect(),
                })
            }
        };
        load.on_check(Timestamp(0), call.tag, Some(&reply));
    }
    load.verify()
}

fn wrong_ones(verified: &Verified) -> Vec<&'static str> {
    let wrong = verified.findings.iter().filter(|f| f.right < f.of);
    wrong.map(|f| f.what).collect()
}

#[test]
fn what_is_right_is_found_right() {
    let verified = run(Wrong::Nothing);
    for finding in &verified.findings {
        assert!(finding.of > 0, "{finding:?}");
    }
    assert_eq!(wrong_ones(&verified), [""; 0]);
    for check in &verified.checks {
        assert!(check.right > 0, "{check:?}");
        assert_eq!(check.wrong + check.unread + check.unsure, 0, "{check:?}");
    }
    assert_eq!((verified.rows.expected, verified.rows.found), (1500, 1500));
    assert_eq!((verified.rows.missing, verified.rows.repeated), (0, 0));
}

#[test]
fn what_is_wrong_is_found_wrong() {
    assert_eq!(wrong_ones(&run(Wrong::StoresTwice)), ["rows right"]);
    assert_eq!(wrong_ones(&run(Wrong::LosesARow)), ["rows right"]);
    let twice = run(Wrong::CountsTwice);
    let count = twice.checks.iter().find(|c| c.service == "count").unwrap();
    assert_eq!((twice.rows.repeated, count.wrong), (1, 1));
    let late = run(Wrong::AveragesLate);
    assert_eq!(wrong_ones(&late), ["averages right", "averages read back"]);
    assert_eq!(wrong_ones(&run(Wrong::RanksOtherwise)), ["ranks right"]);
}

#[test]
fn a_report_without_an_answer_leaves_its_server_out() {
    let mut load = load(&Inputs::default());
    let call = load.next().unwrap();
    assert_eq!(load.on_outcome(call.tag, None).meaning, None);
    assert_eq!(load.next_check(Timestamp(0)), Check::Finished);
}
