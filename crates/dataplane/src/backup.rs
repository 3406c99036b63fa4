//! The backup's part: takes the primary's stream. Nothing in it is acknowledged before it is taken.

use crate::check::{check_batch, check_entry, check_time};
use crate::dead_letters::DeadLetters;
use crate::dedup::DedupTable;
use crate::deliberate::{self, Fault};
use crate::history::History;
use crate::limits::SNAPSHOT_OVER_MAX;
use crate::log::{Log, Outgoing};
use crate::shard::{Context, Shard};
use e3_collections::{ApplyError, Restore, WriteBatch};
use e3_model::ShardKey;
use e3_wire::entry::{Entry, Replicated};
use std::collections::VecDeque;
use std::rc::Rc;

/// What only a backup needs, in the view or joining.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    /// The snapshot that is arriving, if one is.
    incoming: Option<Incoming>,
    /// What came did not fit what is here: only a snapshot helps.
    is_lost: bool,
    /// The last entry that was here when the stream began; earlier ones may come again.
    resumed_at: u64,
}

/// A snapshot on its way in, and the log from where it began. The replica keeps what it has until
/// the end arrives: without it, it might be the only one that has what was acknowledged.
struct Incoming {
    state: Restore,
    /// Its collections are in `state`, its older entries and dead letters below.
    log: Log,
    /// Last entry before the snapshot.
    begin_op: u64,
    /// Entries up to there whose outputs may have to be sent again.
    outbox: VecDeque<Outgoing>,
    dead_letters: DeadLetters,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} messages)", self.log.dedup.len())
    }
}

const NO_SNAPSHOT: &str = "no snapshot has begun";
/// No error: the primary offers what may not suit.
const CANNOT_RESUME: &str = "the primary's log does not go on from this one";

impl Backup {
    /// Takes one item of the stream. After an error the primary must begin again with a snapshot.
    pub(crate) fn on_item(
        &mut self,
        cx: &Context<'_>,
        shard: &mut Shard,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let item = Replicated::decode(bytes).map_err(|_| "what came cannot be read");
        let taken = item.and_then(|item| self.take(cx, shard, item, bytes));
        if let Err(reason) = taken {
            if reason != CANNOT_RESUME {
                shard.error = Some(format!("replication: {reason}"));
                self.is_lost = true;
            }
            self.incoming = None;
        }
        taken
    }

    fn take(
        &mut self,
        cx: &Context<'_>,
        shard: &mut Shard,
        item: Replicated,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        match item {
            Replicated::Resume { first_op, reigns } => {
                let log = &mut shard.log;
                let has_common = log.history.is_within(&reigns, log.op);
                if self.is_lost || !has_common || first_op > log.op + 1 {
                    return Err(CANNOT_RESUME);
                }
                self.incoming = None;
                self.resumed_at = log.op;
                log.history.follow(reigns);
                Ok(())
            }
            Replicated::SnapshotBegin {
                op,
                now,
                since,
                released,
                reigns,
            } => {
                check_time(cx.now, now)?;
                if released > op {
                    return Err("outputs released of entries that are not there");
                }
                let collections = shard.log.state.borrow().specs().to_vec();
                let mut log = Log::new(&collections);
                (log.op, log.now, log.since, log.released) = (op, now, since, released);
                log.history = History::new(reigns);
                self.incoming = Some(Incoming {
                    state: Restore::new(&collections),
                    log,
                    begin_op: op,
                    outbox: VecDeque::new(),
                    dead_letters: DeadLetters::default(),
                });
                Ok(())
            }
            Replicated::SnapshotOutgoing(entry) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                check_entry(cx.app, cx.now, shard.key, &entry)?;
                incoming.take_outgoing(entry)
            }
            Replicated::SnapshotSeen(entry) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                check_entry(cx.app, cx.now, shard.key, &entry)?;
                incoming.check_old(&entry)?;
                incoming.log.dedup.insert(Rc::new(entry));
                Ok(())
            }
            Replicated::SnapshotDead(id, dead) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.dead_letters.keep(id, dead);
                Ok(())
            }
            Replicated::SnapshotState { op, piece } => {
                let memory_max = cx.app.service(shard.key).resources.memory.0;
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.take_piece(op, &piece, memory_max)
            }
            Replicated::SnapshotEnd { op } => {
                let incoming = self.incoming.take().ok_or(NO_SNAPSHOT)?;
                shard.log = incoming.finish(op)?;
                shard.error = None;
                (self.is_lost, self.resumed_at) = (false, 0);
                Ok(())
            }
            Replicated::Entry(entry) => match &mut self.incoming {
                None if entry.op <= self.resumed_at => Ok(()),
                None => apply(cx, shard.key, &mut shard.log, entry, bytes, |log, batch| {
                    log.state.borrow_mut().apply(batch)
                }),
                Some(Incoming {
                    state,
                    log,
                    dead_letters,
                    ..
                }) => {
                    if let Some(letter) = &entry.replays {
                        dead_letters.on_replayed(letter);
                    }
                    apply(cx, shard.key, log, entry, bytes, |_, batch| {
                        state.apply(batch)
                    })
                }
            },
            Replicated::Released(op) => {
                let log = match &mut self.incoming {
                    None => &mut shard.log,
                    Some(incoming) => {
                        let outbox = &mut incoming.outbox;
                        while outbox.front().is_some_and(|o| o.entry.op <= op) {
                            outbox.pop_front();
                        }
                        &mut incoming.log
                    }
                };
                if op > log.op {
                    return Err("outputs released of entries that are not there");
                }
                log.release(op);
                Ok(())
            }
        }
    }
}

impl Incoming {
    /// An entry from before the snapshot, without its writes.
    fn check_old(&self, entry: &Entry) -> Result<(), &'static str> {
        match entry {
            e if !e.batch.is_empty() => Err("writes beside a snapshot"),
            e if e.op > self.begin_op => Err("an entry of after the snapshot's begin"),
            _ => Ok(()),
        }
    }

    fn take_outgoing(&mut self, entry: Entry) -> Result<(), &'static str> {
        self.check_old(&entry)?;
        if entry.op != self.log.released + self.outbox.len() as u64 + 1 {
            return Err("the snapshot's outbox has a gap");
        }
        self.outbox.push_back(Outgoing::new(Rc::new(entry)));
        Ok(())
    }

    fn take_piece(&mut self, op: u64, piece: &[u8], memory_max: u64) -> Result<(), &'static str> {
        if op != self.log.op {
            return Err("a snapshot's piece is not current to the last entry");
        }
        let accepted = self.state.accept(piece);
        accepted.map_err(|_| "a snapshot's piece does not fit")?;
        if self.state.memory_bytes() as u64 > memory_max.saturating_add(SNAPSHOT_OVER_MAX) {
            return Err("the snapshot is larger than the service's memory");
        }
        Ok(())
    }

    /// The log, when all of the snapshot has come.
    fn finish(self, op: u64) -> Result<Log, &'static str> {
        let Incoming {
            state,
            mut log,
            mut outbox,
            mut dead_letters,
            ..
        } = self;
        outbox.append(&mut log.outbox);
        log.outbox = outbox;
        if log.op != op || log.released + log.outbox.len() as u64 != op {
            return Err("the snapshot's outbox has a gap");
        }
        dead_letters.append(std::mem::take(&mut log.dead_letters));
        log.dead_letters = dead_letters;
        *log.state.borrow_mut() = state.finish();
        Ok(log)
    }
}

/// Takes the next entry of a log, whose item is `bytes`; `write` applies its batch.
fn apply(
    cx: &Context<'_>,
    key: ShardKey,
    log: &mut Log,
    mut entry: Entry,
    bytes: &[u8],
    write: impl FnOnce(&Log, &WriteBatch) -> Result<(), ApplyError>,
) -> Result<(), &'static str> {
    if entry.op != log.op + 1 {
        return Err("a gap in the log");
    }
    check_entry(cx.app, cx.now, key, &entry)?;
    let batch = std::mem::take(&mut entry.batch);
    if let Some(batch) = check_batch(entry.slot, batch)?
        && !deliberate::is(Fault::BackupAppliesNothing)
    {
        let written = write(log, &batch);
        written.map_err(|_| "a write batch that does not fit the collections")?;
    }
    log.history.push(bytes.into());
    log.record(Rc::new(entry));
    if deliberate::is(Fault::BackupRemembersNothing) {
        log.dedup = DedupTable::default();
    }
    Ok(())
}
