//! What the controller's log has lost.

use e3_control::Control;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{NodeId, ShardKey};
use std::collections::BTreeSet;

/// Decisions that its log has lost.
pub(super) struct Lost {
    /// The version of the plan without them.
    pub(super) version: u64,
    /// Shards that were in later incarnations by them.
    pub(super) behind: Vec<ShardKey>,
    /// Shards of which they removed copies, and how many its service had.
    pub(super) shrunk: Vec<(ShardKey, u16)>,
}

impl Lost {
    /// What a log that leads to the state `kept` lacks of all decisions.
    pub(super) fn new(version: u64, kept: &Control, all: &Control) -> Lost {
        let plans = all.apps.values().map(|app| &app.plan);
        let shards = || {
            plans
                .clone()
                .flat_map(|plan| plan.shards.iter().map(move |s| (plan, s)))
        };
        let of_kept = |plan: &AppPlan, shard: &ShardPlan| {
            let kept = kept.apps.get(&plan.id)?;
            kept.shard(plan.key(shard)).cloned()
        };
        let is_behind = |(plan, shard): &(&AppPlan, &ShardPlan)| {
            let kept = of_kept(plan, shard);
            kept.is_none_or(|kept| kept.incarnation < shard.incarnation)
        };
        let is_shrunk = |(plan, shard): &(&AppPlan, &ShardPlan)| {
            let complete = |s: &ShardPlan| -> BTreeSet<NodeId> {
                std::iter::once(s.primary).chain(s.staying()).collect()
            };
            let may_take_over = |s: &ShardPlan| -> BTreeSet<NodeId> {
                let others = s.backups.iter().chain(&s.leaving).copied();
                std::iter::once(s.primary).chain(others).collect()
            };
            let kept = of_kept(plan, shard);
            kept.is_some_and(|kept| !may_take_over(&kept).is_subset(&complete(shard)))
        };
        let key = |(plan, shard): (&AppPlan, &ShardPlan)| plan.key(shard);
        let shrunk = shards().filter(is_shrunk);
        let count = |plan: &AppPlan, shard: &ShardPlan| plan.app.service(shard.service).shards;
        Lost {
            version,
            behind: shards().filter(is_behind).map(key).collect(),
            shrunk: shrunk
                .map(|(plan, shard)| (plan.key(shard), count(plan, shard)))
                .collect(),
        }
    }
}
