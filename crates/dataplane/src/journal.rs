//! What a node writes down of its shards with `durability: disk`, and what waits until it is durable.
//!
//! Records of all shards share one journal, so that they share the waits for the disk. The driver
//! writes them in order and says how far they are durable. A checkpoint of a copy, made in pieces while
//! the shard serves, makes its records before that unnecessary. docs/design/010.

use crate::app::ReplicaId;
use crate::deliberate::{self, Fault};
use crate::limits::CHECKPOINT_LEN;
use crate::links::Delivery;
use crate::log::Log;
use crate::shard::{Effect, Shard};
use crate::transfer::Transfer;
use e3_model::Format;
use e3_wire::journal::{Origin, Record, Step};
use std::collections::VecDeque;

/// A place in the journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Number of the record there, from 1.
    pub number: u64,
    /// Bytes of all records before it.
    pub bytes: u64,
}

/// The journal as its worker sees it.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Of the next record.
    end: Position,
    /// Number of the last record that is durable.
    durable: u64,
    /// By the record that each waits for.
    waiting: VecDeque<(u64, Waiter)>,
    /// What the driver was told to keep from.
    trimmed: u64,
    /// The least base of all copies, as it was when it was last looked at.
    base: Position,
    /// Copies so far.
    copies: u64,
    /// A checkpoint may be on its way.
    pub(crate) is_checkpointing: bool,
}

/// What waits until a record is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) replica: ReplicaId,
    /// See [`Disk::copy`].
    pub(crate) copy: u64,
    pub(crate) what: Awaited,
    /// How the item came that was written down.
    pub(crate) delivery: Option<Delivery>,
}

/// What is so when a record is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// Nothing that anyone waits for.
    Nothing,
    /// The copy has entries up to this one on disk.
    Op(u64),
    /// Nothing of the copy is needed from before.
    Base(Position),
}

/// What of a copy is on the node's disk.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Number of the copy among all of this worker. A snapshot makes another copy of it.
    pub(crate) copy: u64,
    /// Entries up to this one are there.
    pub(crate) op: u64,
    /// Nothing from before is needed.
    pub(crate) base: Position,
    /// Bytes of the last checkpoint.
    checkpoint_len: u64,
    checkpoint: Option<Checkpoint>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug)]
struct Checkpoint {
    begin: Position,
    /// Bytes so far.
    len: u64,
    transfer: Transfer,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal::at(Position {
            number: 1,
            bytes: 0,
        })
    }

    /// Continues after what was recovered, which is all durable.
    pub(crate) fn at(end: Position) -> Journal {
        Journal {
            end,
            durable: end.number - 1,
            waiting: VecDeque::new(),
            trimmed: 0,
            base: end,
            copies: 0,
            is_checkpointing: false,
        }
    }

    /// Number for a copy.
    pub(crate) fn next_copy(&mut self) -> u64 {
        self.copies += 1;
        self.copies
    }

    /// The place of the next record.
    pub(crate) fn end(&self) -> Position {
        self.end
    }

    /// Notes that a record was given to the driver.
    pub(crate) fn on_append(&mut self, len: usize) {
        self.end.number += 1;
        self.end.bytes += len as u64;
    }

    /// Waits for all records so far. Gives the waiter back if they are durable.
    pub(crate) fn wait(&mut self, waiter: Waiter) -> Option<Waiter> {
        let last = self.end.number - 1;
        if last <= self.durable {
            return Some(waiter);
        }
        self.waiting.push_back((last, waiter));
        None
    }

    /// Records up to this one are durable.
    pub(crate) fn on_durable(&mut self, number: u64) {
        self.durable = self.durable.max(number.min(self.end.number - 1));
    }

    /// The next waiter whose records are durable.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let (number, _) = self.waiting.front()?;
        if *number > self.durable {
            return None;
        }
        self.waiting.pop_front().map(|(_, waiter)| waiter)
    }

    /// What the driver may forget everything before, if that has changed. `base`: the least of all
    /// copies.
    pub(crate) fn trim(&mut self, base: Option<Position>) -> Option<u64> {
        let base = base.filter(|_| !deliberate::is(Fault::JournalTrimmedEarly));
        self.base = base.unwrap_or(self.end);
        let before = self.base.number.min(self.durable + 1);
        let has_changed = before > self.trimmed;
        self.trimmed = self.trimmed.max(before);
        has_changed.then_some(before)
    }

    /// Bytes of the records that are needed.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.end.bytes - self.base.bytes
    }
}

impl Disk {
    /// A copy that begins with the journal's next record, or was recovered from `base` on.
    pub(crate) fn new(copy: u64, op: u64, base: Position) -> Disk {
        Disk {
            copy,
            op,
            base,
            checkpoint_len: 0,
            checkpoint: None,
        }
    }

    /// Nothing from before `base` is needed: the checkpoint that begins there is durable, unless it was
    /// abandoned meanwhile.
    pub(crate) fn on_checkpoint_durable(&mut self, base: Position) {
        if let Some(checkpoint) = self.checkpoint.take_if(|c| c.begin == base) {
            self.base = base;
            self.checkpoint_len = checkpoint.len;
        }
    }

    /// Whether a checkpoint is being made, or not durable yet.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// The log is replaced by another: a checkpoint of it is of no use.
    pub(crate) fn abandon_checkpoint(&mut self) {
        self.checkpoint = None;
    }
}

impl Shard {
    /// Entries up to this one are on disk, as far as commits wait for that.
    pub(crate) fn op_on_disk(&self) -> u64 {
        let disk = self.disk.as_ref();
        let disk = disk.filter(|_| !deliberate::is(Fault::JournalNotAwaited));
        disk.map_or(self.log.op, |disk| disk.op)
    }

    /// About how long a checkpoint of the copy is, in bytes; zero if it is not on disk.
    pub(crate) fn checkpoint_len(&self) -> u64 {
        let disk = self.disk.as_ref();
        disk.map_or(0, |disk| disk.checkpoint_len.max(self.log.memory_bytes().0))
    }

    /// Begins a checkpoint of the copy at the journal's end.
    pub(crate) fn begin_checkpoint(
        &mut self,
        origin: Origin,
        begin: Position,
        format: Format,
        effects: &mut Vec<Effect>,
    ) {
        let Some(disk) = &mut self.disk else {
            return;
        };
        let key = self.key;
        let (transfer, first) = Transfer::new(&self.log, format, None);
        let mut record = |step| {
            effects.push(Effect::Journal(
                Record { key, step }.encode(),
                Awaited::Nothing,
            ))
        };
        record(Step::Checkpoint(origin));
        record(Step::Piece(first.encode()));
        disk.checkpoint = Some(Checkpoint {
            begin,
            len: 0,
            transfer,
        });
    }

    /// Makes more of a checkpoint.
    pub(crate) fn pump_checkpoint(&mut self, effects: &mut Vec<Effect>) {
        let (key, log): (_, &Log) = (self.key, &self.log);
        let Some(disk) = &mut self.disk else {
            return;
        };
        let Some(Checkpoint {
            begin,
            len,
            transfer,
        }) = &mut disk.checkpoint
        else {
            return;
        };
        let mut made = 0;
        while made < CHECKPOINT_LEN && !transfer.is_done() {
            transfer.make(log, |item| {
                made += item.len();
                let record = Record {
                    key,
                    step: Step::Piece(item),
                };
                effects.push(Effect::Journal(record.encode(), Awaited::Nothing));
            });
        }
        *len += made as u64;
        if made > 0 && transfer.is_done() {
            effects.push(Effect::Await(Awaited::Op(log.op)));
            effects.push(Effect::Await(Awaited::Base(*begin)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(copy: u64) -> Waiter {
        Waiter {
            replica: ReplicaId::new(0),
            copy,
            what: Awaited::Nothing,
            delivery: None,
        }
    }

    #[test]
    fn waiters_go_on_in_order_when_their_records_are_durable() {
        let mut journal = Journal::new();
        assert!(
            journal.wait(waiter(0)).is_some(),
            "there is nothing to wait for"
        );
        for copy in 1..=3 {
            journal.on_append(10);
            assert!(journal.wait(waiter(copy)).is_none());
        }
        assert!(journal.pop().is_none());
        journal.on_durable(2);
        let popped = std::iter::from_fn(|| journal.pop()).map(|w| w.copy);
        assert!(popped.eq([1, 2]));
        // A driver that knows more than it was given knows nothing.
        journal.on_durable(9);
        assert_eq!(journal.pop().map(|w| w.copy), Some(3));
        assert_eq!(
            journal.end(),
            Position {
                number: 4,
                bytes: 30
            }
        );
    }

    #[test]
    fn what_no_copy_needs_is_trimmed_once_it_is_durable() {
        let mut journal = Journal::new();
        for _ in 0..9 {
            journal.on_append(10);
        }
        let base = |number| {
            Some(Position {
                number,
                bytes: (number - 1) * 10,
            })
        };
        journal.on_durable(4);
        assert_eq!(journal.trim(base(3)), Some(3));
        assert_eq!(journal.trim(base(3)), None);
        assert_eq!(journal.trim(base(8)), Some(5), "the rest may not be there");
        assert_eq!(journal.len_bytes(), 20);
        journal.on_durable(9);
        assert_eq!(journal.trim(None), Some(10));
        assert_eq!(journal.len_bytes(), 0);
    }
}
