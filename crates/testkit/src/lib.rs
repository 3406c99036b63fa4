//! What the tests of all crates share, so that each of them exists once: random data with seeds that
//! are printed and replayed ([`seeds`], [`Random`]), keys of a wanted slot ([`key_of`]), the one reply of
//! a service ([`reply_to`]), and the fuzz harness for services ([`fuzz`]).
//!
//! Crates name it under `[dev-dependencies]` only.

mod fuzz;
mod seeds;

pub use e3_sdk::testing::slot_of;
pub use fuzz::{fuzz, fuzz_calls};
pub use seeds::{Random, seeds};

use e3_sdk::Service;
use e3_sdk::limits::SLOTS;
use e3_sdk::testing::{Call, Host};

/// Status and content of the one reply to a request, which the service must handle.
pub fn reply_to(host: &Host, service: &mut impl Service, call: &Call) -> (u32, Vec<u8>) {
    let mut outcome = host.call(service, call);
    assert_eq!((outcome.result, outcome.replies.len()), (Ok(()), 1));
    outcome.replies.remove(0)
}

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
