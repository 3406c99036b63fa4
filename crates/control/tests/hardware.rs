//! Nodes are added, cordoned and removed at run time.

use crate::script;
use crate::script::{AT, KEY, NODES, Script};
use e3_control::{Applied, Command, CommandError};
use e3_model::document::parse_topology;
use e3_model::plan::NodeHello;
use e3_model::topology::Rack;
use e3_model::{AppId, Format, Formats, NodeId, ServiceId};

/// A cluster of three servers whose log may have nodes that come and go.
fn up() -> Script {
    let mut s = Script::founded(Format::NODES);
    for (i, node) in NODES.iter().enumerate() {
        s.join(node, 100 + i as u64);
    }
    s
}

/// It, with the sample deployed and state in every shard.
fn filled() -> Script {
    let mut s = up();
    s.deploy().unwrap();
    s.fill();
    s
}

/// The racks of a document with these lines in its spec.
fn racks(text: &str) -> Vec<Rack> {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: more}}\nspec:\n  racks:\n{text}"
    );
    parse_topology("more.yaml", &text).unwrap().spec.racks
}

/// A server with a host in a rack.
fn server(rack: &str, server: &str) -> Vec<Rack> {
    racks(&format!(
        "    - name: {rack}\n      servers:\n        - name: {server}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: {server}-host, kind: host, cores: 12, memory: 64Gi}}\n"
    ))
}

fn add(s: &mut Script, racks: Vec<Rack>) -> Vec<NodeId> {
    match s.ok(Command::AddNodes { racks }) {
        Applied::Added(ids) => ids,
        other => panic!("{other:?}"),
    }
}

/// Why hardware is not added.
fn not_added(s: &mut Script, racks: Vec<Rack>) -> String {
    s.apply(Command::AddNodes { racks })
        .unwrap_err()
        .to_string()
}

fn remove(s: &mut Script, node: NodeId) -> Result<Applied, CommandError> {
    s.apply(Command::RemoveNode { node })
}

fn is_empty(s: &Script, node: NodeId) -> bool {
    s.shards().iter().all(|shard| !shard.keeps(node))
}

#[test]
fn a_server_is_added_and_takes_copies() {
    let mut s = filled();
    // Into a rack that exists, before nodes of another one: no id changes.
    assert_eq!(add(&mut s, server("rack1", "s4")), [NodeId(6)]);
    assert_eq!(add(&mut s, server("rack0", "s5")), [NodeId(7)]);
    let names: Vec<String> = s
        .control
        .topology
        .nodes()
        .map(|n| n.node.name.clone())
        .collect();
    assert_eq!(names[..6], NODES);
    assert_eq!(names[6..], ["s4-host", "s5-host"]);
    let rack = |name| s.control.topology.node_named(name).unwrap().rack_name;
    assert_eq!((rack("s4-host"), rack("s5-host")), ("rack1", "rack0"));
    // They can hold copies once they have joined.
    let scale = Command::Scale {
        app: AppId(1),
        service: ServiceId(1),
        replicas: 5,
    };
    assert!(matches!(
        s.apply(scale.clone()),
        Err(CommandError::Place(_))
    ));
    s.join("s4-host", 500);
    s.join("s5-host", 501);
    s.ok(scale);
    s.settle();
    assert_eq!(s.shard(KEY).backups.len(), 4);
    assert!(!is_empty(&s, NodeId(6)) && !is_empty(&s, NodeId(7)));
    s.check();
}

#[test]
fn nodes_join_a_server_that_exists() {
    let mut s = filled();
    let nic = racks(
        "    - name: rack0\n      servers:\n        - name: s2\n          system: Type1-SmartNIC\n          nodes:\n            - {name: s2-nic1, kind: smartnic, cores: 12, memory: 4Gi}\n",
    );
    assert_eq!(add(&mut s, nic), [NodeId(6)]);
    let server = |s: &Script, name| s.control.topology.node_named(name).unwrap().server;
    assert_eq!(server(&s, "s2-nic1"), server(&s, "s2-host"));
    s.join("s2-nic1", 500);
    // It is of the same fault domain.
    let from = s.shard(KEY).primary;
    let others = s.shard(KEY).backups[0];
    let of = |node| {
        s.control
            .topology
            .node(node)
            .unwrap()
            .in_server
            .name
            .clone()
    };
    let fits = of(from) == "s2" || of(others) != "s2";
    let moved = s.apply(Command::Migrate {
        key: KEY,
        from,
        to: NodeId(6),
        cold: false,
    });
    assert_eq!(moved.is_ok(), fits, "{moved:?}");
    s.settle();
    s.check();
}

#[test]
fn what_is_wrong_with_new_hardware_is_said_and_nothing_is_added() {
    let mut s = up();
    let says = |s: &mut Script, racks: Vec<Rack>, expected: &str| {
        let found = not_added(s, racks);
        assert!(found.contains(expected), "{found}");
    };
    says(&mut s, Vec::new(), "no node is added, must be 1 or more");
    let mut again = server("rack1", "s4");
    again[0].servers[0].nodes[0].name = "s1-host".into();
    says(
        &mut s,
        again,
        "node \"s1-host\": the cluster has a node of this name",
    );
    says(
        &mut s,
        server("rack1", "s1"),
        "server \"s1\": the cluster has a server of this name",
    );
    says(
        &mut s,
        server("s1-nic0", "s4"),
        "rack \"s1-nic0\": the cluster has a node of this name",
    );
    let mut host = server("rack0", "s1");
    host[0].servers[0].nodes[0].name = "s1-host2".into();
    says(&mut s, host, "server \"s1\" has 2 hosts, must be at most 1");
    let mut system = server("rack0", "s1");
    system[0].servers[0].system = "Beefy".into();
    system[0].servers[0].nodes[0].name = "s1-nic9".into();
    says(
        &mut s,
        system,
        "server \"s1\" exists with system Type1-SmartNIC, not Beefy",
    );
    let mut budget = server("rack0", "s4");
    budget[0].power_budget_w = Some(500.0);
    says(
        &mut s,
        budget,
        "rack \"rack0\" exists with powerBudgetW none, not 500 W",
    );
    let mut many = server("rack1", "s4");
    let node = many[0].servers[0].nodes[0].clone();
    many[0].servers[0].nodes = vec![node; 1_000_000];
    says(&mut s, many, "1000000 more nodes: 6 of ");
    s.check();
}

#[test]
fn what_the_release_of_the_format_cannot_read_is_not_added_and_a_replay_takes_it() {
    let mut racks = server("rack1", "s4");
    racks[0].servers[0].nodes[0].disk = Some("1Gi".parse().unwrap());
    let mut s = up();
    let refused = s.control.grown(&racks).unwrap_err().to_string();
    assert!(
        refused.starts_with("sizes of disks of added nodes need format 9"),
        "{refused}"
    );
    s.control.grown(&server("rack1", "s4")).unwrap();
    let newer = Script::founded(Format::CONSTRAINTS);
    newer.control.grown(&racks).unwrap();
    // A log of this format may have it all the same.
    assert_eq!(add(&mut s, racks), [NodeId(6)]);
    s.check();
}

#[test]
fn a_host_goes_after_the_smartnics_that_relay_its_traffic() {
    let mut s = up();
    let relayed = racks(
        "    - name: rack1\n      servers:\n        - name: s4\n          system: Type1-SmartNIC\n          nodes:\n            - {name: s4-host, kind: host, cores: 12, memory: 64Gi}\n            - {name: s4-nic0, kind: smartnic, cores: 12, memory: 4Gi, relay: true}\n",
    );
    let [host, nic] = add(&mut s, relayed)[..] else {
        panic!("two nodes are added");
    };
    let refused = s.control.check_remove(host).unwrap_err().to_string();
    assert_eq!(
        refused,
        "node \"s4-host\" cannot be removed: SmartNIC \"s4-nic0\" of its server relays its traffic; remove the SmartNIC first (e3 node remove s4-nic0)"
    );
    assert_eq!(s.control.check_remove(NodeId(0)), Ok(()));
    // A replay takes what an old log has. Nothing can be added then until the SmartNIC is gone too.
    let mut old = up();
    let again = s.control.topology.node(host).unwrap().in_server.clone();
    let mut rack = server("rack1", "s4");
    rack[0].servers[0] = again;
    add(&mut old, rack);
    remove(&mut old, host).unwrap();
    assert!(not_added(&mut old, server("rack1", "s5")).contains("relay needs a host"));
    remove(&mut old, nic).unwrap();
    add(&mut old, server("rack1", "s5"));
    old.check();
    // In the other order both go.
    assert_eq!(s.control.check_remove(nic), Ok(()));
    remove(&mut s, nic).unwrap();
    assert_eq!(s.control.check_remove(host), Ok(()));
    remove(&mut s, host).unwrap();
    add(&mut s, server("rack1", "s5"));
    s.check();
}

#[test]
fn a_log_of_the_format_before_has_no_such_command() {
    let mut s = Script::filled();
    let expected = "nodes that are added, cordoned or removed need format 8";
    assert!(not_added(&mut s, server("rack1", "s4")).starts_with(expected));
    for command in [
        Command::Cordon { node: NodeId(0) },
        Command::RemoveNode { node: NodeId(0) },
    ] {
        let refused = s.apply(command).unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
    s.check();
}

#[test]
fn a_cordoned_node_keeps_what_it_has_and_gets_nothing() {
    let mut s = filled();
    let node = s.shard(KEY).primary;
    let before = s.shards();
    assert_eq!(s.ok(Command::Cordon { node }), Applied::Changed);
    assert_eq!(s.ok(Command::Cordon { node }), Applied::Nothing);
    s.settle();
    assert_eq!(s.shards(), before, "nothing moves");
    // A new application goes elsewhere, and so do the copies that others lose.
    s.deploy_manifest(&script::APP.replace("two-services", "others"))
        .unwrap();
    assert!(
        s.control.apps[&AppId(2)]
            .plan
            .shards
            .iter()
            .all(|p| !p.keeps(node))
    );
    // Drained, it is not cordoned any more; one command ends either.
    s.ok(Command::Drain { node });
    assert!(s.control.cordoned.is_empty());
    assert_eq!(s.ok(Command::Cordon { node }), Applied::Nothing);
    s.ok(Command::Resume { node });
    s.settle();
    s.ok(Command::Cordon { node });
    assert_eq!(s.ok(Command::Resume { node }), Applied::Changed);
    assert_eq!(s.ok(Command::Resume { node }), Applied::Nothing);
    s.check();
}

#[test]
fn a_node_is_removed_when_nothing_is_on_it_and_never_comes_back() {
    let mut s = filled();
    let node = s.shard(KEY).primary;
    let name = s.control.node_name(node);
    let refused = remove(&mut s, node).unwrap_err().to_string();
    assert!(refused.contains("two-services/back/0"), "{refused}");
    assert!(
        refused.contains(&format!("e3 node drain {name}")),
        "{refused}"
    );
    s.ok(Command::Drain { node });
    s.settle();
    assert_eq!(remove(&mut s, node), Ok(Applied::Changed));
    assert_eq!(s.control.topology.nodes_count(), 5);
    assert_eq!(s.control.node_name(node), name, "it is still known by name");
    // Neither its process nor another node of its name joins, and nothing late of it counts.
    let hello = NodeHello {
        name: name.clone(),
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    };
    let refused = s.apply(Command::Join { hello, at: AT });
    assert_eq!(refused, Err(CommandError::Removed(name.clone())));
    let (incarnation, at) = (1, AT);
    let late = Command::Hear {
        node,
        incarnation,
        at,
    };
    assert_eq!(s.ok(late), Applied::Nothing);
    for late in [Command::Drain { node }, Command::Cordon { node }] {
        assert_eq!(s.apply(late), Err(CommandError::Removed(name.clone())));
    }
    let mut again = server("rack9", "s9");
    again[0].servers[0].nodes[0].name = name.clone();
    assert!(not_added(&mut s, again).contains("its name stays used"));
    // The next node gets an id of its own, also after the last id was removed.
    assert_eq!(add(&mut s, server("rack1", "s4")), [NodeId(6)]);
    s.ok(Command::RemoveNode { node: NodeId(6) });
    assert_eq!(add(&mut s, server("rack1", "s5")), [NodeId(7)]);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn a_copy_that_is_not_the_only_one_is_not_called_so() {
    let mut s = filled();
    let shard = s.shard(KEY);
    for node in [shard.primary, shard.backups[0]] {
        let refused = remove(&mut s, node).unwrap_err().to_string();
        assert!(refused.contains("two-services/back/0"), "{refused}");
        assert!(!refused.contains("its only copy"), "{refused}");
    }
    s.check();
}

#[test]
fn the_only_copy_on_a_node_is_named_and_the_last_node_stays() {
    let mut s = Script::founded(Format::NODES);
    s.join("s1-host", 1);
    let single = script::APP.replace("replicas: 2", "replicas: 1");
    s.deploy_manifest(&single).unwrap();
    s.fill();
    let refused = remove(&mut s, NodeId(0)).unwrap_err().to_string();
    assert!(
        refused.contains("two-services/front/0 (its only copy)"),
        "{refused}"
    );
    // It is so too when the node is silent: its process may return with the state.
    s.lose(NodeId(0));
    assert!(remove(&mut s, NodeId(0)).is_err());
    for node in 1..6 {
        assert_eq!(remove(&mut s, NodeId(node)), Ok(Applied::Changed));
    }
    let app = "two-services".into();
    s.ok(Command::Delete { app });
    let refused = remove(&mut s, NodeId(0)).unwrap_err().to_string();
    assert!(
        refused.contains("a cluster has at least 1 node"),
        "{refused}"
    );
    s.check();
}

#[test]
fn a_drain_that_no_other_server_could_help_is_named() {
    let mut s = filled();
    let of_backup = s.shard(KEY).backups[0];
    let scale = |s: &mut Script, replicas| {
        s.ok(Command::Scale {
            app: AppId(1),
            service: ServiceId(1),
            replicas,
        });
        s.settle();
    };
    scale(&mut s, 3);
    // The other node of the same server may take it.
    assert_eq!(s.control.check_drain(of_backup), Ok(()));
    s.ok(Command::Cordon {
        node: NodeId::of_index(of_backup.index() ^ 1),
    });
    let refused = s.control.check_drain(of_backup).unwrap_err().to_string();
    assert!(
        refused.contains("two-services/back/0 has 3 replicas, each on a server of its own"),
        "{refused}"
    );
    assert!(
        refused.contains("e3 scale two-services/back --replicas 2"),
        "{refused}"
    );
    // With fewer copies, or a fourth server, it may leave.
    scale(&mut s, 2);
    assert_eq!(s.control.check_drain(of_backup), Ok(()));
    scale(&mut s, 3);
    let on_all_servers = s.shard(KEY).backups[0];
    assert!(s.control.check_drain(on_all_servers).is_err());
    add(&mut s, server("rack0", "s4"));
    assert_eq!(s.control.check_drain(on_all_servers), Ok(()));
}

#[test]
fn events_say_which_nodes_come_and_go() {
    let mut s = up();
    let before = s.control.events.last();
    let added = add(&mut s, server("rack1", "s4"));
    s.ok(Command::Cordon { node: added[0] });
    s.ok(Command::Resume { node: added[0] });
    s.ok(Command::Drain { node: added[0] });
    s.ok(Command::Resume { node: added[0] });
    remove(&mut s, added[0]).unwrap();
    let two_racks = [("s5", 0), ("s6", 4)].map(|(name, first)| {
        let smartnics: String = (first..first + 4)
            .map(|n| format!("            - {{name: n{n}, kind: smartnic, cores: 12, memory: 4Gi, emulated: true}}\n"))
            .collect();
        format!(
            "    - name: rack-{name}\n      servers:\n        - name: {name}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: {name}-host, kind: host, cores: 12, memory: 64Gi}}\n{smartnics}"
        )
    });
    add(&mut s, racks(&two_racks.concat()));
    let events: Vec<(&str, Option<&str>, &str)> = (s.control.events.since(before))
        .map(|e| (e.kind.name(), e.node.as_deref(), e.why.as_str()))
        .collect();
    let of = |kind| (kind, Some("s4-host"), "");
    let many = "10 nodes: s5-host, n0, n1, n2, n3, s6-host, n4, n5 and 2 more";
    assert_eq!(
        events,
        [
            of("node-added"),
            of("node-cordoned"),
            of("node-uncordoned"),
            of("node-drained"),
            of("node-resumed"),
            of("node-removed"),
            ("node-added", None, many),
        ]
    );
    s.check();
}
