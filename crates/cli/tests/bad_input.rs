//! Bad manifests, topologies and arguments: one line with file, line, field, value and bound, exit
//! code 2, without a cluster.

use crate::common::E3;

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
    let words = "4 replicas need 4 fault domains (servers), usable: 3";
    refused("replicas: 2", "replicas: 4", 16, words);
}

#[test]
fn more_memory_than_any_node_has() {
    let words = "memory is 1024Gi, the largest node that it may use has 64Gi";
    refused("memory: 16Mi", "memory: 1024Gi", 11, words);
}

#[test]
fn more_cores_than_any_node_has() {
    let e3 = E3::new();
    let file = e3.file("app.yaml", &GOOD.replacen("cpu: 0.1", "cpu: 1000", 1));
    let says = "instance front/0 primary fits on no node: it asks for 1000.00 cores, the most that one \
                node has free is 12.00 cores (s1-host); s1-host comes closest";
    for (command, code) in [
        (&["place", &file][..], 5),
        (&["deploy", &file, "--dry-run"], 2),
        (&["deploy", &file, "--dry-run", "--overcommit"], 2),
    ] {
        let ended = e3.run(command);
        assert_eq!(ended.code, code, "{command:?}: {ended:?}");
        assert!(ended.err.contains(says), "{command:?}: {ended:?}");
    }
    // What fits on nodes, but not beside all else.
    let many = GOOD
        .replacen("shards: 2", "shards: 60", 1)
        .replace("cpu: 0.1", "cpu: 5");
    let file = e3.file("many.yaml", &many);
    let ended = e3.run(&["place", &file]);
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.out.contains("OVERCOMMITTED"), "{ended:?}");
    let ended = e3.run(&["deploy", &file, "--dry-run"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("--overcommit"), "{ended:?}");
}

#[test]
fn a_system_without_power_model() {
    let e3 = E3::new();
    let topology = include_str!("../../../topologies/3x-type1.yaml");
    let unknown = topology.replacen("system: Type1-SmartNIC", "system: Nope", 1);
    let file = e3.file("t.yaml", &unknown);
    let app = e3.file("app.yaml", GOOD);
    for command in [
        &["up", "--topology", &file][..],
        &["place", &app, "--topology", &file],
        &["deploy", &app, "--dry-run", "--topology", &file],
    ] {
        let ended = e3.run(command);
        assert_eq!(ended.code, 2, "{command:?}: {ended:?}");
        let line = 1 + unknown.lines().position(|l| l.contains("Nope")).unwrap();
        let says = "spec.racks[0].servers[0].system: server \"s1\": there is no system \
                    \"Nope\", must be one of ";
        let at = format!("t.yaml:{line}: ");
        assert!(ended.err.contains(&at), "{command:?}: {ended:?}");
        assert!(ended.err.contains(says), "{command:?}: {ended:?}");
        assert!(
            ended.err.contains("Type1-SmartNIC"),
            "{command:?}: {ended:?}"
        );
    }
}

/// Clusters and placements are refused for the same reasons.
#[test]
fn topologies_that_cannot_be() {
    let e3 = E3::new();
    let app = e3.file("app.yaml", GOOD);
    let good = include_str!("../../../topologies/1x-type1.yaml");
    let nic = good.lines().find(|l| l.contains("s1-nic0")).unwrap();
    let nics: Vec<String> = (0..5)
        .map(|i| nic.replace("s1-nic0", &format!("s1-nic{i}")))
        .collect();
    let node = "            - {name: s1-nic0, kind: smartnic, cores: 1, memory: 1Gi}\n";
    for (from, to, says) in [
        (
            nic,
            &*nics.join("\n"),
            "server \"s1\" has 5 SmartNICs, must be 0..=4",
        ),
        ("name: s1-nic0", "name: s1-host", "is already the name of"),
        (
            "system: Type1-SmartNIC",
            "powerBudgetW: 10\n          system: Type1-SmartNIC",
            "power budget 10 W, must be at least ",
        ),
        (
            "    - name: rack0",
            "    - {name: empty, servers: []}\n    - name: rack0",
            "rack \"empty\" has no server, must have 1 or more",
        ),
        (
            nic,
            &node.repeat(100_000),
            "server \"s1\" has 100000 SmartNICs, must be 0..=4",
        ),
        (
            nic,
            &node.repeat(1_000_000),
            "longer than the maximum of 67108864 bytes",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let file = e3.file("t.yaml", &good.replacen(from, to, 1));
        for command in [
            &["up", "--topology", &file][..],
            &["place", &app, "--topology", &file],
        ] {
            let ended = e3.run(command);
            assert_eq!(ended.code, 2, "{says}: {ended:?}");
            assert!(ended.err.contains(says), "{says}: {ended:?}");
        }
        assert!(!e3.dir.path().join("state").exists(), "{says}");
    }
}

/// A topology for the models only.
#[test]
fn a_cluster_that_one_machine_cannot_hold() {
    let e3 = E3::new();
    let good = include_str!("../../../topologies/1x-type1.yaml");
    let (head, server) = good.split_at(good.find("        - name: s1").unwrap());
    let servers = (0..129).map(|i| server.replace("s1", &format!("s{i}")));
    let file = e3.file("t.yaml", &(head.to_string() + &servers.collect::<String>()));
    let ended = e3.run(&["up", "--topology", &file]);
    assert_eq!(ended.code, 2, "{ended:?}");
    let says = "has 258 nodes, a cluster on this machine must have at most 256";
    assert!(ended.err.contains(says), "{ended:?}");
    assert!(!e3.dir.path().join("state").exists());
    let app = e3.file("app.yaml", GOOD);
    e3.good(&["place", &app, "--topology", &file]);
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
            "kind: this is an Application, expected a Topology",
        ),
        (vec!["get", "nodes"], 6, "no cluster is up"),
        (vec!["get", "nodes", "--app", "a"], 2, "--app is not for"),
        (vec!["get", "apps", "--node", "n"], 2, "--node is not for"),
        (vec!["get", "events", "a", "s"], 2, "a service is for"),
        (vec!["deploy", &file], 6, "no cluster is up"),
        (
            vec!["get", "nodes", "--controller", "http://127.0.0.1:1"],
            6,
            "127.0.0.1:1",
        ),
        (
            vec!["get", "nodes", "--controller", "nonsense"],
            2,
            "must start with http://",
        ),
        (
            vec!["get", "nodes", "--config", &config],
            2,
            "unknown field `prot`",
        ),
        (vec!["logs"], 3, "no logs in "),
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
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(
        ended.err.contains("module \"absent.wasm\" is not found"),
        "{ended:?}"
    );
    assert!(ended.err.contains("hint: build the services"), "{ended:?}");
}

/// Every way to name a file that is not there has one exit code, and names the file.
#[test]
fn a_missing_file_has_one_exit_code() {
    let e3 = E3::new();
    let good = e3.file("app.yaml", GOOD);
    for (arguments, missing) in [
        (vec!["deploy", "missing.yaml"], "missing.yaml"),
        (vec!["place", "missing.yaml"], "missing.yaml"),
        (
            vec!["place", &good, "--topology", "missing.yaml"],
            "missing.yaml",
        ),
        (vec!["place", &good, "--profiles", "missing"], "missing"),
        (vec!["up", "--topology", "missing.yaml"], "missing.yaml"),
        (
            vec!["get", "nodes", "--config", "missing.yaml"],
            "missing.yaml",
        ),
        (vec!["run", "missing.wasm"], "missing.wasm"),
        (vec!["run", "missing"], "missing.wasm"),
        (vec!["run", "missing", "--app", "hello"], "missing"),
        (
            vec!["call", "app", "--input", "missing.jsonl"],
            "missing.jsonl",
        ),
        (
            vec!["deploy", &good, "--dry-run", "--services", "missing"],
            "chain.wasm",
        ),
    ] {
        let ended = e3.run(&arguments);
        assert_eq!(ended.code, 3, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(missing), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_key_that_no_node_takes_is_not_sent() {
    let e3 = E3::new();
    let long = "k".repeat(1025);
    let lines = e3.file("lines.jsonl", "{\"text\": \"a\"}\n{\"key\": \"\"}\n");
    for (arguments, words) in [
        (
            vec!["call", "app", "--key", ""],
            "the key has 0 bytes, must have 1..=1024",
        ),
        (
            vec!["call", "app", "--key", &long],
            "the key has 1025 bytes",
        ),
        (
            vec!["call", "app", "--input", &lines],
            ":2: the key has 0 bytes",
        ),
    ] {
        let ended = e3.run(&arguments);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
}

/// A few hundred bytes must not take gigabytes, wherever a document is read.
#[test]
fn a_document_that_explodes_is_refused() {
    let e3 = E3::new();
    let mut laughs = "a0: &a0 [lol, lol, lol]\n".to_string();
    for level in 1..=12 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs += &format!("a{level}: &a{level} [{items}]\n");
    }
    let laughs = e3.file("laughs.yaml", &laughs);
    let indented: String = (0..1_000).map(|i| " ".repeat(i) + "a:\n").collect();
    let deep = e3.file("deep.yaml", &indented);
    let long = e3.file("long.yaml", &" ".repeat((64 << 20) + 1));
    let files = [
        (&laughs, "aliases stand for more than"),
        (&deep, "nested deeper than"),
        (&long, "bytes"),
    ];
    for (file, words) in files {
        for arguments in [
            ["place", file, "--placer", "hcm"],
            ["place", "iot-ts", "--topology", file],
            ["up", "--detach", "--topology", file],
            ["get", "nodes", "--config", file],
        ] {
            // Two GiB would be too little without the bounds.
            let bare = e3.command(&[]);
            let mut command = std::process::Command::new("bash");
            let script = "ulimit -v 2000000; exec \"$@\"";
            command.args(["-c", script, "bash"]).arg(bare.get_program());
            command
                .args(arguments)
                .env("E3_DIR", e3.dir.path().join("state"));
            let ended = crate::common::ended(command.output().unwrap());
            assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
            assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
        }
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let e3 = E3::new();
    for (command, bound) in [
        (&["deploy", "/dev/zero"][..], 4 << 20),
        (&["call", "app", "--input", "/dev/zero"], 512 << 20),
    ] {
        let ended = e3.run(command);
        assert_eq!(ended.code, 2, "{command:?}: {ended:?}");
        let words = format!("/dev/zero: longer than the maximum of {bound} bytes");
        assert!(ended.err.contains(&words), "{ended:?}");
    }
}

#[test]
fn a_byte_order_mark_is_accepted() {
    let e3 = E3::new();
    let file = e3.file("app.yaml", &format!("\u{feff}{GOOD}"));
    let topology = include_str!("../../../topologies/1x-type1.yaml");
    let topology = e3.file("topology.yaml", &format!("\u{feff}{topology}"));
    let config = e3.file("config.yaml", "\u{feff}output: json\n");
    let text = e3.good(&["place", &file, "--config", &config]);
    assert!(text.starts_with('{'), "{text}");
    let place = ["place", "hello", "--topology", &topology];
    assert!(e3.good(&place).contains("echo/0"));
    let line = "{\"text\": \"12345678v\"}\n";
    let lines = e3.file("lines.jsonl", &format!("\u{feff}{line}"));
    if crate::common::are_services_built() {
        let echo = ["run", "echo", "--input", &lines];
        assert!(e3.good(&echo).contains("12345678v"));
    }
    let bad = GOOD.replace("shards: 2", "shards: 0");
    let bad = e3.file("bad.yaml", &format!("\u{feff}{bad}"));
    let ended = e3.run(&["place", &bad]);
    assert!(ended.err.contains("bad.yaml:15: "), "{ended:?}");
}

#[test]
fn a_document_of_another_kind_is_named_as_such() {
    let e3 = E3::new();
    let app = e3.file("app.yaml", GOOD);
    let topology = e3.file("t.yaml", include_str!("../../../topologies/1x-type1.yaml"));
    for (arguments, words) in [
        (
            ["place", &topology, "--placer", "hcm"],
            "this is a Topology, expected an Application",
        ),
        (
            ["place", &app, "--topology", &app],
            "this is an Application, expected a Topology",
        ),
        (
            ["place", &app, "--config", &topology],
            "this is a Topology, expected settings",
        ),
    ] {
        let ended = e3.run(&arguments);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
}

/// A service whose start fails after `turns` of a loop: at once, or when it was preempted before.
fn failing(turns: u32) -> Vec<u8> {
    let text = format!(
        r#"(module
          (memory (export "memory") 1)
          (func (export "e3_abi_version") (result i32) i32.const 1)
          (func (export "e3_request_buffer") (result i32) i32.const 1024)
          (func (export "e3_request_capacity") (result i32) i32.const 1024)
          (func (export "e3_handle") (param i32) (result i32) i32.const 0)
          (func (export "e3_init") (result i32) (local i32)
            (loop
              (local.set 0 (i32.add (local.get 0) (i32.const 1)))
              (br_if 0 (i32.lt_u (local.get 0) (i32.const {turns}))))
            i32.const 7))"#
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn a_service_that_does_not_start_has_one_exit_code() {
    let e3 = E3::new();
    let module = e3.dir.path().join("failing.wasm");
    let input = e3.file("lines.jsonl", "{}\n{}\n");
    for round in 0..50 {
        // From nothing to some milliseconds: below and above a tick of 100 us.
        let turns = 1 << (round % 25);
        std::fs::write(&module, failing(turns)).unwrap();
        let ended = e3.run(&["run", module.to_str().unwrap(), "--input", &input]);
        assert_eq!(ended.code, 2, "{turns} turns: {ended:?}");
        assert!(ended.err.contains("e3_init returned 7"), "{ended:?}");
        assert_eq!(ended.out, "");
    }
}
