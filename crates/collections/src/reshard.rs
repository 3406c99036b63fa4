//! Dividing the contents of some shards among others, by the slot of each entry.

use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, HASH_ENTRY_BYTES, ORDERED_ENTRY_BYTES,
};
use crate::state::{Contents, State};
use crate::table::Hashed;
use e3_model::Timestamp;
use std::collections::btree_map::Entry as Place;

impl State {
    /// Divides the contents of states with the same collections among `count` new ones; `place` says
    /// which of them has a slot. If two states have a key, which services must not let happen, the
    /// first one's value stays; counters are added.
    pub fn reshard(from: Vec<State>, count: usize, place: impl Fn(u16) -> usize) -> Vec<State> {
        let specs = from.first().map_or(&[][..], State::specs);
        let mut to: Vec<State> = (0..count).map(|_| State::new(specs)).collect();
        let born = from.iter().map(|state| state.arrays_born).max();
        let now = from.iter().map(|state| state.now).max();
        for state in &mut to {
            state.arrays_born = born.unwrap_or_default();
            state.now = now.unwrap_or_default();
            for (at, contents) in state.contents.iter_mut().enumerate() {
                let keys: usize = from.iter().map(|state| state.len(at as u16)).sum();
                *contents = Contents::with_room(contents.kind(), keys / count.max(1));
            }
        }
        // Within one state all keys are different.
        let may_meet = from.len() > 1;
        for state in from {
            for (at, contents) in state.contents.into_iter().enumerate() {
                divide(contents, at, &mut to, may_meet, &place);
            }
        }
        to
    }

    /// Accounts for a key that was moved here. `bytes`: of all but what its expiry takes.
    fn on_moved_here(&mut self, collection: usize, bytes: usize, expiry: Option<Expiry>) {
        self.memory_bytes += bytes;
        if let Some((at, key)) = expiry {
            self.reschedule(collection as u16, &key, Timestamp::MAX, at);
        }
    }
}

/// When a key expires, and the key.
type Expiry = (Timestamp, Box<[u8]>);

fn expiry(at: Timestamp, key: &[u8]) -> Option<Expiry> {
    (at != Timestamp::MAX).then(|| (at, key.into()))
}

/// Divides one collection, the `at`th. `may_meet`: its keys may be there already.
fn divide(
    contents: Contents,
    at: usize,
    to: &mut [State],
    may_meet: bool,
    place: &impl Fn(u16) -> usize,
) {
    match contents {
        Contents::Hash(map) => {
            for entry in map.into_entries() {
                let state = &mut to[place(entry.slot())];
                let bytes = entry.key().len() + entry.value().len() + HASH_ENTRY_BYTES;
                let expires = expiry(entry.expires(), entry.key());
                if let Contents::Hash(map) = &mut state.contents[at]
                    && !(may_meet && map.get(entry.hash(), entry.key()).is_some())
                {
                    map.insert(entry);
                    state.on_moved_here(at, bytes, expires);
                }
            }
        }
        Contents::Ordered(map) => {
            for (key, entry) in map {
                let state = &mut to[place(entry.slot)];
                let bytes = key.len() + entry.value.len() + ORDERED_ENTRY_BYTES;
                let expires = expiry(entry.expires, &key);
                if let Contents::Ordered(map) = &mut state.contents[at]
                    && let Place::Vacant(vacant) = map.entry(key)
                {
                    vacant.insert(entry);
                    state.on_moved_here(at, bytes, expires);
                }
            }
        }
        Contents::Array(map) => {
            for array in map.into_entries() {
                let state = &mut to[place(array.slot)];
                let items = array.items.iter().map(|item| item.len() + ELEMENT_BYTES);
                let bytes = array.key.len() + items.sum::<usize>() + ARRAY_ENTRY_BYTES;
                let expires = expiry(array.expires, &array.key);
                if let Contents::Array(map) = &mut state.contents[at]
                    && !(may_meet && map.get(array.hash(), &array.key).is_some())
                {
                    map.insert(array);
                    state.on_moved_here(at, bytes, expires);
                }
            }
        }
        Contents::Counter(map) => {
            for counter in map.into_entries() {
                let state = &mut to[place(counter.slot)];
                let bytes = counter.key.len() + COUNTER_ENTRY_BYTES;
                let expires = expiry(counter.expires, &counter.key);
                let Contents::Counter(map) = &mut state.contents[at] else {
                    continue;
                };
                if may_meet && let Some(same) = map.get_mut(counter.hash(), &counter.key) {
                    same.value = same.value.wrapping_add(counter.value);
                } else {
                    map.insert(counter);
                    state.on_moved_here(at, bytes, expires);
                }
            }
        }
    }
}
