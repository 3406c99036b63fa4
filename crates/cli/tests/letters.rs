//! The life of a dead letter: kept, listed, replayed while its cause remains, replayed once it is gone.

use crate::common::E3;

const APP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: gate
spec:
  objective: {latency: 100ms}
  ingress: gate
  attempts: 2
  services:
    - name: gate
      module: gate.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: open, kind: hash-map}
";

/// Requests with an odd first byte open the gate for good; the others trap while it is shut.
const GATE: &str = r#"(module
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (import "e3" "get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "put" (func $put (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "k")
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 32768))
  (func (export "e3_handle") (param i32) (result i32)
    (if (i32.and (i32.load8_u (i32.const 1024)) (i32.const 1))
      (then (drop (call $put (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1))))
      (else (if (i32.lt_s
          (call $get (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 8))
          (i32.const 0)) (then unreachable))))
    (call $reply (i32.const 0) (i32.const 0) (i32.const 1))))"#;

/// Seeds whose first request is even, and odd.
const EVEN: [&str; 2] = ["2", "4"];
const ODD: &str = "1";

#[test]
fn a_dead_letter_is_listed_and_replayed() {
    let e3 = E3::new();
    std::fs::write(
        e3.dir.path().join("gate.wasm"),
        wat::parse_str(GATE).unwrap(),
    )
    .unwrap();
    e3.up();
    e3.good(&["deploy", &e3.file("gate.yaml", APP), "--wait"]);
    let letters = |e3: &E3| {
        e3.json(&["get", "dead-letters"])
            .as_array()
            .unwrap()
            .clone()
    };
    let load = |seed| {
        e3.run(&[
            "load",
            "gate",
            "--rate",
            "100",
            "--duration",
            "1s",
            "--seed",
            seed,
        ])
    };

    // A load ends with its first request if that fails.
    for seed in EVEN {
        let ended = load(seed);
        assert!(ended.err.contains("unreachable"), "{ended:?}");
    }
    let dead = letters(&e3);
    assert_eq!(dead.len(), 2);
    for letter in &dead {
        assert_eq!(letter["instance"], "gate/gate/0");
        assert_eq!(letter["payloadBytes"], 64);
        let reason = letter["reason"].as_str().unwrap();
        assert!(reason.contains("unreachable"), "{reason}");
    }
    // They show wherever somebody looks: two requests, two attempts each.
    e3.until("the counts are reported", |e3| {
        e3.json(&["get", "apps"])[0]["services"][0]["deadLettered"] == 2
    });
    let app = e3.json(&["describe", "app", "gate"]);
    assert_eq!(
        (&app["ready"], &app["health"]),
        (&true.into(), &"degraded".into())
    );
    assert_eq!(app["services"][0]["failed"], 4);
    let says = "2 requests were dead-lettered in the last 60 s";
    assert!(app["problems"][0].as_str().unwrap().contains(says), "{app}");
    for command in [&["get", "apps"][..], &["describe", "app", "gate"]] {
        let text = e3.good(command);
        assert!(text.contains("degraded") && text.contains(says), "{text}");
    }
    let table = e3.good(&["get", "dead-letters", "--app", "gate"]);
    let first = dead[0]["letter"].as_str().unwrap();
    assert!(table.contains(first), "{table}");

    // Its cause is still there: it fails again, and is another letter.
    let ended = e3.run(&["replay", "gate", first]);
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.err.contains("unreachable"), "{ended:?}");
    assert_eq!(letters(&e3).len(), 2);
    let ended = e3.run(&["replay", "gate", first]);
    assert_eq!(ended.code, 3, "{ended:?}");

    assert_eq!(load(ODD).code, 0);
    let out = e3.good(&["replay", "gate", "--all"]);
    assert_eq!(out, "replayed 2 of 2 dead letters\n");
    assert_eq!(letters(&e3).len(), 0);
    assert_eq!(
        e3.good(&["replay", "gate", "--all"]),
        "replayed 0 of 0 dead letters\n"
    );
    e3.until("the count is reported", |e3| {
        e3.json(&["get", "apps"])[0]["deadLetters"] == 0
    });
}
