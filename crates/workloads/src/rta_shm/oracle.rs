//! What the services must answer and keep: rows, counts, averages, runbooks.

use super::health::{HOSTS, Report};
use super::messages::{Answer, Stored, ask_average, ask_count, ask_rows, event, host_name};
use super::runbooks::Runbooks;
use super::{SEVERITIES, is_alert};
use crate::inputs::Inputs;
use crate::load::Oracle;
use crate::oracles::count::ItemCounts;
use crate::oracles::models::{Average, close};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{NOT_FOUND, Sequences, answer, first_answer, handled, not_admitted};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_model::Timestamp;
use e3_wire::entry::Reply;
use std::collections::BTreeMap;

/// Runbooks of an answer, and the time constant of the averages in reports: as in the manifest.
const BEST: usize = 3;
const TIME_CONSTANT: f64 = 12.0;

/// Rows of a severity: how many, the sum of their loads, and that of load times number.
pub(super) type Sums = (i64, i64, i64);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
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

/// What is known of the application.
pub(crate) struct Monitor {
    runbooks: Runbooks,
    first_report: i64,
    servers: BTreeMap<u32, Server>,
    counts: Sequences<String>,
    item_counts: ItemCounts,
    averages: Score,
    ranks: Score,
    /// Reports that are no alerts, without runbooks.
    unasked: Score,
    found: Score,
    averages_read: Score,
    rows_read: Score,
}

/// What is asked about a server before the load, and after it as well.
fn ask_both(host: u32) -> impl Iterator<Item = (Asked, Call)> {
    let counts = SEVERITIES.map(|s| (Asked::Count(host, s), ask_count(host, s)));
    counts
        .into_iter()
        .chain([(Asked::Average(host), ask_average(host))])
}

impl Monitor {
    pub(super) fn new(inputs: &Inputs) -> Monitor {
        Monitor {
            runbooks: Runbooks::new(),
            // fewer reports of one server than milliseconds: a later load goes on with greater numbers
            first_report: inputs.now.since(Timestamp::ZERO).as_millis() as i64,
            servers: BTreeMap::new(),
            counts: Sequences::default(),
            item_counts: ItemCounts::default(),
            averages: Score::default(),
            ranks: Score::default(),
            unasked: Score::default(),
            found: Score::default(),
            averages_read: Score::default(),
            rows_read: Score::default(),
        }
    }

    /// The number of a report, greater than those of earlier loads.
    pub(super) fn number(&self, report: &Report) -> i64 {
        self.first_report + report.number
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
}

impl Oracle for Monitor {
    const NAME: &'static str = "rta-shm";
    type Sent = Report;
    type Asked = Asked;

    fn probe(&self) -> Call {
        ask_rows(0, self.first_report)
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<Stored>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        (0..HOSTS).flat_map(ask_both).collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        match asked {
            Asked::Average(host) => {
                let server = self.servers.entry(host).or_default();
                server.average = answer(reply);
                let nothing = handled(reply) && reply.is_some_and(|r| r.status == NOT_FOUND);
                (nothing || server.average.is_some()).then_some(())
            }
            Asked::Count(host, severity) => {
                let event = event(host, severity);
                self.item_counts.on_baseline(event.as_bytes(), reply)
            }
            Asked::Rows(_) => None,
        }
    }

    fn on_outcome(&mut self, report: &Report, reply: Option<&Reply>) -> Judged {
        let number = self.number(report);
        let (key, item) = (host_name(report.host), event(report.host, report.severity));
        let server = self.servers.entry(report.host).or_default();
        let Some(answer) = answer::<Answer>(reply).filter(|a| a.event == item) else {
            if !not_admitted(reply) {
                server.unsure = true;
                self.item_counts.add_unsure(key.as_bytes(), item.as_bytes());
                self.counts.add_unsure(item);
            }
            return Judged::refused(handled(reply));
        };
        if !server.unsure {
            let load = report.cpu as f64;
            let average = Average::after(server.average, number, load, TIME_CONSTANT);
            self.averages.add(close(answer.ema, average.ema));
            server.average = Some(average);
        }
        let (rows, sum, moment) = server.rows.entry(report.severity).or_default();
        *rows += 1;
        *sum += report.cpu;
        *moment += report.cpu * report.number;
        self.judge_ranks(report, &answer);
        self.item_counts.add(key.as_bytes(), item.as_bytes());
        self.counts.add(item, answer.count);
        Judged::accepted()
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        // servers that sent something and whose requests all have a known outcome
        let sure = self.servers.iter();
        let sure = sure.filter(|(_, s)| !s.unsure && !s.rows.is_empty());
        let each = sure.flat_map(|(host, _)| {
            let rows = (Asked::Rows(*host), ask_rows(*host, self.first_report));
            ask_both(*host).chain([rows])
        });
        each.collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Average(host) => {
                let known = self.servers.get(&host)?.average?;
                let said: Average = answer(reply)?;
                Some(Facts::one(self.averages_read.add(said.is(known))))
            }
            Asked::Count(host, severity) => {
                let (key, item) = (host_name(host), event(host, severity));
                let (key, item) = (key.as_bytes(), item.as_bytes());
                self.item_counts.on_check(key, item, reply)
            }
            Asked::Rows(host) => {
                let said: Stored = answer(reply)?;
                let server = self.servers.get(&host)?;
                let known = server.rows.iter();
                let known =
                    known.map(|(name, (n, sum, moment))| (name.to_string(), *n, *sum, *moment));
                let right = self.rows_read.add(known.eq(said.rows));
                let count: i64 = server.rows.values().map(|(n, ..)| n).sum();
                Some(Facts {
                    right: if right { count as u64 } else { 0 },
                    wrong: u64::from(!right),
                })
            }
        }
    }

    fn rows(&self) -> Rows {
        self.counts.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        let unsure = self.servers.values().filter(|s| s.unsure).count() as u64;
        let services = [
            ("sql", "rows of each server, by severity, sum and moment"),
            ("count", "reports of each severity of each server"),
            ("ema", "averages of each server, with time and samples"),
        ];
        services
            .map(|(service, what)| checks.of(service, what, unsure))
            .into()
    }

    fn findings(&self) -> Vec<Finding> {
        vec![
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
        ]
    }
}
