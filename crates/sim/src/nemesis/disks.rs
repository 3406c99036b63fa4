//! Faults of the disks of nodes, and what remains promised for each.
//!
//! - Slow, full, torn by a power cut, or a sync that fails: nothing that was acknowledged is lost.
//! - A flipped bit is found at the next start. The node has no copy then: the others go on, and it is
//!   brought up to date. If it had the last copy of a shard, its process is refused, and the shard waits
//!   until an operator gives up its state.
//! - Confirmed writes that a power cut loses leave no trace on the disk. Nothing is lost if another
//!   complete copy runs, and goes on running until the node is up to date: see [`known`].

use super::Run;
use crate::scenario::{Fault, known};
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::BTreeMap;

/// How long an operator takes to give up what waits for a damaged journal.
const OPERATOR_DELAY: Nanos = Nanos::from_secs(2);

/// When a process is started again that has ended itself.
const RESTARTED_AFTER: Nanos = Nanos::from_millis(50);

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It is killed.
    Kill,
    /// The power fails: what is not durable on its disk may be gone.
    PowerCut,
    /// It ends itself, since a sync of its disk has failed.
    SyncFails,
    /// It is killed, and its journal is damaged.
    Rot,
}

impl Run<'_> {
    /// Cuts the power of the nodes that are to lose it during a write.
    pub(super) fn tear_writes(&mut self) {
        let tears = std::mem::take(&mut self.tears);
        let (due, later) = tears
            .into_iter()
            .partition(|node| self.cluster.is_writing(*node));
        self.tears = later;
        let due: Vec<u32> = due;
        for node in due {
            self.end_process(node, End::PowerCut);
        }
    }

    /// Lets the syncs fail that are to, and ends the processes, which start again.
    pub(super) fn fail_syncs(&mut self) {
        let waiting = std::mem::take(&mut self.sync_failures);
        let (due, later) = waiting
            .into_iter()
            .partition(|node| self.cluster.is_writing(*node));
        self.sync_failures = later;
        let due: Vec<u32> = due;
        for node in due {
            self.end_process(node, End::SyncFails);
            self.revivals
                .push((self.cluster.now + RESTARTED_AFTER, node));
        }
    }

    /// Cuts the power of a node, whose disk loses what it only confirmed if others can make up for it.
    pub(super) fn cut_power(&mut self, node: u32) {
        if !self.can_lose_writes(node) {
            self.cluster.settle_disk(node);
        }
        self.cluster.cut_power(node);
    }

    /// Cuts the power of a node whose disk lies. It restarts at once.
    pub(super) fn lose_writes(&mut self, node: u32) {
        self.end_process(node, End::PowerCut);
        // Where the power was not cut, what was confirmed becomes true.
        self.cluster.settle_disk(node);
        self.cluster.let_disk_lie(node, false);
        self.revive(node);
    }

    /// Whether another complete copy of each shard on the node's disk runs, is heard and reached, and no fault
    /// ends or hides one before the node is up to date again.
    fn can_lose_writes(&self, node: u32) -> bool {
        let now_ms = self.begin.until(self.cluster.now).as_millis();
        let control = self.controller.decided();
        let me = NodeId(node);
        let runs = |other: NodeId, key| {
            let member = control.members.get(&other);
            let is_member = |m: &e3_control::Member| {
                m.up && self.cluster.incarnation(other.0) == Some(m.incarnation)
            };
            other != me
                && member.is_some_and(is_member)
                && self.cluster.state(other.0, key).is_some()
        };
        let mut apps = control.apps.values();
        let has_others = apps.all(|app| {
            let mut shards = app.plan.shards.iter();
            shards.all(|shard| {
                let key = app.plan.key(shard);
                let service = app.plan.app.service(shard.service);
                let mut others = std::iter::once(shard.primary).chain(shard.staying());
                !service.is_on_disk() || !shard.keeps(me) || others.any(|n| runs(n, key))
            })
        });
        // Shards that are merged say nothing of what is missing. docs/design/010.
        let mut plans = control.apps.values().map(|app| &app.plan);
        let may_merge = plans.any(|plan| plan.shards.iter().any(|s| s.frozen && s.quiet));
        // A primary that counts as cut off is replaced, perhaps by the node before it is up to date.
        let unreachable = |node: u32| self.cluster.worker(node).map(|w| w.unreachable());
        let mut reached = (0..self.scenario.nodes_max()).filter_map(unreachable);
        let mut members = control.members.values();
        let is_cut = members.any(|m| !m.unreachable.is_empty()) || reached.any(|u| !u.is_empty());
        let may_hide = known::may_hide_losses(self.scenario, node, now_ms);
        has_others && !may_merge && !is_cut && !may_hide
    }

    /// Checks that no process takes what a power cut left for damage: the copies on the disk would be lost.
    pub(super) fn check_damage(&mut self) {
        let damages = |fault: &Fault, node: u32| match fault {
            Fault::NodeBitRot(it) | Fault::NodeLostWrites(it) => *it == node,
            _ => false,
        };
        let script = &self.scenario.script;
        let is_sound = |node: &u32| !script.iter().any(|act| damages(&act.fault, *node));
        let wrong = self.cluster.found_damaged().find(is_sound);
        if let Some(node) = wrong {
            self.violation(format!(
                "the process of node {node} finds its journal damaged, and no fault damaged it"
            ));
        }
    }

    /// The operator gives up the shards whose last copy is in a damaged journal.
    pub(super) fn give_up_damaged(&mut self) {
        let now = self.cluster.now;
        let mut waiting = BTreeMap::new();
        for node in self.controller.refused_damaged() {
            let since = self.damaged.get(&node).copied().unwrap_or(now);
            waiting.insert(node, since);
        }
        self.damaged = waiting;
        let is_due = |since: &Timestamp| *since + OPERATOR_DELAY <= now;
        let due = self.damaged.iter().filter(|(_, since)| is_due(since));
        let due: Vec<u32> = due.map(|(node, _)| *node).collect();
        for node in due {
            self.give_up_last_of(NodeId(node));
        }
    }
}
