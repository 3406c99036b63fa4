//! Copies on the disk of a process that asks to join which may lack entries, although nothing shows it.

use crate::state::Control;
use e3_model::plan::{NodeHello, ShardPlan};
use e3_model::{NodeId, ShardKey};
use std::collections::BTreeSet;

impl Control {
    /// A hello without the copies of shards that were merged after they were written, where another complete
    /// copy of what they became is heard. A disk that loses what it confirmed is found out by the last number
    /// of its log. The log of a merged shard goes on from the greatest number of the logs that it is made of,
    /// and says nothing of what is missing in the others. docs/design/010.
    pub fn without_doubtful_copies(&self, mut hello: NodeHello) -> NodeHello {
        let node = self.index().cluster.named(&hello.name);
        if let Some((on_disk, node)) = hello.on_disk.as_mut().zip(node) {
            let shards = self.shards_on(node).into_iter();
            let doubtful = shards.flat_map(|key| self.merged_elsewhere(node, key));
            let doubtful: BTreeSet<(ShardKey, u32)> = doubtful.collect();
            let copies = &mut on_disk.copies;
            copies.retain(|copy| !doubtful.contains(&(copy.key, copy.era)));
        }
        hello
    }

    /// The shards that a shard was merged from, each with its era, if a node other than this one has a
    /// complete copy and is heard.
    fn merged_elsewhere(&self, node: NodeId, key: ShardKey) -> Vec<(ShardKey, u32)> {
        let app = &self.apps[&key.app];
        let is_elsewhere = |shard: &&ShardPlan| {
            let mut copies = std::iter::once(shard.primary).chain(shard.staying());
            copies.any(|other| other != node && self.is_up(other))
        };
        let shard = app.shard(key).filter(is_elsewhere);
        let made_of = shard.and_then(|shard| app.plan.made_of(shard));
        made_of.filter(|all| all.len() > 1).unwrap_or_default()
    }
}
