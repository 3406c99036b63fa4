//! The header of every datagram.

use crate::codec::{Reader, WireError, Write};
use crate::limits::WIRE_VERSION;
use e3_model::NodeId;

/// First two bytes of every datagram.
pub const MAGIC: u16 = 0xE301;
/// Bytes of [`Header`].
pub const HEADER_LEN: usize = 24;

/// What a datagram carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Frames between nodes.
    Peer,
    /// Requests and replies between a client and an ingress.
    Client,
    /// A heartbeat from a node to the controller.
    Heartbeat,
}

/// Header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Sending node; 0 from a client.
    pub from: NodeId,
    /// Cluster that the sender belongs to; 0 from a client.
    pub cluster: u64,
    /// Process of the sender.
    pub incarnation: u32,
    /// Process that it is meant for; 0 = whichever is there.
    pub to_incarnation: u32,
}

impl Header {
    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(MAGIC);
        out.put_u8(WIRE_VERSION);
        out.put_u8(match self.kind {
            Kind::Peer => 1,
            Kind::Client => 2,
            Kind::Heartbeat => 3,
        });
        out.put_u16(self.from.0);
        out.put_u16(0);
        out.put_u64(self.cluster);
        out.put_u32(self.incarnation);
        out.put_u32(self.to_incarnation);
        debug_assert_eq!(out.len() - start, HEADER_LEN);
    }

    /// Reads the header; the reader is left at the first frame.
    pub fn decode(r: &mut Reader<'_>) -> Result<Header, WireError> {
        let magic = r.u16()?;
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        let version = r.u8()?;
        if version != WIRE_VERSION {
            return Err(WireError::Version(version));
        }
        let kind = match r.u8()? {
            1 => Kind::Peer,
            2 => Kind::Client,
            3 => Kind::Heartbeat,
            other => {
                return Err(WireError::Unknown {
                    what: "kind of datagram",
                    value: other.into(),
                });
            }
        };
        let from = NodeId(r.u16()?);
        r.u16()?;
        Ok(Header {
            kind,
            from,
            cluster: r.u64()?,
            incarnation: r.u32()?,
            to_incarnation: r.u32()?,
        })
    }
}
