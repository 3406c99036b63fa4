//! The backup's part: takes the primary's stream. Nothing in it is acknowledged before it is taken.

use crate::check::{check_batch, check_entry, check_time};
use crate::dedup::DedupTable;
use crate::deliberate::{self, Fault};
use crate::limits::SNAPSHOT_OVER_MAX;
use crate::log::{Log, Outgoing};
use crate::shard::{Context, Shard};
use e3_collections::Restore;
use e3_wire::entry::{Entry, Replicated};
use std::rc::Rc;

/// What only a backup needs, in the view or joining.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    /// The snapshot that is arriving, if one is.
    incoming: Option<Incoming>,
}

/// A snapshot on its way in. The replica keeps what it has until the end arrives.
struct Incoming {
    state: Restore,
    log: Log,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} messages)", self.log.dedup.len())
    }
}

const NO_SNAPSHOT: &str = "no snapshot has begun";

impl Backup {
    /// Takes one item of the stream. After an error the primary must begin again with a snapshot.
    pub(crate) fn on_item(
        &mut self,
        cx: &Context<'_>,
        shard: &mut Shard,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let item = Replicated::decode(bytes).map_err(|_| "what came cannot be read");
        let taken = item.and_then(|item| self.take(cx, shard, item));
        if let Err(reason) = taken {
            shard.error = Some(format!("replication: {reason}"));
            self.incoming = None;
        }
        taken
    }

    fn take(
        &mut self,
        cx: &Context<'_>,
        shard: &mut Shard,
        item: Replicated,
    ) -> Result<(), &'static str> {
        match item {
            Replicated::SnapshotBegin { released } => {
                let collections = shard.log.state.borrow().specs().to_vec();
                let mut log = Log::new(&collections);
                log.released = released;
                let state = Restore::new(&collections);
                self.incoming = Some(Incoming { state, log });
                Ok(())
            }
            Replicated::SnapshotState(chunk) => {
                let memory_max = cx.app.service(shard.key).resources.memory.0;
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.take_chunk(&chunk, memory_max)
            }
            Replicated::SnapshotSeen(entry) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                check_entry(cx.app, cx.now, shard.key, &entry)?;
                incoming.take_entry(entry)
            }
            Replicated::SnapshotDead(id, dead) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.log.dead_letters.keep(id, dead);
                Ok(())
            }
            Replicated::SnapshotEnd { op, now } => {
                check_time(cx.now, now)?;
                let Incoming { state, mut log } = self.incoming.take().ok_or(NO_SNAPSHOT)?;
                if op.checked_sub(log.released) != Some(log.outbox.len() as u64) {
                    return Err("the snapshot's outbox has a gap");
                }
                *log.state.borrow_mut() = state.finish();
                (log.op, log.now) = (op, now);
                shard.log = log;
                shard.error = None;
                Ok(())
            }
            Replicated::Entry(entry) if self.incoming.is_none() => apply(cx, shard, entry),
            Replicated::Entry(_) => Err("an entry inside a snapshot"),
            Replicated::Released(op) => {
                if self.incoming.is_some() || op > shard.log.op {
                    return Err("outputs released of entries that are not there");
                }
                shard.log.release(op);
                Ok(())
            }
        }
    }
}

impl Incoming {
    fn take_chunk(&mut self, chunk: &[u8], memory_max: u64) -> Result<(), &'static str> {
        let accepted = self.state.accept(chunk);
        accepted.map_err(|_| "a snapshot's chunk does not fit")?;
        if self.state.memory_bytes() as u64 > memory_max.saturating_add(SNAPSHOT_OVER_MAX) {
            return Err("the snapshot is larger than the service's memory");
        }
        Ok(())
    }

    /// A message that was handled before the snapshot.
    fn take_entry(&mut self, entry: Entry) -> Result<(), &'static str> {
        let log = &mut self.log;
        if !entry.batch.is_empty() {
            return Err("writes beside a snapshot");
        }
        let entry = Rc::new(entry);
        if entry.op > log.released {
            if entry.op - log.released != log.outbox.len() as u64 + 1 {
                return Err("the snapshot's outbox has a gap");
            }
            log.outbox.push_back(Outgoing::new(entry.clone()));
        }
        log.dedup.insert(entry);
        Ok(())
    }
}

/// Takes the next entry of the log.
fn apply(cx: &Context<'_>, shard: &mut Shard, mut entry: Entry) -> Result<(), &'static str> {
    if entry.op != shard.log.op + 1 {
        return Err("a gap in the log");
    }
    check_entry(cx.app, cx.now, shard.key, &entry)?;
    let batch = std::mem::take(&mut entry.batch);
    if let Some(batch) = check_batch(entry.slot, batch)?
        && !deliberate::is(Fault::BackupAppliesNothing)
    {
        let applied = shard.log.state.borrow_mut().apply(&batch);
        applied.map_err(|_| "a write batch that does not fit the collections")?;
    }
    shard.log.record(Rc::new(entry));
    if deliberate::is(Fault::BackupRemembersNothing) {
        shard.log.dedup = DedupTable::default();
    }
    Ok(())
}
