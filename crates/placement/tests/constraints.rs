//! Constraints that bind every placer alike: accelerators, disk, racks, power, waiting requests, and the busiest
//! hour of a day.

use crate::common::paper::{APPS, CLUSTERS, app, profiles, topology};
use e3_model::document::{parse_application, parse_topology};
use e3_model::plan::Role;
use e3_model::{Application, NodeId, NodeKind, ServiceId, Topology};
use e3_placement::{
    AdmitError, Annealing, Cluster, InstanceKey, PLACERS, Placement, Request, admit, by_name,
    carried, ilp, with_possible_replicas,
};
use e3_testkit::{Random, seeds};
use std::collections::{BTreeMap, BTreeSet};

/// Racks of servers with a host and a SmartNIC each; `host` and `nic` say what these have beside a name.
fn cluster(racks: usize, servers: usize, host: &str, nic: &str) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n  racks:\n"
            .to_string();
    for rack in 0..racks {
        text += &format!("    - name: r{rack}\n      servers:\n");
        for server in 0..servers {
            let name = format!("r{rack}s{server}");
            text += &format!(
                "        - name: {name}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: {name}h, kind: host, {host}}}\n            - {{name: {name}n, kind: smartnic, {nic}}}\n"
            );
        }
    }
    parse_topology("t", &text).unwrap()
}

/// An application of one service.
fn service(rest: &str) -> Application {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: a}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: s\n  services:\n    - {{name: s, module: m, stateful: true, {rest}}}\n"
    );
    parse_application("a", &text).unwrap()
}

fn place(
    name: &str,
    request: &Request<'_>,
    cluster: &mut Cluster,
) -> Result<Placement, AdmitError> {
    admit(&*by_name(name).unwrap(), request, cluster, false)
}

const HOST: &str = "cores: 12, memory: 8Gi";
const NIC: &str = "cores: 12, memory: 4Gi";

#[test]
fn every_placer_keeps_a_service_on_nodes_with_the_accelerators_that_it_requires() {
    let topology = cluster(2, 2, &format!("{HOST}, accelerators: [aes-cbc]"), NIC);
    let app = service(
        "shards: 6, replicas: 2, accelerators: [aes-cbc, match], acceleratorsRequired: [match], resources: {cpu: 0.5, memory: 64Mi}",
    );
    let request = Request::new(&app, &BTreeMap::new());
    for name in PLACERS {
        let mut cluster = Cluster::new(&topology);
        let placed = place(name, &request, &mut cluster);
        if name == "hosts-only" {
            let error = placed.unwrap_err();
            assert_eq!(
                error.to_string(),
                "service \"s\": none of 4 nodes that may run it has the accelerators that it requires; r0s0h comes closest: match missing"
            );
            continue;
        }
        for d in &placed.unwrap().decisions {
            assert_eq!(cluster.node(d.node).kind, NodeKind::SmartNic, "{name}");
        }
    }
}

#[test]
fn a_service_that_only_uses_an_accelerator_may_run_without_it() {
    let topology = cluster(
        1,
        2,
        &format!("{HOST}, accelerators: []"),
        &format!("{NIC}, accelerators: []"),
    );
    let app = service("accelerators: [match], resources: {cpu: 0.5, memory: 64Mi}");
    let request = Request::new(&app, &BTreeMap::new());
    for name in PLACERS {
        place(name, &request, &mut Cluster::new(&topology)).unwrap();
    }
}

#[test]
fn candidates_have_the_accelerators_that_a_service_requires_even_if_only_the_last_servers_do() {
    let topology = cluster(
        1,
        40,
        &format!("{HOST}, accelerators: []"),
        &format!("{NIC}, accelerators: []"),
    );
    let mut text = serde_json::to_value(&topology.spec).unwrap();
    for server in 38..40 {
        let node = &mut text["racks"][0]["servers"][server]["nodes"][0];
        node["accelerators"] = serde_json::json!(["crc32"]);
    }
    let topology = Topology::new("t".into(), serde_json::from_value(text).unwrap());
    let app = service(
        "replicas: 2, accelerators: [crc32], acceleratorsRequired: [crc32], resources: {cpu: 0.5, memory: 64Mi}",
    );
    let request = Request::new(&app, &BTreeMap::new());
    for name in PLACERS {
        let mut cluster = Cluster::new(&topology);
        let placed = place(name, &request, &mut cluster).unwrap();
        let servers: Vec<usize> = placed
            .decisions
            .iter()
            .map(|d| cluster.node(d.node).server)
            .collect();
        assert_eq!(BTreeSet::from_iter(servers), [38, 39].into(), "{name}");
        if name == "joules" {
            assert!(
                !placed.decisions[0].considered.is_empty(),
                "by its own search"
            );
        }
    }
    let program = ilp::Program::new(&request, &mut Cluster::new(&topology)).unwrap();
    assert!(program.text.contains("p_0_"), "{}", program.text);
}

#[test]
fn no_placer_exceeds_a_disk_and_the_error_says_where_least_lacks() {
    let host = format!("{HOST}, disk: 100Mi");
    let topology = cluster(2, 2, &host, &format!("{NIC}, disk: 40Mi"));
    let app = service("shards: 8, resources: {cpu: 0.1, memory: 8Mi, disk: 50Mi}");
    let request = Request::new(&app, &BTreeMap::new());
    for name in PLACERS {
        let mut cluster = Cluster::new(&topology);
        place(name, &request, &mut cluster).unwrap();
        let disks = cluster
            .nodes()
            .map(|(_, n)| (n.kind, n.used.disk_bytes >> 20));
        for (kind, used) in disks {
            assert_eq!(used, if kind == NodeKind::Host { 100 } else { 0 }, "{name}");
        }
        let error = place(name, &request, &mut cluster).unwrap_err().to_string();
        let most = if name == "hosts-only" { "0" } else { "40Mi" };
        let expected = format!("asks for 50Mi of disk, the most that one node has free is {most}");
        assert!(error.contains(&expected), "{name}: {error}");
    }
}

#[test]
fn a_service_with_its_state_on_disk_needs_three_times_its_quota() {
    let topology = cluster(
        1,
        1,
        &format!("{HOST}, disk: 100Mi"),
        &format!("{NIC}, disk: 100Mi"),
    );
    for (state, fits) in [("33Mi", true), ("34Mi", false)] {
        let app = service(&format!(
            "durability: disk, resources: {{cpu: 0.1, memory: 64Mi, state: {state}}}"
        ));
        let request = Request::new(&app, &BTreeMap::new());
        let placed = place("joules", &request, &mut Cluster::new(&topology));
        assert_eq!(placed.is_ok(), fits, "{state}");
    }
}

/// Replicas that share a rack with another one of their shard.
fn sharing(cluster: &Cluster, placement: &Placement, shards: u16) -> usize {
    let of_shard = |shard| {
        let nodes = placement.replicas(ServiceId(0), e3_model::ShardId(shard));
        let racks: BTreeSet<usize> = nodes.iter().map(|n| cluster.node(*n).rack).collect();
        nodes.len() - racks.len()
    };
    (0..shards).map(of_shard).sum()
}

#[test]
fn every_placer_puts_replicas_into_different_racks() {
    for (racks, servers, replicas) in [(2, 3, 2), (3, 3, 3), (3, 3, 2), (4, 2, 3), (3, 1, 3)] {
        let topology = cluster(racks, servers, HOST, NIC);
        let app = service(&format!(
            "shards: 8, replicas: {replicas}, resources: {{cpu: 0.5, memory: 64Mi}}"
        ));
        let request = Request::new(&app, &BTreeMap::new());
        for name in PLACERS {
            let mut cluster = Cluster::new(&topology);
            let placed = place(name, &request, &mut cluster).unwrap();
            let sharing = sharing(&cluster, &placed, 8);
            println!(
                "{name}: {sharing} of {} replicas share a rack ({racks} racks)",
                8 * replicas
            );
            assert_eq!(sharing, 0, "{name}, {racks} racks, {replicas} replicas");
        }
    }
}

#[test]
fn joules_uses_different_racks_wherever_there_is_room() {
    let mut replicas_in_all = 0;
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let (racks, shards) = (2 + random.below(3), 1 + random.below(60));
        let replicas = 2 + random.below(racks.min(3) - 1);
        let servers = 2 + random.index(4);
        // All racks but the first have so many servers.
        let mut text =
            serde_json::to_value(cluster(racks as usize, servers, HOST, NIC).spec).unwrap();
        let first = text["racks"][0]["servers"].as_array_mut().unwrap();
        first.truncate(1 + random.index(servers));
        let topology = Topology::new("t".into(), serde_json::from_value(text).unwrap());
        let app = service(&format!(
            "shards: {shards}, replicas: {replicas}, resources: {{cpu: 1, memory: 8Mi}}"
        ));
        let request = Request::new(&app, &BTreeMap::new());
        let mut cluster = Cluster::new(&topology);
        let placed = place("joules", &request, &mut cluster).unwrap();
        let sharing = sharing(&cluster, &placed, shards as u16);
        let case = format!("seed {seed}: {racks} racks, {servers} servers, {shards} x {replicas}");
        assert_eq!(sharing, 0, "{case}");
        assert!(
            !placed.decisions[0].considered.is_empty(),
            "{case}: by its own search"
        );
        replicas_in_all += placed.decisions.len();
    }
    assert!(replicas_in_all > 1000);
}

#[test]
fn joules_puts_replicas_into_one_rack_rather_than_none() {
    // The second rack holds one shard's backup only.
    let mut text = serde_json::to_value(cluster(2, 2, HOST, NIC).spec).unwrap();
    for (server, node) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let memory = if (server, node) == (0, 0) {
            "64Mi"
        } else {
            "1Mi"
        };
        text["racks"][1]["servers"][server]["nodes"][node]["memory"] = serde_json::json!(memory);
    }
    let topology = Topology::new("t".into(), serde_json::from_value(text).unwrap());
    let app = service("shards: 4, replicas: 2, resources: {cpu: 0.5, memory: 64Mi}");
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = Cluster::new(&topology);
    let placed = place("joules", &request, &mut cluster).unwrap();
    assert!(
        !placed.decisions[0].considered.is_empty(),
        "by its own search"
    );
    assert!(sharing(&cluster, &placed, 4) >= 3);
}

#[test]
fn the_integer_program_counts_replicas_beyond_one_in_each_rack() {
    let app = service("shards: 4, replicas: 2, resources: {cpu: 0.5, memory: 64Mi, disk: 1Mi}");
    let request = Request::new(&app, &BTreeMap::new());
    let text = |racks, host: &str| {
        let mut cluster = Cluster::new(&cluster(racks, 2, host, NIC));
        ilp::Program::new(&request, &mut cluster).unwrap().text
    };
    let two = text(2, HOST);
    let rules = two
        .lines()
        .filter(|l| l.contains("r_0_") && l.contains("<= 4e0"));
    assert_eq!(rules.count(), 2, "{two}");
    let objective = two.lines().find(|l| l.contains("obj:")).unwrap();
    assert!(objective.contains("r_0_0") && objective.contains("r_0_1"));
    assert!(!text(1, HOST).contains("r_0_"));
    let lacking = text(2, &format!("{HOST}, disk: 512Ki"));
    assert!(
        !lacking.contains(" p_0_0\n") && lacking.contains(" p_0_1\n"),
        "{lacking}"
    );
}

/// Four servers, of which the first may draw less than a balanced load needs.
fn bounded() -> Topology {
    let mut text = serde_json::to_value(cluster(2, 2, HOST, NIC).spec).unwrap();
    for (rack, server, max_w) in [(0, 0, 120), (0, 1, 200), (1, 0, 200), (1, 1, 200)] {
        text["racks"][rack]["servers"][server]["powerBudgetW"] = serde_json::json!(max_w);
    }
    Topology::new("t".into(), serde_json::from_value(text).unwrap())
}

#[test]
fn annealing_keeps_power_budgets() {
    let topology = bounded();
    let app = service("shards: 12, resources: {cpu: 1, memory: 64Mi}, pin: {kind: host}");
    let request = Request::new(&app, &BTreeMap::new());
    for seed in 0..20 {
        let mut cluster = Cluster::new(&topology);
        let placer = Annealing { seed };
        let placed = admit(&placer, &request, &mut cluster, false);
        assert!(placed.is_ok(), "seed {seed}: {}", placed.unwrap_err());
    }
}

#[test]
fn annealing_keeps_off_nodes_on_which_too_many_requests_wait() {
    let app = service("shards: 4, resources: {cpu: 1, memory: 64Mi}");
    let request = Request::new(&app, &BTreeMap::new());
    for name in PLACERS {
        let mut cluster = Cluster::new(&cluster(2, 2, HOST, NIC));
        for node in 0..7 {
            cluster.set_outstanding(NodeId(node), if node == 4 { 0 } else { 100_000 });
        }
        let placed = place(name, &request, &mut cluster).unwrap();
        let nodes: BTreeSet<NodeId> = placed.decisions.iter().map(|d| d.node).collect();
        assert!(
            nodes.is_subset(&[NodeId(4), NodeId(7)].into()),
            "{name}: {nodes:?}"
        );
    }
}

fn with_day(mut app: Application, day: &[f64]) -> Application {
    let load = app.spec.load.as_mut().expect("it states a load");
    load.day = day.to_vec();
    app
}

/// Busy for four hours.
fn day(trough: f64) -> Vec<f64> {
    (0..24)
        .map(|hour| if hour < 4 { 1.0 } else { trough })
        .collect()
}

#[test]
fn room_is_reserved_for_the_busiest_hour() {
    let mut hours = vec![0.5; 24];
    hours[9] = 3.0;
    let flat = app("nfv-fin");
    let varied = with_day(flat.clone(), &hours);
    let profiles = profiles();
    let (flat, varied) = (
        Request::new(&flat, &profiles),
        Request::new(&varied, &profiles),
    );
    for service in flat.services() {
        for role in [Role::Primary, Role::Backup] {
            let (once, most) = (
                flat.demand(service, role, NodeKind::Host),
                varied.demand(service, role, NodeKind::Host),
            );
            assert!((most.cpu_cores / once.cpu_cores - 3.0).abs() < 1e-9);
            assert!((most.bandwidth_gbps - 3.0 * once.bandwidth_gbps).abs() < 1e-9);
            assert_eq!(most.memory_bytes, once.memory_bytes);
        }
    }
    let small = service("resources: {cpu: 0.3, memory: 8Mi}");
    assert!(Request::new(&small, &profiles).day().is_empty());
}

/// Energy of a request over a day whose busiest hour is at the knee of the placement.
fn joules_of_day(request: &Request<'_>, cluster: &Cluster, placed: &Placement, day: &[f64]) -> f64 {
    let nodes: BTreeMap<InstanceKey, NodeId> =
        placed.decisions.iter().map(|d| (d.key, d.node)).collect();
    let node_of = |key| nodes.get(&key).copied();
    let knee = carried(request, cluster, node_of, 1.0).unwrap().knee_rps;
    let watts = |factor: &f64| {
        carried(request, cluster, node_of, knee * factor)
            .unwrap()
            .watts
    };
    day.iter().map(watts).sum::<f64>() / (knee * day.iter().sum::<f64>())
}

#[test]
fn joules_weighs_the_hours_of_the_day() {
    let (profiles, day) = (profiles(), day(0.05));
    let (mut better, mut product, mut count) = (0, 1.0_f64, 0);
    for (name, _) in CLUSTERS {
        let topology = topology(name);
        for (app_name, _) in APPS {
            let flat = with_possible_replicas(app(app_name), &topology);
            let varied = with_day(flat.clone(), &day);
            let (flat, varied) = (
                Request::new(&flat, &profiles),
                Request::new(&varied, &profiles),
            );
            let cluster = Cluster::new(&topology);
            let joules = |by: &Request<'_>| {
                let placed = by_name("joules")
                    .unwrap()
                    .place(by, &mut cluster.clone())
                    .unwrap();
                joules_of_day(&varied, &cluster, &placed, &day)
            };
            let ratio = joules(&varied) / joules(&flat);
            println!("{name:18} {app_name:9} {ratio:.3}");
            product *= ratio;
            count += 1;
            better += usize::from(ratio < 0.99);
            // The search is local: it may end elsewhere.
            assert!(ratio < 1.06, "{app_name} on {name}: {ratio}");
        }
    }
    let mean = product.powf(1.0 / f64::from(count));
    println!("{better} of {count} better, geometric mean {mean:.3}");
    assert!(better >= 3 && mean < 1.0, "{better} better, mean {mean}");
}
