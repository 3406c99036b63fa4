//! What a write batch would add to a state's memory, without writing.

use crate::hash::key_hash;
use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, EXPIRY_BYTES, HASH_ENTRY_BYTES,
    ORDERED_ENTRY_BYTES,
};
use crate::state::{Array, Contents};
use crate::{Kind, Op, State, Write, WriteBatch};
use e3_model::Timestamp;
use std::collections::BTreeMap;

/// What a batch has made of a key so far.
#[derive(Default)]
struct Key<'a> {
    /// Bytes of its value or elements; none if it is not there.
    content: Option<usize>,
    expires: bool,
    /// The array that is there in the state.
    array: Option<&'a Array>,
    /// Elements dropped from the front.
    front: u64,
    /// Elements in all, dropped ones included.
    end: u64,
    /// Lengths of the elements that the batch wrote.
    written: BTreeMap<u64, usize>,
}

impl Key<'_> {
    fn bytes(&self, key: &[u8], overhead: usize) -> i64 {
        let expiry = if self.expires {
            key.len() + EXPIRY_BYTES
        } else {
            0
        };
        let content = self.content.map(|c| c + key.len() + overhead + expiry);
        content.unwrap_or(0) as i64
    }

    /// Bytes of an element.
    fn element(&self, at: u64) -> usize {
        let stored = || self.array?.items.get(at as usize).map(|i| i.len());
        let len = self.written.get(&at).copied().or_else(stored);
        len.unwrap_or(0) + ELEMENT_BYTES
    }

    fn apply(&mut self, op: Op<'_>, expires: Timestamp) {
        let content = self.content.unwrap_or(0);
        match op {
            Op::Put(value) => self.content = Some(value.len()),
            Op::Delete => {
                self.content = None;
                self.front = self.end;
            }
            Op::ArrayPush(value) => {
                self.content = Some(content + value.len() + ELEMENT_BYTES);
                self.written.insert(self.end, value.len());
                self.end += 1;
            }
            Op::ArrayPut(index, value) => {
                let at = self.front.saturating_add(index);
                if at < self.end {
                    self.content = Some(content + value.len() + ELEMENT_BYTES - self.element(at));
                    self.written.insert(at, value.len());
                }
            }
            Op::ArrayPopFront if self.front < self.end => {
                let left = content - self.element(self.front);
                self.front += 1;
                self.content = Some(left).filter(|_| self.front < self.end);
            }
            Op::ArrayPopFront => {}
            Op::CounterAdd(_) => self.content = Some(0),
        }
        self.expires = expires != Timestamp::MAX;
    }
}

impl State {
    /// Bytes that the batch would add. Negative if the batch frees memory.
    pub fn growth_bytes(&self, batch: &WriteBatch) -> i64 {
        let mut keys: BTreeMap<(u16, &[u8]), Key<'_>> = BTreeMap::new();
        let mut growth = 0;
        for Write {
            collection,
            key,
            op,
            expires,
        } in batch.writes()
        {
            let now = keys
                .entry((collection, key))
                .or_insert_with(|| self.key(collection, key));
            let overhead = self.entry_bytes(collection);
            growth -= now.bytes(key, overhead);
            now.apply(op, expires);
            growth += now.bytes(key, overhead);
        }
        growth
    }

    /// What is at a key, expired or not.
    fn key(&self, collection: u16, key: &[u8]) -> Key<'_> {
        let hash = key_hash(key);
        let mut array = None;
        let content = match self.contents.get(usize::from(collection)) {
            Some(Contents::Hash(m)) => m.get(hash, key).map(|e| e.value().len()),
            Some(Contents::Ordered(m)) => m.get(key).map(|e| e.value.len()),
            Some(Contents::Array(m)) => {
                array = m.get(hash, key);
                array.map(Array::items_bytes)
            }
            Some(Contents::Counter(m)) => m.get(hash, key).map(|_| 0),
            None => None,
        };
        let expires = self.expires(collection, key);
        Key {
            content,
            expires: expires.is_some_and(|at| at != Timestamp::MAX),
            array,
            end: array.map_or(0, |a| a.items.len() as u64),
            ..Key::default()
        }
    }

    fn entry_bytes(&self, collection: u16) -> usize {
        match self.kind(collection) {
            Some(Kind::HashMap) | None => HASH_ENTRY_BYTES,
            Some(Kind::OrderedMap) => ORDERED_ENTRY_BYTES,
            Some(Kind::Array) => ARRAY_ENTRY_BYTES,
            Some(Kind::Counter) => COUNTER_ENTRY_BYTES,
        }
    }
}
