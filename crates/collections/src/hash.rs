//! The hash of keys: foldhash with a seed of the process, folded to 32 bits.
//!
//! Nothing depends on it beyond one process (who takes a snapshot takes its records in any order),
//! so it may change between versions. Clients choose keys, and whoever knows the seed finds many of one hash.

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;

const SEED: u64 = 0x0065_332e_6465_7600;

static SHARED: OnceLock<SharedSeed> = OnceLock::new();

/// Makes the hashes of this process depend on a number that clients do not know. Without it they are the same in
/// every process, as simulations need it. False if there have been hashes before: then nothing changes.
pub fn seed_hashes(seed: u64) -> bool {
    SHARED.set(SharedSeed::from_u64(seed)).is_ok()
}

/// Hash of a key.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u32 {
    hash(SHARED.get_or_init(|| SharedSeed::from_u64(SEED)), key)
}

#[inline]
fn hash(shared: &'static SharedSeed, key: &[u8]) -> u32 {
    let h = SeedableRandomState::with_seed(SEED, shared).hash_one(key);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_that_collide_under_the_seed_of_one_process_do_not_under_another() {
        let seed = |n| -> &'static SharedSeed { Box::leak(Box::new(SharedSeed::from_u64(n))) };
        // Keys of one hash under a seed that everybody knows.
        let known = SharedSeed::global_fixed();
        let suffix = 0xdd50_7cc9_b729_acc0_u64.to_be_bytes();
        let key = |n: u64| [&n.to_le_bytes()[..], &suffix, &suffix].concat();
        let hashes = |shared: &'static SharedSeed| {
            let all = (0..1_000).map(|n| hash(shared, &key(n)));
            all.collect::<BTreeSet<u32>>().len()
        };
        assert_eq!(hashes(known), 1);
        assert!(hashes(seed(1)) > 990 && hashes(seed(2)) > 990);
    }
}
