//! Bringing shards to what the members are now.
//!
//! A command changes few shards, so only those are looked at that may have something to do: those
//! with a silent node, without a node, with too few or too many copies, and those on nodes that miss
//! peers. After the loss of a server many shards wait for their nodes or for confirmations: they are not
//! looked at until they or their nodes change. A test holds this against looking at all shards. Only
//! applications that change are borrowed to be changed, which copies them.

use crate::leaving::{are_up, has_heir};
use crate::reach::Ways;
use crate::state::{AppState, Control};
use e3_model::plan::ShardPlan;
use e3_model::{AppId, NodeId, ShardKey};
use e3_placement::Cluster;
use std::collections::{BTreeMap, BTreeSet};

impl Control {
    /// Brings every shard to what the members are now: primaries that are silent are replaced, what
    /// nobody serves begins again, and missing backups are found.
    pub(crate) fn settle_all(&mut self) {
        let ways = self.ways();
        self.leave_lost(&ways);
        let unsettled = self.unsettled(&ways);
        let mut apps: BTreeSet<AppId> = unsettled.iter().map(|key| key.app).collect();
        apps.extend(&self.index().working);
        let mut waiting = BTreeMap::new();
        let orphans_first = self.is_firm();
        if orphans_first {
            // A shard that is not served needs room more than one that lacks a copy.
            for key in &unsettled {
                let restarted = self.restart_orphan(*key, &ways);
                waiting.extend(restarted.err().map(|why| (*key, why)));
            }
        }
        for id in apps {
            for key in unsettled.iter().filter(|key| key.app == id) {
                if !orphans_first {
                    // It tries again at the next change.
                    let _ = self.restart_orphan(*key, &ways);
                }
                if let Some(at) = self.apps[&id].position(*key) {
                    let added = self.add_missing_backup(id, at, &ways);
                    waiting.extend(added.err().map(|why| (*key, why)));
                    self.remove_extra_backups(id, at);
                }
            }
            self.settle_resharding(id);
            self.settle_backup(id);
        }
        self.set_waiting(waiting.into_values().collect());
    }

    /// Shards leave silent nodes and those that their primary cannot reach.
    fn leave_lost(&mut self, ways: &Ways) {
        let unsettled = self.unsettled(ways);
        let (now, servers, format) = (self.now, self.servers(), self.format);
        let members = &self.members;
        let up = |node| members.get(&node).is_some_and(|m| m.up);
        let stays = |app: &AppState, key| {
            let shard = app.shard(key);
            shard.is_none_or(|shard| app.is_orphan(shard) || are_up(shard, &up))
        };
        for key in unsettled {
            let is_idle = |app: &AppState| ways.are_whole() && stays(app, key);
            if self.apps.get(&key.app).is_none_or(is_idle) {
                continue;
            }
            let app = self.apps.get_mut(&key.app).expect("just seen");
            if let Some(at) = app.position(key) {
                app.leave_silent(at, now, &servers, &up, format);
                app.leave_cut(at, now, &servers, ways, &up);
            }
        }
    }

    /// The shards that may have something to do, in their order.
    fn unsettled(&self, ways: &Ways) -> BTreeSet<ShardKey> {
        let index = self.index();
        if self.index.is_thorough {
            return index.all_shards().collect();
        }
        let cut = ways.cut_nodes().flat_map(|node| index.shards_on(node));
        index.unsettled.iter().copied().chain(cut).collect()
    }

    /// Leaves nodes that miss peers out of a placement.
    pub(crate) fn leave_out(cluster: &mut Cluster, ways: &Ways, off: impl Fn(NodeId) -> bool) {
        for node in ways.cut_nodes().filter(|n| off(*n)) {
            cluster.set_member(node, false);
        }
    }
}

impl AppState {
    /// Whether a shard may have something to do while no way is cut.
    pub(crate) fn is_unsettled(&self, shard: &ShardPlan, is_up: impl Fn(NodeId) -> bool) -> bool {
        let service = self.plan.app.service(shard.service);
        let copies = 1 + shard.staying().count() + shard.joining.len();
        let wanted = usize::from(service.replicas);
        if self.is_orphan(shard) {
            return true;
        }
        if !is_up(shard.primary) {
            let waits = service.stateful && !has_heir(shard, &is_up);
            let key = self.plan.key(shard);
            return !waits || self.is_moving(key) || self.is_restoring(key);
        }
        // Until its copies have left, others do not come.
        let leaves = shard.staying().count() < shard.backups.len();
        copies > wanted
            || (service.stateful && copies < wanted && !leaves)
            || !are_up(shard, &is_up)
    }

    /// Whether a move of a shard is in flight.
    pub(crate) fn is_moving(&self, key: ShardKey) -> bool {
        self.migrations.iter().any(|m| m.key == key)
    }

    /// Whether something is going on that takes more than one step.
    pub(crate) fn has_work(&self) -> bool {
        let backup = self.backup.as_ref();
        let restored = self.plan.restored.as_ref();
        self.resharding.is_some()
            || backup.is_some_and(|b| b.outcome.is_none())
            || restored.is_some_and(|r| !r.parts.is_empty())
    }
}
