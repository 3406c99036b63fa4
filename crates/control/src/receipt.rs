//! Nodes whose heartbeats arrive but which receive no plans, since their connections to the controller do not
//! work. Such a node does not learn that it is a primary now, or that a copy has left its shard, and the shard
//! stands still. If others can go on without it, the node counts as silent until it has received the plan.
//! Soft state. Design: docs/design/009.

use crate::limits::RECEIPT_TIMEOUT;
use crate::membership::Membership;
use crate::state::Control;
use e3_model::timing::TURN_GAP_MAX;
use e3_model::{NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Which nodes have not received plans.
#[derive(Debug, Default)]
pub struct Receipts {
    /// The last turn of the controller's loop.
    turn_at: Timestamp,
    /// By node: a version that it has not applied, and since when that is known.
    behind: BTreeMap<NodeId, (u64, Timestamp)>,
    /// Processes that count as silent until they have applied this version.
    withheld: BTreeMap<NodeId, (u32, u64)>,
}

impl Receipts {
    /// A turn. The time of a pause of this process does not count: it is not known what nodes did meanwhile.
    pub fn on_turn(&mut self, now: Timestamp) {
        let gap = now.since(self.turn_at);
        if gap > TURN_GAP_MAX {
            for (_, since) in self.behind.values_mut() {
                *since += gap;
            }
        }
        self.turn_at = now;
    }

    /// The nodes that have missed a version for too long and without which shards can go on, with their
    /// processes. None if no node has received it: it may be the controller that nobody reaches. `taken` is the
    /// view of a shard that a node's last report says, 0 if it says none.
    pub fn overdue(
        &mut self,
        now: Timestamp,
        control: &Control,
        membership: &Membership,
        taken: impl Fn(NodeId, ShardKey) -> u32,
    ) -> BTreeMap<NodeId, u32> {
        let (mut overdue, mut newest) = (BTreeMap::new(), 0);
        let mut applied = Vec::new();
        let mut before = std::mem::take(&mut self.behind);
        for (node, member) in control.members.iter().filter(|(_, m)| m.up) {
            let Some(applied_low) = membership.applied_low(*node) else {
                continue;
            };
            let misses = |version| !has_applied(applied_low, version);
            let known = before.remove(node).filter(|(version, _)| misses(*version));
            let (version, since) = known.unwrap_or((control.version, now));
            if misses(version) {
                self.behind.insert(*node, (version, since));
            }
            if misses(version) && now.since(since) > RECEIPT_TIMEOUT {
                overdue.insert(*node, member.incarnation);
                newest = newest.max(version);
            } else {
                applied.push(applied_low);
            }
        }
        if !applied.into_iter().any(|low| has_applied(low, newest)) {
            return BTreeMap::new();
        }
        let is_fit = |node: &NodeId| control.is_up(*node) && !overdue.contains_key(node);
        let waits = |node: &NodeId| is_in_the_way(control, *node, |key| taken(*node, key), is_fit);
        let nodes = overdue.iter().filter(|(node, _)| waits(node));
        nodes
            .map(|(node, incarnation)| (*node, *incarnation))
            .collect()
    }

    /// A process counts as silent until it has applied this version.
    pub fn withhold(&mut self, node: NodeId, incarnation: u32, version: u64) {
        self.withheld.insert(node, (incarnation, version));
    }

    /// Whether a heartbeat of a process that counts as silent, with this version, changes nothing.
    pub fn withholds(&self, node: NodeId, incarnation: u32, applied_low: u32) -> bool {
        let withheld = self.withheld.get(&node);
        withheld
            .is_some_and(|(of, version)| *of == incarnation && !has_applied(applied_low, *version))
    }

    /// Whether a process that counts as silent does so for this reason.
    pub fn is_withheld(&self, node: NodeId, incarnation: u32) -> bool {
        self.withheld
            .get(&node)
            .is_some_and(|(of, _)| *of == incarnation)
    }
}

/// Whether a node has applied a version, by the low half of the one that it applied last.
fn has_applied(low: u32, version: u64) -> bool {
    (version as u32).wrapping_sub(low) as i32 <= 0
}

/// Whether a shard that has changed since the node's last report waits for the node, and could go on with nodes
/// that are fit: with one that has a complete copy, or with any if it has no state. A shard waits for a node that
/// is leaving only until the primary has the plan.
fn is_in_the_way(
    control: &Control,
    node: NodeId,
    taken: impl Fn(ShardKey) -> u32,
    is_fit: impl Fn(&NodeId) -> bool,
) -> bool {
    let waits = |key: ShardKey| {
        let app = control.apps.get(&key.app)?;
        let shard = app.shard(key)?;
        let stays = shard.backups.contains(&node) && !shard.leaving.contains(&node);
        let is_needed = shard.primary == node || stays;
        let is_late = shard.view > taken(key);
        let stateful = app.plan.app.service(key.service).stateful;
        let mut copies = std::iter::once(&shard.primary).chain(&shard.backups);
        Some(is_needed && is_late && (!stateful || copies.any(&is_fit)))
    };
    let mut shards = control.shards_on(node).into_iter();
    shards.any(|key| waits(key) == Some(true))
}
