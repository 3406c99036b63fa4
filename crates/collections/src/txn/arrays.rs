//! Arrays in a request's view.

use super::{Effect, Txn, TxnError, WHOLE, expiry};
use crate::batch::Op;
use crate::hash::{key_hash, with_index};
use crate::{Kind, State};

impl Txn {
    /// Elements of the array at a key.
    pub fn array_len(&self, state: &State, collection: u16, key: &[u8]) -> Result<u64, TxnError> {
        let bounds = self.bounds(state, collection, key)?;
        Ok(bounds.map_or(0, |(front, end)| end - front))
    }

    /// An element, if it is there.
    pub fn array_get<'a>(
        &'a self,
        state: &'a State,
        collection: u16,
        key: &[u8],
        index: u64,
    ) -> Result<Option<&'a [u8]>, TxnError> {
        let mut element = None;
        self.array_scan(state, collection, key, index, |e| {
            element = Some(e);
            false
        })?;
        Ok(element)
    }

    /// Visits elements from an index on, until one is answered with false.
    pub fn array_scan<'a>(
        &'a self,
        state: &'a State,
        collection: u16,
        key: &[u8],
        from: u64,
        mut visit: impl FnMut(&'a [u8]) -> bool,
    ) -> Result<(), TxnError> {
        let Some((front, end)) = self.bounds(state, collection, key)? else {
            return Ok(());
        };
        let (hash, stored) = (key_hash(key), state.array(collection, key));
        for sub in front.saturating_add(from)..end {
            let element = match self.find(with_index(hash, sub), collection, sub, key) {
                Some(at) => self.value_of(at),
                None => stored.and_then(|a| a.items.get(sub as usize).map(|i| &**i)),
            };
            if !element.is_some_and(&mut visit) {
                break;
            }
        }
        Ok(())
    }

    /// Appends.
    pub fn array_push(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        let bounds = self.bounds(state, collection, key)?;
        if bounds.is_none() {
            self.remove_expired(state, collection, key)?;
        }
        let (front, end) = bounds.unwrap_or_default();
        let expires = expiry(state, collection);
        let (key_at, value_at) = self.write(collection, key, Op::ArrayPush(value), expires)?;
        let hash = key_hash(key);
        let grown = Effect::Array {
            front,
            end: end + 1,
        };
        self.touch(hash, collection, WHOLE, key_at.clone(), grown);
        let hash = with_index(hash, end);
        self.touch(hash, collection, end, key_at, Effect::Value(value_at));
        Ok(())
    }

    /// Replaces an existing element.
    pub fn array_put(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        index: u64,
        value: &[u8],
    ) -> Result<(), TxnError> {
        let (front, end) = self.bounds(state, collection, key)?.unwrap_or_default();
        let len = end - front;
        if index >= len {
            return self.refuse(collection, TxnError::Index { index, len });
        }
        let expires = expiry(state, collection);
        let (key_at, value_at) =
            self.write(collection, key, Op::ArrayPut(index, value), expires)?;
        let sub = front + index;
        let hash = with_index(key_hash(key), sub);
        self.touch(hash, collection, sub, key_at, Effect::Value(value_at));
        Ok(())
    }

    /// Drops the oldest element; whether there was one.
    pub fn array_pop_front(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
    ) -> Result<bool, TxnError> {
        let Some((front, end)) = self.bounds(state, collection, key)? else {
            return Ok(false);
        };
        if front == end {
            return Ok(false);
        }
        let expires = expiry(state, collection);
        let (key_at, _) = self.write(collection, key, Op::ArrayPopFront, expires)?;
        let shrunk = Effect::Array {
            front: front + 1,
            end,
        };
        self.touch(key_hash(key), collection, WHOLE, key_at, shrunk);
        Ok(true)
    }

    /// Like [`Txn::array_bounds`], in a collection that must be of arrays.
    fn bounds(
        &self,
        state: &State,
        collection: u16,
        key: &[u8],
    ) -> Result<Option<(u64, u64)>, TxnError> {
        self.expect_kind(state, collection, &[Kind::Array])?;
        Ok(self.array_bounds(state, collection, key))
    }

    /// Absolute positions of the array's elements, if the array was ever there.
    pub(super) fn array_bounds(
        &self,
        state: &State,
        collection: u16,
        key: &[u8],
    ) -> Option<(u64, u64)> {
        match self.find(key_hash(key), collection, WHOLE, key) {
            Some(at) => match self.touched[at].effect {
                Effect::Array { front, end } => Some((front, end)),
                _ => None,
            },
            None => state
                .array(collection, key)
                .map(|a| (0, a.items.len() as u64)),
        }
    }
}
