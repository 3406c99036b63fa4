//! The log of a shard, as primary and backups have it in common: collections, dedup table, dead
//! letters, timers, and the entries whose outputs are not durable downstream.

use crate::asked::Asked;
use crate::dead_letters::DeadLetters;
use crate::dedup::{DedupTable, remembered_until};
use crate::deliberate::{self, Fault};
use crate::history::History;
use crate::links::Delivery;
use crate::timer_table::TimerTable;
use e3_collections::{CollectionSpec, State};
use e3_model::reshard::Split;
use e3_model::{Bytes, Nanos, ShardId, Slot, Timestamp};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Entry, Outcome};
use e3_wire::message::Message;
use e3_wire::replicated::Reign;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A function of the log's entries.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) dedup: DedupTable,
    /// Last entry.
    pub(crate) op: u64,
    /// `now` of the last entry: never goes back.
    pub(crate) now: Timestamp,
    /// Of messages of requests before then the log may know nothing: it began empty, after another
    /// primary that had one, or has forgotten some of them.
    pub(crate) since: Timestamp,
    /// Outputs of entries up to this one are durable at their receivers.
    pub(crate) released: u64,
    /// Entries after `released`, in order.
    pub(crate) outbox: VecDeque<Outgoing>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) timers: TimerTable,
    pub(crate) history: History,
}

/// An entry whose outputs are not all durable at their receivers.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) entry: Rc<Entry>,
    /// How many outputs are not durable.
    open: usize,
    /// Those that are durable while others are not, by their place in the entry.
    durable: Vec<u32>,
    /// Copies of a stateless service's message: durable when the outputs are.
    pub(crate) deliveries: Vec<Delivery>,
    /// The dead letter that it replays.
    letter: Option<Rc<DeadLetter>>,
    /// For whom the outputs were sent last.
    pub(crate) asked: Asked,
}

impl Log {
    pub(crate) fn new(collections: &[CollectionSpec]) -> Log {
        Log {
            state: Rc::new(RefCell::new(State::new(collections))),
            dedup: DedupTable::default(),
            op: 0,
            now: Timestamp::ZERO,
            since: Timestamp::ZERO,
            released: 0,
            outbox: VecDeque::new(),
            dead_letters: DeadLetters::default(),
            timers: TimerTable::default(),
            history: History::default(),
        }
    }

    /// The logs of the shards that are made of one shard, or of several beginning with it. None of
    /// `from` has anything to send. Every copy comes to the same, and this division is what copies
    /// have in common: the first reign of their logs.
    pub(crate) fn reshard(from: Vec<Log>, split: Split, first: ShardId, era: u32) -> Vec<Log> {
        let children = split.children(first);
        let count = children.len();
        let place = |slot: Slot| usize::from(slot.shard(split.after).0 - children.start);
        let op = from.iter().map(|log| log.op).max().unwrap_or_default();
        let now = from.iter().map(|log| log.now).max().unwrap_or_default();
        let since = from.iter().map(|log| log.since).max().unwrap_or_default();
        let (mut states, mut tables) = (Vec::new(), Vec::new());
        let (mut letters, mut timers) = (Vec::new(), Vec::new());
        for log in from {
            states.push(log.state.replace(State::new(&[])));
            if !deliberate::is(Fault::ReshardedWithoutHandled) {
                tables.push(log.dedup);
            }
            letters.push(log.dead_letters);
            timers.push(log.timers);
        }
        let states = State::reshard(states, count, |slot| place(Slot(slot)));
        let tables = DedupTable::reshard(tables, count, now, place);
        let letters = DeadLetters::reshard(letters, count, place);
        let timers = TimerTable::reshard(timers, count, place);
        let first = Reign {
            view: era,
            first_op: 1,
        };
        let parts = states.into_iter().zip(tables).zip(letters).zip(timers);
        let log = |(((state, dedup), dead_letters), timers)| Log {
            state: Rc::new(RefCell::new(state)),
            dedup,
            op,
            now,
            since,
            released: op,
            outbox: VecDeque::new(),
            dead_letters,
            timers,
            history: History::new(vec![first]),
        };
        parts.map(log).collect()
    }

    /// The time of the shard, on a node whose clock says `now`.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        self.now.max(now)
    }

    /// Whether the log would say so if the message had been handled before. Requests are created at
    /// most `created_within` before their deadlines.
    pub(crate) fn knows(&self, message: &Message, created_within: Nanos) -> bool {
        let remembered = remembered_until(message.deadline, message.is_keyed());
        remembered >= self.now
            && (self.since == Timestamp::ZERO || message.deadline > self.since + created_within)
    }

    /// Takes an entry whose writes are applied already, and gives what is kept of it.
    pub(crate) fn record(&mut self, mut entry: Entry) -> Rc<Entry> {
        self.timers.apply(&mut entry);
        let entry = Rc::new(entry);
        self.op = entry.op;
        self.now = self.now.max(entry.now);
        let replayed = self.dead_letters.record(&entry);
        if let Some(letter) = &entry.replays {
            self.dedup.on_replayed(entry.slot, letter);
        }
        self.outbox.push_back(Outgoing {
            letter: replayed,
            ..Outgoing::new(entry.clone())
        });
        // Whether a timer has fired the table of timers says.
        if !entry.is_expiry && entry.fired.is_none() {
            self.dedup.insert(entry.clone());
        }
        entry
    }

    /// An entry of the outbox.
    pub(crate) fn outgoing(&mut self, op: u64) -> Option<&mut Outgoing> {
        let first = self.outbox.front()?.entry.op;
        self.outbox
            .get_mut(usize::try_from(op.checked_sub(first)?).ok()?)
    }

    /// Takes the front of the outbox out if it has no open outputs and is committed: what it came
    /// from is durable with it.
    pub(crate) fn trim(&mut self, commit: u64) -> Option<Outgoing> {
        let first = self.outbox.front()?;
        let is_open = first.open > 0 && !deliberate::is(Fault::OutboxTrimmedEarly);
        if is_open || first.entry.op > commit {
            return None;
        }
        let first = self.outbox.pop_front()?;
        self.released = first.entry.op;
        Some(first)
    }

    /// The primary says that outputs up to `op` are durable.
    pub(crate) fn release(&mut self, op: u64) {
        while self.outbox.front().is_some_and(|o| o.entry.op <= op) {
            self.outbox.pop_front();
        }
        self.released = self.released.max(op.min(self.op));
    }

    /// What this node has sent counts for nothing: another one sends it again, or this one does.
    pub(crate) fn reopen(&mut self) {
        for outgoing in &mut self.outbox {
            *outgoing = Outgoing::new(outgoing.entry.clone());
        }
    }

    /// Forgets the messages of a stateless service with outputs that are not durable: their senders
    /// still have them. If one comes again and is not handled, because its deadline has passed, nobody
    /// knows what its outputs have done. Of a replay nobody else has the message: it is a dead letter
    /// again, some of whose effects may have taken place.
    pub(crate) fn forget_unsent(&mut self, now: Timestamp) {
        if deliberate::is(Fault::UnsentForHandled) {
            return;
        }
        for outgoing in self.outbox.iter_mut().filter(|o| o.open > 0) {
            let entry = &outgoing.entry;
            self.dedup.remove(entry.slot, &entry.id);
            self.since = self.since.max(now);
            let replayed = entry.replays.filter(|letter| *letter != entry.id);
            if let Some((id, mut letter)) = replayed.zip(outgoing.letter.take()) {
                Rc::make_mut(&mut letter).outcome = Outcome::Unknown;
                self.dead_letters.keep(id, letter, now);
            }
        }
    }

    /// The log of a shard that begins with the state of a backup. Deadlines move by the time that has
    /// passed since: what was in flight is still handled, and what was handled is known as long as then.
    pub(crate) fn renew(&mut self, shift: Nanos) {
        let entries: Vec<_> = self.dedup.entries_after(None).cloned().collect();
        self.dedup = DedupTable::default();
        for mut entry in entries {
            Rc::make_mut(&mut entry).deadline += shift;
            self.dedup.insert(entry);
        }
        for outgoing in &mut self.outbox {
            Rc::make_mut(&mut outgoing.entry).deadline += shift;
        }
        self.timers.postpone_outbound(shift);
        if self.since != Timestamp::ZERO {
            self.since += shift;
        }
        // No view of this application appended what is here.
        let first = Reign {
            view: 0,
            first_op: 1,
        };
        self.history = History::new(vec![first]);
    }

    /// Memory of the collections and timers in bytes.
    pub(crate) fn memory_bytes(&self) -> Bytes {
        Bytes((self.state.borrow().memory_bytes() + self.timers.bytes()) as u64)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        assert!(self.released <= self.op, "released beyond the log");
        assert_eq!(
            self.released + self.outbox.len() as u64,
            self.op,
            "the outbox has a gap"
        );
        self.dead_letters.validate();
        self.timers.validate();
    }
}

impl Outgoing {
    pub(crate) fn new(entry: Rc<Entry>) -> Outgoing {
        Outgoing {
            open: entry.outputs.len(),
            durable: Vec::new(),
            asked: Asked::by_entry(&entry),
            entry,
            deliveries: Vec::new(),
            letter: None,
        }
    }

    /// The outputs that are not durable, by their place in the entry.
    pub(crate) fn open(&self) -> Vec<u32> {
        let all = 0..self.entry.outputs.len() as u32;
        all.filter(|at| self.open > 0 && !self.durable.contains(at))
            .collect()
    }

    /// Whether the outputs on their way bring the answer that is asked for.
    pub(crate) fn is_sent_for(&self, asked: &Asked) -> bool {
        self.asked.is_at(asked) && self.asked.deadline >= asked.deadline
    }

    /// An output is durable at its receiver.
    pub(crate) fn on_durable(&mut self, at: u32) {
        self.open = self.open.saturating_sub(1);
        if self.open > 0 {
            self.durable.push(at);
        }
    }
}
