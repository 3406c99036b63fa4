//! What the services must answer and keep: classes, counts of tags, rankings.

use super::tweets::{TAGS, tag_name, topic_name, topic_of};
use crate::load::Oracle;
use crate::oracles::count::ItemCounts;
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{
    Sequences, answer, first_answer, handled, key_of_shard, not_admitted, record,
};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tags that are compared after the load.
const TOP: usize = 20;
/// Tags of a ranking that is read: more than a shard can have.
const RANKED_MAX: usize = 1000;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;

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
pub(crate) enum Asked {
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

/// What is known of the application.
#[derive(Default)]
pub(crate) struct Analytics {
    counts: Sequences<u32>,
    item_counts: ItemCounts,
    classified: Score,
    ranked: BTreeMap<String, u64>,
}

fn count_of(tag: u32) -> (Asked, Call) {
    let name = tag_name(tag);
    let call = Call {
        tag: 0,
        payload: record(&CountQuery {
            op: "get",
            at: "count",
            tag: &name,
        }),
        key: name.into_bytes(),
    };
    (Asked::Count(tag), call)
}

fn ranking_of(shard: u16) -> Call {
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

impl Analytics {
    /// Tags that were sent, with the highest count that was answered, the most frequent first.
    fn best(&self) -> Vec<(String, u64)> {
        let sure = self.counts.sure();
        let mut all: Vec<(String, u64)> = sure.map(|(tag, n)| (tag_name(*tag), n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    fn is_ranked(&self, (tag, n): &(String, u64)) -> bool {
        self.ranked.get(tag) == Some(n)
    }
}

impl Oracle for Analytics {
    const NAME: &'static str = "rta-ptc";
    /// The tag of the message.
    type Sent = u32;
    type Asked = Asked;

    fn probe(&self) -> Call {
        ranking_of(0)
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<Ranking>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        (0..TAGS).map(count_of).collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        let Asked::Count(tag) = asked else {
            return None;
        };
        self.item_counts
            .on_baseline(tag_name(tag).as_bytes(), reply)
    }

    fn on_outcome(&mut self, tag: &u32, reply: Option<&Reply>) -> Judged {
        let name = tag_name(*tag);
        let Some(answer) = answer::<Answer>(reply) else {
            if !not_admitted(reply) {
                self.item_counts
                    .add_unsure(name.as_bytes(), name.as_bytes());
                self.counts.add_unsure(*tag);
            }
            return Judged::refused(handled(reply));
        };
        if answer.tag != name {
            return Judged::refused(true);
        }
        self.classified
            .add(answer.class == topic_name(topic_of(*tag)));
        self.counts.add(*tag, answer.count);
        self.item_counts.add(name.as_bytes(), name.as_bytes());
        Judged::accepted()
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let rankings = (0..SHARDS).map(|shard| (Asked::Ranking, ranking_of(shard)));
        let counts = self.counts.sure().map(|(tag, _)| count_of(*tag));
        rankings.chain(counts).collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Count(tag) => {
                let name = tag_name(tag).into_bytes();
                self.item_counts.on_check(&name, &name, reply)
            }
            Asked::Ranking => {
                let ranking: Ranking = answer(reply)?;
                let pairs = ranking.top.into_iter().zip(ranking.top_scores);
                self.ranked.extend(pairs.map(|(tag, n)| (tag, n as u64)));
                Some(Facts::default())
            }
        }
    }

    fn rows(&self) -> Rows {
        self.counts.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        let unsure = self.counts.unsure_kinds();
        let mut ranking = Facts::default();
        for tag in self.best() {
            ranking.add(self.is_ranked(&tag));
        }
        let scores = "scores of tags in the rankings of all shards";
        vec![
            checks.of("count", "counts of tags", unsure),
            checks.of("topranker", scores, unsure).with_facts(ranking),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let mut top = Score::default();
        for tag in self.best().iter().take(TOP) {
            top.add(self.is_ranked(tag));
        }
        vec![
            top.finding(
                "ranked right",
                "most frequent tags that the shards rank with their exact counts",
            ),
            self.classified.finding(
                "classified right",
                "messages with the class of their topic; topics overlap, so some must be wrong",
            ),
        ]
    }
}
