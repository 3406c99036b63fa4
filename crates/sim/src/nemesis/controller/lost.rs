//! What the controller's log has lost.

use e3_control::Control;
use e3_model::plan::ShardPlan;
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
        let complete = |s: &ShardPlan| -> BTreeSet<NodeId> {
            std::iter::once(s.primary).chain(s.staying()).collect()
        };
        let may_take_over = |s: &ShardPlan| -> BTreeSet<NodeId> {
            let others = s.backups.iter().chain(&s.leaving).copied();
            std::iter::once(s.primary).chain(others).collect()
        };
        let (mut behind, mut shrunk) = (Vec::new(), Vec::new());
        for plan in all.apps.values().map(|app| &app.plan) {
            for shard in &plan.shards {
                let key = plan.key(shard);
                let kept = kept.apps.get(&plan.id).and_then(|app| app.shard(key));
                if kept.is_none_or(|kept| kept.incarnation < shard.incarnation) {
                    behind.push(key);
                }
                if kept.is_some_and(|kept| !may_take_over(kept).is_subset(&complete(shard))) {
                    shrunk.push((key, plan.app.service(shard.service).shards));
                }
            }
        }
        Lost {
            version,
            behind,
            shrunk,
        }
    }
}
