//! A store in memory, for tests.

use super::{SqlError, Store, Visit};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Entries by key.
#[derive(Debug, Default)]
pub struct Memory(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        _expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError> {
        let mut entries: Vec<_> = self.0.range(from.to_vec()..to.to_vec()).collect();
        if reverse {
            entries.reverse();
        }
        for (key, value) in entries {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}
