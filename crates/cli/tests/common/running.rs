//! What tests do with a running cluster.

use super::{E3, Ended, ended};
use e3_model::api::NodeView;
use e3_model::{Format, NodeId};
use e3_wire::heartbeat::{self, Heartbeat};
use e3_wire::{HEARTBEAT_KEY_HEADER, HeartbeatKey};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Child;

/// An application of two stateful services that passes requests on.
pub const CHAIN: &str = "\
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

/// A file of the running cluster.
pub fn run_file(e3: &E3, file: &str) -> Value {
    let path = e3.dir.path().join("state/run").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A process that such a file names.
pub fn pid(value: &Value) -> Pid {
    Pid::from_raw(value["pid"].as_i64().unwrap() as i32).unwrap()
}

/// Whether a process that such a file names still runs.
pub fn is_alive(process: &Value) -> bool {
    let stat = format!("/proc/{}/stat", process["pid"]);
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let start = process["startTicks"].to_string();
    let state = stat.rsplit(") ").next().unwrap_or("Z");
    !state.starts_with('Z') && stat.split(' ').any(|field| field == start)
}

/// Kills a process of the cluster.
pub fn kill(e3: &E3, name: &str) {
    signal(e3, name, Signal::KILL);
}

/// Sends a signal to a process of the cluster.
pub fn signal(e3: &E3, name: &str, signal: Signal) {
    let process = run_file(e3, &format!("process-{name}.json"));
    kill_process(pid(&process), signal).unwrap();
}

/// Node of the primary of a shard.
pub fn primary(e3: &E3, shard: &str) -> String {
    primaries(e3, &[shard.to_string()]).remove(0).0
}

/// Node of the backup of a shard, of which it has one.
pub fn backup(e3: &E3, shard: &str) -> String {
    let all = e3.json(&["get", "instances"]);
    let is = |i: &&Value| i["instance"] == shard && i["role"] == "backup";
    let found = all.as_array().unwrap().iter().find(is).unwrap();
    found["node"].as_str().unwrap().to_string()
}

/// Nodes of the primaries of some shards, and the shards' views, all at one time.
pub fn primaries(e3: &E3, shards: &[String]) -> Vec<(String, u64)> {
    let all = e3.json(&["get", "instances"]);
    let of = |shard: &String| {
        let is = |i: &&Value| i["instance"] == *shard && i["role"] == "primary";
        let found = all.as_array().unwrap().iter().find(is).unwrap();
        let node = found["node"].as_str().unwrap().to_string();
        (node, found["view"].as_u64().unwrap())
    };
    shards.iter().map(of).collect()
}

/// Requests that an application's services have handled.
pub fn handled(e3: &E3, app: &str) -> u64 {
    let app = e3.json(&["describe", "app", app]);
    let services = app["services"].as_array().unwrap();
    services
        .iter()
        .map(|s| s["handled"].as_u64().unwrap())
        .sum()
}

/// A light load on the application above.
pub fn start_load(e3: &E3, duration: &str) -> Child {
    e3.spawn(&format!(
        "load chain --rate 200 --duration {duration} -o json"
    ))
}

/// Waits for the end of the load and checks that all requests were handled, each with one outcome. The
/// state of this application is not read back.
#[track_caller]
pub fn all_handled(load: Child) -> Value {
    let ended: Ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "not checked", "{report}");
    let ledger = &report["ledger"];
    assert_eq!(ledger["done"], ledger["sent"], "{ledger}");
    report
}

/// The key of a node's heartbeats, which the controller tells to whoever has the nodes' token.
pub fn heartbeat_key(e3: &E3, node: &NodeView) -> HeartbeatKey {
    let port = &run_file(e3, "cluster.json")["port"];
    let (id, incarnation) = (node.id, node.incarnation);
    let path = format!("/v1/nodes/{id}/plan?incarnation={incarnation}");
    let asked = ureq::get(format!("http://127.0.0.1:{port}{path}"));
    let asked = asked.header("Authorization", e3.authorization("node-token"));
    let answer = asked.call().unwrap();
    let key = answer.headers().get(HEARTBEAT_KEY_HEADER).unwrap();
    key.to_str().unwrap().parse().unwrap()
}

/// A heartbeat in a node's name.
pub fn heartbeat(cluster: u64, node: &NodeView, key: &HeartbeatKey, sequence: u32) -> Vec<u8> {
    let (id, beat) = (NodeId(node.id), Heartbeat::default());
    let mut bytes = heartbeat::encode(Format::NEWEST, cluster, id, node.incarnation, &beat);
    heartbeat::authenticate(Format::NEWEST, &mut bytes, key, sequence);
    bytes
}
