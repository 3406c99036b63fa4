//! The workload of Twitter analytics (RTA-PTC): messages are classified, their tags counted and
//! ranked.
//!
//! A tag's count is the ledger of its own: the replies to the messages of one tag must carry counts
//! that follow each other without a gap and without a repeat, whatever was lost or sent twice. At the
//! end the ranking is read from every shard and held against the exact counts.

use super::tweets::{TAGS, Tweet, Tweets, tag_name, topic_name, topic_of};
use super::{Call, Check, Finding, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::{Rows, Verdict};
use crate::limits::CHECK_ATTEMPTS_MAX;
use e3_model::{Nanos, Slot};
use e3_wire::entry::{Outcome, Reply};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Tags that are compared at the end.
const TOP: usize = 20;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;

#[derive(Serialize)]
struct Message<'a> {
    tag: &'a str,
    features: &'a [f64],
    text: &'a str,
}

#[derive(Serialize)]
struct Question<'a> {
    op: &'a str,
    at: &'a str,
    k: usize,
}

#[derive(Deserialize)]
struct Answer {
    tag: String,
    class: String,
    count: u64,
}

#[derive(Deserialize)]
struct Ranking {
    top: Vec<String>,
    top_scores: Vec<f64>,
}

/// What the replies to a tag's messages said.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    accepted: u64,
    /// Lowest and highest count.
    span: Option<(u64, u64)>,
}

/// The workload.
pub struct RtaPtc {
    stream: Tweets,
    under_way: BTreeMap<u64, u32>,
    next_mark: u64,
    tags: Vec<Tag>,
    classified: u64,
    classified_right: u64,
    /// Shards to ask, with the attempts so far.
    to_ask: VecDeque<(u16, u32)>,
    asked: BTreeMap<u16, u32>,
    ranked: BTreeMap<String, u64>,
    shards_failed: u64,
}

fn cbor(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // a vector takes whatever is written to it
    let written = ciborium::into_writer(value, &mut bytes);
    debug_assert!(written.is_ok());
    bytes
}

fn done(reply: Option<&Reply>) -> Option<&Reply> {
    reply.filter(|r| r.outcome == Outcome::Done)
}

/// A key whose slot a shard owns.
fn key_of_shard(shard: u16) -> Vec<u8> {
    let keys = (0u32..).map(|n| format!("shard{shard}-{n}").into_bytes());
    let mut owned = keys.filter(|k| Slot::of(k).shard(SHARDS).0 == shard);
    owned.next().expect("every shard owns slots")
}

impl RtaPtc {
    /// The messages of a seed.
    pub fn new(inputs: &Inputs) -> RtaPtc {
        RtaPtc {
            stream: Tweets::new(inputs.seed),
            under_way: BTreeMap::new(),
            next_mark: 0,
            tags: vec![Tag::default(); TAGS as usize],
            classified: 0,
            classified_right: 0,
            to_ask: (0..SHARDS).map(|shard| (shard, 0)).collect(),
            asked: BTreeMap::new(),
            ranked: BTreeMap::new(),
            shards_failed: 0,
        }
    }

    fn question(shard: u16) -> Call {
        Call {
            tag: u64::from(shard),
            key: key_of_shard(shard),
            payload: cbor(&Question {
                op: "top",
                at: "topranker",
                k: TOP,
            }),
        }
    }

    /// The best tags by what the replies said, those of earlier loads left out.
    fn best(&self) -> Vec<(String, u64)> {
        let counted = self.tags.iter().enumerate();
        let mut all: Vec<(String, u64)> = counted
            .filter_map(|(tag, t)| Some((tag_name(tag as u32), t.span?.1)))
            .collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(TOP);
        all
    }
}

impl Workload for RtaPtc {
    fn name(&self) -> &'static str {
        "rta-ptc"
    }

    fn describe(&self) -> String {
        format!("messages with {TAGS} tags by Zipf's law, in bursts")
    }

    fn probe(&mut self) -> Call {
        RtaPtc::question(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        match ciborium::from_reader::<Ranking, _>(&reply.payload[..]) {
            Ok(_) if reply.outcome == Outcome::Done => Ok(()),
            _ => Err(LoadError::FirstRequest {
                app: self.name().into(),
                reason: String::from_utf8_lossy(&reply.payload).into_owned(),
            }),
        }
    }

    fn next(&mut self) -> Option<Call> {
        let Tweet { tag, features } = self.stream.next_tweet();
        let name = tag_name(tag);
        self.next_mark += 1;
        self.under_way.insert(self.next_mark, tag);
        Some(Call {
            tag: self.next_mark,
            key: name.clone().into_bytes(),
            payload: cbor(&Message {
                tag: &name,
                features: &features,
                text: "what people say to each other in so many characters",
            }),
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let sent = self.under_way.remove(&mark);
        let wrong = Judged {
            verdict: done(reply).map(|_| Verdict::Refused),
            expected: done(reply).is_none(),
        };
        let answer = done(reply).filter(|r| r.status == 0);
        let answer = answer.and_then(|r| ciborium::from_reader::<Answer, _>(&r.payload[..]).ok());
        let (Some(tag), Some(answer)) = (sent, answer) else {
            return wrong;
        };
        if answer.tag != tag_name(tag) {
            return wrong;
        }
        self.classified += 1;
        self.classified_right += u64::from(answer.class == topic_name(topic_of(tag)));
        let t = &mut self.tags[tag as usize];
        t.accepted += 1;
        let (low, high) = t.span.unwrap_or((answer.count, answer.count));
        t.span = Some((low.min(answer.count), high.max(answer.count)));
        Judged {
            verdict: Some(Verdict::Accepted),
            expected: true,
        }
    }

    fn next_check(&mut self, _: Nanos) -> Check {
        if let Some((shard, attempts)) = self.to_ask.pop_front() {
            self.asked.insert(shard, attempts + 1);
            return Check::Ask(RtaPtc::question(shard));
        }
        match self.asked.is_empty() {
            true => Check::Finished,
            false => Check::Wait,
        }
    }

    fn on_check(&mut self, _: Nanos, mark: u64, reply: Option<&Reply>) {
        let shard = mark as u16;
        let attempts = self.asked.remove(&shard).unwrap_or(CHECK_ATTEMPTS_MAX);
        let ranking = done(reply).filter(|r| r.status == 0);
        match ranking.and_then(|r| ciborium::from_reader::<Ranking, _>(&r.payload[..]).ok()) {
            Some(r) => {
                let pairs = r.top.into_iter().zip(r.top_scores);
                self.ranked.extend(pairs.map(|(tag, n)| (tag, n as u64)));
            }
            None if attempts < CHECK_ATTEMPTS_MAX => self.to_ask.push_back((shard, attempts)),
            None => self.shards_failed += 1,
        }
    }

    fn checked(&self) -> f64 {
        let open = self.to_ask.len() + self.asked.len();
        1.0 - open as f64 / f64::from(SHARDS)
    }

    fn verify(&self) -> Verified {
        let mut rows = Rows {
            checks_failed: self.shards_failed,
            ..Rows::default()
        };
        for t in &self.tags {
            let counted = t.span.map_or(0, |(low, high)| high - low + 1);
            rows.expected += t.accepted;
            rows.found += counted;
            rows.missing += t.accepted.saturating_sub(counted);
            rows.repeated += counted.saturating_sub(t.accepted);
        }
        let best = self.best();
        let right = best
            .iter()
            .filter(|(tag, n)| self.ranked.get(tag) == Some(n));
        Verified {
            rows,
            spikes: None,
            findings: vec![
                Finding {
                    what: "ranked right",
                    right: right.count() as u64,
                    of: best.len() as u64,
                    how: "best tags with their exact counts, read from every shard",
                },
                Finding {
                    what: "classified right",
                    right: self.classified_right,
                    of: self.classified,
                    how: "messages by their topic; the topics overlap, so some must be wrong",
                },
            ],
        }
    }
}
