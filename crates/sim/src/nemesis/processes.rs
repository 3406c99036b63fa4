//! How the processes of nodes end and start, and what is lost with them.

use super::Run;
use super::disks::End;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};

/// How long a process is away that is killed after the fault that it belongs to: its shards fail over meanwhile.
const KILLED_FOR: Nanos = Nanos::from_secs(1);

impl Run<'_> {
    /// Kills a process; whether it was running and is not spared.
    pub(super) fn kill_one(&mut self, node: u32) -> bool {
        self.end_process(node, End::Kill)
    }

    /// Ends a process; whether it was running and is not spared. Its supervisor tells the controller.
    pub(super) fn end_process(&mut self, node: u32, end: End) -> bool {
        let killed = self.kill(&[node], end);
        let has_ended = !killed.is_empty();
        self.tell_of_end(node, killed);
        has_ended
    }

    fn tell_of_end(&mut self, node: u32, killed: Vec<u64>) {
        for process in killed {
            self.controller.on_ended(&mut self.cluster, node, process);
        }
    }

    /// Kills running processes and records what is lost for good; gives their process numbers. Where
    /// the scenario spares the last copies of replicated shards, it kills no process that has one.
    pub(super) fn kill(&mut self, nodes: &[u32], end: End) -> Vec<u64> {
        let lost = self.last_copies(nodes, end == End::Rot);
        let is_replicated = |key: &ShardKey| {
            let app = &self.controller.decided().apps[&key.app];
            app.plan.app.service(key.service).replicas > 1
        };
        if self.scenario.spares_last_copies && lost.iter().any(is_replicated) {
            return Vec::new();
        }
        self.kill_with(nodes, end, lost)
    }

    /// Kills running processes, with which these last copies are lost; gives their process numbers.
    fn kill_with(&mut self, nodes: &[u32], end: End, lost: Vec<ShardKey>) -> Vec<u64> {
        for key in lost {
            let app = &self.controller.decided().apps[&key.app];
            let service = app.plan.app.service(key.service);
            // What is on disk is lost only if an operator gives it up.
            if !service.is_on_disk() {
                let of = service.shards;
                self.cluster.ledger.on_forfeited(key, of, self.cluster.now);
            }
        }
        let mut killed = Vec::new();
        for node in nodes {
            killed.extend(self.agents.kill(*node));
            match end {
                End::PowerCut => self.cut_power(*node),
                End::SyncFails => {
                    self.cluster.fail_sync(*node);
                    self.cluster.kill(*node);
                }
                End::Kill | End::Rot => self.cluster.kill(*node),
            }
        }
        if end == End::Rot && !killed.is_empty() {
            for node in nodes {
                self.cluster.rot_disk(*node);
            }
        }
        killed
    }

    /// Restarts a node's process with its clock off by so much.
    pub(super) fn restart_with(&mut self, node: u32, offset_ms: i64) {
        self.agents.set_wall_offset_ms(node, offset_ms);
        self.kill_one(node);
        self.revive(node);
    }

    /// Restarts a node's process with the right clock. One with a wrong clock ends even if it has the last
    /// copy of a shard: it would never serve it.
    pub(super) fn set_clock_right(&mut self, node: u32) {
        if self.cluster.has_wrong_clock(node) {
            let lost = self.last_copies(&[node], false);
            let killed = self.kill_with(&[node], End::Kill, lost);
            self.tell_of_end(node, killed);
        }
        self.restart_with(node, 0);
    }

    /// Starts the process of a node that the cluster has, if it does not run.
    pub(super) fn revive(&mut self, node: u32) {
        if self.has_node(node) && !self.agents.is_up(node) {
            self.start_node(node);
            let stands = self.pauses.get(&node).is_some_and(|count| *count > 0);
            self.agents.pause(node, stands);
        }
    }

    /// Kills a node within a time, and gives the moment.
    pub(super) fn kill_within(&mut self, ms: u64, node: u32) -> Timestamp {
        let at = self.cluster.now + Nanos::from_millis(1 + self.random.below(ms));
        self.kills.push((at, node));
        at
    }

    /// Starts the nodes whose time has come to return.
    pub(super) fn revive_late(&mut self) {
        let now = self.cluster.now;
        let (due, later) = std::mem::take(&mut self.revivals)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.revivals = later;
        for (_, node) in due {
            self.revive(node);
        }
    }

    /// Carries out the kills that follow other faults. If the fault is over, nothing else starts the process
    /// again.
    pub(super) fn kill_late(&mut self) {
        let now = self.cluster.now;
        let (due, later) = std::mem::take(&mut self.kills)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.kills = later;
        for (_, node) in due {
            if self.kill_one(node) && !self.active.iter().any(|act| act.fault.may_revive(node)) {
                self.revivals.push((now + KILLED_FOR, node));
            }
        }
    }

    /// The shards with state in memory only, or also those on disk, whose last complete copies are on
    /// these nodes.
    fn last_copies(&self, nodes: &[u32], on_disk_too: bool) -> Vec<ShardKey> {
        let control = self.controller.decided();
        let holds = |node: &NodeId, plan: &AppPlan, shard: &ShardPlan| {
            let member = control.members.get(node);
            // What the shard was made of, if the node has not made it yet.
            let made_of = plan.made_of(shard).unwrap_or_default().into_iter();
            let mut all = made_of.map(|(key, _)| key);
            member.is_some_and(|m| self.cluster.incarnation(node.0) == Some(m.incarnation))
                && (self.cluster.state(node.0, plan.key(shard)).is_some()
                    || all.len() > 0 && all.all(|key| self.cluster.state(node.0, key).is_some()))
        };
        let mut last = Vec::new();
        for app in control.apps.values() {
            for shard in &app.plan.shards {
                let key = app.plan.key(shard);
                let copies = |s: &ShardPlan| -> Vec<NodeId> {
                    let all = [s.primary].into_iter().chain(s.backups.iter().copied());
                    all.filter(|n| holds(n, &app.plan, s)).collect()
                };
                let copies = copies(shard);
                let service = app.plan.app.service(shard.service);
                // A shard that waits for its state begins with it again.
                let counts = service.stateful
                    && (on_disk_too || !service.is_on_disk())
                    && !app.is_restoring(key);
                let is_hit = |n: &NodeId| nodes.contains(&n.0);
                if counts && copies.iter().any(is_hit) && copies.iter().all(is_hit) {
                    last.push(key);
                }
            }
        }
        last
    }
}
