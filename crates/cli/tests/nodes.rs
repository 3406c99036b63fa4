//! Nodes join and leave a running cluster, with real processes.

use crate::common::running::{run_file, signal};
use crate::common::{E3, ended};
use rustix::process::Signal;
use serde_json::Value;

/// One more server in the rack of the default topology.
const FOURTH: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Topology
metadata: {name: more}
spec:
  racks:
    - name: rack0
      servers:
        - name: s4
          system: Type1-SmartNIC
          nodes:
            - {name: s4-host, kind: host, cores: 12, memory: 64Gi}
            - {name: s4-nic0, kind: smartnic, cores: 12, memory: 4Gi, emulated: true}
";

fn names(e3: &E3) -> Vec<String> {
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap().iter();
    nodes
        .map(|n| n["name"].as_str().unwrap().to_string())
        .collect()
}

fn replicas_on(e3: &E3, node: &str) -> usize {
    let all = e3.json(&["get", "instances", "--node", node]);
    all.as_array().unwrap().len()
}

fn is_process_there(e3: &E3, name: &str) -> bool {
    let process = run_file(e3, &format!("process-{name}.json"));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process["pid"]));
    stat.is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn a_server_joins_under_load_takes_copies_and_leaves_and_nothing_is_lost() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    e3.deploy_shipped("kvs");
    let load = e3.spawn("load kvs --rate 200 --duration 12s -o json");
    let file = e3.file("more.yaml", FOURTH);
    let said = e3.good(&["node", "add", "-f", &file]);
    assert!(said.starts_with("added 2 nodes, up after "), "{said}");
    // A copy on each server: the new one too.
    e3.good(&["scale", "kvs/kvs", "--replicas", "4", "--wait"]);
    let holds = |node: &&str| replicas_on(&e3, node) > 0;
    let nodes = ["s4-host", "s4-nic0"];
    let holder = nodes.into_iter().find(holds).expect("the fourth copies");
    let other = nodes.into_iter().find(|n| *n != holder).unwrap();
    let refused = e3.run(&["node", "remove", holder]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("kvs/kvs/"), "{refused:?}");
    // Its server has no other node in service, and every other server has a copy: nothing changes.
    e3.good(&["node", "cordon", other]);
    let refused = e3.run(&["node", "drain", holder]);
    assert_eq!(refused.code, 4, "{refused:?}");
    let why = "has 4 replicas, each on a server of its own";
    assert!(refused.err.contains(why), "{refused:?}");
    let text = e3.good(&["get", "nodes"]);
    assert!(
        text.contains("cordoned") && !text.contains("drain"),
        "{text}"
    );
    e3.good(&["node", "uncordon", other]);
    e3.good(&["scale", "kvs/kvs", "--replicas", "2", "--wait"]);
    for node in nodes {
        let said = e3.good(&["node", "remove", node, "--drain", "--wait"]);
        assert!(said.contains(&format!("{node} is removed")), "{said}");
        e3.until("its process ends", |e3| !is_process_there(e3, node));
    }
    assert_eq!(names(&e3).len(), 6);
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{}", report["reasons"]);
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["stateLost"], 0, "{app}");
}

#[test]
fn the_log_says_which_nodes_there_are_when_the_cluster_starts_again() {
    let e3 = E3::new();
    let topology = ["--topology", "1x-type1"];
    let up = || e3.good(&[&["up", "--detach", "--port", "0"], &topology[..]].concat());
    up();
    let file = e3.file("more.yaml", FOURTH);
    e3.good(&["node", "add", "-f", &file]);
    e3.good(&["node", "remove", "s1-nic0"]);
    let expected = ["s1-host", "s4-host", "s4-nic0"];
    assert_eq!(names(&e3), expected);
    e3.good(&["down"]);
    // The topology that the cluster was founded with is accepted; what was changed since counts.
    let said = up();
    assert!(said.contains("3 nodes"), "{said}");
    assert_eq!(names(&e3), expected);
    for name in expected {
        assert!(is_process_there(&e3, name), "{name}");
    }
    e3.good(&["down"]);
    let other = e3.run(&["up", "--detach", "--port", "0", "--topology", "3x-type1"]);
    assert_eq!(other.code, 4, "{other:?}");
    assert!(other.err.contains("e3 node add"), "{other:?}");
}

#[test]
fn a_process_of_a_removed_node_cannot_join_again() {
    let e3 = E3::new();
    e3.good(&["up", "--detach", "--port", "0", "--topology", "1x-type1"]);
    // Paused, it does not hear of it.
    signal(&e3, "s1-nic0", Signal::STOP);
    e3.good(&["node", "remove", "s1-nic0"]);
    assert_eq!(names(&e3), ["s1-host"]);
    signal(&e3, "s1-nic0", Signal::CONT);
    e3.until("its process ends", |e3| !is_process_there(e3, "s1-nic0"));
    let last = e3.run(&["node", "remove", "s1-host"]);
    assert_eq!(last.code, 4, "{last:?}");
    // Its name stays used.
    let again = FOURTH.replace("s4-nic0", "s1-nic0");
    let file = e3.file("again.yaml", &again);
    let refused = e3.run(&["node", "add", "-f", &file]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("its name stays used"), "{refused:?}");
    for command in ["drain", "cordon", "resume", "remove"] {
        let refused = e3.run(&["node", command, "s1-nic0"]);
        assert_eq!(refused.code, 3, "{command}: {refused:?}");
        assert!(refused.err.contains("was removed"), "{refused:?}");
    }
}

#[test]
fn bad_hardware_is_refused_and_nothing_is_added() {
    let e3 = E3::new();
    e3.good(&["up", "--detach", "--port", "0", "--topology", "1x-type1"]);
    let before = names(&e3);
    for (from, to, code, says) in [
        (
            "name: s4-host",
            "name: s1-host",
            2,
            "the cluster has a node of this name",
        ),
        (
            "name: s4-host",
            "name: s4-nic0",
            2,
            "is already the name of",
        ),
        ("name: s4\n", "name: s1\n", 2, "\"s1\" has 2 hosts"),
        ("Type1-SmartNIC", "Type9", 2, "there is no system \"Type9\""),
        (
            "system: Type1-SmartNIC",
            "powerBudgetW: 10\n          system: Type1-SmartNIC",
            2,
            "power budget 10 W, must be at least ",
        ),
        ("kind: Topology", "kind: Profile", 2, "expected a Topology"),
        ("cores: 12", "cores: 0", 2, "cores is 0, must be 1..=65535"),
    ] {
        assert!(FOURTH.contains(from), "{from}");
        let file = e3.file("bad.yaml", &FOURTH.replace(from, to));
        let refused = e3.run(&["node", "add", "-f", &file]);
        assert_eq!(refused.code, code, "{to}: {refused:?}");
        assert!(refused.err.contains(says), "{to}: {refused:?}");
        assert!(refused.err.contains("bad.yaml"), "{to}: {refused:?}");
    }
    let empty = "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: more}\nspec: {racks: [{name: r9, servers: []}]}\n";
    let file = e3.file("bad.yaml", empty);
    let refused = e3.run(&["node", "add", "-f", &file]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert_eq!(e3.run(&["node", "add", "-f", "missing.yaml"]).code, 3);
    assert_eq!(names(&e3), before);
}
