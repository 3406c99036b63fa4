//! What the tests of all crates share, so that each of them exists once: random data with seeds that
//! are printed and replayed ([`seeds`], [`Random`]), keys of a wanted slot ([`key_of`]), and the fuzz
//! harness for services ([`fuzz`]).
//!
//! Crates name it under `[dev-dependencies]` only.

mod fuzz;
mod seeds;

pub use e3_sdk::testing::slot_of;
pub use fuzz::{fuzz, fuzz_calls};
pub use seeds::{Random, seeds};

use e3_sdk::limits::SLOTS;

/// A key of that slot: the lowest number, as 4 bytes, little endian, that has it. It is found by
/// trial, in some thousand steps.
pub fn key_of(slot: u16) -> [u8; 4] {
    let mut keys = (0..=u32::MAX).map(u32::to_le_bytes);
    let found = keys.find(|key| slot_of(key) == slot % SLOTS);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_wanted_slot() {
        for slot in [0, 1, 77, 4095] {
            assert_eq!(slot_of(&key_of(slot)), slot);
        }
    }

    /// The SDK's test host is a copy that users take along; it must split keys as the platform does.
    #[test]
    fn the_test_host_splits_keys_as_the_platform_does() {
        for seed in seeds(1000) {
            let mut random = Random::new(seed);
            let len = random.index(40);
            let key = random.bytes(len);
            assert_eq!(slot_of(&key), e3_model::Slot::of(&key).0, "{key:?}");
        }
    }
}
