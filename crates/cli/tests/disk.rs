//! `durability: disk` on real processes: a power cut of everything, and a stop and start, keep all state.

use crate::common::running::{kill, primary};
use crate::common::{E3, Ended, ended};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const NODES: [&str; 6] = [
    "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
];

/// The shipped key-value store. Its manifest gives no durability, so it is on disk.
fn deploy_on_disk(e3: &E3) {
    e3.good(&["deploy", "kvs", "--wait"]);
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["services"][0]["onDisk"], true, "{app}");
}

/// By shard: the last entry in the log of its primary.
fn ops(e3: &E3) -> Vec<(String, u64)> {
    let all = e3.json(&["get", "instances"]);
    let primaries = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|i| i["role"] == "primary");
    let op = |i: &Value| (i["instance"].to_string(), i["op"].as_u64().unwrap());
    primaries.map(op).collect()
}

fn is_ready(e3: &E3) -> bool {
    let ended = e3.run(&["get", "apps", "-o", "json"]);
    let apps: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    apps[0]["ready"] == true
}

/// Every request has one outcome, and the state agrees with the ledger.
#[track_caller]
fn proved(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{report}");
    report
}

/// Flips a bit in a node's journal; gives its directory, the name of the file, and what is in it now.
fn damage_journal(e3: &E3, node: &str) -> (PathBuf, OsString, Vec<u8>) {
    let dir = e3.dir.path().join("state/nodes").join(node);
    let dir = dir.join("journal");
    let files = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path());
    let files = files.filter(|f| f.extension().is_some());
    let first = files.min().unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    (dir, first.file_name().unwrap().into(), bytes)
}

/// 600 requests.
#[track_caller]
fn load_for_3_s(e3: &E3) {
    let load = e3.spawn("load kvs --rate 200 --duration 3s -o json");
    proved(&ended(load.wait_with_output().unwrap()));
}

/// Starts a cluster where each shard has one copy, with state; gives the node that has the first one.
#[track_caller]
fn with_one_copy(e3: &E3) -> String {
    e3.up();
    deploy_on_disk(e3);
    e3.good(&["scale", "kvs/kvs", "--replicas", "1", "--wait"]);
    load_for_3_s(e3);
    primary(e3, "kvs/kvs/0")
}

#[test]
fn a_power_cut_of_everything_loses_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy_on_disk(&e3);
    let load = e3.spawn("load kvs --rate 200 --duration 20s -o json");
    e3.until("the load has begun", |e3| {
        ops(e3).iter().map(|(_, op)| op).sum::<u64>() > 400
    });
    for name in NODES.iter().chain(&["controller"]) {
        kill(&e3, name);
    }
    let ended = ended(load.wait_with_output().unwrap());
    let report = proved(&ended);
    let ledger = &report["ledger"];
    assert_eq!(ledger["done"], ledger["sent"], "{ledger}");
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["stateLost"], 0, "{app}");
}

#[test]
fn what_is_on_disk_survives_a_stop() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy_on_disk(&e3);
    load_for_3_s(&e3);
    e3.until("the load is reported", |e3| {
        ops(e3).iter().map(|(_, op)| op).sum::<u64>() >= 600
    });
    let before = ops(&e3);
    let down = e3.run(&["down"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(!down.err.contains("warning"), "{down:?}");
    let up = e3.run(&["up", "--detach", "--port", "0"]);
    assert_eq!(up.code, 0, "{up:?}");
    assert!(!up.err.contains("start empty"), "{up:?}");
    e3.until("it is ready again", is_ready);
    // The last report before the stop may lack a few entries.
    for (after, before) in ops(&e3).iter().zip(&before) {
        assert!(
            after.0 == before.0 && after.1 >= before.1,
            "{after:?}, before {before:?}"
        );
    }
    // Only a purge removes it, and says so.
    let down = e3.run(&["down", "--purge"]);
    assert!(
        down.err.contains("--purge removes state on disk too"),
        "{down:?}"
    );
}

/// The documented way out leads through a cluster that runs.
#[test]
fn a_cluster_starts_without_the_node_whose_last_copy_is_damaged() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let node = with_one_copy(&e3);
    e3.good(&["down"]);
    damage_journal(&e3, &node);
    let up = e3.run(&["up", "--detach", "--port", "0"]);
    assert_eq!(up.code, 0, "{up:?}");
    let why = format!("{node} did not start");
    assert!(
        up.err.contains(&why) && up.err.contains("e3 forget"),
        "{up:?}"
    );
    e3.good(&["forget", "kvs", "--yes"]);
    e3.until("it is ready again, and the node up", |e3| {
        let nodes = e3.json(&["get", "nodes"]);
        let nodes = nodes.as_array().unwrap();
        is_ready(e3) && nodes.iter().all(|n| n["up"] == true)
    });
}

#[test]
fn a_damaged_journal_is_named_and_moved_away_and_other_nodes_have_the_state() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy_on_disk(&e3);
    load_for_3_s(&e3);
    let node = primary(&e3, "kvs/kvs/0");
    e3.good(&["down"]);
    let (dir, file, bytes) = damage_journal(&e3, &node);
    e3.run(&["up", "--detach", "--port", "0"]);
    let logs = e3.dir.path().join("state/logs").join(format!("{node}.log"));
    e3.until("the node says what is wrong", |_| {
        let log = std::fs::read_to_string(&logs).unwrap_or_default();
        log.contains("is damaged") && log.contains(".journal")
    });
    let kept = dir.with_file_name("journal.damaged-1");
    let kept = kept.join(file);
    e3.until("it is moved away", |_| kept.exists());
    assert_eq!(std::fs::read(&kept).unwrap(), bytes);
    e3.until("it is ready again", is_ready);
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["stateLost"], 0, "{app}");
    load_for_3_s(&e3);
}

/// Nobody gives up state but an operator: neither an empty disk nor another node's does.
#[test]
fn a_node_without_its_disk_costs_no_state() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let node = with_one_copy(&e3);
    let other = NODES.into_iter().find(|n| *n != node).unwrap();
    e3.good(&["down"]);
    let nodes = e3.dir.path().join("state/nodes");
    let (dir, aside) = (nodes.join(&node), nodes.join("aside"));
    let swap = |a: &Path, b: &Path| {
        let between = nodes.join("between");
        std::fs::rename(a, &between).unwrap();
        std::fs::rename(b, a).unwrap();
        std::fs::rename(between, b).unwrap();
    };
    // Whether the controller refuses the node, or its process ends by itself.
    let refused = |why: &str, is_told: bool| {
        let up = e3.run(&["up", "--detach", "--port", "0"]);
        assert_eq!(up.code, 0, "{up:?}");
        assert!(up.err.contains(why), "{up:?}");
        let app = e3.json(&["describe", "app", "kvs"]);
        assert_eq!(
            (&app["ready"], &app["stateLost"]),
            (&false.into(), &0.into()),
            "{app}"
        );
        let is_named = app["problems"].to_string().contains(why);
        assert_eq!(is_named, is_told, "{app}");
        e3.good(&["down"]);
    };
    std::fs::create_dir_all(&aside).unwrap();
    swap(&dir, &aside);
    refused(&format!("the disk of node {node} lacks kvs/kvs/"), true);
    swap(&dir, &aside);
    swap(&dir, &nodes.join(other));
    refused(&format!("has the journal of node {node}"), false);
    swap(&dir, &nodes.join(other));
    e3.good(&["up", "--detach", "--port", "0"]);
    e3.until("it is ready again", is_ready);
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["stateLost"], 0, "{app}");
    assert!(ops(&e3).iter().map(|(_, op)| op).sum::<u64>() >= 600);
    load_for_3_s(&e3);
    // Also while it runs.
    let node = primary(&e3, "kvs/kvs/0");
    let (dir, lost) = (nodes.join(&node), nodes.join("lost"));
    std::fs::rename(&dir, &lost).unwrap();
    kill(&e3, &node);
    let log = e3.dir.path().join("state/logs").join(format!("{node}.log"));
    e3.until("the node is refused", |_| {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains("lacks kvs/kvs/")
    });
    let app = e3.json(&["describe", "app", "kvs"]);
    assert_eq!(app["stateLost"], 0, "{app}");
    e3.good(&["forget", "kvs", "--yes"]);
    e3.until("it is ready again", is_ready);
}

/// Nodes cannot join then. The start does not wait for them for long.
#[test]
fn a_start_with_an_older_log_says_what_the_log_lacks() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let log = e3.dir.path().join("state/controller/log/log");
    let older = std::fs::read(&log).unwrap();
    deploy_on_disk(&e3);
    load_for_3_s(&e3);
    e3.good(&["down"]);
    let newest = std::fs::read(&log).unwrap();
    std::fs::write(&log, &older).unwrap();
    let up = e3.run(&["up", "--detach", "--port", "0"]);
    assert_ne!(up.code, 0, "{up:?}");
    for part in [
        "no node can join",
        "the controller's log",
        "restore the log",
    ] {
        assert!(up.err.contains(part), "{up:?}");
    }
    std::fs::write(&log, &newest).unwrap();
    e3.good(&["up", "--detach", "--port", "0"]);
    e3.until("it is ready again", is_ready);
    assert!(ops(&e3).iter().map(|(_, op)| op).sum::<u64>() >= 600);
}

#[test]
fn modules_that_the_controller_has_lost_are_named() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy_on_disk(&e3);
    e3.good(&["down"]);
    std::fs::remove_dir_all(e3.dir.path().join("state/controller/blobs")).unwrap();
    e3.good(&["up", "--detach", "--port", "0"]);
    e3.until("what is lost is named", |e3| {
        let app = e3.json(&["describe", "app", "kvs"]);
        let problems = app["problems"].to_string();
        problems.contains("the controller has no module") && problems.contains("deploy")
    });
    e3.good(&["deploy", "kvs", "--wait"]);
}
