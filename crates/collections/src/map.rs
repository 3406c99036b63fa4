//! Hash map from bytes to bytes with one allocation for each entry.
//!
//! Key and value lie side by side, and 32 bits of the hash in the table, so that a lookup costs
//! three cache misses (tags, table, entry), a miss only the first, and growth touches no entry.

use crate::hash::widen;
use crate::limits::WARM_KEYS_MAX;
use hashbrown::HashTable;
use std::hint::black_box;

/// Slot and bytes of an entry.
struct Entry {
    /// Key, then value.
    bytes: Box<[u8]>,
    hash: u32,
    slot: u16,
    key_len: u16,
}

const _: () = assert!(size_of::<Entry>() == 24, "the table stays dense");

impl Entry {
    fn new(hash: u32, slot: u16, key: &[u8], value: &[u8]) -> Entry {
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Entry {
            bytes: bytes.into_boxed_slice(),
            hash,
            slot,
            key_len: key.len() as u16,
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_len)]
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_len)..]
    }
}

/// The map. Hashes come from [`crate::hash::key_hash`], computed once by the caller.
#[derive(Default)]
pub(crate) struct ByteMap {
    table: HashTable<Entry>,
}

impl ByteMap {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn get(&self, hash: u32, key: &[u8]) -> Option<&[u8]> {
        self.table
            .find(widen(hash), |e| e.hash == hash && e.key() == key)
            .map(Entry::value)
    }

    /// See [`crate::State::warm`]; how many keys with these hashes there are.
    pub(crate) fn warm(&self, hashes: &[u32]) -> usize {
        let mut entries = [None; WARM_KEYS_MAX];
        for (entry, hash) in entries.iter_mut().zip(hashes) {
            *entry = self.table.find(widen(*hash), |e| e.hash == *hash);
        }
        let (mut found, mut bytes) = (0, 0);
        for entry in entries.into_iter().flatten() {
            found += 1;
            // a block may lie across two cache lines
            for byte in [entry.bytes.first(), entry.bytes.last()] {
                bytes ^= byte.copied().unwrap_or(0);
            }
        }
        black_box(bytes);
        found
    }

    /// Inserts or replaces; the length of the value that was there.
    #[inline]
    pub(crate) fn put(&mut self, hash: u32, slot: u16, key: &[u8], value: &[u8]) -> Option<usize> {
        let found = self
            .table
            .find_mut(widen(hash), |e| e.hash == hash && e.key() == key);
        match found {
            Some(e) => {
                let old_len = e.value().len();
                if old_len == value.len() {
                    e.slot = slot;
                    e.bytes[usize::from(e.key_len)..].copy_from_slice(value);
                } else {
                    *e = Entry::new(hash, slot, key, value);
                }
                Some(old_len)
            }
            None => {
                let entry = Entry::new(hash, slot, key, value);
                self.table
                    .insert_unique(widen(hash), entry, |e| widen(e.hash));
                None
            }
        }
    }

    /// Removes; the length of the value that was there.
    pub(crate) fn delete(&mut self, hash: u32, key: &[u8]) -> Option<usize> {
        let found = self
            .table
            .find_entry(widen(hash), |e| e.hash == hash && e.key() == key)
            .ok()?;
        let (entry, _) = found.remove();
        Some(entry.value().len())
    }

    /// Entries in no order: (key, slot, value).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u16, &[u8])> {
        self.table.iter().map(|e| (e.key(), e.slot, e.value()))
    }
}
