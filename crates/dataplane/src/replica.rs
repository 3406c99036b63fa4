//! One replica of a shard: its log, its role, and the changes from one role to another.

use crate::backup::{Backup, Taken};
use crate::deliberate::{self, Fault};
use crate::journal::Awaited;
use crate::log::Log;
use crate::primary::Primary;
use crate::shard::{Context, Counts, Effect, Shard, Turn};
use e3_collections::{CollectionSpec, State};
use e3_model::plan::{NodeEvent, Role, ShardPlan};
use e3_model::{NodeId, ShardKey, Timestamp};
use e3_wire::journal::{Record, Step};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A replica of a shard on this node.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) shard: Shard,
    pub(crate) role: RoleState,
    /// The view in which the shard had begun empty when this replica came here.
    pub(crate) era: u32,
    /// Its log was on disk: the process before may have granted leases.
    pub(crate) is_recovered: bool,
    /// It waits for the state of a backup, with which it begins as the primary.
    pub(crate) awaits_state: bool,
    /// Every primary of the shard since this replica is here: this node may have promised it not
    /// to take over.
    former: BTreeSet<NodeId>,
}

/// What a replica does, with what only that role needs.
#[derive(Debug)]
pub(crate) enum RoleState {
    /// Handles messages.
    Primary(Box<Primary>),
    /// Up to date, and follows.
    Backup(Backup),
    /// Is being brought up to date.
    Joining(Backup),
}

impl Replica {
    /// An empty replica that follows a primary.
    pub(crate) fn new(
        key: ShardKey,
        plan: &ShardPlan,
        counts: Counts,
        collections: &[CollectionSpec],
    ) -> Replica {
        Replica {
            shard: Shard {
                key,
                view: plan.view,
                incarnation: plan.incarnation,
                log: Log::new(collections),
                disk: None,
                counts,
                error: None,
            },
            role: RoleState::Joining(Backup::default()),
            era: plan.era,
            is_recovered: false,
            awaits_state: false,
            former: BTreeSet::from([plan.primary]),
        }
    }

    /// An up-to-date replica with the log of the shards that its shard was made of.
    pub(crate) fn of_shards_before(
        key: ShardKey,
        plan: &ShardPlan,
        counts: Counts,
        log: Log,
        former: BTreeSet<NodeId>,
    ) -> Replica {
        let mut replica = Replica::new(key, plan, counts, &[]);
        replica.shard.log = log;
        replica.role = RoleState::Backup(Backup::default());
        replica.former.extend(former);
        replica
    }

    /// Takes a log that was on disk.
    pub(crate) fn recover(&mut self, log: Log) {
        self.shard.log = log;
        self.is_recovered = true;
    }

    pub(crate) fn role(&self) -> Role {
        match self.role {
            RoleState::Primary(_) => Role::Primary,
            RoleState::Backup(_) => Role::Backup,
            RoleState::Joining(_) => Role::Joining,
        }
    }

    /// The primary's part, if this replica is the primary.
    pub(crate) fn as_primary(&self) -> Option<&Primary> {
        match &self.role {
            RoleState::Primary(primary) => Some(primary),
            RoleState::Backup(_) | RoleState::Joining(_) => None,
        }
    }

    /// The primary's part and what its transitions work on, if this replica is the primary.
    pub(crate) fn primary<'a>(
        &'a mut self,
        cx: &'a Context<'a>,
        effects: &'a mut Vec<Effect>,
    ) -> Option<(&'a mut Primary, Turn<'a>)> {
        let RoleState::Primary(primary) = &mut self.role else {
            return None;
        };
        let shard = &mut self.shard;
        Some((primary, Turn { cx, shard, effects }))
    }

    /// Takes an item of the primary's stream.
    pub(crate) fn on_item(
        &mut self,
        cx: &Context<'_>,
        bytes: &[u8],
    ) -> Result<Taken, &'static str> {
        match &mut self.role {
            RoleState::Backup(backup) | RoleState::Joining(backup) => {
                backup.on_item(cx, &mut self.shard, bytes)
            }
            RoleState::Primary(_) => Err("a primary takes no stream"),
        }
    }

    /// Collections to free beside the loop.
    pub(crate) fn take_discarded(&mut self) -> Vec<Rc<RefCell<State>>> {
        match &mut self.role {
            RoleState::Primary(_) => Vec::new(),
            RoleState::Backup(backup) | RoleState::Joining(backup) => backup.take_discarded(),
        }
    }

    /// Whether a snapshot is arriving.
    pub(crate) fn has_incoming(&self) -> bool {
        match &self.role {
            RoleState::Primary(_) => false,
            RoleState::Backup(backup) | RoleState::Joining(backup) => backup.has_incoming(),
        }
    }

    /// Every primary of the shard since this replica is here.
    pub(crate) fn former(&self) -> impl Iterator<Item = NodeId> {
        self.former.iter().copied()
    }

    /// Nodes that may have been its primaries in views of which this node has not heard.
    pub(crate) fn follow_unheard(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.former.extend(nodes);
    }

    /// Nodes that may still serve the shard by a lease of this node.
    pub(crate) fn former_primaries(&self, plan: &ShardPlan) -> BTreeSet<NodeId> {
        let predecessor = plan.predecessor.into_iter();
        self.former.iter().copied().chain(predecessor).collect()
    }

    /// Follows the primary of another view.
    pub(crate) fn follow(&mut self, plan: &ShardPlan, role: Role) {
        self.shard.view = plan.view;
        self.shard.incarnation = plan.incarnation;
        self.former.insert(plan.primary);
        let role_before = std::mem::replace(&mut self.role, RoleState::Joining(Backup::default()));
        self.role = match (role_before, role) {
            (RoleState::Backup(b) | RoleState::Joining(b), Role::Backup) => RoleState::Backup(b),
            (RoleState::Backup(b) | RoleState::Joining(b), _) => RoleState::Joining(b),
            (RoleState::Primary(_), Role::Backup) => RoleState::Backup(Backup::default()),
            (RoleState::Primary(_), _) => RoleState::Joining(Backup::default()),
        };
    }

    /// Becomes the primary: all that it has is the log now.
    pub(crate) fn promote(
        &mut self,
        now: Timestamp,
        plan: &ShardPlan,
        serve_at: Timestamp,
        generation: u32,
        effects: &mut Vec<Effect>,
    ) {
        self.shard.view = plan.view;
        self.shard.incarnation = plan.incarnation;
        self.shard.error = None;
        if deliberate::is(Fault::OutboxDropped) {
            self.shard.log.release(self.shard.log.op);
        }
        self.shard
            .log
            .history
            .begin_reign(plan.view, self.shard.log.op);
        if let Some(disk) = &mut self.shard.disk {
            disk.abandon_checkpoint();
            let (key, step) = (self.shard.key, Step::Reign(plan.view));
            let record = Record { key, step }.encode();
            effects.push(Effect::Journal(record, Awaited::Nothing));
        }
        // What an instance reads when it starts has not expired either.
        let time = self.shard.log.time(now);
        self.shard.log.state.borrow_mut().advance(time);
        let primary = Primary::new(now, &self.shard.log, serve_at, generation);
        self.role = RoleState::Primary(Box::new(primary));
        effects.push(Effect::Start(self.shard.log.state.clone()));
        effects.push(Effect::WakeAt(serve_at));
    }

    /// A primary that its service's version kept from running starts in the next one.
    pub(crate) fn start_again(&mut self, effects: &mut Vec<Effect>) {
        if self.as_primary().is_some() && self.shard.error.take().is_some() {
            effects.push(Effect::Start(self.shard.log.state.clone()));
        }
    }

    /// What the controller must hear, until a plan shows that it has.
    pub(crate) fn events(&self, cx: &Context<'_>, events: &mut Vec<NodeEvent>) {
        let (me, app) = (cx.config.node, &cx.app.plan);
        let plan = cx.app.shard(self.shard.key);
        if let RoleState::Backup(backup) = &self.role
            && backup.is_ahead(&self.shard)
        {
            events.push(NodeEvent::Ahead {
                key: self.shard.key,
                view: plan.view,
                backup: me,
            });
        }
        let (Some(primary), Shard { key, log, .. }) = (self.as_primary(), &self.shard) else {
            return;
        };
        // A new copy has promised nothing to the predecessor, and the successor of a primary that
        // stopped does not wait. So neither is confirmed while the predecessor may serve.
        let has_taken_over = cx.now >= primary.serve_at;
        let knows_all = !primary.streams.has_unheard();
        for node in plan.joining.iter().copied() {
            if has_taken_over && knows_all && primary.streams.is_synced(node) {
                events.push(NodeEvent::Synced {
                    key: *key,
                    view: plan.view,
                    backup: node,
                });
            }
        }
        // A copy that leaves may be the only one with everything. It has until the primary could serve to say so.
        if !plan.leaving.is_empty() && (has_taken_over || knows_all) {
            events.push(NodeEvent::Installed {
                key: *key,
                view: plan.view,
            });
        }
        if !plan.filled && self.shard.op_on_disk() > 0 {
            events.push(NodeEvent::Filled {
                key: *key,
                incarnation: self.shard.incarnation,
            });
        }
        let is_quiet = !plan.quiet || log.outbox.is_empty();
        if has_taken_over
            && knows_all
            && plan.frozen
            && primary.frozen
            && is_quiet
            && primary.is_at_rest(log)
            // A copy that joins goes on with the successor.
            && primary.streams.acked_by_all(log.op) == log.op
        {
            events.push(NodeEvent::Frozen {
                key: *key,
                view: plan.view,
            });
        }
        if let Some(order) = &app.backup {
            events.extend(primary.export_event(&self.shard, order));
        }
        let restored = app.restored.as_ref();
        let part = restored.and_then(|r| r.part(key.service, key.shard));
        let is_everywhere = self.shard.op_on_disk() >= log.op && primary.streams.all_have(log.op);
        if part.is_some() && is_everywhere {
            events.push(NodeEvent::Restored {
                key: *key,
                view: plan.view,
            });
        }
    }

    /// Panics if an invariant is broken. `is_ready`: the worker is about to call its primary.
    pub(crate) fn validate(&self, cx: &Context<'_>, is_ready: bool) {
        self.shard.log.validate();
        let key = self.shard.key;
        assert_eq!(
            self.era,
            cx.app.shard(key).era,
            "{key}: a copy of an earlier era"
        );
        if let RoleState::Primary(primary) = &self.role {
            primary.validate(cx, &self.shard, is_ready);
        }
    }
}
