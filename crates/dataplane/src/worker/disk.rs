//! The worker's side of the journal: records out, what is durable in, checkpoints.

use super::{Output, Worker};
use crate::app::ReplicaId;
use crate::backup::Taken;
use crate::deliberate::{self, Fault};
use crate::journal::{Awaited, Disk, Journal, Position, Waiter};
use crate::links::Delivery;
use crate::recovery::Recovery;
use crate::replica::{Replica, RoleState};
use crate::timers::Timer;
use e3_model::{Nanos, ShardKey, Timestamp};
use e3_wire::journal::{Origin, Record, Step, seal};

impl Worker {
    /// Takes what was on disk, before the first plan.
    pub fn handle_recovery(&mut self, now: Timestamp, recovery: Recovery) {
        let (end, copies) = recovery.finish();
        self.world.recovered_at = now;
        self.journal = Journal::at(end);
        self.recovered = copies;
    }

    /// Records of the journal up to this one are durable.
    pub fn handle_journaled(&mut self, now: Timestamp, number: u64) {
        self.world.now = now;
        self.journal.on_durable(number);
        while let Some(waiter) = self.journal.pop() {
            self.on_durable_record(waiter);
        }
        let is_long = self.journal.len_bytes() > self.world.config.journal_len_min;
        if is_long || self.journal.is_checkpointing {
            self.timers.set(now, Timer::Checkpoint);
        }
    }

    /// Appends a record to the journal.
    pub(super) fn append_record(&mut self, mut record: Vec<u8>) {
        seal(self.world.plan.format, &mut record);
        let number = self.journal.end().number;
        self.journal.on_append(record.len());
        self.outputs.push_back(Output::Journal { number, record });
    }

    pub(super) fn append_step(&mut self, key: ShardKey, step: Step) {
        self.append_record(Record { key, step }.encode());
    }

    /// Sees that something is noted when all records so far are durable.
    pub(super) fn await_disk(&mut self, id: ReplicaId, what: Awaited, delivery: Option<Delivery>) {
        let hosted = self.replicas.get(id.at());
        let Some(disk) = hosted.and_then(|h| h.replica.shard.disk.as_ref()) else {
            return;
        };
        if matches!(what, Awaited::Nothing) && delivery.is_none() {
            return;
        }
        let waiter = Waiter {
            replica: id,
            copy: disk.copy,
            what,
            delivery,
        };
        if let Some(waiter) = self.journal.wait(waiter) {
            self.on_durable_record(waiter);
        }
    }

    fn on_durable_record(&mut self, waiter: Waiter) {
        let now = self.world.now;
        if let Some(delivery) = &waiter.delivery {
            self.links
                .complete(now, &mut self.timers, delivery, Nanos::ZERO);
        }
        let id = waiter.replica;
        let hosted = self.replicas.get_mut(id.at());
        let disk = hosted.and_then(|h| h.replica.shard.disk.as_mut());
        let Some(disk) = disk.filter(|disk| disk.copy == waiter.copy) else {
            return;
        };
        match waiter.what {
            Awaited::Nothing => {}
            Awaited::Op(op) => {
                disk.op = disk.op.max(op);
                self.primary(id, |p, turn| p.advance(turn));
            }
            Awaited::Base(base) => {
                disk.on_checkpoint_durable(base);
                if self.replicas[id.at()].replica.awaits_state {
                    self.begin_restored(id);
                }
                self.trim_journal();
            }
        }
    }

    /// Writes down an item that a backup has taken, which is acknowledged when it is durable. `op`: the
    /// last entry of its log then.
    pub(super) fn write_item(
        &mut self,
        id: ReplicaId,
        delivery: Delivery,
        taken: Taken,
        item: &[u8],
        op: u64,
    ) {
        let copy = self.journal.next_copy();
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let shard = &mut hosted.replica.shard;
        let Some(disk) = &mut shard.disk else {
            return;
        };
        match taken {
            Taken::SnapshotBegin => disk.abandon_checkpoint(),
            // Another log, whose entries may have numbers that the one before had.
            Taken::SnapshotEnd => (disk.copy, disk.op) = (copy, 0),
            Taken::Known | Taken::New => {}
        }
        if taken != Taken::Known {
            let record = Record::encode_item(shard.key, item);
            self.append_record(record);
        }
        if deliberate::is(Fault::AckBeforeDisk) {
            let now = self.world.now;
            self.links
                .complete(now, &mut self.timers, &delivery, Nanos::ZERO);
        }
        self.await_disk(id, Awaited::Op(op), Some(delivery));
    }

    /// Puts a new replica on disk, or gives it the copy that was there.
    pub(super) fn put_on_disk(&mut self, replica: &mut Replica) {
        let key = replica.shard.key;
        let number = self.journal.next_copy();
        match self.recovered.remove(&key) {
            Some(copy) if copy.origin.era == replica.era => {
                replica.shard.disk = Some(Disk::new(number, copy.log.op, copy.base));
                replica.recover(copy.log);
                return;
            }
            Some(copy) => self.discard([copy.log.state]),
            None => {}
        }
        replica.shard.disk = Some(Disk::new(number, 0, self.journal.end()));
        let origin = self.origin(replica);
        self.append_step(key, Step::Begin(origin));
    }

    pub(super) fn origin(&self, replica: &Replica) -> Origin {
        let log = &replica.shard.log;
        Origin {
            cluster: self.world.config.cluster,
            era: replica.era,
            since: log.since,
            collections: log.state.borrow().specs().to_vec(),
        }
    }

    /// A replica is gone, and with it what its node wrote down.
    pub(super) fn drop_from_disk(&mut self, replica: &Replica) {
        if replica.shard.disk.is_some() {
            self.append_step(replica.shard.key, Step::Drop);
            self.trim_journal();
        }
    }

    /// The plan does not ask for what is left of what was on disk.
    pub(super) fn drop_recovered(&mut self) {
        for (key, copy) in std::mem::take(&mut self.recovered) {
            self.append_step(key, Step::Drop);
            self.discard([copy.log.state]);
        }
        self.trim_journal();
    }

    /// The replicas here that are on disk: the beginning of what each needs.
    fn bases(&self) -> impl Iterator<Item = (Position, ReplicaId)> {
        self.replicas.iter().filter_map(|(at, hosted)| {
            let disk = hosted.replica.shard.disk.as_ref()?;
            Some((disk.base, ReplicaId::new(at)))
        })
    }

    fn trim_journal(&mut self) {
        if !self.recovered.is_empty() {
            return;
        }
        let base = self.bases().map(|(base, _)| base).min();
        if let Some(before) = self.journal.trim(base) {
            self.outputs.push_back(Output::TrimJournal { before });
        }
    }

    /// Whether no snapshot arrives for a replica. One of which nothing comes any more is given up: as
    /// long as it may arrive, its copy gets no checkpoint, and the journal of the node grows.
    fn has_no_snapshot(&mut self, id: ReplicaId) -> bool {
        let now = self.world.now;
        let Replica { shard, role, .. } = &mut self.replicas[id.at()].replica;
        if let RoleState::Backup(backup) | RoleState::Joining(backup) = role
            && backup.give_up_snapshot(now)
        {
            self.links.restart_stream(now, &mut self.timers, shard.key);
            let discarded = backup.take_discarded();
            self.discard(discarded);
        }
        !self.replicas[id.at()].replica.has_incoming()
    }

    /// Makes more of the checkpoint of the copy whose records go back farthest, if the journal is long.
    /// More follows when that is durable, so that a checkpoint takes its turn with other records.
    pub(super) fn checkpoint(&mut self) {
        let replicas = self.replicas.iter();
        let checkpoints: u64 = replicas
            .map(|(_, h)| h.replica.shard.checkpoint_len())
            .sum();
        // All checkpoints together are at most half of what is written.
        let len_max = self.world.config.journal_len_min.max(2 * checkpoints);
        let running = self.bases().map(|(_, id)| id).find(|id| {
            let disk = self.replicas[id.at()].replica.shard.disk.as_ref();
            disk.is_some_and(Disk::has_checkpoint)
        });
        let id = match running {
            Some(id) => id,
            None if self.journal.len_bytes() <= len_max => {
                self.journal.is_checkpointing = false;
                return;
            }
            None => match self.bases().min() {
                Some((_, id)) if self.has_no_snapshot(id) => id,
                _ => return,
            },
        };
        self.make_checkpoint(id, running.is_none());
    }

    /// Makes more of the checkpoint of a copy; with `begins`, begins one at the journal's end.
    pub(super) fn make_checkpoint(&mut self, id: ReplicaId, begins: bool) {
        let begin = self.journal.end();
        let replica = &self.replicas[id.at()].replica;
        let origin = self.origin(replica);
        let shard = &mut self.replicas[id.at()].replica.shard;
        if begins {
            shard.begin_checkpoint(origin, begin, self.world.plan.format, &mut self.effects);
        }
        shard.pump_checkpoint(&mut self.effects);
        self.journal.is_checkpointing = shard.disk.as_ref().is_some_and(Disk::has_checkpoint);
        self.route(id);
    }
}
