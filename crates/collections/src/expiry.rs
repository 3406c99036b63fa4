//! Keys that expire: when, and how they are removed.
//!
//! A key is absent for a handler from the time at which it expires, by the clock of its shard. Its
//! memory is freed by removals in the write batches of later log entries, so whoever applies the
//! batches frees the same keys at the same entries, and needs no clock.

use crate::batch::{OP_OVERHEAD_MAX, Op, Write, WriteBatch};
use crate::hash::key_hash;
use crate::limits::{EXPIRED_KEYS_MAX, EXPIRY_BYTES};
use crate::state::{Contents, State};
use crate::{CollectionSpec, Kind};
use e3_model::{Nanos, Timestamp};
use std::collections::BTreeSet;

/// When each key that expires does so: time, collection, key.
pub(crate) type Expiries = BTreeSet<(Timestamp, u16, Box<[u8]>)>;

impl State {
    /// Clock of the reads: the latest time that [`State::advance`] was given.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the clock of the reads to that of a request, before its handler runs. It never goes back.
    #[inline]
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// How long keys of a collection live by default after their last write; none if for ever.
    pub(crate) fn ttl(&self, collection: u16) -> Option<Nanos> {
        self.specs.get(usize::from(collection))?.ttl
    }

    /// Takes the times to live of another version of the manifest. What was written before keeps its own.
    pub fn set_ttls(&mut self, specs: &[CollectionSpec]) {
        for (mine, new) in self.specs.iter_mut().zip(specs) {
            mine.ttl = new.ttl;
        }
    }

    /// When the next key expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, ..)| *at)
    }

    /// Whether there is something to remove.
    pub fn has_expired(&self) -> bool {
        self.next_expiry().is_some_and(|at| at <= self.now)
    }

    /// Keys that expire or have expired.
    pub fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Removes keys that have expired, oldest first, and adds that to the batch. At most
    /// [`EXPIRED_KEYS_MAX`], and no more than `len_max` bytes beside what is in the batch; an empty
    /// batch gets this slot.
    pub fn expire(&mut self, batch: &mut WriteBatch, slot: u16, len_max: usize) {
        let end = batch.as_bytes().len().saturating_add(len_max);
        for _ in 0..EXPIRED_KEYS_MAX {
            if !self.has_expired() {
                return;
            }
            let Some((_, collection, key)) = self.expiries.first().cloned() else {
                return;
            };
            let fits = batch.as_bytes().len() + OP_OVERHEAD_MAX + key.len() <= end;
            if !fits || !batch.remove(slot, collection, &key) {
                return;
            }
            let write = Write {
                collection,
                key: &key,
                op: Op::Delete,
                expires: Timestamp::MAX,
            };
            self.apply_write(slot, &write)
                .expect("what expires is there");
        }
    }

    /// Notes that a key expires at another time than before; [`Timestamp::MAX`] is never.
    #[inline]
    pub(crate) fn reschedule(
        &mut self,
        collection: u16,
        key: &[u8],
        before: Timestamp,
        expires: Timestamp,
    ) {
        if before == expires {
            return;
        }
        let bytes = key.len() + EXPIRY_BYTES;
        if before != Timestamp::MAX {
            self.expiries.remove(&(before, collection, key.into()));
            self.memory_bytes -= bytes;
        }
        if expires != Timestamp::MAX {
            self.expiries.insert((expires, collection, key.into()));
            self.memory_bytes += bytes;
        }
    }

    /// When the key expires, if it is there, expired or not.
    pub(crate) fn expires(&self, collection: u16, key: &[u8]) -> Option<Timestamp> {
        match self.contents.get(usize::from(collection))? {
            Contents::Hash(m) => m.get(key_hash(key), key).map(|e| e.expires()),
            Contents::Ordered(m) => m.get(key).map(|e| e.expires),
            Contents::Array(m) => m.get(key_hash(key), key).map(|e| e.expires),
            Contents::Counter(m) => m.get(key_hash(key), key).map(|e| e.expires),
        }
    }

    /// Whether a key that has expired has not been removed: a write that adds to what is there must
    /// remove it first.
    #[inline]
    pub(crate) fn is_expired(&self, collection: u16, key: &[u8]) -> bool {
        self.has_expired()
            && matches!(self.kind(collection), Some(Kind::Array | Kind::Counter))
            && self
                .expires(collection, key)
                .is_some_and(|at| at <= self.now)
    }
}
