//! Where requests go.

use crate::operation::Operation;
use e3_model::{Address, AppId, ShardKey, Slot};
use std::collections::BTreeMap;

/// The nodes that take requests of an application.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Routes {
    /// The application.
    pub app: AppId,
    /// By shard of the ingress service: the node that serves it, if one does.
    pub shards: Vec<Option<Address>>,
    /// The node of the primary of each shard whose dead letters are read or replayed.
    pub primaries: BTreeMap<ShardKey, Address>,
    /// Every node that takes requests. While there is none, nothing is sent.
    pub nodes: Vec<Address>,
}

impl Routes {
    /// The node that serves the shard of an operation, if it is known.
    pub(crate) fn of(&self, operation: &Operation) -> Option<Address> {
        match operation {
            Operation::Call { key, .. } => {
                let shards = u16::try_from(self.shards.len()).ok().filter(|n| *n > 0)?;
                self.shards[usize::from(Slot::of(key).shard(shards).0)]
            }
            Operation::Replay { shard, .. } | Operation::ReadDeadLetters { shard, .. } => {
                self.primaries.get(shard).copied()
            }
        }
    }

    /// The node after this one.
    pub(crate) fn after(&self, node: Option<Address>) -> Option<Address> {
        let at = self.nodes.iter().position(|a| Some(*a) == node);
        let next = at.map_or(0, |at| (at + 1) % self.nodes.len());
        self.nodes.get(next).copied()
    }
}
