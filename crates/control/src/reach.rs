//! Reachability between nodes: a primary that is cut off from its backups, but not from the
//! controller, serves no requests. Nodes report which peers they cannot reach there and back, with
//! hysteresis; what both ends of a way say counts, and a shard goes to where the network is whole.
//! Design: docs/design/009.

use e3_model::NodeId;
use e3_model::plan::ShardPlan;
use std::collections::{BTreeMap, BTreeSet};

/// The ways between the nodes that are heard.
pub(crate) struct Ways {
    /// By node: those that it says it cannot reach.
    said: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// Nodes that are cut off from most of the others, while some nodes are not.
    isolated: BTreeSet<NodeId>,
    /// Nodes whose clocks are wrong, while those of others are not.
    wrong: BTreeSet<NodeId>,
}

impl Ways {
    /// The ways between the `up` nodes that are heard, by what both ends say. `said` has those of them
    /// that miss any node.
    pub(crate) fn new(
        up: usize,
        is_up: &dyn Fn(NodeId) -> bool,
        mut said: BTreeMap<NodeId, BTreeSet<NodeId>>,
    ) -> Ways {
        // A node that names itself has a wrong clock: it serves nobody.
        let wrong = said.iter().filter(|(node, of)| of.contains(node));
        let wrong: BTreeSet<NodeId> = wrong.map(|(node, _)| *node).collect();
        for (node, of) in &mut said {
            of.retain(|other| other != node && is_up(*other));
        }
        let mut ways = Ways {
            said,
            isolated: BTreeSet::new(),
            wrong: BTreeSet::new(),
        };
        let cuts = |n: NodeId| ways.said[&n].iter().filter(|o| ways.says(**o, n)).count();
        let most = |n: &NodeId| cuts(*n) * 2 > up - 1;
        ways.isolated = ways.said.keys().copied().filter(most).collect();
        if ways.isolated.len() == up {
            // Wherever a shard went, it would reach nobody. Of two nodes, one can still go on alone.
            ways.isolated.clear();
            if up > 2 {
                ways.said.clear();
            }
        }
        // If all clocks are wrong, no other node would serve either.
        if wrong.len() < up {
            ways.isolated.extend(&wrong);
            ways.wrong = wrong;
        }
        ways
    }

    /// The nodes that miss others.
    pub(crate) fn cut_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.said.keys().copied()
    }

    /// Whether two nodes cannot reach each other. It takes the word of both: a node that is dead or
    /// stands still says nothing, and must not be taken for one that reaches more than who misses it.
    pub(crate) fn are_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.says(a, b) && self.says(b, a)
    }

    /// Whether a node is cut off from most of the others, while some nodes are not.
    pub(crate) fn is_isolated(&self, node: NodeId) -> bool {
        self.isolated.contains(&node)
    }

    /// Whether `node` itself says that it cannot reach `peer`.
    fn says(&self, node: NodeId, peer: NodeId) -> bool {
        self.said.get(&node).is_some_and(|of| of.contains(&peer))
    }

    /// Nodes that a node says it cannot reach; one whose clock is wrong reaches nobody. Each says at once
    /// all that it misses, so that two ends of a cut can be compared as soon as both have reported, whoever
    /// else has.
    fn count(&self, node: NodeId) -> usize {
        if self.wrong.contains(&node) {
            return usize::MAX;
        }
        self.said.get(&node).map_or(0, BTreeSet::len)
    }

    /// No node misses any.
    pub(crate) fn are_whole(&self) -> bool {
        self.said.values().all(BTreeSet::is_empty)
    }
}

/// The nodes that a shard should leave. If its primary is among them, the best backup comes first.
pub(crate) fn to_leave(shard: &mut ShardPlan, ways: &Ways) -> BTreeSet<NodeId> {
    let primary = shard.primary;
    let is_cut = |n: &NodeId| ways.are_cut(primary, *n);
    let cut_backups = shard.backups.iter().copied().filter(is_cut);
    let best = cut_backups.min_by_key(|n| ways.count(*n));
    if let Some(best) = best
        && ways.count(best) < ways.count(primary)
    {
        shard.backups.retain(|n| *n != best);
        shard.backups.insert(0, best);
        return BTreeSet::from([primary]);
    }
    let is_worse = |n: &NodeId| is_cut(n) && ways.count(*n) >= ways.count(primary);
    let copies = shard.backups.iter().chain(&shard.joining);
    copies.copied().filter(is_worse).collect()
}
