//! Spreading: shards of a scaled service that keep the cores of one node busy together go to other nodes, one
//! at a time. New shards begin where those are that were split, so a split alone gives the service no further core.
//!
//! Nothing flaps. A move must leave its destination less busy than the node was that the shard leaves, by a margin;
//! so with a constant load each move evens it out, and the moves end. A shard rests after each move.

use super::Orchestrator;
use super::budget::Budget;
use super::moving::{Moving, by_node};
use super::round::Round;
use super::scaling::Used;
use crate::limits::{CANDIDATES_MAX, SPREAD_BUSY_PERCENT_MAX};
use crate::orchestration::{Act, CPU_PERMILLE, Decided};
use crate::state::Control;
use e3_model::orchestrator::Cause;
use e3_model::{NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Shards of a service that keep the cores of a node busy together.
pub(super) struct Crowd {
    node: NodeId,
    /// Cores of the node on which handlers run.
    workers: u16,
    /// The busiest first.
    shards: Vec<Used>,
}

/// What becomes of a crowd.
pub(super) enum Spreading {
    Moves(Decided),
    /// Migrations on the servers must end first.
    Waits,
    /// Those that could were moved lately.
    Rests,
    /// None of its shards can go anywhere.
    Nowhere(Decided),
}

impl Crowd {
    fn used_permille(&self) -> u64 {
        self.shards.iter().map(|s| s.permille).sum()
    }

    fn percent(&self) -> u64 {
        self.used_permille() / (10 * u64::from(self.workers).max(1))
    }
}

impl Orchestrator {
    /// The node whose cores shards of a service keep most busy together, if they do.
    pub(super) fn crowd(&self, used: &[Used]) -> Option<Crowd> {
        if self.settings.follow_interval_s > 0 {
            return None;
        }
        let mut by_node: BTreeMap<NodeId, Vec<Used>> = BTreeMap::new();
        for shard in used.iter().filter(|s| s.permille > 0) {
            by_node.entry(shard.node).or_default().push(*shard);
        }
        let crowds = by_node.into_iter().filter_map(|(node, mut shards)| {
            shards.sort_by_key(|s| (std::cmp::Reverse(s.permille), s.key));
            let workers = self.nodes.get(node.index())?.workers;
            let crowd = Crowd {
                node,
                workers,
                shards,
            };
            let is_busy = crowd.percent() >= self.settings.split_percent.into();
            (crowd.shards.len() > 1 && is_busy).then_some(crowd)
        });
        crowds.max_by_key(Crowd::percent)
    }

    /// Moves one shard of a crowd, if one has a destination.
    pub(super) fn spread(
        &self,
        now: Timestamp,
        control: &Control,
        crowd: &Crowd,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Spreading {
        let from = crowd.node;
        let orchestration = &control.orchestration;
        let rests = |key: ShardKey| {
            let moves = [orchestration.spread_of(key), orchestration.of(key)];
            let mut moves = moves.into_iter().flatten();
            moves.any(|moved| now < orchestration.rests_until(moved))
        };
        let mut nowhere = None;
        for shard in crowd.shards.iter().take(CANDIDATES_MAX) {
            if rests(shard.key) {
                continue;
            }
            match self.destination_of_part(now, control, *shard, shard.permille, round) {
                Some(Ok(to)) => {
                    let servers = self.servers(&[from, to]);
                    if !budget.allows(&servers) {
                        return Spreading::Waits;
                    }
                    budget.take(servers);
                    let mut decided = self.about(now, crowd, *shard);
                    decided.to = Some(to);
                    return Spreading::Moves(decided);
                }
                Some(Err(why)) if nowhere.is_none() => {
                    let mut decided = self.about(now, crowd, *shard);
                    decided.act = Act::Stuck;
                    decided.why = format!("{}; no node can take it ({why})", decided.why);
                    nowhere = Some(decided);
                }
                _ => {}
            }
        }
        nowhere.map_or(Spreading::Rests, Spreading::Nowhere)
    }

    /// Where a shard could go that uses so much there, or why it can go nowhere; none if it cannot move now. The
    /// destination must stay less busy than its node is now.
    pub(super) fn destination_of_part(
        &self,
        now: Timestamp,
        control: &Control,
        shard: Used,
        permille: u64,
        round: &mut Round<'_>,
    ) -> Option<Result<NodeId, String>> {
        let busy_permille = self.reports.get(shard.node.index())?.busy_permille();
        let mut moving = Moving::new(control, shard.key, shard.node, permille)?;
        moving.busy_permille_max = Some(busy_permille * SPREAD_BUSY_PERCENT_MAX / 100);
        let found =
            round.with(|cluster| self.destination(now, control, cluster, &moving, shard.node));
        Some(found.map_err(|why| by_node(control, &why, "; ")))
    }

    fn about(&self, now: Timestamp, crowd: &Crowd, shard: Used) -> Decided {
        let (used, least) = (crowd.used_permille(), self.settings.split_percent);
        let (of, workers) = (crowd.shards.len(), crowd.workers);
        let figures = [
            (CPU_PERMILLE, shard.permille),
            ("togetherPermille", used),
            ("shardsThere", of as u64),
            ("thresholdPercent", least.into()),
        ];
        Decided {
            at: now,
            cause: Cause::ShardsCrowded,
            act: self.act(Act::Spread),
            key: Some(shard.key),
            from: crowd.node,
            to: None,
            shards: None,
            why: format!(
                "load: {of} shards of the service there use {:.2} cores of {workers} that handle requests, at least {least} %",
                used as f64 / 1e3
            ),
            figures: figures.map(|(n, v)| (n.to_string(), v)).into(),
        }
    }
}
