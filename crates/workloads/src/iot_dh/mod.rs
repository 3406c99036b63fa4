//! The workload of the IoT data hub (IOT-DH): reports of a fleet of sensors are authenticated, counted
//! by topic, classified and stored: the latest of each sensor, and all of them.
//!
//! The hub numbers the reports of each sensor and the reports on each topic. Both sequences must have no
//! gap and no duplicate, whatever was lost or sent twice. At the end the latest report, the rows and the
//! counts are read back. A class must be the one that the training points give. A few reports carry a bad
//! token and must be refused; they are sent again with a good one. Sensors have new names in each load.
//! Topics are the same in all loads, so their counts before the load are read first.

mod messages;
mod nearest;
pub mod sensors;
#[cfg(test)]
mod tests;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::limits::SENSORS_MAX;
use crate::oracles::count::ItemCounts;
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{Sequences, answer, key_of_shard, not_admitted};
use crate::readback::score::Score;
use crate::tokens::{Token, TokenKey, is_for_the_token, is_nothing};
use e3_loadgen::ledger::{Meaning, Rows};
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Check, Finding, Judged, Verified, Workload};
use e3_model::{Slot, Timestamp};
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use messages::{Counted, Kept, Latest, Totals};
use nearest::Nearest;
use sensors::{Fleet, KINDS, Report, SITES, topic_name};
use std::collections::{BTreeSet, VecDeque};

/// Sensors, if rate and duration allow.
const SENSORS: u32 = 1000;
/// Reports that a sensor should send in a run, by having fewer sensors.
const REPORTS_MIN: f64 = 10.0;
/// Reports per second of a sensor; above it, there are more sensors. The busiest send ten times as
/// many, and the gate lets 50 pass.
const RATE_PER_SENSOR_MAX: f64 = 2.0;
/// One report in so many carries a bad token.
const BAD_TOKEN_ONE_IN: u64 = 100;
/// How long tokens are good for.
const TOKEN_LIFE_S: i64 = 7 * 86_400;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;
/// What the application classifies by, and by how many of it.
const POINTS: &str = include_str!("../../../../data/iot-dh-points.csv");
const K: usize = 5;
/// Query about the state.
#[derive(Clone, Copy, Debug)]
enum Asked {
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

/// A sensor, and what the application has accepted of it.
struct Sensor {
    user: String,
    token: Token,
    topic: usize,
    random: Random,
    in_flight: Option<Report>,
    bad_token: bool,
    /// A report had no answer: what is kept cannot be known.
    unsure: bool,
    rows: u64,
    sum: f64,
    latest: Option<(i64, f64, String)>,
}

/// The workload.
pub struct IotDh {
    fleet: Fleet,
    sensors: Vec<Sensor>,
    token_key: TokenKey,
    now_s: i64,
    /// Sensors whose report was refused for its bad token: it is sent again with a good one.
    resend: VecDeque<u32>,
    nearest: Nearest,
    rows: Sequences<u32>,
    counts: Sequences<usize>,
    item_counts: ItemCounts,
    accepted: u64,
    classes_right: u64,
    states_right: u64,
    baseline: Checks<Asked>,
    checks: Option<Checks<Asked>>,
    latest: Score,
    rows_right: u64,
    topics: Score,
}

impl IotDh {
    /// As many sensors as suit rate and duration, unless the inputs say how many.
    pub fn new(inputs: &Inputs, token_key: &[u8]) -> Result<IotDh, WorkloadError> {
        let requests = inputs.rate_rps * inputs.duration.as_secs_f64();
        let fit = (requests / REPORTS_MIN).clamp(1.0, f64::from(SENSORS));
        let fit = fit.max(inputs.rate_rps / RATE_PER_SENSOR_MAX).ceil();
        let fit = fit.min(f64::from(SENSORS_MAX)) as u32;
        let count = inputs.senders.unwrap_or(fit);
        if !(1..=SENSORS_MAX).contains(&count) {
            return Err(WorkloadError::Sensors { sensors: count });
        }
        let token_key = TokenKey::new(token_key);
        let now_s = inputs.now.since(Timestamp::ZERO).as_secs() as i64;
        let fleet = Fleet::new(inputs.seed, count);
        let mut random = Random::new(inputs.seed);
        let run = inputs.run_name();
        let sensor = |n| {
            let user = format!("d{run}-{n:04x}");
            Sensor {
                token: token_key.mint(&user, now_s + TOKEN_LIFE_S),
                user,
                topic: fleet.topic(n),
                random: Random::new(random.next_u64()),
                in_flight: None,
                bad_token: false,
                unsure: false,
                rows: 0,
                sum: 0.0,
                latest: None,
            }
        };
        let sensors = (0..count).map(sensor).collect();
        let mut hub = IotDh {
            fleet,
            sensors,
            token_key,
            now_s,
            resend: VecDeque::new(),
            nearest: Nearest::new(POINTS, K),
            rows: Sequences::default(),
            counts: Sequences::default(),
            item_counts: ItemCounts::default(),
            accepted: 0,
            classes_right: 0,
            states_right: 0,
            baseline: Checks::default(),
            checks: None,
            latest: Score::default(),
            rows_right: 0,
            topics: Score::default(),
        };
        hub.baseline = hub.all((0..SITES * KINDS.len()).map(Asked::Count));
        Ok(hub)
    }

    /// Token that must be refused: forged, or another's.
    fn bad_token(&mut self, number: u32) -> Token {
        let sensor = &mut self.sensors[number as usize];
        if sensor.random.one_in(2) {
            let other = format!("{}x", sensor.user);
            return self.token_key.mint(&other, sensor.token.expiry);
        }
        let mut token = sensor.token.clone();
        token.tag[sensor.random.below(32) as usize] ^= 1 << sensor.random.below(8);
        token
    }

    fn totals(&self, number: u32) -> Call {
        let sensor = &self.sensors[number as usize];
        messages::totals(&sensor.user, &sensor.token)
    }

    fn query(&self, asked: Asked) -> Call {
        match asked {
            Asked::Totals(number) => self.totals(number),
            Asked::Latest(number) => {
                let sensor = &self.sensors[number as usize];
                messages::latest(&sensor.user, &sensor.token)
            }
            Asked::Count(topic) => {
                // the operator asks, under a name whose requests reach the shard that counts the topic
                let topic = topic_name(topic);
                let shard = Slot::of(topic.as_bytes()).shard(SHARDS);
                let user = key_of_shard(shard.0, SHARDS);
                let user = String::from_utf8_lossy(&user);
                let token = self.token_key.mint(&user, self.now_s + TOKEN_LIFE_S);
                messages::count(&user, &token, &topic)
            }
        }
    }

    fn all(&self, asked: impl Iterator<Item = Asked>) -> Checks<Asked> {
        Checks::new(asked.map(|a| (a, self.query(a))).collect())
    }

    fn unsure_topics(&self) -> BTreeSet<usize> {
        let unsure = self.sensors.iter().filter(|s| s.unsure);
        unsure.map(|s| s.topic).collect()
    }

    /// Queries about every sensor and topic that is known to the last report.
    fn checks(&mut self) -> &mut Checks<Asked> {
        if self.checks.is_none() {
            let unsure_topics = self.unsure_topics();
            let sensors = (0..).zip(&self.sensors);
            let sensors = sensors.filter(|(_, s)| !s.unsure && s.rows > 0);
            let sensors = sensors.flat_map(|(n, _)| [Asked::Latest(n), Asked::Totals(n)]);
            let topics = self.counts.highest().map(|(topic, _)| *topic);
            let topics = topics.filter(|topic| !unsure_topics.contains(topic));
            let all = self.all(sensors.chain(topics.map(Asked::Count)));
            self.checks = Some(all);
        }
        self.checks.get_or_insert_default()
    }

    /// Holds an answer against what was accepted; None if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Latest(number) => {
                let sensor = &self.sensors[number as usize];
                let latest: Latest = answer(reply)?;
                let kept = latest
                    .last_time
                    .zip(latest.last_value)
                    .zip(latest.last_class)
                    .map(|((time, value), class)| (time, value, class));
                let right = latest.done && kept == sensor.latest;
                Some(Facts::one(self.latest.add(right)))
            }
            Asked::Totals(number) => {
                let sensor = &self.sensors[number as usize];
                let (rows, sum, last) = answer::<Totals>(reply)?.rows.first().copied()?;
                // the order of additions may differ
                let near = sum.is_some_and(|s| (s - sensor.sum).abs() <= 1e-9 * sensor.sum.abs());
                let time = sensor.latest.as_ref().map(|l| l.0);
                let right = rows == sensor.rows && near && last == time;
                if right {
                    self.rows_right += rows;
                }
                Some(Facts {
                    right: if right { rows } else { 0 },
                    wrong: u64::from(!right),
                })
            }
            Asked::Count(topic) => {
                let counted: Counted = answer(reply)?;
                let name = topic_name(topic).into_bytes();
                let Some(known) = self.item_counts.expected(&name, &name) else {
                    return Some(Facts::default());
                };
                Some(Facts::one(self.topics.add(known == counted.count)))
            }
        }
    }
}

impl Workload for IotDh {
    fn name(&self) -> &'static str {
        "iot-dh"
    }

    fn describe(&self) -> String {
        let (sensors, topics) = (self.sensors.len(), SITES * KINDS.len());
        format!("{sensors} sensors on {topics} topics, periodic reports and episodes of trouble")
    }

    fn probe(&mut self) -> Call {
        self.totals(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        let totals: Option<Totals> = answer(Some(reply));
        // no table before the first row
        if totals.is_some() || is_nothing(reply) {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&reply.payload).into_owned())
        }
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let counted: Option<Counted> = answer(reply);
        if let (Some(Asked::Count(topic)), Some(c)) = (self.baseline.asked(tag), &counted) {
            self.item_counts
                .begin(topic_name(topic).as_bytes(), c.count);
        }
        self.baseline.take(tag, counted.map(|_| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn next(&mut self) -> Option<Call> {
        let (number, bad) = match self.resend.pop_front() {
            Some(number) => (number, false),
            None => {
                let report = self.fleet.next_report()?;
                let number = report.device;
                let sensor = &mut self.sensors[number as usize];
                sensor.in_flight = Some(report);
                (number, sensor.random.one_in(BAD_TOKEN_ONE_IN))
            }
        };
        let token = if bad {
            self.bad_token(number)
        } else {
            self.sensors[number as usize].token.clone()
        };
        let sensor = &mut self.sensors[number as usize];
        sensor.bad_token = bad;
        let report = sensor.in_flight.as_ref()?;
        let topic = topic_name(sensor.topic);
        Some(Call {
            tag: number.into(),
            ..messages::report(&sensor.user, &token, &topic, report)
        })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let number = tag as u32;
        let sensor = &mut self.sensors[tag as usize];
        let done = reply.filter(|r| r.outcome == Outcome::Done);
        let token = done.and_then(is_for_the_token);
        if sensor.bad_token && token == Some(true) {
            self.resend.push_back(number);
            return Judged {
                meaning: Some(Meaning::Unauthorized),
                expected: true,
            };
        }
        self.fleet.on_arrived(number);
        let (Some(reply), Some(report)) = (done, sensor.in_flight.take()) else {
            if !not_admitted(reply) {
                sensor.unsure = true;
                let topic = topic_name(sensor.topic).into_bytes();
                self.item_counts.add_unsure(&topic, &topic);
            }
            return Judged::refused(false);
        };
        let Some(kept) = answer::<Kept>(Some(reply)) else {
            let limited = token == Some(false);
            let meaning = match token {
                Some(true) => Meaning::Unauthorized,
                Some(false) => Meaning::RateLimited,
                None => Meaning::Refused,
            };
            return Judged {
                meaning: Some(meaning),
                expected: limited,
            };
        };
        self.accepted += 1;
        self.rows.add(number, kept.row);
        self.counts.add(sensor.topic, kept.count);
        let topic = topic_name(sensor.topic).into_bytes();
        self.item_counts.add(&topic, &topic);
        self.classes_right += u64::from(kept.class == self.nearest.class(&report.features));
        self.states_right += u64::from(kept.class == report.state.name());
        sensor.rows += 1;
        sensor.sum += report.value;
        sensor.latest = Some((report.time_s, report.value, kept.class));
        Judged {
            expected: !sensor.bad_token,
            ..Judged::accepted()
        }
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
        let (rows, counts) = (self.rows.rows(), self.counts.rows());
        // a sensor's first row has the number 1, a topic's count goes on from earlier loads
        let numbered: u64 = self.rows.highest().map(|(_, n)| n).sum();
        let sure = self.sensors.iter().filter(|s| !s.unsure);
        let unsure = self.sensors.iter().filter(|s| s.unsure).count() as u64;
        let unsure_topics = self.unsure_topics().len() as u64;
        let services = [
            ("count", "reports on each topic", unsure_topics),
            ("kvs", "the latest report of each sensor", unsure),
            (
                "sql",
                "rows of each sensor, by number, sum and time",
                unsure,
            ),
        ];
        let of = |(service, what, unsure)| Some(self.checks.as_ref()?.of(service, what, unsure));
        let gate = ServiceCheck::unreadable(
            "apigw",
            "its permits refill within 2 s and have no read operation",
        );
        let checks = services.into_iter().filter_map(of);
        let finding = |what, right, of, how| Finding {
            what,
            right,
            of,
            how,
        };
        Verified {
            rows: Rows {
                missing: rows.missing + counts.missing,
                repeated: numbered.saturating_sub(rows.found) + counts.repeated,
                checks_failed: self.checks.as_ref().map_or(0, Checks::unanswered),
                ..rows
            },
            checks: [gate].into_iter().chain(checks).collect(),
            findings: vec![
                finding(
                    "rows stored",
                    self.rows_right,
                    sure.map(|s| s.rows).sum(),
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
                finding(
                    "classified as the points say",
                    self.classes_right,
                    self.accepted,
                    "reports with the class that their nearest training points have",
                ),
                finding(
                    "states recognised",
                    self.states_right,
                    self.accepted,
                    "reports with the class of the state that they came from; the states overlap",
                ),
            ],
        }
    }
}
