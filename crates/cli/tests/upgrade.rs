//! `e3 upgrade` on real processes: to another release and back under load, and past the point of no
//! return. One build stands for both releases: `E3_FORMATS` says which formats it has
//! (`cargo test -p e3-cli --features formats --test upgrade`).

use crate::common::running::kill;
use crate::common::{E3, ended};
use e3_model::Format;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The format of this release, and that of the one before.
const NEW: u64 = Format::NEWEST.0 as u64;
const OLD: u64 = NEW - 1;

/// The program with these formats.
fn release(e3: &E3, name: &str, formats: &str) -> String {
    let program = env!("CARGO_BIN_EXE_e3");
    let text = format!("#!/bin/sh\nE3_FORMATS={formats} exec {program} \"$@\"\n");
    let script = e3.file(&format!("{name}.sh"), &text);
    e3.program(name, &script)
}

/// The newest format of each node.
fn newest(e3: &E3) -> Vec<u64> {
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap().iter();
    nodes
        .map(|n| n["formats"]["newest"].as_u64().unwrap())
        .collect()
}

/// The names of the nodes that are cordoned.
fn cordoned(e3: &E3) -> Vec<String> {
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap().iter();
    let cordoned = nodes.filter(|n| n["cordoned"] == true);
    cordoned
        .map(|n| n["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn a_cluster_goes_to_the_next_release_and_back_under_load_and_loses_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let older = release(&e3, "older", &format!("7-{OLD}"));
    let newer = release(&e3, "newer", &format!("7-{NEW}"));
    // The cluster is of the older release, whose format is the active one.
    let up = e3.run_as(&older, &["up", "--detach", "--port", "0"]);
    assert_eq!(up.code, 0, "{up:?}");
    e3.deploy_shipped("kvs");
    // An operator's decision stays.
    e3.good(&["node", "cordon", "s1-nic0"]);
    let load = e3.spawn("load kvs --rate 100 --duration 300s -o json");
    for (program, expected) in [(&newer, NEW), (&older, OLD), (&newer, NEW)] {
        let said = e3.good(&["upgrade", "--program", program]);
        assert!(said.contains("s3-nic0: upgraded"), "{said}");
        assert_eq!(newest(&e3), [expected; 6]);
        assert_eq!(cordoned(&e3), ["s1-nic0"]);
        if expected == OLD {
            let said = e3.good(&["upgrade", "--finish"]);
            let why = format!("the cluster's format is {OLD} already");
            assert!(said.contains(&why), "{said}");
        }
    }
    let said = e3.good(&["upgrade", "--finish"]);
    assert!(
        said.contains(&format!("format is {NEW}, it was {OLD}")),
        "{said}"
    );
    // There is no way back.
    let refused = e3.run(&["upgrade", "--program", &older]);
    assert_eq!(refused.code, 4, "{refused:?}");
    let why = format!("has formats 7 to {OLD}, the cluster writes format {NEW}");
    assert!(refused.err.contains(&why), "{}", refused.err);
    // The load ends early, with a verdict on what was sent.
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&load),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{report}");
    // Neither is there after a restart with the older program.
    e3.good(&["down", "--yes"]);
    let up = e3.run_as(&older, &["up", "--detach", "--port", "0"]);
    assert_ne!(up.code, 0);
    let why = format!("the cluster writes format {NEW}, this program");
    assert!(up.err.contains(&why), "{}", up.err);
}

#[test]
fn a_program_that_is_none_or_does_not_start_changes_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let nothing = e3.run(&["upgrade", "--program", "/no/such/program"]);
    assert_eq!(nothing.code, 2, "{nothing:?}");
    let other = e3.run(&["upgrade", "--program", "/bin/false"]);
    assert_eq!(other.code, 2, "{other:?}");
    assert!(other.err.contains("is no e3 program"), "{}", other.err);
    let ahead = release(&e3, "ahead", &format!("{}-{}", NEW + 1, NEW + 2));
    let refused = e3.run(&["upgrade", "--program", &ahead]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(newest(&e3), [NEW; 6]);
}

#[test]
fn what_does_not_start_with_the_new_program_starts_with_the_one_before() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let is_up = |e3: &E3, node: &str| {
        let nodes = e3.run(&["get", "nodes", "-o", "json"]);
        let nodes: Value = serde_json::from_str(&nodes.out).unwrap_or_default();
        let mut nodes = nodes.as_array().into_iter().flatten();
        nodes.any(|n| n["name"] == node && n["up"] == true)
    };
    let program = env!("CARGO_BIN_EXE_e3");
    for (command, name) in [("controller-run", "controller"), ("node-run", "s1-host")] {
        let text = format!("#!/bin/sh\n[ $1 = {command} ] && exit 1\nexec {program} \"$@\"\n");
        let broken = e3.program("broken", &e3.file("broken.sh", &text));
        for by in [Signal::HUP, Signal::KILL] {
            let upgrade = e3.spawn(&format!("upgrade --program {broken}"));
            let record = e3.dir.path().join("state/run/program.json");
            e3.until("it is down", |e3| record.exists() && !is_up(e3, "s1-host"));
            kill_process(Pid::from_child(&upgrade), by).unwrap();
            let ended = ended(upgrade.wait_with_output().unwrap());
            println!("{name}, {by:?}: {ended:?}");
            if by == Signal::KILL {
                // Nobody has chosen the program before again.
                e3.good(&["upgrade", "--program", program]);
            }
            e3.until("it is up again", |e3| is_up(e3, "s1-host"));
        }
    }
    let nodes = e3.json(&["get", "nodes"]);
    let mut nodes = nodes.as_array().unwrap().iter();
    assert!(nodes.all(|n| n["drained"] == false), "{nodes:?}");
}

#[test]
fn processes_that_would_not_start_again_are_not_replaced() {
    let e3 = E3::new();
    e3.good(&["up", "--detach", "--port", "0", "--no-restart"]);
    let refused = e3.run(&["upgrade", "--program", env!("CARGO_BIN_EXE_e3")]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("--no-restart"), "{}", refused.err);
    e3.good(&["get", "nodes"]);
}

#[test]
fn no_node_stays_drained_when_the_controller_ends_or_the_owner_interrupts() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let program = release(&e3, "same", &format!("7-{NEW}"));
    e3.up();
    e3.deploy_shipped("kvs");
    let drained = |e3: &E3| {
        let nodes = e3.run(&["get", "nodes", "-o", "json"]);
        let nodes: Value = serde_json::from_str(&nodes.out).unwrap_or_default();
        let mut nodes = nodes.as_array().into_iter().flatten();
        nodes.any(|n| n["drained"] == true)
    };
    let upgrade = || {
        let upgrade = e3.spawn(&format!("upgrade --program {program}"));
        e3.until("a node is drained", drained);
        upgrade
    };
    let upgraded = upgrade();
    kill(&e3, "controller");
    let upgraded = ended(upgraded.wait_with_output().unwrap());
    assert_eq!(upgraded.code, 0, "{upgraded:?}");
    assert!(!drained(&e3));
    let interrupted = upgrade();
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    let interrupted = ended(interrupted.wait_with_output().unwrap());
    assert_eq!(interrupted.code, 1, "{interrupted:?}");
    assert!(interrupted.err.contains("interrupted"), "{interrupted:?}");
    assert!(!drained(&e3));
    // Nor when it is killed, and the cluster is stopped before the next upgrade.
    let mut killed = upgrade();
    killed.kill().unwrap();
    killed.wait().unwrap();
    e3.good(&["down"]);
    e3.up();
    assert!(drained(&e3));
    e3.good(&["upgrade", "--program", &program]);
    assert!(!drained(&e3));
    // What an operator drains stays drained.
    e3.good(&["node", "drain", "s1-host"]);
    e3.good(&["upgrade", "--program", &program]);
    assert!(drained(&e3));
}
