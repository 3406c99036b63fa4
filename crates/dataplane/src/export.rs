//! A primary's part in a backup of its application: a snapshot of the shard while it serves, then its
//! entries, up to the position at which all primaries stand still.
//!
//! All of them stop, each fixes its position, and then all go on. So what a shard has of another's
//! messages was sent by entries within that one's position, and what was sent and is not durable at
//! its receiver is in its sender's outbox. docs/design/017.

use crate::limits::{EXPORT_AHEAD_LEN, EXPORT_LEN_MAX, TURN_PIECES_MAX};
use crate::primary::Primary;
use crate::shard::{Effect, Shard, Turn};
use crate::transfer::Transfer;
use e3_model::backup::BackupOrder;
use e3_model::plan::NodeEvent;
use e3_model::{Nanos, ShardKey};
use e3_wire::entry::{Entry, Replicated};
use e3_wire::part::{checksum, put_item};

/// What of a shard was sent for a backup.
#[derive(Debug)]
pub(crate) struct Export {
    /// Number of the backup.
    number: u64,
    transfer: Transfer,
    /// Bytes so far.
    len: u64,
    /// Checksum of them.
    crc: u32,
    /// Bytes that have left the node.
    sent: u64,
    /// The last entry, once nothing more is added.
    cut: Option<u64>,
    /// More was written than left the node: there will be no backup.
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
}

impl Primary {
    /// Begins, goes on with or drops the shard's part of a backup, as the plan says.
    pub(crate) fn follow_backup(&mut self, turn: &mut Turn<'_>, order: Option<BackupOrder>) {
        let number = order.map(|order| order.number);
        if self.export.as_ref().map(|e| e.number) != number {
            self.export = number.map(|number| {
                let (transfer, first) = Transfer::new(&turn.shard.log);
                let mut export = Export {
                    number,
                    transfer,
                    len: 0,
                    crc: 0,
                    sent: 0,
                    cut: None,
                    is_over: false,
                };
                export.put(&first.encode(), turn.effects);
                export
            });
        }
        if self.export.is_some() {
            // In the next tick, when all completions are in: see `Streams`.
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// Bytes up to this one have left the node.
    pub(crate) fn on_exported(&mut self, turn: &mut Turn<'_>, number: u64, len: u64) {
        if let Some(export) = self.export.as_mut().filter(|e| e.number == number) {
            export.sent = export.sent.max(len.min(export.len));
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// Adds an entry that was appended, with its writes.
    pub(crate) fn export_entry(&mut self, effects: &mut Vec<Effect>, entry: &Entry) {
        if let Some(export) = self.export.as_mut().filter(|e| e.cut.is_none()) {
            export.put(&Replicated::encode_entry(entry), effects);
        }
    }

    /// Makes more of the snapshot. When that is whole and the primary stands still, fixes the position.
    pub(crate) fn pump_export(&mut self, turn: &mut Turn<'_>) {
        let is_at_rest = self.frozen && self.is_at_rest(&turn.shard.log);
        let Some(export) = self.export.as_mut().filter(|e| e.cut.is_none()) else {
            return;
        };
        let mut items = Vec::new();
        for _ in 0..TURN_PIECES_MAX {
            if export.transfer.is_done() || export.open() >= EXPORT_AHEAD_LEN {
                break;
            }
            let log = &turn.shard.log;
            export.transfer.make(log, |item| items.push(item));
            for item in items.drain(..) {
                export.put(&item, turn.effects);
            }
        }
        if !export.transfer.is_done() {
            if export.open() < EXPORT_AHEAD_LEN {
                // In the next turn: others wait too.
                turn.effects.push(Effect::WakeAt(turn.cx.now + Nanos(1)));
            }
        } else if is_at_rest && !export.is_over {
            let released = Replicated::Released(turn.shard.log.released);
            export.put(&released.encode(), turn.effects);
            export.cut = Some(turn.shard.log.op);
        }
    }

    /// What the controller must hear of it.
    pub(crate) fn export_events(
        &self,
        shard: &Shard,
        order: &BackupOrder,
        events: &mut Vec<NodeEvent>,
    ) {
        let key: ShardKey = shard.key;
        let (incarnation, number) = (shard.incarnation, order.number);
        let export = self.export.as_ref();
        match export.filter(|e| e.number == number && !e.is_over) {
            Some(Export {
                cut: Some(op),
                len,
                crc,
                ..
            }) => events.push(NodeEvent::Cut {
                key,
                incarnation,
                number,
                op: *op,
                len: *len,
                crc: *crc,
            }),
            Some(export) if export.transfer.is_done() => events.push(NodeEvent::Copied {
                key,
                incarnation,
                number,
            }),
            _ => {}
        }
    }
}
