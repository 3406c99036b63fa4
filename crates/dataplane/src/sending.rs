//! A snapshot on its way to one backup: how fast it goes, and how much of its stream may be open.
//!
//! Parts are made when the backup has taken most of those before, so there are never many. Entries
//! go on meanwhile. For each of them twice as many bytes of the snapshot are due, so the snapshot
//! ends however much is written. If the backup takes less than is written, the primary waits for it:
//! no handler starts as long as too much is open and the backup goes on. A backup that does not go
//! on holds nobody up: its stream begins once more, and with more patience if it had gone on at all.

use crate::limits::*;
use crate::log::Log;
use crate::transfer::Transfer;
use e3_model::{Format, Nanos, Timestamp};
use std::collections::VecDeque;

/// A stream whose backup does not have the whole snapshot, or too few of the entries after it.
#[derive(Debug)]
pub(crate) struct Sending {
    transfer: Transfer,
    /// Bytes of the items that are not durable, in order.
    open: VecDeque<usize>,
    open_bytes: usize,
    /// Bytes of the snapshot that are due whatever is open.
    owed: usize,
    /// Items that must be durable until the whole snapshot is, once all of it was sent.
    ends_in: Option<usize>,
    /// When an item of this stream or of one before it became durable.
    heard_at: Timestamp,
    has_heard: bool,
    patience: Nanos,
}

impl Sending {
    /// Begins, with the item to send first. `before`: the stream that this one replaces.
    /// `view`: as in [`Transfer::new`].
    pub(crate) fn new(
        now: Timestamp,
        log: &Log,
        format: Format,
        view: Option<u32>,
        before: Option<&Sending>,
    ) -> (Sending, Vec<u8>) {
        let (transfer, begin) = Transfer::new(log, format, view);
        let patience = match before {
            None => JOIN_PATIENCE,
            Some(before) if before.has_heard => (before.patience * 2).min(JOIN_PATIENCE_MAX),
            Some(before) => before.patience,
        };
        let sending = Sending {
            transfer,
            open: VecDeque::new(),
            open_bytes: 0,
            owed: 0,
            ends_in: None,
            heard_at: before.map_or(now, |before| before.heard_at),
            has_heard: false,
            patience,
        };
        (sending, begin.encode())
    }

    /// An item was sent.
    pub(crate) fn on_sent(&mut self, len: usize) {
        self.open.push_back(len);
        self.open_bytes += len;
    }

    /// An entry was sent.
    pub(crate) fn on_entry(&mut self, len: usize) {
        self.on_sent(len);
        if !self.transfer.is_done() {
            self.owed += 2 * len;
        }
    }

    /// An item became durable. True if the whole snapshot is.
    pub(crate) fn on_durable(&mut self, now: Timestamp) -> bool {
        self.open_bytes -= self.open.pop_front().unwrap_or(0);
        self.heard_at = self.heard_at.max(now);
        self.has_heard = true;
        self.ends_in = self.ends_in.map(|items| items.saturating_sub(1));
        self.ends_in == Some(0)
    }

    /// Makes what may be sent now. `put` sends an item.
    pub(crate) fn pump(&mut self, log: &Log, mut put: impl FnMut(Vec<u8>)) {
        for made in 0..TURN_PIECES_MAX {
            let is_due = self.owed > 0 && made < TURN_PIECES_MAX / 2 && !self.is_over();
            if self.transfer.is_done() || !(is_due || self.has_room()) {
                return;
            }
            let (open, open_bytes) = (&mut self.open, &mut self.open_bytes);
            let before = *open_bytes;
            self.transfer.make(log, |item| {
                open.push_back(item.len());
                *open_bytes += item.len();
                put(item);
            });
            self.owed = self.owed.saturating_sub(self.open_bytes - before);
            if self.transfer.is_done() {
                self.ends_in = Some(self.open.len());
                self.owed = 0;
            }
        }
    }

    /// Whether more of the snapshot can be made, although nothing is due.
    pub(crate) fn has_room(&self) -> bool {
        !self.transfer.is_done() && self.open_bytes < JOIN_AHEAD_LEN
    }

    /// Whether too much is open.
    pub(crate) fn is_over(&self) -> bool {
        let items_max = if self.transfer.is_done() {
            // Few enough that commits may wait for the backup.
            QUEUE_MAX / 2
        } else {
            JOIN_ITEMS_MAX
        };
        self.open_bytes > JOIN_LEN_MAX || self.open.len() > items_max
    }

    /// Until when the primary waits for the backup, if too much is open.
    pub(crate) fn waits_until(&self) -> Timestamp {
        self.heard_at + self.patience
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        assert_eq!(self.open_bytes, self.open.iter().sum::<usize>());
        assert!(self.ends_in.is_some() == self.transfer.is_done());
    }
}
