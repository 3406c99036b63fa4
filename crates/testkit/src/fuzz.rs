//! What every service must bear: any request is handled or refused, nothing panics, and what is
//! refused changes no state and sends nothing.

use crate::Random;
use e3_pipeline::status;
use e3_sdk::Service;
use e3_sdk::testing::{Call, Host};

/// Calls `service` `rounds` times with random bytes and with damaged copies of the `good` payloads,
/// under four keys. Returns how many it accepted, and how many it refused.
///
/// # Panics
/// If the service does not bear a request; the message has the seed, the round and the payload.
pub fn fuzz<S: Service>(
    host: &Host,
    service: &mut S,
    seed: u64,
    rounds: usize,
    good: &[Vec<u8>],
) -> [usize; 2] {
    let call = |random: &mut Random, _| Call {
        key: vec![random.byte() % 4],
        payload: random.pick(good).clone(),
        ..Call::default()
    };
    fuzz_calls(host, service, seed, rounds, call, |_| {})
}

/// As [`fuzz`], with calls that `good` makes for each round. After the damage, `repair` may set right
/// what would hide it, such as a checksum.
///
/// # Panics
/// As [`fuzz`] does.
pub fn fuzz_calls<S: Service>(
    host: &Host,
    service: &mut S,
    seed: u64,
    rounds: usize,
    mut good: impl FnMut(&mut Random, usize) -> Call,
    repair: impl Fn(&mut [u8]),
) -> [usize; 2] {
    let mut random = Random::new(seed);
    let mut counts = [0; 2];
    let mut before = host.state();
    for round in 0..rounds {
        let mut call = good(&mut random, round);
        if random.one_in(8) {
            let len = random.index(200);
            call.payload = random.bytes(len);
        }
        damage(&mut random, &mut call.payload);
        repair(&mut call.payload);
        let outcome = host.call(service, &call);
        let what = format!("seed {seed}, round {round}: {:?}", call.payload);
        assert_eq!(outcome.result, Ok(()), "{what}");
        let replies = outcome.replies.len();
        assert!(replies <= 1, "{what}: {replies} replies");
        assert!(
            replies + outcome.sent.len() > 0,
            "{what}: neither replied nor sent"
        );
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

/// Cuts, inserts, removes or changes up to three bytes.
fn damage(random: &mut Random, payload: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.index(payload.len() + 1);
        match random.below(4) {
            0 => payload.truncate(at),
            1 => payload.insert(at, random.byte()),
            2 if at < payload.len() => drop(payload.remove(at)),
            _ if at < payload.len() => payload[at] = random.byte(),
            _ => {}
        }
    }
}
