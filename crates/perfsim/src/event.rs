//! Events and their order: by time, then by the order in which they were scheduled.

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The next request of a client arrives.
    Arrive,
    /// A message is at a switch.
    Switch,
    /// A message has come through a port.
    Port,
    /// A message has crossed PCIe from the port to its host.
    PcieIn,
    /// A message has crossed PCIe from its host to the port.
    PcieOut,
    /// A message has arrived at its node.
    Deliver,
    /// A thread has finished its message.
    Done,
    /// The loads of the nodes are reported.
    Tick,
    /// The agents of the nodes send their heartbeats.
    Heartbeat,
    /// A fault begins or ends.
    Fault,
    /// A message that was lost is sent again.
    Resend,
    /// The next part of a copy of a shard's state is due.
    Chunk,
    /// The primary of a shard that moved serves.
    Resume,
    /// The data plane of a node wants to be called.
    Wake,
}

const KINDS: [Kind; 14] = [
    Kind::Arrive,
    Kind::Switch,
    Kind::Port,
    Kind::PcieIn,
    Kind::PcieOut,
    Kind::Deliver,
    Kind::Done,
    Kind::Tick,
    Kind::Heartbeat,
    Kind::Fault,
    Kind::Resend,
    Kind::Chunk,
    Kind::Resume,
    Kind::Wake,
];
const KIND_BITS: u32 = 4;

/// An event: 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// In nanoseconds.
    pub time: u64,
    /// Number of the event, and its kind in the lowest bits.
    order: u64,
    /// A message, a thread, a fault, a copy or a shard.
    pub of: u32,
}

impl Event {
    #[inline]
    pub fn new(time: u64, number: u64, kind: Kind, of: u32) -> Event {
        Event {
            time,
            order: number << KIND_BITS | kind as u64,
            of,
        }
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        KINDS[(self.order & ((1 << KIND_BITS) - 1)) as usize]
    }

    /// Events are handled in this order.
    #[inline]
    pub fn key(&self) -> (u64, u64) {
        (self.time, self.order)
    }
}

const _: () = assert!(size_of::<Event>() == 24);
const _: () = assert!(KINDS.len() <= 1 << KIND_BITS);
