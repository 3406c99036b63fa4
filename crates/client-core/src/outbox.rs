//! Outgoing frames, packed into datagrams by destination.

use crate::limits::DATAGRAM_LEN_GOAL;
use e3_model::{Address, Format};
use e3_wire::client::ClientFrame;
use e3_wire::datagram::seal;
use std::collections::{BTreeMap, VecDeque};

/// Datagrams to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    open: BTreeMap<Address, Vec<u8>>,
    pub(crate) full: VecDeque<(Address, Vec<u8>)>,
}

impl Outbox {
    /// Packs a frame.
    pub(crate) fn push(&mut self, to: Address, frame: &ClientFrame) {
        let buffer = self.open.entry(to).or_default();
        if buffer.is_empty() {
            ClientFrame::start(buffer);
        }
        frame.encode(buffer);
        if buffer.len() > DATAGRAM_LEN_GOAL {
            let mut bytes = std::mem::take(buffer);
            seal(Format::OLDEST, &mut bytes);
            self.full.push_back((to, bytes));
        }
    }

    /// The next datagram.
    pub(crate) fn pop(&mut self) -> Option<(Address, Vec<u8>)> {
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        while let Some((to, mut bytes)) = self.open.pop_first() {
            if !bytes.is_empty() {
                seal(Format::OLDEST, &mut bytes);
                return Some((to, bytes));
            }
        }
        None
    }
}
