//! The backup's part: takes the primary's stream. Nothing in it is acknowledged before it is taken.

use crate::check::{check_batch, check_entry, check_time, check_timer};
use crate::dead_letters::DeadLetters;
use crate::dedup::DedupTable;
use crate::deliberate::{self, Fault};
use crate::history::History;
use crate::limits::{SNAPSHOT_AWAITED, SNAPSHOT_OVER_MAX};
use crate::log::{Log, Outgoing};
use crate::shard::{Context, Shard};
use e3_collections::{ApplyError, CollectionSpec, Restore, State, WriteBatch};
use e3_model::{ShardKey, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::replicated::{Reign, Replicated};
use e3_wire::timer::Timer;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What only a backup needs, in the view or joining.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    /// The snapshot that is arriving, if one is.
    incoming: Option<Incoming>,
    /// When an item was taken last.
    taken_at: Timestamp,
    /// What came did not fit what is here: only a snapshot helps.
    is_lost: bool,
    /// The last entry that was here when the stream began; earlier ones may come again.
    resumed_at: u64,
    /// The incarnation of the shard whose primary lacks entries that are here, and may have been
    /// acknowledged. Nothing is taken from it.
    ahead_in: Option<u32>,
    /// Collections that are not needed any more. To free them may take long.
    discarded: Vec<Rc<RefCell<State>>>,
}

/// A snapshot on its way in, and the log from where it began. The replica keeps what it has until
/// the end arrives: without it, it might be the only one that has what was acknowledged.
struct Incoming {
    state: Restore,
    /// Its collections are in `state`, its older entries below.
    log: Log,
    /// Last entry before the snapshot.
    begin_op: u64,
    /// Entries up to there whose outputs may have to be sent again.
    outbox: VecDeque<Outgoing>,
    /// At the beginning.
    dead_letters: DeadLetters,
    /// Entries after it that change dead letters. Which ones make room for newer ones depends on those of the
    /// beginning, so these must be there first.
    letters_changed_by: Vec<Rc<Entry>>,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} messages)", self.log.dedup.len())
    }
}

const NO_SNAPSHOT: &str = "no snapshot has begun";
const NOT_THERE: &str = "outputs released of entries that are not there";
/// No error: the primary offers what may not suit.
const CANNOT_RESUME: &str = "the primary's log does not go on from this one";

/// What an item is checked against.
pub(crate) enum Checks<'a> {
    /// It came from the shard's primary.
    Primary(&'a Context<'a>, ShardKey),
    /// This node wrote it down itself, after it had been checked.
    Disk,
    /// The same, for the checkpoint of a log that had the item.
    Checkpoint,
}

impl Checks<'_> {
    fn time(&self, then: Timestamp) -> Result<(), &'static str> {
        match self {
            Checks::Primary(cx, _) => check_time(cx.now, then),
            Checks::Disk | Checks::Checkpoint => Ok(()),
        }
    }

    fn entry(&self, entry: &Entry) -> Result<(), &'static str> {
        match self {
            Checks::Primary(cx, key) => check_entry(cx.app, cx.now, *key, entry),
            Checks::Disk | Checks::Checkpoint => Ok(()),
        }
    }

    fn timer(&self, timer: &Timer) -> Result<(), &'static str> {
        match self {
            Checks::Primary(cx, key) => check_timer(cx.app, *key, timer),
            Checks::Disk | Checks::Checkpoint => Ok(()),
        }
    }

    fn memory_max(&self) -> u64 {
        match self {
            Checks::Primary(cx, key) => cx.app.service(*key).resources.memory.0,
            Checks::Disk | Checks::Checkpoint => u64::MAX,
        }
    }
}

/// What came of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// Nothing: the log had it.
    Known,
    /// It is part of the log, or of a snapshot that is arriving.
    New,
    /// A snapshot begins to arrive.
    SnapshotBegin,
    /// The snapshot is the log now.
    SnapshotEnd,
}

impl Backup {
    /// Takes one item of the stream. After an error the primary must begin again with a snapshot.
    pub(crate) fn on_item(
        &mut self,
        cx: &Context<'_>,
        shard: &mut Shard,
        bytes: &[u8],
    ) -> Result<Taken, &'static str> {
        if self.is_ahead(shard) {
            // The controller has taken it out of the view: it is no complete copy any more.
            let plan = cx.app.shard(shard.key);
            if !plan.joining.contains(&cx.config.node) {
                return Err(CANNOT_RESUME);
            }
            self.ahead_in = None;
        }
        let before = shard.log.state.clone();
        let taken = self.take(&Checks::Primary(cx, shard.key), &mut shard.log, bytes);
        if taken == Err(CANNOT_RESUME) && self.has_more(cx, shard) {
            self.ahead_in = Some(shard.incarnation);
        }
        match taken {
            Ok(Taken::SnapshotEnd) => {
                shard.error = None;
                self.discarded.push(before);
            }
            Ok(_) | Err(CANNOT_RESUME) => {}
            Err(reason) => {
                shard.error = Some(format!("replication: {reason}"));
                self.is_lost = true;
            }
        }
        match taken {
            Ok(_) => self.taken_at = cx.now,
            Err(_) => self.drop_incoming(),
        }
        taken
    }

    /// Gives up the snapshot that is arriving, if nothing of it has come for long: its primary may be
    /// gone. What is here stays as it is. If true, the stream must begin again.
    pub(crate) fn give_up_snapshot(&mut self, now: Timestamp) -> bool {
        let is_late = self.has_incoming() && now >= self.taken_at + SNAPSHOT_AWAITED;
        if is_late {
            self.drop_incoming();
        }
        is_late
    }

    fn drop_incoming(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            let state = incoming.state.finish();
            self.discarded.push(Rc::new(RefCell::new(state)));
        }
    }

    /// Collections to free beside the loop.
    pub(crate) fn take_discarded(&mut self) -> Vec<Rc<RefCell<State>>> {
        std::mem::take(&mut self.discarded)
    }

    /// Whether this log may have acknowledged entries that the primary lacks: its disk has lost them. A
    /// complete copy has everything that was acknowledged, and the primary's log does not go on from it.
    fn has_more(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let plan = cx.app.shard(shard.key);
        shard.disk.is_some()
            && plan.has_restarted()
            && plan.incarnation == shard.incarnation
            && plan.backups.contains(&cx.config.node)
            && shard.log.op > 0
            && !self.is_lost
            && !deliberate::is(Fault::AheadIgnored)
    }

    /// Whether the shard's primary lacks entries that are here.
    pub(crate) fn is_ahead(&self, shard: &Shard) -> bool {
        self.ahead_in == Some(shard.incarnation)
    }

    /// Whether a snapshot is arriving.
    pub(crate) fn has_incoming(&self) -> bool {
        self.incoming.is_some()
    }

    /// Applies an item to a log, or to the snapshot that is to replace it.
    pub(crate) fn take(
        &mut self,
        checks: &Checks<'_>,
        log: &mut Log,
        bytes: &[u8],
    ) -> Result<Taken, &'static str> {
        match Replicated::decode(bytes).map_err(|_| "what came cannot be read")? {
            Replicated::Resume {
                first_op, reigns, ..
            } => match (checks, &mut self.incoming) {
                // It goes on as the log does that it is made of.
                (Checks::Checkpoint, Some(incoming)) => incoming.log.history.follow(reigns),
                _ => self.resume(log, first_op, reigns)?,
            },
            Replicated::SnapshotBegin {
                op,
                now,
                since,
                released,
                reigns,
                ..
            } => {
                checks.time(now)?;
                if released > op {
                    return Err(NOT_THERE);
                }
                let mut incoming = Incoming::new(log.state.borrow().specs(), op);
                let log = &mut incoming.log;
                (log.op, log.now, log.since, log.released) = (op, now, since, released);
                log.history = History::new(reigns);
                self.drop_incoming();
                self.incoming = Some(incoming);
                return Ok(Taken::SnapshotBegin);
            }
            Replicated::SnapshotOutgoing(entry) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                checks.entry(&entry)?;
                incoming.take_outgoing(entry)?;
            }
            Replicated::SnapshotSeen(entry) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                checks.entry(&entry)?;
                incoming.check_old(&entry)?;
                incoming.log.dedup.insert(Rc::new(entry));
            }
            Replicated::SnapshotDead(id, dead) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.dead_letters.keep(id, dead.into(), Timestamp::ZERO);
            }
            Replicated::SnapshotTimer(timer) => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                checks.timer(&timer)?;
                incoming.log.timers.restore(timer);
                incoming.check_memory(checks.memory_max())?;
            }
            Replicated::SnapshotState { op, piece } => {
                let incoming = self.incoming.as_mut().ok_or(NO_SNAPSHOT)?;
                incoming.take_piece(op, &piece, checks.memory_max())?;
            }
            Replicated::SnapshotEnd { op } => {
                let incoming = self.incoming.take().ok_or(NO_SNAPSHOT)?;
                *log = incoming.finish(op)?;
                (self.is_lost, self.resumed_at) = (false, 0);
                return Ok(Taken::SnapshotEnd);
            }
            Replicated::Entry(entry) => match &mut self.incoming {
                None if entry.op <= self.resumed_at => return Ok(Taken::Known),
                None => drop(apply(checks, log, entry, bytes, |log, batch| {
                    log.state.borrow_mut().apply(batch)
                })?),
                Some(incoming) => incoming.take_entry(checks, entry, bytes)?,
            },
            Replicated::Released(op) => match &mut self.incoming {
                None => release(log, op)?,
                Some(incoming) => incoming.release(op)?,
            },
        }
        Ok(Taken::New)
    }

    /// The primary goes on from an entry that the log has.
    fn resume(
        &mut self,
        log: &mut Log,
        first_op: u64,
        reigns: Vec<Reign>,
    ) -> Result<(), &'static str> {
        let has_common = log.history.is_within(&reigns, log.op);
        if self.is_lost || !has_common || first_op > log.op + 1 {
            return Err(CANNOT_RESUME);
        }
        self.drop_incoming();
        self.resumed_at = log.op;
        log.history.follow(reigns);
        Ok(())
    }
}

/// The outputs of entries up to this one are durable where they went.
fn release(log: &mut Log, op: u64) -> Result<(), &'static str> {
    if op > log.op {
        return Err(NOT_THERE);
    }
    log.release(op);
    Ok(())
}

impl Incoming {
    /// A snapshot that begins after this entry.
    fn new(collections: &[CollectionSpec], begin_op: u64) -> Incoming {
        Incoming {
            state: Restore::new(collections),
            log: Log::new(collections),
            begin_op,
            outbox: VecDeque::new(),
            dead_letters: DeadLetters::default(),
            letters_changed_by: Vec::new(),
        }
    }

    /// An entry from after the beginning of the snapshot.
    fn take_entry(
        &mut self,
        checks: &Checks<'_>,
        entry: Entry,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let state = &mut self.state;
        let entry = apply(checks, &mut self.log, entry, bytes, |_, batch| {
            state.apply(batch)
        })?;
        if entry.dead.is_some() || entry.replays.is_some() {
            self.letters_changed_by.push(entry);
        }
        Ok(())
    }

    fn release(&mut self, op: u64) -> Result<(), &'static str> {
        while self.outbox.front().is_some_and(|o| o.entry.op <= op) {
            self.outbox.pop_front();
        }
        release(&mut self.log, op)
    }

    /// An entry from before the snapshot, without its writes.
    fn check_old(&self, entry: &Entry) -> Result<(), &'static str> {
        match entry {
            e if !e.batch.is_empty() || !e.timers.is_empty() => Err("writes beside a snapshot"),
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
        self.check_memory(memory_max)
    }

    fn check_memory(&self, memory_max: u64) -> Result<(), &'static str> {
        let bytes = self.state.memory_bytes() + self.log.timers.bytes();
        if bytes as u64 > memory_max.saturating_add(SNAPSHOT_OVER_MAX) {
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
            letters_changed_by,
            ..
        } = self;
        outbox.append(&mut log.outbox);
        log.outbox = outbox;
        if log.op != op || log.released + log.outbox.len() as u64 != op {
            return Err("the snapshot's outbox has a gap");
        }
        for entry in &letters_changed_by {
            dead_letters.record(entry);
        }
        log.dead_letters = dead_letters;
        *log.state.borrow_mut() = state.finish();
        Ok(log)
    }
}

/// Takes the next entry of a log, whose item is `bytes`; `write` applies its batch.
fn apply(
    checks: &Checks<'_>,
    log: &mut Log,
    mut entry: Entry,
    bytes: &[u8],
    write: impl FnOnce(&Log, &WriteBatch) -> Result<(), ApplyError>,
) -> Result<Rc<Entry>, &'static str> {
    if entry.op != log.op + 1 {
        return Err("a gap in the log");
    }
    checks.entry(&entry)?;
    let batch = std::mem::take(&mut entry.batch);
    if let Some(batch) = check_batch(entry.slot, batch)?
        && !deliberate::is(Fault::BackupAppliesNothing)
    {
        let written = write(log, &batch);
        written.map_err(|_| "a write batch that does not fit the collections")?;
    }
    log.history.push(bytes.into());
    if deliberate::is(Fault::RepeatSetWithoutEntry) {
        entry.fired.take_if(|fired| log.timers.repeats(fired));
    }
    let entry = log.record(entry);
    if deliberate::is(Fault::BackupRemembersNothing) {
        log.dedup = DedupTable::default();
    }
    Ok(entry)
}

#[cfg(test)]
mod tests;
