//! What shows that the log is older than what nodes have seen: decisions are missing. An old copy of it
//! was restored, or its disk lost what it had confirmed. docs/design/009.

use crate::deliberate::{self, Fault};
use crate::state::{AppState, Control};
use e3_model::ShardKey;
use e3_model::plan::{CopyOnDisk, NodeHello};

/// A copy on a node's disk that is later than the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaterCopy {
    /// Its shard.
    pub key: ShardKey,
    /// The latest view that it shows.
    pub view: u32,
    /// The latest view of the shard in the log; none if the log does not have its application.
    pub known: Option<u32>,
}

impl Control {
    /// The version that a node has applied, of which it tells the low half, if this state is older.
    pub fn missing_version(&self, applied_low: u32) -> Option<u64> {
        let ahead = applied_low.wrapping_sub(self.version as u32).cast_signed();
        let is_ahead = ahead > 0 && !deliberate::is(Fault::OlderLogTrusted);
        is_ahead.then(|| self.version + u64::from(ahead.unsigned_abs()))
    }

    /// A copy on the disk of a process that asks to join, of a view that this state does not have yet.
    pub fn later_copy(&self, hello: &NodeHello) -> Option<LaterCopy> {
        let is_known = self.index().cluster.named(&hello.name).is_some();
        let on_disk = hello.on_disk.as_ref();
        let on_disk = on_disk.filter(|disk| is_known && disk.cluster == self.cluster)?;
        let mut later = on_disk.copies.iter().filter_map(|copy| self.later(copy));
        later
            .next()
            .filter(|_| !deliberate::is(Fault::OlderLogTrusted))
    }

    fn later(&self, copy: &CopyOnDisk) -> Option<LaterCopy> {
        let CopyOnDisk { key, view, .. } = *copy;
        let known = match self.apps.get(&key.app) {
            Some(app) => Some(app.last_view(key)?),
            None if key.app.0 < self.next_app => return None,
            None => None,
        };
        let is_later = known.is_none_or(|known| view > known);
        is_later.then_some(LaterCopy { key, view, known })
    }
}

impl AppState {
    /// The shard's view, or the latest one of its service if it was merged into others: theirs came after all of
    /// its own. None if there is no such service.
    fn last_view(&self, key: ShardKey) -> Option<u32> {
        let shards = self.plan.shards.iter();
        let same = shards.filter(|s| s.service == key.service).map(|s| s.view);
        let view = self.shard(key).map(|s| s.view);
        view.or(same.max())
    }
}
