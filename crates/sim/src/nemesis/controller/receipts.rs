//! Nodes that do not receive plans, although their heartbeats arrive: as the controller's program, this counts
//! them as silent where others can go on without them.

use super::ControllerProcess;
use e3_control::Command;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};

/// As `WATCH_INTERVAL` of the controller.
const WATCH_INTERVAL: Nanos = Nanos::from_millis(250);

impl ControllerProcess {
    pub(super) fn watch_receipts(&mut self, now: Timestamp) {
        if now < self.watched_at + WATCH_INTERVAL || !self.can_decide(now) {
            return;
        }
        self.watched_at = now;
        let taken = |node: NodeId, key: ShardKey| {
            let views = self.taken.get(&node);
            views.and_then(|v| v.get(&key)).copied().unwrap_or(0)
        };
        let (control, membership) = (&self.control, &self.membership);
        let nodes = self.receipts.overdue(now, control, membership, taken);
        if nodes.is_empty() {
            return;
        }
        let lose = Command::Lose {
            nodes: nodes.clone(),
            at: now,
        };
        if self.execute(now, &lose).is_none() {
            return;
        }
        let version = self.control.version;
        for (node, incarnation) in nodes {
            self.forget(node);
            self.receipts.withhold(node, incarnation, version);
            self.withheld += 1;
        }
    }

    /// Forgets what a process said of itself.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.membership.forget_applied(node);
        self.taken.remove(&node);
    }

    /// Whether the controller refuses to give up the copy of a process: it runs, and only receives no plans.
    pub(in crate::nemesis) fn keeps(&self, now: Timestamp, node: NodeId, incarnation: u32) -> bool {
        let is_silent = self.membership.is_silent(now, node, incarnation);
        self.receipts.is_withheld(node, incarnation) && !is_silent
    }
}
