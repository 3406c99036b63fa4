//! Applying plans: the worker's side of the controller's decisions.

use crate::app::App;
use crate::replica::{Counts, Replica};
use crate::worker::{Output, Worker};
use e3_model::plan::{AppPlan, NodePlan, Role, ShardPlan};
use e3_model::{AppId, ShardKey, Timestamp};
use e3_wire::frame::Ends;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Worker {
    /// Brings the worker to the plan. Older plans and those of other clusters are ignored.
    pub fn handle_plan(&mut self, now: Timestamp, plan: Arc<NodePlan>) {
        self.now = now;
        let other = plan.cluster != self.config.cluster || plan.node != self.config.node;
        if other || plan.version <= self.plan.version {
            return;
        }
        self.plan = plan.clone();
        self.links.packer.peers = plan.peers.clone();
        let wanted: BTreeSet<AppId> = plan.apps.iter().map(|a| a.id).collect();
        let gone: Vec<AppId> = self
            .apps
            .keys()
            .filter(|a| !wanted.contains(a))
            .copied()
            .collect();
        for app in gone {
            self.delete_app(app);
        }
        for app in &plan.apps {
            self.apply_app(now, app);
        }
        self.reroute();
        self.advance_all(now);
    }

    fn delete_app(&mut self, app: AppId) {
        let keys: Vec<ShardKey> = self
            .replicas
            .keys()
            .filter(|k| k.app == app)
            .copied()
            .collect();
        for key in keys {
            self.drop_replica(key);
        }
        self.past.retain(|key, _| key.app != app);
        self.apps.remove(&app);
        self.ingress.delete(app);
        self.links.drop_senders(|(a, _)| *a == app);
        self.links.drop_receivers(|(a, _)| *a == app);
    }

    fn apply_app(&mut self, now: Timestamp, plan: &AppPlan) {
        let Some(app) = App::new(plan.clone()) else {
            *self.dropped.entry("plan").or_default() += 1;
            return;
        };
        let before = self.apps.insert(plan.id, app);
        for shard in &plan.shards {
            self.apply_shard(now, plan.key(shard), shard);
        }
        if before.is_some_and(|b| b.plan.code_version != plan.code_version) {
            self.start_failed_again(plan.id);
        }
    }

    /// Another version may start where the one before could not, which is all that keeps a primary
    /// from running.
    fn start_failed_again(&mut self, app: AppId) {
        let is_primary = |r: &&mut Replica| r.key.app == app && r.role == Role::Primary;
        let primaries = self.replicas.values_mut().filter(is_primary);
        for replica in primaries.filter(|r| r.error.is_some()) {
            replica.error = None;
            self.outputs.push_back(Output::Start {
                key: replica.key,
                state: replica.log.state.clone(),
            });
        }
    }

    fn apply_shard(&mut self, now: Timestamp, key: ShardKey, shard: &ShardPlan) {
        let wanted = shard.role(self.config.node);
        let have = self.replicas.get(&key).map(|r| (r.role, r.incarnation));
        match (have, wanted) {
            (None, None) => {}
            (Some(_), None) => self.drop_replica(key),
            (Some((Role::Primary, i)), Some(Role::Primary)) if i == shard.incarnation => {
                self.update_primary(key, shard);
            }
            (Some((Role::Backup | Role::Joining, _)), Some(Role::Primary)) => {
                let serve_at = self.serve_at(now, key, shard);
                let replica = self.replicas.get_mut(&key).expect("it is there");
                replica.view = shard.view;
                replica.incarnation = shard.incarnation;
                self.drop_ends(key);
                self.promote(key, serve_at);
                self.update_primary(key, shard);
            }
            (Some((Role::Backup | Role::Joining, _)), Some(role)) => {
                let replica = self.replicas.get_mut(&key).expect("it is there");
                replica.role = role;
                replica.view = shard.view;
                replica.incarnation = shard.incarnation;
                replica.former.insert(shard.primary);
            }
            (_, Some(role)) => {
                // New here, or a primary that was replaced: what it had is not the shard's state.
                if have.is_some() {
                    self.drop_replica(key);
                }
                let collections = self.apps[&key.app].collections(key);
                let mut replica =
                    Replica::new(key, role, shard.view, shard.incarnation, collections);
                replica.former.insert(shard.primary);
                replica.counts = self.past.remove(&key).unwrap_or_default();
                self.replicas.insert(key, replica);
                if role == Role::Primary {
                    let serve_at = self.serve_at(now, key, shard);
                    self.promote(key, serve_at);
                    self.update_primary(key, shard);
                }
            }
        }
    }

    /// When a new primary may begin: when its promises to all primaries that it knew have run out.
    /// That is enough, since each of them needs the promises of all its backups.
    fn serve_at(&mut self, now: Timestamp, key: ShardKey, shard: &ShardPlan) -> Timestamp {
        if shard.fenced {
            return now;
        }
        let former = self
            .replicas
            .get(&key)
            .map(|r| r.former.clone())
            .unwrap_or_default();
        former
            .into_iter()
            .chain(shard.predecessor)
            .filter(|p| *p != self.config.node)
            .map(|p| self.leases.succeed(now, p, self.plan.version))
            .fold(now, Timestamp::max)
    }

    /// Brings a primary's backups to the view.
    fn update_primary(&mut self, key: ShardKey, shard: &ShardPlan) {
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        replica.view = shard.view;
        replica.primary.frozen = shard.frozen;
        let wanted: BTreeSet<_> = shard
            .backups
            .iter()
            .chain(&shard.joining)
            .copied()
            .collect();
        let gone: Vec<_> = replica
            .primary
            .backups
            .keys()
            .filter(|n| !wanted.contains(n))
            .copied()
            .collect();
        for node in gone {
            replica.primary.backups.remove(&node);
            let ends = Ends::Replication {
                service: key.service,
                shard: key.shard,
                backup: node,
            };
            self.links.drop_senders(|k| *k == (key.app, ends));
        }
        for node in wanted {
            let required = shard.backups.contains(&node);
            match self
                .replicas
                .get_mut(&key)
                .and_then(|r| r.primary.backups.get_mut(&node))
            {
                Some(backup) => backup.required |= required,
                None => self.add_backup(self.now, key, node, required, None),
            }
        }
        self.advance(key, self.now);
    }

    fn drop_replica(&mut self, key: ShardKey) {
        let Some(replica) = self.replicas.remove(&key) else {
            return;
        };
        let counts = Counts {
            last_failure: None,
            ..replica.counts
        };
        if counts != Counts::default() {
            self.past.insert(key, counts);
        }
        self.drop_ends(key);
        if replica.role == Role::Primary {
            self.outputs.push_back(Output::Stop { key });
        }
    }

    /// Drops all channel ends of a replica.
    fn drop_ends(&mut self, key: ShardKey) {
        let Some(app) = self.apps.get(&key.app) else {
            return;
        };
        let dag = &app.dag;
        let is_replication = |ends: &Ends| {
            matches!(ends, Ends::Replication { service, shard, .. }
            if *service == key.service && *shard == key.shard)
        };
        self.links.drop_senders(|(a, ends)| {
            *a == key.app
                && (is_replication(ends)
                    || matches!(ends, Ends::Edge { edge, from, .. }
                        if *from == key.shard && dag.sender(*edge) == Some(key.service)))
        });
        self.links.drop_receivers(|(a, ends)| {
            *a == key.app
                && (is_replication(ends)
                    || match ends {
                        Ends::Ingress { shard, .. } => {
                            *shard == key.shard && dag.source() == key.service
                        }
                        Ends::Edge { edge, to, .. } => {
                            *to == key.shard && dag.receiver(*edge) == Some(key.service)
                        }
                        Ends::Replication { .. } => false,
                    })
        });
        self.inputs.remove(&key);
    }

    /// Points all channels to where their receivers are now.
    fn reroute(&mut self) {
        let keys: Vec<_> = self.links.senders.keys().copied().collect();
        for (app_id, ends) in keys {
            let Some(app) = self.apps.get(&app_id) else {
                continue;
            };
            let (service, shard) = match ends {
                Ends::Ingress { shard, .. } => (Some(app.dag.source()), shard),
                Ends::Edge { edge, to, .. } => (app.dag.receiver(edge), to),
                Ends::Replication { .. } => continue,
            };
            let Some(service) = service else { continue };
            let route = app.route(ShardKey {
                app: app_id,
                service,
                shard,
            });
            self.links
                .reroute((app_id, ends), route.primary, route.incarnation);
        }
    }

    /// Requests that wait on this node.
    pub fn queue_len(&self) -> u32 {
        let waiting = |r: &Replica| r.primary.queue.len() + r.primary.in_flight.len();
        self.replicas.values().map(waiting).sum::<usize>() as u32
    }

    /// Requests admitted here that have no answer yet.
    pub fn under_way(&self) -> u32 {
        self.ingress.under_way()
    }

    /// Version of the plan that is applied.
    pub fn plan_version(&self) -> u64 {
        self.plan.version
    }

    /// The plan that is applied.
    pub fn plan(&self) -> &Arc<NodePlan> {
        &self.plan
    }
}
