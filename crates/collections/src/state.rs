//! The contents of one shard's collections.

use crate::batch::{Op, WriteBatch};
use crate::hash::key_hash;
use crate::limits::{
    ARRAY_ENTRY_BYTES, COLLECTIONS_MAX, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, HASH_ENTRY_BYTES,
    ORDERED_ENTRY_BYTES, WARM_KEYS_MAX,
};
use crate::map::Entry;
use crate::table::{Hashed, Table};
use crate::{CollectionSpec, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use thiserror::Error;

/// Entry of an ordered map.
pub(crate) struct Ordered {
    pub(crate) slot: u16,
    pub(crate) value: Box<[u8]>,
}

/// An array. Invariant: not empty.
pub(crate) struct Array {
    pub(crate) key: Box<[u8]>,
    hash: u32,
    pub(crate) slot: u16,
    /// Number of this array among all that the state ever had: its key may come back.
    pub(crate) born: u64,
    /// Elements that were dropped from the front.
    pub(crate) popped: u64,
    pub(crate) items: VecDeque<Box<[u8]>>,
}

/// A counter.
pub(crate) struct Counter {
    pub(crate) key: Box<[u8]>,
    hash: u32,
    pub(crate) slot: u16,
    pub(crate) value: i64,
}

impl Hashed for Array {
    fn hash(&self) -> u32 {
        self.hash
    }

    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Hashed for Counter {
    fn hash(&self) -> u32 {
        self.hash
    }

    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Contents of one collection.
pub(crate) enum Contents {
    Hash(Table<Entry>),
    Ordered(BTreeMap<Box<[u8]>, Ordered>),
    Array(Table<Array>),
    Counter(Table<Counter>),
}

impl Contents {
    fn new(kind: Kind) -> Contents {
        match kind {
            Kind::HashMap => Contents::Hash(Table::default()),
            Kind::OrderedMap => Contents::Ordered(BTreeMap::new()),
            Kind::Array => Contents::Array(Table::default()),
            Kind::Counter => Contents::Counter(Table::default()),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Contents::Hash(_) => Kind::HashMap,
            Contents::Ordered(_) => Kind::OrderedMap,
            Contents::Array(_) => Kind::Array,
            Contents::Counter(_) => Kind::Counter,
        }
    }
}

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

/// The contents of one shard's collections. Every entry carries the slot of the request that wrote
/// it last, so that a shard can be split by slots.
pub struct State {
    specs: Vec<CollectionSpec>,
    pub(crate) contents: Vec<Contents>,
    pub(crate) memory_bytes: usize,
    pub(crate) arrays_born: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "State({} collections, {} bytes)",
            self.contents.len(),
            self.memory_bytes
        )
    }
}

impl State {
    /// Empty collections; their order gives their ids. Panics above [`COLLECTIONS_MAX`], which
    /// manifests are checked against.
    pub fn new(specs: &[CollectionSpec]) -> State {
        assert!(specs.len() <= COLLECTIONS_MAX, "too many collections");
        State {
            contents: specs.iter().map(|s| Contents::new(s.kind)).collect(),
            specs: specs.to_vec(),
            memory_bytes: 0,
            arrays_born: 0,
        }
    }

    /// What the collections are.
    pub fn specs(&self) -> &[CollectionSpec] {
        &self.specs
    }

    /// Id of the collection of that name.
    pub fn collection_named(&self, name: &str) -> Option<u16> {
        let at = self.specs.iter().position(|s| s.name == name)?;
        Some(at as u16)
    }

    /// Kind of a collection.
    #[inline]
    pub fn kind(&self, collection: u16) -> Option<Kind> {
        self.contents
            .get(usize::from(collection))
            .map(Contents::kind)
    }

    /// Accounted memory of all entries: keys, values and their overhead.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Keys in a collection.
    pub fn len(&self, collection: u16) -> usize {
        match self.contents.get(usize::from(collection)) {
            Some(Contents::Hash(m)) => m.len(),
            Some(Contents::Ordered(m)) => m.len(),
            Some(Contents::Array(m)) => m.len(),
            Some(Contents::Counter(m)) => m.len(),
            None => 0,
        }
    }

    /// Whether all collections are empty.
    pub fn is_empty(&self) -> bool {
        (0..self.contents.len()).all(|c| self.len(c as u16) == 0)
    }

    /// Maps: the value at a key.
    pub fn get(&self, collection: u16, key: &[u8]) -> Option<&[u8]> {
        self.get_hashed(collection, key_hash(key), key)
    }

    #[inline]
    pub(crate) fn get_hashed(&self, collection: u16, hash: u32, key: &[u8]) -> Option<&[u8]> {
        match self.contents.get(usize::from(collection))? {
            Contents::Hash(m) => m.get(hash, key).map(Entry::value),
            Contents::Ordered(m) => m.get(key).map(|e| &*e.value),
            Contents::Array(_) | Contents::Counter(_) => None,
        }
    }

    /// Hash maps: brings what is at these keys (of which it takes [`WARM_KEYS_MAX`]) into the
    /// processor's caches, and says how much it found. The misses of all keys overlap, where
    /// lookups one by one would wait for each in turn; only the time of later lookups changes.
    pub fn warm<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut hashes = [0; WARM_KEYS_MAX];
        let mut len = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key_hash(key);
            len += 1;
        }
        let maps = self.contents.iter().filter_map(|c| match c {
            Contents::Hash(map) => Some(map),
            _ => None,
        });
        maps.map(|map| map.warm(&hashes[..len])).sum()
    }

    /// Ordered maps: entries from `from` (inclusive) to `to` (exclusive; empty = no bound).
    pub fn range<'a>(
        &'a self,
        collection: u16,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let map = match self.contents.get(usize::from(collection)) {
            Some(Contents::Ordered(m)) if to.is_empty() || from < to => Some(m),
            _ => None,
        };
        let upper = match to {
            [] => Bound::Unbounded,
            to => Bound::Excluded(to),
        };
        map.map(|m| m.range::<[u8], _>((Bound::Included(from), upper)))
            .into_iter()
            .flatten()
            .map(|(k, e)| (&**k, &*e.value))
    }

    /// Hash maps: all entries, in no order. For readings by the host; sort before showing them.
    pub fn entries(&self, collection: u16) -> impl Iterator<Item = (&[u8], &[u8])> {
        let map = match self.contents.get(usize::from(collection)) {
            Some(Contents::Hash(m)) => Some(m),
            _ => None,
        };
        map.into_iter()
            .flat_map(|m| m.iter().map(|e| (e.key(), e.value())))
    }

    /// Arrays: elements of the array at a key.
    pub fn array_len(&self, collection: u16, key: &[u8]) -> u64 {
        self.array(collection, key)
            .map_or(0, |a| a.items.len() as u64)
    }

    /// Arrays: an element.
    pub fn array_get(&self, collection: u16, key: &[u8], index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        self.array(collection, key)?.items.get(index).map(|i| &**i)
    }

    /// Counters: the value at a key, 0 if absent.
    pub fn counter_get(&self, collection: u16, key: &[u8]) -> i64 {
        self.counter(collection, key).map_or(0, |c| c.value)
    }

    pub(crate) fn array(&self, collection: u16, key: &[u8]) -> Option<&Array> {
        match self.contents.get(usize::from(collection))? {
            Contents::Array(m) => m.get(key_hash(key), key),
            _ => None,
        }
    }

    pub(crate) fn counter(&self, collection: u16, key: &[u8]) -> Option<&Counter> {
        match self.contents.get(usize::from(collection))? {
            Contents::Counter(m) => m.get(key_hash(key), key),
            _ => None,
        }
    }

    /// Applies a batch. After an error the state holds a part of it and must be rebuilt from a
    /// snapshot: batches made against the same contents never fail.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<(), ApplyError> {
        let slot = batch.slot();
        for (collection, key, op) in batch.ops() {
            self.apply_op(slot, collection, key, op)?;
        }
        Ok(())
    }

    pub(crate) fn apply_op(
        &mut self,
        slot: u16,
        collection: u16,
        key: &[u8],
        op: Op<'_>,
    ) -> Result<(), ApplyError> {
        let collections = self.contents.len();
        let contents =
            self.contents
                .get_mut(usize::from(collection))
                .ok_or(ApplyError::NoCollection {
                    collection,
                    collections,
                })?;
        let kind = contents.kind();
        let memory = &mut self.memory_bytes;
        match (contents, op) {
            (Contents::Hash(m), Op::Put(value)) => {
                match m.put(key_hash(key), slot, key, value) {
                    Some(old_len) => *memory -= old_len,
                    None => *memory += key.len() + HASH_ENTRY_BYTES,
                }
                *memory += value.len();
            }
            (Contents::Hash(m), Op::Delete) => {
                if let Some(old) = m.remove(key_hash(key), key) {
                    *memory -= key.len() + old.value().len() + HASH_ENTRY_BYTES;
                }
            }
            (Contents::Ordered(m), Op::Put(value)) => put_ordered(m, memory, slot, key, value),
            (Contents::Ordered(m), Op::Delete) => {
                if let Some(old) = m.remove(key) {
                    *memory -= key.len() + old.value.len() + ORDERED_ENTRY_BYTES;
                }
            }
            (Contents::Array(m), Op::Delete) => {
                if let Some(old) = m.remove(key_hash(key), key) {
                    let items: usize = old.items.iter().map(|i| i.len() + ELEMENT_BYTES).sum();
                    *memory -= key.len() + items + ARRAY_ENTRY_BYTES;
                }
            }
            (Contents::Array(m), Op::ArrayPush(value)) => {
                *memory += value.len() + ELEMENT_BYTES;
                let hash = key_hash(key);
                if let Some(array) = m.get_mut(hash, key) {
                    array.slot = slot;
                    array.items.push_back(value.into());
                } else {
                    self.arrays_born += 1;
                    m.insert(Array {
                        key: key.into(),
                        hash,
                        slot,
                        born: self.arrays_born,
                        popped: 0,
                        items: VecDeque::from([value.into()]),
                    });
                    *memory += key.len() + ARRAY_ENTRY_BYTES;
                }
            }
            (Contents::Array(m), Op::ArrayPut(index, value)) => {
                let array = m.get_mut(key_hash(key), key);
                let len = array.as_ref().map_or(0, |a| a.items.len());
                let Some(array) = array.filter(|_| index < len as u64) else {
                    return Err(ApplyError::Index {
                        collection,
                        index,
                        len,
                    });
                };
                array.slot = slot;
                let item = &mut array.items[index as usize];
                *memory = *memory - item.len() + value.len();
                overwrite(item, value);
            }
            (Contents::Array(m), Op::ArrayPopFront) => {
                let hash = key_hash(key);
                let Some(array) = m.get_mut(hash, key) else {
                    return Ok(());
                };
                array.slot = slot;
                let old = array.items.pop_front().expect("arrays are not empty");
                array.popped += 1;
                *memory -= old.len() + ELEMENT_BYTES;
                if array.items.is_empty() {
                    m.remove(hash, key);
                    *memory -= key.len() + ARRAY_ENTRY_BYTES;
                }
            }
            (Contents::Counter(m), Op::CounterAdd(delta)) => {
                let hash = key_hash(key);
                match m.get_mut(hash, key) {
                    Some(counter) => {
                        counter.slot = slot;
                        counter.value = counter.value.wrapping_add(delta);
                    }
                    None => {
                        m.insert(Counter {
                            key: key.into(),
                            hash,
                            slot,
                            value: delta,
                        });
                        *memory += key.len() + COUNTER_ENTRY_BYTES;
                    }
                }
            }
            (Contents::Counter(m), Op::Delete) => {
                if m.remove(key_hash(key), key).is_some() {
                    *memory -= key.len() + COUNTER_ENTRY_BYTES;
                }
            }
            _ => return Err(ApplyError::WrongKind { collection, kind }),
        }
        Ok(())
    }
}

impl State {
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
            m.remove(hash, key);
            self.memory_bytes -= key.len() + ARRAY_ENTRY_BYTES;
        }
    }
}

fn put_ordered(
    map: &mut BTreeMap<Box<[u8]>, Ordered>,
    memory: &mut usize,
    slot: u16,
    key: &[u8],
    value: &[u8],
) {
    match map.get_mut(key) {
        Some(old) => {
            *memory -= old.value.len();
            old.slot = slot;
            overwrite(&mut old.value, value);
        }
        None => {
            let entry = Ordered {
                slot,
                value: value.into(),
            };
            map.insert(key.into(), entry);
            *memory += key.len() + ORDERED_ENTRY_BYTES;
        }
    }
    *memory += value.len();
}

/// Replaces a value, in place where the length allows.
fn overwrite(old: &mut Box<[u8]>, new: &[u8]) {
    if old.len() == new.len() {
        old.copy_from_slice(new);
    } else {
        *old = new.into();
    }
}
