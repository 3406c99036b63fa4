//! States of shards between the controller and the worker: for backups, and of restored applications.

use super::Driver;
use e3_model::ShardKey;
use e3_model::plan::Role;

impl Driver {
    /// Passes in what the controller has of states for backups, and the next bytes of one that a shard
    /// begins with. True if there may be more of these.
    pub(super) fn pass_parts(&mut self) -> bool {
        for done in self.parts.exported() {
            let now = self.clock.now();
            self.worker
                .handle_exported(now, done.key, done.number, done.len);
        }
        let Some(fetched) = self.parts.fetched() else {
            return false;
        };
        let (now, key, order) = (self.clock.now(), fetched.key, fetched.order);
        match fetched.bytes {
            Ok(bytes) => self.worker.handle_part(now, key, order, &bytes),
            // The shard's start clears it, once all of its state is here.
            Err(reason) if self.awaits_part(key) => self.worker.handle_start_failed(key, reason),
            Err(_) => self.parts.forget(key, order),
        }
        // What it confirms goes out at once.
        self.next_look = now;
        true
    }

    /// Whether the plan still has a shard begin here with the state of a backup.
    fn awaits_part(&self, key: ShardKey) -> bool {
        let mut apps = self.worker.plan().apps.iter();
        let Some(app) = apps.find(|app| app.id == key.app) else {
            return false;
        };
        let shard = app.shards.iter().find(|shard| app.key(shard) == key);
        let role = shard.and_then(|shard| shard.role(self.welcome.node));
        role == Some(Role::Primary) && app.is_restoring(key)
    }
}
