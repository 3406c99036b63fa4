//! Bad manifests, topologies and arguments: one line with file, line, field, value and bound, exit
//! code 2, without a cluster.

mod common;

use common::E3;

const GOOD: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: two
spec:
  objective: {latency: 5ms}
  ingress: front
  services:
    - name: front
      module: chain.wasm
      resources: {cpu: 0.1, memory: 16Mi}
    - name: back
      module: chain.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
  channels:
    - {from: front, to: back}
";

/// The manifest with a change must be refused by `place` and by `deploy`, in these words.
#[track_caller]
fn refused(from: &str, to: &str, line: u32, words: &str) {
    assert!(GOOD.contains(from), "{from:?} is not in the manifest");
    let e3 = E3::new();
    let file = e3.file("app.yaml", &GOOD.replacen(from, to, 1));
    for command in [&["place", &file][..], &["deploy", &file, "--dry-run"]] {
        let ended = e3.run(command);
        assert_eq!(ended.code, 2, "{command:?}: {ended:?}");
        let first = ended.err.lines().next().unwrap();
        let begin = format!("error: {file}:{line}: ");
        assert!(
            first.starts_with(&begin),
            "{first:?} does not begin with {begin:?}"
        );
        assert!(first.contains(words), "{first:?} does not say {words:?}");
        let more: Vec<&str> = ended.err.lines().skip(1).collect();
        assert!(more.iter().all(|l| l.starts_with("hint: ")), "{ended:?}");
        assert_eq!(ended.out, "");
    }
}

#[test]
fn a_good_manifest_is_placed() {
    let e3 = E3::new();
    let file = e3.file("app.yaml", GOOD);
    let view = e3.json(&["place", &file]);
    assert_eq!(view["instances"].as_array().unwrap().len(), 5);
    assert_eq!(view["overcommitted"], 0);
    let text = e3.good(&["place", &file]);
    assert!(text.contains("back/1") && text.contains("level"), "{text}");
}

#[test]
fn an_unknown_field() {
    refused(
        "ingress: front",
        "ingres: front",
        7,
        "unknown field `ingres`",
    );
}

#[test]
fn a_cycle() {
    let cycle = "to: back}\n    - {from: back, to: front}";
    refused("to: back}", cycle, 18, "cycle: front -> back -> front");
}

#[test]
fn a_channel_to_nowhere() {
    refused(
        "to: back}",
        "to: nowhere}",
        19,
        "there is no service \"nowhere\"",
    );
}

#[test]
fn no_shards() {
    refused(
        "shards: 2",
        "shards: 0",
        15,
        "shards is 0, must be 1..=4096",
    );
}

#[test]
fn two_services_of_one_name() {
    refused(
        "name: back",
        "name: front",
        12,
        "two services are named \"front\"",
    );
}

#[test]
fn replicas_that_cannot_be_kept_apart() {
    let words = "4 replicas cannot be kept apart on 3 fault domains";
    refused("replicas: 2", "replicas: 4", 16, words);
}

#[test]
fn more_memory_than_any_node_has() {
    let words = "memory is 1024Gi, the largest node that it may use has 64Gi";
    refused("memory: 16Mi", "memory: 1024Gi", 11, words);
}

#[test]
fn other_bad_input_has_its_exit_code() {
    let e3 = E3::new();
    let file = e3.file("app.yaml", GOOD);
    let config = e3.file("bad-config.yaml", "prot: 7300\n");
    for (arguments, code, words) in [
        (vec!["place", "missing.yaml"], 3, "missing.yaml"),
        (
            vec!["place", &file, "--topology", &file],
            2,
            "kind: \"Application\" where \"Topology\" is expected",
        ),
        (vec!["get", "nodes"], 6, "no cluster is up"),
        (vec!["deploy", &file], 6, "no cluster is up"),
        (
            vec!["get", "nodes", "--controller", "http://127.0.0.1:1"],
            6,
            "127.0.0.1:1",
        ),
        (
            vec!["get", "nodes", "--controller", "nonsense"],
            2,
            "must begin with http://",
        ),
        (
            vec!["get", "nodes", "--config", &config],
            2,
            "unknown field `prot`",
        ),
        (vec!["logs"], 3, "there are no logs"),
        (vec!["up", "--topology", "missing.yaml"], 3, "missing.yaml"),
        (vec!["load", "x", "--rate", "0"], 2, "above 0"),
    ] {
        let ended = e3.run(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("error: "), "{arguments:?}: {ended:?}");
    }
    assert!(e3.good(&["down"]).contains("no cluster is up"));
}

#[test]
fn a_missing_module_is_named() {
    let e3 = E3::new();
    let file = e3.file("app.yaml", &GOOD.replace("chain.wasm", "absent.wasm"));
    let ended = e3.run(&["deploy", &file, "--dry-run"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(
        ended.err.contains("module \"absent.wasm\" is not found"),
        "{ended:?}"
    );
    assert!(ended.err.contains("hint: build the services"), "{ended:?}");
}
