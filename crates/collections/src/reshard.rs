//! Dividing the contents of some shards among others, by the slot of each entry.

use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, HASH_ENTRY_BYTES, ORDERED_ENTRY_BYTES,
};
use crate::state::{Contents, State};
use crate::table::Hashed;

impl State {
    /// Divides the contents of states with the same collections among `count` new ones; `place` says
    /// which of them has a slot. No two states have the same key.
    pub fn reshard(from: Vec<State>, count: usize, place: impl Fn(u16) -> usize) -> Vec<State> {
        let specs = from.first().map_or(&[][..], State::specs);
        let mut to: Vec<State> = (0..count).map(|_| State::new(specs)).collect();
        let born = from.iter().map(|state| state.arrays_born).max();
        for state in &mut to {
            state.arrays_born = born.unwrap_or_default();
        }
        for state in from {
            for (at, contents) in state.contents.into_iter().enumerate() {
                divide(contents, at, &mut to, &place);
            }
        }
        to
    }
}

/// Divides one collection, the `at`th.
fn divide(contents: Contents, at: usize, to: &mut [State], place: &impl Fn(u16) -> usize) {
    match contents {
        Contents::Hash(map) => {
            for entry in map.into_entries() {
                let state = &mut to[place(entry.slot())];
                state.memory_bytes += entry.key().len() + entry.value().len() + HASH_ENTRY_BYTES;
                if let Contents::Hash(map) = &mut state.contents[at] {
                    map.insert(entry);
                }
            }
        }
        Contents::Ordered(map) => {
            for (key, entry) in map {
                let state = &mut to[place(entry.slot)];
                state.memory_bytes += key.len() + entry.value.len() + ORDERED_ENTRY_BYTES;
                if let Contents::Ordered(map) = &mut state.contents[at] {
                    map.insert(key, entry);
                }
            }
        }
        Contents::Array(map) => {
            for array in map.into_entries() {
                let state = &mut to[place(array.slot)];
                let items = array.items.iter().map(|item| item.len() + ELEMENT_BYTES);
                state.memory_bytes += array.key.len() + items.sum::<usize>() + ARRAY_ENTRY_BYTES;
                if let Contents::Array(map) = &mut state.contents[at] {
                    map.insert(array);
                }
            }
        }
        Contents::Counter(map) => {
            for counter in map.into_entries() {
                let state = &mut to[place(counter.slot)];
                state.memory_bytes += counter.key.len() + COUNTER_ENTRY_BYTES;
                if let Contents::Counter(map) = &mut state.contents[at] {
                    map.insert(counter);
                }
            }
        }
    }
}
