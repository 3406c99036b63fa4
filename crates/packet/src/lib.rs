//! IPv4 packets as bytes: parsed in place ([`Packet`]), rewritten with valid checksums ([`rewrite`]), and
//! built ([`PacketBuilder`]); and route tables ([`routes`]).
//!
//! Sources: RFC 791 (IPv4), 9293 (TCP), 768 (UDP), 792 (ICMP), 1071 and 1624 (checksums). Every
//! length in a packet is checked against the actual bytes, so nothing here panics on any input. Bytes after
//! the total length (padding of a frame) are not part of the packet.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

mod build;
pub mod checksum;
mod error;
mod flow;
pub mod number;
mod parse;
pub mod prefix;
pub mod rewrite;
pub mod routes;

pub use build::PacketBuilder;
pub use error::PacketError;
pub use flow::{FLOW_BYTES, Flow};
pub use parse::{HEADER_BYTES_MIN, Icmp, Packet, Tcp, Transport, Udp};

/// Numbers of the parsed protocols.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
}

/// Whether a payload is an IPv4 packet: its first nibble is 4.
pub fn is_packet(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first >> 4 == 4)
}

/// Whether a payload is a record: it begins with the head of a CBOR map, 0xa0..=0xbf.
pub fn is_record(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first >> 5 == 5)
}
