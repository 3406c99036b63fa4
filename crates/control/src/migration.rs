//! Cold migration (E3, 3.4): copy, freeze, switch. Every step is a view of the shard, and each waits
//! for the node to confirm the one before.

use crate::command::{Applied, CommandError};
use crate::failover::take_over;
use crate::limits::MOVES_MAX;
use crate::state::{AppState, Control};
use e3_model::plan::{NodeEvent, Role, ShardPlan};
use e3_model::{NodeId, ShardKey};
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
    /// Where it goes.
    pub to: NodeId,
    /// How far it is.
    pub phase: Phase,
}

/// Phase of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The new node is being brought up to date; the old one serves.
    Copying,
    /// The old primary has stopped handling and hands over the rest.
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

/// How a move ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoveOutcome {
    /// The replica is where it was to go, or was there and has gone on since.
    Done,
    /// The shard stayed where it was, or its fail-over decided.
    Cancelled(Cancelled),
}

/// Why a move was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cancelled {
    /// The node that it was to go to was lost.
    TargetLost,
    /// The node that it was to leave was lost.
    SourceLost,
    /// The primary that its copy came from was lost.
    PrimaryLost,
    /// It made no progress.
    Stalled,
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
    pub(crate) fn is_freezing(&self) -> bool {
        self.phase == Phase::Freezing
    }
}

impl Control {
    pub(crate) fn migrate(
        &mut self,
        key: ShardKey,
        from: NodeId,
        to: NodeId,
    ) -> Result<Applied, CommandError> {
        let no_shard = || CommandError::NoShard(self.shard_name(key));
        let (shard_name, node_name) = (|| self.shard_name(key), |n| self.node_name(n));
        let app = self.apps.get(&key.app).ok_or_else(no_shard)?;
        let shard = app.shard(key).ok_or_else(no_shard)?;
        let role = match shard.role(from) {
            Some(Role::Primary) if !app.is_orphan(shard) => Role::Primary,
            Some(Role::Backup) => Role::Backup,
            _ => {
                let (shard, node) = (shard_name(), node_name(from));
                return Err(CommandError::NoReplica { shard, node });
            }
        };
        if let Some(m) = app.migrations.iter().find(|m| m.key == key) {
            let (shard, to) = (shard_name(), node_name(m.to));
            return Err(CommandError::Moving { shard, to });
        }
        let has = shard.role(to);
        if has.is_some() && !(role == Role::Primary && has == Some(Role::Backup)) {
            let (shard, node) = (shard_name(), node_name(to));
            return Err(CommandError::AlreadyThere { shard, node });
        }
        let request = Request::new(&app.plan.app, &app.profiles);
        let others: Vec<NodeId> = [shard.primary]
            .into_iter()
            .chain(shard.backups.iter().chain(&shard.joining).copied())
            .filter(|n| *n != from && *n != to)
            .collect();
        let mut cluster = self.resources();
        if has == Some(Role::Backup) {
            // What it takes as a backup it need not find a second time.
            cluster.remove(&request, key.service, Role::Backup, to);
        }
        fits(&request, &cluster, key.service, role, to, &others).map_err(|misfit| {
            CommandError::Misfit {
                shard: shard_name(),
                node: node_name(to),
                misfit,
            }
        })?;
        let stateful = app.plan.app.service(key.service).stateful;
        let id = self.number_move();
        let app = self.apps.get_mut(&key.app).expect("just seen");
        let shard = app.shard_mut(key).expect("just seen");
        shard.view += 1;
        let mut migration = Migration {
            id,
            key,
            from,
            to,
            phase: Phase::Copying,
        };
        if !stateful {
            take_over(shard, to, true);
            app.note_moved(&migration, MoveOutcome::Done);
            return Ok(Applied::Moving(id));
        }
        if has == Some(Role::Backup) {
            shard.frozen = true;
            migration.phase = Phase::Freezing;
        } else {
            shard.joining.push(to);
        }
        app.migrations.push(migration);
        Ok(Applied::Moving(id))
    }

    /// Cancels a move that makes no progress. What serves goes on serving.
    pub(crate) fn cancel(&mut self, key: ShardKey) -> Result<Applied, CommandError> {
        let servers = self.servers();
        let name = self.shard_name(key);
        let app = self.apps.get_mut(&key.app);
        let app = app.ok_or_else(|| CommandError::NoShard(name.clone()))?;
        let Some(at) = app.migrations.iter().position(|m| m.key == key) else {
            return Ok(Applied::Nothing);
        };
        let migration = app.migrations.remove(at);
        let replicas = app.plan.app.service(key.service).replicas;
        let shard = app.shard_mut(key);
        let shard = shard.ok_or(CommandError::NoShard(name))?;
        shard.view += 1;
        drop_copy(shard, &migration, replicas, &servers);
        app.note_moved(&migration, MoveOutcome::Cancelled(Cancelled::Stalled));
        self.restore_all();
        Ok(Applied::Changed)
    }

    /// A node has done something that the next step waits for. Late news changes nothing.
    pub(crate) fn on_event(&mut self, event: NodeEvent) -> Applied {
        let (key, view) = match event {
            NodeEvent::Synced { key, view, .. } | NodeEvent::Frozen { key, view } => (key, view),
            NodeEvent::Filled { key, incarnation } => return self.on_filled(key, incarnation),
        };
        let Some(app) = self.apps.get_mut(&key.app) else {
            return Applied::Nothing;
        };
        let moving = app.migrations.iter().position(|m| m.key == key);
        let migration = moving.map(|i| app.migrations[i]);
        let Some(shard) = app.shard_mut(key) else {
            return Applied::Nothing;
        };
        if shard.view != view {
            return Applied::Nothing;
        }
        match event {
            NodeEvent::Synced { backup, .. } => {
                if !shard.joining.contains(&backup) {
                    return Applied::Nothing;
                }
                shard.joining.retain(|n| *n != backup);
                shard.backups.push(backup);
                shard.view += 1;
                if let (Some(m), Some(i)) = (migration, moving)
                    && m.to == backup
                {
                    if m.from == shard.primary {
                        shard.frozen = true;
                        app.migrations[i].phase = Phase::Freezing;
                    } else {
                        shard.backups.retain(|n| *n != m.from);
                        app.migrations.remove(i);
                        app.note_moved(&m, MoveOutcome::Done);
                    }
                }
            }
            NodeEvent::Frozen { .. } => {
                let (true, Some(m), Some(i)) = (shard.frozen, migration, moving) else {
                    return Applied::Nothing;
                };
                shard.backups.retain(|n| *n != m.to);
                shard.view += 1;
                take_over(shard, m.to, true);
                app.migrations.remove(i);
                app.note_moved(&m, MoveOutcome::Done);
                self.restore_all();
            }
            NodeEvent::Filled { .. } => unreachable!("returned above"),
        }
        Applied::Changed
    }

    /// A shard that began empty has state now.
    fn on_filled(&mut self, key: ShardKey, incarnation: u32) -> Applied {
        let app = self.apps.get_mut(&key.app);
        let Some(app) = app.filter(|a| !a.orphans.contains(&(key.service, key.shard))) else {
            return Applied::Nothing;
        };
        match app.shard_mut(key) {
            Some(shard) if shard.incarnation == incarnation && !shard.filled => {
                shard.filled = true;
                Applied::Changed
            }
            _ => Applied::Nothing,
        }
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
    let server = |n: NodeId| servers[usize::from(n.0)];
    let copies = || shard.backups.iter().chain(&shard.joining).copied();
    let others = [shard.primary].into_iter().chain(copies());
    let crowded = others.filter(|n| *n != to).any(|n| server(n) == server(to));
    if crowded || 1 + copies().count() > usize::from(replicas) {
        shard.backups.retain(|n| *n != to);
        shard.joining.retain(|n| *n != to);
    }
}
