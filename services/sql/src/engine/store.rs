//! What the engine needs of an ordered map, and a transaction over one.

use alloc::collections::BTreeMap;
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

/// Takes a key and a value; false ends the scan.
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

/// Writes over a store that are seen at once and happen all or not at all.
#[derive(Debug)]
pub(super) struct Transaction<S> {
    store: S,
    /// Nothing for what is removed.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl<S: Store> Transaction<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            writes: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn commit(&mut self) -> Result<(), SqlError> {
        self.bytes = 0;
        for (key, value) in core::mem::take(&mut self.writes) {
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

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), SqlError> {
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        if self.bytes > WRITE_BYTES_MAX {
            return Err(SqlError::TooMany {
                what: "bytes to write",
                max: WRITE_BYTES_MAX,
            });
        }
        self.writes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }
}

impl<S: Store> Store for Transaction<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        match self.writes.get(key) {
            Some(written) => Ok(written.clone()),
            None => self.store.get(key),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        self.write(key, Some(value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError> {
        self.write(key, None)
    }

    /// Both in one order; of a key that is in both, what was written.
    fn scan(
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
        let range = self.writes.range::<[u8], _>((
            core::ops::Bound::Included(from),
            core::ops::Bound::Excluded(to),
        ));
        let mut writes: Vec<(&[u8], Option<&[u8]>)> =
            range.map(|(k, v)| (&**k, v.as_deref())).collect();
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
                let order = match reverse {
                    true => key.cmp(written),
                    false => written.cmp(key),
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
