//! The workload of the IoT data hub (IOT-DH): reports of a fleet of sensors are authenticated, counted by
//! topic, classified, and kept, the latest of each sensor and all of them.
//!
//! Two ledgers in one: what is stored of a sensor is numbered, and so is what has come on a topic, over all
//! its sensors. Both numbers must go on without a gap and without a repeat, whatever was lost or
//! sent twice. At the end the latest report, the rows and the counts are read back. A class must be what
//! the training points say. A few reports carry a bad token and must be refused; they are then sent
//! once more with a good one.

use super::nearest::Nearest;
use super::questions::{Questions, Sequences, answer, key_of_shard, record};
use super::sensors::{Fleet, KINDS, Report, SITES, topic_name};
use super::thermostats::{Token, TokenKey, is_for_the_token, is_nothing};
use super::{Call, Check, Finding, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::{Rows, Verdict};
use crate::limits::SENSORS_MAX;
use crate::random::Random;
use e3_model::{Nanos, Slot};
use e3_wire::entry::{Outcome, Reply};
use serde::{Deserialize, Serialize, Serializer};
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
/// What the rows of a sensor come to.
const TOTALS: &str = "SELECT count(*), sum(value), max(time) FROM history WHERE user = :user";

#[derive(Serialize)]
struct Message<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    path: &'a str,
    topic: &'a str,
    time: i64,
    value: f64,
    features: &'a [f64],
    #[serde(serialize_with = "bytes")]
    content: &'a [u8],
}

#[derive(Serialize)]
struct Question<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    op: &'a str,
    at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
}

#[derive(Serialize)]
struct Select<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    path: &'a str,
    sql: &'a str,
}

/// Written as bytes, not as an array of numbers.
fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Answer to a report.
#[derive(Deserialize)]
struct Kept {
    row: u64,
    count: u64,
    class: String,
}

#[derive(Deserialize)]
struct Latest {
    done: bool,
    last_time: Option<i64>,
    last_value: Option<f64>,
    last_class: Option<String>,
}

/// Answer to [`TOTALS`].
#[derive(Deserialize)]
struct Totals {
    rows: Vec<(u64, Option<f64>, Option<i64>)>,
}

#[derive(Deserialize)]
struct Counted {
    count: u64,
}

/// Question about the state.
#[derive(Clone, Copy)]
enum Asked {
    Latest(u32),
    Totals(u32),
    Count(usize),
}

/// A sensor, and what the application has accepted of it.
struct Sensor {
    user: String,
    token: Token,
    topic: usize,
    random: Random,
    under_way: Option<Report>,
    bad_token: bool,
    /// A report had no answer: what is kept cannot be known.
    unsure: bool,
    rows: u64,
    sum: f64,
    latest: Option<(i64, f64, String)>,
}

/// The workload.
pub struct IotDh {
    seed: u64,
    fleet: Fleet,
    sensors: Vec<Sensor>,
    token_key: TokenKey,
    now_s: i64,
    /// Whose report was refused for its bad token and is to be sent well.
    again: VecDeque<u32>,
    nearest: Nearest,
    rows: Sequences<u32>,
    counts: Sequences<usize>,
    accepted: u64,
    classes_right: u64,
    states_right: u64,
    asked: Vec<Asked>,
    questions: Option<Questions>,
    latest_right: u64,
    rows_right: u64,
    counts_right: u64,
}

impl IotDh {
    /// As many sensors as suit rate and duration, unless the inputs say how many.
    pub fn new(inputs: &Inputs, token_key: &[u8]) -> Result<IotDh, LoadError> {
        let requests = inputs.rate_rps * inputs.duration.as_secs_f64();
        let fit = (requests / REPORTS_MIN).clamp(1.0, f64::from(SENSORS));
        let fit = fit.max(inputs.rate_rps / RATE_PER_SENSOR_MAX).ceil();
        let fit = fit.min(f64::from(SENSORS_MAX)) as u32;
        let count = inputs.senders.unwrap_or(fit);
        if !(1..=SENSORS_MAX).contains(&count) {
            return Err(LoadError::Sensors { sensors: count });
        }
        let token_key = TokenKey::new(token_key);
        let now_s = (inputs.now.0 / 1_000_000_000) as i64;
        let fleet = Fleet::new(inputs.seed, count);
        let mut random = Random::new(inputs.seed);
        // ids follow from the seed, so that loads with different seeds do not meet
        let first_id = random.next_u64() as u32 & !(SENSORS_MAX - 1);
        let sensor = |n| {
            let user = format!("d{:08x}", first_id | n);
            Sensor {
                token: token_key.mint(&user, now_s + TOKEN_LIFE_S),
                user,
                topic: fleet.topic(n),
                random: Random::new(random.next_u64()),
                under_way: None,
                bad_token: false,
                unsure: false,
                rows: 0,
                sum: 0.0,
                latest: None,
            }
        };
        let sensors = (0..count).map(sensor).collect();
        Ok(IotDh {
            seed: inputs.seed,
            fleet,
            sensors,
            token_key,
            now_s,
            again: VecDeque::new(),
            nearest: Nearest::new(POINTS, K),
            rows: Sequences::default(),
            counts: Sequences::default(),
            accepted: 0,
            classes_right: 0,
            states_right: 0,
            asked: Vec::new(),
            questions: None,
            latest_right: 0,
            rows_right: 0,
            counts_right: 0,
        })
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
        let select = Select {
            user: &sensor.user,
            expiry: sensor.token.expiry,
            token: &sensor.token.tag,
            path: "/history",
            sql: TOTALS,
        };
        call(&sensor.user, record(&select))
    }

    fn question(&self, asked: Asked) -> Call {
        let question = |user: &str, token: &Token, at, topic: Option<&str>| {
            let question = Question {
                user,
                expiry: token.expiry,
                token: &token.tag,
                op: "get",
                at,
                topic,
            };
            call(user, record(&question))
        };
        match asked {
            Asked::Totals(number) => self.totals(number),
            Asked::Latest(number) => {
                let sensor = &self.sensors[number as usize];
                question(&sensor.user, &sensor.token, "kvs", None)
            }
            Asked::Count(topic) => {
                // the operator asks, under a name whose requests reach the shard that counts the topic
                let topic = topic_name(topic);
                let shard = Slot::of(topic.as_bytes()).shard(SHARDS);
                let user = key_of_shard(shard.0, SHARDS);
                let user = String::from_utf8_lossy(&user);
                let token = self.token_key.mint(&user, self.now_s + TOKEN_LIFE_S);
                question(&user, &token, "count", Some(&topic))
            }
        }
    }

    /// Questions about every sensor and topic that is known to the last report.
    fn questions(&mut self) -> Questions {
        let mut unsure_topics = BTreeSet::new();
        for (n, sensor) in (0..).zip(&self.sensors) {
            if sensor.unsure {
                unsure_topics.insert(sensor.topic);
            } else if sensor.rows > 0 {
                self.asked.extend([Asked::Latest(n), Asked::Totals(n)]);
            }
        }
        let topics = self.counts.highest().map(|(topic, _)| *topic);
        let sure = topics.filter(|topic| !unsure_topics.contains(topic));
        self.asked.extend(sure.map(Asked::Count));
        Questions::new(self.asked.iter().map(|a| self.question(*a)).collect())
    }

    /// Holds an answer against what was accepted; false if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> bool {
        match asked {
            Asked::Latest(number) => {
                let sensor = &self.sensors[number as usize];
                let Some(latest) = answer::<Latest>(reply) else {
                    return false;
                };
                let kept = latest
                    .last_time
                    .zip(latest.last_value)
                    .zip(latest.last_class)
                    .map(|((time, value), class)| (time, value, class));
                self.latest_right += u64::from(latest.done && kept == sensor.latest);
                true
            }
            Asked::Totals(number) => {
                let sensor = &self.sensors[number as usize];
                let totals: Option<Totals> = answer(reply);
                let Some((rows, sum, last)) = totals.and_then(|t| t.rows.first().copied()) else {
                    return false;
                };
                // the order of additions may differ
                let near = sum.is_some_and(|s| (s - sensor.sum).abs() <= 1e-9 * sensor.sum.abs());
                let time = sensor.latest.as_ref().map(|l| l.0);
                if rows == sensor.rows && near && last == time {
                    self.rows_right += rows;
                }
                true
            }
            Asked::Count(topic) => {
                let counted: Option<Counted> = answer(reply);
                let highest = self.counts.highest().find(|(t, _)| **t == topic);
                let right = counted.as_ref().map(|c| c.count) == highest.map(|(_, n)| n);
                self.counts_right += u64::from(right);
                counted.is_some()
            }
        }
    }

    fn asked_of(&self, is: impl Fn(&Asked) -> bool) -> u64 {
        self.asked.iter().filter(|a| is(a)).count() as u64
    }
}

fn call(user: &str, payload: Vec<u8>) -> Call {
    Call {
        tag: 0,
        key: user.as_bytes().to_vec(),
        payload,
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

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        let totals: Option<Totals> = answer(Some(reply));
        match totals.and_then(|t| t.rows.first().map(|r| r.0)) {
            Some(0) => Ok(()),
            Some(rows) => Err(LoadError::SeedUsed {
                seed: self.seed,
                rows: rows as i64,
            }),
            // no table before the first row
            None if is_nothing(reply) => Ok(()),
            None => Err(LoadError::FirstRequest {
                app: self.name().into(),
                reason: String::from_utf8_lossy(&reply.payload).into_owned(),
            }),
        }
    }

    fn next(&mut self) -> Option<Call> {
        let (number, bad) = match self.again.pop_front() {
            Some(number) => (number, false),
            None => {
                let report = self.fleet.next_report()?;
                let number = report.device;
                let sensor = &mut self.sensors[number as usize];
                sensor.under_way = Some(report);
                (number, sensor.random.one_in(BAD_TOKEN_ONE_IN))
            }
        };
        let token = match bad {
            true => self.bad_token(number),
            false => self.sensors[number as usize].token.clone(),
        };
        let sensor = &mut self.sensors[number as usize];
        sensor.bad_token = bad;
        let report = sensor.under_way.as_ref()?;
        let message = Message {
            user: &sensor.user,
            expiry: token.expiry,
            token: &token.tag,
            path: "/reports",
            topic: &topic_name(sensor.topic),
            time: report.time_s,
            value: report.value,
            features: &report.features,
            content: &vec![b'.'; report.bytes],
        };
        Some(Call {
            tag: number.into(),
            ..call(&sensor.user, record(&message))
        })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let number = tag as u32;
        let sensor = &mut self.sensors[tag as usize];
        let done = reply.filter(|r| r.outcome == Outcome::Done);
        let token = done.and_then(is_for_the_token);
        if sensor.bad_token && token == Some(true) {
            self.again.push_back(number);
            return Judged {
                verdict: Some(Verdict::Unauthorized),
                expected: true,
            };
        }
        self.fleet.on_arrived(number);
        let (Some(reply), Some(report)) = (done, sensor.under_way.take()) else {
            sensor.unsure = true;
            return Judged::refused(false);
        };
        let Some(kept) = answer::<Kept>(Some(reply)) else {
            let limited = token == Some(false);
            let verdict = match token {
                Some(true) => Verdict::Unauthorized,
                Some(false) => Verdict::RateLimited,
                None => Verdict::Refused,
            };
            return Judged {
                verdict: Some(verdict),
                expected: limited,
            };
        };
        self.accepted += 1;
        self.rows.add(number, kept.row);
        self.counts.add(sensor.topic, kept.count);
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

    fn next_check(&mut self, _: Nanos) -> Check {
        match &mut self.questions {
            Some(questions) => questions.next(),
            None => {
                let questions = self.questions();
                self.questions.insert(questions).next()
            }
        }
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let good = self.read_back(self.asked[tag as usize], reply);
        if let Some(questions) = &mut self.questions {
            questions.on_answer(tag, good);
        }
    }

    fn checked(&self) -> f64 {
        self.questions.as_ref().map_or(0.0, Questions::progress)
    }

    fn verify(&self) -> Verified {
        let (rows, counts) = (self.rows.rows(), self.counts.rows());
        // a sensor's first row has the number 1, a topic's count goes on from earlier loads
        let numbered: u64 = self.rows.highest().map(|(_, n)| n).sum();
        let sure = self.sensors.iter().filter(|s| !s.unsure);
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
                checks_failed: self.questions.as_ref().map_or(0, Questions::failed),
                ..rows
            },
            spikes: None,
            findings: vec![
                finding(
                    "rows stored",
                    self.rows_right,
                    sure.map(|s| s.rows).sum(),
                    "rows of sensors whose history has all that was accepted, by number, sum and time",
                ),
                finding(
                    "latest values",
                    self.latest_right,
                    self.asked_of(|a| matches!(a, Asked::Latest(_))),
                    "sensors whose last report that was accepted is the latest that is kept",
                ),
                finding(
                    "topics counted",
                    self.counts_right,
                    self.asked_of(|a| matches!(a, Asked::Count(_))),
                    "topics whose count is that of their reports",
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

#[cfg(test)]
mod tests;
