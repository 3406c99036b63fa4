//! Nodes that host nothing of an application serve it, and the others also while the controller is down.

use crate::common::E3;
use crate::common::http::Http;
use crate::common::running::signal;
use rustix::process::Signal;
use std::collections::BTreeSet;

const BYTES: (&str, &str) = ("content-type", "application/octet-stream");

fn echo(name: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: {name}
spec:
  objective: {{latency: 100ms}}
  ingress: only
  services:
    - name: only
      module: echo.wasm
      stateful: true
      replicas: 2
      deadline: 3s
      resources: {{cpu: 0.1, memory: 16Mi}}
      collections:
        - {{name: attempts, kind: counter}}
"
    )
}

fn deploy(e3: &E3, name: &str) {
    let file = e3.file(&format!("{name}.yaml"), &echo(name));
    e3.good(&["deploy", &file, "--wait"]);
}

/// The nodes with an instance of an application.
fn hosts(e3: &E3, app: &str) -> BTreeSet<String> {
    let all = e3.json(&["get", "instances", "--app", app]);
    let nodes = all.as_array().unwrap().iter();
    nodes.map(|i| i["node"].as_str().unwrap().into()).collect()
}

#[test]
fn every_node_serves_applications_that_it_hosts_nothing_of() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    for app in ["asked", "unasked"] {
        deploy(&e3, app);
    }
    let http = Http::new(&e3);
    let ask = |node: usize, app: &str| {
        let path = format!("/v1/apps/{app}?key=k");
        http.post(node, &path, &[BYTES], b"payload").unwrap()
    };
    for node in 0..http.nodes.len() {
        let answer = ask(node, "asked");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"payload"[..]));
    }
    // Nodes go on with the routes that they have. Others say that the client may retry.
    let hosts = hosts(&e3, "unasked");
    assert!(hosts.len() < http.nodes.len());
    signal(&e3, "controller", Signal::STOP);
    let without_controller: Vec<(u16, u16)> = (0..http.nodes.len())
        .map(|node| (ask(node, "asked").status, ask(node, "unasked").status))
        .collect();
    signal(&e3, "controller", Signal::CONT);
    for ((name, _), (asked, unasked)) in http.nodes.iter().zip(without_controller) {
        assert_eq!(asked, 200, "{name}");
        if hosts.contains(name) {
            assert_eq!(unasked, 200, "{name}")
        } else {
            assert!(matches!(unasked, 503 | 504), "{name}: {unasked}")
        }
    }
    for node in 0..http.nodes.len() {
        assert_eq!(ask(node, "unasked").status, 200);
    }
}
