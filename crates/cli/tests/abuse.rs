//! A cluster that is treated badly, as a script: services that misbehave, random bytes at every port.
//! Healthy applications must not notice.

use crate::common::garbage::{Garbage, REASONS};
use crate::common::running::{CHAIN, all_handled, handled, run_file, start_load};
use crate::common::{E3, PATIENCE};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e3_client::{Call, Client, Completed, Duplicate, Event};
use e3_model::api::{ClusterView, DeployRequest, EndpointsView, NodeView};
use e3_model::{AppId, DropReason, Nanos};
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};

/// An application whose one service is called `crooked`.
fn crooked(name: &str, module: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: {name}
spec:
  objective: {{latency: 100ms}}
  ingress: crooked
  services:
    - name: crooked
      module: {module}
      stateful: true
      replicas: 2
      deadline: 200ms
      resources: {{cpu: 0.1, memory: 16Mi}}
      collections:
        - {{name: attempts, kind: counter}}
        - {{name: items, kind: hash-map}}
"
    )
}

/// A module that has all that the ABI asks for, and this beside.
fn module(more: &str) -> String {
    format!(
        r#"(module
            (memory (export "memory") 2)
            (func (export "e3_abi_version") (result i32) (i32.const 1))
            (func (export "e3_request_buffer") (result i32) (i32.const 65536))
            (func (export "e3_request_capacity") (result i32) (i32.const 1024))
            (func (export "e3_handle") (param i32) (result i32) (i32.const 0))
            {more})"#
    )
}

fn url(e3: &E3, path: &str) -> String {
    let port = &run_file(e3, "cluster.json")["port"];
    format!("http://127.0.0.1:{port}{path}")
}

fn get_text(e3: &E3, path: &str) -> String {
    let get = ureq::get(url(e3, path)).header("Authorization", e3.authorization("token"));
    let answer = get.call();
    answer.unwrap().body_mut().read_to_string().unwrap()
}

fn get<T: DeserializeOwned>(e3: &E3, path: &str) -> T {
    serde_json::from_str(&get_text(e3, path)).unwrap()
}

/// Sends requests to an application; every one must get one answer, and any further one must be the
/// same.
#[track_caller]
fn answers(e3: &E3, app: &str, payloads: &[Vec<u8>]) -> Vec<Reply> {
    let endpoints: EndpointsView = get(e3, &format!("/v1/apps/{app}/endpoints"));
    let mut client = Client::new(&endpoints, None).unwrap();
    let begin = client.now();
    let deadline = begin + PATIENCE.into();
    let mut seqs = Vec::new();
    for (tag, payload) in payloads.iter().enumerate() {
        let call = Call {
            tag: tag as u64,
            key: b"key".to_vec(),
            payload: payload.clone(),
        };
        seqs.push(client.requests.submit(begin, begin, deadline, call));
    }
    let mut given: BTreeMap<u64, Reply> = BTreeMap::new();
    while client.requests.in_flight() > 0 {
        client.turn(client.now() + Nanos::from_millis(100)).unwrap();
        while let Some(event) = client.requests.poll_event() {
            match event {
                Event::Completed(Completed { seq, reply, .. }) => {
                    let reply = reply.unwrap_or_else(|| panic!("{app}: no answer to {seq}"));
                    assert!(given.insert(seq, reply).is_none());
                }
                Event::Duplicate(Duplicate { seq, reply }) => assert_eq!(given[&seq], reply),
                Event::DeadLetters(_) => {}
            }
        }
    }
    assert_eq!(client.requests.take_stray(), 0);
    seqs.iter().map(|seq| given[seq].clone()).collect()
}

#[track_caller]
fn failed(reply: &Reply, words: &str) {
    let text = String::from_utf8_lossy(&reply.payload);
    assert_eq!(reply.outcome, Outcome::Failed, "{text:?}");
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}

/// Waits until `e3 describe` says of the service `crooked` why it does not run (`error`) or why it
/// failed last (`lastFailure`).
#[track_caller]
fn told(e3: &E3, app: &str, field: &str, words: &str) {
    let says = |v: &Value| v.as_str().is_some_and(|text| text.contains(words));
    e3.until(&format!("{app}: {words}"), |e3| {
        says(&e3.json(&["describe", "app", app])["services"][0][field])
    });
    let page = e3.good(&["describe", "app", app]);
    let line = page.lines().find(|l| l.contains(words));
    assert!(line.is_some_and(|l| l.contains("crooked")), "{page}");
}

/// Processes of the nodes.
fn incarnations(e3: &E3) -> Vec<(String, u32)> {
    let nodes: Vec<NodeView> = get(e3, "/v1/nodes");
    assert!(nodes.iter().all(|n| n.up), "{nodes:?}");
    nodes.into_iter().map(|n| (n.name, n.incarnation)).collect()
}

/// A cluster with the healthy application; None if there are no modules.
fn cluster() -> Option<E3> {
    let e3 = E3::with_services()?;
    e3.up();
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    Some(e3)
}

#[test]
fn services_that_misbehave_fail_alone() {
    let Some(e3) = cluster() else { return };
    let before = incarnations(&e3);
    let load = start_load(&e3, "8s");

    // Modules that cannot run are refused, if it shows without running them. Where they came another
    // way, the reason stands where one looks, and requests are told.
    let refuses = module(r#"(func (export "e3_init") (result i32) (i32.const 7))"#);
    let cannot_run = [
        ("lacks", "(module)", "export \"memory\" is missing", 2),
        (
            "huge",
            r#"(module (memory (export "memory") 65536))"#,
            "memory of at least 4294967296 bytes, must be at most",
            2,
        ),
        ("refuses", &refuses, "e3_init returned 7, must be 0", 7),
    ];
    for (name, text, words, code) in cannot_run {
        let module = format!("{name}.wasm");
        let wasm = wat::parse_str(text).unwrap();
        std::fs::write(e3.dir.path().join(&module), &wasm).unwrap();
        let manifest = crooked(name, &module);
        let wait = |timeout| {
            let file = e3.file(&format!("{name}.yaml"), &manifest);
            e3.run(&["deploy", &file, "--wait", "--timeout", timeout])
        };
        if code == 2 {
            let refused = wait("60s");
            assert_eq!(refused.code, code, "{refused:?}");
            assert!(refused.err.contains("service \"crooked\""), "{refused:?}");
            assert!(refused.err.contains(words), "{refused:?}");
            assert_eq!(e3.run(&["describe", "app", name]).code, 3);
        }
        let request = DeployRequest {
            file: "by another program".into(),
            manifest: manifest.clone(),
            modules: [(module, BASE64_STANDARD.encode(wasm))].into(),
            ..DeployRequest::default()
        };
        let post = ureq::post(url(&e3, "/v1/apps"));
        let post = post.header("Authorization", e3.authorization("token"));
        assert_eq!(post.send_json(&request).unwrap().status(), 200);
        told(&e3, name, "error", words);
        let waited = wait("10ms");
        assert_eq!(waited.code, code, "{waited:?}");
        assert!(waited.err.contains("service \"crooked\""), "{waited:?}");
        assert!(waited.err.contains(words), "{waited:?}");
        assert!(e3.good(&["get", "apps"]).contains("not ready"));
        for reply in answers(&e3, name, &vec![vec![1]; 5]) {
            failed(&reply, words);
        }
    }

    // A module that loops without end before it is ready: its requests fail at the deadline.
    let loops = module(r#"(func (export "e3_init") (result i32) (loop (br 0)) (unreachable))"#);
    let wasm = wat::parse_str(loops).unwrap();
    std::fs::write(e3.dir.path().join("loops.wasm"), wasm).unwrap();
    let file = e3.file("loops.yaml", &crooked("loops", "loops.wasm"));
    e3.good(&["deploy", &file]);
    for reply in answers(&e3, "loops", &vec![vec![1]; 3]) {
        failed(&reply, "handler exceeded its 200 ms deadline");
    }
    told(
        &e3,
        "loops",
        "lastFailure",
        "handler exceeded its 200 ms deadline",
    );

    // A module that runs and does everything wrong: see test-services/misbehave.
    let file = e3.file("misbehave.yaml", &crooked("misbehave", "misbehave.wasm"));
    e3.good(&["deploy", &file, "--wait"]);
    let faults: [(&[u8], &str); 5] = [
        (&[1], "unreachable"),
        (&[2], "handler exceeded its 200 ms deadline"),
        (&[3], "bytes of memory, must be at most 16777216"),
        (&[6, 7], "handler returned 7, must be 0"),
        (&[8], "out of bounds memory access"),
    ];
    for (payload, words) in faults {
        let replies = answers(&e3, "misbehave", &[payload.to_vec(), vec![0, 42]]);
        failed(&replies[0], words);
        told(&e3, "misbehave", "lastFailure", words);
        // The next one in the queue is handled as if nothing had been.
        assert_eq!(replies[1].outcome, Outcome::Done);
        assert_eq!(replies[1].payload, [0, 42]);
    }
    // Floods of replies and of writes, and 4 GB at once, are refused without a fault.
    for reply in answers(&e3, "misbehave", &[vec![5], vec![9], vec![4]]) {
        assert_eq!((reply.outcome, reply.status), (Outcome::Done, 0));
    }
    // All of it in one queue.
    let mixed: Vec<Vec<u8>> = (0..60).map(|i| vec![i % 10]).collect();
    for (payload, reply) in mixed.iter().zip(answers(&e3, "misbehave", &mixed)) {
        let faulty = [1, 2, 3, 6, 8].contains(&payload[0]);
        let outcome = if faulty {
            Outcome::Failed
        } else {
            Outcome::Done
        };
        assert_eq!(reply.outcome, outcome, "{payload:?}");
    }

    all_handled(load);
    all_handled(start_load(&e3, "1s"));
    assert_eq!(incarnations(&e3), before, "a node has died");
    e3.good(&["delete", "huge"]);
    e3.good(&["delete", "loops"]);
    all_handled(start_load(&e3, "1s"));
}

#[test]
fn random_bytes_at_every_port_are_counted_and_dropped() {
    const SEED: u64 = 20_190_710;
    const ROUNDS: u64 = 20;
    println!("seed {SEED}");
    let Some(e3) = cluster() else { return };
    let before = incarnations(&e3);
    let view: ClusterView = get(&e3, "/v1/cluster");
    let endpoints: EndpointsView = get(&e3, "/v1/apps/chain/endpoints");
    let mut garbage = Garbage {
        random: Random::new(SEED),
        cluster: u64::from_str_radix(&view.cluster, 16).unwrap(),
        nodes: get(&e3, "/v1/nodes"),
        app: AppId(endpoints.app),
        headers: vec![String::new()],
    };
    let address = |n: &NodeView| n.address.as_ref().unwrap().parse().unwrap();
    let nodes: Vec<SocketAddr> = garbage.nodes.iter().map(address).collect();
    let port = run_file(&e3, "cluster.json")["port"].as_u64().unwrap() as u16;
    let controller = SocketAddr::from(([127, 0, 0, 1], port));
    for token in ["token", "node-token"] {
        let authorization = e3.authorization(token);
        let headers = format!("Host: {controller}\r\nAuthorization: {authorization}\r\n");
        garbage.headers.push(headers);
    }
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |to: SocketAddr, bytes: &[u8]| assert!(from.send_to(bytes, to).is_ok());

    let load = start_load(&e3, "6s");
    e3.until("the load has begun", |e3| handled(e3, "chain") > 50);
    let mut open = Vec::new();
    for _ in 0..ROUNDS {
        for (to, address) in nodes.iter().enumerate() {
            for i in 0..120 {
                let datagram = garbage.for_node(to, i % (REASONS.len() + 1));
                send(*address, &datagram);
            }
            send(*address, &garbage.request());
        }
        for _ in 0..50 {
            send(controller, &garbage.for_controller());
        }
        for i in 0..8 {
            let mut stream = TcpStream::connect(controller).unwrap();
            // It may have hung up already.
            let _ = stream.write_all(&garbage.for_http());
            if i % 2 == 0 {
                open.push(stream);
            }
        }
        // It answers all the while, and nobody is missed.
        assert_eq!(incarnations(&e3), before);
    }

    all_handled(load);
    assert_eq!(incarnations(&e3), before, "a node has died or was missed");
    // Each kind was counted as what it is; not all of them, since a full socket drops some too.
    let least = ROUNDS * (120 / (REASONS.len() as u64 + 1)) / 4;
    let instances = e3.json(&["get", "instances"]);
    let hosts: Vec<_> = instances
        .as_array()
        .unwrap()
        .iter()
        .map(|i| &i["node"])
        .collect();
    for (name, _) in &before {
        // Only where the application is, a view of it can be wrong; elsewhere the link is.
        let is_host = hosts.iter().any(|node| **node == **name);
        let expected = |reason: &&DropReason| **reason != DropReason::View || is_host;
        e3.until(&format!("{name} counts what it dropped"), |e3| {
            let node: NodeView = get(e3, &format!("/v1/nodes/{name}"));
            let counted = |reason| node.dropped.get(&reason).copied().unwrap_or(0);
            REASONS
                .iter()
                .filter(expected)
                .all(|reason| counted(*reason) >= least)
        });
        let page = e3.good(&["describe", "node", name]);
        assert!(page.contains("client frame"), "{page}");
    }
    let metrics = get_text(&e3, "/metrics");
    assert!(
        metrics.contains("e3_node_dropped_datagrams_total{node=\"s1-host\",reason=\"header\"}"),
        "{metrics}"
    );
    let line = metrics
        .lines()
        .find_map(|l| l.strip_prefix("e3_garbage_datagrams_total "));
    let counted: f64 = line.unwrap().parse().unwrap();
    assert!(counted >= (ROUNDS * 50 / 4) as f64, "{counted}");
    all_handled(start_load(&e3, "1s"));
    assert_eq!(incarnations(&e3), before);
}
