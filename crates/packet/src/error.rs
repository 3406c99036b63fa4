//! Errors of packets.

use core::fmt;
use core::net::Ipv4Addr;

/// What is wrong with a packet: what it claims, and the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// Fewer bytes than a header has.
    Short {
        /// Which header.
        what: &'static str,
        /// The actual length in bytes.
        len: usize,
        /// The shortest length in bytes.
        min: usize,
    },
    /// The version is not 4.
    Version(u8),
    /// A header length outside of its bounds.
    HeaderLen {
        /// Which header.
        what: &'static str,
        /// The length in bytes.
        len: usize,
        /// The shortest.
        min: usize,
        /// The longest.
        max: usize,
    },
    /// A total length outside of its bounds.
    TotalLen {
        /// Of what.
        what: &'static str,
        /// The length in bytes.
        len: usize,
        /// The shortest.
        min: usize,
        /// The longest: the actual bytes.
        max: usize,
    },
    /// The header's checksum is wrong.
    Checksum {
        /// What the packet says.
        is: u16,
        /// What it must be.
        must_be: u16,
    },
    /// A fragment where a whole packet is required.
    Fragment {
        /// Where it begins, in bytes.
        offset: usize,
    },
    /// A time to live too small for forwarding.
    Expired {
        /// The time to live.
        ttl: u8,
    },
    /// A protocol, or kind of ICMP message, without ports or an identifier.
    NoPorts {
        /// The protocol.
        protocol: u8,
        /// Where it goes.
        destination: Ipv4Addr,
    },
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { what, len, min } => {
                write!(f, "{what}: has {len} bytes, must be at least {min}")
            }
            Self::Version(version) => write!(f, "packet: version is {version}, must be 4"),
            Self::HeaderLen {
                what,
                len,
                min,
                max,
            } => write!(f, "{what}: header length is {len}, must be {min}..={max}"),
            Self::TotalLen {
                what,
                len,
                min,
                max,
            } => write!(f, "{what}: length is {len}, must be {min}..={max}"),
            Self::Checksum { is, must_be } => {
                write!(
                    f,
                    "packet: checksum is {is:#06x}, header sums to {must_be:#06x}"
                )
            }
            Self::Fragment { offset } => {
                write!(
                    f,
                    "packet: is a fragment at byte {offset}, must be a whole packet"
                )
            }
            Self::Expired { ttl } => {
                write!(f, "packet: time to live is {ttl}, must be at least 2")
            }
            Self::NoPorts {
                protocol,
                destination,
            } => write!(
                f,
                "packet: protocol {protocol} to {destination} has no ports or identifier"
            ),
        }
    }
}

impl core::error::Error for PacketError {}
