//! Applying plans: the worker's side of the controller's decisions.

use super::{Hosted, Output, Worker};
use crate::app::{App, ReplicaId};
use crate::links::Tag;
use crate::publications::Subscribers;
use crate::replica::Replica;
use crate::shard::{Counts, Shard};
use e3_collections::State;
use e3_model::backup::Part;
use e3_model::plan::{AppPlan, NodePlan, Role, ShardPlan};
use e3_model::timing::LEASE;
use e3_model::{AppId, DropReason, ShardKey, Timestamp};
use e3_wire::frame::{Ends, Link};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

impl Worker {
    /// Brings the worker to the plan. Older plans and those of other clusters are ignored. A later
    /// one of the same version has other applications.
    pub fn handle_plan(&mut self, now: Timestamp, plan: Arc<NodePlan>) {
        self.world.now = now;
        let config = &self.world.config;
        let other = plan.cluster != config.cluster || plan.node != config.node;
        let number = |plan: &NodePlan| (plan.version, plan.revision);
        if other || number(&plan) <= number(&self.world.plan) {
            return;
        }
        // The controller raises the format only when every member can write the new one.
        if !config.formats.include(plan.format) {
            return self.drop_for(DropReason::Plan);
        }
        self.packer.set_format(plan.format);
        self.end_asks(&plan);
        self.world.plan = plan.clone();
        self.world.subscribers = Subscribers::new(&plan.apps);
        let before = std::mem::replace(&mut self.packer.peers, plan.peers.clone());
        for (node, peer) in before {
            let runs = plan.peers.get(&node).map(|p| p.incarnation);
            if runs != Some(peer.incarnation) {
                self.world.leases.forget(node);
            }
        }
        let wanted: BTreeSet<AppId> = plan.apps.iter().map(|a| a.id).collect();
        let have: BTreeSet<AppId> = self.world.apps.keys().copied().collect();
        for app in have.difference(&wanted) {
            let is_deleted = !plan.directory.contains_key(app);
            if is_deleted || !self.interest.has(*app) {
                self.delete_app(*app);
            } else {
                // The agent asks for it. Until the answer comes, its routes stay as they were.
                self.drop_replicas(*app);
            }
        }
        if !plan.directory.is_empty() {
            let directory = &plan.directory;
            self.past.retain(|key, _| directory.contains_key(&key.app));
        }
        self.check_clock();
        for app in &plan.apps {
            self.apply_app(app);
        }
        self.world.leases.on_plan(plan.version);
        self.drop_recovered();
        self.wake_all();
        self.ask_again();
        self.take_held();
        // Before the first data of new streams, which are taken under a lease only.
        self.request_leases();
    }

    /// Ends what this node asks for shards of which it is no longer the primary, or again in another
    /// incarnation: the next primary asks for itself.
    fn end_asks(&mut self, plan: &NodePlan) {
        let me = self.world.config.node;
        let apps: BTreeMap<AppId, &AppPlan> = plan.apps.iter().map(|a| (a.id, a)).collect();
        let goes_on = |shard: &Shard| {
            let app = apps.get(&shard.key.app);
            let mut shards = app.into_iter().flat_map(|a| &a.shards);
            shards.any(|s| {
                s.id() == (shard.key.service, shard.key.shard)
                    && (s.primary, s.incarnation) == (me, shard.incarnation)
            })
        };
        let hosted = self.replicas.iter().map(|(_, h)| &h.replica);
        let primaries = hosted.filter(|r| r.as_primary().is_some());
        let ended = primaries.filter(|r| !goes_on(&r.shard));
        let ended = ended.map(|r| r.shard.key).collect();
        self.ingress.end_asks(&ended);
        self.end_asks_of(&ended);
    }

    fn drop_replicas(&mut self, id: AppId) {
        for replica in self.replicas_of(id) {
            self.drop_replica(replica);
        }
    }

    /// Forgets an application. What was done here as the primary of its shards stays in reports if it
    /// only concerns this node no longer.
    pub(super) fn delete_app(&mut self, id: AppId) {
        self.drop_replicas(id);
        if !self.world.plan.directory.contains_key(&id) {
            self.past.retain(|key, _| key.app != id);
        }
        self.world.apps.remove(&id);
        self.ingress.delete(id);
        self.links.delete_app(id);
    }

    fn replicas_of(&self, id: AppId) -> Vec<ReplicaId> {
        let app = self.world.apps.get(&id);
        app.map_or_else(Vec::new, |app| app.replicas().collect())
    }

    fn apply_app(&mut self, plan: &AppPlan) {
        let Some(mut app) = App::new(plan.clone()) else {
            return self.drop_for(DropReason::Plan);
        };
        let made = self.reshard(&app.plan);
        for id in self.replicas_of(plan.id) {
            let hosted = self.replicas.get(id.at());
            match hosted.map(|h| h.replica.shard.key) {
                Some(key) if app.has(key) => app.set_replica(key, Some(id)),
                _ => self.drop_replica(id),
            }
        }
        let (before, ingress) = (self.world.apps.get(&plan.id), &mut self.ingress);
        self.links.reroute(before, &app, |tag| match tag {
            Tag::Request(app, id) => !ingress.give_up((*app, *id)),
            Tag::None | Tag::Output(..) | Tag::Replicated(..) => true,
        });
        let before = self.world.apps.insert(plan.id, app);
        for replica in made {
            self.host(replica);
        }
        for shard in &plan.shards {
            self.apply_shard(plan.key(shard), shard);
        }
        if before.is_some_and(|b| b.plan.code_version != plan.code_version) {
            self.start_failed_again(plan.id);
        }
    }

    /// Another version may start where the one before could not, which is all that keeps a primary
    /// from running.
    fn start_failed_again(&mut self, app: AppId) {
        for id in self.replicas_of(app) {
            if let Some(hosted) = self.replicas.get_mut(id.at()) {
                hosted.replica.start_again(&mut self.effects);
                self.route(id);
            }
        }
    }

    pub(super) fn apply_shard(&mut self, key: ShardKey, shard: &ShardPlan) {
        let me = self.world.config.node;
        let keeps = shard.keeps(me);
        let awaited = self.awaited_part(key, shard);
        let awaited = awaited.filter(|_| shard.role(me) == Some(Role::Primary));
        let wanted = match awaited {
            Some(_) => Some(Role::Joining),
            None => shard.role(me).or(keeps.then_some(Role::Joining)),
        };
        let id = self.find(key);
        if let Some(hosted) = id.and_then(|id| self.replicas.get_mut(id.at()))
            && shard.view > hosted.replica.shard.view + 1
        {
            hosted.replica.follow_unheard(self.world.leases.ahead());
        }
        let have = id.and_then(|id| {
            let replica = &self.replicas.get(id.at())?.replica;
            Some((id, replica.role(), replica.shard.incarnation, replica.era))
        });
        let have = match have {
            // The shard has begun empty since: what is here is none of its state.
            Some((id, .., era)) if era != shard.era => {
                self.drop_replica(id);
                None
            }
            have => have.map(|(id, role, incarnation, _)| (id, role, incarnation)),
        };
        let stateful = self.world.apps[&key.app].service(key).stateful;
        match (have, wanted) {
            (None, None) => {}
            (Some((id, ..)), None) => self.drop_replica(id),
            (Some((id, Role::Primary, incarnation)), Some(Role::Primary))
                if incarnation == shard.incarnation =>
            {
                self.update_primary(id, shard);
            }
            // Another was to take over, and never did.
            (Some((id, Role::Primary, _)), Some(Role::Primary)) if stateful => {
                self.depose(id, shard, Role::Backup);
                self.promote(id, shard);
            }
            (Some((id, Role::Backup | Role::Joining, _)), Some(Role::Primary)) => {
                self.drop_ends(key);
                self.promote(id, shard);
            }
            (Some((id, Role::Backup | Role::Joining, _)), Some(role)) => {
                if let Some(hosted) = self.replicas.get_mut(id.at()) {
                    hosted.replica.follow(shard, role);
                }
            }
            (Some((id, Role::Primary, _)), Some(role))
                if role == Role::Backup || shard.leaving.contains(&me) =>
            {
                self.depose(id, shard, role);
            }
            (_, Some(role)) => {
                // New here, or a primary that was replaced: what it had is not the shard's state.
                if let Some((id, ..)) = have {
                    self.drop_replica(id);
                }
                self.add_replica(key, shard, role, awaited);
            }
        }
    }

    /// A primary stops, and keeps its copy: its successor may need it.
    fn depose(&mut self, id: ReplicaId, shard: &ShardPlan, role: Role) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let key = hosted.replica.shard.key;
        hosted.replica.follow(shard, role);
        hosted.replica.shard.log.reopen();
        self.drop_ends(key);
        self.ready.retain(|ready| *ready != id);
        self.waiting_for_core.retain(|waiting| *waiting != id);
        self.released.retain(|released| *released != id);
        if let Some(hosted) = self.replicas.get_mut(id.at()) {
            (hosted.is_ready, hosted.has_released) = (false, false);
        }
        self.drop_held(id, key);
        self.outputs.push_back(Output::Stop { key });
    }

    fn add_replica(&mut self, key: ShardKey, shard: &ShardPlan, role: Role, awaited: Option<Part>) {
        let Some(app) = self.world.apps.get_mut(&key.app) else {
            return;
        };
        let counts = self.past.remove(&key).unwrap_or_default();
        let mut replica = Replica::new(key, shard, counts, app.collections(key));
        replica.awaits_state = awaited.is_some();
        let service = app.service(key);
        let is_on_disk = service.is_on_disk();
        // The shard of the application that was backed up is a predecessor too.
        let is_restored = !service.stateful && app.plan.restored.is_some();
        if role == Role::Primary && (shard.predecessor.is_some() || is_restored) {
            replica.shard.log.since = self.world.now;
        }
        // What waits for its state has nothing that could be found on disk.
        if is_on_disk && awaited.is_none() {
            self.put_on_disk(&mut replica);
        }
        replica.follow(shard, role);
        let id = self.host(replica);
        if let Some(part) = awaited {
            self.begin_restore(key, part);
        }
        if role == Role::Primary {
            self.promote(id, shard);
        }
    }

    /// Gives a replica its place.
    fn host(&mut self, replica: Replica) -> ReplicaId {
        let key = replica.shard.key;
        let id = ReplicaId::new(self.replicas.insert(Hosted {
            replica,
            inputs: VecDeque::new(),
            is_ready: false,
            has_released: false,
            held: 0,
        }));
        if let Some(app) = self.world.apps.get_mut(&key.app) {
            app.set_replica(key, Some(id));
        }
        id
    }

    /// Makes a replica the primary.
    fn promote(&mut self, id: ReplicaId, shard: &ShardPlan) {
        let serve_at = self.serve_at(id, shard);
        self.generation += 1;
        if let Some(hosted) = self.replicas.get_mut(id.at()) {
            let (now, generation) = (self.world.now, self.generation);
            let effects = &mut self.effects;
            let replica = &mut hosted.replica;
            replica.promote(now, shard, serve_at, generation, effects);
            self.route(id);
            self.update_primary(id, shard);
        }
    }

    /// When a new primary may begin: when its promises to all primaries that it knew have run out.
    /// That is enough, since each of them needs the promises of all its backups.
    fn serve_at(&mut self, id: ReplicaId, shard: &ShardPlan) -> Timestamp {
        let (now, version) = (self.world.now, self.world.plan.version);
        if shard.fenced {
            return now;
        }
        let Some(Hosted { replica, .. }) = self.replicas.get(id.at()) else {
            return now;
        };
        let key = replica.shard.key;
        let stateful = self.world.apps[&key.app].service(key).stateful;
        let has_predecessor = stateful && shard.predecessor.is_some();
        // What the process before promised is forgotten, and has run out by then. So has what others
        // promised that are gone, while this copy was no backup.
        let from = if replica.is_recovered {
            now.max(self.world.recovered_at + LEASE)
        } else if has_predecessor && replica.role() == Role::Joining {
            now + LEASE
        } else {
            now
        };
        let former = replica.former_primaries(shard);
        let others = former.into_iter();
        others
            .filter(|p| *p != self.world.config.node)
            .map(|p| {
                let exited = self.world.plan.exited.get(&p).copied().unwrap_or_default();
                self.world.leases.succeed(now, p, version, exited)
            })
            .fold(from, Timestamp::max)
    }

    /// Brings a primary to the view.
    fn update_primary(&mut self, id: ReplicaId, shard: &ShardPlan) {
        self.primary(id, |p, turn| {
            let collections = turn.cx.app.collections(turn.shard.key);
            turn.shard.log.state.borrow_mut().set_ttls(collections);
            turn.shard.view = shard.view;
            let service = turn.cx.app.service(turn.shard.key);
            let backup = turn.cx.app.plan.backup.filter(|_| service.stateful);
            p.hands_over = shard.frozen;
            p.follow_backup(turn, backup);
            p.streams.update(turn, p.commit, shard);
            p.follow_declared(turn);
            p.advance(turn);
            p.arm(turn);
        });
    }

    pub(super) fn drop_replica(&mut self, id: ReplicaId) {
        if let Some(replica) = self.take_replica(id) {
            self.drop_from_disk(&replica);
            self.discard([replica.shard.log.state]);
        }
    }

    /// Has collections freed beside the loop.
    pub(super) fn discard(&mut self, states: impl IntoIterator<Item = Rc<RefCell<State>>>) {
        let outputs = states.into_iter().map(|state| Output::Discard { state });
        self.outputs.extend(outputs);
    }

    /// Takes a replica out of its place. What is on disk of it stays there.
    pub(super) fn take_replica(&mut self, id: ReplicaId) -> Option<Replica> {
        let Hosted { mut replica, .. } = self.replicas.try_remove(id.at())?;
        let is_primary = replica.role() == Role::Primary;
        let key = replica.shard.key;
        self.drop_held(id, key);
        let counts = Counts {
            last_failure: None,
            ..std::mem::take(&mut replica.shard.counts)
        };
        if counts != Counts::default() {
            self.past.insert(key, counts);
        }
        self.drop_ends(key);
        self.restoring.remove(&key);
        self.ready.retain(|ready| *ready != id);
        self.waiting_for_core.retain(|waiting| *waiting != id);
        self.released.retain(|released| *released != id);
        if let Some(app) = self.world.apps.get_mut(&key.app) {
            app.set_replica(key, None);
        }
        if is_primary {
            self.outputs.push_back(Output::Stop { key });
        }
        Some(replica)
    }

    /// Drops all channel ends of a replica.
    fn drop_ends(&mut self, key: ShardKey) {
        let Some(app) = self.world.apps.get(&key.app) else {
            return;
        };
        let dag = &app.dag;
        let is_replication = |link: &Link| {
            matches!(link.ends, Ends::Replication { service, shard, .. }
                if (service, shard) == (key.service, key.shard))
        };
        let sends = |link: &Link| match link.ends {
            Ends::Edge { edge, from, .. } => {
                from == key.shard && dag.sender(edge) == Some(key.service)
            }
            Ends::Ingress { .. } | Ends::Replication { .. } => false,
        };
        let receives = |link: &Link| match link.ends {
            Ends::Ingress { service, shard, .. } => (service, shard) == (key.service, key.shard),
            Ends::Edge { edge, to, .. } => {
                to == key.shard && dag.receiver(edge) == Some(key.service)
            }
            Ends::Replication { .. } => false,
        };
        self.links
            .drop_senders(|l| l.app == key.app && (is_replication(l) || sends(l)));
        self.links
            .drop_receivers(|l| l.app == key.app && (is_replication(l) || receives(l)));
        let id = app.replica(key);
        if let Some(hosted) = id.and_then(|id| self.replicas.get_mut(id.at())) {
            hosted.inputs.clear();
        }
    }

    /// Requests that wait on this node, at its services and at its traffic manager.
    pub fn queue_len(&self) -> u32 {
        let hosted = self.replicas.iter();
        let queued = hosted.filter_map(|(_, h)| {
            let primary = h.replica.as_primary()?;
            Some(primary.queue_len().saturating_sub(h.held))
        });
        let queued = queued.sum::<usize>() as u32;
        queued + self.traffic_requests()
    }

    /// Requests admitted here that have no answer yet.
    pub fn in_flight(&self) -> u32 {
        self.ingress.in_flight()
    }

    /// Version of the plan that is applied.
    pub fn plan_version(&self) -> u64 {
        self.world.plan.version
    }

    /// The plan that is applied.
    pub fn plan(&self) -> &Arc<NodePlan> {
        &self.world.plan
    }
}
