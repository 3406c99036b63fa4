//! Splitting and merging the copies of a service's shards on this node, when their number changes.
//!
//! Every primary of a stateful service has confirmed that it stopped, that its backups have everything,
//! and that nothing of it is on its way. So each node with a copy of the shards before makes the same of
//! it, and no state moves. docs/design/014.

use super::Worker;
use crate::app::ReplicaId;
use crate::journal::{Disk, Position};
use crate::log::Log;
use crate::replica::Replica;
use e3_model::plan::{AppPlan, Role, ShardPlan};
use e3_model::reshard::{Resharded, Split};
use e3_model::{NodeId, ShardId, ShardKey};
use e3_wire::journal::Step;
use std::collections::BTreeSet;
use std::ops::Range;

/// What was here of the shards that others are made of.
#[derive(Default)]
struct Before {
    logs: Vec<Log>,
    former: BTreeSet<NodeId>,
    /// The latest of their views.
    view: u32,
    /// Where the journal begins that is needed for them, if they are on disk.
    base: Option<Position>,
    is_recovered: bool,
}

impl Worker {
    /// Takes out the replicas of shards that were split or merged, and gives those that they become.
    pub(super) fn reshard(&mut self, plan: &AppPlan) -> Vec<Replica> {
        let mut made = Vec::new();
        for change in &plan.resharded {
            let shards = plan.shards.iter().filter(|s| s.service == change.service);
            let all: Vec<&ShardPlan> = shards
                .filter(|s| self.is_made_here(plan, change, s))
                .collect();
            if all.is_empty() {
                continue;
            }
            for parents in families(change.split) {
                let children = change.split.children(ShardId(parents.start));
                let wanted = all.iter().copied();
                let wanted = wanted.filter(|s| children.contains(&s.shard.0));
                let wanted: Vec<&ShardPlan> = wanted.collect();
                let keys = parents.map(|shard| plan.key_of(change.service, shard));
                let keys: Vec<ShardKey> = keys.collect();
                if !wanted.is_empty() && keys.iter().all(|key| self.has_before(*key, change)) {
                    self.reshard_family(plan, change, &keys, &wanted, &mut made);
                }
            }
        }
        made
    }

    /// Whether this node had complete copies of what the shard was made of, and has none of it yet.
    fn is_made_here(&self, plan: &AppPlan, change: &Resharded, shard: &ShardPlan) -> bool {
        let me = self.world.config.node;
        // Who joined since has nothing; who is to leave now was a backup then.
        let keeps = matches!(shard.role(me), Some(Role::Primary | Role::Backup))
            || shard.leaving.contains(&me);
        let id = self.find(plan.key(shard));
        let hosted = id.and_then(|id| self.replicas.get(id.at()));
        keeps && shard.era == change.era && hosted.is_none_or(|h| h.replica.era != change.era)
    }

    /// Whether this node has the shard before, or its copy on disk, that the change was made with. Where a shard after
    /// is wanted here the copy is complete, although this node may not have heard that it no longer joined.
    fn has_before(&self, key: ShardKey, change: &Resharded) -> bool {
        let era = change.eras.get(usize::from(key.shard.0)).copied();
        let hosted = self.find(key).and_then(|id| self.replicas.get(id.at()));
        let has_state = |r: &Replica| Some(r.era) == era && !r.awaits_state;
        let recovered = self.recovered.get(&key);
        hosted.is_some_and(|h| has_state(&h.replica))
            || recovered.is_some_and(|copy| Some(copy.origin.era) == era)
    }

    /// Makes the shards of one family, whose slots are those of the shards in `keys`.
    fn reshard_family(
        &mut self,
        plan: &AppPlan,
        change: &Resharded,
        keys: &[ShardKey],
        wanted: &[&ShardPlan],
        made: &mut Vec<Replica>,
    ) {
        let others = wanted.iter().map(|shard| plan.key(shard));
        for key in others.filter(|key| !keys.contains(key)) {
            self.make_way(key);
        }
        let mut before = Before::default();
        for key in keys {
            self.take_before(*key, &mut before);
        }
        let service = plan.app.service(change.service);
        if !service.stateful {
            // It did not stop: such messages are handled again.
            for log in &mut before.logs {
                log.forget_unsent(self.world.now);
            }
        }
        let is_on_disk = service.is_on_disk();
        if is_on_disk {
            self.append_step(keys[0], Step::Reshard(change.split, change.era));
        }
        let children = change.split.children(keys[0].shard);
        let logs = Log::reshard(before.logs, change.split, keys[0].shard, change.era);
        for (shard, log) in children.map(ShardId).zip(logs) {
            let key = ShardKey { shard, ..keys[0] };
            let Some(shard) = wanted.iter().find(|s| s.shard == shard) else {
                if is_on_disk {
                    self.append_step(key, Step::Drop);
                }
                continue;
            };
            let counts = self.past.remove(&key).unwrap_or_default();
            let former = before.former.clone();
            let mut replica = Replica::of_shards_before(key, shard, counts, log, former);
            replica.is_recovered = before.is_recovered;
            if shard.view > before.view + 1 {
                replica.follow_unheard(self.world.leases.ahead());
            }
            if is_on_disk {
                let base = before.base.unwrap_or(self.journal.end());
                let copy = self.journal.next_copy();
                replica.shard.disk = Some(Disk::new(copy, replica.shard.log.op, base));
            }
            made.push(replica);
        }
    }

    /// Drops what is here of an earlier era of a shard, before the change is written down.
    fn make_way(&mut self, key: ShardKey) {
        if let Some(id) = self.find(key) {
            self.drop_replica(id);
        }
        if self.recovered.remove(&key).is_some() {
            self.append_step(key, Step::Drop);
        }
    }

    fn take_before(&mut self, key: ShardKey, before: &mut Before) {
        let base = match self
            .find(key)
            .and_then(|id: ReplicaId| self.take_replica(id))
        {
            Some(replica) => {
                before.former.extend(replica.former());
                before.view = before.view.max(replica.shard.view);
                before.is_recovered |= replica.is_recovered;
                before.logs.push(replica.shard.log);
                replica.shard.disk.map(|disk| disk.base)
            }
            None => self.recovered.remove(&key).map(|copy| {
                before.is_recovered = true;
                before.logs.push(copy.log);
                copy.base
            }),
        };
        before.base = before.base.into_iter().chain(base).min();
    }
}

/// The shards before that are split, or merged with each other, in such an order that no shard after
/// takes the place of one that is needed later: so records of it can be read.
fn families(split: Split) -> Vec<Range<u16>> {
    let mut families = Vec::new();
    let mut first = 0;
    while first < split.before {
        let child = split.children(ShardId(first)).start;
        let parents = split.parents(ShardId(child));
        first = parents.end;
        families.push(parents);
    }
    if split.after > split.before {
        families.reverse();
    }
    families
}
