//! A cluster from `up` to `down`, as a script: deploy, load, kill a node, kill the controller, move
//! an instance, kill the supervisor.

mod common;

use common::{E3, Ended, ended, services};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Stdio};

const APP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: chain
spec:
  objective: {latency: 100ms}
  ingress: front
  services:
    - name: front
      module: chain.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: passed, kind: counter}
    - name: back
      module: chain.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: passed, kind: counter}
  channels:
    - {name: next, from: front, to: back}
";

/// Ends the cluster whatever becomes of the test.
struct Down<'a>(&'a E3);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.run(&["down"]);
    }
}

fn pid(e3: &E3, file: &str, field: &[&str]) -> Pid {
    let path = e3.dir.path().join("state/run").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    for name in field {
        value = value[name].clone();
    }
    Pid::from_raw(value.as_i64().unwrap() as i32).unwrap()
}

fn kill(e3: &E3, name: &str) {
    let pid = pid(e3, &format!("process-{name}.json"), &["pid"]);
    kill_process(pid, Signal::KILL).unwrap();
}

fn handled(e3: &E3) -> u64 {
    let apps = e3.json(&["get", "apps"]);
    let services = apps[0]["services"].as_array().unwrap();
    services
        .iter()
        .map(|s| s["handled"].as_u64().unwrap())
        .sum()
}

/// Node of the primary of a shard.
fn primary(e3: &E3, shard: &str) -> String {
    let all = e3.json(&["get", "instances", "--app", "chain"]);
    let is = |i: &&Value| i["instance"] == shard && i["role"] == "primary";
    let found = all.as_array().unwrap().iter().find(is).unwrap();
    found["node"].as_str().unwrap().to_string()
}

fn ready(e3: &E3) -> bool {
    let ended = e3.run(&["get", "apps", "-o", "json"]);
    let apps: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    apps[0]["ready"] == true
}

fn start_load(e3: &E3, duration: &str) -> Child {
    let rate = ["--rate", "200", "--duration", duration, "-o", "json"];
    let mut command = e3.command(&[&["load", "chain"], &rate[..]].concat());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
fn proved(load: Child) -> Value {
    let ended: Ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["ledger"]["proved"], true, "{}", report["ledger"]);
    assert_eq!(
        report["ledger"]["done"], report["ledger"]["sent"],
        "{}",
        report["ledger"]
    );
    report
}

#[test]
fn a_cluster_lives_and_survives_kills() {
    let e3 = E3::new();
    let _down = Down(&e3);
    let up = e3.good(&["up", "--detach", "--port", "0"]);
    assert!(up.contains("is up: 6 nodes"), "{up}");

    // A second one in the same place is refused, and names the first.
    let again = e3.run(&["up", "--detach", "--port", "0"]);
    let supervisor = pid(&e3, "cluster.json", &["supervisor", "pid"]);
    assert_eq!(again.code, 4, "{again:?}");
    let named = format!("process {}", supervisor.as_raw_nonzero());
    assert!(again.err.contains(&named), "{again:?}");

    let nodes = e3.json(&["get", "nodes"]);
    assert!(
        nodes.as_array().unwrap().iter().all(|n| n["up"] == true),
        "{nodes}"
    );

    // Nothing of a bad manifest is deployed.
    let bad = e3.file("bad.yaml", &APP.replacen("shards: 2", "shards: 0", 1));
    assert_eq!(e3.run(&["deploy", &bad]).code, 2);
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));

    if services().is_none() {
        println!("SKIPPED in part: target/services is not built (cargo xtask build-services)");
        return;
    }
    let file = e3.file("chain.yaml", APP);
    e3.good(&["deploy", &file, "--wait"]);
    assert!(e3.good(&["deploy", &file]).contains("runs just so already"));
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
    proved(start_load(&e3, "1s"));

    // A node is killed under load: its primaries move, and it comes back.
    let victim = primary(&e3, "chain/front/0");
    let load = start_load(&e3, "5s");
    let before = handled(&e3);
    e3.until("the load has begun", |e3| handled(e3) > before + 50);
    kill(&e3, &victim);
    proved(load);
    e3.until("the node is back", |e3| {
        let node = e3.json(&["describe", "node", &victim]);
        node["node"]["up"] == true && node["node"]["incarnation"].as_u64() > Some(1)
    });
    e3.until("all replicas are there again", ready);

    // The controller is killed under load: the application goes on, and nothing is forgotten.
    let load = start_load(&e3, "4s");
    let before = handled(&e3);
    e3.until("the load has begun", |e3| handled(e3) > before + 50);
    kill(&e3, "controller");
    proved(load);
    e3.until("the controller is back and all is ready", ready);

    // An instance moves, and its state with it.
    let from = primary(&e3, "chain/back/0");
    let nodes = ["s1-host", "s2-host", "s3-host"];
    let moved = nodes
        .into_iter()
        .find(|n| *n != from && e3.run(&["migrate", "chain/back/0", "--to", n]).code == 0);
    assert_eq!(moved, Some(primary(&e3, "chain/back/0").as_str()));
    proved(start_load(&e3, "1s"));

    // The supervisor is killed: nothing of it stays, and the next one finds the application.
    let left = pid(&e3, "process-s1-host.json", &["pid"]);
    kill_process(supervisor, Signal::KILL).unwrap();
    let gone = format!("/proc/{}", left.as_raw_nonzero());
    e3.until("the nodes have ended", |_| {
        !std::path::Path::new(&gone).exists()
    });
    let ended = e3.run(&["get", "nodes"]);
    assert_eq!(ended.code, 6, "{ended:?}");
    e3.good(&["up", "--detach", "--port", "0"]);
    e3.until("the application is ready again", ready);
    e3.good(&["delete", "chain"]);
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));
    assert!(e3.good(&["down", "--purge"]).contains("removed its state"));
    assert!(!e3.dir.path().join("state").exists());
}
