//! No decision places anything on a node that an operator keeps out of service, and none loses state by
//! removing a node.

use e3_control::{Command, Control};
use e3_model::{NodeId, ShardId, ShardKey};
use std::collections::{BTreeMap, BTreeSet};

/// What nodes that are drained or cordoned have before a command.
pub(super) struct Placed {
    by_node: BTreeMap<NodeId, BTreeSet<ShardKey>>,
    /// Shards whose state was lost.
    lost: u64,
}

impl Placed {
    pub(super) fn of(control: &Control) -> Placed {
        let nodes = control.drained.union(&control.cordoned);
        Placed {
            by_node: nodes.map(|n| (*n, placed(control, *n))).collect(),
            lost: lost(control),
        }
    }

    /// What a command did to these nodes that no decision may.
    pub(super) fn wrong(&self, control: &Control, command: &Command) -> Option<String> {
        if matches!(command, Command::RemoveNode { .. }) && lost(control) != self.lost {
            return Some(format!("{command:?} loses state"));
        }
        let is_out = |n: &NodeId| control.drained.contains(n) || control.cordoned.contains(n);
        let nodes = self.by_node.iter().filter(|(node, _)| is_out(node));
        for (node, before) in nodes {
            let now = placed(control, *node);
            let mut new = now.difference(before);
            if let Some(key) = new.find(|key| !is_made_of(control, **key, before)) {
                let shard = control.apps[&key.app].shard(*key);
                return Some(format!(
                    "{key} is placed on {node}, which is out of service, by {command:?}: {shard:?}"
                ));
            }
        }
        None
    }
}

fn placed(control: &Control, node: NodeId) -> BTreeSet<ShardKey> {
    let mut keys = control.shards_on(node);
    keys.retain(|key| {
        let shard = control.apps[&key.app].shard(*key);
        shard.is_some_and(|s| s.keeps(node))
    });
    keys.into_iter().collect()
}

/// Whether a shard has just been made, by a split or merge, of one that was there.
fn is_made_of(control: &Control, key: ShardKey, before: &BTreeSet<ShardKey>) -> bool {
    let app = &control.apps[&key.app];
    let era = app.shard(key).map(|s| s.era);
    let mut changes = app.plan.resharded.iter();
    changes.any(|r| {
        let shards = r.split.parents(key.shard);
        r.service == key.service
            && Some(r.era) == era
            && shards
                .map(ShardId)
                .any(|shard| before.contains(&ShardKey { shard, ..key }))
    })
}

fn lost(control: &Control) -> u64 {
    let apps = control.apps.values();
    apps.map(|app| app.state_lost).sum()
}
