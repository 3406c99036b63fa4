//! Who has been heard of lately. Soft state: never logged, lost with the process.

use crate::limits::START_GRACE;
use crate::state::Control;
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::BTreeMap;

/// Heartbeats.
#[derive(Debug)]
pub struct Membership {
    started: Timestamp,
    timeout: Nanos,
    heard: BTreeMap<NodeId, (u32, Timestamp)>,
}

impl Membership {
    /// Nobody heard yet. `timeout` is the silence after which a node counts as lost.
    pub fn new(now: Timestamp, timeout: Nanos) -> Membership {
        Membership {
            started: now,
            timeout,
            heard: BTreeMap::new(),
        }
    }

    /// A node was heard. What an older process sent late does not count.
    pub fn on_heartbeat(&mut self, now: Timestamp, node: NodeId, incarnation: u32) {
        let heard = self.heard.entry(node).or_default();
        if incarnation >= heard.0 {
            *heard = (incarnation, now);
        }
    }

    /// When a node's process was last heard.
    pub fn heard(&self, node: NodeId, incarnation: u32) -> Option<Timestamp> {
        self.heard
            .get(&node)
            .filter(|(i, _)| *i == incarnation)
            .map(|(_, at)| *at)
    }

    /// Members that have been silent for too long, with their incarnations.
    pub fn lost(&self, now: Timestamp, control: &Control) -> Vec<(NodeId, u32)> {
        let silent = |node: NodeId, incarnation: u32| match self.heard(node, incarnation) {
            Some(at) => now > at + self.timeout,
            None => now > self.started + START_GRACE.max(self.timeout),
        };
        let up = control.members.iter().filter(|(_, m)| m.up);
        up.filter(|(n, m)| silent(**n, m.incarnation))
            .map(|(n, m)| (*n, m.incarnation))
            .collect()
    }
}
