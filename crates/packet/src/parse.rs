//! Packets, parsed in place.

use core::net::Ipv4Addr;

use crate::flow::Flow;
use crate::{PacketError, checksum, protocol};

/// Bytes of an IPv4 header without options.
pub const HEADER_BYTES_MIN: usize = 20;
const TCP_BYTES_MIN: usize = 20;
const UDP_BYTES: usize = 8;
const ICMP_BYTES: usize = 8;

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// An IPv4 packet with a valid header.
///
/// Invariant: `20 <= header_len <= bytes.len()`, and `bytes` ends where the total length says.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    header_len: usize,
}

/// The parsed payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// TCP.
    Tcp(Tcp<'a>),
    /// UDP.
    Udp(Udp<'a>),
    /// ICMP.
    Icmp(Icmp<'a>),
    /// Another protocol, or a fragment that is not the first.
    Other(&'a [u8]),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit.
    pub flags: u8,
    /// What follows header and options.
    pub payload: &'a [u8],
}

/// An UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// What follows the header, as far as the datagram's length says.
    pub payload: &'a [u8],
}

/// An ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<'a> {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Bytes 4 and 5: the identifier of a query.
    pub identifier: u16,
    /// Bytes 6 and 7: the sequence number of a query.
    pub sequence: u16,
    /// What follows the first eight bytes.
    pub payload: &'a [u8],
}

impl Icmp<'_> {
    /// Whether the message is a query or its answer, which have an identifier: echo, timestamp.
    pub fn is_query(&self) -> bool {
        matches!(self.kind, 0 | 8 | 13 | 14)
    }
}

impl<'a> Packet<'a> {
    /// Parses the header and its options, and checks the lengths.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let len = bytes.len();
        let what = "packet";
        if let Some(first) = bytes.first()
            && first >> 4 != 4
        {
            return Err(PacketError::Version(first >> 4));
        }
        if len < HEADER_BYTES_MIN {
            return Err(PacketError::Short {
                what,
                len,
                min: HEADER_BYTES_MIN,
            });
        }
        let header_len = usize::from(bytes[0] & 15) * 4;
        if !(HEADER_BYTES_MIN..=len).contains(&header_len) {
            return Err(PacketError::HeaderLen {
                what,
                len: header_len,
                min: HEADER_BYTES_MIN,
                max: len.min(60),
            });
        }
        let total = usize::from(be16(bytes, 2));
        if !(header_len..=len).contains(&total) {
            return Err(PacketError::TotalLen {
                what,
                len: total,
                min: header_len,
                max: len,
            });
        }
        Ok(Self {
            bytes: &bytes[..total],
            header_len,
        })
    }

    /// The bytes of the packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its header with options.
    pub fn header(&self) -> &'a [u8] {
        &self.bytes[..self.header_len]
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// Number of the protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// The time to live.
    pub fn ttl(&self) -> u8 {
        self.bytes[8]
    }

    /// The time to live, if the packet may be forwarded.
    pub fn forwardable(&self) -> Result<u8, PacketError> {
        match self.ttl() {
            ttl @ 2.. => Ok(ttl),
            ttl => Err(PacketError::Expired { ttl }),
        }
    }

    /// Type of service.
    pub fn tos(&self) -> u8 {
        self.bytes[1]
    }

    /// Identification, the same in all fragments.
    pub fn identification(&self) -> u16 {
        be16(self.bytes, 4)
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.bytes, 12))
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.bytes, 16))
    }

    /// Offset of the payload in the fragmented datagram; 0 in a whole packet.
    pub fn fragment_offset(&self) -> usize {
        usize::from(be16(self.bytes, 6) & 0x1fff) * 8
    }

    /// Whether it is a fragment.
    pub fn is_fragment(&self) -> bool {
        be16(self.bytes, 6) & 0x3fff != 0
    }

    /// Checks the header's checksum.
    pub fn check_header(&self) -> Result<(), PacketError> {
        match checksum::full(self.header()) {
            0 => Ok(()),
            _ => Err(PacketError::Checksum {
                is: be16(self.bytes, 10),
                must_be: checksum::of_header(self.header()),
            }),
        }
    }

    /// Parses the payload.
    pub fn transport(&self) -> Result<Transport<'a>, PacketError> {
        let bytes = self.payload();
        if self.fragment_offset() != 0 {
            return Ok(Transport::Other(bytes));
        }
        let at_least = |what, min| match bytes.len() {
            len if len < min => Err(PacketError::Short { what, len, min }),
            _ => Ok(()),
        };
        match self.protocol() {
            protocol::TCP => {
                at_least("tcp", TCP_BYTES_MIN)?;
                let header_len = usize::from(bytes[12] >> 4) * 4;
                if !(TCP_BYTES_MIN..=bytes.len()).contains(&header_len) {
                    return Err(PacketError::HeaderLen {
                        what: "tcp",
                        len: header_len,
                        min: TCP_BYTES_MIN,
                        max: bytes.len().min(60),
                    });
                }
                Ok(Transport::Tcp(Tcp {
                    source_port: be16(bytes, 0),
                    destination_port: be16(bytes, 2),
                    sequence: be32(bytes, 4),
                    acknowledgement: be32(bytes, 8),
                    flags: bytes[13],
                    payload: &bytes[header_len..],
                }))
            }
            protocol::UDP => {
                at_least("udp", UDP_BYTES)?;
                let len = usize::from(be16(bytes, 4));
                // the first fragment has the length of the whole datagram
                let max = if self.is_fragment() {
                    usize::from(u16::MAX)
                } else {
                    bytes.len()
                };
                if !(UDP_BYTES..=max).contains(&len) {
                    return Err(PacketError::TotalLen {
                        what: "udp",
                        len,
                        min: UDP_BYTES,
                        max,
                    });
                }
                Ok(Transport::Udp(Udp {
                    source_port: be16(bytes, 0),
                    destination_port: be16(bytes, 2),
                    payload: &bytes[UDP_BYTES..len.min(bytes.len())],
                }))
            }
            protocol::ICMP => {
                at_least("icmp", ICMP_BYTES)?;
                Ok(Transport::Icmp(Icmp {
                    kind: bytes[0],
                    code: bytes[1],
                    identifier: be16(bytes, 4),
                    sequence: be16(bytes, 6),
                    payload: &bytes[ICMP_BYTES..],
                }))
            }
            _ => Ok(Transport::Other(bytes)),
        }
    }

    /// The flow that it belongs to. Packets without ports (other protocols, later fragments) have 0 in
    /// their place; ICMP queries have their identifier in both, so that a query and its answer are
    /// two directions of one flow.
    pub fn flow(&self) -> Result<Flow, PacketError> {
        let (source_port, destination_port) = match self.transport()? {
            Transport::Tcp(tcp) => (tcp.source_port, tcp.destination_port),
            Transport::Udp(udp) => (udp.source_port, udp.destination_port),
            Transport::Icmp(icmp) if icmp.is_query() => (icmp.identifier, icmp.identifier),
            Transport::Icmp(_) | Transport::Other(_) => (0, 0),
        };
        Ok(Flow {
            source: self.source(),
            destination: self.destination(),
            protocol: self.protocol(),
            source_port,
            destination_port,
        })
    }
}
