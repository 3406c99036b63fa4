//! Who a worker is.

use e3_model::{Format, Formats, NodeId, NodeKind};

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u32,
    /// Its cluster.
    pub cluster: u64,
    /// Formats that it reads and can write.
    pub formats: Formats,
    /// Kind of node that it is or stands for.
    pub kind: NodeKind,
    /// Bytes that the journal has before a checkpoint makes it shorter.
    pub journal_len_min: u64,
    /// Whether services take as many times longer as the plan's slowdown says, by idling.
    pub slowed: bool,
    /// The cores of the node that this process stands for; none on a node that is what it is.
    pub emulated: Option<EmulatedCores>,
}

/// The cores of an emulated node.
#[derive(Clone, Copy, Debug)]
pub struct EmulatedCores {
    /// Handlers that run at once at most.
    pub cores: u16,
    /// Speed of each as a part of the speed of what it stands for: more than 0, at most 1.
    pub speed: f64,
}

impl Config {
    /// What clients are answered in. They do not know the cluster's format: both sides write the oldest
    /// that their program has.
    pub(crate) fn client_format(&self) -> Format {
        self.formats.oldest()
    }
}
