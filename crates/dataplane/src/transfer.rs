//! A snapshot of a log, made in parts while the log goes on. What each part needs:
//!
//! - Entries after `begin_op` are streamed, so parts other than the collections leave them out.
//! - Each part walks in an order that writes do not disturb, so nothing is missed, and holds what is
//!   there when it is made. What the log forgets later, the backup forgets by the same entries.
//! - Timers are sent as the last entry left them; the backup applies later entries to those it has.
//! - The collections' pieces are current to the last entry, see [`e3_collections::Walk`].
//!
//! docs/design/001-exactly-once.md says why the result is the log.

use crate::dead_letters::Numbered;
use crate::deliberate::{self, Fault};
use crate::limits::{PIECE_ENTRIES_MAX, PIECE_LEN};
use crate::log::Log;
use crate::timer_table::Place;
use e3_collections::{PieceMax, Walk};
use e3_model::{Format, MessageId, Slot};
use e3_wire::replicated::Replicated;
use std::collections::VecDeque;
use std::rc::Rc;

/// What of a snapshot was made.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Last entry before it.
    begin_op: u64,
    /// Dead letters that are not sent yet.
    letters: VecDeque<Numbered>,
    format: Format,
    next: Part,
}

/// The part that comes next, and where in it.
#[derive(Debug)]
enum Part {
    /// Entries whose outputs are not durable, from this one on.
    Outbox(u64),
    /// Handled messages after this one.
    Handled(Option<(Slot, MessageId)>),
    /// Dead letters.
    Letters,
    /// Timers after this place.
    Timers(Option<Rc<Place>>),
    State(Walk),
    End,
    Nothing,
}

impl Transfer {
    /// Begins a snapshot: what is to be done, and the item that says so. `view`: of the stream of which
    /// it is the first item.
    pub(crate) fn new(log: &Log, format: Format, view: Option<u32>) -> (Transfer, Replicated) {
        let begin = Replicated::SnapshotBegin {
            view,
            op: log.op,
            now: log.now,
            since: log.since,
            released: log.released,
            reigns: log.history.reigns().to_vec(),
        };
        let transfer = Transfer {
            begin_op: log.op,
            letters: log.dead_letters.numbered(),
            format,
            next: Part::Outbox(log.released + 1),
        };
        (transfer, begin)
    }

    /// Whether everything was made.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.next, Part::Nothing)
    }

    /// Makes about [`PIECE_LEN`] bytes more, unless less is left of a part.
    pub(crate) fn make(&mut self, log: &Log, mut put: impl FnMut(Vec<u8>)) {
        let mut room = PIECE_LEN as isize;
        let put = &mut |item: Replicated| {
            let item = item.encode();
            room -= item.len() as isize;
            put(item);
            room > 0
        };
        let begin_op = self.begin_op;
        let next = match &mut self.next {
            Part::Outbox(from) => {
                put_outbox(log, begin_op, from, put);
                (*from > begin_op).then_some(Part::Handled(None))
            }
            Part::Handled(_) if deliberate::is(Fault::SnapshotWithoutHandled) => {
                Some(Part::Letters)
            }
            Part::Handled(after) => put_handled(log, begin_op, after, put).then_some(Part::Letters),
            Part::Letters if deliberate::is(Fault::SnapshotWithoutLetters) => {
                Some(Part::Timers(None))
            }
            Part::Letters => {
                let is_due = |number| {
                    self.format >= Format::LETTERS_OF_BEGINNING || log.dead_letters.has(number)
                };
                put_letters(&mut self.letters, is_due, put);
                self.letters.is_empty().then_some(Part::Timers(None))
            }
            Part::Timers(_) if deliberate::is(Fault::TimersLostOnFailover) => {
                Some(Part::State(Walk::default()))
            }
            Part::Timers(after) => {
                put_timers(log, after, put).then(|| Part::State(Walk::default()))
            }
            Part::State(_) if deliberate::is(Fault::SnapshotWithoutState) => Some(Part::End),
            Part::State(walk) => {
                put_state(log, walk, put);
                walk.is_done().then_some(Part::End)
            }
            Part::End => {
                put(Replicated::SnapshotEnd { op: log.op });
                Some(Part::Nothing)
            }
            Part::Nothing => None,
        };
        if let Some(next) = next {
            self.next = next;
        }
    }
}

/// Takes an item; whether there is room for more.
type Put<'a> = &'a mut dyn FnMut(Replicated) -> bool;

/// Entries whose outputs are not durable, from this one on.
fn put_outbox(log: &Log, begin_op: u64, from: &mut u64, put: Put<'_>) {
    if log.released >= *from {
        // The entries before have left the outbox meanwhile.
        put(Replicated::Released(log.released.min(log.op)));
        *from = log.released + 1;
    }
    let outbox = log.outbox.iter().map(|o| &o.entry);
    let skip = (*from - log.released - 1) as usize;
    for entry in outbox.skip(skip).take_while(|e| e.op <= begin_op) {
        *from = entry.op + 1;
        if !put(Replicated::SnapshotOutgoing((**entry).clone())) {
            break;
        }
    }
}

/// Handled messages after this one; whether that is all.
fn put_handled(
    log: &Log,
    begin_op: u64,
    after: &mut Option<(Slot, MessageId)>,
    put: Put<'_>,
) -> bool {
    let mut last = None;
    let mut entries = log.dedup.entries_after(*after).take(PIECE_ENTRIES_MAX);
    let is_full = entries.any(|entry| {
        last = Some((entry.slot, entry.id));
        entry.op <= begin_op && !put(Replicated::SnapshotSeen((**entry).clone()))
    });
    let is_last = last.is_none() && !is_full;
    *after = last.or(*after);
    is_last
}

/// Dead letters that are due.
fn put_letters(letters: &mut VecDeque<Numbered>, is_due: impl Fn(u64) -> bool, put: Put<'_>) {
    while let Some((number, (id, letter))) = letters.pop_front() {
        if is_due(number) && !put(Replicated::SnapshotDead(id, Rc::unwrap_or_clone(letter))) {
            return;
        }
    }
}

/// Timers after this place; whether that is all.
fn put_timers(log: &Log, after: &mut Option<Rc<Place>>, put: Put<'_>) -> bool {
    let mut last = after.take();
    let mut timers = log.timers.after(last.clone());
    let is_full = timers.any(|(place, timer)| {
        last = Some(place.clone());
        !put(Replicated::SnapshotTimer(timer))
    });
    *after = last;
    !is_full
}

/// The next piece of the collections.
fn put_state(log: &Log, walk: &mut Walk, put: Put<'_>) {
    let max = PieceMax {
        bytes: PIECE_LEN,
        entries: PIECE_ENTRIES_MAX,
    };
    let piece = log.state.borrow().next_piece(walk, max);
    if let Some(piece) = piece {
        put(Replicated::SnapshotState { op: log.op, piece });
    }
}
