//! One replica of a shard: state, log position, what is waiting and what is not durable yet.

use crate::letters::Letters;
use crate::seen::Seen;
use e3_channel::Number;
use e3_collections::{CollectionSpec, Restore, State};
use e3_model::plan::Role;
use e3_model::{Bytes, MessageId, Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::frame::Link;
use e3_wire::message::Message;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A replica of a shard on this node.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) key: ShardKey,
    pub(crate) role: Role,
    pub(crate) view: u32,
    pub(crate) incarnation: u32,
    /// Every primary of the shard since this replica is here: this node may have promised it not
    /// to take over.
    pub(crate) former: BTreeSet<NodeId>,
    pub(crate) log: Log,
    pub(crate) primary: Primary,
    /// The snapshot that is arriving, if one is.
    pub(crate) incoming: Option<Incoming>,
    pub(crate) counts: Counts,
    /// Why its service does not run here.
    pub(crate) error: Option<String>,
}

/// What primary and backups have in common: a function of the log's entries.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) seen: Seen,
    /// Last entry.
    pub(crate) op: u64,
    /// `now` of the last entry: never goes back.
    pub(crate) now: Timestamp,
    /// Outputs of entries up to this one are durable at their receivers.
    pub(crate) released: u64,
    /// Entries after `released`, in order.
    pub(crate) outbox: VecDeque<Outgoing>,
    pub(crate) letters: Letters,
}

/// An entry whose outputs are not all durable at their receivers.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) entry: Rc<Entry>,
    /// Outputs that are not durable.
    pub(crate) open: usize,
    /// Copies of a stateless service's message: durable when the outputs are.
    pub(crate) copies: Vec<(Link, Number)>,
}

/// A snapshot on its way in. The replica keeps what it has until the end arrives.
pub(crate) struct Incoming {
    pub(crate) state: Restore,
    pub(crate) log: Log,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} messages)", self.log.seen.len())
    }
}

/// What only a primary needs. Nothing here survives it.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Last entry that was released: all backups have it, its outputs and reply have left.
    pub(crate) commit: u64,
    /// Entries after `commit`, in order.
    pub(crate) pending: VecDeque<Pending>,
    /// Arrived, not begun.
    pub(crate) queue: VecDeque<Waiting>,
    /// With the executor, by token.
    pub(crate) in_flight: BTreeMap<u64, Waiting>,
    pub(crate) backups: BTreeMap<NodeId, Backup>,
    /// Leases of the predecessor run out.
    pub(crate) serve_at: Timestamp,
    /// An emulated core is busy until then.
    pub(crate) idle_at: Timestamp,
    /// Stop handling.
    pub(crate) frozen: bool,
    /// `released` that the backups know of.
    pub(crate) released_told: u64,
    /// When an entry was committed last, or the oldest that waits was appended.
    pub(crate) progress_at: Timestamp,
}

/// A message that waits or is being handled.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Where it came from; none for a dead letter that is handled once more.
    pub(crate) copy: Option<(Link, Number)>,
    /// The dead letter that it was.
    pub(crate) replays: Option<MessageId>,
    pub(crate) message: Message,
    pub(crate) now: Timestamp,
    pub(crate) failures: u32,
}

/// An entry that has not been released: not all backups have it, or an emulated core is not done.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) entry: Rc<Entry>,
    /// Copies of its message: durable with it.
    pub(crate) copies: Vec<(Link, Number)>,
    /// An emulated core is done with it then; its outputs and reply leave no earlier.
    pub(crate) release_at: Timestamp,
    /// Who else asks for its answer.
    pub(crate) repeats: Vec<Repeat>,
}

/// Asks for the answer of a message that was handled before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    pub(crate) attempt: u16,
    pub(crate) deadline: Timestamp,
    pub(crate) reply_to: NodeId,
    pub(crate) reply_to_incarnation: u32,
}

/// A backup as its primary sees it.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) link: Link,
    /// It has everything up to this entry.
    pub(crate) acked: u64,
    /// Last entry of the snapshot that it was sent first.
    pub(crate) snapshot_op: u64,
    /// Messages of that snapshot.
    pub(crate) snapshot_len: u64,
    /// Commits wait for it.
    pub(crate) required: bool,
    /// `commit` when it became required: from there on it has all that was released.
    pub(crate) required_from: u64,
}

#[derive(PartialEq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    pub(crate) failed: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) expired: u64,
    /// Why the last attempt failed that did.
    pub(crate) last_failure: Option<String>,
    pub(crate) busy: Nanos,
}

impl Log {
    pub(crate) fn new(collections: &[CollectionSpec]) -> Log {
        Log {
            state: Rc::new(RefCell::new(State::new(collections))),
            seen: Seen::default(),
            op: 0,
            now: Timestamp(0),
            released: 0,
            outbox: VecDeque::new(),
            letters: Letters::default(),
        }
    }

    /// Takes an entry whose writes are applied already.
    pub(crate) fn record(&mut self, entry: Rc<Entry>) {
        self.op = entry.op;
        self.now = self.now.max(entry.now);
        if let Some(letter) = &entry.replays {
            self.letters.remove(letter);
        }
        if let Some(letter) = &entry.dead {
            self.letters.keep(entry.id, letter.clone());
        }
        self.outbox.push_back(Outgoing::new(entry.clone()));
        self.seen.insert(entry);
    }

    /// An entry of the outbox.
    pub(crate) fn outgoing(&mut self, op: u64) -> Option<&mut Outgoing> {
        let first = self.outbox.front()?.entry.op;
        self.outbox
            .get_mut(usize::try_from(op.checked_sub(first)?).ok()?)
    }

    /// Drops from the front of the outbox what has no open outputs and is committed; gives the
    /// copies that are durable with it.
    pub(crate) fn trim(&mut self, commit: u64) -> Vec<(Link, Number)> {
        let mut copies = Vec::new();
        while let Some(first) = self.outbox.front()
            && first.open == 0
            && first.entry.op <= commit
        {
            self.released = first.entry.op;
            copies.append(&mut self.outbox.pop_front().expect("looked at").copies);
        }
        copies
    }

    /// The primary says that outputs up to `op` are durable.
    pub(crate) fn release(&mut self, op: u64) {
        while self.outbox.front().is_some_and(|o| o.entry.op <= op) {
            self.outbox.pop_front();
        }
        self.released = self.released.max(op.min(self.op));
    }
}

impl Outgoing {
    pub(crate) fn new(entry: Rc<Entry>) -> Outgoing {
        Outgoing {
            open: entry.outputs.len(),
            entry,
            copies: Vec::new(),
        }
    }
}

impl Replica {
    pub(crate) fn new(
        key: ShardKey,
        role: Role,
        view: u32,
        incarnation: u32,
        collections: &[CollectionSpec],
    ) -> Replica {
        Replica {
            key,
            role,
            view,
            incarnation,
            former: BTreeSet::new(),
            log: Log::new(collections),
            primary: Primary::default(),
            incoming: None,
            counts: Counts::default(),
            error: None,
        }
    }

    /// Entries that every backup that counts has.
    pub(crate) fn acked_by_all(&self) -> u64 {
        let required = self.primary.backups.values().filter(|b| b.required);
        required
            .map(|b| b.acked)
            .min()
            .unwrap_or(self.log.op)
            .min(self.log.op)
    }

    /// True if the collections hold more than the service may use.
    pub(crate) fn is_over(&self, memory_max: Bytes) -> bool {
        self.log.state.borrow().memory_bytes() as u64 > memory_max.0
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        let log = &self.log;
        assert!(
            log.released <= log.op,
            "{}: released beyond the log",
            self.key
        );
        assert_eq!(
            log.released + log.outbox.len() as u64,
            log.op,
            "{}: outbox has a gap",
            self.key
        );
        if self.role == Role::Primary {
            let p = &self.primary;
            assert!(
                p.commit <= log.op && p.commit >= log.released,
                "{}: commit",
                self.key
            );
            assert_eq!(
                p.commit + p.pending.len() as u64,
                log.op,
                "{}: pending has a gap",
                self.key
            );
            for (node, b) in &p.backups {
                assert!(
                    b.acked <= log.op,
                    "{}: {node} acknowledged the future",
                    self.key
                );
                let bound = b.acked.max(b.required_from);
                assert!(
                    !b.required || p.commit <= bound,
                    "{}: {node} lacks commits",
                    self.key
                );
            }
        }
    }
}
