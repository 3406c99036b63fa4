//! Dividing the contents of some shards among others, by the slot of each entry.

use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, HASH_ENTRY_BYTES, ORDERED_ENTRY_BYTES,
};
use crate::map::Entry;
use crate::state::{Array, Contents, Counter, Ordered, State};
use crate::table::{Hashed, Table};
use e3_model::Timestamp;
use std::collections::btree_map::Entry as Place;

impl State {
    /// Divides the contents of states with the same collections among `count` new ones; `place` says
    /// which of them has a slot. If two states have a key, which services must not let happen, the
    /// first one's value stays; counters are added.
    pub fn reshard(from: Vec<State>, count: usize, place: impl Fn(u16) -> usize) -> Vec<State> {
        State::join(from).split(count, &place)
    }

    fn join(mut from: Vec<State>) -> State {
        if from.len() == 1 {
            return from.remove(0);
        }
        let mut all = State::new(from.first().map_or(&[][..], State::specs));
        all.arrays_born = from.iter().map(|s| s.arrays_born).max().unwrap_or_default();
        all.now = from.iter().map(|s| s.now).max().unwrap_or_default();
        for (at, contents) in all.contents.iter_mut().enumerate() {
            let keys = from.iter().map(|state| state.len(at as u16)).sum();
            *contents = Contents::with_room(contents.kind(), keys);
        }
        for state in from {
            for (at, contents) in state.contents.into_iter().enumerate() {
                match contents {
                    Contents::Hash(map) => all.gain_all(at, map.into_entries()),
                    Contents::Array(map) => {
                        // Arrays of two states may have the same number.
                        let mut born = all.arrays_born;
                        let arrays = map.into_entries().map(|array| {
                            born += 1;
                            Array { born, ..array }
                        });
                        all.gain_all(at, arrays);
                        all.arrays_born = born;
                    }
                    Contents::Counter(map) => all.gain_all(at, map.into_entries()),
                    Contents::Ordered(map) => {
                        for (key, entry) in map {
                            all.gain_ordered(at, key, entry);
                        }
                    }
                }
            }
        }
        all
    }

    /// What belongs to the first of the new states stays where it is: half of the work of a split in
    /// two, which happens while the shard stands still.
    fn split(mut self, count: usize, place: &impl Fn(u16) -> usize) -> Vec<State> {
        if count == 1 {
            return vec![self];
        }
        let room =
            |contents: &Contents| Contents::with_room(contents.kind(), contents.len() / count);
        let other = |_| State {
            contents: self.contents.iter().map(room).collect(),
            arrays_born: self.arrays_born,
            now: self.now,
            ..State::new(&self.specs)
        };
        let mut others: Vec<State> = (1..count).map(other).collect();
        for at in 0..self.contents.len() {
            match &mut self.contents[at] {
                Contents::Hash(_) => self.lose_all::<Entry>(at, &mut others, place),
                Contents::Array(_) => self.lose_all::<Array>(at, &mut others, place),
                Contents::Counter(_) => self.lose_all::<Counter>(at, &mut others, place),
                Contents::Ordered(map) => {
                    let left = map.extract_if(.., |_, entry| place(entry.slot) > 0);
                    let left: Vec<_> = left.collect();
                    for (key, entry) in left {
                        self.uncount(at, ordered_bytes(&key, &entry), entry.expires, &key);
                        others[place(entry.slot) - 1].gain_ordered(at, key, entry);
                    }
                }
            }
        }
        std::iter::once(self).chain(others).collect()
    }

    /// Takes the entries of another table of the `at`th collection.
    fn gain_all<E: Moved>(&mut self, at: usize, entries: impl Iterator<Item = E>) {
        for entry in entries {
            let same = E::table(&mut self.contents[at]).get_mut(entry.hash(), entry.key());
            match same {
                Some(same) => same.meet(entry),
                None => self.gain(at, entry),
            }
        }
    }

    /// Gives the entries of the `at`th collection that belong to others to them.
    fn lose_all<E: Moved>(
        &mut self,
        at: usize,
        others: &mut [State],
        place: &impl Fn(u16) -> usize,
    ) {
        let mut table = std::mem::take(E::table(&mut self.contents[at]));
        for entry in table.extract(&|entry| place(entry.slot()) > 0) {
            self.uncount(at, entry.bytes(), entry.expires(), entry.key());
            others[place(entry.slot()) - 1].gain(at, entry);
        }
        table.trim();
        *E::table(&mut self.contents[at]) = table;
    }

    fn gain<E: Moved>(&mut self, at: usize, entry: E) {
        self.count(at, entry.bytes(), entry.expires(), entry.key());
        E::table(&mut self.contents[at]).insert(entry);
    }

    fn gain_ordered(&mut self, at: usize, key: Box<[u8]>, entry: Ordered) {
        let (bytes, expires) = (ordered_bytes(&key, &entry), entry.expires);
        if let Contents::Ordered(map) = &mut self.contents[at]
            && let Place::Vacant(vacant) = map.entry(key)
        {
            let key = vacant.key().clone();
            vacant.insert(entry);
            self.count(at, bytes, expires, &key);
        }
    }

    /// Accounts for a key that comes. `bytes`: of all but what its expiry takes.
    #[inline]
    fn count(&mut self, at: usize, bytes: usize, expires: Timestamp, key: &[u8]) {
        self.memory_bytes += bytes;
        self.reschedule(at as u16, key, Timestamp::MAX, expires);
    }

    /// The same for one that goes.
    #[inline]
    fn uncount(&mut self, at: usize, bytes: usize, expires: Timestamp, key: &[u8]) {
        self.memory_bytes -= bytes;
        self.reschedule(at as u16, key, expires, Timestamp::MAX);
    }
}

fn ordered_bytes(key: &[u8], entry: &Ordered) -> usize {
    key.len() + entry.value.len() + ORDERED_ENTRY_BYTES
}

/// An entry of a table, as far as it matters where it belongs.
trait Moved: Hashed + Sized {
    fn slot(&self) -> u16;
    /// Accounted memory, without that of its expiry.
    fn bytes(&self) -> usize;
    fn expires(&self) -> Timestamp;
    /// The table of a collection of this kind.
    fn table(contents: &mut Contents) -> &mut Table<Self>;
    /// Meets another entry with its key.
    fn meet(&mut self, _: Self) {}
}

impl Moved for Entry {
    fn slot(&self) -> u16 {
        self.slot()
    }

    fn bytes(&self) -> usize {
        self.key().len() + self.value().len() + HASH_ENTRY_BYTES
    }

    fn expires(&self) -> Timestamp {
        self.expires()
    }

    fn table(contents: &mut Contents) -> &mut Table<Entry> {
        match contents {
            Contents::Hash(table) => table,
            _ => unreachable!("the collection is a hash map"),
        }
    }
}

impl Moved for Array {
    fn slot(&self) -> u16 {
        self.slot
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.items_bytes() + ARRAY_ENTRY_BYTES
    }

    fn expires(&self) -> Timestamp {
        self.expires
    }

    fn table(contents: &mut Contents) -> &mut Table<Array> {
        match contents {
            Contents::Array(table) => table,
            _ => unreachable!("the collection is an array"),
        }
    }
}

impl Moved for Counter {
    fn slot(&self) -> u16 {
        self.slot
    }

    fn bytes(&self) -> usize {
        self.key.len() + COUNTER_ENTRY_BYTES
    }

    fn expires(&self) -> Timestamp {
        self.expires
    }

    fn table(contents: &mut Contents) -> &mut Table<Counter> {
        match contents {
            Contents::Counter(table) => table,
            _ => unreachable!("the collection has counters"),
        }
    }

    fn meet(&mut self, same: Counter) {
        self.value = self.value.wrapping_add(same.value);
    }
}
