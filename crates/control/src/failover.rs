//! Fail-over: what happens to shards when nodes fall silent, are heard again, restart or are given
//! up (E3, 3.5).
//!
//! Silence and death differ. A silent node may be alive behind a cut: its shards continue where there is
//! another complete copy, and otherwise wait for the node. It leaves a shard in two steps, see
//! `view.rs`. A process that is certainly gone has lost its copies; a shard whose last copy is lost that
//! way begins empty, which is counted. Design: docs/design/009.

use crate::command::{Applied, Command, CommandError};
use crate::deliberate::{self, Fault};
use crate::reach::Ways;
use crate::state::{AppState, Control, Member};
use crate::view::{stand_apart, take_out, take_over};
use crate::waiting::Waiting;
use e3_model::plan::{AppPlan, NodeHello, NodeWelcome, Role, ShardPlan};
use e3_model::{AppId, Format, NodeId, ServiceId, ShardKey, Timestamp};
use e3_placement::{Request, pick_backup, pick_primary};
use std::collections::{BTreeMap, BTreeSet};

impl Control {
    /// A process of a node joins; shards that waited for room may use it. A process that joins in place
    /// of another proves that the other is gone with all its state.
    pub(crate) fn join(
        &mut self,
        hello: &NodeHello,
        at: Timestamp,
    ) -> Result<Applied, CommandError> {
        let id = self.check_hello(hello)?;
        let topology = self.topology.clone();
        let node = self.index().hardware(&topology, id);
        let node = node.expect("it was found");
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
                self.bury(id, &|plan, shard| plan.is_held(hello, shard));
                self.succeed_itself(id);
                next
            }
        };
        let member = Member {
            incarnation,
            process: hello.process,
            release: hello.release.clone(),
            formats: hello.formats,
            address: hello.address,
            relay: hello.relay.filter(|_| node.relay),
            up: true,
            exited,
            unreachable: BTreeSet::new(),
        };
        self.forget_unreachable(id);
        if self
            .members
            .get(&id)
            .is_none_or(|m| !m.up || m.incarnation != incarnation)
        {
            self.note_return(id);
        }
        self.members.insert(id, member);
        self.settle_all();
        Ok(Applied::Joined(NodeWelcome {
            cluster: self.cluster,
            node: id,
            incarnation,
            format: self.format,
            now: at,
            kind: node.kind,
            emulated: node.emulated,
            slowed: self.index().has_emulated,
            link_latency: node.link_latency.unwrap_or_default(),
            memory_max: node.emulated.then_some(node.memory),
            accelerators: node.accelerators,
            cores: node.cores,
            speed: node.speed(),
            port_gbps: node.port_capacity_gbps(),
            relay: node.relay,
        }))
    }

    /// The node that a process is of, if it may join.
    fn check_hello(&self, hello: &NodeHello) -> Result<NodeId, CommandError> {
        let found = {
            let index = self.index();
            let is_there = |id: &NodeId| index.hardware(&self.topology, *id).is_some();
            index.cluster.named(&hello.name).filter(is_there)
        };
        let Some(id) = found else {
            if self.removed.values().any(|name| *name == hello.name) {
                return Err(CommandError::Removed(hello.name.clone()));
            }
            let nodes = self.topology.nodes();
            return Err(CommandError::NoNode {
                name: hello.name.clone(),
                known: nodes.map(|n| n.node.name.clone()).collect(),
            });
        };
        if let Some(on_disk) = &hello.on_disk
            && on_disk.cluster != self.cluster
        {
            return Err(CommandError::OtherCluster {
                node: hello.name.clone(),
                found: on_disk.cluster,
                expected: self.cluster,
            });
        }
        self.check_damage(id, hello)?;
        if !hello.formats.include(self.format) {
            return Err(CommandError::Format {
                node: hello.name.clone(),
                release: hello.release.clone(),
                formats: hello.formats,
                active: self.format,
            });
        }
        Ok(id)
    }

    /// No node has found yet that it cannot reach this one's new process.
    fn forget_unreachable(&mut self, node: NodeId) {
        let cut: Vec<NodeId> = self.index().cut.iter().copied().collect();
        for other in cut {
            let names = |m: &Member| m.unreachable.contains(&node);
            if self.members.get(&other).is_some_and(names)
                && let Some(other) = self.members.get_mut(&other)
            {
                other.unreachable.remove(&node);
            }
        }
    }

    /// The end of a node's present process, if another one is refused for its damaged journal, or for its disk. The
    /// shards that it names wait for the node from then on, so that an operator can give them up: nobody else may
    /// be heard who could say that the node is silent.
    pub fn end_before_refusal(&self, hello: &NodeHello, at: Timestamp) -> Option<Command> {
        let node = self.index().cluster.named(&hello.name)?;
        let member = self.members.get(&node)?;
        let has_ended = member.exited == member.incarnation;
        let is_refused = self.check_damage(node, hello).is_err() || self.check_disk(hello).is_err();
        if has_ended || !is_refused {
            return None;
        }
        Some(Command::Exit {
            node,
            incarnation: member.incarnation,
            at,
        })
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
        let leaves = self.format >= Format::WAITS_END;
        // A shard that is being restored begins again elsewhere.
        self.bury(node, &|app, shard| {
            !(leaves && app.is_restoring(app.key(shard)))
        });
        self.settle_all();
        Applied::Changed
    }

    /// A process that was silent is heard again. It holds what it held.
    pub(crate) fn hear(&mut self, node: NodeId, incarnation: u32, at: Timestamp) -> Applied {
        if !self.set_up(node, incarnation, true) {
            return Applied::Nothing;
        }
        self.now = self.now.max(at);
        self.note_return(node);
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
    pub(crate) fn ways(&self) -> Ways {
        let index = self.index();
        let cut = index.cut.iter().filter(|n| self.is_up(**n));
        let said = cut.map(|n| (*n, self.members[n].unreachable.clone()));
        Ways::new(index.up, &|n| self.is_up(n), said.collect())
    }

    /// The operator gives up the state of a shard that waits for its copies.
    pub(crate) fn forget(&mut self, key: ShardKey, at: Timestamp) -> Result<Applied, CommandError> {
        let name = self.shard_name(key);
        let none = || CommandError::NoShard(name.clone());
        let app = self.apps.get(&key.app).ok_or_else(none)?;
        let at_shard = app.position(key).ok_or_else(none)?;
        if self.waits_for(app, &app.plan.shards[at_shard]).is_empty() {
            return Err(CommandError::NotWaiting(name));
        }
        self.now = self.now.max(at);
        let (now, members) = (self.now, &self.members);
        let up = |node| members.get(&node).is_some_and(|m| m.up);
        let app = self.apps.get_mut(&key.app).expect("just seen");
        let shard = &mut app.plan.shards[at_shard];
        shard.view += 1;
        let given_up = std::mem::take(&mut shard.backups);
        shard.leaving.retain(|n| !given_up.contains(n) && up(*n));
        app.begin_again(at_shard, now, &up);
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Removes a process that is certainly gone, with its copies, from all shards. It keeps those that are
    /// on its disk, of services that have their state there.
    fn bury(&mut self, gone: NodeId, is_there: &dyn Fn(&AppPlan, &ShardPlan) -> bool) {
        if let Some(member) = self.members.get_mut(&gone) {
            member.up = false;
        }
        let (now, servers) = (self.now, self.servers());
        let shards = self.shards_on(gone);
        let members = &self.members;
        let up = |node| members.get(&node).is_some_and(|m| m.up);
        for key in shards {
            let app = self.apps.get_mut(&key.app).expect("the index names it");
            let at = app.position(key).expect("the index names it");
            let shard = &app.plan.shards[at];
            if !shard.keeps(gone) || app.is_orphan(shard) {
                continue;
            }
            let on_disk = app.plan.app.service(shard.service).is_on_disk();
            if on_disk && is_there(&app.plan, &app.plan.shards[at]) {
                let shard = &mut app.plan.shards[at];
                // What is reported of this process says nothing about the next.
                shard.view += u32::from(shard.joining.contains(&gone));
                app.end_moves_of(at, &servers, gone);
                continue;
            }
            let shard = &mut app.plan.shards[at];
            let before = shard.primary;
            let left = take_out(shard, &|n| n == gone, &servers, &up);
            let stays = shard.primary == before;
            app.end_move(at, &servers, stays, &|n| n == gone);
            if !left {
                app.begin_again(at, now, &up);
            }
        }
    }

    /// A new process of a node goes on as the primary of the shards that are on its disk.
    fn succeed_itself(&mut self, node: NodeId) {
        for key in self.shards_on(node) {
            let app = &self.apps[&key.app];
            let is_on_disk = app.plan.app.service(key.service).is_on_disk();
            let shard = app.shard(key);
            let is_primary = |s: &&ShardPlan| s.primary == node && !app.is_orphan(s);
            if !is_on_disk || shard.filter(is_primary).is_none() {
                continue;
            }
            let app = self.apps.get_mut(&key.app).expect("just seen");
            let shard = app.shard_mut(key).expect("just seen");
            shard.view += 1;
            // Others may hold leases that the process before granted, and forgot.
            take_over(shard, node, false);
        }
    }

    /// A backup has entries that its primary did not find on its disk when it started. Every backup has
    /// everything that was acknowledged, so it takes over. The primary has handled nothing.
    pub(crate) fn on_ahead(&mut self, key: ShardKey, view: u32, backup: NodeId) -> Applied {
        let servers = self.servers();
        let Some(app) = self.apps.get_mut(&key.app) else {
            return Applied::Nothing;
        };
        let Some(at) = app.position(key) else {
            return Applied::Nothing;
        };
        let shard = &mut app.plan.shards[at];
        let is_ahead = shard.succeeds_itself() && shard.backups.contains(&backup);
        if shard.view != view || !is_ahead {
            return Applied::Nothing;
        }
        let former = shard.primary;
        shard.view += 1;
        shard.leaving.retain(|n| *n != backup);
        shard.backups.retain(|n| *n != backup);
        shard.backups.push(former);
        take_over(shard, backup, false);
        stand_apart(shard, &servers);
        app.end_move(at, &servers, false, &|n| n == former);
        self.settle_all();
        Applied::Changed
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

    /// Begins a shard without a copy somewhere; an error says why it waits.
    pub(crate) fn restart_orphan(&mut self, key: ShardKey, ways: &Ways) -> Result<(), Waiting> {
        let (id, app) = (key.app, &self.apps[&key.app]);
        if app.shard(key).is_none_or(|shard| !app.is_orphan(shard)) {
            return Ok(());
        }
        let node = self.choose_copy(key, Role::Primary, |control| {
            let app = &control.apps[&id];
            let request = Request::new(&app.plan.app, &app.profiles);
            let parents = control.primaries_of_parent(id, &request, key.service);
            let found = control.try_resources(|cluster| {
                Control::leave_out(cluster, ways, |n| ways.is_isolated(n));
                pick_primary(&request, cluster, key.service, key.shard, &parents, &[])
            });
            control.firmly(key, Role::Primary, found)
        })?;
        let app = self.apps.get_mut(&id).expect("just seen");
        let is_stateful = app.plan.app.service(key.service).stateful;
        app.orphans.remove(&(key.service, key.shard));
        let shard = app.shard_mut(key).expect("just seen");
        shard.view += 1;
        // A former primary that is cut off may still hold leases, also of processes that have ended.
        take_over(shard, node, !is_stateful);
        Ok(())
    }

    /// Primaries of the first service that sends to this one.
    pub(crate) fn primaries_of_parent(
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

    /// Finds the backups that a shard lacks; an error says why one waits.
    pub(crate) fn add_missing_backup(
        &mut self,
        id: AppId,
        at: usize,
        ways: &Ways,
    ) -> Result<(), Waiting> {
        loop {
            let app = &self.apps[&id];
            let shard = &app.plan.shards[at];
            let service = app.plan.app.service(shard.service);
            let key = app.plan.key(shard);
            let moving = app.is_moving(key);
            let mut replicas = vec![shard.primary];
            replicas.extend(shard.staying().chain(shard.joining.iter().copied()));
            // Until it has left, a copy may be needed as it is.
            let is_settled = shard.staying().count() == shard.backups.len();
            let complete = replicas.len() >= usize::from(service.replicas);
            let is_left =
                moving || app.is_resharding(key) || deliberate::is(Fault::BackupNotReplaced);
            let served = !app.is_orphan(shard) && self.is_up(shard.primary);
            if !service.stateful || is_left || complete || !served || !is_settled {
                return Ok(());
            }
            let primary = shard.primary;
            // Without a free fault domain the shard waits for a node to join.
            let node = self.choose_copy(key, Role::Backup, |control| {
                let app = &control.apps[&id];
                let request = Request::new(&app.plan.app, &app.profiles);
                let is_off = |n| ways.is_isolated(n) || ways.are_cut(primary, n);
                let found = control.try_resources(|cluster| {
                    Control::leave_out(cluster, ways, is_off);
                    pick_backup(&request, cluster, key.service, key.shard, &replicas)
                });
                control.firmly(key, Role::Backup, found)
            })?;
            let shard = &mut self.apps.get_mut(&id).expect("just seen").plan.shards[at];
            shard.joining.push(node);
            shard.view += 1;
        }
    }
}
