//! Keys that have a wanted slot: for packets that must reach the shard where state of that slot is,
//! such as answers to what a NAT sent.

/// Slots of keys (docs/abi.md).
pub const SLOTS: u16 = 4096;

/// Slot of a key: FNV-1a of 64 bits, mixed, as docs/abi.md has it.
pub fn slot_of(key: &[u8]) -> u16 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in key {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    (h % u64::from(SLOTS)) as u16
}

/// A key of that slot: the lowest number, as 4 bytes, little endian, that has it. Takes some
/// thousand steps, so who needs many keeps them.
pub fn key_of(slot: u16) -> [u8; 4] {
    let mut keys = (0..=u32::MAX).map(u32::to_le_bytes);
    let found = keys.find(|key| slot_of(key) == slot % SLOTS);
    found.unwrap_or_default()
}
