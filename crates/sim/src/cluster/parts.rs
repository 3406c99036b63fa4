//! States of shards on their way between nodes and controller, for backups and restored applications.

use super::Cluster;
use e3_model::ShardKey;
use e3_model::backup::Part;

/// Bytes for a backup that have not left their node.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) node: u16,
    pub(crate) incarnation: u32,
    pub(crate) key: ShardKey,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A part that a node fetches.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) node: u16,
    pub(crate) incarnation: u32,
    pub(crate) key: ShardKey,
    pub(crate) number: u64,
    pub(crate) part: Part,
    /// Bytes that it has.
    pub(crate) len: u64,
}

impl Cluster {
    /// Whether this process of a node runs; None if it is gone.
    pub(crate) fn runs(&self, node: u16, incarnation: u32) -> Option<bool> {
        let n = self.nodes.get(&node);
        let n = n.filter(|n| n.incarnation == incarnation)?;
        Some(!n.is_paused)
    }

    /// Bytes of a shard's part of a backup up to this one have left a node.
    pub(crate) fn on_exported(&mut self, node: u16, key: ShardKey, number: u64, len: u64) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        let now = n.clock.shown(self.now);
        n.worker.handle_exported(now, key, number, len);
        self.drain(node);
    }

    /// The next bytes of a part arrive at a node.
    pub(crate) fn on_part(&mut self, node: u16, key: ShardKey, number: u64, bytes: &[u8]) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        let now = n.clock.shown(self.now);
        n.worker.handle_part(now, key, number, bytes);
        self.drain(node);
    }
}
