//! The receiving end: order, duplicates, credit.

use crate::limits::WINDOW_MESSAGES;
use crate::{Number, is_after};
use e3_wire::frame::{Ack, SELECTIVE_WORDS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Receiving end of a channel.
#[derive(Debug, Default)]
pub struct Receiver {
    epoch: u32,
    /// How often the state was reset. An epoch can recur, after wrong frames or by wrapping
    /// around; what was taken before then must not count as durable.
    resets: u64,
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

/// A message that was taken, for [`Receiver::complete`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    resets: u64,
    seq: u64,
}

/// Result of an arriving message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// New.
    New,
    /// A duplicate.
    Duplicate,
    /// Beyond the credit; dropped.
    Beyond,
    /// Of an epoch that is over here; dropped. The acknowledgement informs the sender.
    Late,
    /// The sender has freed messages that never became durable here; dropped. The acknowledgement
    /// asks for a new epoch.
    Confused,
    /// Contradicts itself; dropped.
    Invalid,
}

impl Receiver {
    /// An end that waits for the first message of an epoch.
    pub fn new(epoch: u32) -> Receiver {
        Receiver {
            epoch,
            ..Receiver::default()
        }
    }

    /// Takes an arriving message; `behind` earlier ones are still kept by the sender.
    pub fn on_data(&mut self, number: Number, behind: u32, body: &[u8]) -> Arrival {
        let Number { epoch, seq } = number;
        let Some(first) = seq.checked_sub(behind.into()).filter(|first| *first > 0) else {
            return Arrival::Invalid;
        };
        self.ack_due = true;
        if epoch != self.epoch {
            if !is_after(epoch, self.epoch) {
                return Arrival::Late;
            }
            self.reset(epoch);
        }
        if first > self.durable + 1 {
            self.restart();
            return Arrival::Confused;
        }
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

    /// Forgets everything and asks the sender to begin again: it takes the epoch after this one.
    pub fn restart(&mut self) {
        self.reset(self.epoch.wrapping_add(1));
    }

    fn reset(&mut self, epoch: u32) {
        *self = Receiver {
            epoch,
            resets: self.resets + 1,
            ack_due: true,
            ..Receiver::default()
        };
    }

    /// Takes the next message in order; this gives the sender credit for one more.
    pub fn pop(&mut self) -> Option<(Taken, Vec<u8>)> {
        let (seq, body) = self.ready.pop_front()?;
        self.taken = seq;
        self.ack_due = true;
        let resets = self.resets;
        Some((Taken { resets, seq }, body))
    }

    /// Messages that [`Receiver::pop`] would give.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// States that a message is durable. The acknowledgement waits for those before it.
    pub fn complete(&mut self, taken: Taken) {
        if taken.resets != self.resets || taken.seq <= self.durable {
            return;
        }
        self.durable_early.insert(taken.seq);
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
        let mut selective = [0; SELECTIVE_WORDS];
        for seq in self.early.keys() {
            let bit = seq - self.received - 2;
            selective[bit as usize / 64] |= 1 << (bit % 64);
        }
        Some(Ack {
            epoch: self.epoch,
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
        let last = self.early.keys().next_back();
        assert!(last.is_none_or(|last| *last <= self.limit()));
    }
}
