//! A cluster from `up` to `down`, as a script: deploy, load, kill a node, kill the controller, move
//! an instance, kill the supervisor.

use crate::common::running::{
    CHAIN, all_handled, handled, kill, pid, primary, run_file, signal, start_load,
};
use crate::common::{E3, ended, services};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn ready(e3: &E3) -> bool {
    let ended = e3.run(&["get", "apps", "-o", "json"]);
    let apps: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    apps[0]["ready"] == true
}

#[test]
fn a_cluster_lives_and_survives_kills() {
    let e3 = E3::new();
    let up = e3.good(&["up", "--detach", "--port", "0"]);
    assert!(up.contains("is up: 6 nodes"), "{up}");

    // A second one in the same place is refused, and names the first.
    let again = e3.run(&["up", "--detach", "--port", "0"]);
    let supervisor = pid(&run_file(&e3, "cluster.json")["supervisor"]);
    assert_eq!(again.code, 4, "{again:?}");
    let named = format!("process {}", supervisor.as_raw_nonzero());
    assert!(again.err.contains(&named), "{again:?}");

    let nodes = e3.json(&["get", "nodes"]);
    assert!(
        nodes.as_array().unwrap().iter().all(|n| n["up"] == true),
        "{nodes}"
    );

    // Nothing of a bad manifest is deployed.
    let bad = e3.file("bad.yaml", &CHAIN.replacen("shards: 2", "shards: 0", 1));
    assert_eq!(e3.run(&["deploy", &bad]).code, 2);
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));

    if services().is_none() {
        println!("SKIPPED in part: target/services is not built (cargo xtask build-services)");
        return;
    }
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    assert!(e3.good(&["deploy", &file]).contains("is unchanged"));
    e3.good(&["describe", "app", "chain"]);
    e3.good(&["describe", "service", "chain/back"]);
    e3.good(&["describe", "instance", "chain/back/1"]);
    e3.good(&["describe", "node", "s1-host", "-o", "yaml"]);
    e3.good(&["get", "channels"]);
    assert_eq!(e3.run(&["describe", "app", "other"]).code, 3);
    assert_eq!(e3.run(&["describe", "instance", "chain/back/7"]).code, 3);
    assert_eq!(
        e3.run(&["migrate", "chain/back/0", "--to", "s9-host"]).code,
        3
    );
    all_handled(start_load(&e3, "1s"));

    // A node is killed under load: its primaries move, and it comes back.
    let victim = primary(&e3, "chain/front/0");
    let load = start_load(&e3, "5s");
    let before = handled(&e3, "chain");
    e3.until("the load has begun", |e3| {
        handled(e3, "chain") > before + 50
    });
    kill(&e3, &victim);
    all_handled(load);
    e3.until("the node is back", |e3| {
        let node = e3.json(&["describe", "node", &victim]);
        node["node"]["up"] == true && node["node"]["incarnation"].as_u64() > Some(1)
    });
    e3.until("all replicas are there again", ready);

    // The controller is killed under load: the application goes on, and nothing is forgotten.
    let load = start_load(&e3, "4s");
    let before = handled(&e3, "chain");
    e3.until("the load has begun", |e3| {
        handled(e3, "chain") > before + 50
    });
    kill(&e3, "controller");
    all_handled(load);
    e3.until("the controller is back and all is ready", ready);

    // An instance moves, and its state with it.
    let from = primary(&e3, "chain/back/0");
    let nodes = ["s1-host", "s2-host", "s3-host"];
    let moved = nodes
        .into_iter()
        .find(|n| *n != from && e3.run(&["migrate", "chain/back/0", "--to", n]).code == 0);
    assert_eq!(moved, Some(primary(&e3, "chain/back/0").as_str()));
    all_handled(start_load(&e3, "1s"));

    // The supervisor is killed: nothing of it stays, and the next one finds the application.
    let left = pid(&run_file(&e3, "process-s1-host.json"));
    kill_process(supervisor, Signal::KILL).unwrap();
    let gone = format!("/proc/{}", left.as_raw_nonzero());
    e3.until("the nodes have ended", |_| {
        !std::path::Path::new(&gone).exists()
    });
    let ended = e3.run(&["get", "nodes"]);
    assert_eq!(ended.code, 6, "{ended:?}");
    e3.up();
    e3.until("the application is ready again", ready);
    let said = e3.good(&["delete", "chain"]);
    assert_eq!(said, "deleted chain with its state\n");
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));
    assert!(e3.good(&["down", "--purge"]).contains("removed its state"));
    assert!(!e3.dir.path().join("state").exists());
}

/// The first start, and each restart at once after the supervisor was killed.
#[test]
fn what_is_killed_during_a_start_is_restarted() {
    let e3 = E3::new();
    let is_up = |n: &Value| n["up"] == true;
    let mut port = "0".to_string();
    for (name, by) in [
        ("s1-host", Signal::KILL),
        ("controller", Signal::TERM),
        ("controller", Signal::KILL),
    ] {
        if port != "0" {
            let supervisor = pid(&run_file(&e3, "cluster.json")["supervisor"]);
            kill_process(supervisor, Signal::KILL).unwrap();
        }
        let file = e3.dir.path().join(format!("state/run/process-{name}.json"));
        let recorded = || std::fs::read_to_string(&file).ok();
        let before = recorded();
        let up = e3.spawn(&format!("up --detach --port {port}"));
        e3.until("it starts", |_| {
            recorded().is_some_and(|now| Some(now) != before)
        });
        signal(&e3, name, by);
        let up = ended(up.wait_with_output().unwrap());
        assert_eq!(up.code, 0, "{name}, {by:?}: {up:?}");
        port = run_file(&e3, "cluster.json")["port"].to_string();
        e3.until("all nodes are up", |e3| {
            let ended = e3.run(&["get", "nodes", "-o", "json"]);
            let nodes: Value = serde_json::from_str(&ended.out).unwrap_or_default();
            nodes.as_array().is_some_and(|all| all.iter().all(is_up))
        });
    }
}

#[test]
fn up_says_why_a_process_does_not_start() {
    let e3 = E3::new();
    let mut up = e3.command(&["up", "--detach", "--port", "0"]);
    let up = ended(up.env("E3_METER_CA_FILE", "").output().unwrap());
    assert_eq!(up.code, 1, "{up:?}");
    let why = "did not start (exit code 2): a value is required for '--meter-ca-file <FILE>'";
    assert!(up.err.contains(why), "{up:?}");
}
