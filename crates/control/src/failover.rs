//! Fail-over: what happens to shards when nodes come and go (E3, 3.5).

use crate::command::{Applied, CommandError};
use crate::deliberate::{self, Fault};
use crate::migration::{Cancelled, Migration, MoveOutcome, drop_copy};
use crate::state::{Control, Loss, Member};
use e3_model::plan::{NodeHello, NodeWelcome, ShardPlan};
use e3_model::{AppId, NodeId, ServiceId, Timestamp};
use e3_placement::{Request, pick_backup, pick_primary};

impl Control {
    /// A process of a node joins; shards that waited for room get it.
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
        let incarnation = match self.members.get(&id) {
            None => 1,
            Some(m) if m.process == hello.process && m.up => m.incarnation,
            Some(m) => {
                let old = m.incarnation;
                self.lose(id, old, at);
                old + 1
            }
        };
        let member = Member {
            incarnation,
            process: hello.process,
            address: hello.address,
            up: true,
        };
        self.members.insert(id, member);
        self.now = self.now.max(at);
        self.restore_all();
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

    /// A process is gone, and everything that it held.
    pub(crate) fn lose(&mut self, node: NodeId, incarnation: u32, at: Timestamp) -> Applied {
        match self.members.get_mut(&node) {
            Some(member) if member.up && member.incarnation == incarnation => member.up = false,
            _ => return Applied::Nothing,
        }
        self.now = self.now.max(at);
        let apps: Vec<AppId> = self.apps.keys().copied().collect();
        for id in apps {
            self.lose_in_app(id, node);
        }
        self.restore_all();
        Applied::Changed
    }

    fn lose_in_app(&mut self, id: AppId, lost: NodeId) {
        let servers = self.servers();
        let app = self.apps.get_mut(&id).expect("listed");
        let mut ended = Vec::new();
        let has_replica = |s: &&mut ShardPlan| s.role(lost).is_some();
        for shard in app.plan.shards.iter_mut().filter(has_replica) {
            let deposed = shard.primary == lost;
            if lose_replica(shard, lost) {
                app.orphans.insert((shard.service, shard.shard));
            }
            // A move that lost one of its ends, or the primary that copies, is cancelled.
            let key = (shard.service, shard.shard);
            let off = |m: &Migration| {
                (m.key.service, m.key.shard) == key && (deposed || m.to == lost || m.from == lost)
            };
            if let Some(at) = app.migrations.iter().position(off) {
                let migration = app.migrations.remove(at);
                let replicas = app.plan.app.service(shard.service).replicas;
                drop_copy(shard, &migration, replicas, &servers);
                ended.push((migration, outcome_of_loss(&migration, shard, lost)));
            }
        }
        for (migration, outcome) in ended {
            app.note_moved(&migration, outcome);
        }
    }

    /// Restarts shards that nobody serves, and finds new backups where replicas are missing.
    pub(crate) fn restore_all(&mut self) {
        let apps: Vec<AppId> = self.apps.keys().copied().collect();
        for id in apps {
            let shards = self.apps[&id].plan.shards.len();
            for at in 0..shards {
                self.restart_orphan(id, at);
                self.add_missing_backup(id, at);
            }
        }
    }

    fn restart_orphan(&mut self, id: AppId, at: usize) {
        let app = &self.apps[&id];
        let shard = &app.plan.shards[at];
        if !app.is_orphan(shard) {
            return;
        }
        let request = Request::new(&app.plan.app, &app.profiles);
        let parents = self.primaries_of_parent(id, &request, shard.service);
        let cluster = self.resources();
        let found = pick_primary(&request, &cluster, shard.service, shard.shard, &parents);
        let Ok(decision) = found else { return };
        let stateful = app.plan.app.service(shard.service).stateful;
        let now = self.now;
        let app = self.apps.get_mut(&id).expect("just seen");
        let shard = &mut app.plan.shards[at];
        let key = (shard.service, shard.shard);
        app.orphans.remove(&key);
        shard.view += 1;
        // Nobody is left who could have granted a lease, and a stateless one needs none.
        take_over(shard, decision.node, true);
        let had_state = std::mem::take(&mut shard.filled);
        if stateful && had_state {
            let (service, shard) = key;
            app.note_loss(Loss {
                service,
                shard,
                at: now,
            });
        }
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

    fn add_missing_backup(&mut self, id: AppId, at: usize) {
        loop {
            let app = &self.apps[&id];
            let shard = &app.plan.shards[at];
            let service = app.plan.app.service(shard.service);
            let moving = app.migrations.iter().any(|m| m.key == app.plan.key(shard));
            let mut replicas = vec![shard.primary];
            replicas.extend(shard.backups.iter().chain(&shard.joining));
            let complete = replicas.len() >= usize::from(service.replicas);
            let is_left = moving || deliberate::is(Fault::BackupNotReplaced);
            if !service.stateful || is_left || complete || app.is_orphan(shard) {
                return;
            }
            let request = Request::new(&app.plan.app, &app.profiles);
            let cluster = self.resources();
            let found = pick_backup(&request, &cluster, shard.service, shard.shard, &replicas);
            // Without a free fault domain the shard waits for a node to join.
            let Ok(decision) = found else { return };
            let shard = &mut self.apps.get_mut(&id).expect("just seen").plan.shards[at];
            shard.joining.push(decision.node);
            shard.view += 1;
        }
    }
}

/// Takes a lost node out of a shard in a new view. True if nobody is left to take over.
fn lose_replica(shard: &mut ShardPlan, lost: NodeId) -> bool {
    shard.view += 1;
    shard.backups.retain(|n| *n != lost);
    shard.joining.retain(|n| *n != lost);
    if shard.primary != lost {
        return false;
    }
    if deliberate::is(Fault::JoiningTakesOver)
        && let Some(joining) = shard.joining.pop()
    {
        shard.backups.insert(0, joining);
    }
    if shard.backups.is_empty() {
        // A copy that was never complete is none.
        shard.joining.clear();
        return true;
    }
    let successor = shard.backups.remove(0);
    take_over(shard, successor, false);
    false
}

/// How a move ends when it loses a node.
fn outcome_of_loss(migration: &Migration, shard: &ShardPlan, lost: NodeId) -> MoveOutcome {
    if migration.from == lost && shard.primary == migration.to {
        // The copy took over, which is what the move was for.
        return MoveOutcome::Done;
    }
    MoveOutcome::Cancelled(if migration.to == lost {
        Cancelled::TargetLost
    } else if migration.from == lost {
        Cancelled::SourceLost
    } else {
        Cancelled::PrimaryLost
    })
}

/// A new primary in the shard's current view.
pub(crate) fn take_over(shard: &mut ShardPlan, primary: NodeId, fenced: bool) {
    shard.predecessor = Some(shard.primary);
    shard.primary = primary;
    if !deliberate::is(Fault::IncarnationKept) {
        shard.incarnation = shard.view;
    }
    shard.fenced = fenced || deliberate::is(Fault::FencedAtFailover);
    shard.frozen = false;
}
