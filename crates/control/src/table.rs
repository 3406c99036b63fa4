//! Ordered maps that are cheap to copy, and that tell which of their values may have changed.
//!
//! A copy shares its values with the original until either changes them (copy on write). So the
//! controller can keep the state before a command while it applies the command. Entries are shared in
//! chunks: large values one by one, small ones many at a time; chunks are shared in groups, so that a change
//! copies one group and not the pointers to all chunks.

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

const CHUNKS_PER_GROUP: usize = 32;

type Chunk<K, V> = Arc<BTreeMap<K, V>>;
type Group<K, V> = Arc<BTreeMap<usize, Chunk<K, V>>>;

type ChunksOfGroup<'a, K, V> = btree_map::Values<'a, usize, Chunk<K, V>>;

type Chunks<'a, K, V> = FlatMap<
    btree_map::Values<'a, usize, Group<K, V>>,
    ChunksOfGroup<'a, K, V>,
    fn(&'a Group<K, V>) -> ChunksOfGroup<'a, K, V>,
>;

/// The entries of a table.
pub type Entries<'a, K, V> = FlatMap<
    Chunks<'a, K, V>,
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
    /// By number of the group. Shared as well: most commands change no member. Invariant: no group and no
    /// chunk is empty.
    groups: Arc<BTreeMap<usize, Group<K, V>>>,
    /// Keys that were inserted, removed or borrowed to be changed since [`Table::take_touched`].
    touched: RefCell<BTreeSet<K>>,
}

impl<K: Chunked, V> Table<K, V> {
    /// A map without entries.
    pub fn new() -> Table<K, V> {
        Table {
            groups: Arc::new(BTreeMap::new()),
            touched: RefCell::default(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (group, chunk) = place(*key);
        self.groups.get(&group)?.get(&chunk)?.get(key)
    }

    fn chunks(&self) -> Chunks<'_, K, V> {
        let chunks: fn(&Group<K, V>) -> ChunksOfGroup<'_, K, V> = |group| group.values();
        self.groups.values().flat_map(chunks)
    }

    /// Whether there is a value of that key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> Entries<'_, K, V> {
        let entries: fn(&Chunk<K, V>) -> btree_map::Iter<'_, K, V> = |chunk| chunk.iter();
        self.chunks().flat_map(entries)
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
        self.chunks().map(|chunk| chunk.len()).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The keys whose values may differ from those of an earlier copy.
    pub fn unshared(&self, old: &Table<K, V>) -> BTreeSet<K> {
        let mut unshared = BTreeSet::new();
        if Arc::ptr_eq(&self.groups, &old.groups) {
            return unshared;
        }
        let none = Arc::default();
        for [now, before] in differing(&self.groups, &old.groups) {
            for chunks in differing(now.unwrap_or(&none), before.unwrap_or(&none)) {
                let keys = chunks.into_iter().flatten().flat_map(|chunk| chunk.keys());
                unshared.extend(keys.copied());
            }
        }
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
        let (group, chunk) = place(*key);
        let group = Arc::make_mut(&mut self.groups).get_mut(&group)?;
        let chunk = Arc::make_mut(group).get_mut(&chunk)?;
        self.touched.get_mut().insert(*key);
        Arc::make_mut(chunk).get_mut(key)
    }

    /// Sets the value of a key; gives the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.touched.get_mut().insert(key);
        let (group, chunk) = place(key);
        let group = Arc::make_mut(&mut self.groups).entry(group).or_default();
        let chunk = Arc::make_mut(group).entry(chunk).or_default();
        Arc::make_mut(chunk).insert(key, value)
    }

    /// Removes a key; gives its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        if !self.contains_key(key) {
            return None;
        }
        let at = place(*key);
        let groups = Arc::make_mut(&mut self.groups);
        let group = Arc::make_mut(groups.get_mut(&at.0)?);
        let chunk = group.get_mut(&at.1)?;
        let removed = Arc::make_mut(chunk).remove(key)?;
        self.touched.get_mut().insert(*key);
        if chunk.is_empty() {
            group.remove(&at.1);
        }
        if group.is_empty() {
            groups.remove(&at.0);
        }
        Some(removed)
    }
}

/// The numbers of a key's group and chunk.
fn place<K: Chunked>(key: K) -> (usize, usize) {
    let chunk = key.chunk();
    (chunk / CHUNKS_PER_GROUP, chunk)
}

/// What two maps do not share, of each number: what the first has and what the second has.
fn differing<'a, T>(
    a: &'a BTreeMap<usize, Arc<T>>,
    b: &'a BTreeMap<usize, Arc<T>>,
) -> impl Iterator<Item = [Option<&'a Arc<T>>; 2]> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let pairs = std::iter::from_fn(move || {
        let next = [a.peek(), b.peek()].into_iter().flatten();
        let next = *next.map(|(number, _)| *number).min()?;
        let of_next = |(number, _): &(&usize, _)| **number == next;
        let pair = [a.next_if(of_next), b.next_if(of_next)];
        Some(pair.map(|entry| entry.map(|(_, value)| value)))
    });
    pairs.filter(|pair| !matches!(pair, [Some(a), Some(b)] if Arc::ptr_eq(a, b)))
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
        self.groups == other.groups
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
        let shared = |n: usize| Arc::ptr_eq(&table.groups[&0][&n], &copy.groups[&0][&n]);
        assert_eq!([0, 1, 2, 3].map(shared), [true, false, true, false]);
        let unshared = table.unshared(&copy);
        assert!(unshared.contains(&NodeId(70)) && unshared.contains(&NodeId(199)));
        assert!(!unshared.contains(&NodeId(0)));
    }

    #[test]
    fn what_two_tables_do_not_share_is_found_in_all_groups() {
        let nodes = 4 * CHUNKS_PER_GROUP * NODES_PER_CHUNK;
        let group = CHUNKS_PER_GROUP * NODES_PER_CHUNK;
        let all = || (0..nodes).map(NodeId::of_index);
        let mut table: Table<NodeId, u32> = all().map(|n| (n, 0)).collect();
        let old = table.clone();
        assert_eq!(table.unshared(&old), BTreeSet::new());
        for node in all().skip(group).take(group) {
            assert_eq!(table.remove(&node), Some(0));
        }
        *table.get_mut(&NodeId::of_index(3 * group)).unwrap() = 1;
        table.insert(NodeId::of_index(nodes), 2);
        let changed = all().skip(group).take(group);
        let changed = changed.chain(all().skip(3 * group).take(NODES_PER_CHUNK));
        let changed: BTreeSet<NodeId> = changed.chain([NodeId::of_index(nodes)]).collect();
        assert_eq!(table.unshared(&old), changed);
        assert_eq!(old.unshared(&table), changed);
        assert_eq!((table.len(), old.len()), (nodes - group + 1, nodes));
        assert!(table.keys().is_sorted());
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
