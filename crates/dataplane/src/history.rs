//! What tells two replicas which log they have in common, and the end of the log as it was sent.
//!
//! One primary appends the entries of one reign, in order. So two logs that have an entry of the
//! same number and of the same reign are the same up to there (the log matching of Raft, section
//! 5.3 of Ongaro and Ousterhout, 2014). A new primary offers its reigns and its latest entries; a
//! backup that finds its own last entry there needs no snapshot.

use crate::limits::{REIGNS_MAX, TAIL_ITEMS_MAX, TAIL_LEN_MAX};
use e3_wire::replicated::Reign;
use std::collections::VecDeque;
use std::rc::Rc;

/// Of a log.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The latest reigns, oldest first.
    reigns: Vec<Reign>,
    /// The latest entries of the log, encoded, without a gap to its end.
    tail: VecDeque<Rc<[u8]>>,
    tail_bytes: usize,
}

/// The reign of an entry; none if it is too old, or before the first.
fn reign_of(reigns: &[Reign], op: u64) -> Option<u32> {
    let reign = reigns.iter().rev().find(|r| r.first_op <= op);
    reign.map(|r| r.view)
}

impl History {
    pub(crate) fn new(reigns: Vec<Reign>) -> History {
        History {
            reigns,
            ..History::default()
        }
    }

    pub(crate) fn reigns(&self) -> &[Reign] {
        &self.reigns
    }

    /// The view's primary appends what follows `op`.
    pub(crate) fn begin_reign(&mut self, view: u32, op: u64) {
        self.reigns.retain(|r| r.first_op <= op);
        if self.reigns.len() == REIGNS_MAX {
            self.reigns.remove(0);
        }
        let first_op = op + 1;
        self.reigns.push(Reign { view, first_op });
    }

    /// Takes over the reigns of a primary whose log goes on from this one.
    pub(crate) fn follow(&mut self, reigns: Vec<Reign>) {
        self.reigns = reigns;
    }

    /// Whether a log with these reigns has this one's last entry, `op`.
    pub(crate) fn is_within(&self, theirs: &[Reign], op: u64) -> bool {
        let mine = reign_of(&self.reigns, op);
        op == 0 || (mine.is_some() && mine == reign_of(theirs, op))
    }

    /// The log's next entry.
    pub(crate) fn push(&mut self, entry: Rc<[u8]>) {
        self.tail_bytes += entry.len();
        self.tail.push_back(entry);
        while (self.tail_bytes > TAIL_LEN_MAX || self.tail.len() > TAIL_ITEMS_MAX)
            && let Some(oldest) = self.tail.pop_front()
        {
            self.tail_bytes -= oldest.len();
        }
    }

    /// The log's next entry was not kept.
    pub(crate) fn skip(&mut self) {
        self.tail.clear();
        self.tail_bytes = 0;
    }

    /// The latest entries.
    pub(crate) fn tail(&self) -> &VecDeque<Rc<[u8]>> {
        &self.tail
    }
}
