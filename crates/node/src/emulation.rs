//! Emulation of a node's link and memory, where this process stands for hardware that is not here.
//!
//! Service times are emulated in the data plane, which releases an entry only when the slower core
//! would have finished it. This module delays datagrams and watches the process's memory. Both do
//! nothing on real hardware.

use crate::limits::{DELAYED_MAX, EXCESS_DIVISOR};
use e3_model::{Address, Bytes, Nanos, Timestamp};
use std::collections::VecDeque;

/// One direction of a link: datagrams with the peer's address, oldest first.
#[derive(Debug)]
pub(crate) struct DelayLine {
    latency: Nanos,
    queue: VecDeque<(Timestamp, Address, Vec<u8>)>,
}

impl DelayLine {
    pub(crate) fn new(latency: Nanos) -> DelayLine {
        DelayLine {
            latency,
            queue: VecDeque::new(),
        }
    }

    /// Whether datagrams must pass through it.
    pub(crate) fn is_used(&self) -> bool {
        self.latency > Nanos::ZERO
    }

    /// Takes a datagram; it is lost if there is no room.
    pub(crate) fn push(&mut self, now: Timestamp, peer: Address, bytes: Vec<u8>) {
        if self.queue.len() < DELAYED_MAX {
            let due = now + self.latency;
            self.queue.push_back((due, peer, bytes));
        }
    }

    /// The next datagram that has passed.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<(Address, Vec<u8>)> {
        let (due, ..) = self.queue.front()?;
        if *due > now {
            return None;
        }
        self.queue.pop_front().map(|(_, peer, bytes)| (peer, bytes))
    }

    /// When the next datagram has passed; never if there is none.
    pub(crate) fn next_due(&self) -> Timestamp {
        self.queue.front().map_or(Timestamp::MAX, |(due, ..)| *due)
    }
}

/// How much of its memory a node uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MemoryUse {
    /// Less than it has.
    Fits,
    /// All of it: nothing new is taken on. The text says how much.
    Full(String),
    /// More than it has: a real node's system would end the process. The text says how much.
    Exceeded(String),
}

/// Compares the resident memory of an emulated node's process with the node's memory.
pub(crate) fn memory_use(resident: Bytes, memory_max: Option<Bytes>) -> MemoryUse {
    let Some(max) = memory_max.filter(|max| resident >= *max) else {
        return MemoryUse::Fits;
    };
    let text = format!("the node's memory is used up: {resident} of {max}");
    if resident.0 > max.0 + max.0 / EXCESS_DIVISOR {
        MemoryUse::Exceeded(text)
    } else {
        MemoryUse::Full(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_pass_in_order_and_no_earlier_than_the_latency() {
        let mut line = DelayLine::new(Nanos(100));
        assert!(line.is_used());
        line.push(Timestamp(10), Address::default(), vec![1]);
        line.push(Timestamp(20), Address::default(), vec![2]);
        assert_eq!(line.next_due(), Timestamp(110));
        assert_eq!(line.pop_due(Timestamp(109)), None);
        assert_eq!(line.pop_due(Timestamp(110)).unwrap().1, vec![1]);
        assert_eq!(line.pop_due(Timestamp(119)), None);
        assert_eq!(line.pop_due(Timestamp(500)).unwrap().1, vec![2]);
        assert_eq!(line.next_due(), Timestamp::MAX);
    }

    #[test]
    fn a_full_line_loses_datagrams() {
        let mut line = DelayLine::new(Nanos(100));
        for _ in 0..=DELAYED_MAX {
            line.push(Timestamp(0), Address::default(), Vec::new());
        }
        let mut passed = 0;
        while line.pop_due(Timestamp(100)).is_some() {
            passed += 1;
        }
        assert_eq!(passed, DELAYED_MAX);
    }

    #[test]
    fn memory_is_full_at_its_size_and_exceeded_an_eighth_above() {
        let max = Some(Bytes(800));
        assert_eq!(memory_use(Bytes(799), max), MemoryUse::Fits);
        assert!(matches!(memory_use(Bytes(800), max), MemoryUse::Full(_)));
        assert!(matches!(memory_use(Bytes(900), max), MemoryUse::Full(_)));
        assert!(matches!(
            memory_use(Bytes(901), max),
            MemoryUse::Exceeded(_)
        ));
        assert_eq!(memory_use(Bytes(u64::MAX), None), MemoryUse::Fits);
    }
}
