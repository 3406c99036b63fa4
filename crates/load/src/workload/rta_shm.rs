//! The workload of server health monitoring (RTA-SHM): a server's report is stored, counted by its
//! severity, averaged, and the line of its log is looked up among runbooks.
//!
//! A server sends its next report when the last one is answered. So its average is known from what was
//! answered before, and computed here again. How often each severity of a server came is the ledger.
//! At the end the rows, the averages, and how many reports they are made from are read back.

#[cfg(test)]
mod tests;

use super::health::{HOSTS, Health, Report};
use super::questions::{Questions, Sequences, answer, first_answer, handled, record};
use super::runbooks::Runbooks;
use super::score::Score;
use super::{Call, Check, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::Rows;
use e3_model::Nanos;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Runbooks of an answer, and the time constant of the averages in reports: as in the manifest.
const BEST: usize = 3;
const TIME_CONSTANT: f64 = 12.0;
/// How far averages and scores may lie from the own computation, for their rounding.
const TOLERANCE: f64 = 1e-9;
/// Seconds between two reports of a server.
const REPORT_S: i64 = 600;
/// Rows of a server's severities.
const SELECT: &str = "SELECT severity, count(*), sum(cpu), sum(cpu * (report - :since)) FROM health \
    WHERE host = :host AND report > :since GROUP BY severity ORDER BY severity";

#[derive(Serialize)]
struct Message<'a> {
    host: &'a str,
    report: i64,
    time: i64,
    cpu: i64,
    severity: &'a str,
    event: &'a str,
    log: &'a str,
}

#[derive(Serialize)]
struct Average<'a> {
    op: &'a str,
    at: &'a str,
    host: &'a str,
}

#[derive(Serialize)]
struct Select<'a> {
    sql: &'a str,
    host: &'a str,
    since: i64,
}

#[derive(Deserialize)]
struct Answer {
    event: String,
    count: u64,
    ema: f64,
    documents: Vec<String>,
    scores: Vec<f64>,
}

#[derive(Deserialize)]
struct Averaged {
    ema: f64,
    time: i64,
}

#[derive(Deserialize)]
struct Stored {
    rows: Vec<(String, i64, i64, i64)>,
}

/// Rows of a severity: how many, the sum of their loads, and that of load times number.
type Sums = (i64, i64, i64);

/// What is known of a server.
#[derive(Default)]
struct Server {
    /// Average after the last report; none if that is not known.
    average: Option<(f64, i64)>,
    rows: BTreeMap<&'static str, Sums>,
    /// A report had no answer: whether there is a row of it is not known.
    unsure: bool,
}

/// The workload.
pub struct RtaShm {
    stream: Health,
    runbooks: Runbooks,
    first_report: i64,
    first_s: i64,
    servers: BTreeMap<u32, Server>,
    busy: BTreeSet<u32>,
    under_way: BTreeMap<u64, Report>,
    next_mark: u64,
    counts: Sequences<String>,
    averages: Score,
    ranks: Score,
    found: Score,
    questions: Option<(Vec<u32>, Questions)>,
    averages_read: Score,
    rows_read: Score,
}

fn host_name(host: u32) -> String {
    format!("host{host:03}")
}

fn event(report: &Report) -> String {
    format!("{}/{}", host_name(report.host), report.severity)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * b.abs().max(1.0)
}

fn ask(host: u32, payload: Vec<u8>) -> Call {
    Call {
        tag: 0,
        key: host_name(host).into_bytes(),
        payload,
    }
}

fn ask_rows(host: u32, since: i64) -> Call {
    let host_name = host_name(host);
    let payload = record(&Select {
        sql: SELECT,
        host: &host_name,
        since,
    });
    ask(host, payload)
}

fn ask_average(host: u32) -> Call {
    let host_name = host_name(host);
    let payload = record(&Average {
        op: "get",
        at: "ema",
        host: &host_name,
    });
    ask(host, payload)
}

impl RtaShm {
    /// The reports of a seed.
    pub fn new(inputs: &Inputs) -> RtaShm {
        RtaShm {
            stream: Health::new(inputs.seed),
            runbooks: Runbooks::new(),
            // fewer reports of one server than milliseconds: a later load goes on with greater numbers
            first_report: (inputs.now.0 / 1_000_000) as i64,
            first_s: (inputs.now.0 / 1_000_000_000) as i64,
            servers: BTreeMap::new(),
            busy: BTreeSet::new(),
            under_way: BTreeMap::new(),
            next_mark: 0,
            counts: Sequences::default(),
            averages: Score::default(),
            ranks: Score::default(),
            found: Score::default(),
            questions: None,
            averages_read: Score::default(),
            rows_read: Score::default(),
        }
    }

    /// Whether the runbooks are those of an own ranking; of equal scores any order is right.
    fn judge_ranks(&mut self, report: &Report, answer: &Answer) {
        let own = self.runbooks.best(&report.log, BEST);
        let scores = answer
            .scores
            .iter()
            .zip(&own)
            .all(|(a, (_, b))| close(*a, *b));
        let named = answer.documents.iter().zip(&own).all(|(a, (b, score))| {
            let equals = own.iter().filter(|(_, s)| close(*s, *score)).count();
            a == b || equals > 1
        });
        let whole = answer.documents.len() == own.len() && answer.scores.len() == own.len();
        self.ranks.add(whole && scores && named);
        if let Some(expected) = report.runbooks {
            let hit = answer.documents.iter().any(|d| d.starts_with(expected));
            self.found.add(hit);
        }
    }

    /// Servers of which everything is known, each asked about its average and its rows.
    fn begin_questions(&mut self) -> &mut (Vec<u32>, Questions) {
        let since = self.first_report;
        self.questions.get_or_insert_with(|| {
            let sure = self.servers.iter().filter(|(_, s)| !s.unsure);
            let hosts: Vec<u32> = sure.map(|(host, _)| *host).collect();
            let calls = hosts
                .iter()
                .flat_map(|h| [ask_average(*h), ask_rows(*h, since)]);
            let questions = Questions::new(calls.collect());
            (hosts, questions)
        })
    }
}

impl Workload for RtaShm {
    fn name(&self) -> &'static str {
        "rta-shm"
    }

    fn describe(&self) -> String {
        format!("{HOSTS} servers over the day, with incidents")
    }

    fn probe(&mut self) -> Call {
        ask_rows(0, self.first_report)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        first_answer::<Stored>(self.name(), reply).map(drop)
    }

    fn next(&mut self) -> Option<Call> {
        let report = self.stream.next_report(&self.busy)?;
        let payload = record(&Message {
            host: &host_name(report.host),
            report: self.first_report + report.number,
            time: self.first_s + report.number * REPORT_S,
            cpu: report.cpu,
            severity: report.severity,
            event: &event(&report),
            log: &report.log,
        });
        let mut call = ask(report.host, payload);
        self.next_mark += 1;
        call.tag = self.next_mark;
        self.busy.insert(report.host);
        self.under_way.insert(self.next_mark, report);
        Some(call)
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let Some(report) = self.under_way.remove(&mark) else {
            return Judged::refused(handled(reply));
        };
        self.busy.remove(&report.host);
        let server = self.servers.entry(report.host).or_default();
        let answer = answer::<Answer>(reply).filter(|a| a.event == event(&report));
        let Some(answer) = answer else {
            *server = Server {
                unsure: true,
                ..Server::default()
            };
            return Judged::refused(handled(reply));
        };
        let number = self.first_report + report.number;
        let load = report.cpu as f64;
        if let Some((average, at)) = server.average {
            let passed = (number - at) as f64;
            let weight = 1.0 - (-passed / TIME_CONSTANT).exp();
            let expected = average + weight * (load - average);
            self.averages.add(close(answer.ema, expected));
        }
        server.average = Some((answer.ema, number));
        let (rows, sum, moment) = server.rows.entry(report.severity).or_default();
        *rows += 1;
        *sum += report.cpu;
        *moment += report.cpu * report.number;
        self.judge_ranks(&report, &answer);
        self.counts.add(answer.event, answer.count);
        Judged::accepted()
    }

    fn next_check(&mut self, _: Nanos) -> Check {
        self.begin_questions().1.next()
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let (averaged, stored) = (answer::<Averaged>(reply), answer::<Stored>(reply));
        let is_average = tag.is_multiple_of(2);
        let good = if is_average {
            averaged.is_some()
        } else {
            stored.is_some()
        };
        let (hosts, questions) = self.begin_questions();
        questions.on_answer(tag, good);
        let host = hosts.get(tag as usize / 2).copied();
        let Some(server) = host.and_then(|h| self.servers.get(&h)) else {
            return;
        };
        if let Some(said) = averaged.filter(|_| is_average) {
            let known = server.average.map(|(ema, at)| (ema.to_bits(), at));
            self.averages_read
                .add(known == Some((said.ema.to_bits(), said.time)));
        }
        if let Some(said) = stored.filter(|_| !is_average) {
            let rows = server.rows.iter();
            let known = rows.map(|(name, (n, sum, moment))| (name.to_string(), *n, *sum, *moment));
            self.rows_read.add(known.eq(said.rows));
        }
    }

    fn checked(&self) -> f64 {
        self.questions.as_ref().map_or(0.0, |(_, q)| q.progress())
    }

    fn verify(&self) -> Verified {
        let failed = self.questions.as_ref().map_or(0, |(_, q)| q.failed());
        Verified {
            rows: Rows {
                checks_failed: failed,
                ..self.counts.rows()
            },
            spikes: None,
            findings: vec![
                self.rows_read.finding(
                    "rows right",
                    "servers whose rows, read back, are those of the reports",
                ),
                self.averages.finding(
                    "averages right",
                    "averages answered, against an own computation",
                ),
                self.averages_read.finding(
                    "averages read back",
                    "averages of servers, asked for after the load",
                ),
                self.ranks
                    .finding("ranks right", "runbooks answered, against an own ranking"),
                self.found.finding(
                    "runbooks found",
                    "reports of incidents with a fitting runbook among three",
                ),
            ],
        }
    }
}
