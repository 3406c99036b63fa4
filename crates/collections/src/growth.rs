//! What a write batch would add to a state's memory.

use crate::limits::{
    ARRAY_ENTRY_BYTES, COUNTER_ENTRY_BYTES, ELEMENT_BYTES, HASH_ENTRY_BYTES, ORDERED_ENTRY_BYTES,
};
use crate::{Kind, Op, State, WriteBatch};
use std::collections::BTreeMap;

/// Elements that a batch takes from the front of arrays so far.
type Popped<'a> = BTreeMap<(u16, &'a [u8]), u64>;

impl State {
    /// Bytes that the batch would add, nearly: each operation is judged by what is there before the
    /// batch. Negative if the batch frees memory.
    pub fn growth_bytes(&self, batch: &WriteBatch) -> i64 {
        let mut popped = Popped::new();
        let ops = batch.ops();
        ops.map(|(collection, key, op)| self.growth(collection, key, op, &mut popped))
            .sum()
    }

    fn growth<'a>(
        &self,
        collection: u16,
        key: &'a [u8],
        op: Op<'_>,
        popped: &mut Popped<'a>,
    ) -> i64 {
        let entry = (key.len() + self.entry_bytes(collection)) as i64;
        let element = |index| {
            let element = self.array_get(collection, key, index);
            element.map_or(0, |e| (e.len() + ELEMENT_BYTES) as i64)
        };
        match op {
            Op::Put(value) => match self.get(collection, key) {
                Some(old) => value.len() as i64 - old.len() as i64,
                None => entry + value.len() as i64,
            },
            Op::Delete if self.counter(collection, key).is_some() => -entry,
            Op::Delete => match self.get(collection, key) {
                Some(old) => -entry - old.len() as i64,
                None => match self.array_len(collection, key) {
                    0 => 0,
                    len => -entry - (0..len).map(element).sum::<i64>(),
                },
            },
            Op::ArrayPush(value) => {
                let is_new = self.array_len(collection, key) == 0;
                (value.len() + ELEMENT_BYTES) as i64 + if is_new { entry } else { 0 }
            }
            Op::ArrayPut(index, value) => match self.array_get(collection, key, index) {
                Some(old) => value.len() as i64 - old.len() as i64,
                None => 0,
            },
            Op::ArrayPopFront => {
                let index = popped.entry((collection, key)).or_default();
                *index += 1;
                -element(*index - 1)
            }
            Op::CounterAdd(_) if self.counter(collection, key).is_some() => 0,
            Op::CounterAdd(_) => entry,
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
