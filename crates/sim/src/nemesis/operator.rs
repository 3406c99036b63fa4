//! The operator: drains nodes, scales services, rolls versions back, and gives up the state of shards
//! that wait for silent nodes. A silent node is not always dead, so later effects at its copies are
//! lost too; the reference model records both losses.

use super::Run;
use crate::scenario::{Act, Fault, app_id};
use e3_control::Command;
use e3_model::{Nanos, NodeId, ServiceId, ShardKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Most copies that a service is scaled to.
const REPLICAS_MAX: u64 = 3;

/// What the operator knows.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// The shards that wait, and since when.
    waiting: BTreeMap<ShardKey, Timestamp>,
    given_up: Vec<GivenUp>,
}

/// A copy whose state was given up, in a process that may not know it yet.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    key: ShardKey,
    /// Shards of its service then.
    of: u16,
    node: NodeId,
    incarnation: u32,
    /// The first plan that says so.
    version: u64,
}

impl Run<'_> {
    /// Drains the nodes that faults in progress drain, and resumes the others, as soon as the
    /// controller takes it.
    pub(super) fn drain(&mut self) {
        let node = |act: &Act| match act.fault {
            Fault::Drain(node) => Some(NodeId(node)),
            _ => None,
        };
        let mut wanted: BTreeSet<NodeId> = self.active.iter().filter_map(node).collect();
        wanted.extend(self.to_remove());
        let drained = self.controller.control.drained.clone();
        let now = self.cluster.now;
        for node in wanted.difference(&drained).copied() {
            self.controller.execute(now, &Command::Drain { node });
        }
        for node in drained.difference(&wanted).copied() {
            self.controller.execute(now, &Command::Resume { node });
        }
    }

    /// Scales a service. One that is replicated stays so: kills spare the last copies of its shards.
    pub(super) fn scale(&mut self, choice: u64) {
        let mut random = e3_random::Random::new(choice);
        let at = random.index(self.scenario.apps.len());
        let services = (0..).zip(&self.scenario.apps[at].services);
        let stateful: Vec<(u16, u16)> = services
            .filter(|(_, s)| s.stateful)
            .map(|(service, s)| (service, s.replicas))
            .collect();
        let (service, replicas) = *random.pick(&stateful);
        let min = u64::from(replicas.min(2));
        let scale = Command::Scale {
            app: app_id(at),
            service: ServiceId(service),
            replicas: (min + random.below(REPLICAS_MAX + 1 - min)) as u16,
        };
        self.controller.execute(self.cluster.now, &scale);
    }

    /// Updates an application from a version that counts as started, and goes back.
    pub(super) fn rollback(&mut self, at: usize) {
        let (now, app) = (self.cluster.now, app_id(at));
        let version = |run: &Run<'_>| {
            let state = run.controller.control.apps.get(&app);
            state.map_or(0, |state| state.plan.code_version)
        };
        let code_version = version(self);
        if !self.is_stuck(app) {
            let started = Command::Started { app, code_version };
            self.controller.execute(now, &started);
        }
        self.update(at);
        let rollback = Command::Rollback {
            app,
            code_version: version(self),
            why: None,
            at: now,
        };
        self.controller.execute(now, &rollback);
    }

    pub(super) fn give_up_waiting(&mut self) {
        self.note_given_up();
        let now = self.cluster.now;
        let patience = |act: &Act| match act.fault {
            Fault::Forget(ms) => Some(Nanos::from_millis(ms)),
            _ => None,
        };
        let Some(patience) = self.active.iter().filter_map(patience).min() else {
            return self.operator.waiting.clear();
        };
        let control = &self.controller.control;
        let mut waiting = BTreeMap::new();
        for app in control.apps.values() {
            let shards = app.plan.shards.iter();
            for shard in shards.filter(|s| !control.waits_for(app, s).is_empty()) {
                let key = app.plan.key(shard);
                let since = self.operator.waiting.get(&key).copied();
                waiting.insert(key, since.unwrap_or(now));
            }
        }
        let due = waiting
            .iter()
            .filter(|(_, since)| **since + patience <= now);
        let due: Vec<ShardKey> = due.map(|(key, _)| *key).collect();
        self.operator.waiting = waiting;
        for key in due {
            self.give_up(key);
        }
    }

    /// Gives up the shards that wait for a node only.
    pub(super) fn give_up_last_of(&mut self, node: NodeId) {
        let control = &self.controller.control;
        let apps = control.apps.values();
        let waiting = apps.flat_map(|app| {
            let shards = app.plan.shards.iter();
            let waiting = shards.filter(|s| control.waits_for(app, s) == [node]);
            waiting.map(|s| app.plan.key(s))
        });
        let waiting: Vec<ShardKey> = waiting.collect();
        for key in waiting {
            self.give_up(key);
        }
    }

    fn give_up(&mut self, key: ShardKey) {
        let control = &self.controller.control;
        let app = &control.apps[&key.app];
        let Some(shard) = app.shard(key) else {
            return;
        };
        let view = shard.view + 1;
        let copies = control.waits_for(app, shard).into_iter();
        let copies: Vec<(NodeId, u32)> = copies
            .map(|node| (node, control.members[&node].incarnation))
            .collect();
        let now = self.cluster.now;
        if copies
            .iter()
            .any(|(node, of)| self.controller.keeps(now, *node, *of))
        {
            return;
        }
        let forget = Command::Forget { key, at: now };
        let of = app.plan.app.service(key.service).shards;
        let done = self.controller.execute(now, &forget);
        // A torn write may have been written.
        if done.is_none() && !self.controller.is_torn() {
            return;
        }
        let version = self.controller.control.version + u64::from(done.is_none());
        self.cluster.ledger.on_given_up(key, of, view, now);
        let given_up = copies.into_iter().map(|(node, incarnation)| GivenUp {
            key,
            of,
            node,
            incarnation,
            version,
        });
        self.operator.given_up.extend(given_up);
    }

    /// Records as lost the effects at given-up copies whose nodes do not know it yet.
    fn note_given_up(&mut self) {
        let (now, cluster) = (self.cluster.now, &mut self.cluster);
        self.operator.given_up.retain(|copy| {
            cluster.ledger.on_forfeited(copy.key, copy.of, now);
            let node = copy.node.0;
            let lives = cluster.incarnation(node) == Some(copy.incarnation);
            let plan = cluster.worker(node).map(|w| w.plan_version());
            lives && plan.is_some_and(|version| version < copy.version)
        });
    }
}
