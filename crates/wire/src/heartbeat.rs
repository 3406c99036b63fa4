//! Heartbeat: 16 bytes of payload from each node to the controller (E3, ATC 2019, section 3).
//!
//! From [`Format::HEARTBEAT_TAGS`] on, behind the payload:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 44 | 4 | number among the heartbeats of this process, from 1 |
//! | 48 | 8 | tag: SipHash-2-4 of the bytes 12 to 47, under the [`HeartbeatKey`] of node and process |
//!
//! The bytes before 12 say nothing that the key, the length or the format does not: each process has a
//! key of its own.

use crate::codec::{Reader, WireError, Write};
use crate::datagram::{CHECKSUM_END, FORMAT_AT, HEADER_LEN, Header, Kind, open, seal};
use crate::heartbeat_key::{HeartbeatKey, HeartbeatKeys};
use e3_model::{Format, Formats, NodeId};

/// Bytes of [`Heartbeat`] after the datagram's header.
pub const PAYLOAD_LEN: usize = 16;
/// Bytes of a heartbeat with its tag.
pub const TAGGED_LEN: usize = TAG_AT + 8;
/// What the tag is computed of begins behind the checksum.
const TAGGED_AT: usize = CHECKSUM_END;
const TAG_AT: usize = HEADER_LEN + PAYLOAD_LEN + 4;

/// Soft state of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heartbeat {
    /// Requests that wait on the node. On a SmartNIC that relays, what waits at its traffic manager
    /// counts too.
    pub queue_len: u32,
    /// Mean handler time since the last heartbeat.
    pub service_time_ns: u32,
    /// Share of a core that was busy since the last heartbeat, in thousandths, summed over cores.
    pub busy_permille: u16,
    /// Share of its port's bandwidth that was used since the last heartbeat, in thousandths, of the
    /// busier direction. 0 also if the node does not measure it.
    pub port_permille: u16,
    /// Low half of the plan version that the node has applied.
    pub plan_version_low: u32,
}

/// A heartbeat as a whole datagram, without a tag: [`authenticate`] adds it.
pub fn encode(
    format: Format,
    cluster: u64,
    node: NodeId,
    incarnation: u32,
    h: &Heartbeat,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + PAYLOAD_LEN);
    Header {
        kind: Kind::Heartbeat,
        from: node,
        cluster,
        incarnation,
        to_incarnation: 0,
    }
    .encode(&mut out);
    out.put_u32(h.queue_len);
    out.put_u32(h.service_time_ns);
    out.put_u16(h.busy_permille);
    out.put_u16(h.port_permille);
    out.put_u32(h.plan_version_low);
    assert_eq!(out.len(), HEADER_LEN + PAYLOAD_LEN);
    seal(format, &mut out);
    out
}

/// Adds the tag of the process's key to a heartbeat without one, as [`Format::HEARTBEAT_TAGS`] needs
/// it. `sequence` counts the process's heartbeats, from 1.
pub fn authenticate(format: Format, datagram: &mut Vec<u8>, key: &HeartbeatKey, sequence: u32) {
    assert_eq!(datagram.len(), HEADER_LEN + PAYLOAD_LEN, "it has no tag");
    datagram.put_u32(sequence);
    let tag = key.tag(&datagram[TAGGED_AT..]);
    datagram.put_u64(tag);
    seal(format, datagram);
}

/// A heartbeat that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its sender.
    pub header: Header,
    /// What it says.
    pub heartbeat: Heartbeat,
    /// Its number among those of its sender, from 1; 0 in a format without tags.
    pub sequence: u32,
}

/// Reads a heartbeat datagram. Its tag is verified if its format has one.
pub fn decode(
    accepted: Formats,
    keys: &HeartbeatKeys,
    datagram: &[u8],
) -> Result<Received, WireError> {
    let (header, r) = open(accepted, datagram)?;
    let (received, tag) = read(header, has_tag(datagram), r)?;
    if let Some(tag) = tag {
        let key = keys.of(header.from, header.incarnation);
        if key.tag(&datagram[TAGGED_AT..TAG_AT]) != tag {
            return Err(WireError::Tag);
        }
    }
    Ok(received)
}

/// Reads a heartbeat datagram whose format, length, checksum and tag were looked at before.
pub fn parse(datagram: &[u8]) -> Result<Received, WireError> {
    let mut r = Reader(datagram);
    let header = Header::decode(&mut r)?;
    Ok(read(header, has_tag(datagram), r)?.0)
}

/// Whether the format of a datagram with a header is one whose heartbeats have tags.
fn has_tag(datagram: &[u8]) -> bool {
    Format(datagram[FORMAT_AT]) >= Format::HEARTBEAT_TAGS
}

fn read(
    header: Header,
    has_tag: bool,
    mut r: Reader<'_>,
) -> Result<(Received, Option<u64>), WireError> {
    if header.kind != Kind::Heartbeat {
        return Err(WireError::Unknown {
            what: "kind of datagram here",
            value: header.kind as u64,
        });
    }
    let heartbeat = Heartbeat {
        queue_len: r.u32()?,
        service_time_ns: r.u32()?,
        busy_permille: r.u16()?,
        port_permille: r.u16()?,
        plan_version_low: r.u32()?,
    };
    let (sequence, tag) = match has_tag {
        true => (r.u32()?, Some(r.u64()?)),
        false => (0, None),
    };
    r.end()?;
    let received = Received {
        header,
        heartbeat,
        sequence,
    };
    Ok((received, tag))
}
