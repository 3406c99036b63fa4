//! For the unit tests of services: a small generator of random numbers, and what every service must
//! bear (any payload: a reply, no panic, and no state changed by what is refused).

use crate::status;
use e3_sdk::Service;
use e3_sdk::testing::{Call, Host};

/// Steele, Lea and Flood's SplitMix64: small, seeded, good enough for tests.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Gives `service` `rounds` payloads: random bytes, and `good` ones with bytes changed, taken out and
/// put in. None may fail the attempt, and one that is refused must leave no trace.
///
/// # Panics
/// If one does; the message has the seed.
pub fn fuzz<S: Service>(
    host: &Host,
    service: &mut S,
    seed: u64,
    rounds: usize,
    good: &[Vec<u8>],
) -> [usize; 2] {
    let mut random = Random(seed);
    let mut counts = [0; 2];
    let mut before = host.state();
    for round in 0..rounds {
        let mut payload = match random.below(8) {
            0 => (0..random.below(80)).map(|_| random.next() as u8).collect(),
            _ => good[random.below(good.len())].clone(),
        };
        for _ in 0..random.below(4) {
            let at = random.below(payload.len() + 1);
            match random.below(4) {
                0 => payload.truncate(at),
                1 => payload.insert(at, random.next() as u8),
                2 if at < payload.len() => drop(payload.remove(at)),
                _ if at < payload.len() => payload[at] = random.next() as u8,
                _ => {}
            }
        }
        let key = vec![random.next() as u8 % 4];
        let call = Call {
            key,
            payload,
            ..Call::default()
        };
        let outcome = host.call(service, &call);
        let what = format!("seed {seed}, round {round}: {:?}", call.payload);
        assert_eq!(outcome.result, Ok(()), "{what}");
        let refused = outcome.replies.iter().any(|(s, _)| *s != status::OK);
        let after = host.state();
        if refused {
            assert!(outcome.sent.is_empty(), "{what}: refused and sent on");
            assert!(after == before, "{what}: refused and written");
        }
        counts[usize::from(refused)] += 1;
        before = after;
    }
    counts
}
