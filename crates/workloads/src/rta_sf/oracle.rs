//! What the services must answer and keep: sudden rates, counts, what was learned, the last verdict.

use super::generator::Sent;
use super::mails::{Mail, SENDERS};
use super::messages::{Answer, Learned, Query, Remembered, Report, Spikes, Told};
use super::{recipient_name, sender_name};
use crate::inputs::Inputs;
use crate::load::Oracle;
use crate::oracles::count::ItemCounts;
use crate::oracles::models::{Detection, Detector};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{
    Sequences, answer, first_answer, handled, key_of_shard, not_admitted, record,
};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_model::Slot;
use e3_wire::entry::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Shards of the application's services, as its manifest has them.
pub(super) const SHARDS: u16 = 12;
/// How the manifest has `spike`; the serial number of a mail is its time.
pub(super) const DETECTION: Detection = Detection {
    z: 5.0,
    prior_sd: 1.5,
    interval_s: 1.0,
};
/// Mails of a sender, at its usual rate and all answered, after which a burst should be noticed.
const QUIET: u32 = 4;
/// Mails after a burst that may be noticed too: the rate falls as suddenly as it rose.
const AFTER: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
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
pub(super) type Verdict = (String, u64);

/// What is known of a sender.
pub(super) struct Sender {
    pub(super) last: Option<Verdict>,
    spikes: Detector,
    /// Mails in a row that were answered, and are in no burst.
    quiet: u32,
    /// Mails since a burst.
    since_burst: Option<u32>,
}

impl Default for Sender {
    fn default() -> Sender {
        Sender {
            last: None,
            spikes: Detector::new(DETECTION),
            quiet: 0,
            since_burst: None,
        }
    }
}

/// What is known of the application.
#[derive(Default)]
pub(crate) struct Filter {
    run: String,
    pub(super) senders: BTreeMap<u32, Sender>,
    /// Mails of each sender, and those that the recipients of a slot labelled.
    mails: Sequences<u32>,
    item_counts: ItemCounts,
    told: Sequences<u16>,
    /// Spam that was found, and what was found that is spam.
    recall: Score,
    precision: Score,
    bursts: Score,
    alarms: Score,
    remembered: Score,
    read_back: Score,
    /// By shard of bayes: what was learned before the load, and in it; shards that are not sure.
    learned: BTreeMap<u16, (Told, Told)>,
    unsure_shards: BTreeSet<u16>,
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

impl Filter {
    pub(super) fn new(inputs: &Inputs) -> Filter {
        Filter {
            run: inputs.run_name(),
            ..Filter::default()
        }
    }

    fn query(&self, sender: u32, op: &str, at: &str) -> Call {
        let name = sender_name(&self.run, sender);
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

    fn ask_count(&self, sender: u32) -> (Asked, Call) {
        (Asked::Count(sender), self.query(sender, "get", "count"))
    }

    /// Judges the alarm about a sender's rate.
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

    /// Judges the verdict on a mail.
    fn judge_verdict(&mut self, mail: &Mail, verdict: &str) {
        let found = verdict == "spam";
        if mail.spam {
            self.recall.add(found);
        }
        if found {
            self.precision.add(mail.spam);
        }
    }
}

impl Oracle for Filter {
    const NAME: &'static str = "rta-sf";
    type Sent = Sent;
    type Asked = Asked;

    fn probe(&self) -> Call {
        self.query(0, "get", "kvs")
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<Remembered>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        let counts = (0..SENDERS).map(|sender| self.ask_count(sender));
        (0..SHARDS).map(ask_learned).chain(counts).collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        match asked {
            Asked::Learned(shard) => {
                let told = answer::<Learned>(reply)?.told();
                self.learned.insert(shard, (told, [0, 0]));
            }
            Asked::Count(sender) => {
                let name = sender_name(&self.run, sender);
                self.item_counts.on_baseline(name.as_bytes(), reply)?;
            }
            Asked::Spikes(_) | Asked::Last(_) => return None,
        }
        Some(())
    }

    fn on_outcome(&mut self, sent: &Sent, reply: Option<&Reply>) -> Judged {
        let mail = &sent.mail;
        let name = sender_name(&self.run, mail.sender);
        let slot = Slot::of(recipient_name(mail.recipient).as_bytes());
        let shard = slot.shard(SHARDS).0;
        let sender = self.senders.entry(mail.sender).or_default();
        let whole = |a: &Answer| a.sender == name && a.learned.is_some() == mail.told;
        let Some(answer) = answer::<Answer>(reply).filter(whole) else {
            if !not_admitted(reply) {
                // whether it counted is not known
                (sender.last, sender.quiet) = (None, 0);
                self.item_counts
                    .add_unsure(name.as_bytes(), name.as_bytes());
                self.mails.add_unsure(mail.sender);
                if mail.told {
                    self.told.add_unsure(slot.0);
                }
                self.unsure_shards.insert(shard);
            }
            return Judged::refused(handled(reply));
        };
        self.item_counts.add(name.as_bytes(), name.as_bytes());
        sender.spikes.add(sent.serial, mail.rate);
        let now = (answer.verdict.clone(), answer.count);
        if let Some(before) = sender.last.replace(now) {
            let said = answer.last_verdict.zip(answer.last_count);
            self.remembered.add(said == Some(before));
        }
        self.judge_verdict(mail, &answer.verdict);
        self.mails.add(mail.sender, answer.count);
        if let Some(learned) = answer.learned {
            self.told.add(slot.0, learned);
            let (_, since) = self.learned.entry(shard).or_default();
            since[usize::from(mail.spam)] += 1;
        }
        self.judge_rate(mail, answer.spike == 1);
        Judged::accepted()
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let of_senders = self.mails.sure().flat_map(|(&sender, _)| {
            let spikes = self.query(sender, "spikes", "spike");
            let last = self.query(sender, "get", "kvs");
            [
                (Asked::Spikes(sender), spikes),
                self.ask_count(sender),
                (Asked::Last(sender), last),
            ]
        });
        let shards = (0..SHARDS).filter(|shard| !self.unsure_shards.contains(shard));
        of_senders.chain(shards.map(ask_learned)).collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        let right = match asked {
            Asked::Spikes(sender) => {
                let said: Spikes = answer(reply)?;
                let known = &self.senders.get(&sender)?.spikes.spikes;
                said.times.iter().eq(known)
            }
            Asked::Count(sender) => {
                let name = sender_name(&self.run, sender).into_bytes();
                return self.item_counts.on_check(&name, &name, reply);
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

    fn rows(&self) -> Rows {
        self.mails.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        let unsure = self.mails.unsure_kinds();
        let unsure_shards = self.unsure_shards.len() as u64;
        vec![
            checks.of("spike", "sudden rates of each sender", unsure),
            checks.of("count", "mails of each sender", unsure),
            checks.of(
                "bayes",
                "mails of each class that each shard has learned from",
                unsure_shards,
            ),
            checks.of("kvs", "last verdict and count of each sender", unsure),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let told = self.told.rows();
        let right = told.expected.saturating_sub(told.missing + told.repeated);
        vec![
            Score(right, told.expected).finding(
                "learned once",
                "labelled mails, numbered in each slot without a gap and without a repeat",
            ),
            self.remembered.finding(
                "verdicts remembered",
                "each sender's last verdict, answered with its next mail",
            ),
            self.read_back.finding(
                "verdicts read back",
                "last verdicts of senders, asked for after the load",
            ),
            self.recall.finding(
                "spam found",
                "of the mails that are spam, those with that verdict (recall)",
            ),
            self.precision.finding(
                "spam right",
                "of the mails with that verdict, those that are spam (precision)",
            ),
            self.bursts.finding(
                "bursts found",
                "senders taken over, noticed at the first mail of the burst (recall)",
            ),
            self.alarms.finding(
                "alarms right",
                "sudden rates noticed, in a burst or just after it (precision)",
            ),
        ]
    }
}
