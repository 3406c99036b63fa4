//! Who a worker is.

use e3_model::{NodeId, NodeKind};

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u32,
    /// Its cluster.
    pub cluster: u64,
    /// Kind of node that it is or stands for.
    pub kind: NodeKind,
    /// Bytes that the journal has before a checkpoint makes it shorter.
    pub journal_len_min: u64,
    /// Whether services take as many times longer as the plan's slowdown says, by idling.
    pub slowed: bool,
}
