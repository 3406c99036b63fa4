//! The workload of intrusion detection (NFV-DIN): packets of both directions are counted for floods,
//! searched for attacks, and translated.
//!
//! Inside hosts send to servers outside, which answer to the public address and port of the translation.
//! The stream contains payloads that match a rule, one of which drops its packet; floods of TCP SYN from
//! forged addresses to the public port of one host; scans of unused ports; and packets without a route.
//! The fate of each packet is known: every answer contains the next hop and the translated packet, which
//! differs from the one sent in one end and its checksums only. After the load the windows with their
//! packets and alarms, the rules that matched, and translations of hosts are read from every shard. State
//! of earlier loads is read before the load. (Scans are some percent of what arrives at unused addresses,
//! and far less of a used one: Durumeric, Bailey, Halderman, "An Internet-Wide View of Internet-Wide
//! Scanning", USENIX Security 2014; floods: [`crate::oracles::ddos`].)

mod generator;
mod oracle;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::load::Load;
use crate::packets::ATTACKS;
use e3_packet::Flow;
use generator::Packets;
use oracle::Gateway;
use std::net::Ipv4Addr;

/// Place of the attack whose packet is dropped, behind those of all packets.
const DROPPED: usize = ATTACKS.len();

/// What must become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Leaves translated.
    Out,
    /// Comes to this inside end.
    In(Ipv4Addr, u16),
    /// Is refused: nobody has the port, or there is no route.
    Nowhere,
}

/// A packet that was sent.
#[derive(Debug)]
pub(crate) struct Packet {
    key: Vec<u8>,
    bytes: Vec<u8>,
    flow: Flow,
    fate: Fate,
    attack: Option<usize>,
}

/// A request.
pub(crate) enum Sent {
    Packet(Packet),
    /// A query about floods to a shard of ddos.
    Report(u16),
}

/// The packets of a seed.
pub(crate) fn load(inputs: &Inputs) -> Result<Load<Packets, Gateway>, WorkloadError> {
    Ok(Load::new(Packets::new(inputs), Gateway::new()?))
}
