//! The contents of one shard's collections.

use crate::expiry::Expiries;
use crate::hash::key_hash;
use crate::limits::{COLLECTIONS_MAX, ELEMENT_BYTES, WARM_KEYS_MAX};
use crate::map::Entry;
use crate::table::{Hashed, Table};
use crate::{CollectionSpec, Kind};
use e3_model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Entry of an ordered map.
pub(crate) struct Ordered {
    pub(crate) slot: u16,
    pub(crate) value: Box<[u8]>,
    pub(crate) expires: Timestamp,
}

/// An array. Invariant: not empty.
pub(crate) struct Array {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: u32,
    pub(crate) slot: u16,
    /// Number of this array among all that the state ever had: its key may come back. It matters on
    /// this node only.
    pub(crate) born: u64,
    /// Elements that were dropped from the front.
    pub(crate) popped: u64,
    pub(crate) items: VecDeque<Box<[u8]>>,
    pub(crate) expires: Timestamp,
}

impl Array {
    /// Accounted memory of the elements.
    pub(crate) fn items_bytes(&self) -> usize {
        self.items.iter().map(|i| i.len() + ELEMENT_BYTES).sum()
    }
}

/// A counter.
pub(crate) struct Counter {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: u32,
    pub(crate) slot: u16,
    pub(crate) value: i64,
    pub(crate) expires: Timestamp,
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
        Contents::with_room(kind, 0)
    }

    /// Empty, with room for so many keys.
    pub(crate) fn with_room(kind: Kind, len: usize) -> Contents {
        match kind {
            Kind::HashMap => Contents::Hash(Table::with_room(len)),
            Kind::OrderedMap => Contents::Ordered(BTreeMap::new()),
            Kind::Array => Contents::Array(Table::with_room(len)),
            Kind::Counter => Contents::Counter(Table::with_room(len)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Contents::Hash(m) => m.len(),
            Contents::Ordered(m) => m.len(),
            Contents::Array(m) => m.len(),
            Contents::Counter(m) => m.len(),
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

/// The contents of one shard's collections. Every entry carries the slot of the request that wrote
/// it last, so that a shard can be split by slots. Reads do not see what has expired at [`State::now`].
pub struct State {
    pub(crate) specs: Vec<CollectionSpec>,
    pub(crate) contents: Vec<Contents>,
    pub(crate) memory_bytes: usize,
    pub(crate) arrays_born: u64,
    pub(crate) expiries: Expiries,
    pub(crate) now: Timestamp,
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
            expiries: Expiries::new(),
            now: Timestamp::ZERO,
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

    /// Accounted memory of all entries, expired ones included: keys, values and their overhead.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Keys in a collection, expired ones included.
    pub fn len(&self, collection: u16) -> usize {
        let contents = self.contents.get(usize::from(collection));
        contents.map_or(0, Contents::len)
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
            Contents::Hash(m) => {
                let entry = m.get(hash, key)?;
                (entry.expires() > self.now).then(|| entry.value())
            }
            Contents::Ordered(m) => {
                let entry = m.get(key)?;
                (entry.expires > self.now).then_some(&*entry.value)
            }
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
            .filter(|(_, e)| e.expires > self.now)
            .map(|(k, e)| (&**k, &*e.value))
    }

    /// Hash maps: all entries, in no order. For readings by the host; sort before showing them.
    pub fn entries(&self, collection: u16) -> impl Iterator<Item = (&[u8], &[u8])> {
        let map = match self.contents.get(usize::from(collection)) {
            Some(Contents::Hash(m)) => Some(m),
            _ => None,
        };
        map.into_iter()
            .flat_map(|m| m.iter())
            .filter(|e| e.expires() > self.now)
            .map(|e| (e.key(), e.value()))
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
            Contents::Array(m) => m.get(key_hash(key), key).filter(|a| a.expires > self.now),
            _ => None,
        }
    }

    pub(crate) fn counter(&self, collection: u16, key: &[u8]) -> Option<&Counter> {
        match self.contents.get(usize::from(collection))? {
            Contents::Counter(m) => m.get(key_hash(key), key).filter(|c| c.expires > self.now),
            _ => None,
        }
    }
}
