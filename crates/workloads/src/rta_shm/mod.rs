//! The workload of server health monitoring (RTA-SHM): a server's report is stored, counted by its
//! severity, averaged, and, if it is an alert, its log line is looked up among runbooks.
//!
//! A server sends its next report when the last one is answered, so its average can be computed here. The
//! number of reports of each server and severity is counted here too. Servers are the same in all loads,
//! so averages and counts before the load are read first. At the end the rows, the averages with their
//! samples, and the counts are read back.

pub mod health;
mod runbooks;
#[cfg(test)]
mod tests;

use crate::inputs::Inputs;
use crate::oracles::count::ItemCounts;
use crate::oracles::models::{Average, close};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{
    NOT_FOUND, Sequences, answer, first_answer, handled, not_admitted, record,
};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_wire::entry::Reply;
use health::{HOSTS, Health, Report};
use runbooks::Runbooks;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Runbooks of an answer, and the time constant of the averages in reports: as in the manifest.
const BEST: usize = 3;
const TIME_CONSTANT: f64 = 12.0;
/// Severities of reports; all but the first are alerts.
const SEVERITIES: [&str; 3] = ["info", "warning", "error"];
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
struct CountQuery<'a> {
    op: &'a str,
    at: &'a str,
    event: &'a str,
}

#[derive(Serialize)]
struct AverageQuery<'a> {
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
    #[serde(default)]
    documents: Vec<String>,
    #[serde(default)]
    scores: Vec<f64>,
}

#[derive(Deserialize)]
struct Counted {
    count: u64,
}

#[derive(Deserialize)]
struct Averaged {
    ema: f64,
    time: i64,
    samples: u64,
}

#[derive(Deserialize)]
struct Stored {
    rows: Vec<(String, i64, i64, i64)>,
}

/// Rows of a severity: how many, the sum of their loads, and that of load times number.
type Sums = (i64, i64, i64);

#[derive(Clone, Copy, Debug)]
enum Asked {
    Average(u32),
    Count(u32, &'static str),
    Rows(u32),
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Average(_) => "ema",
            Asked::Count(..) => "count",
            Asked::Rows(_) => "sql",
        }
    }
}

/// What is known of a server.
#[derive(Default)]
struct Server {
    /// Average after the last report; none before the first.
    average: Option<Average>,
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
    in_flight: BTreeMap<u64, Report>,
    next_mark: u64,
    counts: Sequences<String>,
    item_counts: ItemCounts,
    averages: Score,
    ranks: Score,
    /// Reports that are no alerts, without runbooks.
    unasked: Score,
    found: Score,
    baseline: Checks<Asked>,
    checks: Option<Checks<Asked>>,
    averages_read: Score,
    rows_read: Score,
}

fn host_name(host: u32) -> String {
    format!("host{host:03}")
}

fn event(host: u32, severity: &str) -> String {
    format!("{}/{severity}", host_name(host))
}

fn is_alert(severity: &str) -> bool {
    severity != SEVERITIES[0]
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
    let payload = record(&AverageQuery {
        op: "get",
        at: "ema",
        host: &host_name,
    });
    ask(host, payload)
}

fn ask_count(host: u32, severity: &str) -> Call {
    let payload = record(&CountQuery {
        op: "get",
        at: "count",
        event: &event(host, severity),
    });
    ask(host, payload)
}

/// What is asked about a server before the load, and after it as well.
fn ask_both(host: u32) -> impl Iterator<Item = (Asked, Call)> {
    let counts = SEVERITIES.map(|s| (Asked::Count(host, s), ask_count(host, s)));
    counts
        .into_iter()
        .chain([(Asked::Average(host), ask_average(host))])
}

impl RtaShm {
    /// The reports of a seed.
    pub fn new(inputs: &Inputs) -> RtaShm {
        RtaShm {
            stream: Health::new(inputs.seed),
            runbooks: Runbooks::new(),
            // fewer reports of one server than milliseconds: a later load goes on with greater numbers
            first_report: inputs.now.since(Timestamp::ZERO).as_millis() as i64,
            first_s: inputs.now.since(Timestamp::ZERO).as_secs() as i64,
            servers: BTreeMap::new(),
            busy: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next_mark: 0,
            counts: Sequences::default(),
            item_counts: ItemCounts::default(),
            averages: Score::default(),
            ranks: Score::default(),
            unasked: Score::default(),
            found: Score::default(),
            baseline: Checks::new((0..HOSTS).flat_map(ask_both).collect()),
            checks: None,
            averages_read: Score::default(),
            rows_read: Score::default(),
        }
    }

    /// Whether the runbooks are those of an own ranking; of equal scores any order is right. A report
    /// that is no alert must have none.
    fn judge_ranks(&mut self, report: &Report, answer: &Answer) {
        if !is_alert(report.severity) {
            self.unasked.add(answer.documents.is_empty());
            return;
        }
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

    /// Servers that sent something and of which everything is known.
    fn checks(&mut self) -> &mut Checks<Asked> {
        let since = self.first_report;
        self.checks.get_or_insert_with(|| {
            let sent = self
                .servers
                .iter()
                .filter(|(_, s)| !s.unsure && !s.rows.is_empty());
            let each = sent.flat_map(|(host, _)| {
                let rows = (Asked::Rows(*host), ask_rows(*host, since));
                ask_both(*host).chain([rows])
            });
            Checks::new(each.collect())
        })
    }

    /// Holds an answer against what is known; None if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Average(host) => {
                let known = self.servers.get(&host)?.average?;
                let said: Averaged = answer(reply)?;
                let same = (said.time, said.samples) == (known.time, known.samples);
                let right = self.averages_read.add(same && close(said.ema, known.ema));
                Some(Facts::one(right))
            }
            Asked::Count(host, severity) => {
                let said: Counted = answer(reply)?;
                let (key, item) = (host_name(host), event(host, severity));
                let known = self.item_counts.expected(key.as_bytes(), item.as_bytes());
                Some(known.map_or(Facts::default(), |known| Facts::one(known == said.count)))
            }
            Asked::Rows(host) => {
                let said: Stored = answer(reply)?;
                let server = self.servers.get(&host)?;
                let known = server.rows.iter();
                let known =
                    known.map(|(name, (n, sum, moment))| (name.to_string(), *n, *sum, *moment));
                let right = self.rows_read.add(known.eq(said.rows));
                let count: i64 = server.rows.values().map(|(n, ..)| n).sum();
                Some(match right {
                    true => Facts {
                        right: count as u64,
                        wrong: 0,
                    },
                    false => Facts::one(false),
                })
            }
        }
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

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<Stored>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let facts = match self.baseline.asked(tag) {
            Some(Asked::Average(host)) => {
                let server = self.servers.entry(host).or_default();
                server.average = answer::<Averaged>(reply).map(|a| Average {
                    ema: a.ema,
                    time: a.time,
                    samples: a.samples,
                });
                let nothing = handled(reply) && reply.is_some_and(|r| r.status == NOT_FOUND);
                (nothing || server.average.is_some()).then_some(Facts::one(true))
            }
            Some(Asked::Count(host, severity)) => answer::<Counted>(reply).map(|counted| {
                self.item_counts
                    .begin(event(host, severity).as_bytes(), counted.count);
                Facts::one(true)
            }),
            Some(Asked::Rows(_)) | None => None,
        };
        self.baseline.take(tag, facts);
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn next(&mut self) -> Option<Call> {
        let report = self.stream.next_report(&self.busy)?;
        let payload = record(&Message {
            host: &host_name(report.host),
            report: self.first_report + report.number,
            time: self.first_s + report.number * REPORT_S,
            cpu: report.cpu,
            severity: report.severity,
            event: &event(report.host, report.severity),
            log: &report.log,
        });
        let mut call = ask(report.host, payload);
        self.next_mark += 1;
        call.tag = self.next_mark;
        self.busy.insert(report.host);
        self.in_flight.insert(self.next_mark, report);
        Some(call)
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let Some(report) = self.in_flight.remove(&mark) else {
            return Judged::refused(handled(reply));
        };
        self.busy.remove(&report.host);
        let server = self.servers.entry(report.host).or_default();
        let answer =
            answer::<Answer>(reply).filter(|a| a.event == event(report.host, report.severity));
        let Some(answer) = answer else {
            if !not_admitted(reply) {
                server.unsure = true;
                let (key, item) = (host_name(report.host), event(report.host, report.severity));
                self.item_counts.add_unsure(key.as_bytes(), item.as_bytes());
            }
            return Judged::refused(handled(reply));
        };
        let number = self.first_report + report.number;
        let load = report.cpu as f64;
        if !server.unsure {
            let average = Average::after(server.average, number, load, TIME_CONSTANT);
            self.averages.add(close(answer.ema, average.ema));
            server.average = Some(average);
        }
        let (rows, sum, moment) = server.rows.entry(report.severity).or_default();
        *rows += 1;
        *sum += report.cpu;
        *moment += report.cpu * report.number;
        self.judge_ranks(&report, &answer);
        let key = host_name(report.host);
        self.item_counts
            .add(key.as_bytes(), answer.event.as_bytes());
        self.counts.add(answer.event, answer.count);
        Judged::accepted()
    }

    fn next_check(&mut self, _: Timestamp) -> Check {
        self.checks().next()
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let asked = self.checks().asked(tag);
        let facts = asked.and_then(|asked| self.read_back(asked, reply));
        self.checks().take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.as_ref().map_or(0.0, Checks::progress)
    }

    fn verify(&self) -> Verified {
        let unsure = self.servers.values().filter(|s| s.unsure).count() as u64;
        let services = [
            ("sql", "rows of each server, by severity, sum and moment"),
            ("count", "reports of each severity of each server"),
            ("ema", "averages of each server, with time and samples"),
        ];
        let of = |(service, what)| Some(self.checks.as_ref()?.of(service, what, unsure));
        Verified {
            rows: Rows {
                checks_failed: self.checks.as_ref().map_or(0, Checks::unanswered),
                ..self.counts.rows()
            },
            checks: services.into_iter().filter_map(of).collect(),
            findings: vec![
                self.rows_read.finding(
                    "rows right",
                    "servers whose stored rows are those of their reports",
                ),
                self.averages.finding(
                    "averages right",
                    "averages in answers that an independent computation gives",
                ),
                self.averages_read.finding(
                    "averages read back",
                    "averages of servers that are right after the load",
                ),
                self.ranks.finding(
                    "ranks right",
                    "runbooks of alerts that an independent ranking gives",
                ),
                self.unasked.finding(
                    "without runbooks",
                    "reports below alert level that were answered without runbooks",
                ),
                self.found.finding(
                    "runbooks found",
                    "reports of incidents with a matching runbook among the three answered",
                ),
            ],
        }
    }
}
