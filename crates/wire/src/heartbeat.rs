//! Heartbeat: 16 bytes of payload from each node to the controller (E3, ATC 2019, section 3).

use crate::codec::{Reader, WireError, Write};
use crate::datagram::{HEADER_LEN, Header, Kind, open, seal};
use e3_model::{Format, Formats, NodeId};

/// Bytes of [`Heartbeat`] after the datagram's header.
pub const PAYLOAD_LEN: usize = 16;

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

/// A heartbeat as a whole datagram.
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

/// Reads a heartbeat datagram: sender, its incarnation, cluster, payload.
pub fn decode(accepted: Formats, datagram: &[u8]) -> Result<(Header, Heartbeat), WireError> {
    let (header, r) = open(accepted, datagram)?;
    read(header, r)
}

/// Reads a heartbeat datagram whose format, length and checksum were looked at before.
pub fn parse(datagram: &[u8]) -> Result<(Header, Heartbeat), WireError> {
    let mut r = Reader(datagram);
    let header = Header::decode(&mut r)?;
    read(header, r)
}

fn read(header: Header, mut r: Reader<'_>) -> Result<(Header, Heartbeat), WireError> {
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
    r.end()?;
    Ok((header, heartbeat))
}
