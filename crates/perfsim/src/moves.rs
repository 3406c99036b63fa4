//! Shards that stop, move and are copied: what is kept of them.

use crate::arena::{Arena, Message};
use crate::fifo::Fifo;
use crate::station::Station;
use std::collections::{BTreeMap, BTreeSet};

/// Messages for a shard that does not serve at the moment. They wait at its primary.
#[derive(Default)]
pub(crate) struct Parked {
    pub queue: Fifo,
    pub station: Station,
    /// When the shard serves; none as long as a controller holds it.
    pub resumes_at: Option<u64>,
}

/// The state of a shard on its way to another node.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub shard: u32,
    pub from: u32,
    pub to: u32,
    pub left_bytes: u64,
    /// When the next part may leave.
    pub next_at: u64,
}

/// What was measured at the last heartbeat.
#[derive(Default)]
pub(crate) struct Beat {
    pub at: u64,
    pub work: Vec<u64>,
    pub ports: Vec<(u64, u64)>,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Moves {
    /// Some shard has stopped or moved.
    pub is_active: bool,
    pub parked: BTreeMap<u32, Parked>,
    /// Shards whose primary is to stop after the message that it runs.
    pub stopping: BTreeSet<u32>,
    pub copies: BTreeMap<u32, Copy>,
    pub last: Beat,
    /// By shard: messages and nanoseconds in the handler since its primary serves at its node. Empty if
    /// no controller takes heartbeats.
    pub counts: Vec<(u64, u64)>,
}

impl Moves {
    /// Whether Little's law holds for the messages that wait for a shard.
    pub fn obeys_little(&self, now: u64, messages: &Arena<Message>) -> bool {
        self.parked.values().all(|parked| {
            let there = parked.queue.iter(messages).map(|id| messages[id].entered);
            parked.station.obeys_little(now, there)
        })
    }
}
