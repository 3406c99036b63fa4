//! Which shard of the controller minds which nodes: rendezvous hashing (Thaler and Ravishankar, "Using
//! Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998).
//!
//! A node belongs to the shard that has the highest hash together with it. So it depends on nothing but the
//! node and the set of shards. A node that joins or leaves moves no other. A shard that is added only takes
//! nodes, one that is removed only gives up its own: [`Shards::nodes_max`] at most.

use crate::limits::SHARDS_MAX;
use e3_model::NodeId;

/// A set of shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shards {
    /// Their numbers, ascending. Invariant: at least one.
    numbers: Vec<u16>,
}

impl Shards {
    /// So many shards, at least one and at most [`SHARDS_MAX`].
    pub fn new(count: u16) -> Shards {
        Shards {
            numbers: (0..count.clamp(1, SHARDS_MAX)).collect(),
        }
    }

    /// The same with one more, if there may be one.
    pub fn with(&self, number: u16) -> Shards {
        let mut numbers = self.numbers.clone();
        if let Err(at) = numbers.binary_search(&number)
            && numbers.len() < usize::from(SHARDS_MAX)
        {
            numbers.insert(at, number);
        }
        Shards { numbers }
    }

    /// The same with one less, unless it is the last.
    pub fn without(&self, number: u16) -> Shards {
        let mut numbers = self.numbers.clone();
        if numbers.len() > 1 {
            numbers.retain(|n| *n != number);
        }
        Shards { numbers }
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// The number of the shard that minds a node.
    pub fn of(&self, node: NodeId) -> u16 {
        self.numbers[self.place(node)]
    }

    /// The place of that shard among [`Shards::numbers`].
    pub(crate) fn place(&self, node: NodeId) -> usize {
        if self.numbers.len() == 1 {
            return 0;
        }
        let numbers = self.numbers.iter().enumerate();
        let highest = numbers.max_by_key(|(_, number)| hash(node, **number));
        highest.expect("there is at least one").0
    }

    /// How many of so many nodes one of `shards` shards minds at most: five standard deviations above the
    /// mean, and five for small numbers. More has a probability below one in a million for each shard.
    pub fn nodes_max(nodes: usize, shards: usize) -> usize {
        let mean = nodes as f64 / shards as f64;
        (mean + 5.0 * mean.sqrt() + 5.0) as usize
    }
}

/// The last step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), twice, so that neighbouring ids
/// differ in all bits.
fn hash(node: NodeId, shard: u16) -> u64 {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(u64::from(node.0)) ^ u64::from(shard))
}
