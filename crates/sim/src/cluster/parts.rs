//! States of shards on their way between nodes and controller, for backups and restored applications.

use e3_model::ShardKey;
use e3_model::backup::Part;

/// Bytes for a backup that have not left their node.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) node: u32,
    pub(crate) incarnation: u32,
    pub(crate) key: ShardKey,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A part that a node fetches.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) node: u32,
    pub(crate) incarnation: u32,
    pub(crate) key: ShardKey,
    pub(crate) order: u64,
    pub(crate) number: u64,
    pub(crate) part: Part,
    /// Bytes that it has.
    pub(crate) len: u64,
}
