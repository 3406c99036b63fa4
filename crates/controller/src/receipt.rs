//! Nodes whose heartbeats arrive but which receive no plans, since their connections to the controller do not
//! work. Such a node does not learn that it is a primary now, or that a copy has left its shard, and the shard
//! stands still. If others can go on without it, the node counts as silent until it has received the plan.
//! Soft state. Design: docs/design/009.

use crate::limits::RECEIPT_TIMEOUT;
use e3_control::{Command, Control, Hearing};
use e3_model::plan::{NodeReport, ShardPlan};
use e3_model::timing::TURN_GAP_MAX;
use e3_model::{NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// The latest report of each node, with its time of arrival.
type Reports = BTreeMap<NodeId, (Timestamp, NodeReport)>;

/// Nodes, and the shards that wait for each.
type Late = Vec<(NodeId, Vec<ShardKey>)>;

/// Which nodes have not received plans.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// The last turn of the controller's loop.
    turn_at: Timestamp,
    /// By node: a version that it has not applied, and since when that is known.
    behind: BTreeMap<NodeId, (u64, Timestamp)>,
    /// The last version in which no shard could go on without its node, and these nodes.
    needed: (u64, Late),
    /// Processes that count as silent until they have applied this version.
    withheld: BTreeMap<NodeId, (u32, u64)>,
}

impl Receipts {
    /// A turn. After a pause of this process it is not known what nodes did meanwhile.
    pub(crate) fn on_turn(&mut self, now: Timestamp) {
        if now.since(self.turn_at) > TURN_GAP_MAX {
            self.behind.clear();
        }
        self.turn_at = now;
    }

    /// The nodes that have missed a version for too long and without which shards can go on, with their
    /// processes.
    pub(crate) fn overdue(
        &mut self,
        now: Timestamp,
        control: &Control,
        hearing: &Hearing,
        reports: &Reports,
    ) -> BTreeMap<NodeId, u32> {
        let mut late = Vec::new();
        let mut before = std::mem::take(&mut self.behind);
        for (node, _) in control.members.iter().filter(|(_, m)| m.up) {
            let Some(last) = hearing.last(*node) else {
                continue;
            };
            let misses = |version| !has_applied(last.plan_version_low, version);
            let known = before.remove(node).filter(|(version, _)| misses(*version));
            let (version, since) = known.unwrap_or((control.version, now));
            if !misses(version) {
                continue;
            }
            self.behind.insert(*node, (version, since));
            if now.since(since) > RECEIPT_TIMEOUT
                && let Some((_, report)) = reports.get(node)
            {
                late.push((*node, late_shards(control, report)));
            }
        }
        late.retain(|(_, shards)| !shards.is_empty());
        let asked = (control.version, late);
        if asked.1.is_empty() || asked == self.needed {
            return BTreeMap::new();
        }
        let nodes = dispensable(control, asked.1.clone(), now);
        if nodes.is_empty() {
            self.needed = asked;
        }
        nodes
    }

    /// A process counts as silent until it has applied this version.
    pub(crate) fn withhold(&mut self, node: NodeId, incarnation: u32, version: u64) {
        self.withheld.insert(node, (incarnation, version));
    }

    /// Whether a heartbeat of a process that counts as silent, with this version, changes nothing.
    pub(crate) fn withholds(&self, node: NodeId, incarnation: u32, applied_low: u32) -> bool {
        let withheld = self.withheld.get(&node);
        withheld
            .is_some_and(|(of, version)| *of == incarnation && !has_applied(applied_low, *version))
    }
}

/// Whether a node has applied a version, by the low half of the one that it applied last.
fn has_applied(low: u32, version: u64) -> bool {
    (version as u32).wrapping_sub(low) as i32 <= 0
}

/// The shards that wait for a node and have changed since its last report.
fn late_shards(control: &Control, report: &NodeReport) -> Vec<ShardKey> {
    let node = report.node;
    let is_late = |key: &ShardKey| {
        let taken = report.instances.iter().find(|i| i.key == *key);
        let taken = taken.map_or(0, |i| i.view);
        shard(control, *key).is_some_and(|s| needs(s, node) && s.view > taken)
    };
    control
        .shards_on(node)
        .into_iter()
        .filter(is_late)
        .collect()
}

/// Those of the nodes without which at least one of their shards goes on.
fn dispensable(control: &Control, mut late: Late, now: Timestamp) -> BTreeMap<NodeId, u32> {
    loop {
        let process = |node| Some((node, control.members.get(&node)?.incarnation));
        let nodes = late.iter().filter_map(|(node, _)| process(*node));
        let nodes: BTreeMap<NodeId, u32> = nodes.collect();
        let mut without = control.clone();
        let lose = Command::Lose {
            nodes: nodes.clone(),
            at: now,
        };
        if nodes.is_empty() || without.apply(&lose).is_err() {
            return BTreeMap::new();
        }
        late.retain(|(node, shards)| shards.iter().any(|key| goes_on(&without, *key, *node)));
        if late.len() == nodes.len() {
            return nodes;
        }
    }
}

fn shard(control: &Control, key: ShardKey) -> Option<&ShardPlan> {
    control.apps.get(&key.app)?.shard(key)
}

/// Whether a shard waits for a node. It waits for one that is leaving only until the primary has the plan.
fn needs(shard: &ShardPlan, node: NodeId) -> bool {
    let stays = shard.backups.contains(&node) && !shard.leaving.contains(&node);
    shard.primary == node || stays
}

/// Whether a shard serves in this state, in which a node is silent.
fn goes_on(without: &Control, key: ShardKey, node: NodeId) -> bool {
    shard(without, key).is_some_and(|s| !needs(s, node) && without.is_up(s.primary))
}
