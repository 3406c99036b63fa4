//! The invariants of the controller's state, checked after every step of a test.

use crate::migration::Migration;
use crate::state::{AppState, Control};
use e3_model::NodeId;
use e3_model::plan::ShardPlan;
use std::collections::BTreeSet;

impl Control {
    /// Panics if an invariant is violated.
    pub fn validate(&self) {
        self.validate_index();
        let servers = self.servers();
        self.validate_nodes();
        for app in self.apps.values() {
            let services = app.plan.app.spec.services.iter();
            let shards: usize = services.map(|s| usize::from(s.shards)).sum();
            assert_eq!(app.plan.shards.len(), shards, "every shard once");
            for shard in &app.plan.shards {
                self.validate_shard(app, shard, &servers);
            }
        }
    }

    /// Whoever is a member, drained or cordoned is in the topology, and who was removed is not.
    fn validate_nodes(&self) {
        let nodes: BTreeSet<NodeId> = self.topology.nodes().map(|n| n.id).collect();
        assert_eq!(nodes.len(), self.topology.nodes_count(), "every id once");
        let named = self.members.keys().chain(&self.drained);
        for node in named.chain(&self.cordoned).chain(self.returned.keys()) {
            assert!(nodes.contains(node), "{node} is not in the topology");
        }
        for node in self.removed.keys() {
            assert!(!nodes.contains(node), "{node} was removed");
        }
        assert!(
            self.drained.is_disjoint(&self.cordoned),
            "both drained and cordoned"
        );
    }

    fn validate_shard(&self, app: &AppState, s: &ShardPlan, servers: &[usize]) {
        let key = app.plan.key(s);
        assert!(
            s.incarnation <= s.view,
            "{key}: its incarnation is newer than its view"
        );
        let moving = app.migrations.iter().find(|m| m.key == key);
        let waits = !self.waits_for(app, s).is_empty();
        let heard = s.backups.iter().any(|n| self.is_up(*n));
        assert!(!waits || !heard, "{key}: waits beside a complete copy");
        let mut used = BTreeSet::new();
        let staying: Vec<NodeId> = s.staying().chain(s.joining.iter().copied()).collect();
        for node in [&s.primary].into_iter().chain(&staying) {
            // Two copies on one server only while one replaces the other.
            let replaces = moving.is_some_and(|m| m.to == *node || m.from == *node);
            let apart = used.insert(servers[node.index()]);
            assert!(
                apart || replaces,
                "{key}: two replicas in one fault domain: {s:?}"
            );
            let orphan = *node == s.primary && app.is_orphan(s);
            assert!(
                orphan || waits || self.is_up(*node),
                "{key}: replica on silent node {node}"
            );
        }
        let service = app.plan.app.service(s.service);
        let replicas = 1 + staying.len();
        // A version with fewer may come while one moves; the others leave after that.
        assert!(
            waits || moving.is_some() || replicas <= usize::from(service.replicas),
            "{key}: {replicas} replicas"
        );
        assert!(!s.leaving.contains(&s.primary), "{key}: its primary leaves");
        let at_both_ends =
            |m: &Migration| s.role(m.from).is_some() && s.role(m.to).is_some() && m.from != m.to;
        assert!(
            moving.is_none_or(at_both_ends),
            "{key}: migrates between nodes without a replica"
        );
        assert!(
            moving.is_none_or(|m| !self.drained.contains(&m.to)),
            "{key}: moves to a drained node"
        );
        let is_waiting = app.is_restoring(key) && !app.is_orphan(s);
        let frozen =
            moving.is_some_and(Migration::is_frozen) || app.is_resharding(key) || is_waiting;
        assert_eq!(s.frozen, frozen, "{key}: frozen");
    }
}
