//! The hash of keys: foldhash with a fixed seed, folded to 32 bits.
//!
//! Nothing depends on it beyond one process (who takes a snapshot takes its records in any order),
//! so it may change between versions.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

const SEED: u64 = 0x0065_332e_6465_7600;

/// Hash of a key.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u32 {
    let h = FixedState::with_seed(SEED).hash_one(key);
    (h ^ (h >> 32)) as u32
}

/// Hash of an array's element within the overlay.
#[inline]
pub(crate) fn with_index(hash: u32, index: u64) -> u32 {
    let h = (u64::from(hash) ^ index.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (h ^ (h >> 32)) as u32
}

/// Widens a stored hash for hashbrown, which takes the place from the low bits and a tag from the
/// top seven.
#[inline]
pub(crate) fn widen(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Digest of bytes, for comparing contents (not against an adversary). Stable.
pub(crate) fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = (h ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h
}
