//! The workload of an IPsec gateway (NFV-IFID): packets of inside hosts are counted for floods and by
//! flow, translated, routed, and sealed into a tunnel.
//!
//! The answer to a packet says how it was sealed. Its security association and length follow from the key
//! and the packet (RFC 4303: the cipher's blocks, header, vector and tag). The sequence numbers of an
//! association must have no gap and no duplicate. Translations and next hops are queried during the load
//! and after it; after it also the counts of some flows, of all packets, and the windows with an alarm.
//! State of earlier loads is read before the load. A flood comes from a hijacked inside host to one
//! server (as bots do: Antonakakis et al., "Understanding the Mirai Botnet", USENIX Security 2017): it
//! lowers the entropies of the bot's shard.

mod counts;
mod generator;
mod messages;
mod oracle;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::load::Load;
use crate::oracles::gateway::Inside;
use generator::Packets;
use oracle::{Asked, Gateway};

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    Packet {
        inside: Inside,
        rank: Option<u32>,
        bytes: usize,
    },
    Query(Asked),
}

/// The packets of a seed.
pub(crate) fn load(inputs: &Inputs) -> Result<Load<Packets, Gateway>, WorkloadError> {
    Ok(Load::new(Packets::new(inputs), Gateway::new()?))
}
