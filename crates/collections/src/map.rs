//! Entries of hash maps from bytes to bytes: one allocation each.
//!
//! Key and value lie side by side, and 32 bits of the hash in the table, so that a lookup costs
//! three cache misses (tags, table, entry), a miss only the first, and growth touches no entry.
//! Behind the value is the time at which the key expires, if it does.

use crate::limits::{KEY_LEN_MAX, WARM_KEYS_MAX};
use crate::table::{Hashed, Table};
use e3_model::Timestamp;
use std::hint::black_box;

/// Bit of an entry's key length: the key expires.
const EXPIRES: u16 = 0x8000;
/// Bytes of the time at which it does.
const EXPIRES_LEN: usize = 8;

const _: () = assert!(KEY_LEN_MAX < EXPIRES as usize);

/// Slot and bytes of an entry.
pub(crate) struct Entry {
    /// Key, value, and the time at which the key expires if it does.
    bytes: Box<[u8]>,
    hash: u32,
    slot: u16,
    /// Length of the key, and [`EXPIRES`].
    key_len: u16,
}

const _: () = assert!(size_of::<Entry>() == 24, "the table stays dense");

impl Entry {
    fn new(hash: u32, slot: u16, key: &[u8], value: &[u8], expires: Timestamp) -> Entry {
        let expires = Some(expires).filter(|at| *at != Timestamp::MAX);
        let expires_len = if expires.is_some() { EXPIRES_LEN } else { 0 };
        let mut bytes = Vec::with_capacity(key.len() + value.len() + expires_len);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        if let Some(at) = expires {
            bytes.extend_from_slice(&at.0.to_le_bytes());
        }
        let flag = if expires.is_some() { EXPIRES } else { 0 };
        Entry {
            bytes: bytes.into_boxed_slice(),
            hash,
            slot,
            key_len: key.len() as u16 | flag,
        }
    }

    fn key_end(&self) -> usize {
        usize::from(self.key_len & !EXPIRES)
    }

    /// When the key expires.
    #[inline]
    pub(crate) fn expires(&self) -> Timestamp {
        match self.bytes.last_chunk::<EXPIRES_LEN>() {
            Some(at) if self.key_len & EXPIRES != 0 => Timestamp(u64::from_le_bytes(*at)),
            _ => Timestamp::MAX,
        }
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        let expires_len = match self.key_len & EXPIRES {
            0 => 0,
            _ => EXPIRES_LEN,
        };
        &self.bytes[self.key_end()..self.bytes.len() - expires_len]
    }
}

impl Hashed for Entry {
    #[inline]
    fn hash(&self) -> u32 {
        self.hash
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_end()]
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

    /// Inserts or replaces; length of the value that was there, and when it would have expired.
    #[inline]
    pub(crate) fn put(
        &mut self,
        hash: u32,
        slot: u16,
        key: &[u8],
        value: &[u8],
        expires: Timestamp,
    ) -> Option<(usize, Timestamp)> {
        let Some(e) = self.get_mut(hash, key) else {
            self.insert(Entry::new(hash, slot, key, value, expires));
            return None;
        };
        let old = (e.value().len(), e.expires());
        if old == (value.len(), Timestamp::MAX) && expires == Timestamp::MAX {
            e.slot = slot;
            let key_end = e.key_end();
            e.bytes[key_end..].copy_from_slice(value);
        } else {
            *e = Entry::new(hash, slot, key, value, expires);
        }
        Some(old)
    }
}
