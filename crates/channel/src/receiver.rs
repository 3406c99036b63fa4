//! The receiving end: order, duplicates, credit.

use crate::limits::WINDOW_MESSAGES;
use e3_wire::frame::Ack;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Receiving end of a channel.
#[derive(Debug, Default)]
pub struct Receiver {
    /// All up to this one have arrived.
    received: u64,
    /// Arrived beyond a gap.
    early: BTreeMap<u64, Vec<u8>>,
    /// Arrived in order, not taken yet.
    ready: VecDeque<(u64, Vec<u8>)>,
    /// Highest number taken by the owner.
    taken: u64,
    durable: u64,
    /// Durable beyond a gap.
    durable_early: BTreeSet<u64>,
    ack_due: bool,
}

/// What became of an arriving message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// New.
    New,
    /// Known already.
    Duplicate,
    /// Beyond the credit; dropped.
    Beyond,
}

impl Receiver {
    /// Takes an arriving message.
    pub fn on_data(&mut self, seq: u64, body: &[u8]) -> Arrival {
        self.ack_due = true;
        if seq <= self.received || self.early.contains_key(&seq) {
            return Arrival::Duplicate;
        }
        if seq > self.limit() {
            return Arrival::Beyond;
        }
        if seq == self.received + 1 {
            self.received = seq;
            self.ready.push_back((seq, body.to_vec()));
            while let Some(body) = self.early.remove(&(self.received + 1)) {
                self.received += 1;
                self.ready.push_back((self.received, body));
            }
        } else {
            self.early.insert(seq, body.to_vec());
        }
        Arrival::New
    }

    /// Takes the next message in order; this gives the sender credit for one more.
    pub fn pop(&mut self) -> Option<(u64, Vec<u8>)> {
        let next = self.ready.pop_front()?;
        self.taken = next.0;
        self.ack_due = true;
        Some(next)
    }

    /// Messages that [`Receiver::pop`] would give.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// States that a message is durable. The acknowledgement waits for those before it.
    pub fn complete(&mut self, seq: u64) {
        if seq <= self.durable {
            return;
        }
        self.durable_early.insert(seq);
        while self.durable_early.remove(&(self.durable + 1)) {
            self.durable += 1;
            self.ack_due = true;
        }
    }

    /// The acknowledgement to send, if something changed since the last one.
    pub fn poll_ack(&mut self) -> Option<Ack> {
        if !std::mem::take(&mut self.ack_due) {
            return None;
        }
        let mut selective = 0;
        for seq in self.early.keys() {
            let bit = seq - self.received - 2;
            if bit < 64 {
                selective |= 1 << bit;
            }
        }
        Some(Ack {
            received: self.received,
            selective,
            durable: self.durable,
            limit: self.limit(),
        })
    }

    fn limit(&self) -> u64 {
        self.taken + WINDOW_MESSAGES
    }

    /// Panics if an invariant is broken.
    pub fn validate(&self) {
        assert!(self.durable <= self.taken && self.taken <= self.received);
        assert_eq!(self.taken + self.ready.len() as u64, self.received);
        assert!(
            self.early
                .keys()
                .next()
                .is_none_or(|first| *first > self.received + 1)
        );
    }
}
