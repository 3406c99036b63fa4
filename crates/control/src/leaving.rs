//! How one shard leaves nodes that are silent, cut off or gone, and where it goes on.

use crate::deliberate::{self, Fault};
use crate::migration::{Cancelled, Migration, MoveOutcome, drop_copy};
use crate::reach::{Ways, to_leave};
use crate::state::{AppState, Loss};
use crate::view::{retire, take_out, take_over};
use e3_model::plan::ShardPlan;
use e3_model::{Format, NodeId, Timestamp};
use std::collections::BTreeSet;

impl AppState {
    /// Ends the move of a shard, in a new view, if a process that has ended took part in it.
    pub(super) fn end_moves_of(&mut self, at: usize, servers: &[usize], gone: NodeId) {
        let shard = &self.plan.shards[at];
        let (key, stays) = (self.plan.key(shard), shard.primary != gone);
        let takes_part = |m: &Migration| m.key == key && (!stays || m.from == gone || m.to == gone);
        if self.migrations.iter().any(takes_part) {
            self.plan.shards[at].view += 1;
            self.end_move(at, servers, stays, &|n| n == gone);
        }
    }

    /// Replaces silent nodes of a shard, as far as a complete copy is on a node that is heard.
    pub(super) fn leave_silent(
        &mut self,
        at: usize,
        now: Timestamp,
        servers: &[usize],
        up: &dyn Fn(NodeId) -> bool,
        format: Format,
    ) {
        let shard = &self.plan.shards[at];
        if self.is_orphan(shard) || are_up(shard, up) {
            return;
        }
        let stateful = self.plan.app.service(shard.service).stateful;
        // The controller has the state of one that is being restored.
        let may_begin = format >= Format::WAITS_END && self.is_restoring(self.plan.key(shard));
        let waits = !up(shard.primary) && !has_heir(shard, up) && !may_begin;
        if waits && stateful {
            // A move needs a primary. The copies stay where they are.
            let key = self.plan.key(&self.plan.shards[at]);
            if self.is_moving(key) {
                self.plan.shards[at].view += 1;
                self.end_move(at, servers, false, &|n| !up(n));
            }
            return;
        }
        self.take_off(at, now, servers, &|n| !up(n), up);
    }

    /// Takes a shard to where its nodes reach each other: a backup that its primary cannot reach is
    /// replaced, or takes over if it reaches more nodes than the primary.
    pub(super) fn leave_cut(
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
        let has_copy = if self.plan.app.service(shard.service).stateful {
            retire(shard, off, servers, up)
        } else {
            take_out(shard, off, servers, up)
        };
        self.end_move(at, servers, !off(primary), off);
        if !has_copy {
            self.begin_empty(at, now);
        }
    }

    /// Ends the move of a shard, in a view that has begun, if it lost one of its ends or the primary
    /// that copies.
    pub(super) fn end_move(
        &mut self,
        at: usize,
        servers: &[usize],
        primary_stays: bool,
        lost: &dyn Fn(NodeId) -> bool,
    ) {
        let key = self.plan.key(&self.plan.shards[at]);
        let off = |m: &Migration| m.key == key && (!primary_stays || lost(m.from) || lost(m.to));
        let Some(of_shard) = self.migrations.iter().position(off) else {
            return;
        };
        let migration = self.migrations.remove(of_shard);
        let replicas = self.plan.app.service(key.service).replicas;
        let shard = &mut self.plan.shards[at];
        drop_copy(shard, &migration, replicas, servers);
        let outcome = outcome_of_loss(&migration, shard, lost);
        self.note_moved(&migration, outcome);
    }

    /// No complete copy of a shard is left. It goes on from one that has left it, if the primary may
    /// not have known that, and otherwise begins empty. That is a loss in either case: nobody can
    /// tell what the primary acknowledged alone.
    pub(super) fn begin_again(&mut self, at: usize, now: Timestamp, up: &dyn Fn(NodeId) -> bool) {
        let shard = &mut self.plan.shards[at];
        let heard = shard.leaving.iter().find(|n| up(**n));
        let Some(heir) = heard.or(shard.leaving.first()).copied() else {
            return self.begin_empty(at, now);
        };
        // They were to stand beside another primary, and have nothing yet.
        shard.joining.clear();
        shard.leaving.clear();
        take_over(shard, heir, false);
        let (service, shard_id) = shard.id();
        if shard.filled {
            self.note_loss(Loss {
                service,
                shard: shard_id,
                at: now,
            });
        }
    }

    /// No copy of a shard is left, in a view that has begun: it begins empty as soon as a node has
    /// room. A copy that comes back later is of an earlier era.
    fn begin_empty(&mut self, at: usize, now: Timestamp) {
        let shard = &mut self.plan.shards[at];
        let (service, shard_id) = shard.id();
        shard.joining.clear();
        shard.era = shard.view;
        shard.leaving.clear();
        // It stands still anyway; if it waits for the state of a backup, it stops again with its next node.
        shard.frozen = false;
        let had_state = std::mem::take(&mut shard.filled);
        self.orphans.insert((service, shard_id));
        if self.plan.app.service(service).stateful && had_state {
            self.note_loss(Loss {
                service,
                shard: shard_id,
                at: now,
            });
        }
    }
}

/// Whether the nodes that a shard is to stay on are heard.
pub(crate) fn are_up(shard: &ShardPlan, up: &dyn Fn(NodeId) -> bool) -> bool {
    let mut others = shard.staying().chain(shard.joining.iter().copied());
    up(shard.primary) && others.all(up)
}

/// Whether a copy that is heard may take over.
pub(crate) fn has_heir(shard: &ShardPlan, up: &dyn Fn(NodeId) -> bool) -> bool {
    let is_up = |n: &NodeId| up(*n);
    shard.backups.iter().any(is_up)
        || (deliberate::is(Fault::JoiningTakesOver) && shard.joining.iter().any(is_up))
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
