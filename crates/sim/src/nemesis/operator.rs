//! The operator: gives up the state of shards that wait for silent nodes. A silent node is not always
//! dead, so later effects at its copies are lost too; the reference model records both losses.

use super::Run;
use crate::scenario::{Act, Fault};
use e3_control::Command;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

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

    fn give_up(&mut self, key: ShardKey) {
        let control = &self.controller.control;
        let app = &control.apps[&key.app];
        let copies = app.shard(key).map(|s| control.waits_for(app, s));
        let copies = copies.unwrap_or_default().into_iter();
        let copies: Vec<(NodeId, u32)> = copies
            .map(|node| (node, control.members[&node].incarnation))
            .collect();
        let now = self.cluster.now;
        let forget = Command::Forget { key, at: now };
        if self.controller.execute(now, &forget).is_none() {
            return;
        }
        let control = &self.controller.control;
        let app = &control.apps[&key.app];
        let era = app.shard(key).map_or(0, |s| s.era);
        let of = app.plan.app.service(key.service).shards;
        self.cluster.ledger.on_given_up(key, of, era, now);
        let given_up = copies.into_iter().map(|(node, incarnation)| GivenUp {
            key,
            of,
            node,
            incarnation,
            version: control.version,
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
