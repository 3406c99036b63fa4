//! Writes to a state: batches, and what a snapshot sets. Nothing here reads a clock.

use crate::Kind;
use crate::batch::{Op, Write, WriteBatch};
use crate::hash::key_hash;
use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, HASH_ENTRY_BYTES, ORDERED_ENTRY_BYTES,
    shrunk,
};
use crate::state::{Array, Contents, Counter, Ordered, State};
use crate::table::Table;
use e3_model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Why a batch does not fit a state: the two have diverged, or belong to different services.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ApplyError {
    /// No such collection.
    #[error("collection {collection}: there are only {collections}")]
    NoCollection {
        /// The id.
        collection: u16,
        /// How many there are.
        collections: usize,
    },
    /// The operation does not suit the collection's kind.
    #[error("collection {collection}: the operation does not suit a collection of kind {kind:?}")]
    WrongKind {
        /// The id.
        collection: u16,
        /// Its kind.
        kind: Kind,
    },
    /// An element that is not there is replaced.
    #[error("collection {collection}: index {index}, must be below {len}")]
    Index {
        /// The id.
        collection: u16,
        /// The index.
        index: u64,
        /// Elements of the array.
        len: usize,
    },
}

/// What a write made of a key.
struct Changed {
    /// Accounted memory beside the order of expiry.
    memory_bytes: usize,
    /// When the key was to expire; [`Timestamp::MAX`] also if it was not there.
    before: Timestamp,
    /// The key is there.
    is_there: bool,
}

impl State {
    /// Applies a batch. After an error the state holds a part of it and must be rebuilt from a
    /// snapshot: batches made against the same contents never fail.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<(), ApplyError> {
        let slot = batch.slot();
        for write in batch.writes() {
            self.apply_write(slot, &write)?;
        }
        Ok(())
    }

    pub(crate) fn apply_write(&mut self, slot: u16, write: &Write<'_>) -> Result<(), ApplyError> {
        let (collection, key) = (write.collection, write.key);
        let collections = self.contents.len();
        let contents =
            self.contents
                .get_mut(usize::from(collection))
                .ok_or(ApplyError::NoCollection {
                    collection,
                    collections,
                })?;
        let kind = contents.kind();
        let memory = self.memory_bytes;
        let changed = match (contents, write.op) {
            (Contents::Hash(m), Op::Put(value)) => put(m, memory, slot, write, value),
            (Contents::Hash(m), Op::Delete) => {
                let old = m.remove(key_hash(key), key);
                let old = old.map(|e| (e.value().len() + HASH_ENTRY_BYTES, e.expires()));
                removed(memory, key, old)
            }
            (Contents::Ordered(m), Op::Put(value)) => put_ordered(m, memory, slot, write, value),
            (Contents::Ordered(m), Op::Delete) => {
                let old = m.remove(key);
                let old = old.map(|e| (e.value.len() + ORDERED_ENTRY_BYTES, e.expires));
                removed(memory, key, old)
            }
            (Contents::Array(m), Op::Delete) => {
                let old = m.remove(key_hash(key), key);
                let old = old.map(|a| (a.items_bytes() + ARRAY_ENTRY_BYTES, a.expires));
                removed(memory, key, old)
            }
            (Contents::Array(m), Op::ArrayPush(value)) => {
                self.arrays_born += 1;
                push(m, memory, slot, write, value, self.arrays_born)
            }
            (Contents::Array(m), Op::ArrayPut(index, value)) => {
                put_item(m, memory, slot, write, index, value)?
            }
            (Contents::Array(m), Op::ArrayPopFront) => {
                let Some(changed) = pop_front(m, memory, slot, write) else {
                    return Ok(());
                };
                changed
            }
            (Contents::Counter(m), Op::CounterAdd(delta)) => add(m, memory, slot, write, delta),
            (Contents::Counter(m), Op::Delete) => {
                let old = m.remove(key_hash(key), key);
                removed(memory, key, old.map(|c| (COUNTER_ENTRY_BYTES, c.expires)))
            }
            _ => return Err(ApplyError::WrongKind { collection, kind }),
        };
        self.memory_bytes = changed.memory_bytes;
        let expires = if changed.is_there {
            write.expires
        } else {
            Timestamp::MAX
        };
        self.reschedule(collection, key, changed.before, expires);
        Ok(())
    }

    /// Arrays: drops the elements from `len` on.
    pub(crate) fn truncate(&mut self, collection: u16, key: &[u8], len: usize) {
        let Some(Contents::Array(m)) = self.contents.get_mut(usize::from(collection)) else {
            return;
        };
        let hash = key_hash(key);
        let Some(array) = m.get_mut(hash, key) else {
            return;
        };
        for old in array.items.drain(len.min(array.items.len())..) {
            self.memory_bytes -= old.len() + ELEMENT_BYTES;
        }
        if array.items.is_empty() {
            let before = array.expires;
            m.remove(hash, key);
            self.memory_bytes -= key.len() + ARRAY_ENTRY_BYTES;
            self.reschedule(collection, key, before, Timestamp::MAX);
        }
    }
}

/// A key is gone that took `old` bytes beside the key, and when it was to expire.
fn removed(memory: usize, key: &[u8], old: Option<(usize, Timestamp)>) -> Changed {
    let freed = old.map_or(0, |(bytes, _)| bytes + key.len());
    Changed {
        memory_bytes: memory - freed,
        before: old.map_or(Timestamp::MAX, |(_, expires)| expires),
        is_there: false,
    }
}

/// A value is there, where the one before had this length and time.
fn replaced(
    memory: usize,
    entry_bytes: usize,
    value: &[u8],
    old: Option<(usize, Timestamp)>,
) -> Changed {
    let memory = match old {
        Some((old_len, _)) => memory - old_len,
        None => memory + entry_bytes,
    };
    Changed {
        memory_bytes: memory + value.len(),
        before: old.map_or(Timestamp::MAX, |(_, expires)| expires),
        is_there: true,
    }
}

#[inline]
fn put(
    map: &mut Table<crate::map::Entry>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
    value: &[u8],
) -> Changed {
    let key = write.key;
    let old = map.put(key_hash(key), slot, key, value, write.expires);
    replaced(memory, key.len() + HASH_ENTRY_BYTES, value, old)
}

fn put_ordered(
    map: &mut BTreeMap<Box<[u8]>, Ordered>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
    value: &[u8],
) -> Changed {
    let key = write.key;
    let old = match map.get_mut(key) {
        Some(old) => {
            let before = (old.value.len(), old.expires);
            old.slot = slot;
            old.expires = write.expires;
            overwrite(&mut old.value, value);
            Some(before)
        }
        None => {
            let entry = Ordered {
                slot,
                value: value.into(),
                expires: write.expires,
            };
            map.insert(key.into(), entry);
            None
        }
    };
    replaced(memory, key.len() + ORDERED_ENTRY_BYTES, value, old)
}

fn push(
    arrays: &mut Table<Array>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
    value: &[u8],
    born: u64,
) -> Changed {
    let (hash, key, expires) = (key_hash(write.key), write.key, write.expires);
    let memory = memory + value.len() + ELEMENT_BYTES;
    if let Some(array) = arrays.get_mut(hash, key) {
        array.slot = slot;
        array.items.push_back(value.into());
        return Changed {
            memory_bytes: memory,
            before: std::mem::replace(&mut array.expires, expires),
            is_there: true,
        };
    }
    arrays.insert(Array {
        key: key.into(),
        hash,
        slot,
        born,
        popped: 0,
        items: VecDeque::from([value.into()]),
        expires,
    });
    Changed {
        memory_bytes: memory + key.len() + ARRAY_ENTRY_BYTES,
        before: Timestamp::MAX,
        is_there: true,
    }
}

/// Arrays: replaces an element.
fn put_item(
    m: &mut Table<Array>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
    index: u64,
    value: &[u8],
) -> Result<Changed, ApplyError> {
    let array = m.get_mut(key_hash(write.key), write.key);
    let len = array.as_ref().map_or(0, |a| a.items.len());
    let Some(array) = array.filter(|_| index < len as u64) else {
        return Err(ApplyError::Index {
            collection: write.collection,
            index,
            len,
        });
    };
    array.slot = slot;
    let item = &mut array.items[index as usize];
    let memory_bytes = memory - item.len() + value.len();
    overwrite(item, value);
    Ok(Changed {
        memory_bytes,
        before: std::mem::replace(&mut array.expires, write.expires),
        is_there: true,
    })
}

/// None if there is no such array.
fn pop_front(
    arrays: &mut Table<Array>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
) -> Option<Changed> {
    let (hash, key) = (key_hash(write.key), write.key);
    let array = arrays.get_mut(hash, key)?;
    array.slot = slot;
    let old = array.items.pop_front().expect("arrays are not empty");
    if let Some(room) = shrunk(array.items.len(), array.items.capacity()) {
        array.items.shrink_to(room);
    }
    array.popped += 1;
    let before = std::mem::replace(&mut array.expires, write.expires);
    let mut memory_bytes = memory - (old.len() + ELEMENT_BYTES);
    let is_there = !array.items.is_empty();
    if !is_there {
        arrays.remove(hash, key);
        memory_bytes -= key.len() + ARRAY_ENTRY_BYTES;
    }
    Some(Changed {
        memory_bytes,
        before,
        is_there,
    })
}

fn add(
    counters: &mut Table<Counter>,
    memory: usize,
    slot: u16,
    write: &Write<'_>,
    delta: i64,
) -> Changed {
    let (hash, key, expires) = (key_hash(write.key), write.key, write.expires);
    if let Some(counter) = counters.get_mut(hash, key) {
        counter.slot = slot;
        counter.value = counter.value.wrapping_add(delta);
        return Changed {
            memory_bytes: memory,
            before: std::mem::replace(&mut counter.expires, expires),
            is_there: true,
        };
    }
    counters.insert(Counter {
        key: key.into(),
        hash,
        slot,
        value: delta,
        expires,
    });
    Changed {
        memory_bytes: memory + key.len() + COUNTER_ENTRY_BYTES,
        before: Timestamp::MAX,
        is_there: true,
    }
}

/// Replaces a value, in place where the length allows.
fn overwrite(old: &mut Box<[u8]>, new: &[u8]) {
    if old.len() == new.len() {
        old.copy_from_slice(new);
    } else {
        *old = new.into();
    }
}
