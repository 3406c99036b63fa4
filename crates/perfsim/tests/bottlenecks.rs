//! A port, the DMA engines and an uplink as what bounds the rate, each at the rate that is computed by hand.

mod common;

use common::{Scene, at, fixed, racks};
use e3_hardware::interconnect::Interconnect;
use e3_model::document::parse_topology;
use e3_perfsim::{Report, Resource};

/// Bits on the wire of a message of 512 bytes: 66 more of headers, checksum, preamble and gap.
const BITS: f64 = (512.0 + 66.0) * 8.0;

/// The resource is used for as much of the time as the load is of this rate, above it the load is not carried.
#[track_caller]
fn saturates_at(scene: &Scene, rate_rps: f64, what: Resource, node: &str) {
    let run = |part: f64| scene.run(at(rate_rps * part, 40_000.0 / rate_rps));
    for part in [0.5, 0.95] {
        let under = run(part);
        assert!(!under.saturated, "{:?}", under.bottleneck);
        let most = &under.bottleneck;
        assert_eq!((most.what, most.node.as_str()), (what, node));
        let use_expected = under.offered_rps / rate_rps;
        let off = most.utilisation / use_expected - 1.0;
        assert!(off.abs() < 0.01, "{} at {use_expected}", most.utilisation);
    }
    let over = run(1.05);
    assert!(over.saturated, "{:?}", over.bottleneck);
    assert_eq!(over.bottleneck.what, what);
    assert!(over.achieved_rps < 1.02 * rate_rps, "{}", over.achieved_rps);
}

#[test]
fn a_port_carries_its_bandwidth() {
    // 10 Gb/s of requests that come in.
    let scene = fixed(
        racks(&[&[("n", "smartnic", 12, 10.0)]]),
        &[("a", "n", 1_000)],
    );
    saturates_at(&scene, 10e9 / BITS, Resource::Port, "n");
}

/// Each request sends two messages through the port of its first node: to the second one, and the answer.
#[test]
fn a_port_carries_messages_to_nodes_and_answers_to_clients() {
    let nodes = [("n", "smartnic", 12, 10.0), ("m", "smartnic", 12, 100.0)];
    let scene = fixed(racks(&[&nodes]), &[("a", "n", 1_000), ("b", "m", 1_000)]);
    saturates_at(&scene, 10e9 / BITS / 2.0, Resource::Port, "n");
}

#[test]
fn dma_engines_carry_their_bandwidth() {
    let text = include_str!("../../../topologies/1x-type1.yaml");
    let topology = parse_topology("1x-type1", text).unwrap();
    let mut scene = fixed(topology, &[("a", "s1-nic0", 1_000), ("b", "s1-host", 100)]);
    scene.options.sleep = false;
    scene.options.guesses.set("dma_engine_gbps", 4.0).unwrap();
    // 40 messages to the host, and the answer back. Eight engines of 4 Gb/s.
    scene.visits = vec![1.0, 40.0];
    saturates_at(&scene, 32e9 / BITS / 41.0, Resource::Pcie, "s1-nic0");
}

/// A flow takes one of four uplinks, which share the bandwidth of the rack's port.
#[test]
fn an_uplink_carries_its_part_of_the_rack_less_the_oversubscription() {
    let nodes = [("n", "smartnic", 12, 20.0), ("m", "smartnic", 12, 20.0)];
    let mut scene = fixed(
        racks(&[&nodes[..1], &nodes[1..]]),
        &[("a", "n", 1_000), ("b", "m", 1_000)],
    );
    for oversubscription in [1.0, 2.0] {
        let guesses = &mut scene.options.guesses;
        guesses.set("uplinks_per_rack", 4.0).unwrap();
        guesses.set("oversubscription", oversubscription).unwrap();
        let gbps = 20.0 / 4.0 / oversubscription;
        saturates_at(&scene, gbps * 1e9 / BITS, Resource::Uplink, "");
    }
}

/// At 40 Gb/s messages of 64 bytes take the wire 26 ns. The card needs 250 ns for one that is not batched, and for
/// one of a batch of 16 a 4.25th of that.
#[test]
fn batches_carry_as_many_more_small_messages_as_their_source_says() {
    let nodes = [("n", "smartnic", 48, 40.0), ("m", "smartnic", 48, 40.0)];
    let mut scene = fixed(racks(&[&nodes]), &[("a", "n", 100), ("b", "m", 100)]);
    scene.bytes = 64;
    // Ten messages and the answer.
    scene.visits = vec![1.0, 10.0];
    let mut run = |batching: bool, rate_rps: f64| -> Report {
        scene.options.interconnect = Interconnect::Roce { batching };
        scene.run(at(rate_rps, 20_000.0 / rate_rps))
    };
    let single_rps = 1e9 / 250.0 / 11.0;
    let use_at = |report: &Report, rate_rps: f64| {
        assert_eq!(report.bottleneck.what, Resource::Port);
        report.bottleneck.utilisation / (report.offered_rps / rate_rps)
    };
    let single = run(false, 0.9 * single_rps);
    assert!(!single.saturated && (use_at(&single, single_rps) - 1.0).abs() < 0.01);
    assert!(run(false, 1.1 * single_rps).saturated);
    // What waits is batched, so the same load is carried, and loads up to 4.25 times of it.
    let batched_rps = 4.25 * single_rps;
    for part in [1.1 / 4.25, 0.9] {
        let batched = run(true, part * batched_rps);
        assert!(!batched.saturated, "{:?}", batched.bottleneck);
    }
    let over = run(true, 1.2 * batched_rps);
    assert!(over.saturated, "{:?}", over.bottleneck);
}
