//! The ordered map below the engine, and a transaction over it.

use alloc::vec::Vec;

use e3_sdk::OrderedMap;

use super::SqlError;
use crate::limits::WRITE_BYTES_MAX;

/// An ordered map of byte strings.
pub trait Store {
    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError>;

    /// Inserts or replaces.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError>;

    /// Removes.
    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError>;

    /// Visits the entries with keys in `from..to` until `visit` returns false. `expected` tells
    /// how many the caller is likely to need (0 = all).
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError>;
}

/// Receives a key and a value; false ends the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, SqlError> + 'a;

impl Store for OrderedMap {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        Ok(self.get_vec(key))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        Ok(OrderedMap::put(self, key, value)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError> {
        OrderedMap::delete(self, key)?;
        Ok(())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError> {
        let mut scan = if reverse {
            self.scan_reverse(from, to)
        } else {
            OrderedMap::scan(self, from, to)
        };
        scan = scan.chunk(expected);
        while let Some((key, value)) = scan.next()? {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

/// Uncommitted writes over a store: visible at once, stored all or not at all.
#[derive(Debug)]
pub(super) struct Transaction<S> {
    store: S,
    /// In the order of keys; none for removed ones. They are few: a list is faster than a map.
    writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
    /// Bytes that are left for the database's schema, whether it is written or not: what a
    /// statement may write does not tell if the database has been written to before.
    reserved: usize,
}

impl<S: Store> Transaction<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            writes: Vec::new(),
            bytes: 0,
            reserved: 0,
        }
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
    }

    pub(super) fn inner(&self) -> &S {
        &self.store
    }

    pub(super) fn commit(&mut self) -> Result<(), SqlError> {
        self.bytes = 0;
        for (key, value) in self.writes.drain(..) {
            match value {
                Some(value) => self.store.put(&key, &value)?,
                None => self.store.delete(&key)?,
            }
        }
        Ok(())
    }

    pub(super) fn rollback(&mut self) {
        self.bytes = 0;
        self.writes.clear();
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), SqlError> {
        self.write(key, Some(value))
    }

    pub(super) fn delete(&mut self, key: Vec<u8>) -> Result<(), SqlError> {
        self.write(key, None)
    }

    /// The place of a key among the writes.
    fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.writes
            .binary_search_by(|(other, _)| (**other).cmp(key))
    }

    fn write(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), SqlError> {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        let max = WRITE_BYTES_MAX - self.reserved;
        if self.bytes > max {
            return Err(SqlError::TooMany {
                what: "bytes to write",
                max,
            });
        }
        self.set(key, value);
        Ok(())
    }

    /// Writes the schema, for which bytes are reserved.
    pub(super) fn put_reserved(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.set(key, Some(value));
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        match self.place(&key) {
            Ok(at) => self.writes[at].1 = value,
            Err(at) => self.writes.insert(at, (key, value)),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        match self.place(key) {
            Ok(at) => Ok(self.writes[at].1.clone()),
            Err(_) => self.store.get(key),
        }
    }

    /// Merges writes and store; of a key in both, the written value counts.
    pub(super) fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError> {
        if from >= to {
            return Ok(());
        }
        let [first, end] = [from, to].map(|key| match self.place(key) {
            Ok(at) | Err(at) => at,
        });
        let written = self.writes[first..end].iter();
        let mut writes: Vec<(&[u8], Option<&[u8]>)> =
            written.map(|(k, v)| (&**k, v.as_deref())).collect();
        if writes.is_empty() {
            return self.store.scan(from, to, reverse, expected, visit);
        }
        // The next one is at the end.
        if !reverse {
            writes.reverse();
        }
        let mut goes_on = true;
        self.store.scan(from, to, reverse, 0, &mut |key, value| {
            while let Some(&(written, new)) = writes.last() {
                let order = if reverse {
                    key.cmp(written)
                } else {
                    written.cmp(key)
                };
                if order.is_gt() {
                    break;
                }
                writes.pop();
                if let Some(new) = new {
                    goes_on = visit(written, new)?;
                }
                if order.is_eq() || !goes_on {
                    return Ok(goes_on);
                }
            }
            goes_on = visit(key, value)?;
            Ok(goes_on)
        })?;
        while let Some((key, value)) = writes.pop() {
            if !goes_on {
                break;
            }
            if let Some(value) = value {
                goes_on = visit(key, value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::Memory;
    use alloc::collections::BTreeMap;

    /// Scans over writes and store, compared with one map.
    #[test]
    fn a_transaction_reads_what_it_wrote() {
        let mut random = e3_testkit::Random::new(9);
        let mut transaction = Transaction::new(Memory::default());
        let mut committed = BTreeMap::new();
        let mut model = BTreeMap::new();
        for round in 0..3000 {
            let [a, b] = [0; 2].map(|_| vec![random.index(30) as u8]);
            match random.index(12) {
                0 => {
                    transaction.rollback();
                    model.clone_from(&committed);
                }
                1 => {
                    transaction.commit().unwrap();
                    committed.clone_from(&model);
                }
                2..5 => {
                    transaction.delete(a.clone()).unwrap();
                    model.remove(&a);
                }
                _ => {
                    transaction.put(a.clone(), b.clone()).unwrap();
                    model.insert(a.clone(), b.clone());
                }
            }
            assert_eq!(transaction.get(&b), Ok(model.get(&b).cloned()));
            for reverse in [false, true] {
                let most = 1 + random.index(12);
                let mut found = Vec::new();
                let mut visit = |key: &[u8], value: &[u8]| {
                    found.push((key.to_vec(), value.to_vec()));
                    Ok(found.len() < most)
                };
                transaction.scan(&a, &b, reverse, 0, &mut visit).unwrap();
                let inside = model.iter().filter(|(key, _)| **key >= a && **key < b);
                let mut expected: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
                if reverse {
                    expected.reverse();
                }
                expected.truncate(most);
                assert_eq!(found, expected, "round {round}");
            }
        }
    }
}
