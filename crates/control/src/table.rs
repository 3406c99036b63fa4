//! Ordered maps that are cheap to copy, and that tell which of their values may have changed.
//!
//! A copy shares its values with the original until either changes them (copy on write). So the
//! controller can keep the state before a command while it applies the command. Entries are shared in
//! chunks: large values one by one, small ones many at a time.

use e3_model::{AppId, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::iter::{FlatMap, Map};
use std::ops::Index;
use std::sync::Arc;

/// Nodes of a chunk: copying one costs about as much as following a pointer for each.
const NODES_PER_CHUNK: usize = 64;

type Chunk<K, V> = Arc<BTreeMap<K, V>>;

/// The entries of a table.
pub type Entries<'a, K, V> = FlatMap<
    btree_map::Values<'a, usize, Chunk<K, V>>,
    btree_map::Iter<'a, K, V>,
    fn(&'a Chunk<K, V>) -> btree_map::Iter<'a, K, V>,
>;

/// The keys or the values of a table.
pub type Mapped<'a, K, V, T> = Map<Entries<'a, K, V>, fn((&'a K, &'a V)) -> T>;

/// A key that belongs to a chunk. Invariant: chunks are in the order of their keys.
pub trait Chunked: Ord + Copy {
    /// Number of its chunk.
    fn chunk(self) -> usize;
}

impl Chunked for AppId {
    fn chunk(self) -> usize {
        usize::from(self.0)
    }
}

impl Chunked for NodeId {
    fn chunk(self) -> usize {
        self.index() / NODES_PER_CHUNK
    }
}

/// An ordered map.
#[derive(Clone)]
pub struct Table<K, V> {
    /// Shared as well: most commands change no member. Invariant: no chunk is empty.
    chunks: Arc<BTreeMap<usize, Chunk<K, V>>>,
    /// Keys that were inserted, removed or borrowed to be changed since [`Table::take_touched`].
    touched: RefCell<BTreeSet<K>>,
}

impl<K: Chunked, V> Table<K, V> {
    /// A map without entries.
    pub fn new() -> Table<K, V> {
        Table {
            chunks: Arc::new(BTreeMap::new()),
            touched: RefCell::default(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.chunks.get(&key.chunk())?.get(key)
    }

    /// Whether there is a value of that key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> Entries<'_, K, V> {
        let entries: fn(&Chunk<K, V>) -> btree_map::Iter<'_, K, V> = |chunk| chunk.iter();
        self.chunks.values().flat_map(entries)
    }

    /// All keys in their order.
    pub fn keys(&self) -> Mapped<'_, K, V, &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> Mapped<'_, K, V, &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.chunks.values().map(|chunk| chunk.len()).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The keys whose values may differ from those of an earlier copy.
    pub fn unshared(&self, old: &Table<K, V>) -> BTreeSet<K> {
        let mut unshared = BTreeSet::new();
        if Arc::ptr_eq(&self.chunks, &old.chunks) {
            return unshared;
        }
        let mut add = |chunk: &Chunk<K, V>| unshared.extend(chunk.keys().copied());
        let mut before = old.chunks.iter().peekable();
        for (at, chunk) in &*self.chunks {
            while let Some((_, gone)) = before.next_if(|(other, _)| *other < at) {
                add(gone);
            }
            match before.next_if(|(other, _)| *other == at) {
                Some((_, same)) if Arc::ptr_eq(chunk, same) => {}
                Some((_, other)) => {
                    add(chunk);
                    add(other);
                }
                None => add(chunk),
            }
        }
        before.for_each(|(_, gone)| add(gone));
        unshared
    }

    /// The keys that may have changed since the last call.
    pub(crate) fn take_touched(&self) -> BTreeSet<K> {
        self.touched.take()
    }
}

impl<K: Chunked, V: Clone> Table<K, V> {
    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if !self.contains_key(key) {
            return None;
        }
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(&key.chunk())?;
        self.touched.get_mut().insert(*key);
        Arc::make_mut(chunk).get_mut(key)
    }

    /// Sets the value of a key; gives the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.touched.get_mut().insert(key);
        let chunk = Arc::make_mut(&mut self.chunks)
            .entry(key.chunk())
            .or_default();
        Arc::make_mut(chunk).insert(key, value)
    }

    /// Removes a key; gives its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = key.chunk();
        if !self.contains_key(key) {
            return None;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = chunks.get_mut(&at)?;
        let removed = Arc::make_mut(chunk).remove(key)?;
        self.touched.get_mut().insert(*key);
        if chunk.is_empty() {
            chunks.remove(&at);
        }
        Some(removed)
    }
}

impl<K: Chunked, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table::new()
    }
}

impl<K: Chunked, V> Index<&K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("an entry of the table")
    }
}

impl<'a, K: Chunked, V> IntoIterator for &'a Table<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Entries<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Chunked, V: Clone> FromIterator<(K, V)> for Table<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Table<K, V> {
        let mut table = Table::new();
        for (key, value) in entries {
            table.insert(key, value);
        }
        table
    }
}

impl<K: Chunked, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Table<K, V>) -> bool {
        self.chunks == other.chunks
    }
}

impl<K: Chunked + fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Chunked + Serialize, V: Serialize> Serialize for Table<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K, V> Deserialize<'de> for Table<K, V>
where
    K: Chunked + Deserialize<'de>,
    V: Clone + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table<K, V>, D::Error> {
        let entries = BTreeMap::<K, V>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_the_original_changes() {
        let mut table: Table<NodeId, u32> = (0..200).map(|n| (NodeId::of_index(n), 0)).collect();
        let copy = table.clone();
        *table.get_mut(&NodeId(70)).unwrap() = 7;
        table.remove(&NodeId(199));
        assert_eq!((copy[&NodeId(70)], copy.len()), (0, 200));
        assert_eq!((table[&NodeId(70)], table.len()), (7, 199));
        assert_ne!(table, copy);
        let shared = |n: usize| Arc::ptr_eq(&table.chunks[&n], &copy.chunks[&n]);
        assert_eq!([0, 1, 2, 3].map(shared), [true, false, true, false]);
        let unshared = table.unshared(&copy);
        assert!(unshared.contains(&NodeId(70)) && unshared.contains(&NodeId(199)));
        assert!(!unshared.contains(&NodeId(0)));
    }

    #[test]
    fn a_table_tells_once_which_entries_may_have_changed() {
        let mut table: Table<AppId, u32> = [(AppId(3), 1)].into_iter().collect();
        assert_eq!(table.take_touched(), BTreeSet::from([AppId(3)]));
        assert!(table.get(&AppId(3)).is_some() && table.get_mut(&AppId(4)).is_none());
        assert_eq!(table.take_touched(), BTreeSet::new());
        table.remove(&AppId(3));
        assert_eq!(table.take_touched(), BTreeSet::from([AppId(3)]));
        assert_eq!(table, Table::new());
    }
}
