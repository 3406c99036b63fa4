//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_sdk::testing::{Call, Collection, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz, reply_to, seeds};
use std::collections::BTreeMap;
use std::string::ToString;

/// Ratings by user and item.
type All = BTreeMap<String, BTreeMap<Item, f64>>;

fn host() -> Host {
    Host::new().collection("ratings", Kind::Ordered)
}

fn call(host: &Host, service: &mut Recommend, key: &str, payload: &mut Builder) -> (u32, Vec<u8>) {
    let call = Call {
        key: key.as_bytes().to_vec(),
        payload: payload.bytes().to_vec(),
        ..Call::default()
    };
    reply_to(host, service, &call)
}

fn rating(user: &str, item: &Item, rating: f64) -> Builder {
    let mut out = Builder::new();
    out.field("user", Value::Text(user))
        .field("item", value(item))
        .field("rating", Value::Float(rating));
    out
}

fn query(op: &str, user: &str, item: Option<&Item>) -> Builder {
    let mut out = Builder::new();
    out.field("op", Value::Text(op))
        .field("user", Value::Text(user));
    if let Some(item) = item {
        out.field("item", value(item));
    }
    out
}

fn read_item(reply: &[u8], field: &str) -> Item {
    item(&Record::parse(reply).unwrap(), field).unwrap()
}

/// Answer to `get`: item, rating, rated.
fn get(
    host: &Host,
    service: &mut Recommend,
    user: &str,
    item: Option<&Item>,
) -> Option<(Item, f64, bool)> {
    let (status, reply) = call(host, service, user, &mut query("get", user, item));
    if status == status::NOT_FOUND {
        return None;
    }
    assert_eq!(status, status::OK);
    let record = Record::parse(&reply).unwrap();
    let rated = record.int("rated").unwrap() == 1;
    Some((
        read_item(&reply, "item"),
        record.number("rating").unwrap(),
        rated,
    ))
}

fn similarity(all: &All, a: &Item, b: &Item) -> f64 {
    let column = |i: &Item| -> Vec<f64> {
        let of = |r: &BTreeMap<Item, f64>| r.get(i).copied().unwrap_or(0.0);
        all.values().map(of).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (a, b) = (column(a), column(b));
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}

/// The formulas of the paper, over dense vectors: predicted ratings of all that the user has not
/// rated.
fn naive(all: &All, user: &str) -> BTreeMap<Item, f64> {
    let own = &all[user];
    let mut predicted = BTreeMap::new();
    let items: Vec<&Item> = all.values().flat_map(|r| r.keys()).collect();
    for item in items.into_iter().filter(|i| !own.contains_key(i)) {
        let weights: Vec<f64> = own.keys().map(|j| similarity(all, item, j)).collect();
        let sum: f64 = own.values().zip(&weights).map(|(r, w)| r * w).sum();
        if weights.iter().any(|w| *w > 0.0) {
            let rounded = (sum / weights.iter().sum::<f64>() * 1e9).round() / 1e9;
            predicted.insert(item.clone(), rounded);
        }
    }
    predicted
}

fn best(predicted: &BTreeMap<Item, f64>) -> Option<(Item, f64)> {
    let all = predicted.iter().map(|(i, r)| (i.clone(), *r));
    all.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn items() -> Vec<Item> {
    let names = ["tea", "coffee", "é", "a long name, longer than others"];
    let texts = names.iter().map(|t| Item::Text(t.to_string()));
    (0..8).map(Item::Number).chain(texts).collect()
}

/// A stream of ratings: user, item, rating.
fn stream(seed: u64, count: usize) -> Vec<(String, Item, f64)> {
    let mut random = Random::new(seed);
    let items = items();
    let one = |r: &mut Random| {
        let user = format!("u{}", r.index(15));
        let cents = 1 + r.index(1000);
        (
            user,
            items[r.index(items.len())].clone(),
            cents as f64 / 100.0,
        )
    };
    (0..count).map(|_| one(&mut random)).collect()
}

#[test]
fn recommends_what_the_naive_computation_does() {
    for seed in seeds(3) {
        let host = host();
        let mut service = Recommend::init().unwrap();
        let (mut all, mut predicted) = (All::new(), 0);
        for (n, (user, item, value)) in stream(seed, 150).into_iter().enumerate() {
            let what = format!("seed {seed}, rating {n}");
            all.entry(user.clone())
                .or_default()
                .insert(item.clone(), value);
            if n % 37 == 0 {
                // Instance memory may vanish at any time.
                service = Recommend::init().unwrap();
            }
            let mut payload = rating(&user, &item, value);
            let (status, reply) = call(&host, &mut service, &user, &mut payload);
            assert_eq!(status, status::OK, "{what}");
            let naive = naive(&all, &user);
            let got = get(&host, &mut service, &user, None).unwrap();
            let record = Record::parse(&reply).unwrap();
            assert_eq!(record.number("rating"), Ok(value), "{what}");
            let passed = (read_item(&reply, "recommended"), record.number("predicted"));
            assert_eq!(passed, (got.0.clone(), Ok(got.1)), "{what}");
            match best(&naive) {
                Some((item, value)) => {
                    assert_eq!((got.0, got.2), (item, false), "{what}");
                    assert!((got.1 - value).abs() < 2e-9, "{what}");
                    predicted += 1;
                }
                None => {
                    assert_eq!(
                        (got.0, got.2),
                        (best(&all[&user]).unwrap().0, true),
                        "{what}"
                    );
                }
            }
            for item in items() {
                let got = get(&host, &mut service, &user, Some(&item));
                let (expected, rated) = match all[&user].get(&item) {
                    Some(own) => (Some(*own), true),
                    None => (naive.get(&item).copied(), false),
                };
                assert_eq!(got.is_some(), expected.is_some(), "{what}: {item:?}");
                if let (Some((_, got, by_user)), Some(expected)) = (got, expected) {
                    assert!((got - expected).abs() < 2e-9, "{what}: {item:?}");
                    assert_eq!(by_user, rated, "{what}: {item:?}");
                }
            }
        }
        assert!(predicted > 50, "seed {seed}: only {predicted} predictions");
    }
}

#[test]
fn similar_items_come_by_their_cosine() {
    let host = host();
    let mut service = Recommend::init().unwrap();
    let mut all = All::new();
    for (user, item, value) in stream(7, 60) {
        call(&host, &mut service, &user, &mut rating(&user, &item, value));
        all.entry(user).or_default().insert(item, value);
    }
    for item in items() {
        let (_, reply) = call(
            &host,
            &mut service,
            "u1",
            &mut query("similar", "u1", Some(&item)),
        );
        let record = Record::parse(&reply).unwrap();
        let got = record.numbers("similarities", SIMILAR_MAX).unwrap();
        let others = items().into_iter().filter(|i| *i != item);
        let mut expected: Vec<f64> = others.map(|i| similarity(&all, &item, &i)).collect();
        expected.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(got.len(), SIMILAR_MAX);
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 2e-9, "{item:?}: {got} {expected}");
        }
    }
}

/// Of equals the first in the order of items, whatever came first.
#[test]
fn ties_go_to_the_first_item() {
    let host = host();
    let mut service = Recommend::init().unwrap();
    let names = ["b", "a", "c"].map(|t| Item::Text(t.into()));
    let [b, a, c] = &names;
    for item in [c, b, &Item::Number(9), a] {
        call(&host, &mut service, "x", &mut rating("x", item, 3.0));
    }
    let (_, reply) = call(&host, &mut service, "y", &mut rating("y", c, 3.0));
    assert_eq!(read_item(&reply, "recommended"), Item::Number(9));
    for (rate, next) in [(Item::Number(9), a), (a.clone(), b)] {
        let (_, reply) = call(&host, &mut service, "y", &mut rating("y", &rate, 5.0));
        assert_eq!(read_item(&reply, "recommended"), *next);
    }
    // nothing left to predict: the best of its own, the number before "a"
    let (_, reply) = call(&host, &mut service, "y", &mut rating("y", b, 5.0));
    assert_eq!(read_item(&reply, "recommended"), Item::Number(9));
}

fn entries(host: &Host) -> BTreeMap<Vec<u8>, Vec<u8>> {
    match host.state().remove(0).1 {
        Collection::Ordered(map) => map,
        other => panic!("{other:?}"),
    }
}

/// Two shards hold together what one holds; each recommends by its own users.
#[test]
fn a_shard_can_be_split() {
    let ratings = stream(11, 200);
    let feed = |mine: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut service = Recommend::init().unwrap();
        for (user, item, value) in &ratings {
            if mine(slot_of(user.as_bytes())) {
                call(&host, &mut service, user, &mut rating(user, item, *value));
            }
        }
        let users: Vec<_> = (0..15)
            .map(|n| format!("u{n}"))
            .filter(|u| mine(slot_of(u.as_bytes())))
            .collect();
        let found: Vec<_> = users
            .iter()
            .map(|u| (u.clone(), get(&host, &mut service, u, None)))
            .collect();
        (entries(&host), found)
    };
    let (whole, _) = feed(&|_| true);
    let halves = [feed(&|slot| slot < 2048), feed(&|slot| slot >= 2048)];
    let mut together = BTreeMap::new();
    for (half, (entries, found)) in halves.into_iter().enumerate() {
        assert!(!entries.is_empty());
        for key in entries.keys() {
            let slot = u16::from_be_bytes([key[0], key[1]]);
            assert_eq!(usize::from(slot >= 2048), half);
        }
        together.extend(entries);
        let users: Vec<&String> = found.iter().map(|(u, _)| u).collect();
        let mut all = All::new();
        for (user, item, value) in ratings.iter().filter(|(u, ..)| users.contains(&u)) {
            all.entry(user.clone())
                .or_default()
                .insert(item.clone(), *value);
        }
        for (user, got) in &found {
            let got = got.clone().unwrap();
            if let Some((item, _)) = best(&naive(&all, user)) {
                assert_eq!(got.0, item, "{user}");
            }
        }
    }
    assert_eq!(together, whole);
}

#[test]
fn comfort_programmes_are_rated_by_observations() {
    let host = host().config("ratings", "comfort").config("time", "at_s");
    let mut service = Recommend::init().unwrap();
    let mut models: BTreeMap<String, Ratings> = BTreeMap::new();
    let mut random = Random::new(3);
    for n in 0..300i64 {
        let user = format!("t{}", random.index(13));
        let celsius = random.index(350) as f64 / 10.0 - 4.0;
        let time_s = n * 3600 * 5 + random.index(7200) as i64;
        let mut payload = Builder::new();
        payload
            .field("user", Value::Text(&user))
            .field("at_s", Value::Int(time_s))
            .field("temperature", Value::Float(celsius));
        let (status, _) = call(&host, &mut service, &user, &mut payload);
        assert_eq!(status, status::OK);
        let model = models.entry(user).or_default();
        comfort::rate(model, time_s, celsius);
    }
    let mut all = All::new();
    for (user, ratings) in &models {
        let own = ratings.0.iter();
        let own = own.map(|(i, c)| (i.clone(), f64::from(*c) / 100.0));
        all.insert(user.clone(), own.collect());
    }
    for user in models.keys() {
        let (_, reply) = call(&host, &mut service, user, &mut query("get", user, None));
        let record = Record::parse(&reply).unwrap();
        let found = read_item(&reply, "item");
        let (set_point_c, hour) = comfort::programme(&found).unwrap();
        assert_eq!(record.number("set_point"), Ok(set_point_c));
        assert_eq!(record.int("hour"), Ok(hour as i64));
        if let Some((item, value)) = best(&naive(&all, user)) {
            assert_eq!(found, item, "{user}");
            assert!((record.number("rating").unwrap() - value).abs() < 2e-9);
        }
    }
    // too hot for every programme
    let before = host.state();
    let mut payload = Builder::new();
    payload
        .field("user", Value::Text("hot"))
        .field("at_s", Value::Int(0))
        .field("temperature", Value::Float(99.0));
    let (status, reply) = call(&host, &mut service, "hot", &mut payload);
    let recommended = Record::parse(&reply).unwrap().has("recommended");
    assert_eq!((status, recommended), (status::OK, false));
    assert!(host.state() == before);
}

#[test]
fn faults_are_named() {
    let host = host();
    let mut service = Recommend::init().unwrap();
    let known = Item::Text("known".into());
    call(&host, &mut service, "u", &mut rating("u", &known, 4.0));
    let before = host.state();
    let long = Item::Text("x".repeat(33));
    let unknown = Item::Text("unknown".into());
    for (mut payload, status, why) in [
        (
            rating("u", &known, 100.1),
            status::MALFORMED,
            "field \"rating\": is 100.1, must be 0.01..=100",
        ),
        (
            rating("u", &known, 0.001),
            status::MALFORMED,
            "field \"rating\": is 0.001, must be 0.01..=100",
        ),
        (
            rating("u", &long, 1.0),
            status::MALFORMED,
            "field \"item\": is 33 bytes long, must be 1..=32",
        ),
        (
            rating("", &known, 1.0),
            status::MALFORMED,
            "field \"user\": is 0 bytes long, must be 1..=256",
        ),
        (
            query("put", "u", None),
            status::MALFORMED,
            "field \"op\": is \"put\", must be \"get\" or \"similar\"",
        ),
        (
            query("get", "nobody", None),
            status::NOT_FOUND,
            "the user has no ratings",
        ),
        (
            query("get", "u", Some(&unknown)),
            status::NOT_FOUND,
            "no user has rated both this item and one that the user has rated",
        ),
        (
            query("similar", "u", Some(&unknown)),
            status::NOT_FOUND,
            "the item has no ratings",
        ),
    ] {
        let (s, text) = call(&host, &mut service, "u", &mut payload);
        assert_eq!((s, core::str::from_utf8(&text)), (status, Ok(why)));
    }
    let mut negative = Builder::new();
    negative
        .field("user", Value::Int(5))
        .field("item", Value::Int(-1))
        .field("rating", Value::Int(3));
    let (_, text) = call(&host, &mut service, "u", &mut negative);
    let why = "field \"item\": is -1, must be 0..=4294967295";
    assert_eq!(core::str::from_utf8(&text), Ok(why));
    assert!(host.state() == before);
    let _host = Host::new().config("ratings", "guessed");
    assert!(matches!(Recommend::init(), Err(Error::Config { .. })));
}

/// The 257th item is refused, also by an instance that has just begun; the known ones go on.
#[test]
fn a_shard_takes_so_many_items() {
    let host = host();
    let mut service = Recommend::init().unwrap();
    for n in 0..ITEMS_MAX as u32 {
        let user = format!("u{}", n % 3);
        let mut payload = rating(&user, &Item::Number(n * 7), 2.5);
        let (status, _) = call(&host, &mut service, &user, &mut payload);
        assert_eq!(status, status::OK);
    }
    let before = host.state();
    for mut service in [service, Recommend::init().unwrap()] {
        let more = Item::Text("one more".into());
        let (status, why) = call(&host, &mut service, "u1", &mut rating("u1", &more, 1.0));
        let expected = "the shard has 256 rated items, the maximum";
        assert_eq!(
            (status, core::str::from_utf8(&why)),
            (status::REFUSED, Ok(expected))
        );
        assert!(host.state() == before);
        let known = Item::Number(7);
        let (status, _) = call(&host, &mut service, "u1", &mut rating("u1", &known, 2.5));
        assert_eq!(status, status::OK);
    }
}

#[test]
fn any_payload_is_answered() {
    for comfort in [false, true] {
        let host = host().config("ratings", if comfort { "comfort" } else { "explicit" });
        let mut service = Recommend::init().unwrap();
        let mut observed = Builder::new();
        observed
            .field("user", Value::Text("u"))
            .field("time", Value::Int(1_262_304_000))
            .field("temperature", Value::Float(11.5));
        let good = [
            rating("u", &Item::Text("i".into()), 2.0).bytes().to_vec(),
            rating("w", &Item::Number(3), 5.0).bytes().to_vec(),
            observed.bytes().to_vec(),
            query("get", "u", None).bytes().to_vec(),
            query("similar", "u", Some(&Item::Number(3)))
                .bytes()
                .to_vec(),
        ];
        let [taken, refused] = fuzz(&host, &mut service, 5, 20_000, &good);
        assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
    }
}
