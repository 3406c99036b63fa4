//! Entries of hash maps from bytes to bytes: one allocation each.
//!
//! Key and value lie side by side, and 32 bits of the hash in the table, so that a lookup costs
//! three cache misses (tags, table, entry), a miss only the first, and growth touches no entry.

use crate::limits::WARM_KEYS_MAX;
use crate::table::{Hashed, Table};
use std::hint::black_box;

/// Slot and bytes of an entry.
pub(crate) struct Entry {
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

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_len)..]
    }
}

impl Hashed for Entry {
    #[inline]
    fn hash(&self) -> u32 {
        self.hash
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_len)]
    }
}

impl Table<Entry> {
    /// See [`crate::State::warm`]; how many keys with these hashes there are.
    pub(crate) fn warm(&self, hashes: &[u32]) -> usize {
        let mut entries = [None; WARM_KEYS_MAX];
        for (entry, hash) in entries.iter_mut().zip(hashes) {
            *entry = self.any(*hash);
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
        let Some(e) = self.get_mut(hash, key) else {
            self.insert(Entry::new(hash, slot, key, value));
            return None;
        };
        let old_len = e.value().len();
        if old_len == value.len() {
            e.slot = slot;
            e.bytes[usize::from(e.key_len)..].copy_from_slice(value);
        } else {
            *e = Entry::new(hash, slot, key, value);
        }
        Some(old_len)
    }
}
