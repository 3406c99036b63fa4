//! The Internet checksum: in full (RFC 1071) and updated for a change (RFC 1624).

use crate::parse::Packet;
use crate::protocol;

/// One's complement sum of big-endian 16-bit words, not yet folded; an odd last byte counts as the
/// high half of a word.
fn sum(bytes: &[u8]) -> u64 {
    // Words of 32 bits give the same sum after folding (RFC 1071, 2(C)), in half the steps.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_be_bytes(*w)))
        .sum();
    let (pairs, last) = rest.as_chunks::<2>();
    for pair in pairs {
        total += u64::from(u16::from_be_bytes(*pair));
    }
    total + last.first().map_or(0, |b| u64::from(*b) << 8)
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The checksum of bytes; 0 if they hold their own checksum and it is right.
pub fn full(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The checksum that the IPv4 header must have; its own field does not count.
pub fn of_header(header: &[u8]) -> u16 {
    let own = header.get(10..12).map_or(0, sum);
    !fold(sum(header) + u64::from(!fold(own)))
}

/// The checksum that the packet's TCP, UDP or ICMP message must have, whatever its field holds;
/// `None` for other protocols, fragments, UDP without a checksum, and where the field is cut off.
/// (An UDP checksum that comes out as 0 is sent as 0xffff.)
pub fn of_transport(packet: &Packet<'_>) -> Option<u16> {
    if packet.is_fragment() {
        return None;
    }
    let message = packet.payload();
    let at = field_at(packet.protocol())?;
    let own = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
    let message = match packet.protocol() {
        protocol::UDP if own == 0 => return None,
        protocol::UDP => {
            let len = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
            message.get(..usize::from(len))?
        }
        _ => message,
    };
    let pseudo = match packet.protocol() {
        protocol::ICMP => 0,
        number => {
            let addresses = packet.bytes().get(12..20)?;
            sum(addresses) + u64::from(number) + message.len() as u64
        }
    };
    let value = !fold(sum(message) + pseudo + u64::from(!own));
    match (packet.protocol(), value) {
        (protocol::UDP, 0) => Some(0xffff),
        _ => Some(value),
    }
}

/// Where the checksum lies in a message of the protocol.
pub(crate) fn field_at(number: u8) -> Option<usize> {
    match number {
        protocol::TCP => Some(16),
        protocol::UDP => Some(6),
        protocol::ICMP => Some(2),
        _ => None,
    }
}

/// The checksum after a word of what it covers changed: `HC' = ~(~HC + ~m + m')` (RFC 1624, 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// The same for two words that changed, as an address does.
pub fn update_pair(checksum: u16, old: [u8; 4], new: [u8; 4]) -> u16 {
    !fold(u64::from(!checksum) + (sum(&old) ^ 0xffff_ffff) + sum(&new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        // RFC 1071, 3: the sum is ddf2
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(full(&bytes), !0xddf2);
        assert_eq!(full(&bytes[..7]), !0xdcfb); // without the last byte, f7
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // RFC 1624, 4: a header with checksum DD2F, a word changes from 5555 to 3285
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn updates_equal_the_sum_in_full() {
        let mut random = e3_testkit::Random::new(7);
        for round in 0..20_000 {
            let mut bytes = [0u8; 20];
            // few distinct values, so that sums of 0 and 0xffff do occur
            bytes.fill_with(|| [0, 0, 0xff, random.byte()][random.index(4)]);
            bytes[0] = 0x45; // a header is never all zero
            let before = full(&bytes);
            let old: [u8; 4] = bytes[12..16].try_into().unwrap();
            let new = (random.next_u64() as u32).to_be_bytes();
            bytes[12..16].copy_from_slice(&new);
            assert_eq!(update_pair(before, old, new), full(&bytes), "round {round}");
            let words = |b: [u8; 4]| {
                let [a, b, c, d] = b;
                (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
            };
            let once = update(before, words(old).0, words(new).0);
            assert_eq!(update(once, words(old).1, words(new).1), full(&bytes));
        }
    }
}
