//! Pre-copy migration: copy while the source serves, freeze, cut over. Every step is a view of the
//! shard and waits until the node has confirmed the previous step.
//!
//! A cold move (E3, 3.4) goes through the same phases, but the shard is frozen from the first view on.

use crate::command::{Applied, CommandError};
use crate::deliberate::{self, Fault};
use crate::limits::MOVES_MAX;
use crate::state::{AppState, Control};
use crate::view::{installed, leave, leave_as_former, take_over};
use e3_model::backup::Part;
use e3_model::plan::{NodeEvent, Role, ShardPlan};
use e3_model::{Format, NodeId, ShardKey};
use e3_placement::{Request, fits};
use serde::{Deserialize, Serialize};

/// A move in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// Its number, unique in the cluster.
    pub id: u64,
    /// The shard.
    pub key: ShardKey,
    /// Where the replica is.
    pub from: NodeId,
    /// Where it is moving.
    pub to: NodeId,
    /// Its phase.
    pub phase: Phase,
    /// The shard has been frozen since the move began.
    #[serde(default)]
    pub cold: bool,
}

/// The phase of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The new node receives the state; the old one serves, unless the move is cold.
    Copying,
    /// The old primary has stopped handling messages and transfers the rest.
    Freezing,
}

/// A move that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Its number.
    pub id: u64,
    /// The shard.
    pub key: ShardKey,
    /// Where the replica was.
    pub from: NodeId,
    /// Where it was to go.
    pub to: NodeId,
    /// How it ended.
    pub outcome: MoveOutcome,
}

/// The outcome of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoveOutcome {
    /// The replica has reached its target; it may have moved on since.
    Done,
    /// The shard stayed where it was, or a fail-over moved it.
    Cancelled(Cancelled),
}

/// Why a move was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cancelled {
    /// The target node was lost.
    TargetLost,
    /// The source node was lost.
    SourceLost,
    /// The primary that sent the copy was lost.
    PrimaryLost,
    /// It made no progress.
    Stalled,
    /// The target node was taken out of service.
    Drained,
    /// The service was scaled to fewer copies.
    Scaled,
}

impl AppState {
    pub(crate) fn note_moved(&mut self, migration: &Migration, outcome: MoveOutcome) {
        let Migration {
            id, key, from, to, ..
        } = *migration;
        self.moved.push_back(Moved {
            id,
            key,
            from,
            to,
            outcome,
        });
        if self.moved.len() > MOVES_MAX {
            self.moved.pop_front();
        }
    }
}

impl Migration {
    /// Whether the shard is frozen, so that it serves no requests until the move ends.
    pub fn is_frozen(&self) -> bool {
        self.cold || self.phase == Phase::Freezing
    }
}

impl Control {
    /// Begins a move; the move of a stateless shard is done at once.
    pub(crate) fn migrate(
        &mut self,
        key: ShardKey,
        from: NodeId,
        to: NodeId,
        cold: bool,
    ) -> Result<Applied, CommandError> {
        let is_backup = self.check_move(key, from, to, cold)?;
        let id = self.next_migration();
        let app = self.apps.get_mut(&key.app).expect("just seen");
        let stateful = app.plan.app.service(key.service).stateful;
        let shard = app.shard_mut(key).expect("just seen");
        shard.view += 1;
        let mut migration = Migration {
            id,
            key,
            from,
            to,
            phase: Phase::Copying,
            cold,
        };
        if !stateful {
            take_over(shard, to, true);
            app.note_moved(&migration, MoveOutcome::Done);
            return Ok(Applied::Moving(id));
        }
        if is_backup {
            shard.leaving.retain(|n| *n != to);
            shard.frozen = true;
            migration.phase = Phase::Freezing;
        } else {
            shard.joining.push(to);
            shard.frozen = cold;
        }
        app.migrations.push(migration);
        Ok(Applied::Moving(id))
    }

    /// Checks whether a replica may move; true if the target node holds a backup of the shard.
    pub(crate) fn check_move(
        &self,
        key: ShardKey,
        from: NodeId,
        to: NodeId,
        cold: bool,
    ) -> Result<bool, CommandError> {
        let name = || self.shard_name(key);
        let app = self.apps.get(&key.app);
        let app = app.ok_or_else(|| CommandError::NoShard(name()))?;
        let shard = app.shard(key);
        let shard = shard.ok_or_else(|| CommandError::NoShard(name()))?;
        let role = match shard.role(from) {
            Some(Role::Primary) if !app.is_orphan(shard) => Role::Primary,
            Some(Role::Backup) if !shard.leaving.contains(&from) => Role::Backup,
            _ => {
                let (shard, node) = (name(), self.node_name(from));
                return Err(CommandError::NoReplica { shard, node });
            }
        };
        if cold && role == Role::Backup {
            let (shard, node) = (name(), self.node_name(from));
            return Err(CommandError::ColdBackup { shard, node });
        }
        if !self.is_up(shard.primary) {
            let (shard, node) = (name(), self.node_name(shard.primary));
            return Err(CommandError::Waits { shard, node });
        }
        if app.is_resharding(key) {
            let service = self.service_name(app, key.service);
            let shards = app.resharding.as_ref().map_or(0, |r| r.split.after);
            return Err(CommandError::Resharding { service, shards });
        }
        if app.is_restoring(key) {
            let what = format!("{} is being restored", name());
            let app = app.plan.app.name.clone();
            return Err(CommandError::Busy { app, what });
        }
        if let Some(m) = app.migrations.iter().find(|m| m.key == key) {
            let (shard, to) = (name(), self.node_name(m.to));
            return Err(CommandError::Moving { shard, to });
        }
        let at_target = shard.role(to);
        let is_backup = at_target == Some(Role::Backup);
        if at_target.is_some() && !(role == Role::Primary && is_backup) {
            let (shard, node) = (name(), self.node_name(to));
            return Err(CommandError::AlreadyThere { shard, node });
        }
        let request = Request::new(&app.plan.app, &app.profiles);
        let mut others = vec![shard.primary];
        others.extend(shard.staying().chain(shard.joining.iter().copied()));
        others.retain(|n| *n != from && *n != to);
        let fits = self.try_resources(|cluster| {
            if is_backup {
                // The resources that it uses as a backup are not needed a second time.
                cluster.remove(&request, key.service, Role::Backup, to);
            }
            fits(&request, cluster, key.service, role, to, &others)
        });
        fits.map_err(|misfit| CommandError::Misfit {
            shard: name(),
            node: self.node_name(to),
            misfit,
        })?;
        Ok(is_backup)
    }

    /// Cancels a move that makes no progress. The replica that serves continues.
    pub(crate) fn cancel(&mut self, key: ShardKey) -> Result<Applied, CommandError> {
        let app = self.apps.get(&key.app);
        let shard = app.and_then(|app| app.shard(key));
        if shard.is_none() {
            return Err(CommandError::NoShard(self.shard_name(key)));
        }
        if let Some(app) = self.apps.get_mut(&key.app)
            && app.cancel_resharding(key.service)
        {
            self.settle_all();
            return Ok(Applied::Changed);
        }
        if !self.undo_move(key, Cancelled::Stalled) {
            return Ok(Applied::Nothing);
        }
        self.stalled.insert(key);
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Ends the move of a shard, which stays where it is. False if it does not move.
    pub(crate) fn undo_move(&mut self, key: ShardKey, why: Cancelled) -> bool {
        let servers = self.servers();
        let Some(app) = self.apps.get_mut(&key.app) else {
            return false;
        };
        let Some(at) = app.migrations.iter().position(|m| m.key == key) else {
            return false;
        };
        let migration = app.migrations.remove(at);
        let replicas = app.plan.app.service(key.service).replicas;
        let shard = app.shard_mut(key).expect("it moves");
        shard.view += 1;
        drop_copy(shard, &migration, replicas, &servers);
        app.note_moved(&migration, MoveOutcome::Cancelled(why));
        true
    }

    /// Applies an event of a node that the next step waits for. Events of an older view and repeated
    /// events change nothing.
    pub(crate) fn on_event(&mut self, event: NodeEvent) -> Applied {
        if let NodeEvent::Ahead { key, view, backup } = event {
            return self.on_ahead(key, view, backup);
        }
        let (NodeEvent::Synced { key, .. }
        | NodeEvent::Ahead { key, .. }
        | NodeEvent::Frozen { key, .. }
        | NodeEvent::Installed { key, .. }
        | NodeEvent::Filled { key, .. }
        | NodeEvent::Copied { key, .. }
        | NodeEvent::Cut { key, .. }
        | NodeEvent::Restored { key, .. }) = event;
        let app = self.apps.get_mut(&key.app);
        let was_moving = app.as_ref().is_some_and(|app| app.is_moving(key));
        let changed = app.is_some_and(|app| match event {
            NodeEvent::Synced { view, backup, .. } => app.on_synced(key, view, backup),
            NodeEvent::Frozen { view, .. } => app.on_stopped(key, view) || app.on_frozen(key, view),
            NodeEvent::Installed { view, .. } => {
                let shard = app.shard_mut(key);
                shard.is_some_and(|shard| installed(shard, view))
            }
            NodeEvent::Ahead { .. } => false,
            NodeEvent::Filled { incarnation, .. } => app.on_filled(key, incarnation),
            NodeEvent::Copied {
                incarnation,
                number,
                ..
            } => app.on_copied(key, incarnation, number),
            NodeEvent::Cut {
                incarnation,
                number,
                op,
                len,
                crc,
                ..
            } => {
                let (service, shard) = (key.service, key.shard);
                let part = Part {
                    service,
                    shard,
                    op,
                    len,
                    crc,
                };
                app.on_cut(key, incarnation, number, part)
            }
            NodeEvent::Restored { view, .. } => app.on_restored(key, view),
        });
        if !changed {
            return Applied::Nothing;
        }
        if self.format >= Format::WAITS_END {
            let has_copied = was_moving || matches!(event, NodeEvent::Synced { .. });
            let apps = &self.apps;
            // What kept its last move may be over.
            self.stalled.retain(|stalled| {
                let app = apps.get(&stalled.app);
                let is_there = app.is_some_and(|app| app.shard(*stalled).is_some());
                is_there && !(has_copied && *stalled == key)
            });
        }
        self.settle_all();
        Applied::Changed
    }
}

impl AppState {
    /// A joining backup has everything. Returns whether that changed anything.
    fn on_synced(&mut self, key: ShardKey, view: u32, backup: NodeId) -> bool {
        let moving = self.migrations.iter().position(|m| m.key == key);
        let moving = moving.filter(|at| self.migrations[*at].to == backup);
        let Some(shard) = self.shard_mut(key) else {
            return false;
        };
        if shard.view != view || !shard.joining.contains(&backup) {
            return false;
        }
        shard.joining.retain(|n| *n != backup);
        shard.leaving.retain(|n| *n != backup);
        shard.backups.push(backup);
        shard.view += 1;
        let Some(at) = moving else {
            return true;
        };
        let migration = self.migrations[at];
        let shard = self.shard_mut(key).expect("just seen");
        if migration.from == shard.primary && deliberate::is(Fault::FreezeSkipped) {
            shard.backups.retain(|n| *n != migration.to);
            take_over(shard, migration.to, true);
            self.migrations.remove(at);
        } else if migration.from == shard.primary {
            shard.frozen = true;
            self.migrations[at].phase = Phase::Freezing;
        } else {
            leave(shard, migration.from);
            self.migrations.remove(at);
            self.note_moved(&migration, MoveOutcome::Done);
        }
        true
    }

    /// The old primary has stopped: the new one takes over. Returns whether that changed anything.
    fn on_frozen(&mut self, key: ShardKey, view: u32) -> bool {
        // The primary of a cold move is at rest before the new node has everything.
        let freezing = |m: &Migration| m.key == key && m.phase == Phase::Freezing;
        let Some(at) = self.migrations.iter().position(freezing) else {
            return false;
        };
        let migration = self.migrations[at];
        let shard = self.shard_mut(key);
        let Some(shard) = shard.filter(|s| s.view == view && s.frozen) else {
            return false;
        };
        shard.backups.retain(|n| *n != migration.to);
        shard.view += 1;
        let former = shard.primary;
        take_over(shard, migration.to, true);
        leave_as_former(shard, former);
        self.migrations.remove(at);
        self.note_moved(&migration, MoveOutcome::Done);
        true
    }

    /// A shard that began empty has state. True if that changed anything.
    fn on_filled(&mut self, key: ShardKey, incarnation: u32) -> bool {
        if self.orphans.contains(&(key.service, key.shard)) || self.is_restoring(key) {
            return false;
        }
        let shard = self.shard_mut(key);
        let Some(shard) = shard.filter(|s| s.incarnation == incarnation && !s.filled) else {
            return false;
        };
        shard.filled = true;
        true
    }
}

/// Undoes a move in a view that has begun already: the shard thaws, and the new copy goes unless it
/// serves as a replica like any other: not one too many, and alone in its fault domain.
pub(crate) fn drop_copy(
    shard: &mut ShardPlan,
    migration: &Migration,
    replicas: u16,
    servers: &[usize],
) {
    shard.frozen = false;
    let to = migration.to;
    let server = |n: NodeId| servers[n.index()];
    let copies = || shard.staying().chain(shard.joining.iter().copied());
    let others = [shard.primary].into_iter().chain(copies());
    let crowded = others.filter(|n| *n != to).any(|n| server(n) == server(to));
    if crowded || 1 + copies().count() > usize::from(replicas) {
        shard.joining.retain(|n| *n != to);
        if shard.backups.contains(&to) {
            leave(shard, to);
        }
    }
}
