//! No decision places anything on a node that an operator keeps out of service, and none loses state by
//! removing a node.

use e3_control::{Command, Control};
use e3_model::{NodeId, ShardKey};
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
            if let Some(key) = now.difference(before).next() {
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

fn lost(control: &Control) -> u64 {
    let apps = control.apps.values();
    apps.map(|app| app.state_lost).sum()
}
