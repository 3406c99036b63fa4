//! Deployments, scaling, drains, cordons, new and removed nodes and lost ones, in any order: the plans
//! stay valid after every step, and the cluster settles when the steps end.

use crate::relays::relaying_topology;
use crate::script;
use crate::script::{AT, NODES, Script};
use e3_control::{Command, Stays};
use e3_model::application::Pin;
use e3_model::document::parse_topology;
use e3_model::topology::Rack;
use e3_model::{Accelerators, AppId, Format, NodeId, ServiceId};
use e3_testkit::{Random, seeds};
use std::collections::BTreeSet;

/// Many nodes return at the end, and placement comes back to them move by move.
const ROUNDS_MAX: usize = 2_000;

/// What the second service may need as of format 9.
const NEEDS: [&str; 4] = [
    "pin: {kind: host}",
    "pin: {kind: smartnic}",
    "accelerators: [aes-cbc]\n      acceleratorsRequired: [aes-cbc]",
    "durability: memory",
];
/// What the nodes of the first servers have for that.
const HAVES: &str = "disk: 8Gi, accelerators: [aes-cbc]";

fn is_firm(s: &Script) -> bool {
    s.control.format >= Format::FIRM_RESOURCES
}

/// The sample under a name, with memory that fills a SmartNIC after a few instances.
fn manifest(s: &Script, random: &mut Random, name: &str) -> String {
    let app = script::APP.replace("two-services", name);
    let memory_mi = 64u64 << random.below(6);
    let memory = format!("memory: {memory_mi}Mi");
    let app = app.replace("memory: 64Mi", &memory);
    if !is_firm(s) {
        return app;
    }
    let (disk, needs) = (1 + random.below(3), random.pick(&NEEDS));
    let (front, back) = app.rsplit_once(&memory).expect("it has two services");
    let back = back.replacen('}', &format!(", disk: {disk}Gi}}\n      {needs}"), 1);
    format!("{front}{memory}{back}")
}

fn racks(text: &str) -> Vec<Rack> {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: more}}\nspec:\n  racks:\n{text}"
    );
    parse_topology("more.yaml", &text).unwrap().spec.racks
}

/// A server with a host and a SmartNIC, or one more SmartNIC of a server that exists.
fn hardware(s: &Script, random: &mut Random, number: u64) -> Vec<Rack> {
    let topology = &s.control.topology;
    let at = random.below(topology.nodes_count() as u64) as usize;
    let found = topology.nodes().nth(at).unwrap();
    let is_relay = topology.nodes().any(|n| n.node.relay);
    if random.below(3) == 0 {
        let (rack, server) = (found.rack_name, &found.in_server.name);
        return racks(&format!(
            "    - name: {rack}\n      servers:\n        - name: {server}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: new{number}-nic, kind: smartnic, cores: 12, memory: 4Gi}}\n"
        ));
    }
    let rack = match random.below(2) {
        0 => found.rack_name.to_string(),
        _ => format!("rack{}", random.below(3)),
    };
    racks(&format!(
        "    - name: {rack}\n      servers:\n        - name: new{number}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: new{number}-host, kind: host, cores: 12, memory: 64Gi}}\n            - {{name: new{number}-nic, kind: smartnic, cores: 12, memory: 4Gi, relay: {is_relay}}}\n"
    ))
}

/// A node of the topology, or now and then one that was removed.
fn any_node(s: &Script, random: &mut Random) -> NodeId {
    let removed: Vec<NodeId> = s.control.removed.keys().copied().collect();
    if !removed.is_empty() && random.below(8) == 0 {
        return *random.pick(&removed);
    }
    let nodes: Vec<NodeId> = s.control.topology.nodes().map(|n| n.id).collect();
    *random.pick(&nodes)
}

fn join(s: &mut Script, node: NodeId, process: u64) {
    if s.control.topology.node(node).is_some() {
        let name = s.control.node_name(node);
        s.join(&name, process);
    }
}

fn step(s: &mut Script, random: &mut Random, number: u64) {
    let node = any_node(s, random);
    let apps: Vec<AppId> = s.control.apps.keys().copied().collect();
    let command = match random.below(16) {
        0 => {
            let name = format!("app{}", random.below(3));
            let text = manifest(s, random, &name);
            let _ = s.deploy_manifest(&text);
            return;
        }
        1 if apps.len() > 1 => Command::Delete {
            app: format!("app{}", random.below(3)),
        },
        2 if !apps.is_empty() => Command::Scale {
            app: *random.pick(&apps),
            service: ServiceId(random.below(2) as u16),
            replicas: 1 + random.below(4) as u16,
        },
        // As the API does, which also refuses what would stay for ever.
        3 | 4 if s.control.check_drain(node).is_ok() => Command::Drain { node },
        5 => Command::Resume { node },
        6 => Command::Cordon { node },
        7 | 8 => Command::AddNodes {
            racks: hardware(s, random, number),
        },
        9 | 10 => Command::RemoveNode { node },
        11 if s.control.is_up(node) => {
            let incarnation = s.control.members[&node].incarnation;
            let nodes = [(node, incarnation)].into();
            Command::Lose { nodes, at: AT }
        }
        12 if s.control.members.contains_key(&node) => Command::Hear {
            node,
            incarnation: s.control.members[&node].incarnation,
            at: AT,
        },
        13 => return join(s, node, 10_000 + number),
        14 if is_firm(s) && !apps.is_empty() => {
            let plan = &s.control.apps[random.pick(&apps)].plan;
            let shard = random.pick(&plan.shards);
            let (key, from) = (plan.key(shard), shard.primary);
            let (to, cold) = (node, random.below(2) == 0);
            Command::Migrate {
                key,
                from,
                to,
                cold,
            }
        }
        14 | 15 if random.below(2) == 0 => return s.settle_reachable(),
        _ => return s.fill_all(),
    };
    println!("step {number}: {command:?}");
    let _ = s.apply(command);
}

/// No node has more than its memory and disk, nothing is where there is no node, or one that lacks what the
/// service asks for.
fn check_plans(s: &Script) {
    for (id, node) in s.control.resources().nodes() {
        let (used, has) = (node.used.memory_bytes, node.memory_bytes);
        assert!(used <= has, "{id}: {used} bytes of {has}");
        let (used, has) = (node.used.disk_bytes, node.disk_bytes);
        assert!(used <= has, "{id}: {used} bytes of disk of {has}");
    }
    let nodes: BTreeSet<NodeId> = s.control.topology.nodes().map(|n| n.id).collect();
    for shard in s.control.apps.values().flat_map(|app| &app.plan.shards) {
        let all = [&shard.backups, &shard.joining, &shard.leaving];
        let mut all = all.into_iter().flatten().chain([&shard.primary]);
        assert!(all.all(|n| nodes.contains(n)), "{shard:?}");
    }
    for app in s.control.apps.values() {
        for shard in &app.plan.shards {
            let service = app.plan.app.service(shard.service);
            let is_good = |id: &NodeId| {
                let node = s
                    .control
                    .topology
                    .node(*id)
                    .expect("it was just found")
                    .node;
                let pin = service.pin.as_ref();
                pin.is_none_or(|pin| *pin == Pin::Kind(node.kind))
                    && node.accelerators.include(service.accelerators_required())
            };
            let placed = (!app.is_orphan(shard)).then_some(&shard.primary);
            let mut all = placed
                .into_iter()
                .chain(&shard.backups)
                .chain(&shard.joining);
            assert!(all.all(is_good), "{shard:?} of {service:?}");
        }
    }
}

/// Every node is in service and heard, and nothing else happens: then every shard gets its copies.
fn check_convergence(s: &mut Script) {
    let nodes: Vec<NodeId> = s.control.topology.nodes().map(|n| n.id).collect();
    for (i, node) in nodes.iter().enumerate() {
        s.ok(Command::Resume { node: *node });
        join(s, *node, 90_000 + i as u64);
    }
    s.settle_within(ROUNDS_MAX);
    check_plans(s);
    for app in s.control.apps.values() {
        for shard in &app.plan.shards {
            assert!(shard.joining.is_empty() && shard.leaving.is_empty());
            // Another copy has no room.
            if s.control.waiting_of(app.plan.key(shard)).is_some() {
                continue;
            }
            assert!(!shard.frozen && !app.is_orphan(shard), "{shard:?}");
            let copies = 1 + shard.backups.len();
            let wanted = usize::from(app.plan.app.service(shard.service).replicas);
            let domains = s
                .control
                .resources()
                .fault_domains(None, Accelerators::NONE);
            assert!(copies == wanted || copies == domains, "{shard:?}");
        }
    }
    // And what is drained now leaves, or says that there is no room.
    let node = nodes[0];
    if s.control.check_drain(node).is_ok() {
        s.ok(Command::Drain { node });
        s.settle_within(ROUNDS_MAX);
        for left in s.control.undrained(node) {
            assert!(matches!(left.stays, Stays::NoRoom(_)), "{left:?}");
        }
    }
}

fn any_order(seeds: impl Iterator<Item = u64>, topology: &str, format: Format) {
    for seed in seeds {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut s = Script::of(topology, format);
        for (i, node) in NODES.iter().enumerate() {
            s.join(node, 100 + i as u64);
        }
        for number in 0..80 {
            step(&mut s, &mut random, number);
            check_plans(&s);
        }
        check_convergence(&mut s);
        s.check();
    }
}

#[test]
fn any_order_of_changes_keeps_plans_valid_and_settles() {
    let topology =
        script::TOPOLOGY.replace("bandwidthGbps: 10", &format!("bandwidthGbps: 10, {HAVES}"));
    any_order(seeds(60), &topology, Format::NEWEST);
}

#[test]
fn any_order_of_changes_keeps_plans_valid_where_smartnics_relay() {
    let topology =
        relaying_topology().replace("bandwidthGbps: 10", &format!("bandwidthGbps: 10, {HAVES}"));
    any_order(seeds(30), &topology, Format::NEWEST);
}

#[test]
fn any_order_of_changes_settles_in_format_8() {
    any_order(seeds(20), script::TOPOLOGY, Format::NODES);
}
