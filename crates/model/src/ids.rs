//! Identities. Small integers inside, names at the edges.

use crate::limits::SLOTS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $int);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(/// A node: index in the topology.
    NodeId(u32), "n");
id!(/// An application; never reused within a cluster.
    AppId(u16), "a");
id!(/// A service: index in the application's manifest.
    ServiceId(u16), "s");
id!(/// A logical shard of a service.
    ShardId(u16), "");
id!(/// An edge of the DAG: index of the channel in the manifest.
    EdgeId(u16), "e");
id!(/// A key slot, `0..SLOTS`.
    Slot(u16), "slot");

/// 64-bit FNV-1a (Fowler, Noll, Vo; RFC 9923). It protects against accidents, not against attackers.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Slot {
    /// The slot of a key: [`fnv1a`], folded.
    pub fn of(key: &[u8]) -> Slot {
        let mut h = fnv1a(key);
        // The low bits of FNV-1a mix poorly for keys that differ in the last byte only.
        h ^= h >> 33;
        h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 33;
        Slot((h % u64::from(SLOTS)) as u16)
    }

    /// The shard of `shards` that owns this slot; shard `i` owns `[i*SLOTS/shards, (i+1)*SLOTS/shards)`.
    pub fn shard(self, shards: u16) -> ShardId {
        ShardId(((u32::from(self.0) * u32::from(shards)) / u32::from(SLOTS)) as u16)
    }
}

/// A logical shard: what messages are addressed to. Moves do not change it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub struct ShardKey {
    /// Application.
    pub app: AppId,
    /// Service within the application.
    pub service: ServiceId,
    /// Shard within the service.
    pub shard: ShardId,
}

impl fmt::Display for ShardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.app, self.service, self.shard)
    }
}

/// What the client calls its request: unique for ever. The client numbers its requests from 1.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct RequestId {
    /// Chosen at random by the client when it starts.
    pub client: u64,
    /// The client's own sequence number.
    pub seq: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.client, self.seq)
    }
}

/// The edge that a message came by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Via {
    /// From a client, through an ingress.
    Ingress,
    /// Along a channel of the application.
    Edge(EdgeId),
    /// From a timer of the service itself.
    Timer,
}

/// Identity of a message, the same for every copy and every attempt.
///
/// `index` numbers the messages that one request can put on one edge; [`crate::dag::Dag`] makes it
/// unique over all paths through the DAG.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MessageId {
    /// The request that it belongs to.
    pub request: RequestId,
    /// The edge of the DAG.
    pub via: Via,
    /// Number of the message among those of this request on this edge.
    pub index: u32,
}

impl NodeId {
    /// Position in a table of all nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The node at a position of such a table.
    ///
    /// # Panics
    /// Beyond the most nodes that a topology may have.
    pub fn of_index(index: usize) -> NodeId {
        NodeId(index.try_into().expect("a topology bounds its nodes"))
    }

    /// In place of an ingress, where no client waits for an answer.
    pub const NOBODY: NodeId = NodeId(u32::MAX);
}

impl MessageId {
    /// The message of a client's request, from the ingress to the first service.
    pub fn ingress(request: RequestId) -> MessageId {
        MessageId {
            request,
            via: Via::Ingress,
            index: 0,
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Via::Ingress => write!(f, "{}", self.request),
            Via::Edge(e) => write!(f, "{}/{}/{}", self.request, e, self.index),
            Via::Timer => write!(f, "{}/timer", self.request),
        }
    }
}

/// W3C trace context, carried by every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TraceContext {
    /// trace-id.
    pub trace: u128,
    /// parent-id: the span that sent the message.
    pub span: u64,
    /// trace-flags; bit 0 = sampled.
    pub flags: u8,
}

/// An IP address and port as plain data, so that cores need not know sockets. IPv4 is mapped.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct Address {
    /// IPv6 address or IPv4-mapped IPv6 address, network order.
    pub ip: [u8; 16],
    /// UDP port.
    pub port: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_spread_and_shards_cover_all_slots() {
        let mut used = std::collections::BTreeSet::new();
        for i in 0u32..20_000 {
            used.insert(Slot::of(&i.to_be_bytes()));
        }
        assert!(used.len() > 3900, "only {} of 4096 slots used", used.len());
        for shards in [1, 3, 6, 12, 4096] {
            let owners: std::collections::BTreeSet<_> =
                (0..SLOTS).map(|s| Slot(s).shard(shards)).collect();
            assert_eq!(owners.len(), usize::from(shards));
        }
    }
}
