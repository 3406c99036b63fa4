//! Against exact counts.

use super::*;
use alloc::vec::Vec;
use e3_packet::{PacketBuilder, protocol};
use e3_sdk::limits::SLOTS;
use e3_sdk::testing::{Call, Collection, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz_calls, seeds};
use sketch::FlowKey;
use std::collections::{BTreeMap, BTreeSet};

const NOW: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

fn flow(number: u32) -> Flow {
    Flow {
        source: Ipv4Addr::from_bits(0x0a00_0000 + number),
        destination: Ipv4Addr::new(192, 0, 2, 1),
        protocol: protocol::UDP,
        source_port: number as u16,
        destination_port: 53,
    }
}

fn host() -> Host {
    Host::new()
        .collection("cells", Kind::Counter)
        .collection("heavy", Kind::Ordered)
}

fn part(slot: u16, window: u64) -> Part {
    Part { slot, window }
}

/// Counts many packets in one request, since each request of a test copies the state.
struct Feed<'a> {
    sketch: &'a mut Sketch,
    packets: Vec<(Part, FlowKey)>,
}

impl Service for Feed<'_> {
    fn init() -> Result<Self, Error> {
        Err(Error::Code(1))
    }

    fn handle(&mut self, _: &Request<'_>) -> Result<(), Error> {
        for (part, flow) in self.packets.drain(..) {
            self.sketch.add(part, &flow)?;
        }
        Ok(())
    }
}

fn feed(host: &Host, sketch: &mut Sketch, packets: Vec<(Part, FlowKey)>) {
    for some in packets.chunks(100) {
        let packets = some.to_vec();
        let mut feed = Feed {
            sketch: &mut *sketch,
            packets,
        };
        assert_eq!(host.call(&mut feed, &Call::default()).result, Ok(()));
    }
}

/// The promise of the sketch: never too low, and too high by more than `e / width` of the packets
/// for at most `exp(-depth)` of the flows asked for, over many hash functions.
#[test]
fn estimates_keep_the_promised_error() {
    let (width, depth, packets) = (64, 3, 3_000);
    let epsilon = core::f64::consts::E / f64::from(width);
    let (mut asked, mut beyond) = (0, 0);
    for seed in seeds(60) {
        let host = host();
        let mut sketch = Sketch::open(width, depth, 0.5, seed).unwrap();
        let mut random = Random::new(seed);
        let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
        let counted = (0..packets).map(|_| {
            let number = random.zipf(1_000) as u32;
            *exact.entry(number).or_default() += 1;
            (part(7, 99), flow(number).to_bytes())
        });
        feed(&host, &mut sketch, counted.collect());
        for number in 0..1_000 {
            let count = exact.get(&number).copied().unwrap_or_default();
            let estimate = sketch.estimate(part(7, 99), &flow(number).to_bytes());
            assert!(estimate >= count, "seed {seed}, flow {number}");
            asked += 1;
            beyond += u32::from((estimate - count) as f64 > epsilon * f64::from(packets));
        }
    }
    let (share, delta) = (
        f64::from(beyond) / f64::from(asked),
        (-f64::from(depth)).exp(),
    );
    println!("beyond epsilon * N: {share:.5} of {asked}, promised at most {delta:.5}");
    assert!(share <= delta, "{share} > {delta}");
}

/// All slots together: each heavy flow is found, and none that is far from heavy.
#[test]
fn heavy_flows_are_found_in_all_slots() {
    for seed in seeds(20) {
        let host = host();
        let mut random = Random::new(seed);
        let (width, share) = (544, 0.02);
        let mut sketch = Sketch::open(width, 4, share, seed).unwrap();
        let packets = 6_000;
        let slots = [1, 3, 40][seed as usize % 3];
        let mut exact: BTreeMap<FlowKey, u64> = BTreeMap::new();
        let mut all = Vec::new();
        for at in 0..packets {
            // the flows change on the way: what was heavy falls behind, and the list must follow
            let number = random.zipf(2_000) as u32 + 10 * (at as u32 / 2_000);
            let key = flow(number).to_bytes();
            *exact.entry(key).or_default() += 1;
            let slot = slot_of(&key) % slots;
            all.push((part(slot, 12), key));
        }
        let later = all.split_off(2_000);
        feed(&host, &mut sketch, all);
        // an instance's memory may vanish
        sketch = Sketch::open(width, 4, share, seed).unwrap();
        feed(&host, &mut sketch, later);
        let report = sketch.report(12).unwrap();
        assert_eq!(report.packets, packets, "seed {seed}");
        let bound = share * packets as f64;
        let epsilon = core::f64::consts::E / f64::from(width) * packets as f64;
        let found: BTreeMap<FlowKey, u64> = report.heavy.iter().copied().collect();
        for (key, count) in &exact {
            assert!(
                *count as f64 <= bound || found.contains_key(key),
                "seed {seed}: {} with {count}",
                Flow::from_bytes(key)
            );
        }
        for (key, estimate) in &found {
            let count = exact[key] as f64;
            assert!(
                *estimate as f64 >= count && count > bound - epsilon,
                "seed {seed}"
            );
            // asked for by name, the slots that do not list it count too
            let (total, all) = sketch.total_estimate(12, key).unwrap();
            assert!(total >= *estimate && all == packets, "seed {seed}");
        }
        assert!(report.heavy.is_sorted_by(|a, b| a.1 >= b.1) && report.heavy.len() >= 3);
    }
}

#[test]
fn windows_begin_at_zero_and_the_last_one_stays() {
    let _host = host();
    let mut sketch = Sketch::open(600, 4, 0.01, 0).unwrap();
    let key = flow(1).to_bytes();
    for (window, packets) in [(0, 3u64), (1, 2), (2, 5), (6, 1), (7, 4)] {
        for n in 1..=packets {
            let seen = sketch.add(part(3, window), &key).unwrap();
            assert_eq!((seen.estimate, seen.packets), (n, n));
        }
        assert_eq!(
            sketch.total_estimate(window, &key).unwrap(),
            (packets, packets)
        );
    }
    assert_eq!(sketch.report(6).unwrap().heavy, [(key, 1)]);
    assert_eq!(sketch.report(5).unwrap().heavy, []);
    assert_eq!(sketch.report(2).unwrap().packets, 0);
}

fn entries(host: &Host) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let all = host.state().into_iter().flat_map(|(_, c)| match c {
        Collection::Ordered(map) => map.into_iter().collect::<Vec<_>>(),
        Collection::Counter(map) => {
            let bytes = |(k, v): (Vec<u8>, i64)| (k, v.to_le_bytes().to_vec());
            map.into_iter().map(bytes).collect()
        }
        _ => Vec::new(),
    });
    all.collect()
}

#[test]
fn two_halves_of_the_slots_hold_what_one_whole_holds() {
    let run = |from: u16, to: u16| {
        let host = host();
        let mut sketch = Sketch::open(600, 4, 0.01, 0).unwrap();
        let mut random = Random::new(5);
        let mut all = Vec::new();
        for step in 0..5_000u64 {
            let key = flow(random.zipf(500) as u32).to_bytes();
            let slot = slot_of(&key);
            if (from..to).contains(&slot) {
                all.push((part(slot, 4 + step / 2_000), key));
            }
        }
        feed(&host, &mut sketch, all);
        let report = sketch.report(6).unwrap();
        (entries(&host), report.packets)
    };
    let (whole, packets) = run(0, SLOTS);
    let (mut low, packets_low) = run(0, 2048);
    let (high, packets_high) = run(2048, SLOTS);
    assert!(low.is_disjoint(&high));
    low.extend(high);
    assert!(whole == low && packets == packets_low + packets_high);
}

fn call(payload: &[u8], key: &[u8], now: i64) -> Call {
    Call {
        payload: payload.to_vec(),
        key: key.to_vec(),
        now,
        ..Call::default()
    }
}

fn query(fields: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut b = Builder::new();
    for (name, value) in fields {
        b.field(name, *value);
    }
    b.bytes().to_vec()
}

#[test]
fn counts_packets_passes_them_on_and_reports() {
    let host = host()
        .channel("next")
        .config("to", "next")
        .config("reply", "yes");
    let mut monitor = Flowmon::init().unwrap();
    for n in 1..=3 {
        let packet = PacketBuilder::new(flow(7)).size(64).build();
        let done = host.call(&mut monitor, &call(&packet, b"k", NOW));
        assert_eq!(done.sent[0].payload, packet);
        let answer = Record::parse(&done.replies[0].1).unwrap();
        assert_eq!(
            (answer.int("estimate"), answer.int("packets")),
            (Ok(n), Ok(n))
        );
        assert_eq!(answer.int("window"), Ok(170_000_000));
    }
    let mut fields = alloc::vec![
        ("op", Value::Text("report")),
        ("which", Value::Text("last")),
        ("source", Value::Text("10.0.0.7")),
        ("source-port", Value::Int(7)),
        ("destination", Value::Text("192.0.2.1")),
        ("destination-port", Value::Int(53)),
        ("protocol", Value::Int(17)),
    ];
    let done = host.call(
        &mut monitor,
        &call(&query(&fields), b"other", NOW + 10 * SECOND),
    );
    let answer = Record::parse(&done.replies[0].1).unwrap();
    assert_eq!(
        (answer.int("estimate"), answer.int("packets")),
        (Ok(3), Ok(3))
    );
    assert!(answer.has("heavy"));
    fields[3].1 = Value::Int(65_536);
    let done = host.call(&mut monitor, &call(&query(&fields), b"other", NOW));
    let reason = b"field \"source-port\": is 65536, must be 0..=65535".to_vec();
    assert_eq!(done.replies, [(status::MALFORMED, reason)]);
}

#[test]
fn configuration_is_checked() {
    for (name, value) in [
        ("width", "15"),
        ("width", "500"), // too few for the share
        ("depth", "9"),
        ("share", "0"),
        ("share", "NaN"),
        ("window-s", "0"),
        ("seed", "-1"),
    ] {
        let _host = host().config(name, value);
        let error = Flowmon::init().unwrap_err().to_string();
        assert!(error.starts_with(&format!("config {name:?}")), "{error}");
    }
}

#[test]
fn any_bytes_are_counted_or_refused_without_a_trace() {
    let query = query(&[
        ("op", Value::Text("report")),
        ("source", Value::Text("10.0.0.7")),
        ("protocol", Value::Int(1)),
    ]);
    let mut counts = [0; 2];
    // many short runs: what is kept is copied for every comparison
    for seed in seeds(80) {
        let (host, mut monitor) = (host(), Flowmon::init().unwrap());
        let good = |random: &mut Random, _| {
            let mut flow = flow(random.zipf(50) as u32);
            flow.protocol = *random.pick(&[1, 6, 17, 47]);
            let packet = PacketBuilder::new(flow).size(random.index(90));
            let payload = if random.one_in(4) {
                query.clone()
            } else {
                packet.build()
            };
            call(&payload, b"key", NOW)
        };
        let [accepted, refused] = fuzz_calls(&host, &mut monitor, seed, 250, good, |_| {});
        counts = [counts[0] + accepted, counts[1] + refused];
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}

/// The numbers of windows of one second take all 31 bits of a stamp.
#[test]
fn windows_of_a_second_count_as_others_do() {
    let host = host().config("window-s", "1");
    let mut monitor = Flowmon::init().unwrap();
    let bytes = PacketBuilder::new(flow(1)).build();
    for n in 1..=8 {
        let done = host.call(&mut monitor, &call(&bytes, b"key", NOW));
        let answer = Record::parse(&done.replies[0].1).unwrap();
        assert_eq!(answer.int("estimate"), Ok(n));
    }
}
