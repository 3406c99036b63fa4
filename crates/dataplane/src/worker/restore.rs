//! Shards that begin with the state of a backup: their primaries wait for it, and then take it.

use super::{Output, Worker};
use crate::app::ReplicaId;
use crate::journal::Disk;
use crate::log::Log;
use crate::restore::Reading;
use e3_model::backup::Part;
use e3_model::plan::ShardPlan;
use e3_model::{ShardKey, Timestamp};

impl Worker {
    /// Takes the next bytes of a part that was asked for by the [`Output::Fetch`] of this order.
    pub fn handle_part(&mut self, now: Timestamp, key: ShardKey, order: u64, bytes: &[u8]) {
        self.world.now = now;
        let reading = self.restoring.get_mut(&key);
        let reading = reading.filter(|reading| reading.order == order);
        let (Some(reading), Some(cx)) = (reading, self.world.context(key.app)) else {
            return;
        };
        match reading.take(&cx, key, bytes) {
            Ok(None) => {}
            Ok(Some(log)) => {
                self.restoring.remove(&key);
                self.restore(key, log);
            }
            Err(e) => {
                self.restoring.remove(&key);
                let error = format!("its state in the backup cannot be used: {e}");
                self.handle_start_failed(key, error);
            }
        }
    }

    /// Bytes of a shard's part of a backup up to this one have left the node.
    pub fn handle_exported(&mut self, now: Timestamp, key: ShardKey, number: u64, len: u64) {
        self.world.now = now;
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| p.on_exported(turn, number, len));
        }
    }

    /// The part with which a shard is to begin here, unless a copy of it is here already.
    pub(super) fn awaited_part(&self, key: ShardKey, shard: &ShardPlan) -> Option<Part> {
        let app = self.world.apps.get(&key.app)?;
        let restored = app.plan.restored.as_ref()?;
        let part = restored.part(key.service, key.shard)?;
        let hosted = self.find(key).and_then(|id| self.replicas.get(id.at()));
        // What is of an earlier era goes.
        let hosted = hosted.filter(|h| h.replica.era == shard.era);
        let is_here = match hosted {
            // One that was joining has the state if it is the primary now: the plans between said so.
            Some(h) => !h.replica.awaits_state,
            None => {
                let recovered = self.recovered.get(&key);
                recovered.is_some_and(|copy| copy.origin.era == shard.era)
            }
        };
        (!is_here).then_some(*part)
    }

    /// Asks for the state of a shard.
    pub(super) fn begin_restore(&mut self, key: ShardKey, part: Part) {
        let Some(app) = self.world.apps.get(&key.app) else {
            return;
        };
        let Some(restored) = &app.plan.restored else {
            return;
        };
        self.fetches += 1;
        let (order, number) = (self.fetches, restored.number);
        let log = Log::new(app.collections(key));
        let reading = Reading::new(order, part, restored.shift, log);
        self.restoring.insert(key, reading);
        self.outputs.push_back(Output::Fetch {
            key,
            order,
            number,
            part,
        });
    }

    /// A shard has its state. On disk it first gets a checkpoint: the journal has no other beginning of it, and
    /// nothing may follow from the state before.
    fn restore(&mut self, key: ShardKey, log: Log) {
        let Some(id) = self.find(key) else { return };
        let app = self.world.apps.get(&key.app);
        let Some(app) = app else { return };
        let is_on_disk = app.service(key).is_on_disk();
        let (number, end) = (self.journal.next_copy(), self.journal.end());
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let replica = &mut hosted.replica;
        replica.shard.log = log;
        if is_on_disk {
            replica.shard.disk = Some(Disk::new(number, 0, end));
            self.make_checkpoint(id, true);
        } else {
            self.begin_restored(id);
        }
    }

    /// A shard whose state is here, and on disk if it is to be, begins with it.
    pub(super) fn begin_restored(&mut self, id: ReplicaId) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let key = hosted.replica.shard.key;
        hosted.replica.awaits_state = false;
        if let Some(app) = self.world.apps.get(&key.app) {
            let shard = app.shard(key).clone();
            self.apply_shard(key, &shard);
        }
    }
}
