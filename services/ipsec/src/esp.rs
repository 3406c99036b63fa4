//! ESP in tunnel mode: packets in, packets out. No state: sequence numbers come from outside.
//!
//! Sources: RFC 4303 (ESP), RFC 3602 (AES-CBC in it), RFC 2404 (HMAC-SHA1-96), RFC 4301 section
//! 5.1.2 (outer header), RFC 1071 (its checksum).
//!
//! ```text
//! outer IPv4 header | SPI | sequence | IV | packet, padding, its length, 4 | ICV
//!   20                4     4          16   a multiple of 16                 12
//! ```
//!
//! The IV is a block with the SPI and the sequence number, combined with the epoch of the SA
//! ([`crate::association`]) by exclusive or, and encrypted under the SA's key: never the same twice under a
//! key, not even a given one that outlives its epoch, and unpredictable without the key (NIST SP 800-38A,
//! appendix C). That takes no work of its own: with such a block in front and an IV of zero, CBC makes
//! the IV the first block of the ciphertext.

use crate::association::Epoch;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;
use e3_packet::{HEADER_BYTES_MIN, Packet, checksum};
use e3_sdk::Error;
use e3_sdk::accel::{AesCbc, HmacSha1, same_tag};

/// Bytes of the outer header.
const IPV4_LEN: usize = HEADER_BYTES_MIN;
/// Bytes of SPI and sequence number.
const HEAD_LEN: usize = 8;
/// Bytes of a cipher block, and of the IV.
const BLOCK_LEN: usize = 16;
/// Bytes of the truncated tag.
const ICV_LEN: usize = 12;
/// Protocol number of ESP.
const PROTOCOL_ESP: u8 = 50;
/// Next header: an IPv4 packet.
const NEXT_IPV4: u8 = 4;
/// Next header: a dummy packet, which hides the amount of traffic.
const NEXT_NONE: u8 = 59;
/// Longest packet that fits with its encapsulation.
pub const PACKET_LEN_MAX: usize = 32 * 1024 - IPV4_LEN - HEAD_LEN - 2 * BLOCK_LEN - ICV_LEN - 2;

/// Why a packet is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EspError {
    /// Not a valid IPv4 packet.
    Packet(e3_packet::PacketError),
    /// Shorter than the shortest ESP packet.
    Short {
        /// Bytes there are.
        len: usize,
        /// Bytes there must be.
        min: usize,
    },
    /// Longer than the tunnel can carry.
    Long(usize),
    /// Not ESP.
    Protocol(u8),
    /// For another destination.
    Destination(Ipv4Addr),
    /// The ciphertext is not whole blocks.
    Blocks(usize),
    /// The tag is wrong.
    Tag,
    /// The padding is not 1, 2, 3 and so on.
    Padding,
    /// The payload is not IPv4.
    NextHeader(u8),
}

impl EspError {
    /// Whether the packet is well-formed but must be refused.
    pub fn is_refusal(&self) -> bool {
        matches!(self, EspError::Tag | EspError::Destination(_))
    }
}

impl fmt::Display for EspError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EspError::Packet(error) => error.fmt(f),
            EspError::Short { len, min } => {
                write!(f, "esp: has {len} bytes, must be at least {min}")
            }
            EspError::Long(len) => {
                write!(
                    f,
                    "packet: has {len} bytes, must be at most {PACKET_LEN_MAX}"
                )
            }
            EspError::Protocol(p) => write!(f, "packet: protocol is {p}, must be {PROTOCOL_ESP}"),
            EspError::Destination(to) => {
                write!(f, "packet: destination is {to}, not this end of the tunnel")
            }
            EspError::Blocks(len) => {
                write!(
                    f,
                    "esp: ciphertext has {len} bytes, must be a multiple of 16"
                )
            }
            EspError::Tag => f.write_str("esp: the integrity check value is wrong"),
            EspError::Padding => f.write_str("esp: the padding must be 1, 2, 3 and so on"),
            EspError::NextHeader(n) => write!(f, "esp: next header is {n}, must be {NEXT_IPV4}"),
        }
    }
}

/// Addresses of a tunnel's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Where it begins.
    pub source: Ipv4Addr,
    /// Where it ends.
    pub destination: Ipv4Addr,
}

/// Keys of a security association.
#[derive(Debug)]
pub struct Keys {
    cipher: AesCbc,
    tag: HmacSha1,
}

/// Bytes of the cipher's key.
pub const CIPHER_KEY_LEN: usize = 16;
/// Bytes of the tag's key.
pub const TAG_KEY_LEN: usize = 20;

impl Keys {
    /// From 16 bytes for the cipher and 20 for the tag.
    pub fn new(cipher: &[u8; CIPHER_KEY_LEN], tag: &[u8; TAG_KEY_LEN]) -> Result<Keys, Error> {
        Ok(Keys {
            cipher: AesCbc::new(cipher)?,
            tag: HmacSha1::new(tag)?,
        })
    }
}

/// A word that the caller knows to exist.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn ipv4(bytes: &[u8]) -> Result<Packet<'_>, EspError> {
    let packet = Packet::parse(bytes).map_err(EspError::Packet)?;
    packet.check_header().map_err(EspError::Packet)?;
    Ok(packet)
}

/// Reads a packet that is to be sealed.
pub fn plain(bytes: &[u8]) -> Result<Packet<'_>, EspError> {
    match ipv4(bytes)? {
        packet if packet.bytes().len() > PACKET_LEN_MAX => {
            Err(EspError::Long(packet.bytes().len()))
        }
        packet => Ok(packet),
    }
}

/// Replaces `out` by the ESP packet that carries `packet`, which [`plain`] has parsed.
pub fn seal(
    keys: &Keys,
    tunnel: &Tunnel,
    (spi, epoch): (u32, &Epoch),
    sequence: u32,
    packet: &Packet<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let packet = packet.bytes();
    let pad_len = (BLOCK_LEN - (packet.len() + 2) % BLOCK_LEN) % BLOCK_LEN;
    let text_len = packet.len() + pad_len + 2;
    let total_len = IPV4_LEN + HEAD_LEN + BLOCK_LEN + text_len + ICV_LEN;
    out.clear();
    out.reserve(total_len);

    // type of service and "don't fragment" are the inner packet's
    let mut outer = [0; IPV4_LEN];
    outer[0] = 0x45;
    outer[1] = packet[1];
    outer[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
    outer[4..6].copy_from_slice(&(sequence as u16).to_be_bytes());
    outer[6] = packet[6] & 0x40;
    outer[8] = 64;
    outer[9] = PROTOCOL_ESP;
    outer[12..16].copy_from_slice(&tunnel.source.octets());
    outer[16..].copy_from_slice(&tunnel.destination.octets());
    let sum = checksum::of_header(&outer).to_be_bytes();
    outer[10..12].copy_from_slice(&sum);
    out.extend_from_slice(&outer);

    let (spi, sequence) = (spi.to_be_bytes(), sequence.to_be_bytes());
    out.extend_from_slice(&spi);
    out.extend_from_slice(&sequence);
    // the block that becomes the IV
    let mut block = *epoch;
    let number = spi.iter().chain(&sequence);
    block.iter_mut().zip(number).for_each(|(a, b)| *a ^= b);
    out.extend_from_slice(&block);
    out.extend_from_slice(packet);
    out.extend_from_slice(&PADDING[..pad_len]);
    out.extend_from_slice(&[pad_len as u8, NEXT_IPV4]);
    let esp = &mut out[IPV4_LEN..];
    keys.cipher.encrypt(&[0; BLOCK_LEN], &mut esp[HEAD_LEN..])?;
    let tag = keys.tag.tag(esp)?;
    out.extend_from_slice(&tag[..ICV_LEN]);
    Ok(())
}

const PADDING: [u8; BLOCK_LEN] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// An ESP packet whose form is right; nothing of it is known to be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// Which association.
    pub spi: u32,
    /// Its number.
    pub sequence: u32,
    /// From the SPI to the end of the ciphertext.
    covered: &'a [u8],
    icv: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// Looks at a packet that came in at the end of the tunnel.
    pub fn parse(packet: &'a [u8], tunnel: &Tunnel) -> Result<Sealed<'a>, EspError> {
        let packet = ipv4(packet)?;
        if packet.protocol() != PROTOCOL_ESP {
            return Err(EspError::Protocol(packet.protocol()));
        }
        if packet.is_fragment() {
            let offset = packet.fragment_offset();
            return Err(EspError::Packet(e3_packet::PacketError::Fragment {
                offset,
            }));
        }
        if packet.destination() != tunnel.destination {
            return Err(EspError::Destination(packet.destination()));
        }
        let (len, min) = (packet.payload().len(), HEAD_LEN + 2 * BLOCK_LEN + ICV_LEN);
        if len < min {
            return Err(EspError::Short { len, min });
        }
        let (covered, icv) = packet.payload().split_at(len - ICV_LEN);
        let text_len = covered.len() - HEAD_LEN - BLOCK_LEN;
        if !text_len.is_multiple_of(BLOCK_LEN) {
            return Err(EspError::Blocks(text_len));
        }
        Ok(Sealed {
            spi: word(covered, 0),
            sequence: word(covered, 4),
            covered,
            icv,
        })
    }

    /// Whether these keys made its integrity check value.
    pub fn is_authentic(&self, keys: &Keys) -> Result<bool, Error> {
        let tag = keys.tag.tag(self.covered)?;
        Ok(same_tag(&tag[..ICV_LEN], self.icv))
    }

    /// Verifies it, and replaces `out` by the packet that it carries; `None` for a dummy.
    pub fn open<'b>(
        &self,
        keys: &Keys,
        out: &'b mut Vec<u8>,
    ) -> Result<Result<Option<&'b [u8]>, EspError>, Error> {
        if !self.is_authentic(keys)? {
            return Ok(Err(EspError::Tag));
        }
        let (iv, text) = self.covered[HEAD_LEN..].split_at(BLOCK_LEN);
        let mut first = [0; BLOCK_LEN];
        first.copy_from_slice(iv);
        out.clear();
        out.extend_from_slice(text);
        keys.cipher.decrypt(&first, out)?;
        Ok(inner(out))
    }
}

/// What a decrypted text carries.
fn inner(text: &[u8]) -> Result<Option<&[u8]>, EspError> {
    // it has at least one block
    let (rest, last) = text.split_at(text.len() - 2);
    let (pad_len, next) = (usize::from(last[0]), last[1]);
    let Some(len) = rest.len().checked_sub(pad_len) else {
        return Err(EspError::Padding);
    };
    let (packet, padding) = rest.split_at(len);
    if !padding.iter().zip(1..=255).all(|(is, must)| *is == must) {
        return Err(EspError::Padding);
    }
    match next {
        NEXT_IPV4 => ipv4(packet).map(|packet| Some(packet.bytes())),
        NEXT_NONE => Ok(None),
        _ => Err(EspError::NextHeader(next)),
    }
}
