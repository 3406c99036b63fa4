//! What each node has left, indexed so that a search need not look at all of them.
//!
//! [`FirstFit`] holds the nodes in a fixed order, with the component-wise maxima of groups above
//! them: a group whose maxima do not hold a demand holds no node that does, so the first node found
//! by skipping such groups is the first one that fits. [`Ordered`] does the same in an order that
//! changes, that of what is left: there the first node that fits is the best one.

mod first_fit;
mod free;
mod ordered;

pub(crate) use first_fit::{FirstFit, Visit};
pub(crate) use free::{Free, Need};
pub(crate) use ordered::Ordered;

use crate::node_state::NodeState;
use crate::request::Demand;
use e3_model::{NodeId, NodeKind};
use std::collections::BTreeSet;

/// Nodes of the same kind and size: a demand takes the same part of each.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) kind: NodeKind,
    pub(crate) cores: f64,
    pub(crate) memory_bytes: u64,
    /// By [`slack`].
    pub(crate) by_slack: Ordered,
    /// By cores in use if all backups took over.
    pub(crate) by_standby: Ordered,
}

/// Where a node stands in its class.
#[derive(Clone, Copy, Debug)]
struct Keys {
    slack: f64,
    standby: f64,
}

/// The index of a cluster. Nodes that take no instance (down, drained, overloaded) are in no class.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) first_fit: FirstFit,
    /// Position in the order of first fit, by node.
    position: Vec<usize>,
    pub(crate) classes: Vec<Class>,
    class_of: Vec<usize>,
    keys: Vec<Option<Keys>>,
    /// Nodes on which too many requests wait, and that are up and in service.
    pub(crate) waiting: BTreeSet<NodeId>,
}

/// The sum of the free parts of a node's cores and memory.
pub(crate) fn slack(node: &NodeState) -> f64 {
    node.cpu_left_cores() / node.cores + node.memory_left_bytes() as f64 / node.memory_bytes as f64
}

/// What a demand takes of the slack of a node of that size.
pub(crate) fn slack_taken(need: &Demand, cores: f64, memory_bytes: u64) -> f64 {
    need.cpu_cores / cores + need.memory_bytes as f64 / memory_bytes as f64
}

/// Cores of a node in use if all the backups on it took over.
pub(crate) fn standby(node: &NodeState) -> f64 {
    node.used.cpu_cores + node.standby_cpu_cores
}

impl Index {
    /// The index of nodes by id, with the order of first fit.
    pub(crate) fn new(nodes: &[NodeState], order: &[NodeId]) -> Index {
        let mut position = vec![0; nodes.len()];
        for (at, id) in order.iter().enumerate() {
            position[id.index()] = at;
        }
        let mut index = Index {
            first_fit: FirstFit::new(order.iter().map(|id| nodes[id.index()].kind)),
            position,
            classes: Vec::new(),
            class_of: Vec::new(),
            keys: vec![None; nodes.len()],
            waiting: BTreeSet::new(),
        };
        for (at, node) in nodes.iter().enumerate() {
            // An id that no node has is in no class.
            if !node.exists() {
                index.class_of.push(usize::MAX);
                continue;
            }
            let class = index.class(node);
            index.class_of.push(class);
            index.update(NodeId::of_index(at), node);
        }
        index
    }

    fn class(&mut self, node: &NodeState) -> usize {
        let same = |c: &Class| {
            (c.kind, c.cores, c.memory_bytes) == (node.kind, node.cores, node.memory_bytes)
        };
        self.classes.iter().position(same).unwrap_or_else(|| {
            self.classes.push(Class {
                kind: node.kind,
                cores: node.cores,
                memory_bytes: node.memory_bytes,
                by_slack: Ordered::default(),
                by_standby: Ordered::default(),
            });
            self.classes.len() - 1
        })
    }

    /// Takes up what has changed about a node.
    pub(crate) fn update(&mut self, id: NodeId, node: &NodeState) {
        let at = id.index();
        let free = Free::of(node);
        self.first_fit.set(self.position[at], free);
        let class = &mut self.classes[self.class_of[at]];
        if let Some(old) = self.keys[at].take() {
            class.by_slack.remove(old.slack, id);
            class.by_standby.remove(old.standby, id);
        }
        self.waiting.remove(&id);
        if free == Free::NOTHING && node.member && !node.drained {
            self.waiting.insert(id);
        }
        if free != Free::NOTHING {
            let keys = Keys {
                slack: slack(node),
                standby: standby(node),
            };
            class.by_slack.insert(keys.slack, id, free);
            class.by_standby.insert(keys.standby, id, free);
            self.keys[at] = Some(keys);
        }
    }
}
