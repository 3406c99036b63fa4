//! Counts of items that `count` must answer with. The service hashes an item to a bit of a shard's bitmap,
//! so items of one shard with the same bit share a count: an item's count after the load is the one
//! before it, and all occurrences since of the items that share its bit.

use crate::readback::checks::Facts;
use crate::readback::queries::answer;
use e3_model::Slot;
use e3_wire::entry::Reply;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Shards, and bits of a slot's bitmap, as the manifests have them.
const SHARDS: u16 = 12;
const BITS: u64 = 131_072;

type Bit = (u16, u64);

/// The answer to a query about an item.
#[derive(Deserialize)]
struct Counted {
    count: u64,
}

/// Counts by item, each under its routing key.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemCounts {
    before: BTreeMap<Vec<u8>, u64>,
    since: BTreeMap<Bit, u64>,
    /// Bits of items that may or may not have been counted.
    unsure: BTreeSet<Bit>,
}

fn bit(key: &[u8], item: &[u8]) -> Bit {
    (Slot::of(key).shard(SHARDS).0, hash(item) % BITS)
}

/// The hash of the service.
fn hash(item: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = K ^ item.len() as u64;
    let (words, rest) = item.as_chunks::<8>();
    for word in words {
        h = mix(h ^ u64::from_le_bytes(*word)).wrapping_mul(K);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(h ^ u64::from_le_bytes(last))
}

fn mix(h: u64) -> u64 {
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

impl ItemCounts {
    /// Takes the count of an item before the load; None if the reply has none.
    pub(crate) fn on_baseline(&mut self, item: &[u8], reply: Option<&Reply>) -> Option<()> {
        let counted: Counted = answer(reply)?;
        self.before.insert(item.to_vec(), counted.count);
        Some(())
    }

    /// Notes an occurrence.
    pub(crate) fn add(&mut self, key: &[u8], item: &[u8]) {
        *self.since.entry(bit(key, item)).or_default() += 1;
    }

    /// Notes that an item may have come or not.
    pub(crate) fn add_unsure(&mut self, key: &[u8], item: &[u8]) {
        self.unsure.insert(bit(key, item));
    }

    /// Compares the count of an item after the load with the one that it must have, if that is known;
    /// None if the reply has no count.
    pub(crate) fn on_check(&self, key: &[u8], item: &[u8], reply: Option<&Reply>) -> Option<Facts> {
        let counted: Counted = answer(reply)?;
        let known = self.expected(key, item);
        Some(known.map_or(Facts::default(), |known| Facts::one(known == counted.count)))
    }

    /// The count that an item must have; None if that is not known.
    fn expected(&self, key: &[u8], item: &[u8]) -> Option<u64> {
        let bit = bit(key, item);
        let before = self
            .before
            .get(item)
            .filter(|_| !self.unsure.contains(&bit))?;
        Some(before + self.since.get(&bit).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_share_a_bit_are_counted_together() {
        // of so many items some share one
        let names: Vec<String> = (0..4000).map(|n| format!("item{n}")).collect();
        let mut by_bit: BTreeMap<u64, &String> = BTreeMap::new();
        let mut two = names.iter().filter_map(|name| {
            let other = by_bit.insert(hash(name.as_bytes()) % BITS, name)?;
            Some((other.as_bytes(), name.as_bytes()))
        });
        let (a, b) = two.next().unwrap();
        let mut counts = ItemCounts {
            before: [a, b].map(|item| (item.to_vec(), 10)).into(),
            ..ItemCounts::default()
        };
        counts.add(b"key", a);
        counts.add(b"key", b);
        assert_eq!(counts.expected(b"key", a), Some(12));
        assert_eq!(counts.expected(b"key", b"unknown"), None);
        counts.add_unsure(b"key", b);
        assert_eq!(counts.expected(b"key", a), None);
    }
}
