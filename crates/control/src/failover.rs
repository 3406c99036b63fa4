//! Fail-over: what happens to shards when nodes fall silent, are heard again, restart or are given
//! up (E3, 3.5).
//!
//! Silence and death differ. A silent node may be alive behind a cut: its shards continue where there is
//! another complete copy, and otherwise wait for the node. It leaves a shard in two steps, see
//! `view.rs`. A process that is certainly gone has lost its copies; a shard whose last copy is lost that
//! way begins empty, which is counted. Design: docs/design/009.

use crate::command::{Applied, CommandError};
use crate::deliberate::{self, Fault};
use crate::migration::{Cancelled, Migration, MoveOutcome, drop_copy};
use crate::reach::{Ways, to_leave};
use crate::state::{AppState, Control, Loss, Member};
use crate::view::{retire, take_out, take_over};
use e3_model::plan::{NodeHello, NodeWelcome, ShardPlan};
use e3_model::{AppId, NodeId, ServiceId, ShardId, ShardKey, Timestamp};
use e3_placement::{Cluster, Request, pick_backup, pick_primary};
use std::collections::{BTreeMap, BTreeSet};

impl Control {
    /// A process of a node joins; shards that waited for room may use it. A process that joins in place
    /// of another proves that the other is gone with all its state.
    pub(crate) fn join(
        &mut self,
        hello: &NodeHello,
        at: Timestamp,
    ) -> Result<Applied, CommandError> {
        let Some(found) = self.topology.node_named(&hello.name) else {
            let known = self.topology.nodes().map(|n| n.node.name.clone()).collect();
            return Err(CommandError::NoNode {
                name: hello.name.clone(),
                known,
            });
        };
        let (id, node) = (found.id, found.node.clone());
        if let Some(on_disk) = &hello.on_disk
            && on_disk.cluster != self.cluster
        {
            return Err(CommandError::OtherCluster {
                node: hello.name.clone(),
                found: on_disk.cluster,
                expected: self.cluster,
            });
        }
        self.now = self.now.max(at);
        let exited = self.members.get(&id).map_or(0, |m| m.exited);
        let incarnation = match self.members.get(&id) {
            None => 1,
            Some(m) if m.process == hello.process && m.exited == m.incarnation => {
                return Err(CommandError::Exited(hello.name.clone()));
            }
            Some(m) if m.process == hello.process => m.incarnation,
            Some(m) => {
                let next = m.incarnation + 1;
                self.bury(id, &|key, era| hello.holds(key, era));
                self.succeed_itself(id);
                next
            }
        };
        let member = Member {
            incarnation,
            process: hello.process,
            address: hello.address,
            up: true,
            exited,
            unreachable: BTreeSet::new(),
        };
        for other in self.members.values_mut() {
            other.unreachable.remove(&id);
        }
        self.members.insert(id, member);
        self.settle_all();
        Ok(Applied::Joined(NodeWelcome {
            cluster: self.cluster,
            node: id,
            incarnation,
            kind: node.kind,
            emulated: node.emulated,
            slowed: self.topology.nodes().any(|n| n.node.emulated),
            link_latency: node.link_latency.unwrap_or_default(),
            memory_max: node.emulated.then_some(node.memory),
            accelerators: node.accelerators,
        }))
    }

    /// Nodes, each with its incarnation, have fallen silent. They are handled together, so that no shard
    /// fails over to a node that is silent too.
    pub(crate) fn lose(&mut self, nodes: &BTreeMap<NodeId, u32>, at: Timestamp) -> Applied {
        let mut changed = false;
        for (node, incarnation) in nodes {
            changed |= self.set_up(*node, *incarnation, false);
        }
        if !changed {
            return Applied::Nothing;
        }
        self.now = self.now.max(at);
        self.settle_all();
        Applied::Changed
    }

    /// A process has certainly ended, and its copies in memory with it. Nobody waits for it, nor for the
    /// leases that it held. What is on its disk may come back.
    pub(crate) fn exit(&mut self, node: NodeId, incarnation: u32, at: Timestamp) -> Applied {
        let member = self.members.get_mut(&node);
        let is_news = |m: &&mut Member| m.incarnation == incarnation && m.exited < incarnation;
        let Some(member) = member.filter(is_news) else {
            return Applied::Nothing;
        };
        member.exited = incarnation;
        self.now = self.now.max(at);
        self.bury(node, &|_, _| true);
        self.settle_all();
        Applied::Changed
    }

    /// A process that was silent is heard again. It holds what it held.
    pub(crate) fn hear(&mut self, node: NodeId, incarnation: u32, at: Timestamp) -> Applied {
        if !self.set_up(node, incarnation, true) {
            return Applied::Nothing;
        }
        self.now = self.now.max(at);
        self.settle_all();
        Applied::Changed
    }

    /// True if that changed anything.
    fn set_up(&mut self, node: NodeId, incarnation: u32, up: bool) -> bool {
        let member = self.members.get_mut(&node);
        let differs = |m: &&mut Member| m.incarnation == incarnation && m.up != up;
        // A heartbeat may arrive after its process has ended.
        let Some(member) = member.filter(|m| differs(m) && m.exited < incarnation) else {
            return false;
        };
        member.up = up;
        true
    }

    /// A node reports which peers it cannot reach.
    pub(crate) fn reach(
        &mut self,
        node: NodeId,
        incarnation: u32,
        unreachable: &BTreeSet<NodeId>,
        at: Timestamp,
    ) -> Applied {
        let member = self.members.get_mut(&node);
        let Some(member) = member.filter(|m| m.incarnation == incarnation) else {
            return Applied::Nothing;
        };
        if member.unreachable == *unreachable {
            return Applied::Nothing;
        }
        member.unreachable.clone_from(unreachable);
        self.now = self.now.max(at);
        self.settle_all();
        Applied::Changed
    }

    /// The ways between the nodes that are heard.
    fn ways(&self) -> Ways {
        let members = self.members.iter();
        let up = members.clone().filter(|(_, m)| m.up).map(|(n, _)| *n);
        let said = members.map(|(n, m)| (*n, m.unreachable.clone()));
        Ways::new(&up.collect(), said.collect())
    }

    /// The operator gives up the state of a shard that waits for its copies.
    pub(crate) fn forget(&mut self, key: ShardKey, at: Timestamp) -> Result<Applied, CommandError> {
        let name = self.shard_name(key);
        let none = || CommandError::NoShard(name.clone());
        let app = self.apps.get(&key.app).ok_or_else(none)?;
        let shard = app.shard(key).ok_or_else(none)?;
        if self.waits_for(app, shard).is_empty() {
            return Err(CommandError::NotWaiting(name));
        }
        self.now = self.now.max(at);
        let (now, up) = (self.now, self.nodes_up());
        let app = self.apps.get_mut(&key.app).expect("just seen");
        let shard = app.shard_mut(key).expect("just seen");
        shard.view += 1;
        let given_up = std::mem::take(&mut shard.backups);
        shard.leaving.retain(|n| !given_up.contains(n) && up(*n));
        app.begin_again(key, now, &up);
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Removes a process that is certainly gone, with its copies, from all shards. It keeps those that are
    /// on its disk, of services that have their state there.
    fn bury(&mut self, gone: NodeId, is_there: &dyn Fn(ShardKey, u32) -> bool) {
        if let Some(member) = self.members.get_mut(&gone) {
            member.up = false;
        }
        let up = self.nodes_up();
        let (now, servers) = (self.now, self.servers());
        for app in self.apps.values_mut() {
            for at in 0..app.plan.shards.len() {
                let shard = &mut app.plan.shards[at];
                if !shard.keeps(gone) || app.orphans.contains(&shard_id(shard)) {
                    continue;
                }
                let on_disk = app.plan.app.service(shard.service).is_on_disk();
                let (key, era) = (app.plan.key(&app.plan.shards[at]), app.plan.shards[at].era);
                if on_disk && is_there(key, era) {
                    app.end_moves_of(at, &servers, gone);
                    continue;
                }
                let shard = &mut app.plan.shards[at];
                let before = shard.primary;
                let left = take_out(shard, &|n| n == gone, &up);
                let stays = shard.primary == before;
                let key = app.plan.key(&app.plan.shards[at]);
                app.end_move(key, &servers, stays, &|n| n == gone);
                if !left {
                    app.begin_again(key, now, &up);
                }
            }
        }
    }

    /// A new process of a node goes on as the primary of the shards that are on its disk.
    fn succeed_itself(&mut self, node: NodeId) {
        for app in self.apps.values_mut() {
            for shard in &mut app.plan.shards {
                let id = shard_id(shard);
                if shard.primary == node
                    && app.plan.app.service(shard.service).is_on_disk()
                    && !app.orphans.contains(&id)
                {
                    shard.view += 1;
                    // Others may hold leases that the process before granted, and forgot.
                    take_over(shard, node, false);
                }
            }
        }
    }

    /// Brings every shard to what the members are now: primaries that are silent are replaced, what
    /// nobody serves begins again, and missing backups are found.
    pub(crate) fn settle_all(&mut self) {
        let up = self.nodes_up();
        let ways = self.ways();
        let (now, servers) = (self.now, self.servers());
        for app in self.apps.values_mut() {
            for at in 0..app.plan.shards.len() {
                app.leave_silent(at, now, &servers, &up);
                app.leave_cut(at, now, &servers, &ways, &up);
            }
        }
        let apps: Vec<AppId> = self.apps.keys().copied().collect();
        for id in apps {
            let shards = self.apps[&id].plan.shards.len();
            for at in 0..shards {
                self.restart_orphan(id, at, &ways);
                self.add_missing_backup(id, at, &ways);
            }
        }
    }

    /// Leaves nodes out of a placement.
    fn leave_out(&self, cluster: &mut Cluster, off: impl Fn(NodeId) -> bool) {
        for node in self.topology.nodes().filter(|n| off(n.id)) {
            cluster.set_member(node.id, false);
        }
    }

    fn nodes_up(&self) -> impl Fn(NodeId) -> bool + use<> {
        let up: BTreeSet<NodeId> = self
            .members
            .iter()
            .filter(|(_, m)| m.up)
            .map(|(n, _)| *n)
            .collect();
        move |node| up.contains(&node)
    }

    /// The nodes with the only copies of a shard, if all of them are silent: it waits for one.
    pub fn waits_for(&self, app: &AppState, shard: &ShardPlan) -> Vec<NodeId> {
        let stateful = app.plan.app.service(shard.service).stateful;
        if !stateful || app.is_orphan(shard) || self.is_up(shard.primary) {
            return Vec::new();
        }
        let copies = [shard.primary].into_iter();
        copies.chain(shard.backups.iter().copied()).collect()
    }

    fn restart_orphan(&mut self, id: AppId, at: usize, ways: &Ways) {
        let app = &self.apps[&id];
        let shard = &app.plan.shards[at];
        if !app.is_orphan(shard) {
            return;
        }
        let request = Request::new(&app.plan.app, &app.profiles);
        let parents = self.primaries_of_parent(id, &request, shard.service);
        let mut cluster = self.resources();
        self.leave_out(&mut cluster, |n| ways.is_isolated(n));
        let found = pick_primary(&request, &cluster, shard.service, shard.shard, &parents);
        let Ok(decision) = found else { return };
        let app = self.apps.get_mut(&id).expect("just seen");
        let shard = &mut app.plan.shards[at];
        app.orphans.remove(&shard_id(shard));
        shard.view += 1;
        // Nobody is left who could have granted a lease, and a stateless one needs none.
        take_over(shard, decision.node, true);
    }

    /// Primaries of the first service that sends to this one.
    fn primaries_of_parent(
        &self,
        id: AppId,
        request: &Request<'_>,
        service: ServiceId,
    ) -> Vec<NodeId> {
        let parent = request
            .walk()
            .iter()
            .find(|(s, _)| *s == service)
            .and_then(|(_, p)| *p);
        let shards = self.apps[&id].plan.shards.iter();
        shards
            .filter(|s| Some(s.service) == parent)
            .map(|s| s.primary)
            .collect()
    }

    fn add_missing_backup(&mut self, id: AppId, at: usize, ways: &Ways) {
        loop {
            let app = &self.apps[&id];
            let shard = &app.plan.shards[at];
            let service = app.plan.app.service(shard.service);
            let moving = app.migrations.iter().any(|m| m.key == app.plan.key(shard));
            let mut replicas = vec![shard.primary];
            replicas.extend(shard.staying().chain(shard.joining.iter().copied()));
            // Until it has left, a copy may be needed as it is.
            let is_settled = shard.staying().count() == shard.backups.len();
            let complete = replicas.len() >= usize::from(service.replicas);
            let is_left = moving || deliberate::is(Fault::BackupNotReplaced);
            let served = !app.is_orphan(shard) && self.is_up(shard.primary);
            if !service.stateful || is_left || complete || !served || !is_settled {
                return;
            }
            let request = Request::new(&app.plan.app, &app.profiles);
            let (primary, mut cluster) = (shard.primary, self.resources());
            let is_off = |n| ways.is_isolated(n) || ways.are_cut(primary, n);
            self.leave_out(&mut cluster, is_off);
            let found = pick_backup(&request, &cluster, shard.service, shard.shard, &replicas);
            // Without a free fault domain the shard waits for a node to join.
            let Ok(decision) = found else { return };
            let shard = &mut self.apps.get_mut(&id).expect("just seen").plan.shards[at];
            shard.joining.push(decision.node);
            shard.view += 1;
        }
    }
}

impl AppState {
    /// Ends the move of a shard, in a new view, if a process that has ended took part in it.
    fn end_moves_of(&mut self, at: usize, servers: &[usize], gone: NodeId) {
        let shard = &self.plan.shards[at];
        let (key, stays) = (self.plan.key(shard), shard.primary != gone);
        let takes_part = |m: &Migration| m.key == key && (!stays || m.from == gone || m.to == gone);
        if self.migrations.iter().any(takes_part) {
            self.plan.shards[at].view += 1;
            self.end_move(key, servers, stays, &|n| n == gone);
        }
    }

    /// Replaces silent nodes of a shard, as far as a complete copy is on a node that is heard.
    fn leave_silent(
        &mut self,
        at: usize,
        now: Timestamp,
        servers: &[usize],
        up: &dyn Fn(NodeId) -> bool,
    ) {
        let shard = &mut self.plan.shards[at];
        let are_up = shard.staying().all(up) && shard.joining.iter().all(|n| up(*n));
        if self.orphans.contains(&shard_id(shard)) || (up(shard.primary) && are_up) {
            return;
        }
        let stateful = self.plan.app.service(shard.service).stateful;
        let is_up = |n: &NodeId| up(*n);
        let has_heir = shard.backups.iter().any(is_up)
            || (deliberate::is(Fault::JoiningTakesOver) && shard.joining.iter().any(is_up));
        let waits = !up(shard.primary) && !has_heir;
        if waits && stateful {
            // A move needs a primary. The copies stay where they are.
            let key = self.plan.key(&self.plan.shards[at]);
            if self.migrations.iter().any(|m| m.key == key) {
                self.plan.shards[at].view += 1;
                self.end_move(key, servers, false, &|n| !up(n));
            }
            return;
        }
        self.take_off(at, now, servers, &|n| !up(n), up);
    }

    /// Takes a shard to where its nodes reach each other: a backup that its primary cannot reach is
    /// replaced, or takes over if it reaches more nodes than the primary.
    fn leave_cut(
        &mut self,
        at: usize,
        now: Timestamp,
        servers: &[usize],
        ways: &Ways,
        up: &dyn Fn(NodeId) -> bool,
    ) {
        let shard = &self.plan.shards[at];
        if ways.are_whole() || self.is_orphan(shard) || !up(shard.primary) {
            return;
        }
        let primary = shard.primary;
        let stateful = self.plan.app.service(shard.service).stateful;
        let mut gone = if stateful {
            to_leave(&mut self.plan.shards[at], ways)
        } else if ways.is_isolated(primary) {
            BTreeSet::from([primary])
        } else {
            BTreeSet::new()
        };
        let shard = &mut self.plan.shards[at];
        gone.retain(|n| !shard.leaving.contains(n) || shard.joining.contains(n));
        if !gone.is_empty() {
            self.take_off(at, now, servers, &|n| gone.contains(&n), up);
        }
    }

    /// Takes a shard off nodes that may still be alive, in a new view. What has state leaves in two
    /// steps; a shard without a copy elsewhere begins empty.
    fn take_off(
        &mut self,
        at: usize,
        now: Timestamp,
        servers: &[usize],
        off: &dyn Fn(NodeId) -> bool,
        up: &dyn Fn(NodeId) -> bool,
    ) {
        let shard = &mut self.plan.shards[at];
        let primary = shard.primary;
        let has_copy = match self.plan.app.service(shard.service).stateful {
            true => retire(shard, off, up),
            false => take_out(shard, off, up),
        };
        let key = self.plan.key(&self.plan.shards[at]);
        self.end_move(key, servers, !off(primary), off);
        if !has_copy {
            self.begin_empty(key, now);
        }
    }

    /// Ends the move of a shard, in a view that has begun, if it lost one of its ends or the primary
    /// that copies.
    fn end_move(
        &mut self,
        key: ShardKey,
        servers: &[usize],
        primary_stays: bool,
        lost: &dyn Fn(NodeId) -> bool,
    ) {
        let off = |m: &Migration| m.key == key && (!primary_stays || lost(m.from) || lost(m.to));
        let Some(at) = self.migrations.iter().position(off) else {
            return;
        };
        let migration = self.migrations.remove(at);
        let replicas = self.plan.app.service(key.service).replicas;
        let shard = self.shard_mut(key).expect("it moves");
        drop_copy(shard, &migration, replicas, servers);
        let outcome = outcome_of_loss(&migration, shard, lost);
        self.note_moved(&migration, outcome);
    }

    /// No complete copy of a shard is left. It goes on from one that has left it, if the primary may
    /// not have known that, and otherwise begins empty. That is a loss in either case: nobody can
    /// tell what the primary acknowledged alone.
    fn begin_again(&mut self, key: ShardKey, at: Timestamp, up: &dyn Fn(NodeId) -> bool) {
        let shard = self.shard_mut(key).expect("just seen");
        let heard = shard.leaving.iter().find(|n| up(**n));
        let Some(heir) = heard.or(shard.leaving.first()).copied() else {
            return self.begin_empty(key, at);
        };
        // They were to stand beside another primary, and have nothing yet.
        shard.joining.clear();
        shard.leaving.clear();
        take_over(shard, heir, false);
        if shard.filled {
            self.note_loss(Loss {
                service: key.service,
                shard: key.shard,
                at,
            });
        }
    }

    /// No copy of a shard is left, in a view that has begun: it begins empty as soon as a node has
    /// room. A copy that comes back later is of an earlier era.
    fn begin_empty(&mut self, key: ShardKey, at: Timestamp) {
        let stateful = self.plan.app.service(key.service).stateful;
        let shard = self.shard_mut(key).expect("just seen");
        shard.joining.clear();
        shard.era = shard.view;
        shard.leaving.clear();
        let had_state = std::mem::take(&mut shard.filled);
        self.orphans.insert((key.service, key.shard));
        if stateful && had_state {
            self.note_loss(Loss {
                service: key.service,
                shard: key.shard,
                at,
            });
        }
    }
}

fn shard_id(shard: &ShardPlan) -> (ServiceId, ShardId) {
    (shard.service, shard.shard)
}

/// How a move ends when it loses a node.
fn outcome_of_loss(
    migration: &Migration,
    shard: &ShardPlan,
    lost: &dyn Fn(NodeId) -> bool,
) -> MoveOutcome {
    if lost(migration.from) && shard.primary == migration.to {
        // The copy took over, which is what the move was for.
        return MoveOutcome::Done;
    }
    MoveOutcome::Cancelled(if lost(migration.to) {
        Cancelled::TargetLost
    } else if lost(migration.from) {
        Cancelled::SourceLost
    } else {
        Cancelled::PrimaryLost
    })
}
