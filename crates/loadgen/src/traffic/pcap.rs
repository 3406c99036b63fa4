//! Captures in the classic format of libpcap (`man pcap-savefile`): a header of 24 bytes, and for each
//! packet one of 16 bytes and what was captured. Both orders of bytes, times in micro- and nanoseconds;
//! packets as they are (link types RAW and IPV4) or in Ethernet frames, with up to two VLAN tags.
//!
//! The format is read here: the crate `pcap-file` names neither the number nor the lengths of a record that
//! is damaged or cut off, and an error here names both, the byte at which the record starts, and what to do.
//!
//! A request is an IPv4 packet. Its key is the address of its private end (RFC 1918), the source
//! before the destination, so that all packets of one inside host have one key, as address translation
//! needs it; if no end is private, the flow, the same for both directions.

use super::items::{Fault, Item, Place, Since, Traffic, push};
use crate::limits::CAPTURED_LEN_MAX;
use e3_packet::Packet;

const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;
/// Tags of a frame at most: one of the customer's and one of the provider's.
const VLAN_TAGS_MAX: usize = 2;
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// What lies around a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Ethernet,
    Raw,
}

struct Header {
    big_endian: bool,
    /// Nanoseconds of a unit of the times' second part, and units of a second.
    unit: (i128, u32),
    link: Link,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Header, String> {
        let magic = *bytes
            .first_chunk::<4>()
            .ok_or("is empty or shorter than 4 bytes, not a pcap file")?;
        let (micros, nanos) = ((1000, 1_000_000), (1, 1_000_000_000));
        let (big_endian, unit) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, micros),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, micros),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, nanos),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, nanos),
            PCAPNG => {
                return Err(
                    "is pcapng, must be pcap; convert it with: editcap -F pcap IN OUT".into(),
                );
            }
            _ => {
                let [a, b, c, d] = magic;
                return Err(format!(
                    "is not a pcap file: begins with {a:02x}{b:02x}{c:02x}{d:02x}, must be d4c3b2a1 (libpcap)"
                ));
            }
        };
        let mut header = Header {
            big_endian,
            unit,
            link: Link::Raw,
        };
        if bytes.len() < FILE_HEADER {
            let len = bytes.len();
            return Err(format!("has {len} bytes, a header has {FILE_HEADER}"));
        }
        // the high bits say what is at the end of a frame, which an IPv4 packet's length cuts off
        header.link = match header.u32(bytes, 20) & 0xffff {
            1 => Link::Ethernet,
            12 | 101 | 228 => Link::Raw,
            other => {
                return Err(format!(
                    "link type is {other}, must be 1 (Ethernet), 101 (raw) or 228 (IPv4)"
                ));
            }
        };
        Ok(header)
    }

    /// Panics if there are no four bytes.
    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian {
            u32::from_be_bytes(four)
        } else {
            u32::from_le_bytes(four)
        }
    }
}

/// The IPv4 packet within what was captured; None if there is another protocol.
fn ipv4(link: Link, frame: &[u8]) -> Option<&[u8]> {
    let packet = match link {
        Link::Raw => frame,
        Link::Ethernet => {
            let mut at = ETHERNET_HEADER - 2;
            for _ in 0..VLAN_TAGS_MAX {
                if matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
                    at += VLAN_TAG;
                }
            }
            match frame.get(at..at + 2)? {
                [0x08, 0x00] => frame.get(at + 2..)?,
                _ => return None,
            }
        }
    };
    match link {
        Link::Raw if packet.first().is_none_or(|first| first >> 4 != 4) => None,
        _ => Some(packet),
    }
}

fn key(packet: &Packet<'_>) -> Result<Vec<u8>, e3_packet::PacketError> {
    let ends = [packet.source(), packet.destination()];
    match ends.into_iter().find(|end| end.is_private()) {
        Some(inside) => Ok(inside.octets().to_vec()),
        None => Ok(packet.flow()?.canonical().to_bytes().to_vec()),
    }
}

/// Reads a capture. Frames of other protocols are left out; a packet that was cut short, or whose
/// lengths contradict each other, is an error.
pub fn parse(bytes: &[u8]) -> Result<Traffic, Fault> {
    let header = Header::parse(bytes).map_err(|why| Fault::new(Place::File, why))?;
    let (mut items, mut left_out) = (Vec::new(), 0);
    let mut since = Since::default();
    let mut byte = FILE_HEADER;
    for number in 1.. {
        if byte == bytes.len() {
            break;
        }
        let place = Place::Packet { number, byte };
        let wrong = |why: String| Fault::new(place, why);
        let rest = &bytes[byte..];
        if rest.len() < PACKET_HEADER {
            let why = format!("is cut off: {} of 16 bytes of its header", rest.len());
            return Err(wrong(why));
        }
        let [seconds, fraction, captured, length] = [0, 4, 8, 12].map(|at| header.u32(rest, at));
        if captured > CAPTURED_LEN_MAX {
            return Err(wrong(format!(
                "has {captured} bytes, must have at most {CAPTURED_LEN_MAX}: the file is damaged here or before"
            )));
        }
        if fraction >= header.unit.1 {
            return Err(wrong(format!(
                "time has a fraction of {fraction}, must be below {}: the file is damaged here or before",
                header.unit.1
            )));
        }
        let len = captured as usize;
        let Some(frame) = rest.get(PACKET_HEADER..PACKET_HEADER + len) else {
            let there = rest.len() - PACKET_HEADER;
            return Err(wrong(format!("is cut off: {there} of its {len} bytes")));
        };
        byte += PACKET_HEADER + len;
        let at =
            since.of(i128::from(seconds) * 1_000_000_000 + i128::from(fraction) * header.unit.0);
        let Some(packet) = ipv4(header.link, frame) else {
            left_out += 1;
            continue;
        };
        if captured < length {
            let why =
                format!("has {captured} of {length} bytes: the capture cut it short (snap length)");
            return Err(wrong(why));
        }
        let packet = Packet::parse(packet).map_err(|fault| wrong(fault.to_string()))?;
        let key = key(&packet).map_err(|fault| wrong(fault.to_string()))?;
        let payload = packet.bytes().to_vec();
        push(&mut items, place, Item { at, key, payload })?;
    }
    Ok(Traffic {
        items,
        what: "packets",
        timed: true,
        left_out,
    })
}
