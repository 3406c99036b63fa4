//! Against entropy recomputed from all addresses, and against labelled attacks.

use super::*;
use core::net::Ipv4Addr;
use e3_packet::PacketBuilder;
use e3_sdk::testing::{Call, Collection, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz_calls, seeds};
use std::collections::{BTreeMap, BTreeSet};

const NOW: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

type Address = [u8; 4];

fn host() -> Host {
    Host::new()
        .collection("addresses", Kind::Counter)
        .collection("seen", Kind::Array)
        .collection("now", Kind::Hash)
        .collection("past", Kind::Ordered)
}

fn call(payload: &[u8], key: &[u8], now: i64) -> Call {
    Call {
        payload: payload.to_vec(),
        key: key.to_vec(),
        now,
        ..Call::default()
    }
}

fn packet(source: Address, destination: Address) -> Vec<u8> {
    PacketBuilder::udp((source.into(), 1), (destination.into(), 2)).build()
}

fn report(host: &Host, ddos: &mut Ddos, now: i64) -> Vec<u8> {
    let mut b = Builder::new();
    b.field("op", Value::Text("report"));
    let before = host.state();
    let done = host.call(ddos, &call(b.bytes(), b"report", now));
    assert_eq!(host.state(), before);
    assert_eq!(done.replies[0].0, status::OK);
    done.replies[0].1.clone()
}

fn exact(of: impl Iterator<Item = impl Ord>) -> f64 {
    let mut counts = BTreeMap::new();
    for one in of {
        *counts.entry(one).or_insert(0.0) += 1.0;
    }
    let all: f64 = counts.values().sum();
    let share = counts.values().map(|c: &f64| c / all);
    -share.map(|p| p * p.log2()).sum::<f64>() + 0.0
}

/// Many packets in one request, since each request of a test copies the state.
struct Feed<'a> {
    ddos: &'a mut Ddos,
    packets: &'a [(u16, Address, Address)],
}

impl Service for Feed<'_> {
    fn init() -> Result<Self, Error> {
        Err(Error::Code(1))
    }

    fn handle(&mut self, _: &Request<'_>) -> Result<(), Error> {
        let window = self.ddos.window();
        let judged = self.ddos.judge(window)?;
        for (slot, source, destination) in self.packets {
            self.ddos
                .slots
                .add(*slot, window, *source, *destination, &judged)?;
        }
        Ok(())
    }
}

fn feed(host: &Host, ddos: &mut Ddos, packets: &[(u16, Address, Address)], now: i64) {
    for packets in packets.chunks(100) {
        let mut feed = Feed {
            ddos: &mut *ddos,
            packets,
        };
        let done = host.call(&mut feed, &call(&[], b"k", now));
        assert_eq!(done.result, Ok(()));
    }
}

#[test]
fn entropies_equal_the_definition() {
    for seed in seeds(6) {
        let mut random = Random::new(seed);
        let host = host().config("packets-min", "1");
        let mut ddos = Ddos::init().unwrap();
        let mut all: BTreeMap<i64, Vec<(Address, Address)>> = BTreeMap::new();
        for at in 0..600i64 {
            if at % 250 == 99 {
                ddos = Ddos::init().unwrap(); // an instance's memory may vanish
            }
            let source = [10, 0, 0, random.zipf(200) as u8];
            let destination = [192, 0, 2, random.zipf(4) as u8];
            let now = NOW + at * SECOND / 10;
            // one key: the entropy is that of the addresses
            let done = host.call(&mut ddos, &call(&packet(source, destination), b"link", now));
            let window = now / (10 * SECOND);
            let seen = all.entry(window).or_default();
            seen.push((source, destination));
            let answer = Record::parse(&done.replies[0].1).unwrap();
            assert_eq!(answer.int("window"), Ok(window));
            assert_eq!(answer.int("packets"), Ok(seen.len() as i64));
        }
        let bytes = report(&host, &mut ddos, NOW + 60 * SECOND - 1);
        let report = Record::parse(&bytes).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "seed {seed}: {a} != {b}");
        let last = &all[&report.int("window").unwrap()];
        near(
            report.number("source-entropy").unwrap(),
            exact(last.iter().map(|p| p.0)),
        );
        near(
            report.number("destination-entropy").unwrap(),
            exact(last.iter().map(|p| p.1)),
        );
        let column = |name| report.numbers(name, 64).unwrap();
        let windows = column("windows");
        assert_eq!(windows.len(), 5);
        let (sources, destinations) = (
            column("windows-source-entropy"),
            column("windows-destination-entropy"),
        );
        for (at, window) in windows.iter().enumerate() {
            let seen = &all[&(*window as i64)];
            near(sources[at], exact(seen.iter().map(|p| p.0)));
            near(destinations[at], exact(seen.iter().map(|p| p.1)));
            near(column("windows-packets")[at], seen.len() as f64);
        }
        let mean = sources.iter().sum::<f64>() / 5.0;
        near(report.number("source-mean").unwrap(), mean);
        let variance = sources.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / 5.0;
        near(report.number("source-sigma").unwrap(), variance.sqrt());
    }
}

#[test]
fn large_counts_have_exact_entropy_too() {
    let weights = entropy::Weights::new();
    let mut sums = entropy::Sums::default();
    let counts = [1u64, 2, 1_023, 1_024, 5_000, 300_000];
    for count in counts {
        for c in 1..=count {
            sums.packets += 1;
            sums.sources += weights.step(c);
        }
    }
    let all = sums.packets as f64;
    let definition: f64 = counts
        .iter()
        .map(|c| *c as f64 / all)
        .map(|p| -p * p.log2())
        .sum();
    assert!((sums.entropies()[0] - definition).abs() < 1e-9);
}

#[test]
fn slots_add_up() {
    let run = |part: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut ddos = Ddos::init().unwrap();
        let mut random = Random::new(3);
        for window in 0..4 {
            let all: Vec<_> = (0..500)
                .map(|_| {
                    let (source, to) = (random.zipf(100) as u8, random.zipf(9) as u8);
                    let source = [10, 0, 0, source];
                    (slot_of(&source), source, [192, 0, 2, to])
                })
                .filter(|(slot, ..)| part(*slot))
                .collect();
            feed(&host, &mut ddos, &all, NOW + window * 10 * SECOND);
        }
        let entries = host.state().into_iter().flat_map(|(name, c)| {
            let all: Vec<_> = match c {
                Collection::Hash(m) | Collection::Ordered(m) => m.into_iter().collect(),
                Collection::Counter(m) => m
                    .into_iter()
                    .map(|(k, v)| (k, v.to_le_bytes().to_vec()))
                    .collect(),
                Collection::Array(m) => m
                    .into_iter()
                    .map(|(k, v)| (k, v.into_iter().flatten().collect()))
                    .collect(),
            };
            all.into_iter().map(move |(k, v)| (name.clone(), k, v))
        });
        let entries: BTreeSet<_> = entries.collect();
        let (_, windows) = ddos.slots.windows(170_000_004).unwrap();
        (entries, windows)
    };
    let (whole, windows) = run(&|_| true);
    let (mut low, windows_low) = run(&|slot| slot < 2048);
    let (high, windows_high) = run(&|slot| slot >= 2048);
    assert!(low.is_disjoint(&high));
    low.extend(high);
    assert!(whole == low);
    for (at, window) in windows.iter().enumerate() {
        let mut sums = windows_low[at].sums;
        sums.add(windows_high[at].sums);
        assert_eq!(window.sums, sums);
    }
    // with the source as key, the entropy of sources is that of the addresses
    let mut random = Random::new(3);
    let last: Vec<_> = (0..2_000)
        .map(|_| (random.zipf(100) as u8, random.zipf(9) as u8))
        .collect();
    let definition = exact(last[1_500..].iter().map(|p| p.0));
    assert!((windows[3].sums.entropies()[0] - definition).abs() < 1e-6);
}

#[test]
fn addresses_of_past_windows_are_forgotten() {
    let host = host();
    let mut ddos = Ddos::init().unwrap();
    let mut random = Random::new(8);
    let mut kept = 0;
    for window in 0..12 {
        // every packet has another source
        let all: Vec<_> = (0..400)
            .map(|_| (5, (random.next_u64() as u32).to_be_bytes(), [192, 0, 2, 1]))
            .collect();
        feed(&host, &mut ddos, &all, NOW + window * 10 * SECOND);
        for (name, c) in host.state() {
            match c {
                Collection::Counter(m) if name == "addresses" => kept = m.len(),
                _ => {}
            }
        }
        assert!(kept <= 810, "window {window}: {kept}");
    }
    assert!(kept >= 401);
}

/// Attacks of three kinds on ordinary traffic of many slots: how many windows with an alarm are
/// attacks, and how many attacks have one.
#[test]
fn labelled_attacks_are_found() {
    let (mut right, mut false_alarms, mut missed) = (0, 0, 0);
    for seed in seeds(5) {
        let mut random = Random::new(seed);
        let host = host();
        let mut ddos = Ddos::init().unwrap();
        for window in 0..70 {
            let now = NOW + window * 10 * SECOND;
            let attack = (window > 10 && random.below(5) == 0).then(|| random.below(3));
            let mut all = Vec::new();
            for _ in 0..350 + random.below(100) {
                let source = [10, 0, random.zipf(8) as u8, random.zipf(200) as u8];
                all.push((source, [192, 0, 2, random.zipf(60) as u8]));
            }
            for n in 0..attack.map_or(0, |_| 60 + random.below(200)) {
                let spoofed = (random.next_u64() as u32).to_be_bytes();
                all.push(match attack {
                    Some(0) => (spoofed, [192, 0, 2, 7]), // a flood from anywhere at one victim
                    Some(1) => ([10, 0, 0, 66], [192, 0, 2, 7]), // a flood from one source
                    _ => ([10, 0, 0, 66], [192, 0, 3, n as u8]), // one source looks at everything
                });
            }
            let all: Vec<_> = all
                .into_iter()
                .map(|(source, destination)| {
                    let key = [source, destination].concat();
                    (slot_of(&key) % 7, source, destination)
                })
                .collect();
            feed(&host, &mut ddos, &all, now);
            let bytes = report(&host, &mut ddos, now + 10 * SECOND);
            let alarm = Record::parse(&bytes).unwrap().bool("alarm").unwrap();
            match (attack.is_some(), alarm) {
                (true, true) => right += 1,
                (false, true) => false_alarms += 1,
                (true, false) => missed += 1,
                (false, false) => {}
            }
        }
    }
    let precision = f64::from(right) / f64::from(right + false_alarms);
    let recall = f64::from(right) / f64::from(right + missed);
    println!(
        "attacks {}: precision {precision:.3}, recall {recall:.3}",
        right + missed
    );
    assert!(right > 40 && precision >= 0.9 && recall >= 0.9);
}

#[test]
fn packets_after_an_attack_carry_the_alarm_and_go_on() {
    let host = host()
        .channel("next")
        .config("to", "next")
        .config("reply", "yes");
    let mut ddos = Ddos::init().unwrap();
    let mut random = Random::new(4);
    for window in 0..10 {
        let all: Vec<_> = (0..100)
            .map(|_| {
                (
                    1,
                    [10, 0, 0, random.zipf(50) as u8],
                    [192, 0, 2, random.zipf(50) as u8],
                )
            })
            .map(|(slot, s, d)| (slot, s, if window == 9 { [192, 0, 2, 1] } else { d }))
            .collect();
        feed(&host, &mut ddos, &all, NOW + window * 10 * SECOND);
    }
    for (window, alarm) in [(10, true), (11, false)] {
        ddos = Ddos::init().unwrap();
        let packet = packet([10, 0, 0, 1], [192, 0, 2, 1]);
        let now = NOW + window * 10 * SECOND;
        let done = host.call(&mut ddos, &call(&packet, b"k", now));
        assert_eq!(done.sent[0].payload, packet);
        let answer = Record::parse(&done.replies[0].1).unwrap();
        assert_eq!(answer.bool("alarm"), Ok(alarm));
        assert_eq!(done.logs.len(), usize::from(alarm));
    }
}

#[test]
fn configuration_is_checked() {
    for (name, value) in [
        ("window-s", "0"),
        ("history", "65"),
        ("sigmas", "NaN"),
        ("sigma-min", "-1"),
        ("warmup", "33"),
        ("packets-min", "0"),
    ] {
        let _host = host().config(name, value);
        let error = Ddos::init().unwrap_err().to_string();
        assert!(error.starts_with(&format!("config {name:?}")), "{error}");
    }
}

#[test]
fn any_bytes_are_counted_or_refused_without_a_trace() {
    let mut query = Builder::new();
    query.field("op", Value::Text("report"));
    let query = query.bytes().to_vec();
    let mut counts = [0; 2];
    // many short runs: what is kept is copied for every comparison
    for seed in seeds(80) {
        let (host, mut ddos) = (host(), Ddos::init().unwrap());
        let good = |random: &mut Random, round: usize| {
            let source = Ipv4Addr::from_bits(random.below(40) as u32);
            let packet = PacketBuilder::echo(source, Ipv4Addr::LOCALHOST, 3).size(random.index(90));
            let payload = if random.one_in(4) {
                query.clone()
            } else {
                packet.build()
            };
            call(&payload, b"key", NOW + round as i64 * SECOND / 9)
        };
        let [accepted, refused] = fuzz_calls(&host, &mut ddos, seed, 250, good, |_| {});
        counts = [counts[0] + accepted, counts[1] + refused];
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}

/// The numbers of windows of one second take all 31 bits of a stamp.
#[test]
fn windows_of_a_second_count_as_others_do() {
    let host = host().config("window-s", "1");
    let mut ddos = Ddos::init().unwrap();
    let one = packet([10, 0, 0, 1], [192, 0, 2, 1]);
    for _ in 0..8 {
        host.call(&mut ddos, &call(&one, b"k", NOW));
    }
    let answer = report(&host, &mut ddos, NOW);
    let answer = Record::parse(&answer).unwrap();
    assert_eq!(answer.int("packets"), Ok(8));
    assert_eq!(answer.number("source-entropy"), Ok(0.0));
}
