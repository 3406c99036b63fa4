//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_sdk::testing::{Call, Collection, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz, reply_to};
use std::collections::BTreeMap;

fn host(keep: &str) -> Host {
    Host::new()
        .collection("scores", Kind::Ordered)
        .config("keep", keep)
        .config("k", "5")
}

fn record(items: &[String], scores: &[f64]) -> Vec<u8> {
    Builder::new()
        .array("items", items.len(), |a| {
            items.iter().for_each(|i| a.push(Value::Text(i)));
        })
        .array("scores", scores.len(), |a| {
            scores.iter().for_each(|s| a.push(Value::Float(*s)));
        })
        .bytes()
        .to_vec()
}

fn op_top() -> Vec<u8> {
    let mut b = Builder::new();
    b.field("op", Value::Text("top")).bytes().to_vec()
}

fn call(host: &Host, service: &mut TopRanker, key: &str, now_s: i64, payload: Vec<u8>) -> Vec<u8> {
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

fn best(reply: &[u8]) -> Vec<(String, f64)> {
    let record = Record::parse(reply).unwrap();
    let items = record.texts("top", K_MAX).unwrap();
    let scores = record.numbers("top_scores", K_MAX).unwrap();
    let items = items.iter().map(ToString::to_string);
    items.zip(scores).collect()
}

/// By sorting everything.
fn naive(mut all: Vec<(String, f64)>, k: usize) -> Vec<(String, f64)> {
    all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}

#[test]
fn the_best_of_a_record_are_those_of_sorting_it() {
    let host = host("no");
    let mut service = TopRanker::init().unwrap();
    let mut random = Random::new(1);
    for round in 0..500 {
        let n = random.index(if round % 50 == 0 { 1024 } else { 40 });
        let items: Vec<_> = (0..n).map(|_| format!("i{}", random.index(30))).collect();
        // many ties, both zeros
        let scores: Vec<_> = (0..n)
            .map(|_| (random.index(7) as f64 - 3.0) * if random.index(2) == 0 { 1.0 } else { -0.5 })
            .collect();
        let reply = call(&host, &mut service, "k", 0, record(&items, &scores));
        let expected = naive(items.into_iter().zip(scores).collect(), 5);
        assert_eq!(best(&reply), expected, "round {round}");
    }
}

#[test]
fn selects_and_sorts_any_shape_of_input() {
    let mut random = Random::new(2);
    let mut pivots = Random::new(PIVOT_SEED);
    for n in [0, 1, 2, 3, 15, 16, 17, 18, 100, 5000] {
        let shapes: [Vec<u32>; 5] = [
            (0..n).collect(),
            (0..n).rev().collect(),
            (0..n).map(|_| random.next_u64() as u32).collect(),
            (0..n).map(|i| i % 3).collect(),
            vec![7; n as usize],
        ];
        for mut all in shapes
            .into_iter()
            .map(|s| s.into_iter().zip(0u32..).collect::<Vec<_>>())
        {
            for k in [0, 1, 2, 17, 100, 6000] {
                let mut sorted = all.clone();
                sorted.sort();
                sorted.truncate(k);
                let count = top(&mut all, k, &mut pivots, &|a, b| a < b);
                assert_eq!(&all[..count], sorted, "n {n}, k {k}");
            }
        }
    }
}

/// Running scores against a map, over split shards and a fresh instance.
#[test]
fn running_scores_equal_a_map_and_shards_can_be_split() {
    for (keep, join) in [
        ("last", (|_, b| b) as fn(f64, f64) -> f64),
        ("sum", |a, b| a + b),
        ("max", f64::max),
    ] {
        let run = |accepts: &dyn Fn(u16) -> bool| {
            let host = host(keep);
            let mut service = TopRanker::init().unwrap();
            let mut random = Random::new(3);
            let mut model: BTreeMap<(u16, String), f64> = BTreeMap::new();
            for round in 0..400 {
                if round == 200 {
                    service = TopRanker::init().unwrap();
                }
                let key = format!("topic{}", random.index(9));
                let slot = slot_of(key.as_bytes());
                let items: Vec<_> = (0..2)
                    .map(|_| format!("{key}/{}", random.index(60)))
                    .collect();
                let scores: Vec<_> = (0..2).map(|_| random.index(100) as f64).collect();
                if !accepts(slot) {
                    continue;
                }
                call(&host, &mut service, &key, 0, record(&items, &scores));
                for (item, score) in items.into_iter().zip(scores) {
                    let entry = model.entry((slot, item));
                    entry.and_modify(|s| *s = join(*s, score)).or_insert(score);
                }
            }
            let reply = call(&host, &mut service, "k", 0, op_top());
            let all: Vec<_> = model.into_iter().map(|((_, i), s)| (i, s)).collect();
            let count = Record::parse(&reply).unwrap().int("items");
            assert_eq!(count, Ok(all.len() as i64));
            assert_eq!(best(&reply), naive(all.clone(), 5), "{keep}");
            (host.state(), all)
        };
        let (low, high, all) = (run(&|s| s < 2048), run(&|s| s >= 2048), run(&|_| true));
        let [
            Collection::Ordered(mut low),
            Collection::Ordered(high),
            Collection::Ordered(all),
        ] = [low.0, high.0, all.0].map(|mut s| s.remove(0).1)
        else {
            panic!("kinds");
        };
        assert!(!low.is_empty() && !high.is_empty());
        low.extend(high);
        assert_eq!(low, all);
    }
}

#[test]
fn windows_begin_anew_and_old_items_are_dropped() {
    let host = host("sum").config("window-s", "60");
    let mut service = TopRanker::init().unwrap();
    for round in 0..600 {
        let item = [format!("item{:03}", round * 7 % 200)];
        call(
            &host,
            &mut service,
            "k",
            round / 100 * 60,
            record(&item, &[1.0]),
        );
    }
    let reply = call(&host, &mut service, "k", 300, op_top());
    let record_of = Record::parse(&reply).unwrap();
    assert_eq!(record_of.int("items"), Ok(100));
    assert!(best(&reply).iter().all(|(_, s)| *s == 1.0));
    let reply = call(&host, &mut service, "k", 360, op_top());
    assert_eq!(best(&reply), []);
    // one item a window for long: the others go
    for round in 0..200 {
        let item = [format!("new{round:03}")];
        call(
            &host,
            &mut service,
            "k",
            400 + round * 60,
            record(&item, &[1.0]),
        );
        let item = ["a".to_string() + &item[0]];
        call(
            &host,
            &mut service,
            "k",
            400 + round * 60,
            record(&item, &[1.0]),
        );
    }
    let Collection::Ordered(map) = host.state().remove(0).1 else {
        panic!("kind")
    };
    assert!(map.len() < 210, "{}", map.len());
}

/// More items than a query holds at once.
#[test]
fn ranks_more_items_than_are_held_at_once() {
    let host = host("last");
    let mut service = TopRanker::init().unwrap();
    let mut all = Vec::new();
    for round in 0..150 {
        let items: Vec<_> = (0..64).map(|i| format!("item-{round}-{i}")).collect();
        let scores: Vec<_> = (0..64)
            .map(|i| f64::from((round * 64 + i) * 7919 % 9973))
            .collect();
        call(&host, &mut service, "k", 0, record(&items, &scores));
        all.extend(items.into_iter().zip(scores));
    }
    let reply = call(&host, &mut service, "k", 0, op_top());
    assert_eq!(best(&reply), naive(all.clone(), 5));
    let query = Builder::new()
        .field("op", Value::Text("top"))
        .field("k", Value::Int(1000))
        .bytes()
        .to_vec();
    let reply = call(&host, &mut service, "k", 0, query);
    assert_eq!(best(&reply), naive(all, 1000));
}

#[test]
fn faults_are_named_and_change_nothing() {
    let host = host("sum");
    let mut service = TopRanker::init().unwrap();
    let error = |service: &mut TopRanker, payload: &[u8]| {
        let call = Call {
            payload: payload.to_vec(),
            ..Call::default()
        };
        let outcome = host.call(service, &call);
        assert_eq!(outcome.replies[0].0, status::MALFORMED);
        String::from_utf8(outcome.replies[0].1.clone()).unwrap()
    };
    let texts = |n: usize| vec!["x".to_string(); n];
    assert_eq!(
        error(&mut service, &record(&texts(2), &[1.0])),
        "field \"scores\": has 1 elements, must be as many as field \"items\" has: 2"
    );
    assert_eq!(
        error(&mut service, &record(&texts(65), &[1.0; 65])),
        "field \"items\": has 65 elements, must be at most 64"
    );
    assert_eq!(
        error(&mut service, &record(&["y".repeat(256)], &[1.0])),
        "field \"items\": an item has 256 bytes, must be 1..=255"
    );
    assert_eq!(
        error(&mut service, &record(&texts(1), &[f64::INFINITY])),
        "field \"scores\": is array, must be an array of finite numbers"
    );
    let good = [record(&texts(3), &[1.0, 2.0, 3.0]), op_top()];
    fuzz(&host, &mut service, 4, 20_000, &good);
    let _ = Host::new().config("keep", "all");
    assert!(matches!(
        TopRanker::init(),
        Err(Error::Config { name: "keep", .. })
    ));
}
