//! Hash tables that can be walked in pieces while they change.
//!
//! A table is cut into parts by the first bits of the hash. A part that is full is split in two
//! (extendible hashing, Fagin et al. 1979). So growth touches one part at a time, and hashes give an
//! order of the entries that no write disturbs.

use crate::hash::widen;
use crate::limits::{PART_LEN_MAX, shrunk};
use hashbrown::HashTable;

/// Directory entries for each part that the entries would fill, at most: keys whose hashes have a
/// long prefix in common do not grow it without bound.
const DIRECTORY_FACTOR: usize = 16;

/// Entries of a part of a table that is made with room for so many: three quarters of what fits, so
/// that few parts are split while they come.
const PART_LEN_FILLED: usize = PART_LEN_MAX * 3 / 4;

/// Entries for each part of a table below which it is nearly empty.
const PART_LEN_SPARSE: usize = PART_LEN_MAX / 8;

/// What a table holds.
pub(crate) trait Hashed {
    /// Hash of the key.
    fn hash(&self) -> u32;
    /// The key. Invariant: not empty.
    fn key(&self) -> &[u8];
}

/// The table. Hashes come from [`crate::hash::key_hash`], computed once by the caller.
pub(crate) struct Table<E> {
    /// Part of each prefix of `bits` bits.
    directory: Vec<u32>,
    bits: u32,
    parts: Vec<Part<E>>,
    len: usize,
}

/// The entries whose hashes have one prefix of `bits` bits.
struct Part<E> {
    entries: HashTable<E>,
    bits: u32,
}

impl<E: Hashed> Default for Table<E> {
    fn default() -> Self {
        Table::with_room(0)
    }
}

/// The first `bits` bits of a hash.
#[inline]
fn prefix(hash: u32, bits: u32) -> usize {
    (u64::from(hash) >> (32 - bits)) as usize
}

impl<E: Hashed> Table<E> {
    /// An empty table that takes `len` entries without growth, if their hashes are spread evenly.
    pub(crate) fn with_room(len: usize) -> Table<E> {
        let parts = (len / PART_LEN_FILLED).next_power_of_two();
        let mean = len / parts;
        // Few parts have more entries: the standard deviation is the root of the mean.
        let room = mean + 6 * mean.isqrt();
        let bits = parts.ilog2();
        let part = || Part {
            entries: HashTable::with_capacity(room.min(PART_LEN_MAX)),
            bits,
        };
        Table {
            directory: (0..parts as u32).collect(),
            bits,
            parts: (0..parts).map(|_| part()).collect(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn part(&self, hash: u32) -> &HashTable<E> {
        &self.parts[self.directory[prefix(hash, self.bits)] as usize].entries
    }

    #[inline]
    fn part_mut(&mut self, hash: u32) -> &mut Part<E> {
        &mut self.parts[self.directory[prefix(hash, self.bits)] as usize]
    }

    #[inline]
    pub(crate) fn get(&self, hash: u32, key: &[u8]) -> Option<&E> {
        self.part(hash)
            .find(widen(hash), |e| e.hash() == hash && e.key() == key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, hash: u32, key: &[u8]) -> Option<&mut E> {
        self.part_mut(hash)
            .entries
            .find_mut(widen(hash), |e| e.hash() == hash && e.key() == key)
    }

    /// Any entry with this hash.
    #[inline]
    pub(crate) fn any(&self, hash: u32) -> Option<&E> {
        self.part(hash).find(widen(hash), |e| e.hash() == hash)
    }

    /// Inserts an entry whose key is not there.
    #[inline]
    pub(crate) fn insert(&mut self, entry: E) {
        let hash = entry.hash();
        let part = self.part_mut(hash);
        if part.entries.len() >= PART_LEN_MAX {
            self.split(hash);
        }
        let part = self.part_mut(hash);
        part.entries
            .insert_unique(widen(hash), entry, |e| widen(e.hash()));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, hash: u32, key: &[u8]) -> Option<E> {
        let entries = &mut self.part_mut(hash).entries;
        let found = entries
            .find_entry(widen(hash), |e| e.hash() == hash && e.key() == key)
            .ok()?;
        let (entry, _) = found.remove();
        if let Some(room) = shrunk(entries.len(), entries.capacity()) {
            entries.shrink_to(room, |e| widen(e.hash()));
        }
        self.len -= 1;
        Some(entry)
    }

    /// Splits the part of this hash.
    #[cold]
    fn split(&mut self, hash: u32) {
        let at = self.directory[prefix(hash, self.bits)] as usize;
        let bits = self.parts[at].bits + 1;
        if bits > self.bits {
            let needed = self.len / PART_LEN_MAX + 1;
            if self.directory.len() >= DIRECTORY_FACTOR * needed {
                return;
            }
            self.directory = self.directory.iter().flat_map(|at| [*at, *at]).collect();
            self.bits += 1;
        }
        let whole = std::mem::take(&mut self.parts[at].entries);
        let mut halves = [(); 2].map(|()| HashTable::with_capacity(whole.len() / 2));
        for entry in whole {
            let half = &mut halves[prefix(entry.hash(), bits) & 1];
            half.insert_unique(widen(entry.hash()), entry, |e: &E| widen(e.hash()));
        }
        let new = self.parts.len() as u32;
        let [first, second] = halves.map(|entries| Part { entries, bits });
        self.parts[at] = first;
        self.parts.push(second);
        let second = prefix(hash, bits) | 1;
        let width = 1 << (self.bits - bits);
        self.directory[second * width..(second + 1) * width].fill(new);
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.parts.iter().flat_map(|part| part.entries.iter())
    }

    /// All entries, in no order.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = E> {
        self.parts.into_iter().flat_map(|part| part.entries)
    }

    /// Takes out the entries that leave, in no order.
    pub(crate) fn extract<'a, L: Fn(&E) -> bool>(
        &'a mut self,
        leaves: &'a L,
    ) -> impl Iterator<Item = E> + use<'a, E, L> {
        let Table { parts, len, .. } = self;
        let extract = |part: &'a mut Part<E>| part.entries.extract_if(|entry| leaves(entry));
        parts.iter_mut().flat_map(extract).inspect(|_| *len -= 1)
    }

    /// Makes the table smaller if it is nearly empty.
    pub(crate) fn trim(&mut self) {
        if self.len < self.parts.len() * PART_LEN_SPARSE {
            let all = std::mem::replace(self, Table::with_room(self.len));
            all.into_entries().for_each(|entry| self.insert(entry));
        }
    }

    /// The entries after `from`, which is a hash and a key, in that order: at most `most`, and only
    /// of the part that holds `from`.
    pub(crate) fn after(&self, from: (u32, &[u8]), most: usize) -> After<'_, E> {
        let part = &self.parts[self.directory[prefix(from.0, self.bits)] as usize];
        let is_after = |e: &&E| (e.hash(), e.key()) > from;
        let mut entries: Vec<&E> = part.entries.iter().filter(is_after).collect();
        let next = (prefix(from.0, part.bits) as u64 + 1) << (32 - part.bits);
        let mut rest = u32::try_from(next).map_or(Rest::Nothing, Rest::Part);
        if entries.len() > most {
            entries.select_nth_unstable_by_key(most, |e| (e.hash(), e.key()));
            entries.truncate(most);
            rest = Rest::Same;
        }
        entries.sort_unstable_by_key(|e| (e.hash(), e.key()));
        After {
            looked_at: part.entries.len(),
            entries,
            rest,
        }
    }
}

/// See [`Table::after`].
pub(crate) struct After<'a, E> {
    /// Entries of the part.
    pub(crate) looked_at: usize,
    pub(crate) entries: Vec<&'a E>,
    pub(crate) rest: Rest,
}

/// What comes after some entries.
pub(crate) enum Rest {
    /// More of the same part.
    Same,
    /// The part that begins with this hash.
    Part(u32),
    Nothing,
}
