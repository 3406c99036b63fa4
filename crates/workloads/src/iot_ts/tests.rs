//! What thermostats send.

use super::*;
use crate::readback::queries::done;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Update {
    user: String,
    expiry: i64,
    token: ciborium::Value,
    time: i64,
}

fn workload(seed: u64) -> IotTs {
    let token_key = b"key".to_vec();
    let now = Timestamp(1_000_000_000_000);
    IotTs::new(Settings {
        seed,
        thermostats: 10,
        token_key,
        now,
        run: "r1".into(),
    })
    .unwrap()
}

fn stored(row: u64) -> Reply {
    done(&BTreeMap::from([("row", row)]))
}

fn calls(seed: u64, count: usize) -> Vec<Call> {
    let mut w = workload(seed);
    (0..count)
        .map(|_| {
            let call = w.next().unwrap();
            w.on_outcome(call.tag, Some(&stored(1)));
            call
        })
        .collect()
}

#[test]
fn the_seed_decides_everything() {
    assert_eq!(calls(1, 3000), calls(1, 3000));
    assert_ne!(calls(1, 3000), calls(2, 3000));
}

#[test]
fn a_thermostat_sends_the_same_whatever_the_others_do() {
    let mut w = workload(1);
    let mut alone = vec![];
    let first = w.next().unwrap();
    while w.next().is_some() {}
    alone.push(first);
    for _ in 0..100 {
        w.on_outcome(0, Some(&stored(1)));
        alone.push(w.next().unwrap());
        assert_eq!(w.next(), None, "the others wait for their answers");
    }
    let together: Vec<_> = calls(1, 1010).into_iter().filter(|c| c.tag == 0).collect();
    assert_eq!(alone, together);
}

#[test]
fn readings_follow_the_hours_with_few_spikes_and_bad_tokens() {
    let (mut bad, mut good) = (0, 0);
    let mut w = workload(5);
    let mut last = BTreeMap::new();
    for _ in 0..20_000 {
        let call = w.next().unwrap();
        let Update {
            user,
            expiry,
            token,
            time,
        } = ciborium::from_reader(&call.payload[..]).unwrap();
        assert_eq!(call.key, user.as_bytes());
        let expected = TokenKey::new(b"key").mint(&user, expiry);
        let valid = token.as_bytes().unwrap() == &expected.tag && expiry > 1000;
        if valid {
            good += 1;
            let before = last.insert(user, time);
            assert!(before.is_none_or(|t| time == t + HOUR_S));
            assert!(w.on_outcome(call.tag, Some(&stored(1))).expected);
        } else {
            bad += 1;
            assert!(
                !w.on_outcome(call.tag, Some(&stored(1))).expected,
                "taken wrongly"
            );
        }
    }
    assert!((100..300).contains(&bad), "{bad} of {good}");
    let spikes = w
        .thermostats
        .iter()
        .flat_map(|t| &t.sent)
        .filter(|s| s.spike)
        .count();
    assert!((60..150).contains(&spikes), "{spikes} of {good}");
}

#[test]
fn thermostats_suit_rate_and_duration() {
    let count = |rate_rps, seconds| {
        let duration = std::time::Duration::from_secs(seconds);
        let inputs = Inputs {
            rate_rps,
            duration,
            ..Inputs::default()
        };
        Settings::new(&inputs, vec![]).thermostats
    };
    assert_eq!(count(10.0, 10), 10);
    assert_eq!(count(1000.0, 15), 1000);
    assert_eq!(count(40_000.0, 15), 2000);
}
