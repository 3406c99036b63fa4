//! What the engine needs of an ordered map.

use alloc::vec::Vec;

use e3_sdk::OrderedMap;

use super::SqlError;

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
