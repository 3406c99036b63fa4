//! Links that fail without a controller, and the stacks of hosts.

mod common;

use common::{Scene, at, iot_ts, scene};
use e3_hardware::stack::Stack;
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Nanos, NodeId, Topology};
use e3_perfsim::limits::{
    CLIENT_DEADLINE, CLIENT_RETRY_AFTER, CLIENT_RETRY_AFTER_MAX, CLIENT_RETRY_GROWTH, RESEND_AFTER,
};
use e3_perfsim::{Failing, Fault, Report};
use std::collections::BTreeMap;

const TYPE2: &str = include_str!("../../../topologies/2x-type2.yaml");

/// `a` on a SmartNIC sends to `b` on a host.
fn two(topology: Topology, a: &str, b: &str) -> Scene {
    let app = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: two}}\nspec:\n  objective: {{latency: 20ms}}\n  ingress: a\n  services:\n    - {{name: a, module: m, resources: {{cpu: 0.1, memory: 1Mi}}, pin: {{node: {a}}}}}\n    - {{name: b, module: m, resources: {{cpu: 0.1, memory: 1Mi}}, pin: {{node: {b}}}}}\n  channels:\n    - {{from: a, to: b}}\n"
    );
    let profile = |name: &str| {
        let text = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: {name}}}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    host:\n      serviceTime: [{{bytes: 512, time: 10us}}]\n      activePowerW: 20\n      activeCores: 8\n    smartnic:\n      serviceTime: [{{bytes: 512, time: 10us}}]\n      activePowerW: 20\n      activeCores: 12\n"
        );
        (name.to_string(), parse_profile("profile", &text).unwrap())
    };
    let profiles = BTreeMap::from([profile("a"), profile("b")]);
    scene(
        parse_application("two", &app).unwrap(),
        topology,
        profiles,
        "hcm",
    )
}

fn fault(what: Failing, from_ms: u64, until_ms: Option<u64>) -> Fault {
    Fault {
        what,
        from: Nanos::from_millis(from_ms),
        until: until_ms.map(Nanos::from_millis),
    }
}

fn node(scene: &Scene, name: &str) -> NodeId {
    let mut nodes = scene.topology.nodes();
    nodes.find(|n| n.node.name == name).unwrap().id
}

fn port_use(report: &Report, name: &str) -> f64 {
    let node = report.nodes.iter().find(|n| n.name == name).unwrap();
    node.port_utilisation
}

#[test]
fn a_host_is_reached_over_the_links_that_are_left() {
    let topology = parse_topology("2x-type2", TYPE2).unwrap();
    let mut scene = two(topology, "s2-nic0", "s1-host");
    for name in ["s1-nic0", "s1-nic1", "s1-nic2"] {
        let what = Failing::Link(node(&scene, name));
        scene.options.faults.push(fault(what, 200, None));
    }
    let report = scene.run(at(5_000.0, 2.0));
    assert!(port_use(&report, "s1-nic3") > 0.001);
    let d = report.disruption;
    // Those of the time until switches avoid the links, 10 ms, if the flow took one of them.
    assert!(d.messages_lost <= 60, "{d:?}");
    assert!(
        d.requests_failed == 0 && report.in_flight < 10,
        "{d:?} {}",
        report.in_flight
    );
}

#[test]
fn a_host_without_any_link_is_lost_until_one_is_back() {
    let topology = parse_topology("2x-type2", TYPE2).unwrap();
    let mut scene = two(topology, "s2-nic0", "s1-host");
    for name in ["s1-nic0", "s1-nic1", "s1-nic2", "s1-nic3"] {
        let what = Failing::Link(node(&scene, name));
        scene.options.faults.push(fault(what, 500, Some(1_000)));
    }
    let report = scene.run(at(1_000.0, 2.0));
    let d = report.disruption;
    assert!((450..650).contains(&d.requests_late), "{d:?}");
    assert!(d.messages_lost > 2_000 && d.requests_failed == 0, "{d:?}");
    assert!(report.in_flight < 10, "{}", report.in_flight);
    assert!(report.latency.unwrap().max_us > 500_000.0);
}

#[test]
fn links_between_racks_fail_over_to_the_others() {
    let rack = |name: &str, node: &str| {
        format!(
            "    - name: {name}\n      servers:\n        - name: {node}s\n          system: Beefy\n          nodes:\n            - {{name: {node}, kind: host, cores: 12, memory: 64Gi}}\n"
        )
    };
    let topology = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: racks}}\nspec:\n  racks:\n{}{}",
        rack("r0", "h0"),
        rack("r1", "h1")
    );
    let mut scene = two(parse_topology("racks", &topology).unwrap(), "h0", "h1");
    scene.options.guesses.uplinks_per_rack = 4.0;
    let calm = scene.run(at(2_000.0, 2.0));
    assert_eq!(calm.disruption.messages_lost, 0);
    for link in 0..3 {
        let what = Failing::Uplink { rack: 1, link };
        scene.options.faults.push(fault(what, 300, None));
    }
    let report = scene.run(at(2_000.0, 2.0));
    assert!(
        report.disruption.messages_lost <= 30,
        "{:?}",
        report.disruption
    );
    assert!(report.in_flight < 10, "{}", report.in_flight);
}

#[test]
fn faults_of_what_is_not_there_are_refused() {
    let refused = |what, from_ms, until_ms| {
        let topology = parse_topology("2x-type2", TYPE2).unwrap();
        let mut scene = two(topology, "s2-nic0", "s1-host");
        scene.options.faults.push(fault(what, from_ms, until_ms));
        scene.try_run(at(10.0, 1.0)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(Failing::Node(NodeId(99)), 1, None),
        "a fault names node 99, topology \"2x-type2\" has 10"
    );
    assert_eq!(
        refused(Failing::Uplink { rack: 0, link: 0 }, 1, None),
        "a fault names uplink 0, topology \"2x-type2\" has 0"
    );
    assert_eq!(
        refused(Failing::Node(NodeId(0)), 2_000, Some(1_000)),
        "a fault ends at 1 s, must be later than its beginning at 2 s"
    );
}

#[test]
fn linux_sockets_cost_hosts_time_and_energy_and_smartnics_nothing() {
    let mut hosts = iot_ts("3x-beefy", "hcm-kind");
    let run = |scene: &Scene| scene.run(at(20_000.0, 1.0));
    let bypass = run(&hosts);
    hosts.options.stack = Stack::Linux;
    let linux = run(&hosts);
    assert!(linux.latency.unwrap().p50_us > bypass.latency.unwrap().p50_us + 20.0);
    assert!(linux.requests_per_joule < bypass.requests_per_joule);
    let hosts = two(
        parse_topology("2x-type2", TYPE2).unwrap(),
        "s2-nic0",
        "s1-host",
    );
    let mut hosts = hosts;
    hosts.options.stack = Stack::Linux;
    let error = hosts.try_run(at(10.0, 1.0)).unwrap_err().to_string();
    assert!(error.contains("is not of Table 1"), "{error}");
}

#[test]
fn smaller_requests_than_were_measured_are_predicted_with_a_note() {
    let mut scene = iot_ts("3x-type1", "hcm-kind");
    let measured = scene.run(at(5_000.0, 0.5));
    let is_of_size = |note: &&String| note.contains("measured with");
    assert!(!measured.assumptions.iter().any(|n| is_of_size(&n)));
    scene.bytes = 256;
    let small = scene.run(at(5_000.0, 0.5));
    let note = &small.assumptions[0];
    assert!(
        note.contains("not with 256") && note.contains("between 50 and 100 %"),
        "{note}"
    );
    scene.options.guesses.per_byte_part = 1.0;
    let short = scene.run(at(5_000.0, 0.5));
    assert!(short.latency_us_avg() < small.latency_us_avg());
}

#[test]
fn lost_messages_are_sent_again_at_the_product_s_intervals() {
    assert_eq!(RESEND_AFTER, e3_channel::limits::RTO_MIN);
    assert_eq!(CLIENT_RETRY_AFTER, e3_client_core::limits::RETRY_AFTER);
    assert_eq!(CLIENT_RETRY_GROWTH, e3_client_core::limits::RETRY_GROWTH);
    assert_eq!(
        CLIENT_RETRY_AFTER_MAX,
        e3_client_core::limits::RETRY_AFTER_MAX
    );
    assert_eq!(CLIENT_DEADLINE, e3_client::limits::DEADLINE);
}
