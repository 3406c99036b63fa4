//! Emulation of a node's port and memory, where this process stands for hardware that is not here.
//!
//! Cores and service times are emulated in the data plane, which releases an entry only when the slower
//! core would have finished it. This module delays datagrams and watches the process's memory. Both do
//! nothing on real hardware.

use crate::limits::{CARRIED_MAX, EXCESS_DIVISOR, PORT_LEN_MAX};
use e3_model::{Bytes, Nanos, Timestamp};
use std::collections::VecDeque;

/// One direction of an emulated port: datagrams, oldest first. It carries one after another, each for
/// as long as the bandwidth makes it, and each arrives by the latency of the link later.
#[derive(Debug)]
pub(crate) struct Line<T> {
    latency: Nanos,
    /// None on a node that is what it is.
    bytes_per_s: Option<f64>,
    /// When the port has carried all that it was given.
    free_at: Timestamp,
    /// With the time at which each arrives, and its bytes.
    queue: VecDeque<(Timestamp, usize, T)>,
    len_bytes: usize,
}

impl<T> Line<T> {
    pub(crate) fn new(latency: Nanos, bytes_per_s: Option<f64>) -> Line<T> {
        Line {
            latency,
            bytes_per_s,
            free_at: Timestamp::ZERO,
            queue: VecDeque::new(),
            len_bytes: 0,
        }
    }

    /// Whether datagrams must pass through it.
    pub(crate) fn is_used(&self) -> bool {
        self.latency > Nanos::ZERO || self.bytes_per_s.is_some()
    }

    /// Takes a datagram whose size on the port is this; false if there is no room, so that it is
    /// lost.
    pub(crate) fn push(&mut self, now: Timestamp, len_bytes: usize, datagram: T) -> bool {
        if self.len_bytes + len_bytes > PORT_LEN_MAX {
            return false;
        }
        let time_s = self.bytes_per_s.map_or(0.0, |b| len_bytes as f64 / b);
        self.free_at = self.free_at.max(now) + Nanos((time_s * 1e9) as u64).min(CARRIED_MAX);
        self.len_bytes += len_bytes;
        let due = self.free_at + self.latency;
        self.queue.push_back((due, len_bytes, datagram));
        true
    }

    /// The next datagram that has passed.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<T> {
        if self.next_due() > now {
            return None;
        }
        let (_, len_bytes, datagram) = self.queue.pop_front()?;
        self.len_bytes -= len_bytes;
        Some(datagram)
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
        let mut line = Line::new(Nanos(100), None);
        assert!(line.is_used());
        assert!(line.push(Timestamp(10), 1, 'a'));
        assert!(line.push(Timestamp(20), 1, 'b'));
        assert_eq!(line.next_due(), Timestamp(110));
        assert_eq!(line.pop_due(Timestamp(109)), None);
        assert_eq!(line.pop_due(Timestamp(110)), Some('a'));
        assert_eq!(line.pop_due(Timestamp(119)), None);
        assert_eq!(line.pop_due(Timestamp(500)), Some('b'));
        assert_eq!(line.next_due(), Timestamp::MAX);
    }

    #[test]
    fn a_port_carries_no_more_than_its_bandwidth() {
        // A gigabyte a second: a nanosecond a byte.
        let mut line = Line::new(Nanos(5), Some(1e9));
        for n in 0..10 {
            assert!(line.push(Timestamp(1_000), 100, n));
        }
        for n in 0..10 {
            let due = Timestamp(1_000 + 100 * (n + 1) + 5);
            assert_eq!(line.next_due(), due);
            assert_eq!(line.pop_due(due), Some(n));
        }
        // What comes when it is idle is carried at once.
        assert!(line.push(Timestamp(9_000), 100, 10));
        assert_eq!(line.next_due(), Timestamp(9_105));
    }

    #[test]
    fn a_full_port_loses_datagrams() {
        let mut line = Line::new(Nanos(100), None);
        let half = PORT_LEN_MAX / 2;
        assert!(line.push(Timestamp(0), half, 1));
        assert!(line.push(Timestamp(0), half, 2));
        assert!(!line.push(Timestamp(0), half, 3));
        assert_eq!(line.pop_due(Timestamp(100)), Some(1));
        assert!(line.push(Timestamp(100), half, 4));
        assert_eq!(line.pop_due(Timestamp(200)), Some(2));
        assert_eq!(line.pop_due(Timestamp(200)), Some(4));
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
