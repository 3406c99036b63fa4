//! The header of every datagram, and the checksum over all of it.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 2 | magic number |
//! | 2 | 1 | format, [`e3_model::Format`] |
//! | 3 | 1 | low 4 bits: kind, 1 peer, 2 client, 3 heartbeat; upper 4: of the sending node |
//! | 4 | 2 | sending node, low 16 bits of 20; 0 from and to clients |
//! | 6 | 2 | bytes of the datagram, header included |
//! | 8 | 4 | checksum over all other bytes of the datagram |
//! | 12 | 8 | cluster, 0 from and to clients |
//! | 20 | 4 | process of the sender, 0 from and to clients |
//! | 24 | 4 | process that it is meant for, 0 = whichever is there |
//!
//! The checksum is CRC-32C (RFC 3720, appendix B.4). In a datagram of any length that UDP carries it
//! finds every change of up to three bits and every burst of up to 32 bits (Koopman, DSN 2002); of
//! all other damage it misses 1 in 2^32. A link that damages a thousand datagrams each second beyond
//! what Ethernet's and UDP's own checksums find lets one pass in fifty days, and that one still
//! has to pass the check of every field (docs/design/002-datagrams.md). A hash of 64 bits has no such
//! guarantee for few bits; processors have an instruction for this CRC and for none of 64 bits.
//! `cargo bench -p e3-wire` measures it. Neither stops an attacker: that takes authentication.

use crate::codec::{Reader, WireError, Write, check_format};
use crate::limits::DATAGRAM_LEN_MAX;
use crate::node;
use e3_model::{Format, Formats, NodeId};

/// First two bytes of every datagram.
pub const MAGIC: u16 = 0xE301;
/// Bytes of [`Header`].
pub const HEADER_LEN: usize = 28;
pub(crate) const FORMAT_AT: usize = 2;
const LEN_AT: usize = 6;
const CHECKSUM_AT: usize = 8;
pub(crate) const CHECKSUM_END: usize = CHECKSUM_AT + 4;

const _: () = assert!(DATAGRAM_LEN_MAX <= u16::MAX as usize, "a length is a u16");

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
    /// Header of datagrams from and to clients.
    pub const CLIENT: Header = Header {
        kind: Kind::Client,
        from: NodeId(0),
        cluster: 0,
        incarnation: 0,
        to_incarnation: 0,
    };

    /// Appends the header. When the frames are there, [`seal`] fills in format, length and checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(MAGIC);
        out.put_u8(0);
        let kind = match self.kind {
            Kind::Peer => 1,
            Kind::Client => 2,
            Kind::Heartbeat => 3,
        };
        let (low, high) = node::code(self.from);
        out.put_u8(kind | high << node::HIGH_BITS);
        out.put_u16(low);
        out.put_u16(0);
        out.put_u32(0);
        out.put_u64(self.cluster);
        out.put_u32(self.incarnation);
        out.put_u32(self.to_incarnation);
        assert_eq!(out.len() - start, HEADER_LEN);
    }

    /// Reads a header that never left this process: neither format nor length nor checksum is looked
    /// at.
    /// What came from outside goes through [`open`]. The reader is left at the first frame.
    pub fn decode(r: &mut Reader<'_>) -> Result<Header, WireError> {
        let magic = r.u16()?;
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        r.u8()?;
        let field = r.u8()?;
        let (kind, high) = (
            field & ((1 << node::HIGH_BITS) - 1),
            field >> node::HIGH_BITS,
        );
        let kind = match kind {
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
        let from = node::node(r.u16()?, high);
        r.u16()?;
        r.u32()?;
        Ok(Header {
            kind,
            from,
            cluster: r.u64()?,
            incarnation: r.u32()?,
            to_incarnation: r.u32()?,
        })
    }
}

/// Fills in format, length and checksum of a whole datagram, which begins with its header.
pub fn seal(format: Format, datagram: &mut [u8]) {
    assert!((HEADER_LEN..=DATAGRAM_LEN_MAX).contains(&datagram.len()));
    datagram[FORMAT_AT] = format.0;
    let len = datagram.len() as u16;
    datagram[LEN_AT..CHECKSUM_AT].copy_from_slice(&len.to_le_bytes());
    let sum = checksum(datagram);
    datagram[CHECKSUM_AT..CHECKSUM_END].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the header of a datagram that has come in whole and undamaged, in one of the accepted
/// formats; the reader is left at the first frame.
pub fn open(accepted: Formats, datagram: &[u8]) -> Result<(Header, Reader<'_>), WireError> {
    if datagram.len() < HEADER_LEN {
        return Err(WireError::Short {
            needed: HEADER_LEN,
            left: datagram.len(),
        });
    }
    let magic = u16::from_le_bytes([datagram[0], datagram[1]]);
    if magic != MAGIC {
        return Err(WireError::Magic(magic));
    }
    check_format(datagram[FORMAT_AT], accepted)?;
    let stated = u16::from_le_bytes([datagram[LEN_AT], datagram[LEN_AT + 1]]);
    if usize::from(stated) != datagram.len() {
        return Err(WireError::Length {
            stated,
            len: datagram.len(),
        });
    }
    let bytes = &datagram[CHECKSUM_AT..CHECKSUM_END];
    let stated = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    let computed = checksum(datagram);
    if stated != computed {
        return Err(WireError::Checksum { stated, computed });
    }
    let mut reader = Reader(datagram);
    let header = Header::decode(&mut reader)?;
    Ok((header, reader))
}

/// Over everything but itself.
fn checksum(datagram: &[u8]) -> u32 {
    let head = crc32c::crc32c(&datagram[..CHECKSUM_AT]);
    crc32c::crc32c_append(head, &datagram[CHECKSUM_END..])
}
