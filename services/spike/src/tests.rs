//! The detector against a naive one, and against real temperatures with spikes put in.

use std::collections::BTreeSet;

use e3_iot_messages::{AnalysisMessage, Reading, Reply, status};
use e3_sdk::Service;
use e3_sdk::testing::{Call, Host, Kind};

use super::*;

const HOUR_S: i64 = 3600;

fn host() -> Host {
    Host::new()
        .collection("levels", Kind::Hash)
        .collection("windows", Kind::Array)
        .collection("spikes", Kind::Ordered)
}

fn send(host: &Host, detector: &mut Detector, hour: i64, temperature_c: f64) {
    let mut payload = Vec::new();
    AnalysisMessage::Reading(Reading {
        thermostat: 5,
        reading_time_s: hour * HOUR_S,
        temperature_c,
    })
    .encode(&mut payload);
    let call = Call {
        payload,
        ..Call::default()
    };
    let outcome = host.call(detector, &call);
    assert_eq!((outcome.result, outcome.replies.len()), (Ok(()), 0));
}

/// Hours of the spikes that the detector has recorded, page by page.
fn detected(host: &Host, detector: &mut Detector) -> BTreeSet<i64> {
    let mut hours = BTreeSet::new();
    let mut from_time_s = i64::MIN;
    loop {
        let mut payload = Vec::new();
        AnalysisMessage::Query {
            thermostat: 5,
            from_time_s,
        }
        .encode(&mut payload);
        let call = Call {
            payload,
            ..Call::default()
        };
        let outcome = host.call(detector, &call);
        let (status, payload) = &outcome.replies[0];
        let Ok(Reply::Spikes { spikes, more }) = Reply::decode(*status, payload) else {
            panic!("no spikes in {outcome:?}");
        };
        hours.extend(spikes.iter().map(|spike| spike.reading_time_s / HOUR_S));
        match spikes.last() {
            Some(last) if more => from_time_s = last.reading_time_s + 1,
            _ => return hours,
        }
    }
}

/// A small generator (xorshift64*), so that the test needs no other source.
struct Random(u64);

impl Random {
    /// Uniform in 0..1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with standard deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
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

/// Runs a year with sensor noise and spikes of `size_c` (to twice that), up or down, in one of
/// 40 readings; returns precision and recall.
fn score(column: usize, size_c: f64, seed: u64) -> (f64, f64) {
    let host = host();
    let mut detector = Detector::init().unwrap();
    let mut random = Random(seed);
    let mut injected = BTreeSet::new();
    for (hour, temperature_c) in station(column).into_iter().enumerate() {
        let mut reading = temperature_c + 0.2 * random.normal();
        if hour > 0 && random.next() < 1.0 / 40.0 {
            let size_c = size_c * (1.0 + random.next());
            reading += if random.next() < 0.5 { size_c } else { -size_c };
            injected.insert(hour as i64);
        }
        send(&host, &mut detector, hour as i64, reading);
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
        for seed in 1..=3 {
            let (precision, recall) = score(column, 6.0, seed);
            println!("{name}, seed {seed}: precision {precision:.4}, recall {recall:.4}");
            assert!(
                precision >= 0.97,
                "{name} seed {seed}: precision {precision}"
            );
            assert!(recall >= 0.97, "{name} seed {seed}: recall {recall}");
        }
        for size_c in [2.0, 3.0, 4.0, 5.0, 8.0] {
            let (precision, recall) = score(column, size_c, 1);
            println!(
                "{name}, {size_c}..{} C: precision {precision:.4}, recall {recall:.4}",
                2.0 * size_c
            );
        }
    }
}

#[test]
fn finds_nothing_in_real_temperatures_as_they_are() {
    for column in [1, 2] {
        let host = host();
        let mut detector = Detector::init().unwrap();
        for (hour, temperature_c) in station(column).into_iter().enumerate() {
            send(&host, &mut detector, hour as i64, temperature_c);
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

#[test]
fn a_spike_is_one_spike_and_a_new_level_is_learnt() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    for hour in 0..100 {
        let temperature_c = match hour {
            30 => 20.0,
            60.. => 25.0,
            _ => 10.0 + 0.1 * (hour % 3) as f64,
        };
        send(&host, &mut detector, hour, temperature_c);
    }
    let expected = BTreeSet::from([30, 60, 61, 62]);
    assert_eq!(detected(&host, &mut detector), expected);
}

#[test]
fn late_readings_gaps_and_malformed_messages() {
    let host = host();
    let mut detector = Detector::init().unwrap();
    for hour in 0..30 {
        send(&host, &mut detector, hour, 10.0);
    }
    let before = host.state();
    send(&host, &mut detector, 29, 40.0);
    assert_eq!(host.state(), before, "a repeated hour");
    let outcome = host.call(&mut detector, &Call::default());
    assert_eq!(outcome.replies[0].0, status::MALFORMED);
    assert_eq!(host.state(), before, "a malformed message");
    send(&host, &mut detector, 500, 30.0);
    assert!(detected(&host, &mut detector).is_empty(), "a gap");
}
