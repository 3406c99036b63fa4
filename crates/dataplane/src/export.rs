//! A primary's part in a backup of its application: a snapshot of the shard while it serves, then its
//! entries, up to the position at which all primaries stand still.
//!
//! All of them stop, each fixes its position, and then all go on. So what a shard has of another's
//! messages was sent by entries within that one's position, and what was sent and is not durable at
//! its receiver is in its sender's outbox. docs/design/017.

use crate::deliberate::{self, Fault};
use crate::limits::{EXPORT_AHEAD_LEN, EXPORT_LEN_MAX, TURN_PIECES_MAX};
use crate::log::Log;
use crate::shard::{Effect, Shard, Turn};
use crate::transfer::Transfer;
use e3_model::plan::NodeEvent;
use e3_model::timing::BACKUP_STILL_MAX;
use e3_model::{Format, Nanos, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::part::{checksum, put_item};
use e3_wire::replicated::Replicated;

/// What of a shard was sent for a backup.
#[derive(Debug)]
pub(crate) struct Export {
    /// Number of the backup.
    pub(crate) number: u64,
    transfer: Transfer,
    /// Bytes so far.
    len: u64,
    /// Checksum of them.
    crc: u32,
    /// Bytes that have left the node.
    sent: u64,
    /// The last entry, once nothing more is added.
    cut: Option<u64>,
    /// Since when the shard stands still for it.
    still_since: Option<Timestamp>,
    /// More was written than left the node, or the shard went on by itself: there will be no backup.
    is_over: bool,
}

impl Export {
    fn put(&mut self, item: &[u8], effects: &mut Vec<Effect>) {
        if self.is_over {
            return;
        }
        let (number, offset) = (self.number, self.len);
        let mut bytes = Vec::with_capacity(item.len() + 4);
        put_item(&mut bytes, item);
        self.crc = checksum(self.crc, &bytes);
        self.len += bytes.len() as u64;
        self.is_over = self.open() > EXPORT_LEN_MAX;
        effects.push(Effect::Export {
            number,
            offset,
            bytes,
        });
    }

    /// Bytes that have not left the node.
    fn open(&self) -> u64 {
        self.len.saturating_sub(self.sent)
    }

    /// Begins with the snapshot.
    pub(crate) fn begin(
        number: u64,
        log: &Log,
        format: Format,
        effects: &mut Vec<Effect>,
    ) -> Export {
        let (transfer, first) = Transfer::new(log, format, None);
        let mut export = Export {
            number,
            transfer,
            len: 0,
            crc: 0,
            sent: 0,
            cut: None,
            still_since: None,
            is_over: false,
        };
        export.put(&first.encode(), effects);
        export
    }

    /// The shard is to stand still. False if it goes on: its part is given up, or has taken too long. The
    /// controller has cancelled the backup by then, and may be unable to say so.
    pub(crate) fn may_hold(&mut self, now: Timestamp, effects: &mut Vec<Effect>) -> bool {
        let since = *self.still_since.get_or_insert_with(|| {
            effects.push(Effect::WakeAt(now + BACKUP_STILL_MAX));
            now
        });
        self.is_over |= now >= since + BACKUP_STILL_MAX;
        !self.is_over
    }

    /// Bytes up to this one have left the node.
    pub(crate) fn on_sent(&mut self, len: u64) {
        self.sent = self.sent.max(len.min(self.len));
    }

    /// Adds an entry that was appended, with its writes.
    pub(crate) fn add(&mut self, effects: &mut Vec<Effect>, entry: &Entry) {
        if self.cut.is_none() {
            self.put(&Replicated::encode_entry(entry), effects);
        }
    }

    /// Makes more of the snapshot. When that is whole and the primary stands still, fixes the position.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>, stands_still: bool) {
        if self.cut.is_some() {
            return;
        }
        let mut items = Vec::new();
        for _ in 0..TURN_PIECES_MAX {
            if self.transfer.is_done() || self.open() >= EXPORT_AHEAD_LEN {
                break;
            }
            let log = &turn.shard.log;
            self.transfer.make(log, |item| items.push(item));
            for item in items.drain(..) {
                self.put(&item, turn.effects);
            }
        }
        if !self.transfer.is_done() {
            if self.open() < EXPORT_AHEAD_LEN {
                // In the next turn: others wait too.
                turn.effects.push(Effect::WakeAt(turn.cx.now + Nanos(1)));
            }
        } else if stands_still && !self.is_over {
            let log = &turn.shard.log;
            let released = if deliberate::is(Fault::CutWithoutOutbox) {
                Replicated::Released(log.op)
            } else {
                Replicated::Released(log.released)
            };
            self.put(&released.encode(), turn.effects);
            self.cut = Some(turn.shard.log.op);
        }
    }

    /// What the controller must hear of it.
    pub(crate) fn event(&self, shard: &Shard) -> Option<NodeEvent> {
        let (key, incarnation, number) = (shard.key, shard.incarnation, self.number);
        match self.cut {
            _ if self.is_over => None,
            Some(op) => Some(NodeEvent::Cut {
                key,
                incarnation,
                number,
                op,
                len: self.len,
                crc: self.crc,
            }),
            None => self.transfer.is_done().then_some(NodeEvent::Copied {
                key,
                incarnation,
                number,
            }),
        }
    }
}
