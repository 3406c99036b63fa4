//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_sdk::testing::{Call, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz, reply_to};
use std::collections::{BTreeMap, BTreeSet};

fn host(bits: usize) -> Host {
    Host::new()
        .collection("cells", Kind::Hash)
        .collection("bitmaps", Kind::Ordered)
        .config("bits", &bits.to_string())
}

fn record(item: &str) -> Vec<u8> {
    Builder::new()
        .field("item", Value::Text(item))
        .field("other", Value::Int(7))
        .bytes()
        .to_vec()
}

fn call(host: &Host, service: &mut Count, key: &str, now_s: i64, payload: Vec<u8>) -> Vec<u8> {
    let call = Call {
        key: key.as_bytes().to_vec(),
        now: now_s * NANOS,
        payload,
        ..Call::default()
    };
    let (status, reply) = reply_to(host, service, &call);
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(&reply));
    reply
}

fn op(op: &str) -> Vec<u8> {
    Builder::new().field("op", Value::Text(op)).bytes().to_vec()
}

fn get(host: &Host, service: &mut Count, item: &str, now_s: i64) -> i64 {
    let query = Builder::new()
        .field("op", Value::Text("get"))
        .field("item", Value::Text(item))
        .bytes()
        .to_vec();
    let reply = call(host, service, "any", now_s, query);
    Record::parse(&reply).unwrap().int("count").unwrap()
}

/// Against exact counts by item and bit, with a fresh instance in the middle.
#[test]
fn counts_are_those_of_the_cell_and_never_less_than_the_truth() {
    let host = host(1024);
    let mut random = Random::new(11);
    let mut service = Count::init().unwrap();
    let mut by_bit: BTreeMap<(u16, usize), i64> = BTreeMap::new();
    let mut exact: BTreeMap<String, i64> = BTreeMap::new();
    for round in 0..1500 {
        if round == 700 {
            service = Count::init().unwrap();
        }
        let item = format!("word-{}", random.index(20) * random.index(20));
        let key = format!("k{}", random.index(3));
        let reply = call(&host, &mut service, &key, 30, record(&item));
        let reply = Record::parse(&reply).unwrap();
        let bit = bitmap::hash(item.as_bytes()) as usize % 1024;
        let cell = by_bit.entry((slot_of(key.as_bytes()), bit)).or_default();
        *cell += 1;
        assert_eq!(reply.int("count"), Ok(*cell), "round {round}");
        assert_eq!(
            (reply.int("other"), reply.text("item")),
            (Ok(7), Ok(&*item))
        );
        *exact.entry(item).or_default() += 1;
    }
    let mut wrong = 0;
    for (item, count) in &exact {
        let got = get(&host, &mut service, item, 30);
        assert!(got >= *count, "{item}: {got} < {count}");
        wrong += usize::from(got != *count);
    }
    // about n (1 - e^(-n/m)) of n items share a bit
    assert!(wrong < exact.len() / 4, "{wrong} of {}", exact.len());
    let bit = bitmap::hash(b"never") as usize % 1024;
    let at_bit: i64 = (0..4096).filter_map(|slot| by_bit.get(&(slot, bit))).sum();
    assert_eq!(get(&host, &mut service, "never", 30), at_bit);
}

#[test]
fn a_new_window_begins_at_nothing() {
    let host = host(1024);
    let mut service = Count::init().unwrap();
    for (now_s, count) in [(59, 1), (59, 2), (60, 1), (119, 2), (240, 1)] {
        let reply = call(&host, &mut service, "k", now_s, record("a"));
        assert_eq!(Record::parse(&reply).unwrap().int("count"), Ok(count));
    }
    assert_eq!(get(&host, &mut service, "a", 240), 1);
    assert_eq!(get(&host, &mut service, "a", 300), 0);
    let reply = call(&host, &mut service, "k", 301, op("report"));
    let reply = Record::parse(&reply).unwrap();
    assert_eq!(reply.number("distinct"), Ok(0.0));
    assert_eq!(reply.int("window_s"), Ok(300));
}

#[test]
fn arrays_count_each_element_in_turn() {
    let host = host(1024);
    let mut service = Count::init().unwrap();
    let payload = Builder::new()
        .array("item", 3, |a| {
            ["a", "b", "a"].iter().for_each(|t| a.push(Value::Text(t)));
        })
        .bytes()
        .to_vec();
    let reply = call(&host, &mut service, "k", 0, payload);
    let reply = Record::parse(&reply).unwrap();
    assert_eq!(reply.numbers("count", 3), Ok(vec![1.0, 1.0, 2.0]));
}

/// The estimate's error over many runs is the stated one.
#[test]
fn the_standard_error_is_the_stated_one() {
    for load in [0.2, 1.0, 3.0] {
        let (m, runs) = (1024, 400);
        let n = (load * f64::from(m)) as usize;
        let mut squares = 0.0;
        let mut stated = 0.0;
        for run in 0..runs {
            let mut map = vec![0; m as usize / 8];
            for i in 0..n {
                let bit = bitmap::hash(format!("{run}/{i}").as_bytes()) as usize % m as usize;
                bitmap::set(&mut map, bit);
            }
            let estimate = bitmap::estimate(&map);
            squares += (estimate.items - n as f64).powi(2);
            stated += estimate.error;
        }
        let (seen, stated) = ((squares / f64::from(runs)).sqrt(), stated / f64::from(runs));
        let ratio = seen / stated;
        assert!((0.85..1.15).contains(&ratio), "load {load}: {ratio}");
    }
    let full = bitmap::estimate(&[255; 128]);
    assert!(full.saturated && full.items > 7000.0);
}

/// Two shards of the halves of the slots hold together what one shard of all holds.
#[test]
fn a_shard_can_be_split() {
    let run = |accepts: &dyn Fn(u16) -> bool| {
        let host = host(1024);
        let mut service = Count::init().unwrap();
        let mut random = Random::new(5);
        for _ in 0..400 {
            let key = format!("key{}", random.index(50));
            let item = format!("item{}", random.index(300));
            if accepts(slot_of(key.as_bytes())) {
                call(&host, &mut service, &key, 10, record(&item));
            }
        }
        let report = call(&host, &mut service, "k", 10, op("report"));
        let report = Record::parse(&report).unwrap();
        let set: BTreeSet<String> = (0..300)
            .map(|i| format!("item{i}"))
            .filter(|i| get(&host, &mut service, i, 10) > 0)
            .collect();
        (
            host.state(),
            report.int("slots").unwrap(),
            report.int("set_bits").unwrap(),
            set,
        )
    };
    let entries = |state: Vec<(String, e3_sdk::testing::Collection)>| -> BTreeMap<_, _> {
        use e3_sdk::testing::Collection::{Hash, Ordered};
        let each = state.into_iter().flat_map(|(name, c)| match c {
            Hash(map) | Ordered(map) => map.into_iter().map(move |(k, v)| ((name.clone(), k), v)),
            _ => unreachable!(),
        });
        each.collect()
    };
    let (low, high, all) = (run(&|s| s < 2048), run(&|s| s >= 2048), run(&|_| true));
    let mut both = entries(low.0);
    both.extend(entries(high.0));
    assert_eq!(both, entries(all.0));
    assert_eq!(low.1 + high.1, all.1);
    assert_eq!(&low.3 | &high.3, all.3);
    assert!(all.2 <= low.2 + high.2);
}

#[test]
fn faults_are_named_and_change_nothing() {
    let host = host(1024);
    let mut service = Count::init().unwrap();
    let error = |service: &mut Count, payload: &[u8]| {
        let call = Call {
            payload: payload.to_vec(),
            ..Call::default()
        };
        let outcome = host.call(service, &call);
        assert_eq!(outcome.replies[0].0, status::MALFORMED);
        String::from_utf8(outcome.replies[0].1.clone()).unwrap()
    };
    let mut b = Builder::new();
    assert_eq!(error(&mut service, b.bytes()), "field \"item\": is missing");
    b.clear().field("item", Value::Float(0.5));
    assert_eq!(
        error(&mut service, b.bytes()),
        "field \"item\": is a number, must be text, bytes, a whole number or an array of texts"
    );
    b.clear().array("item", 65, |a| {
        (0..65).for_each(|_| a.push(Value::Text("x")));
    });
    assert_eq!(
        error(&mut service, b.bytes()),
        "field \"item\": has 65 elements, must be at most 64"
    );
    assert_eq!(
        error(&mut service, &op("flush")),
        "field \"op\": is \"flush\", must be \"report\" or \"get\""
    );
    let many = Builder::new()
        .array("item", 2, |a| {
            ["a", "b"].iter().for_each(|t| a.push(Value::Text(t)));
        })
        .bytes()
        .to_vec();
    let get = Builder::new()
        .field("op", Value::Text("get"))
        .field("item", Value::Text("a"))
        .bytes()
        .to_vec();
    let good = [record("item"), many, get, op("report")];
    fuzz(&host, &mut service, 3, 20_000, &good);
    let _ = Host::new()
        .collection("cells", Kind::Hash)
        .collection("bitmaps", Kind::Ordered)
        .config("bits", "1000");
    assert!(matches!(
        Count::init(),
        Err(Error::Config { name: "bits", .. })
    ));
}
