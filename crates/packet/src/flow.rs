//! Flows: the fields that all packets of one conversation share.

use core::fmt;
use core::net::Ipv4Addr;

use crate::protocol;

/// Bytes of a flow's key.
pub const FLOW_BYTES: usize = 13;

/// The five-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Number of the protocol.
    pub protocol: u8,
    /// Source port, or the identifier of an ICMP query, or 0.
    pub source_port: u16,
    /// Destination port, or the identifier of an ICMP query, or 0.
    pub destination_port: u16,
}

impl Flow {
    /// The other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// The canonical direction: from the lower address and port.
    #[must_use]
    pub fn canonical(self) -> Self {
        if (self.source, self.source_port) <= (self.destination, self.destination_port) {
            self
        } else {
            self.reversed()
        }
    }

    /// As a key, big endian: protocol, source, source port, destination, destination port.
    pub fn to_bytes(self) -> [u8; FLOW_BYTES] {
        let mut key = [0; FLOW_BYTES];
        key[0] = self.protocol;
        key[1..5].copy_from_slice(&self.source.octets());
        key[5..7].copy_from_slice(&self.source_port.to_be_bytes());
        key[7..11].copy_from_slice(&self.destination.octets());
        key[11..13].copy_from_slice(&self.destination_port.to_be_bytes());
        key
    }

    /// Reads a key back.
    pub fn from_bytes(key: &[u8; FLOW_BYTES]) -> Self {
        let address = |at: usize| Ipv4Addr::new(key[at], key[at + 1], key[at + 2], key[at + 3]);
        let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
        Self {
            source: address(1),
            destination: address(7),
            protocol: key[0],
            source_port: port(5),
            destination_port: port(11),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            protocol::TCP => f.write_str("tcp")?,
            protocol::UDP => f.write_str("udp")?,
            protocol::ICMP => f.write_str("icmp")?,
            other => write!(f, "{other}")?,
        }
        write!(
            f,
            " {}:{} > {}:{}",
            self.source, self.source_port, self.destination, self.destination_port
        )
    }
}
