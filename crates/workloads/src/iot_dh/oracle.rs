//! What the services must answer and keep: numbers, classes, the latest report, rows, counts.

use super::Sensor;
use super::generator::Sent;
use super::messages::{self, Kept, Latest, Totals};
use super::nearest::Nearest;
use super::sensors::{KINDS, SITES, topic_name};
use crate::load::Oracle;
use crate::oracles::count::ItemCounts;
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{Sequences, answer, key_of_shard, not_admitted};
use crate::readback::score::Score;
use crate::tokens::{TokenKey, is_for_the_token, is_nothing};
use e3_loadgen::ledger::{Meaning, Rows};
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_model::Slot;
use e3_wire::entry::{Outcome, Reply};
use std::rc::Rc;

/// Shards of the application's services, as its manifest has them.
pub(super) const SHARDS: u16 = 12;
/// What the application classifies by, and by how many of it.
pub(super) const POINTS: &str = include_str!("../../../../data/iot-dh-points.csv");
pub(super) const K: usize = 5;

/// Query about the state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Latest(u32),
    Totals(u32),
    Count(usize),
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Latest(_) => "kvs",
            Asked::Totals(_) => "sql",
            Asked::Count(_) => "count",
        }
    }
}

/// What the application has accepted of a sensor.
#[derive(Clone, Default)]
struct Accepted {
    rows: u64,
    sum: f64,
    latest: Option<(i64, f64, String)>,
}

/// What is known of the application.
pub(crate) struct Hub {
    sensors: Rc<[Sensor]>,
    accepted: Vec<Accepted>,
    token_key: TokenKey,
    expiry: i64,
    nearest: Nearest,
    rows: Sequences<u32>,
    counts: Sequences<usize>,
    item_counts: ItemCounts,
    classes: Score,
    states: Score,
    latest: Score,
    rows_right: u64,
    topics: Score,
}

impl Hub {
    pub(super) fn new(sensors: Rc<[Sensor]>, token_key: TokenKey, expiry: i64) -> Hub {
        let mut rows = Sequences::default();
        for (sensor, _) in (0..).zip(&*sensors) {
            rows.begin_after(sensor, 0);
        }
        Hub {
            accepted: vec![Accepted::default(); sensors.len()],
            sensors,
            token_key,
            expiry,
            nearest: Nearest::new(POINTS, K),
            rows,
            counts: Sequences::default(),
            item_counts: ItemCounts::default(),
            classes: Score::default(),
            states: Score::default(),
            latest: Score::default(),
            rows_right: 0,
            topics: Score::default(),
        }
    }

    fn query(&self, asked: Asked) -> (Asked, Call) {
        let sensor = |number: u32| &self.sensors[number as usize];
        let call = match asked {
            Asked::Totals(number) => messages::totals(&sensor(number).user, &sensor(number).token),
            Asked::Latest(number) => messages::latest(&sensor(number).user, &sensor(number).token),
            Asked::Count(topic) => {
                // the operator asks, under a name whose requests reach the shard that counts the topic
                let topic = topic_name(topic);
                let shard = Slot::of(topic.as_bytes()).shard(SHARDS);
                let user = key_of_shard(shard.0, SHARDS);
                let user = String::from_utf8_lossy(&user);
                let token = self.token_key.mint(&user, self.expiry);
                messages::count(&user, &token, &topic)
            }
        };
        (asked, call)
    }

    /// Compares the rows of a sensor with its reports.
    fn on_totals(&mut self, number: u32, totals: &Totals) -> Option<Facts> {
        let accepted = &self.accepted[number as usize];
        let (rows, sum, last) = totals.rows.first().copied()?;
        // the order of additions may differ
        let near = sum.is_some_and(|s| (s - accepted.sum).abs() <= 1e-9 * accepted.sum.abs());
        let time = accepted.latest.as_ref().map(|l| l.0);
        let right = rows == accepted.rows && near && last == time;
        let rows = if right { rows } else { 0 };
        self.rows_right += rows;
        Some(Facts {
            right: rows,
            wrong: u64::from(!right),
        })
    }
}

impl Oracle for Hub {
    const NAME: &'static str = "iot-dh";
    type Sent = Sent;
    type Asked = Asked;

    fn probe(&self) -> Call {
        self.query(Asked::Totals(0)).1
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        let totals: Option<Totals> = answer(Some(reply));
        // no table before the first row
        if totals.is_some() || is_nothing(reply) {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&reply.payload).into_owned())
        }
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        let topics = 0..SITES * KINDS.len();
        topics
            .map(|topic| self.query(Asked::Count(topic)))
            .collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        let Asked::Count(topic) = asked else {
            return None;
        };
        self.item_counts
            .on_baseline(topic_name(topic).as_bytes(), reply)
    }

    fn on_outcome(&mut self, sent: &Sent, reply: Option<&Reply>) -> Judged {
        let topic = self.sensors[sent.number as usize].topic;
        let name = topic_name(topic).into_bytes();
        let Some(done) = reply.filter(|r| r.outcome == Outcome::Done) else {
            if !not_admitted(reply) {
                self.item_counts.add_unsure(&name, &name);
                self.rows.add_unsure(sent.number);
                self.counts.add_unsure(topic);
            }
            return Judged::refused(false);
        };
        let Some(kept) = answer::<Kept>(Some(done)) else {
            let (meaning, expected) = match is_for_the_token(done) {
                Some(true) => (Meaning::Unauthorized, sent.bad_token),
                Some(false) => (Meaning::RateLimited, true),
                None => (Meaning::Refused, false),
            };
            return Judged {
                meaning: Some(meaning),
                expected,
            };
        };
        let report = &sent.report;
        self.rows.add(sent.number, kept.row);
        self.counts.add(topic, kept.count);
        self.item_counts.add(&name, &name);
        self.classes
            .add(kept.class == self.nearest.class(&report.features));
        self.states.add(kept.class == report.state.name());
        let accepted = &mut self.accepted[sent.number as usize];
        accepted.rows += 1;
        accepted.sum += report.value;
        accepted.latest = Some((report.time_s, report.value, kept.class));
        Judged {
            expected: !sent.bad_token,
            ..Judged::accepted()
        }
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let sensors = self.rows.sure().map(|(n, _)| *n);
        let sensors = sensors.flat_map(|n| [Asked::Latest(n), Asked::Totals(n)]);
        let topics = self.counts.sure().map(|(topic, _)| Asked::Count(*topic));
        sensors
            .chain(topics)
            .map(|asked| self.query(asked))
            .collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Latest(number) => {
                let latest: Latest = answer(reply)?;
                let kept = latest
                    .last_time
                    .zip(latest.last_value)
                    .zip(latest.last_class)
                    .map(|((time, value), class)| (time, value, class));
                let right = latest.done && kept == self.accepted[number as usize].latest;
                Some(Facts::one(self.latest.add(right)))
            }
            Asked::Totals(number) => self.on_totals(number, &answer(reply)?),
            Asked::Count(topic) => {
                let name = topic_name(topic).into_bytes();
                let facts = self.item_counts.on_check(&name, &name, reply)?;
                self.topics.add_facts(facts);
                Some(facts)
            }
        }
    }

    fn rows(&self) -> Rows {
        let (rows, counts) = (self.rows.rows(), self.counts.rows());
        Rows {
            missing: rows.missing + counts.missing,
            repeated: rows.repeated + counts.repeated,
            ..rows
        }
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        let unsure = self.rows.unsure_kinds();
        let unsure_topics = self.counts.unsure_kinds();
        let rows = "rows of each sensor, by number, sum and time";
        vec![
            ServiceCheck::unreadable(
                "apigw",
                "its permits refill within 2 s and have no read operation",
            ),
            checks.of("count", "reports on each topic", unsure_topics),
            checks.of("kvs", "the latest report of each sensor", unsure),
            checks.of("sql", rows, unsure),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let sure = self.rows.sure();
        let rows = sure.map(|(n, _)| self.accepted[*n as usize].rows).sum();
        vec![
            Score(self.rows_right, rows).finding(
                "rows stored",
                "rows of sensors whose history has all that was accepted, by number, sum and time",
            ),
            self.latest.finding(
                "latest values",
                "sensors whose stored latest report is the last accepted one",
            ),
            self.topics.finding(
                "topics counted",
                "topics whose count is the number of their reports",
            ),
            self.classes.finding(
                "classified as the points say",
                "reports with the class that their nearest training points have",
            ),
            self.states.finding(
                "states recognised",
                "reports with the class of the state that they came from; the states overlap",
            ),
        ]
    }
}
