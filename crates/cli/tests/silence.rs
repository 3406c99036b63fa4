//! Silence on real processes: pauses of the controller and of nodes. Nobody who lives loses state.

use crate::common::E3;
use crate::common::running::{
    CHAIN, all_handled, backup, handled, kill, pid, primary, run_file, signal, start_load,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::process::Child;
use std::time::Duration;

const NODES: [&str; 6] = [
    "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
];

/// Stops processes for a while.
fn pause(e3: &E3, names: &[&str], span: Duration) {
    for name in names {
        signal(e3, name, Signal::STOP);
    }
    // The span is the fault; nothing is waited for.
    std::thread::sleep(span);
    for name in names {
        signal(e3, name, Signal::CONT);
    }
}

fn app(e3: &E3) -> Value {
    e3.json(&["describe", "app", "chain"])
}

fn is_ready(e3: &E3) -> bool {
    let ended = e3.run(&["get", "apps", "-o", "json"]);
    let apps: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    apps[0]["ready"] == true
}

/// Replicas with their nodes and views: what any fail-over changes.
fn placement(e3: &E3) -> Vec<String> {
    let all = e3.json(&["get", "instances"]);
    let all = all.as_array().unwrap().iter();
    let one = |i: &Value| {
        format!(
            "{} {} {} {}",
            i["instance"], i["role"], i["node"], i["view"]
        )
    };
    all.map(one).collect()
}

/// By shard: the last entry in the log of its primary.
fn ops(e3: &E3) -> Vec<(String, u64)> {
    let all = e3.json(&["get", "instances"]);
    let all = all.as_array().unwrap().iter();
    let primaries = all.filter(|i| i["role"] == "primary");
    let op = |i: &Value| (i["instance"].to_string(), i["op"].as_u64().unwrap());
    primaries.map(op).collect()
}

fn chain_is_up(e3: &E3, manifest: &str) {
    e3.up();
    chain_is_deployed(e3, manifest);
}

fn chain_is_deployed(e3: &E3, manifest: &str) {
    let file = e3.file("chain.yaml", manifest);
    e3.good(&["deploy", &file, "--wait"]);
    all_handled(start_load(e3, "1s"));
    // 200 requests and a probe pass both services; reports come later.
    e3.until("the load is reported", |e3| {
        ops(e3).iter().map(|(_, op)| op).sum::<u64>() >= 402
    });
}

/// A light load that has begun.
fn begun_load(e3: &E3, duration: &str) -> Child {
    let (before, load) = (handled(e3, "chain"), start_load(e3, duration));
    e3.until("the load has begun", |e3| {
        handled(e3, "chain") > before + 50
    });
    load
}

#[test]
fn a_controller_that_is_away_changes_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    chain_is_up(&e3, CHAIN);
    let before = placement(&e3);
    let load = begun_load(&e3, "22s");
    for pause_ms in [1_200, 3_000, 10_000] {
        pause(&e3, &["controller"], Duration::from_millis(pause_ms));
        e3.until("all is ready", is_ready);
        assert_eq!(placement(&e3), before, "after {pause_ms} ms");
    }
    kill(&e3, "controller");
    e3.until("the controller is back and all is ready", is_ready);
    all_handled(load);
    assert_eq!(placement(&e3), before);
    assert_eq!(app(&e3)["stateLost"], 0);
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap();
    assert!(nodes.iter().all(|n| n["incarnation"] == 1), "{nodes:?}");
}

/// The state is in memory only: an application that starts empty would show.
#[test]
fn a_controller_that_restarts_slowly_changes_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up_in_memory();
    chain_is_deployed(&e3, CHAIN);
    let (before, load) = (placement(&e3), begun_load(&e3, "8s"));
    let supervisor = pid(&run_file(&e3, "cluster.json")["supervisor"]);
    kill_process(supervisor, Signal::STOP).unwrap();
    kill(&e3, "controller");
    // The span is the fault; nothing is waited for.
    std::thread::sleep(Duration::from_secs(3));
    kill_process(supervisor, Signal::CONT).unwrap();
    e3.until("the controller is back and all is ready", is_ready);
    all_handled(load);
    assert_eq!(placement(&e3), before);
    assert_eq!(app(&e3)["stateLost"], 0);
}

/// Each of three servers must have a copy, so that no other node can take the place of one that restarts.
#[test]
fn a_backup_that_restarts_where_no_other_node_can_have_its_copy_is_brought_up_to_date() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up_in_memory();
    chain_is_deployed(&e3, &CHAIN.replace("replicas: 2", "replicas: 3"));
    let all_ready = |e3: &E3| is_ready(e3) && placement(e3).len() == 12;
    let load = begun_load(&e3, "12s");
    for shard in ["chain/front/0", "chain/back/0"] {
        kill(&e3, &backup(&e3, shard));
        e3.until("the backup is back", all_ready);
        let had = handled(&e3, "chain");
        e3.until("commits continue", |e3| handled(e3, "chain") > had + 50);
        kill(&e3, &primary(&e3, shard));
        e3.until("the primary is back", all_ready);
    }
    all_handled(load);
    assert_eq!(app(&e3)["stateLost"], 0);
}

#[test]
fn nodes_that_are_silent_together_come_back_with_all_that_they_had() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    chain_is_up(&e3, CHAIN);
    let (before, had) = (placement(&e3), ops(&e3));
    pause(&e3, &NODES, Duration::from_secs(3));
    e3.until("all is ready", is_ready);
    assert_eq!(placement(&e3), before);
    assert_eq!(ops(&e3), had);
    // Both copies of most shards, and then the others.
    for nodes in [&NODES[..4], &NODES[2..]] {
        pause(&e3, nodes, Duration::from_secs(3));
        e3.until("all is ready", is_ready);
        assert_eq!(ops(&e3), had, "{nodes:?}");
    }
    assert_eq!(app(&e3)["stateLost"], 0);
    all_handled(start_load(&e3, "1s"));
}

#[test]
fn the_only_copy_of_a_shard_is_waited_for_until_the_operator_gives_it_up() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    chain_is_up(&e3, &CHAIN.replace("replicas: 2", "replicas: 1"));
    let (before, had) = (placement(&e3), ops(&e3));
    let (shard, node) = {
        let all = e3.json(&["get", "instances"]);
        let text = |v: &Value| v.as_str().unwrap().to_string();
        (text(&all[0]["instance"]), text(&all[0]["node"]))
    };
    let waits = |e3: &E3| !app(e3)["waiting"].as_array().unwrap().is_empty();
    signal(&e3, &node, Signal::STOP);
    e3.until("the shard waits", waits);
    let text = e3.good(&["describe", "app", "chain"]);
    assert!(
        text.contains("its only copies are on silent nodes"),
        "{text}"
    );
    assert!(e3.good(&["get", "apps"]).contains("WAITING"));
    signal(&e3, &node, Signal::CONT);
    e3.until("all is ready", is_ready);
    assert_eq!((placement(&e3), ops(&e3)), (before, had));
    assert_eq!(app(&e3)["stateLost"], 0);
    // Nothing is given up that is there, nor without a word of the operator.
    let refused = e3.run(&["forget", &shard, "--yes"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    signal(&e3, &node, Signal::STOP);
    e3.until("the shard waits", waits);
    let asked = e3.run(&["forget", &shard]);
    assert!(asked.code == 1 && asked.err.contains(&shard), "{asked:?}");
    let lost = app(&e3)["waiting"].as_array().unwrap().len();
    e3.good(&["forget", "chain", "--yes"]);
    assert_eq!(app(&e3)["stateLost"], lost);
    e3.until("all is ready", |e3| app(e3)["ready"] == true);
    signal(&e3, &node, Signal::CONT);
    all_handled(start_load(&e3, "1s"));
    assert_eq!(app(&e3)["stateLost"], lost);
}
