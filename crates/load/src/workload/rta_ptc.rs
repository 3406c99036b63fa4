//! The workload of Twitter analytics (RTA-PTC): messages are classified, their tags counted and
//! ranked.
//!
//! A tag's count is the ledger of its own: the replies to the messages of one tag must carry counts
//! that follow each other without a gap and without a repeat, whatever was lost or sent twice. At the
//! end the ranking is read from every shard and held against the exact counts.

use super::questions::{Questions, Sequences, answer, first_answer, handled, key_of_shard, record};
use super::tweets::{TAGS, Tweet, Tweets, tag_name, topic_name, topic_of};
use super::{Call, Check, Finding, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::Rows;
use crate::random::Random;
use e3_model::Nanos;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tags that are compared at the end.
const TOP: usize = 20;
/// Who writes: routing keys of the messages.
const AUTHORS: u64 = 5000;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;

#[derive(Serialize)]
struct Message<'a> {
    author: &'a str,
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

/// The workload.
pub struct RtaPtc {
    stream: Tweets,
    authors: Random,
    under_way: BTreeMap<u64, u32>,
    next_mark: u64,
    counts: Sequences<u32>,
    classified: u64,
    classified_right: u64,
    questions: Questions,
    ranked: BTreeMap<String, u64>,
}

impl RtaPtc {
    /// The messages of a seed.
    pub fn new(inputs: &Inputs) -> RtaPtc {
        RtaPtc {
            stream: Tweets::new(inputs.seed),
            authors: Random::new(inputs.seed),
            under_way: BTreeMap::new(),
            next_mark: 0,
            counts: Sequences::default(),
            classified: 0,
            classified_right: 0,
            questions: Questions::new((0..SHARDS).map(question).collect()),
            ranked: BTreeMap::new(),
        }
    }

    /// The best tags by what the replies said, those of earlier loads left out.
    fn best(&self) -> Vec<(String, u64)> {
        let counted = self.counts.highest();
        let mut all: Vec<(String, u64)> = counted.map(|(tag, n)| (tag_name(*tag), n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(TOP);
        all
    }
}

fn question(shard: u16) -> Call {
    Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Question {
            op: "top",
            at: "topranker",
            k: TOP,
        }),
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
        question(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        first_answer::<Ranking>(self.name(), reply).map(drop)
    }

    fn next(&mut self) -> Option<Call> {
        let Tweet { tag, features } = self.stream.next_tweet();
        let name = tag_name(tag);
        let author = format!("a{:04}", self.authors.below(AUTHORS));
        self.next_mark += 1;
        self.under_way.insert(self.next_mark, tag);
        Some(Call {
            tag: self.next_mark,
            key: author.clone().into_bytes(),
            payload: record(&Message {
                author: &author,
                tag: &name,
                features: &features,
                text: "what people say to each other in so many characters",
            }),
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let sent = self.under_way.remove(&mark);
        let (Some(tag), Some(answer)) = (sent, answer::<Answer>(reply)) else {
            return Judged::refused(handled(reply));
        };
        if answer.tag != tag_name(tag) {
            return Judged::refused(true);
        }
        self.classified += 1;
        self.classified_right += u64::from(answer.class == topic_name(topic_of(tag)));
        self.counts.add(tag, answer.count);
        Judged::accepted()
    }

    fn next_check(&mut self, _: Nanos) -> Check {
        self.questions.next()
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let ranking = answer::<Ranking>(reply);
        self.questions.on_answer(tag, ranking.is_some());
        if let Some(r) = ranking {
            let pairs = r.top.into_iter().zip(r.top_scores);
            self.ranked.extend(pairs.map(|(tag, n)| (tag, n as u64)));
        }
    }

    fn checked(&self) -> f64 {
        self.questions.progress()
    }

    fn verify(&self) -> Verified {
        let best = self.best();
        let right = best
            .iter()
            .filter(|(tag, n)| self.ranked.get(tag) == Some(n));
        Verified {
            rows: Rows {
                checks_failed: self.questions.failed(),
                ..self.counts.rows()
            },
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
