//! Collections of the [`testing`](crate::testing) host: what docs/abi.md says of scans and writes.

use crate::testing::Collection;
use crate::testing_host::Inner;

impl Inner {
    /// Maps: insert or replace.
    pub(crate) fn put_map(&mut self, coll: i32, key: &[u8], value: &[u8], ttl: Option<i64>) -> i32 {
        if let Some(code) = self.refuses_write(key, value) {
            return code;
        }
        match self.collection_at(coll) {
            Some(Collection::Hash(map) | Collection::Ordered(map)) => {
                map.insert(key.to_vec(), value.to_vec());
                self.wrote(coll, key, ttl);
                0
            }
            Some(_) => -3,
            None => -1,
        }
    }

    /// Ordered maps: entries of a range, packed one after the other.
    pub(crate) fn scan_map(
        &mut self,
        coll: i32,
        (from, to): (&[u8], &[u8]),
        limit: u32,
        reverse: bool,
        out: &mut [u8],
    ) -> i32 {
        let map = match self.collection_at(coll) {
            Some(Collection::Ordered(map)) => map,
            Some(_) => return -3,
            None => return -1,
        };
        let mut entries: Vec<(&Vec<u8>, &Vec<u8>)> = map
            .iter()
            .filter(|(key, _)| key.as_slice() >= from && (to.is_empty() || key.as_slice() < to))
            .collect();
        if reverse {
            entries.reverse();
        }
        let limit = if limit == 0 {
            usize::MAX
        } else {
            limit as usize
        };
        let mut at = 0;
        for (key, value) in entries.into_iter().take(limit) {
            let needed = 8 + key.len() + value.len();
            if at + needed > out.len() {
                if at == 0 {
                    return -(needed as i32);
                }
                break;
            }
            for part in [
                &(key.len() as u32).to_le_bytes()[..],
                &(value.len() as u32).to_le_bytes(),
                key,
                value,
            ] {
                out[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        at as i32
    }

    /// Arrays: elements from an index on, packed one after the other.
    pub(crate) fn scan_array(&mut self, coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
        let items = match self.collection_at(coll) {
            Some(Collection::Array(map)) => map.get(key).into_iter().flatten(),
            Some(_) => return -3,
            None => return -1,
        };
        let mut at = 0;
        for item in items.skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let needed = 4 + item.len();
            if at + needed > out.len() {
                return if at == 0 { -(needed as i32) } else { at as i32 };
            }
            out[at..at + 4].copy_from_slice(&(item.len() as u32).to_le_bytes());
            out[at + 4..at + needed].copy_from_slice(item);
            at += needed;
        }
        if let Some(part) = out.get_mut(at..at + 4) {
            part.copy_from_slice(&u32::MAX.to_le_bytes());
            at += 4;
        }
        at as i32
    }

    /// Arrays: append.
    pub(crate) fn push(&mut self, coll: i32, key: &[u8], value: &[u8]) -> i32 {
        if let Some(code) = self.refuses_write(key, value) {
            return code;
        }
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => {
                map.entry(key.to_vec())
                    .or_default()
                    .push_back(value.to_vec());
                self.wrote(coll, key, None);
                0
            }
            Some(_) => -3,
            None => -1,
        }
    }

    /// Arrays: replace an element.
    pub(crate) fn put_at(&mut self, coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32 {
        if let Some(code) = self.refuses_write(key, value) {
            return code;
        }
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => {
                let element = usize::try_from(index)
                    .ok()
                    .and_then(|index| map.get_mut(key)?.get_mut(index));
                match element {
                    Some(element) => {
                        *element = value.to_vec();
                        self.wrote(coll, key, None);
                        0
                    }
                    None => -4,
                }
            }
            Some(_) => -3,
            None => -1,
        }
    }

    /// Arrays: remove the first element.
    pub(crate) fn pop_front(&mut self, coll: i32, key: &[u8]) -> i32 {
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => {
                let Some(array) = map.get_mut(key) else {
                    return 0;
                };
                let popped = array.pop_front().is_some();
                if array.is_empty() {
                    map.remove(key);
                }
                self.wrote(coll, key, None);
                i32::from(popped)
            }
            Some(_) => -3,
            None => -1,
        }
    }

    /// Counters: add; the value before.
    pub(crate) fn add(&mut self, coll: i32, key: &[u8], delta: i64) -> i64 {
        if let Some(code) = self.refuses_write(key, &[]) {
            self.is_write_lost = true;
            return code.into();
        }
        match self.collection_at(coll) {
            Some(Collection::Counter(map)) => {
                let counter = map.entry(key.to_vec()).or_default();
                let before = *counter;
                *counter = counter.wrapping_add(delta);
                self.wrote(coll, key, None);
                before
            }
            Some(_) => -3,
            None => -1,
        }
    }
}
