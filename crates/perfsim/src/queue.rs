//! The queue of pending events: a timing wheel with a heap for what is far away.
//!
//! Most events are a few microseconds away, and there are many of them. The wheel sorts them into
//! slots of equal width (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987);
//! only the slot at hand is sorted. Events beyond the wheel wait in a heap with four children a node
//! (Johnson 1975). The order is that of [`Event::key`] whatever the width of the slots, so the width
//! changes the speed and nothing else.

use crate::event::Event;

const SLOTS: u64 = 4096;
const WORDS: usize = (SLOTS / 64) as usize;

/// Pending events.
pub(crate) struct Queue {
    /// Width of a slot: 2 to this power nanoseconds.
    shift: u32,
    /// Number of the slot at hand.
    slot: u64,
    /// Events of the slot at hand, the next one last.
    current: Vec<Event>,
    /// Events of later slots, by number modulo [`SLOTS`]. Invariant: less than [`SLOTS`] ahead.
    wheel: Vec<Vec<Event>>,
    /// Which slots of the wheel have events.
    used: [u64; WORDS],
    /// Events at least [`SLOTS`] ahead of the slot at hand.
    far: Heap,
    len: usize,
}

impl Queue {
    /// An empty queue for about so many events a second.
    pub fn new(events_per_s: f64) -> Queue {
        // About two events in a slot.
        let width_ns = (2e9 / events_per_s.max(1.0)).clamp(1.0, 1e6);
        Queue {
            shift: width_ns.log2().floor() as u32,
            slot: 0,
            current: Vec::new(),
            wheel: vec![Vec::new(); SLOTS as usize],
            used: [0; WORDS],
            far: Heap::default(),
            len: 0,
        }
    }

    /// Pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let events: usize = self.wheel.iter().map(Vec::capacity).sum();
        (events + self.current.capacity() + self.far.0.capacity()) * size_of::<Event>()
            + self.wheel.len() * size_of::<Vec<Event>>()
    }

    /// Adds an event that is not before the last one that was taken.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.len += 1;
        self.put(event);
    }

    #[inline]
    fn put(&mut self, event: Event) {
        let slot = event.time >> self.shift;
        if slot <= self.slot {
            let at = self.current.partition_point(|e| e.key() > event.key());
            self.current.insert(at, event);
        } else if slot - self.slot < SLOTS {
            let at = (slot % SLOTS) as usize;
            self.wheel[at].push(event);
            self.used[at / 64] |= 1 << (at % 64);
        } else {
            self.far.push(event);
        }
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        while self.current.is_empty() {
            self.advance()?;
        }
        self.len -= 1;
        self.current.pop()
    }

    /// Goes to the next slot with events; None if there is none.
    fn advance(&mut self) -> Option<()> {
        self.slot = match self.next_used() {
            Some(slot) => slot,
            None => self.far.peek()?.time >> self.shift,
        };
        let at = (self.slot % SLOTS) as usize;
        std::mem::swap(&mut self.current, &mut self.wheel[at]);
        self.used[at / 64] &= !(1 << (at % 64));
        while let Some(event) = self.far.peek()
            && (event.time >> self.shift) - self.slot < SLOTS
        {
            let event = *event;
            self.far.pop();
            if event.time >> self.shift == self.slot {
                self.current.push(event);
            } else {
                self.put(event);
            }
        }
        self.current
            .sort_unstable_by_key(|e| std::cmp::Reverse(e.key()));
        Some(())
    }

    /// The next slot of the wheel with events.
    fn next_used(&self) -> Option<u64> {
        let first = ((self.slot + 1) % SLOTS) as usize;
        let (word, bit) = (first / 64, first % 64);
        let ahead = |at: usize| {
            let at = at as u64;
            self.slot + 1 + (at + SLOTS - first as u64) % SLOTS
        };
        let rest = self.used[word] & (!0 << bit);
        if rest != 0 {
            return Some(ahead(word * 64 + rest.trailing_zeros() as usize));
        }
        for i in 1..=WORDS {
            let at = (word + i) % WORDS;
            let bits = self.used[at];
            if bits != 0 {
                return Some(ahead(at * 64 + bits.trailing_zeros() as usize));
            }
        }
        None
    }
}

/// A heap whose nodes have four children: half as deep as a binary one.
#[derive(Default)]
struct Heap(Vec<Event>);

impl Heap {
    fn peek(&self) -> Option<&Event> {
        self.0.first()
    }

    fn push(&mut self, event: Event) {
        let mut at = self.0.len();
        self.0.push(event);
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.0[parent].key() <= event.key() {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = event;
    }

    fn pop(&mut self) -> Option<Event> {
        let last = self.0.pop()?;
        let Some(&first) = self.0.first() else {
            return Some(last);
        };
        let mut at = 0;
        loop {
            let children = at * 4 + 1..(at * 4 + 5).min(self.0.len());
            let Some(least) = children.min_by_key(|c| self.0[*c].key()) else {
                break;
            };
            if self.0[least].key() >= last.key() {
                break;
            }
            self.0[at] = self.0[least];
            at = least;
        }
        self.0[at] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;
    use e3_random::Random;

    /// Holds a number of events: each that is taken schedules another one.
    fn hold(mut queue: Queue, seed: u64) {
        let mut random = Random::new(seed);
        let mut expected = std::collections::BTreeSet::new();
        let mut number = 0;
        let mut push = |queue: &mut Queue, expected: &mut std::collections::BTreeSet<_>, now| {
            let far = [0, 3, 500, 70_000, 900_000_000][random.index(5)];
            let event = Event::new(now + random.below(far + 1), number, Kind::Done, 0);
            number += 1;
            queue.push(event);
            expected.insert(event.key());
        };
        for _ in 0..500 {
            push(&mut queue, &mut expected, 0);
        }
        for _ in 0..50_000 {
            let event = queue.pop().unwrap();
            assert_eq!(Some(event.key()), expected.pop_first());
            push(&mut queue, &mut expected, event.time);
        }
        while let Some(event) = queue.pop() {
            assert_eq!(Some(event.key()), expected.pop_first());
        }
        assert_eq!((queue.len(), expected.len()), (0, 0));
    }

    #[test]
    fn events_come_in_the_order_of_time_and_of_scheduling() {
        for (seed, rate) in [(1, 1.0), (2, 1e5), (3, 3e7), (4, 1e12)] {
            hold(Queue::new(rate), seed);
        }
    }
}
