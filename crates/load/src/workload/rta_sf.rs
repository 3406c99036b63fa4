//! The workload of the spam filter (RTA-SF): the rate of a mail's sender is judged, its mails are
//! counted, the mail is classified, and the verdict remembered.
//!
//! A sender sends its next mail when the last one is answered, as a mail client does over one
//! connection. So what the application says of its past is known: the number of its mails, which is
//! the ledger here, and the verdict on the last one. A mail without an answer may have left traces or
//! not; then what comes next is not judged.

#[cfg(test)]
mod tests;

use super::mails::{Mail, Mails, RECIPIENTS, SENDERS};
use super::questions::{Questions, Sequences, answer, first_answer, handled, record};
use super::score::Score;
use super::{Call, Check, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::Rows;
use e3_model::{Nanos, Slot};
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Senders that are asked about at the end.
const READ_BACK: u32 = 200;
/// Mails of a sender, at its usual rate and all answered, after which a burst should be noticed.
const QUIET: u32 = 4;
/// Mails after a burst that may be noticed too: the way back is as sudden.
const AFTER: u32 = 3;

#[derive(Serialize)]
struct Message<'a> {
    sender: &'a str,
    recipient: &'a str,
    serial: i64,
    rate: f64,
    bytes: u32,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<&'a str>,
}

#[derive(Serialize)]
struct Question<'a> {
    op: &'a str,
    at: &'a str,
    sender: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    sender: String,
    spike: u8,
    count: u64,
    verdict: String,
    learned: Option<u64>,
    last_verdict: Option<String>,
    last_count: Option<u64>,
}

#[derive(Deserialize)]
struct Remembered {
    done: bool,
    last_verdict: Option<String>,
    last_count: Option<u64>,
}

/// A verdict and the number of the mail.
type Verdict = (String, u64);

/// What is known of a sender.
#[derive(Default)]
struct Sender {
    serial: i64,
    last: Option<Verdict>,
    /// Mails in a row that were answered, and are in no burst.
    quiet: u32,
    /// Mails since a burst.
    since_burst: Option<u32>,
}

/// The workload.
pub struct RtaSf {
    stream: Mails,
    first_serial: i64,
    senders: BTreeMap<u32, Sender>,
    busy: BTreeSet<u32>,
    under_way: BTreeMap<u64, Mail>,
    next_mark: u64,
    /// Mails of each sender, and those that the recipients of a slot told apart.
    mails: Sequences<u32>,
    told: Sequences<u16>,
    /// Spam that was found, and what was found that is spam.
    recall: Score,
    precision: Score,
    bursts: Score,
    alarms: Score,
    remembered: Score,
    questions: Option<Questions>,
    read_back: Score,
}

fn sender_name(sender: u32) -> String {
    format!("sender{sender:03}")
}

fn recipient_name(recipient: u32) -> String {
    format!("recipient{recipient:03}")
}

fn question(sender: u32) -> Call {
    let name = sender_name(sender);
    Call {
        tag: 0,
        payload: record(&Question {
            op: "get",
            at: "kvs",
            sender: &name,
        }),
        key: name.into_bytes(),
    }
}

impl RtaSf {
    /// The mails of a seed.
    pub fn new(inputs: &Inputs) -> Result<RtaSf, LoadError> {
        Ok(RtaSf {
            stream: Mails::new(inputs.seed)?,
            // fewer mails of one sender than milliseconds: a later load goes on with greater numbers
            first_serial: (inputs.now.0 / 1_000_000) as i64,
            senders: BTreeMap::new(),
            busy: BTreeSet::new(),
            under_way: BTreeMap::new(),
            next_mark: 0,
            mails: Sequences::default(),
            told: Sequences::default(),
            recall: Score::default(),
            precision: Score::default(),
            bursts: Score::default(),
            alarms: Score::default(),
            remembered: Score::default(),
            questions: None,
            read_back: Score::default(),
        })
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

    /// Senders whose last verdict is known.
    fn known(&self) -> impl Iterator<Item = (u32, &Verdict)> {
        let known = |(sender, s): (&u32, &'_ Sender)| s.last.as_ref().map(|_| *sender);
        let senders = self.senders.iter().filter_map(known);
        senders.filter_map(|s| Some((s, self.senders[&s].last.as_ref()?)))
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
        question(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        first_answer::<Remembered>(self.name(), reply).map(drop)
    }

    fn next(&mut self) -> Option<Call> {
        let mail = self.stream.next_mail(&self.busy)?;
        let name = sender_name(mail.sender);
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
        self.under_way.insert(self.next_mark, mail);
        Some(Call {
            tag: self.next_mark,
            key: name.into_bytes(),
            payload,
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let Some(mail) = self.under_way.remove(&mark) else {
            return Judged::refused(handled(reply));
        };
        self.busy.remove(&mail.sender);
        let sender = self.senders.entry(mail.sender).or_default();
        let answer = answer::<Answer>(reply);
        let whole = |a: &Answer| {
            let told = a.learned.is_some() == mail.told;
            a.sender == sender_name(mail.sender) && told
        };
        let Some(answer) = answer.filter(whole) else {
            // whether it counted is not known
            sender.last = None;
            sender.quiet = 0;
            return Judged::refused(handled(reply));
        };
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
        }
        self.judge_rate(&mail, answer.spike == 1);
        Judged::accepted()
    }

    fn next_check(&mut self, _: Nanos) -> Check {
        if self.questions.is_none() {
            let known = self.known().map(|(sender, _)| sender);
            let calls = known.take(READ_BACK as usize).map(question).collect();
            self.questions = Some(Questions::new(calls));
        }
        self.questions
            .as_mut()
            .map_or(Check::Finished, Questions::next)
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let found = answer::<Remembered>(reply);
        let expected = self.known().nth(tag as usize).map(|(_, last)| last.clone());
        if let Some(questions) = &mut self.questions {
            questions.on_answer(tag, found.is_some());
        }
        if let Some(found) = found {
            let last = found.last_verdict.zip(found.last_count);
            self.read_back.add(found.done && last == expected);
        }
    }

    fn checked(&self) -> f64 {
        self.questions.as_ref().map_or(0.0, Questions::progress)
    }

    fn verify(&self) -> Verified {
        let failed = self.questions.as_ref().map_or(0, Questions::failed);
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
                checks_failed: failed,
                ..self.mails.rows()
            },
            spikes: None,
            findings: findings
                .map(|(score, what, how)| score.finding(what, how))
                .to_vec(),
        }
    }
}
