//! Builds packets with valid lengths and checksums, for tests and load generators.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::flow::Flow;
use crate::parse::{HEADER_BYTES_MIN, Packet};
use crate::{checksum, protocol};

/// Most bytes of a packet.
const BYTES_MAX: usize = 65_535;

/// Writes one packet of a flow.
#[derive(Clone, Debug)]
pub struct PacketBuilder<'a> {
    flow: Flow,
    payload: &'a [u8],
    size: usize,
    ttl: u8,
    tos: u8,
    identification: u16,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    icmp_kind: u8,
}

impl<'a> PacketBuilder<'a> {
    /// A packet of that flow, without payload. ICMP packets are echo requests with the source port
    /// as identifier; a protocol other than TCP, UDP and ICMP has the payload only.
    pub fn new(flow: Flow) -> Self {
        Self {
            flow,
            payload: &[],
            size: 0,
            ttl: 64,
            tos: 0,
            identification: 0,
            sequence: 0,
            acknowledgement: 0,
            flags: 0x10,
            icmp_kind: 8,
        }
    }

    /// An UDP packet.
    pub fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        Self::between(protocol::UDP, source, destination)
    }

    /// A TCP packet with the flag ACK.
    pub fn tcp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        Self::between(protocol::TCP, source, destination)
    }

    /// An ICMP echo request.
    pub fn echo(source: Ipv4Addr, destination: Ipv4Addr, identifier: u16) -> Self {
        Self::between(
            protocol::ICMP,
            (source, identifier),
            (destination, identifier),
        )
    }

    fn between(protocol: u8, source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        Self::new(Flow {
            source: source.0,
            destination: destination.0,
            protocol,
            source_port: source.1,
            destination_port: destination.1,
        })
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Bytes of the whole packet: the payload is followed by as many zeros as that takes.
    #[must_use]
    pub fn size(mut self, bytes: usize) -> Self {
        self.size = bytes;
        self
    }

    /// Time to live (default 64).
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Type of service.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Identification.
    #[must_use]
    pub fn identification(mut self, identification: u16) -> Self {
        self.identification = identification;
        self
    }

    /// TCP: sequence and acknowledgement number, flags. ICMP: the sequence number's low half.
    #[must_use]
    pub fn segment(mut self, sequence: u32, acknowledgement: u32, flags: u8) -> Self {
        self.sequence = sequence;
        self.acknowledgement = acknowledgement;
        self.flags = flags;
        self
    }

    /// ICMP: the type (default 8, an echo request).
    #[must_use]
    pub fn icmp_kind(mut self, kind: u8) -> Self {
        self.icmp_kind = kind;
        self
    }

    /// The packet. A payload that is too long for any packet is cut.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size.max(self.payload.len() + 40).min(BYTES_MAX));
        self.build_into(&mut out);
        out
    }

    /// Replaces the contents of `out` by the packet.
    pub fn build_into(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0x45, self.tos, 0, 0]);
        out.extend_from_slice(&self.identification.to_be_bytes());
        // don't fragment
        out.extend_from_slice(&[0x40, 0, self.ttl, self.flow.protocol, 0, 0]);
        out.extend_from_slice(&self.flow.source.octets());
        out.extend_from_slice(&self.flow.destination.octets());
        let (source, destination) = (self.flow.source_port, self.flow.destination_port);
        match self.flow.protocol {
            protocol::TCP => {
                out.extend_from_slice(&source.to_be_bytes());
                out.extend_from_slice(&destination.to_be_bytes());
                out.extend_from_slice(&self.sequence.to_be_bytes());
                out.extend_from_slice(&self.acknowledgement.to_be_bytes());
                out.extend_from_slice(&[0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            protocol::UDP => {
                out.extend_from_slice(&source.to_be_bytes());
                out.extend_from_slice(&destination.to_be_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            protocol::ICMP => {
                out.extend_from_slice(&[self.icmp_kind, 0, 0, 0]);
                out.extend_from_slice(&source.to_be_bytes());
                out.extend_from_slice(&(self.sequence as u16).to_be_bytes());
            }
            _ => {}
        }
        let room = BYTES_MAX - out.len();
        out.extend_from_slice(&self.payload[..self.payload.len().min(room)]);
        if out.len() < self.size {
            out.resize(self.size.min(BYTES_MAX), 0);
        }
        let total = out.len() as u16;
        out[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = checksum::full(&out[..HEADER_BYTES_MIN]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        if self.flow.protocol == protocol::UDP {
            let len = total - HEADER_BYTES_MIN as u16;
            out[24..26].copy_from_slice(&len.to_be_bytes());
            out[26] = 0xff; // not 0, which means no checksum
        }
        let Some(at) = checksum::field_at(self.flow.protocol) else {
            return;
        };
        let sum = Packet::parse(out)
            .ok()
            .and_then(|p| checksum::of_transport(&p));
        let at = HEADER_BYTES_MIN + at;
        out[at..at + 2].copy_from_slice(&sum.unwrap_or_default().to_be_bytes());
    }
}
