//! The workload of the spam filter (RTA-SF): the rate of a mail's sender is judged, its mails are counted,
//! the mail is classified, and the verdict is stored.
//!
//! A sender sends its next mail when the last one is answered, as a mail client does over one connection.
//! So the number of its mails and the verdict on the last one are known, and compared with each answer. A
//! mail without an answer may or may not have been counted; later answers to its sender are not judged.
//! Senders have new names in each load. Recipients, whose slots learn, are the same in all loads, so what
//! was learned before the load is read first.

pub mod mails;
mod messages;
#[cfg(test)]
mod tests;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::oracles::count::ItemCounts;
use crate::oracles::models::{Detection, Detector};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{
    Sequences, answer, first_answer, handled, key_of_shard, not_admitted, record,
};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::{Slot, Timestamp};
use e3_wire::entry::Reply;
use mails::{Mail, Mails, RECIPIENTS, SENDERS};
use messages::{Answer, Counted, Learned, Message, Query, Remembered, Report, Spikes, Told};
use std::collections::{BTreeMap, BTreeSet};

/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;
/// How the manifest has `spike`; the serial number of a mail is its time.
const DETECTION: Detection = Detection {
    z: 5.0,
    prior_sd: 1.5,
    interval_s: 1.0,
};
/// Mails of a sender, at its usual rate and all answered, after which a burst should be noticed.
const QUIET: u32 = 4;
/// Mails after a burst that may be noticed too: the way back is as sudden.
const AFTER: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Asked {
    Spikes(u32),
    Count(u32),
    Learned(u16),
    Last(u32),
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Spikes(_) => "spike",
            Asked::Count(_) => "count",
            Asked::Learned(_) => "bayes",
            Asked::Last(_) => "kvs",
        }
    }
}

/// A verdict and the number of the mail.
type Verdict = (String, u64);

/// What is known of a sender.
struct Sender {
    serial: i64,
    last: Option<Verdict>,
    mails: u64,
    spikes: Detector,
    /// A mail has no certain outcome.
    unsure: bool,
    /// Mails in a row that were answered, and are in no burst.
    quiet: u32,
    /// Mails since a burst.
    since_burst: Option<u32>,
}

impl Default for Sender {
    fn default() -> Sender {
        Sender {
            serial: 0,
            last: None,
            mails: 0,
            spikes: Detector::new(DETECTION),
            unsure: false,
            quiet: 0,
            since_burst: None,
        }
    }
}

/// The workload.
pub struct RtaSf {
    run: String,
    stream: Mails,
    first_serial: i64,
    senders: BTreeMap<u32, Sender>,
    busy: BTreeSet<u32>,
    in_flight: BTreeMap<u64, Mail>,
    next_mark: u64,
    /// Mails of each sender, and those that the recipients of a slot told apart.
    mails: Sequences<u32>,
    item_counts: ItemCounts,
    told: Sequences<u16>,
    /// Spam that was found, and what was found that is spam.
    recall: Score,
    precision: Score,
    bursts: Score,
    alarms: Score,
    remembered: Score,
    /// By shard of bayes: what was learned before the load, and in it; shards that are not sure.
    learned: BTreeMap<u16, (Told, Told)>,
    unsure_shards: BTreeSet<u16>,
    baseline: Checks<Asked>,
    checks: Option<Checks<Asked>>,
    read_back: Score,
}

fn shard_of(recipient: u32) -> u16 {
    Slot::of(recipient_name(recipient).as_bytes())
        .shard(SHARDS)
        .0
}

fn recipient_name(recipient: u32) -> String {
    format!("recipient{recipient:03}")
}

fn ask_learned(shard: u16) -> (Asked, Call) {
    let (op, at) = ("report", "bayes");
    let call = Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Report { op, at }),
    };
    (Asked::Learned(shard), call)
}

impl RtaSf {
    /// The mails of a seed.
    pub fn new(inputs: &Inputs) -> Result<RtaSf, WorkloadError> {
        let mut load = RtaSf {
            run: inputs.run_name(),
            stream: Mails::new(inputs.seed)?,
            first_serial: inputs.now.since(Timestamp::ZERO).as_millis() as i64,
            senders: BTreeMap::new(),
            busy: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next_mark: 0,
            mails: Sequences::default(),
            item_counts: ItemCounts::default(),
            told: Sequences::default(),
            recall: Score::default(),
            precision: Score::default(),
            bursts: Score::default(),
            alarms: Score::default(),
            remembered: Score::default(),
            learned: BTreeMap::new(),
            unsure_shards: BTreeSet::new(),
            baseline: Checks::default(),
            checks: None,
            read_back: Score::default(),
        };
        let counts = (0..SENDERS).map(|s| (Asked::Count(s), load.query(s, "get", "count")));
        load.baseline = Checks::new((0..SHARDS).map(ask_learned).chain(counts).collect());
        Ok(load)
    }

    fn sender_name(&self, sender: u32) -> String {
        format!("sender{}-{sender:03}", self.run)
    }

    fn query(&self, sender: u32, op: &str, at: &str) -> Call {
        let name = self.sender_name(sender);
        Call {
            tag: 0,
            payload: record(&Query {
                op,
                at,
                sender: &name,
            }),
            key: name.into_bytes(),
        }
    }

    fn checks(&mut self) -> &mut Checks<Asked> {
        if self.checks.is_none() {
            let sure = self
                .senders
                .iter()
                .filter(|(_, s)| !s.unsure && s.mails > 0);
            let of_senders = sure.flat_map(|(sender, _)| {
                [
                    (
                        Asked::Spikes(*sender),
                        self.query(*sender, "spikes", "spike"),
                    ),
                    (Asked::Count(*sender), self.query(*sender, "get", "count")),
                    (Asked::Last(*sender), self.query(*sender, "get", "kvs")),
                ]
            });
            let shards = (0..SHARDS).filter(|shard| !self.unsure_shards.contains(shard));
            let all = of_senders.chain(shards.map(ask_learned)).collect();
            self.checks = Some(Checks::new(all));
        }
        self.checks.get_or_insert_default()
    }

    /// Holds an answer against what is known; None if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        let right = match asked {
            Asked::Spikes(sender) => {
                let said: Spikes = answer(reply)?;
                said.times
                    .iter()
                    .eq(&self.senders.get(&sender)?.spikes.spikes)
            }
            Asked::Count(sender) => {
                let name = self.sender_name(sender).into_bytes();
                let said: Counted = answer(reply)?;
                let Some(known) = self.item_counts.expected(&name, &name) else {
                    return Some(Facts::default());
                };
                known == said.count
            }
            Asked::Learned(shard) => {
                let said = answer::<Learned>(reply)?.told();
                let (before, since) = self.learned.get(&shard).copied().unwrap_or_default();
                said == [before[0] + since[0], before[1] + since[1]]
            }
            Asked::Last(sender) => {
                let said: Remembered = answer(reply)?;
                let last = said.last_verdict.zip(said.last_count);
                let right = said.done && last == self.senders.get(&sender)?.last;
                self.read_back.add(right)
            }
        };
        Some(Facts::one(right))
    }

    /// Judges whether the rate's alarm is right.
    fn judge_rate(&mut self, mail: &Mail, alarm: bool) {
        let sender = self.senders.entry(mail.sender).or_default();
        let settled = sender.quiet >= QUIET;
        match mail.burst {
            0 => {
                sender.quiet += 1;
                sender.since_burst = sender.since_burst.map(|n| n + 1);
            }
            number => {
                if number == 1 && settled {
                    self.bursts.add(alarm);
                }
                sender.quiet = 0;
                sender.since_burst = Some(0);
            }
        }
        if alarm {
            let near = sender.since_burst.is_some_and(|n| n <= AFTER);
            self.alarms.add(near);
        }
    }
}

impl Workload for RtaSf {
    fn name(&self) -> &'static str {
        "rta-sf"
    }

    fn describe(&self) -> String {
        format!("{SENDERS} senders by Zipf's law, in bursts, to {RECIPIENTS} recipients")
    }

    fn probe(&mut self) -> Call {
        self.query(0, "get", "kvs")
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<Remembered>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let taken = match self.baseline.asked(tag) {
            Some(Asked::Learned(shard)) => answer::<Learned>(reply).map(|said| {
                self.learned.insert(shard, (said.told(), [0, 0]));
            }),
            Some(Asked::Count(sender)) => answer::<Counted>(reply).map(|said| {
                let name = self.sender_name(sender);
                self.item_counts.begin(name.as_bytes(), said.count);
            }),
            _ => None,
        };
        self.baseline.take(tag, taken.map(|()| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn next(&mut self) -> Option<Call> {
        let mail = self.stream.next_mail(&self.busy)?;
        let name = self.sender_name(mail.sender);
        let sender = self.senders.entry(mail.sender).or_default();
        sender.serial += 1;
        let told = if mail.spam { "spam" } else { "ham" };
        let payload = record(&Message {
            sender: &name,
            recipient: &recipient_name(mail.recipient),
            serial: self.first_serial + sender.serial,
            rate: mail.rate,
            bytes: mail.bytes,
            text: &mail.text,
            told: mail.told.then_some(told),
        });
        self.busy.insert(mail.sender);
        self.next_mark += 1;
        self.in_flight.insert(self.next_mark, mail);
        Some(Call {
            tag: self.next_mark,
            key: name.into_bytes(),
            payload,
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let Some(mail) = self.in_flight.remove(&mark) else {
            return Judged::refused(handled(reply));
        };
        self.busy.remove(&mail.sender);
        let name = self.sender_name(mail.sender);
        let first_serial = self.first_serial;
        let sender = self.senders.entry(mail.sender).or_default();
        let answer = answer::<Answer>(reply);
        let whole = |a: &Answer| {
            let told = a.learned.is_some() == mail.told;
            a.sender == name && told
        };
        let Some(answer) = answer.filter(whole) else {
            if !not_admitted(reply) {
                // whether it counted is not known
                (sender.unsure, sender.last, sender.quiet) = (true, None, 0);
                self.item_counts
                    .add_unsure(name.as_bytes(), name.as_bytes());
                self.unsure_shards.insert(shard_of(mail.recipient));
            }
            return Judged::refused(handled(reply));
        };
        sender.mails += 1;
        self.item_counts.add(name.as_bytes(), name.as_bytes());
        sender.spikes.add(first_serial + sender.serial, mail.rate);
        let now = (answer.verdict.clone(), answer.count);
        let before = sender.last.replace(now);
        if let Some(before) = before {
            let said = answer.last_verdict.zip(answer.last_count);
            self.remembered.add(said == Some(before));
        }
        let found = answer.verdict == "spam";
        if mail.spam {
            self.recall.add(found);
        }
        if found {
            self.precision.add(mail.spam);
        }
        self.mails.add(mail.sender, answer.count);
        if let Some(learned) = answer.learned {
            let slot = Slot::of(recipient_name(mail.recipient).as_bytes());
            self.told.add(slot.0, learned);
            let (_, since) = self.learned.entry(slot.shard(SHARDS).0).or_default();
            since[usize::from(mail.spam)] += 1;
        }
        self.judge_rate(&mail, answer.spike == 1);
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
        let unsure = self.senders.values().filter(|s| s.unsure).count() as u64;
        let unsure_shards = self.unsure_shards.len() as u64;
        let services = [
            ("spike", "sudden rates of each sender", unsure),
            ("count", "mails of each sender", unsure),
            (
                "bayes",
                "mails of each class that each shard has learned from",
                unsure_shards,
            ),
            ("kvs", "last verdict and count of each sender", unsure),
        ];
        let of = |(service, what, unsure)| Some(self.checks.as_ref()?.of(service, what, unsure));
        let told = self.told.rows();
        let right = told.expected.saturating_sub(told.missing + told.repeated);
        let learned = Score(right, told.expected);
        let findings = [
            (
                learned,
                "learned once",
                "mails told apart, numbered in each slot without a gap and without a repeat",
            ),
            (
                self.remembered,
                "verdicts remembered",
                "each sender's last verdict, told with its next mail",
            ),
            (
                self.read_back,
                "verdicts read back",
                "last verdicts of senders, asked for after the load",
            ),
            (
                self.recall,
                "spam found",
                "of the mails that are spam, those with that verdict (recall)",
            ),
            (
                self.precision,
                "spam rightly so",
                "of the mails with that verdict, those that are spam (precision)",
            ),
            (
                self.bursts,
                "bursts found",
                "senders taken over, noticed at the first mail of the burst (recall)",
            ),
            (
                self.alarms,
                "alarms right",
                "sudden rates noticed, in a burst or on the way back (precision)",
            ),
        ];
        Verified {
            rows: Rows {
                checks_failed: self.checks.as_ref().map_or(0, Checks::unanswered),
                ..self.mails.rows()
            },
            checks: services.into_iter().filter_map(of).collect(),
            findings: findings
                .map(|(score, what, how)| score.finding(what, how))
                .to_vec(),
        }
    }
}
