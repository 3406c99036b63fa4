//! Ports and the size of requests bind placement.

use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Application, NodeId, NodeKind, Profile, Topology};
use e3_placement::{Cluster, PLACERS, Placement, Request, admit, by_name};
use std::collections::BTreeMap;

/// Hosts with ports of 5 Gb/s, SmartNICs with ports of 2 Gb/s: they bind before cores.
const SLOW: (u32, u32) = (5, 2);
/// Cores bind before ports.
const FAST: (u32, u32) = (100, 100);

/// Two servers with a host and a SmartNIC each, and ports of so many Gb/s.
fn topology((host, smartnic): (u32, u32)) -> Topology {
    let server = |n| {
        let node = |kind: &str, gbps| {
            format!(
                "            - {{name: s{n}-{kind}, kind: {kind}, cores: 12, memory: 64Gi, bandwidthGbps: {gbps}}}\n"
            )
        };
        format!(
            "        - name: s{n}\n          system: Type1-SmartNIC\n          nodes:\n{}{}",
            node("host", host),
            node("smartnic", smartnic)
        )
    };
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: t}}\nspec:\n  racks:\n    - name: r\n      servers:\n{}{}",
        server(0),
        server(1)
    );
    parse_topology("t", &text).unwrap()
}

/// Ten shards of a service that gets 100,000 requests of so many bytes in a second.
fn app(bytes: u32) -> Application {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: a}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: s\n  load: {{rateRps: 100000, requestBytes: {bytes}}}\n  services:\n    - {{name: s, module: m, shards: 10, resources: {{cpu: 0.1, memory: 8Mi}}}}\n"
    );
    parse_application("a", &text).unwrap()
}

fn by_node(placed: &Placement) -> BTreeMap<NodeId, usize> {
    let mut counts = BTreeMap::new();
    for d in &placed.decisions {
        *counts.entry(d.node).or_default() += 1;
    }
    counts
}

/// Places by an algorithm, or says why that is refused.
fn placed(name: &str, bytes: u32) -> Result<(Cluster, Placement), String> {
    let app = app(bytes);
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = Cluster::new(&topology(SLOW));
    let placement = admit(&*by_name(name).unwrap(), &request, &mut cluster, false);
    placement.map(|p| (cluster, p)).map_err(|e| e.to_string())
}

#[test]
fn no_placer_sends_more_through_a_port_than_it_carries() {
    // 10,000 requests of 12,500 bytes are 1 Gb/s: five shards fill the port of a host, two that of a SmartNIC.
    for name in PLACERS {
        let result = placed(name, 12_500);
        if name == "nicfirst" {
            // It looks at the memory of SmartNICs only.
            let error = result.unwrap_err();
            assert!(error.contains("asks for 1.000 Gb/s"), "{error}");
            continue;
        }
        let (cluster, placement) = result.unwrap_or_else(|e| panic!("{name}: {e}"));
        for (node, shards) in by_node(&placement) {
            let most = match cluster.node(node).kind {
                NodeKind::Host => 5,
                NodeKind::SmartNic => 2,
            };
            assert!(shards <= most, "{name}: {shards} on {node:?}");
            let used = cluster.node(node).used.bandwidth_gbps;
            assert!((used - shards as f64).abs() < 1e-9, "{name}: {used} Gb/s");
        }
    }
}

#[test]
fn larger_requests_spread_an_application_and_then_are_refused() {
    // All ten shards of small requests fit through the first port that hcm tries.
    let nodes = |bytes| by_node(&placed("hcm", bytes).unwrap().1);
    assert_eq!(nodes(125), [(NodeId(1), 10)].into());
    let larger = [
        (NodeId(0), 5),
        (NodeId(1), 2),
        (NodeId(3), 2),
        (NodeId(2), 1),
    ];
    assert_eq!(nodes(12_500), larger.into());
    // The ports carry 14 Gb/s, of which shards of 1.6 Gb/s can use 3 x 1.6 twice and 1.6 twice.
    for (bytes, fits) in [(12_500, true), (20_000, false)] {
        for name in PLACERS.into_iter().filter(|name| *name != "nicfirst") {
            let result = placed(name, bytes);
            assert_eq!(result.is_ok(), fits, "{name}, {bytes} bytes");
            if let Err(error) = result {
                assert!(error.contains("asks for 1.600 Gb/s"), "{name}: {error}");
            }
        }
    }
}

/// A service that handles small requests with less energy on a SmartNIC, large ones on a host.
fn profile() -> BTreeMap<String, Profile> {
    let node = |kind, small, large| {
        format!(
            "    {kind}:\n      serviceTime:\n        - {{bytes: 128, time: {small}us}}\n        - {{bytes: 1024, time: {large}us}}\n      activePowerW: 24\n      activeCores: 4\n"
        )
    };
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: s}}\nspec:\n  provenance: modelled\n  source: a test\n  nodes:\n{}{}",
        node("host", 20, 20),
        node("smartnic", 5, 200)
    );
    [("s".to_string(), parse_profile("s", &text).unwrap())].into()
}

#[test]
fn the_size_of_requests_decides_the_kind_of_node() {
    let profiles = profile();
    let on_smartnics = |name: &str, bytes| {
        let app = app(bytes);
        let request = Request::new(&app, &profiles);
        let mut cluster = Cluster::new(&topology(FAST));
        let placed = by_name(name).unwrap().place(&request, &mut cluster);
        let placed = placed.unwrap();
        let kinds = placed.decisions.iter().map(|d| cluster.node(d.node).kind);
        kinds.filter(|kind| *kind == NodeKind::SmartNic).count()
    };
    let counts = |name| [128, 1024].map(|bytes| on_smartnics(name, bytes));
    assert_eq!(counts("hcm"), [10, 10], "it does not look at energy");
    assert_eq!(counts("hcm-kind"), [10, 0]);
    let [small, large] = counts("joules");
    println!("joules: {small} of 10 on SmartNICs, {large} if requests are large");
    assert!(small > 5 && large == 0, "{small} and {large}");
}
