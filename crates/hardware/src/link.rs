//! A first-come, first-served server whose service times are known on arrival: a port, an uplink or
//! a DMA engine.
//!
//! Such a server needs no events of its own: a message leaves at `max(now, free) + time`. The link
//! holds the departures that are still to come, so that it knows its queue at any time. It checks
//! Little's law: the integral of the queue's length is the sum of the times that messages spent there
//! (Little, "A proof for the queuing formula L = lambda W", Operations Research 1961). Both are whole
//! nanoseconds, so they are equal, not close. Sums wrap; the law holds modulo 2^64.

use std::collections::VecDeque;

/// One link in one direction. Arrivals must come in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// When the last message leaves, or has left.
    free_at: u64,
    /// The last message has not left yet.
    is_busy: bool,
    /// Departures before the last one: none as long as nothing waits.
    departures: VecDeque<u64>,
    settled_at: u64,
    area: u64,
    sojourn: u64,
    busy: u64,
}

impl Link {
    /// A message arrives that occupies the link for `time`. The result is when it has left. Times are
    /// in nanoseconds.
    #[inline]
    pub fn push(&mut self, now: u64, time: u64) -> u64 {
        self.settle(now);
        if self.is_busy {
            self.departures.push_back(self.free_at);
        }
        self.free_at = self.free_at.max(now) + time;
        self.is_busy = true;
        self.sojourn = self.sojourn.wrapping_add(self.free_at - now);
        self.busy += time;
        self.free_at
    }

    /// When the link has sent all that it has.
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Messages that wait or are sent.
    pub fn queued(&mut self, now: u64) -> usize {
        self.settle(now);
        self.length()
    }

    /// Time that it was busy until now.
    pub fn busy(&self, now: u64) -> u64 {
        self.busy - self.free_at.saturating_sub(now)
    }

    #[inline]
    fn length(&self) -> usize {
        self.departures.len() + usize::from(self.is_busy)
    }

    #[inline]
    fn settle(&mut self, now: u64) {
        while let Some(&at) = self.departures.front()
            && at <= now
        {
            self.count_until(at);
            self.departures.pop_front();
        }
        if self.is_busy && self.free_at <= now {
            self.count_until(self.free_at);
            self.is_busy = false;
        }
        self.count_until(now);
    }

    #[inline]
    fn count_until(&mut self, at: u64) {
        let length = self.length() as u64;
        self.area = self
            .area
            .wrapping_add(length.wrapping_mul(at - self.settled_at));
        self.settled_at = at;
    }

    /// Whether Little's law holds until now.
    pub fn obeys_little(&mut self, now: u64) -> bool {
        self.settle(now);
        let to_come = self
            .departures
            .iter()
            .fold(0u64, |sum, at| sum.wrapping_add(at - now));
        let last = if self.is_busy { self.free_at - now } else { 0 };
        let to_come = to_come.wrapping_add(last);
        self.area == self.sojourn.wrapping_sub(to_come)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_leave_one_after_the_other() {
        let mut link = Link::default();
        assert_eq!(link.push(10, 5), 15);
        assert_eq!(link.push(12, 5), 20);
        assert_eq!((link.queued(14), link.busy(14)), (2, 4));
        assert!(link.obeys_little(17));
        assert_eq!(link.queued(17), 1);
        assert_eq!(link.push(40, 1), 41);
        assert!(link.obeys_little(41));
        assert_eq!((link.queued(41), link.busy(100)), (0, 11));
    }
}
