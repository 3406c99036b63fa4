//! An application changes while it serves: its assets, its code; and what may not change.

use crate::common::E3;
use crate::common::running::{CHAIN, all_handled, kill, primary, start_load};
use serde_json::Value;
use std::collections::BTreeSet;

const APP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: router
spec:
  objective: {latency: 100ms}
  ingress: natv4
  assets:
    - {name: routes, file: routes.txt, compile: dir-24-8}
  services:
    - name: natv4
      module: natv4.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: mappings, kind: hash-map}
        - {name: ports, kind: hash-map}
      assets: [routes]
      config: {public: 203.0.113.8}
";
const ROUTES: &str = "0.0.0.0/0 198.51.100.1\n198.18.0.0/15 198.51.100.2\n";
const QUESTION: &str = r#"{"op": "route", "address": "198.18.0.1"}"#;

/// What the router says to a question, whichever shard is asked.
fn next_hop(e3: &E3, key: &str) -> String {
    let said = e3.good(&["call", "router", "--key", key, "--record", QUESTION]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["status"], 0, "{answer}");
    answer["reply"]["record"]["next-hop"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_string()
}

fn code_version(e3: &E3) -> u64 {
    let app = e3.json(&["describe", "app", "router"]);
    app["codeVersion"].as_u64().unwrap()
}

/// Whether the application has gone back to the second version that ran, under this number, and that
/// has started everywhere: then the first that ran is the one before it.
fn has_started(e3: &E3, version: u64) -> bool {
    let app = e3.json(&["describe", "app", "router"]);
    app["codeVersion"] == version && app["earlierVersion"] == 2
}

#[test]
fn an_application_changes_while_it_serves() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let manifest = e3.file("router.yaml", APP);
    e3.file("routes.txt", ROUTES);
    let deploy = ["deploy", &manifest, "--wait"];
    e3.up();
    // A first version that does not start is fixed by the next.
    e3.file("router.yaml", &APP.replace("203.0.113.8", "nowhere"));
    let mut short = deploy.to_vec();
    short.extend(["--timeout", "8s"]);
    let failed = e3.run(&short);
    assert_eq!(failed.code, 7, "{}", failed.err);
    assert!(failed.err.contains("nowhere"), "{}", failed.err);
    e3.file("router.yaml", APP);
    assert!(e3.good(&deploy).contains("updated router to version 2"));
    let both = |e3: &E3| ["a", "b", "c", "d"].map(|key| next_hop(e3, key));
    assert_eq!(both(&e3), ["198.51.100.2"; 4]);
    assert!(e3.good(&deploy).contains("is unchanged"));

    // Questions go on all the while; none may be lost.
    let lines = format!("{{\"key\": \"k\", \"record\": {QUESTION}}}\n").repeat(2000);
    let questions = e3.file("questions", &lines);
    let asking = e3.spawn(&format!("call router --input {questions}"));
    e3.file("routes.txt", &ROUTES.replace("100.2", "100.7"));
    let said = e3.good(&deploy);
    assert!(said.contains("updated router to version 3"), "{said}");
    assert_eq!(both(&e3), ["198.51.100.7"; 4]);
    let asked = asking.wait_with_output().unwrap();
    let answers: Vec<Value> = String::from_utf8(asked.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(asked.status.success() && answers.len() == 2000);
    let hops = answers
        .iter()
        .map(|a| a["reply"]["record"]["next-hop"].as_str().unwrap());
    let new = hops.clone().filter(|h| *h == "198.51.100.7").count();
    let old = hops.filter(|h| *h == "198.51.100.2").count();
    assert_eq!(old + new, 2000);

    // A table with a wrong line changes nothing.
    e3.file(
        "routes.txt",
        "0.0.0.0/0 198.51.100.1\n198.18.0.0/150 198.51.100.2\n",
    );
    let refused = e3.run(&deploy);
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .err
            .contains("routes.txt:2: length is \"150\", must be 0..=32"),
        "{}",
        refused.err
    );
    // Neither does another shape.
    e3.file("routes.txt", ROUTES);
    e3.file("router.yaml", &APP.replace("shards: 2", "shards: 3"));
    let refused = e3.run(&deploy);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused
            .err
            .contains("shards of service \"natv4\" of application \"router\" cannot change"),
        "{}",
        refused.err
    );
    assert_eq!(code_version(&e3), 3);

    // A version that does not start is reported, and the old one goes on, also at a new primary.
    e3.file("router.yaml", &APP.replace("203.0.113.8", "nowhere"));
    e3.good(&["deploy", &manifest]);
    e3.until("the version does not start", |e3| {
        let app = e3.json(&["describe", "app", "router"]);
        let problems = app.to_string();
        problems.contains("version 4 does not start, version 3 stays")
    });
    assert_eq!(both(&e3), ["198.51.100.7"; 4]);
    let primaries = ["router/natv4/0", "router/natv4/1"].map(|shard| primary(&e3, shard));
    for node in BTreeSet::from(primaries) {
        kill(&e3, &node);
    }
    assert_eq!(both(&e3), ["198.51.100.7"; 4]);
    // The controller goes back by itself.
    e3.until("it is rolled back", |e3| has_started(e3, 5));
    assert_eq!(both(&e3), ["198.51.100.7"; 4]);
    // A deployment that waits for such a version reports it.
    let failed = e3.run(&deploy);
    assert_eq!(failed.code, 5, "{}", failed.err);
    assert!(
        failed.err.contains(
            "version 6 of router was rolled back to version 5, which is now version 7: \
             router/natv4/"
        ) && failed.err.contains("nowhere"),
        "{}",
        failed.err
    );
    let text = e3.good(&["describe", "app", "router"]);
    assert!(text.contains("rolled back from version 6 to 5"), "{text}");
    e3.until("the old one runs again", |e3| has_started(e3, 7));
    e3.file("router.yaml", APP);
    assert!(e3.good(&deploy).contains("to version 8"));
    assert_eq!(both(&e3), ["198.51.100.2"; 4]);
    // An operator goes back; the table of then is routed by again.
    let said = e3.good(&["rollback", "router", "--wait"]);
    assert!(
        said.contains("rolled back router from version 8 to version 7, which is now version 9"),
        "{said}"
    );
    assert_eq!(both(&e3), ["198.51.100.7"; 4]);
    let refused = e3.run(&["rollback", "nobody"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
}

const PLAIN: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: plain
spec:
  objective: {latency: 100ms}
  ingress: echo
  services:
    - name: echo
      module: echo.wasm
      stateful: false
      shards: 1
      replicas: 1
      resources: {cpu: 0.1, memory: 16Mi}
";

#[test]
fn a_fail_over_does_not_wait_for_code_that_is_being_compiled() {
    let Some(mut e3) = E3::with_services() else {
        return;
    };
    e3.code_cache = e3.dir.path().join("code");
    e3.up();
    let chain = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &chain, "--wait"]);

    // As long as another process compiles, no node does.
    let cache = std::fs::File::open(&e3.code_cache).unwrap();
    cache.lock().unwrap();
    let plain = e3.file("plain.yaml", PLAIN);
    e3.good(&["deploy", &plain]);
    let status = |e3: &E3| {
        let all = e3.json(&["get", "instances"]);
        let of_plain = |i: &&Value| i["instance"] == "plain/echo/0";
        let found = all.as_array().unwrap().iter().find(of_plain)?;
        found["status"].as_str().map(str::to_string)
    };
    e3.until("the nodes know of the second application", |e3| {
        status(e3).as_deref() == Some("starting")
    });
    let load = start_load(&e3, "4s");
    kill(&e3, &primary(&e3, "chain/front/0"));
    all_handled(load);
    assert_eq!(status(&e3).as_deref(), Some("starting"));
    drop(cache);
    e3.until("the second application runs", |e3| {
        status(e3).as_deref() == Some("running")
    });
}
