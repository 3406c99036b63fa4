//! The detector against a naive one, and against real temperatures with spikes put in.

use super::*;
use e3_sdk::testing::{Call, Collection, Host, Kind, Outcome, slot_of};
use e3_testkit::{Random, fuzz, seeds};
use std::collections::{BTreeMap, BTreeSet};

const HOUR_S: i64 = 3600;

fn host() -> Host {
    Host::new()
        .collection("levels", Kind::Hash)
        .collection("windows", Kind::Array)
        .collection("spikes", Kind::Ordered)
}

fn record(time_s: i64, value: f64) -> Vec<u8> {
    Builder::new()
        .field("time", Value::Int(time_s))
        .field("value", Value::Float(value))
        .field("other", Value::Text("stays"))
        .bytes()
        .to_vec()
}

fn query(from: i64) -> Vec<u8> {
    Builder::new()
        .field("op", Value::Text("spikes"))
        .field("from", Value::Int(from))
        .bytes()
        .to_vec()
}

fn send(host: &Host, detector: &mut Detector, key: &[u8], payload: Vec<u8>) -> Outcome {
    let call = Call {
        key: key.into(),
        payload,
        ..Call::default()
    };
    let outcome = host.call(detector, &call);
    assert_eq!((&outcome.result, outcome.replies.len()), (&Ok(()), 1));
    outcome
}

fn refusal(outcome: &Outcome) -> (u32, String) {
    let (status, why) = &outcome.replies[0];
    (*status, String::from_utf8_lossy(why).into_owned())
}

/// A reading at an hour; its score and whether it is a spike.
fn read(host: &Host, detector: &mut Detector, key: &[u8], hour: i64, value: f64) -> (f64, bool) {
    let outcome = send(host, detector, key, record(hour * HOUR_S, value));
    let (status, reply) = &outcome.replies[0];
    assert_eq!(*status, 0, "{}", String::from_utf8_lossy(reply));
    let reply = Record::parse(reply).unwrap();
    assert_eq!(reply.text("other"), Ok("stays"));
    (reply.number("z").unwrap(), reply.int("spike") == Ok(1))
}

/// What the detector has recorded, page by page.
fn recorded(host: &Host, detector: &mut Detector, key: &[u8]) -> Vec<(i64, f64, f64)> {
    let mut all = Vec::new();
    let mut from = i64::MIN;
    loop {
        let outcome = send(host, detector, key, query(from));
        let reply = Record::parse(&outcome.replies[0].1).unwrap();
        let numbers = |name| reply.numbers(name, SPIKES_MAX).unwrap();
        let (times, values, z) = (numbers("times"), numbers("values"), numbers("z"));
        assert_eq!((values.len(), z.len()), (times.len(), times.len()));
        let page = times.iter().zip(values).zip(z);
        all.extend(page.map(|((t, v), z)| (*t as i64, v, z)));
        match reply.int("more").unwrap() {
            0 => return all,
            _ => {
                assert_eq!(times.len(), SPIKES_MAX);
                from = all[all.len() - 1].0 + 1;
            }
        }
    }
}

fn detected(host: &Host, detector: &mut Detector) -> BTreeSet<i64> {
    let recorded = recorded(host, detector, b"k");
    recorded.iter().map(|(t, ..)| t / HOUR_S).collect()
}

fn station(column: usize) -> Vec<f64> {
    include_str!("../../../data/temperatures.csv")
        .lines()
        .skip(1)
        .map(|line| {
            let field = line.split(',').nth(column).expect("a column");
            field.parse::<f64>().expect("a number") / 10.0
        })
        .collect()
}

/// Runs a year with sensor noise and spikes of `size` degrees (to twice that), up or down, in one of 40
/// readings; returns precision and recall.
fn score(column: usize, size: f64, seed: u64) -> (f64, f64) {
    let host = host();
    let mut detector = Detector::init().unwrap();
    let mut random = Random::new(seed);
    let mut injected = BTreeSet::new();
    for (hour, temperature) in station(column).into_iter().enumerate() {
        let mut reading = temperature + 0.2 * random.normal();
        if hour > 0 && random.unit() < 1.0 / 40.0 {
            let size = size * (1.0 + random.unit());
            reading += if random.unit() < 0.5 { size } else { -size };
            injected.insert(hour as i64);
        }
        read(&host, &mut detector, b"k", hour as i64, reading);
    }
    let detected = detected(&host, &mut detector);
    let hits = injected.intersection(&detected).count() as f64;
    (
        hits / detected.len().max(1) as f64,
        hits / injected.len() as f64,
    )
}

#[test]
fn finds_injected_spikes_in_real_temperatures() {
    for (column, name) in [(1, "San Francisco"), (2, "Seattle")] {
        for seed in seeds(3) {
            let (precision, recall) = score(column, 6.0, seed);
            println!("{name}, seed {seed}: precision {precision:.4}, recall {recall:.4}");
            assert!(
                precision >= 0.97,
                "{name} seed {seed}: precision {precision}"
            );
            assert!(recall >= 0.97, "{name} seed {seed}: recall {recall}");
        }
        for size in [2.0, 3.0, 4.0, 5.0, 8.0] {
            let (precision, recall) = score(column, size, 1);
            let to = 2.0 * size;
            println!("{name}, {size}..{to} C: precision {precision:.4}, recall {recall:.4}");
        }
    }
}

#[test]
fn finds_nothing_in_real_temperatures_as_they_are() {
    for column in [1, 2] {
        let host = host();
        let mut detector = Detector::init().unwrap();
        for (hour, temperature) in station(column).into_iter().enumerate() {
            read(&host, &mut detector, b"k", hour as i64, temperature);
        }
        assert_eq!(detected(&host, &mut detector), BTreeSet::new());
    }
}

/// The score against the textbook formula over the window and the prior's pseudo-observations:
/// half of them one spread above zero, half one spread below.
#[test]
fn the_score_is_that_of_the_window_with_the_prior_in_it() {
    let window = [0.5, -0.25, 1.0, 0.75, -1.5];
    let mut all = window.to_vec();
    all.extend([0.7, 0.7, 0.7, -0.7, -0.7, -0.7]);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / all.len() as f64;
    let naive = (6.0 - mean) / variance.sqrt();
    assert!((z_score(6.0, 1.0, &window, 0.7) - naive).abs() < 1e-12);
    assert!((z_score(0.6, 1.0, &[], 0.3) - 2.0).abs() < 1e-12);
}

/// A detector that keeps everything in plain variables; by the last hours and pseudo-observations.
#[derive(Default)]
struct Naive {
    good: Option<(i64, f64)>,
    seen: i64,
    outliers: u8,
    changes: Vec<f64>,
    spikes: Vec<(i64, f64)>,
}

impl Naive {
    fn read(&mut self, hour: i64, value: f64, window: usize, prior: f64) -> f64 {
        let Some((good_hour, good)) = self.good else {
            (self.good, self.seen) = (Some((hour, value)), hour);
            return 0.0;
        };
        if hour <= self.seen {
            return 0.0;
        }
        self.seen = hour;
        let intervals = (hour - good_hour) as f64;
        let mut z = 0.0;
        if intervals <= 6.0 {
            let last = self.changes.len().saturating_sub(window);
            let mut all = self.changes[last..].to_vec();
            all.extend([prior, prior, prior, -prior, -prior, -prior]);
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let variance = all.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / all.len() as f64;
            z = (value - good - intervals * mean) / (variance * intervals).sqrt();
            if z.abs() >= 4.5 {
                self.spikes.push((hour, value));
                self.outliers += 1;
                if self.outliers < 3 {
                    return z;
                }
            } else {
                self.changes.push((value - good) / intervals);
            }
        }
        self.good = Some((hour, value));
        self.outliers = 0;
        z
    }
}

/// Against the naive one, with gaps, late readings and fresh instances on the way.
#[test]
fn agrees_with_a_naive_detector() {
    for seed in seeds(5) {
        let host = host().config("window", "7").config("prior-sd", "0.5");
        let mut detector = Detector::init().unwrap();
        let mut random = Random::new(seed);
        let mut naive: [Naive; 3] = Default::default();
        let mut hours = [0; 3];
        let keys: [&[u8]; 3] = [b"k", b"kk", b"\xff"];
        for round in 0..1500 {
            if round % 100 == 50 {
                detector = Detector::init().unwrap();
            }
            let at = random.index(3);
            let step = [1, 1, 1, 1, 2, 3, 6, 7, 0, -2][random.index(10)];
            let hour = hours[at] + step;
            hours[at] = hours[at].max(hour);
            let mut value = 10.0 + random.normal();
            if random.index(15) == 0 {
                value += 20.0;
            }
            let expected = naive[at].read(hour, value, 7, 0.5);
            let (z, spike) = read(&host, &mut detector, keys[at], hour, value);
            let what = format!("seed {seed}, round {round}: {z}, naive {expected}");
            assert!((z - expected).abs() < 1e-9, "{what}");
            assert_eq!(spike, expected.abs() >= 4.5, "{what}");
        }
        for (at, naive) in naive.iter().enumerate() {
            let recorded = recorded(&host, &mut detector, keys[at]);
            let hours: Vec<_> = recorded.iter().map(|(t, v, _)| (t / HOUR_S, *v)).collect();
            assert_eq!(hours, naive.spikes, "seed {seed}");
            assert!(hours.len() > 5);
        }
    }
}

#[test]
fn a_spike_is_one_spike_and_a_new_level_is_learnt() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    for hour in 0..100 {
        let temperature = match hour {
            30 => 20.0,
            60.. => 25.0,
            _ => 10.0 + 0.1 * (hour % 3) as f64,
        };
        read(&host, &mut detector, b"k", hour, temperature);
    }
    let expected = BTreeSet::from([30, 60, 61, 62]);
    assert_eq!(detected(&host, &mut detector), expected);
}

#[test]
fn late_readings_and_gaps_are_no_spikes() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    for hour in 0..30 {
        read(&host, &mut detector, b"k", hour, 10.0);
    }
    let before = host.state();
    assert_eq!(read(&host, &mut detector, b"k", 29, 40.0), (0.0, false));
    assert_eq!(host.state(), before, "a repeated hour");
    assert_eq!(read(&host, &mut detector, b"k", 500, 30.0), (0.0, false));
    assert!(detected(&host, &mut detector).is_empty(), "a gap");
}

#[test]
fn answers_come_page_by_page_from_a_time_on() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    // two good readings between two spikes
    for hour in 0..3 * (SPIKES_MAX as i64 + 100) {
        let value = if hour % 3 == 2 { 1e9 } else { 0.0 };
        read(&host, &mut detector, b"k", hour, value);
        if hour < 9 {
            read(&host, &mut detector, b"k2", hour, value);
        }
    }
    let all = recorded(&host, &mut detector, b"k");
    let hours: Vec<_> = all.iter().map(|(t, ..)| t / HOUR_S).collect();
    let expected: Vec<_> = (0..SPIKES_MAX as i64 + 100).map(|n| 3 * n + 2).collect();
    assert_eq!(hours, expected);
    let ask = |detector: &mut Detector, from| {
        let outcome = send(&host, detector, b"k2", query(from));
        let reply = Record::parse(&outcome.replies[0].1).unwrap();
        reply.numbers("times", 9).unwrap()
    };
    let second = 5 * HOUR_S;
    assert_eq!(ask(&mut detector, second), [5.0 * 3600.0, 8.0 * 3600.0]);
    assert_eq!(ask(&mut detector, second + 1), [8.0 * 3600.0]);
}

/// Two shards of the halves of the slots hold together what one shard of all holds.
#[test]
fn a_shard_can_be_split() {
    let run = |accepts: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut detector = Detector::init().unwrap();
        let mut random = Random::new(5);
        for n in 0..600 {
            let key = format!("key{}", random.index(30));
            let value = random.normal() + if random.index(20) == 0 { 30.0 } else { 0.0 };
            if accepts(slot_of(key.as_bytes())) {
                read(&host, &mut detector, key.as_bytes(), n / 20, value);
            }
        }
        let entries = host.state().into_iter().flat_map(|(name, c)| -> Vec<_> {
            let map: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = match c {
                Collection::Hash(map) | Collection::Ordered(map) => {
                    map.into_iter().map(|(k, v)| (k, vec![v])).collect()
                }
                Collection::Array(map) => map.into_iter().map(|(k, v)| (k, v.into())).collect(),
                Collection::Counter(_) => unreachable!(),
            };
            let each = map.into_iter();
            each.map(|(k, v)| ((name.clone(), k), v)).collect()
        });
        entries.collect::<BTreeMap<_, _>>()
    };
    let (mut low, high, all) = (run(&|s| s < 2048), run(&|s| s >= 2048), run(&|_| true));
    assert!(all.keys().filter(|(name, _)| name == "spikes").count() > 10);
    low.extend(high);
    assert_eq!(low, all);
}

#[test]
fn faults_are_named_and_change_nothing() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    let op = |op| Builder::new().field("op", Value::Text(op)).bytes().to_vec();
    let bad_from = Builder::new()
        .field("op", Value::Text("spikes"))
        .field("from", Value::Bool(true))
        .bytes()
        .to_vec();
    for (payload, why) in [
        (
            Builder::new().bytes().to_vec(),
            "field \"value\": is missing",
        ),
        (
            record(1, -2e100),
            "field \"value\": is -2e100, must be within ±1e100",
        ),
        (op("get"), "field \"op\": is \"get\", must be \"spikes\""),
        (bad_from, "field \"from\": is bool, must be a whole number"),
    ] {
        let outcome = send(&host, &mut detector, b"k", payload);
        assert_eq!(refusal(&outcome), (status::MALFORMED, why.into()));
    }
    let why = "routing key: has 1024 bytes, must have at most 1013";
    for payload in [record(1, 1.0), query(0)] {
        let outcome = send(&host, &mut detector, &[7; 1024], payload);
        assert_eq!(refusal(&outcome), (status::MALFORMED, why.into()));
    }
    let key = [7; SERIES_BYTES_MAX];
    for (hour, value) in [(0, 0.0), (1, 1e100)] {
        read(&host, &mut detector, &key, hour, value);
    }
    assert_eq!(recorded(&host, &mut detector, &key).len(), 1);
    let good = [record(1, 2.0), record(500, -1e100), op("spikes"), query(4)];
    let [passed, refused] = fuzz(&host, &mut detector, 7, 20_000, &good);
    assert!(
        passed > 1000 && refused > 1000,
        "{passed} passed, {refused} refused"
    );
    for (name, value) in [
        ("z", "0"),
        ("window", "169"),
        ("prior-sd", "NaN"),
        ("interval-s", "inf"),
    ] {
        let _host = Host::new().config(name, value);
        let error = Detector::init().err();
        assert!(
            matches!(&error, Some(Error::Config { name: n, .. }) if *n == name),
            "{error:?}"
        );
    }
}
