//! The workload of Twitter analytics (RTA-PTC): messages are classified, and their tags are counted and
//! ranked.
//!
//! The replies to the messages of one tag carry its counts, which must have no gap and no duplicate,
//! whatever was lost or sent twice. Tags are the same in all loads, so their counts before the load are
//! read first. At the end the counts and the ranking of every shard are compared with the counts before
//! the load and the messages since.

pub mod tweets;

use crate::inputs::Inputs;
use crate::oracles::count::ItemCounts;
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{
    Sequences, answer, first_answer, handled, key_of_shard, not_admitted, record,
};
use e3_loadgen::ledger::Rows;
use e3_loadgen::workload::{Call, Check, Finding, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_random::Random;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tweets::{TAGS, Tweet, Tweets, tag_name, topic_name, topic_of};

/// Tags that are compared at the end.
const TOP: usize = 20;
/// Tags of a ranking that is read: more than a shard can have.
const RANKED_MAX: usize = 1000;
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
struct Query<'a> {
    op: &'a str,
    at: &'a str,
    k: usize,
}

#[derive(Serialize)]
struct CountQuery<'a> {
    op: &'a str,
    at: &'a str,
    tag: &'a str,
}

#[derive(Deserialize)]
struct Counted {
    count: u64,
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

#[derive(Clone, Copy, Debug)]
enum Asked {
    Count(u32),
    Ranking,
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Count(_) => "count",
            Asked::Ranking => "topranker",
        }
    }
}

/// The workload.
pub struct RtaPtc {
    stream: Tweets,
    authors: Random,
    in_flight: BTreeMap<u64, u32>,
    next_mark: u64,
    counts: Sequences<u32>,
    item_counts: ItemCounts,
    classified: u64,
    classified_right: u64,
    /// Tags of messages that have no certain outcome.
    unsure: BTreeSet<u32>,
    baseline: Checks<Asked>,
    checks: Option<Checks<Asked>>,
    ranked: BTreeMap<String, u64>,
}

impl RtaPtc {
    /// The messages of a seed.
    pub fn new(inputs: &Inputs) -> RtaPtc {
        RtaPtc {
            stream: Tweets::new(inputs.seed),
            authors: Random::new(inputs.seed),
            in_flight: BTreeMap::new(),
            next_mark: 0,
            counts: Sequences::default(),
            item_counts: ItemCounts::default(),
            classified: 0,
            classified_right: 0,
            unsure: BTreeSet::new(),
            baseline: Checks::new((0..TAGS).map(|t| (Asked::Count(t), count_of(t))).collect()),
            checks: None,
            ranked: BTreeMap::new(),
        }
    }

    /// Tags that were sent, with the highest count that was answered, the most frequent first.
    fn best(&self) -> Vec<(String, u64)> {
        let sure = self
            .counts
            .highest()
            .filter(|(tag, _)| !self.unsure.contains(tag));
        let mut all: Vec<(String, u64)> = sure.map(|(tag, n)| (tag_name(*tag), n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    fn checks(&mut self) -> &mut Checks<Asked> {
        let sent = self.counts.highest().map(|(tag, _)| *tag);
        let counts = sent.filter(|tag| !self.unsure.contains(tag));
        let counts = counts.map(|tag| (Asked::Count(tag), count_of(tag)));
        let rankings = (0..SHARDS).map(|shard| (Asked::Ranking, query(shard)));
        self.checks
            .get_or_insert_with(|| Checks::new(rankings.chain(counts).collect()))
    }
}

fn count_of(tag: u32) -> Call {
    let tag = tag_name(tag);
    Call {
        tag: 0,
        payload: record(&CountQuery {
            op: "get",
            at: "count",
            tag: &tag,
        }),
        key: tag.into_bytes(),
    }
}

fn query(shard: u16) -> Call {
    Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Query {
            op: "top",
            at: "topranker",
            k: RANKED_MAX,
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
        query(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<Ranking>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let counted: Option<Counted> = answer(reply);
        if let (Some(Asked::Count(of)), Some(counted)) = (self.baseline.asked(tag), &counted) {
            self.item_counts
                .begin(tag_name(of).as_bytes(), counted.count);
        }
        self.baseline.take(tag, counted.map(|_| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn next(&mut self) -> Option<Call> {
        let Tweet { tag, features } = self.stream.next_tweet();
        let name = tag_name(tag);
        let author = format!("a{:04}", self.authors.below(AUTHORS));
        self.next_mark += 1;
        self.in_flight.insert(self.next_mark, tag);
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
        let sent = self.in_flight.remove(&mark);
        let (Some(tag), Some(answer)) = (sent, answer::<Answer>(reply)) else {
            if let Some(tag) = sent.filter(|_| !not_admitted(reply)) {
                let name = tag_name(tag).into_bytes();
                self.item_counts.add_unsure(&name, &name);
                self.unsure.insert(tag);
            }
            return Judged::refused(handled(reply));
        };
        if answer.tag != tag_name(tag) {
            return Judged::refused(true);
        }
        self.classified += 1;
        self.classified_right += u64::from(answer.class == topic_name(topic_of(tag)));
        self.counts.add(tag, answer.count);
        self.item_counts
            .add(answer.tag.as_bytes(), answer.tag.as_bytes());
        Judged::accepted()
    }

    fn next_check(&mut self, _: Timestamp) -> Check {
        self.checks().next()
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let facts = match self.checks().asked(tag) {
            Some(Asked::Count(of)) => answer::<Counted>(reply).map(|said| {
                let name = tag_name(of).into_bytes();
                let known = self.item_counts.expected(&name, &name);
                // a tag that shares its bit with one that is not sure says nothing
                known.map_or(Facts::default(), |known| Facts::one(known == said.count))
            }),
            _ => answer::<Ranking>(reply).map(|said| {
                let pairs = said.top.into_iter().zip(said.top_scores);
                self.ranked.extend(pairs.map(|(tag, n)| (tag, n as u64)));
                Facts::default()
            }),
        };
        self.checks().take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.as_ref().map_or(0.0, Checks::progress)
    }

    fn verify(&self) -> Verified {
        let best = self.best();
        let is_ranked = |(tag, n): &&(String, u64)| self.ranked.get(tag) == Some(n);
        let ranked = best.iter().filter(is_ranked).count() as u64;
        let top = &best[..best.len().min(TOP)];
        let right = top.iter().filter(is_ranked).count() as u64;
        let unsure = self.unsure.len() as u64;
        let of = |service, what| {
            let checks = self.checks.as_ref();
            checks.map(|c| c.of(service, what, unsure))
        };
        let ranking = Facts {
            right: ranked,
            wrong: best.len() as u64 - ranked,
        };
        let counts = of("count", "counts of tags");
        let scores = of("topranker", "scores of tags in the rankings of all shards");
        let scores = scores.map(|check| check.with_facts(ranking));
        let checks = counts.into_iter().chain(scores).collect();
        Verified {
            rows: Rows {
                checks_failed: self.checks.as_ref().map_or(0, Checks::unanswered),
                ..self.counts.rows()
            },
            checks,
            findings: vec![
                Finding {
                    what: "ranked right",
                    right,
                    of: top.len() as u64,
                    how: "most frequent tags that the shards rank with their exact counts",
                },
                Finding {
                    what: "classified right",
                    right: self.classified_right,
                    of: self.classified,
                    how: "messages with the class of their topic; topics overlap, so some must be wrong",
                },
            ],
        }
    }
}
