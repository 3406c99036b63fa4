//! Changes a packet in place and updates its checksums for the change (RFC 1624): a valid checksum stays
//! valid, and a wrong one stays wrong.

use core::net::Ipv4Addr;

use crate::parse::{Packet, Transport, be16};
use crate::{PacketError, checksum, protocol};

/// Decrements the time to live, as every router does (RFC 1812, section 5.3.1). A packet that
/// has at most 1 left must not be forwarded and is not changed.
pub fn forward(bytes: &mut [u8]) -> Result<(), PacketError> {
    let ttl = Packet::parse(bytes)?.forwardable()?;
    let old = be16(bytes, TTL_AT);
    bytes[TTL_AT] = ttl - 1;
    let new = be16(bytes, TTL_AT);
    change(bytes, 10, |sum| checksum::update(sum, old, new));
    Ok(())
}

/// Offset of the time to live; the protocol is the other half of its word.
const TTL_AT: usize = 8;

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

/// Changes the source address and port (or identifier) of a whole TCP, UDP or ICMP query packet.
pub fn source(packet: &mut [u8], address: Ipv4Addr, port: u16) -> Result<(), PacketError> {
    endpoint(packet, End::Source, address, port)
}

/// The same for the destination.
pub fn destination(packet: &mut [u8], address: Ipv4Addr, port: u16) -> Result<(), PacketError> {
    endpoint(packet, End::Destination, address, port)
}

fn endpoint(bytes: &mut [u8], end: End, address: Ipv4Addr, port: u16) -> Result<(), PacketError> {
    let packet = Packet::parse(bytes)?;
    if packet.is_fragment() {
        return Err(PacketError::Fragment {
            offset: packet.fragment_offset(),
        });
    }
    let number = packet.protocol();
    let header_len = packet.header().len();
    let port_at = header_len
        + match (packet.transport()?, end) {
            (Transport::Tcp(_) | Transport::Udp(_), End::Source) => 0,
            (Transport::Tcp(_) | Transport::Udp(_), End::Destination) => 2,
            (Transport::Icmp(icmp), _) if icmp.is_query() => 4,
            _ => {
                return Err(PacketError::NoPorts {
                    protocol: number,
                    destination: packet.destination(),
                });
            }
        };
    let address_at = match end {
        End::Source => 12,
        End::Destination => 16,
    };
    let new = address.octets();
    let mut old = [0; 4];
    old.copy_from_slice(&bytes[address_at..address_at + 4]);
    let old_port = be16(bytes, port_at);
    bytes[address_at..address_at + 4].copy_from_slice(&new);
    bytes[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    change(bytes, 10, |sum| checksum::update_pair(sum, old, new));
    let sum_at = header_len + checksum::field_at(number).unwrap_or_default();
    change(bytes, sum_at, |sum| match number {
        // 0 = sent without a checksum, which is why a sum of 0 is sent as 0xffff
        protocol::UDP if sum == 0 => 0,
        protocol::ICMP => checksum::update(sum, old_port, port),
        _ => {
            let sum = checksum::update_pair(sum, old, new);
            match (number, checksum::update(sum, old_port, port)) {
                (protocol::UDP, 0) => 0xffff,
                (_, sum) => sum,
            }
        }
    });
    Ok(())
}

fn change(bytes: &mut [u8], at: usize, f: impl FnOnce(u16) -> u16) {
    let sum = f(be16(bytes, at));
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
