//! Applications as a user's program sees them: HTTP to the nodes of a real cluster.

use crate::common::http::Http;
use crate::common::running::{CHAIN, kill, primary};
use crate::common::{E3, PATIENCE};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("content-type", "application/json");

/// An application of one service, which admits so many requests at a node.
fn single(name: &str, module: &str, admitted_max: u32) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: {name}
spec:
  objective: {{latency: 100ms}}
  ingress: only
  admittedMax: {admitted_max}
  services:
    - name: only
      module: {module}
      stateful: true
      replicas: 2
      deadline: 20s
      resources: {{cpu: 0.1, memory: 16Mi}}
      collections:
        - {{name: attempts, kind: counter}}
"
    )
}

/// A cluster with these applications.
#[track_caller]
fn cluster(e3: &E3, manifests: &[(&str, String)]) {
    e3.up();
    for (file, manifest) in manifests {
        let file = e3.file(file, manifest);
        e3.good(&["deploy", &file, "--wait"]);
    }
}

/// The count that the application `chain` replies with.
#[track_caller]
fn counted(body: &[u8]) -> i64 {
    i64::from_le_bytes(body.try_into().unwrap_or_else(|_| panic!("{body:?}")))
}

#[test]
fn requests_and_refusals() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let apps = [
        ("echo.yaml", single("echo", "echo.wasm", 1000)),
        (
            "misbehave.yaml",
            single("misbehave", "misbehave.wasm", 1000),
        ),
    ];
    cluster(&e3, &apps);
    let http = Http::new(&e3);
    records_and_bytes(&http);
    bad_input(&http);
    bad_requests(&http);
    failures(&http);
    stalls(&http);
    let nodes = e3.good(&["get", "nodes"]);
    assert!(nodes.contains(&http.nodes[0].1), "{nodes}");
}

fn records_and_bytes(http: &Http) {
    let record = json!({"op": "put", "n": 18446744073709551615u64, "x": [1.5, null, {"y": -1}]});
    let body = record.to_string();
    let answer = http.ask("/v1/apps/echo?key=k", &[JSON], body.as_bytes());
    assert_eq!(
        (answer.status, answer.json()),
        (200, record.clone()),
        "{answer:?}"
    );
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("e3-outcome"), "done");
    assert_eq!(answer.header("e3-status"), "0");
    assert_eq!(answer.header("e3-attempts"), "1");
    assert!(answer.header("e3-request-id").contains('-'));
    let cbor = [JSON, ("accept", "application/cbor")];
    let answer = http.ask("/v1/apps/echo?key=k", &cbor, body.as_bytes());
    assert_eq!(answer.header("content-type"), "application/cbor");
    let raw = answer.body.clone();
    let answer = http.ask("/v1/apps/echo", &[("e3-key", "k")], &raw);
    assert_eq!(answer.json(), record, "bytes that are a record");
    let bytes = [("content-type", "application/octet-stream")];
    for payload in [&b""[..], b"\x00\xff", b"plain text", &[7; 32 * 1024]] {
        let answer = http.ask("/v1/apps/echo?key=k", &bytes, payload);
        assert_eq!((answer.status, &answer.body[..]), (200, payload));
        assert_eq!(answer.header("content-type"), "application/octet-stream");
    }
    // The service has the last word: its own status is not that of HTTP.
    let answer = http.ask("/v1/apps/misbehave?key=k", &bytes, &[99]);
    assert_eq!((answer.status, answer.header("e3-status")), (200, "1"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi-ingress.json");
    let written: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(http.get("/openapi.json").json(), written);
    assert_eq!(http.get("/healthz").status, 200);
    assert_eq!(http.get("/readyz").status, 200);
}

fn bad_input(http: &Http) {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(40_000));
    let cases: [(u16, &str, &str); 14] = [
        (400, "", "invalid JSON"),
        (400, "{", "invalid JSON"),
        (400, "{\"a\": NaN}", "invalid JSON"),
        (400, "{\"a\": 1e999}", "invalid JSON"),
        (400, "{\"a\": 1, \"a\": 2}", "duplicate field \"a\""),
        (
            400,
            "{\"a\": {\"b\": 1, \"b\": 2}}",
            "duplicate field \"b\"",
        ),
        (400, "{\"a\": 1} trailing", "invalid JSON"),
        (400, &deep, "recursion"),
        (422, "[1, 2]", "must be a JSON object"),
        (422, "\"text\"", "must be a JSON object"),
        (422, "null", "must be a JSON object"),
        (413, &long, "at most 32768"),
        (413, &" ".repeat(200_000), "131072"),
        (400, "{\"a\": \"\\ud800\"}", "invalid JSON"),
    ];
    for (status, body, words) in cases {
        let answer = http.ask("/v1/apps/echo?key=k", &[JSON], body.as_bytes());
        answer.refused(status, words);
    }
    let bytes = vec![0; 32 * 1024 + 1];
    let answer = http.ask("/v1/apps/echo?key=k", &[], &bytes);
    answer.refused(413, "32769");
    let utf16 = [("content-type", "application/json; charset=utf-16")];
    http.ask("/v1/apps/echo?key=k", &utf16, b"{}")
        .refused(415, "UTF-8");
    let gzip = [("content-encoding", "gzip")];
    http.ask("/v1/apps/echo?key=k", &gzip, b"x")
        .refused(415, "gzip");
    let bad_headers = [
        ("e3-deadline-ms", "0", "1..=600000"),
        ("e3-deadline-ms", "soon", "soon"),
        (
            "e3-deadline-ms",
            "200000",
            "must be at most 60000 for application \"echo\"",
        ),
        ("idempotency-key", "", "0 bytes"),
        ("e3-key", "other", "different"),
    ];
    for (name, value, words) in bad_headers {
        let answer = http.ask("/v1/apps/echo?key=k", &[(name, value)], b"x");
        answer.refused(400, words);
    }
}

fn bad_requests(http: &Http) {
    http.ask("/v1/apps/echo", &[], b"x")
        .refused(400, "routing key");
    http.ask("/v1/apps/nobody?key=k", &[], b"x")
        .refused(404, "\"nobody\"");
    http.ask("/v1/nothing", &[], b"x")
        .refused(404, "no such path");
    http.get("/v1/apps/echo?key=k").refused(401, "token");
    let mut stranger = http.clone();
    stranger.token = "0".repeat(64);
    let answer = stranger.ask("/v1/apps/echo?key=k", &[], b"x");
    answer.refused(401, "token");
    assert_eq!(answer.header("www-authenticate"), "Bearer");
    let foreign = [("origin", "http://evil.example")];
    http.ask("/v1/apps/echo?key=k", &foreign, b"x")
        .refused(403, "evil.example");
    let rebound = [("host", "evil.example")];
    http.ask("/v1/apps/echo?key=k", &rebound, b"x")
        .refused(421, "evil.example");
    let many = "x".repeat(20_000);
    let answer = http.ask("/v1/apps/echo?key=k", &[("x-long", &many)], b"x");
    answer.refused(431, "headers");
    let path = "/v1/apps/echo?key=k";
    let head = http.head(path, &format!("X: {}\r\n\r\n", "x".repeat(100_000)));
    assert!(http.raw(head.as_bytes(), true).starts_with("HTTP/1.1 431 "));
    let fields: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    let head = http.head(path, &(fields + "\r\n"));
    assert!(http.raw(head.as_bytes(), true).starts_with("HTTP/1.1 431 "));
    for garbage in [
        "\x16\x03\x01\x02\0\x01\0",
        "GET / HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let said = http.raw(garbage.as_bytes(), false);
        assert!(!said.contains(" 200 "), "{said}");
    }
    let url = format!("{}/v1/apps/echo", http.nodes[0].1);
    let agent = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = agent.build().into();
    let token = format!("Bearer {}", http.token);
    let answer = agent
        .get(url)
        .header("authorization", token)
        .call()
        .unwrap();
    assert_eq!(answer.status(), 405);
    assert_eq!(answer.headers()["allow"], "POST");
}

fn failures(http: &Http) {
    let trap = http.ask("/v1/apps/misbehave?key=k", &[], &[1]);
    trap.refused(500, "misbehave");
    assert_eq!(trap.header("e3-outcome"), "failed");
    assert!(
        trap.json()["hint"]
            .as_str()
            .unwrap()
            .contains("dead-letters")
    );
    // A busy shard: what waits behind it expires, is not handled, and can be retried.
    let busy = http.clone();
    let holder =
        std::thread::spawn(move || busy.ask("/v1/apps/misbehave?key=b", &[], &busy_for(2.0)));
    let mut expired;
    let key = ("idempotency-key", "expires");
    loop {
        expired = http.ask(
            "/v1/apps/misbehave?key=b",
            &[key, ("e3-deadline-ms", "100")],
            &[0, 1],
        );
        if expired.status == 504 || holder.is_finished() {
            break;
        }
    }
    let held = holder.join().unwrap();
    assert_eq!(held.status, 200, "{held:?}");
    if expired.status == 504 {
        let again = http.ask("/v1/apps/misbehave?key=b", &[key], &[0, 1]);
        assert_eq!(
            (again.status, again.body.clone()),
            (200, vec![0, 1]),
            "{again:?}"
        );
    }
}

/// A payload that keeps `misbehave` busy for about so long.
fn busy_for(seconds: f64) -> Vec<u8> {
    let iterations = (seconds * 1e9) as u64;
    [&[7][..], &iterations.to_le_bytes()].concat()
}

fn stalls(http: &Http) {
    let path = "/v1/apps/echo?key=k";
    let stalled = [
        http.head(path, ""),
        "POST /v1/ap".to_string(),
        http.head(path, "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"),
        http.head(path, "Content-Length: 10\r\n\r\nhello"),
    ];
    let clients = stalled.map(|bytes| {
        let http = http.clone();
        std::thread::spawn(move || (http.raw(bytes.as_bytes(), true), bytes))
    });
    // Meanwhile the node serves others.
    assert_eq!(http.ask(path, &[], b"x").status, 200);
    for (i, client) in clients.into_iter().enumerate() {
        let (said, sent) = client.join().unwrap();
        match i {
            0 | 1 => assert!(!said.contains(" 200 "), "{sent}: {said}"),
            _ => assert!(said.starts_with("HTTP/1.1 408 "), "{sent}: {said}"),
        }
    }
    // A body that ends early.
    let cut = http.head(path, "Content-Length: 10\r\n\r\nhello");
    assert!(!http.raw(cut.as_bytes(), false).contains(" 200 "));
    // Two lengths are one request too many (RFC 9112, section 6.3).
    let smuggled = http.head(path, "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy");
    assert!(
        http.raw(smuggled.as_bytes(), false)
            .starts_with("HTTP/1.1 400 ")
    );
}

#[test]
fn an_overloaded_node_says_when_to_retry_and_keeps_its_word() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    cluster(
        &e3,
        &[("misbehave.yaml", single("misbehave", "misbehave.wasm", 1))],
    );
    let http = Http::new(&e3);
    let path = "/v1/apps/misbehave?key=k";
    let begin = Instant::now();
    // One request is admitted at a time: of these, which overlap, some are refused.
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let http = http.clone();
            std::thread::spawn(move || http.ask(path, &[], &busy_for(0.5)))
        })
        .collect();
    let answers: Vec<_> = clients.into_iter().map(|c| c.join().unwrap()).collect();
    let refused: Vec<_> = answers.iter().filter(|a| a.status == 429).collect();
    let took = begin.elapsed();
    assert!(answers.iter().any(|a| a.status == 200), "{answers:?}");
    assert!(!refused.is_empty(), "{answers:?}");
    for answer in refused {
        answer.refused(429, "\"misbehave\"");
        assert_eq!(answer.header("e3-outcome"), "overloaded");
        let wait_s: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=30).contains(&wait_s));
        std::thread::sleep(Duration::from_secs(wait_s));
        let again = http.ask(path, &[], &[0]);
        assert_eq!(again.status, 200, "after {wait_s} s, {took:?}: {again:?}");
    }
}

#[test]
fn a_repeat_gets_the_stored_answer_at_every_node() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    cluster(&e3, &[("chain.yaml", CHAIN.to_string())]);
    let http = Http::new(&e3);
    let path = "/v1/apps/chain?key=anna";
    let order = [("idempotency-key", "order-1")];
    for node in (0..http.nodes.len()).chain([0, 0]) {
        let answer = http.post(node, path, &order, b"one").unwrap();
        assert_eq!(
            (answer.status, counted(&answer.body)),
            (200, 1),
            "node {node}: {answer:?}"
        );
    }
    // Many at once, at all nodes.
    let clients: Vec<_> = (0..24)
        .map(|i| {
            let http = http.clone();
            let node = i % http.nodes.len();
            let key = [("idempotency-key", "order-2")];
            std::thread::spawn(move || http.post(node, path, &key, b"two").unwrap())
        })
        .collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert_eq!(
            (answer.status, counted(&answer.body)),
            (200, 2),
            "{answer:?}"
        );
    }
    // Another payload: at every node. Another routing key: at the nodes that gave an answer.
    for node in 0..http.nodes.len() {
        let other = http.post(node, path, &order, b"other").unwrap();
        other.refused(422, "Idempotency-Key");
        let elsewhere = http.post(node, "/v1/apps/chain?key=bert", &order, b"one");
        elsewhere.unwrap().refused(422, "Idempotency-Key");
    }
    // Without a key each is a request of its own.
    let counts = [(); 3].map(|()| counted(&http.ask(path, &[], b"three").body));
    assert_eq!(counts, [3, 4, 5]);
    // After a fail-over, and at a process that has just started.
    let victim = primary(&e3, "chain/back/0");
    let node = |e3: &E3| e3.json(&["get", "nodes", "--node", &victim])[0].clone();
    let before = node(&e3)["incarnation"].as_u64().unwrap();
    kill(&e3, &victim);
    let other = http.nodes.iter().position(|(name, _)| *name != victim);
    assert_eq!(until_counted(&http, other.unwrap(), path, order), 1);
    e3.until("the node is back", |e3| {
        let node = node(e3);
        node["up"] == true && node["incarnation"].as_u64().unwrap() > before
    });
    let http = Http::new(&e3);
    let back = http.nodes.iter().position(|(name, _)| *name == victim);
    assert_eq!(until_counted(&http, back.unwrap(), path, order), 1);
}

/// Repeats a request at one node until it is answered.
#[track_caller]
fn until_counted(http: &Http, node: usize, path: &str, key: [(&str, &str); 1]) -> i64 {
    let begin = Instant::now();
    loop {
        match http.post(node, path, &key, b"one") {
            Ok(answer) if answer.status == 200 => return counted(&answer.body),
            other => assert!(begin.elapsed() < PATIENCE, "{other:?}"),
        }
    }
}

#[test]
fn each_effect_takes_place_once_while_the_primary_is_killed() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    cluster(&e3, &[("chain.yaml", CHAIN.to_string())]);
    let http = Http::new(&e3);
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 60;
    let done = AtomicU64::new(0);
    let (http, progress) = (&http, &done);
    let counts: Vec<i64> = std::thread::scope(|scope| {
        let client = |client: usize| {
            let run = move || {
                let one = |i: usize| {
                    let count = until_done(http, client + i, &format!("{client}-{i}"));
                    progress.fetch_add(1, Ordering::Relaxed);
                    count
                };
                (0..REQUESTS).map(one).collect::<Vec<i64>>()
            };
            scope.spawn(run)
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for (after, shard) in [(40, "chain/back/0"), (120, "chain/front/0")] {
            e3.until("requests are handled", |_| {
                progress.load(Ordering::Relaxed) >= after
            });
            kill(&e3, &primary(&e3, shard));
            e3.until("all shards have their replicas again", |e3| {
                e3.json(&["describe", "app", "chain"])["ready"] == true
            });
        }
        clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    let mut counts = counts;
    counts.sort_unstable();
    let wanted: Vec<i64> = (1..=(CLIENTS * REQUESTS) as i64).collect();
    assert_eq!(counts, wanted, "each request counted once");
}

/// Sends a request with an idempotency key, to one node after the other, until it is handled. The
/// deadline is short, so that some requests expire in the fail-over.
fn until_done(http: &Http, first: usize, key: &str) -> i64 {
    let begin = Instant::now();
    let headers = [("idempotency-key", key), ("e3-deadline-ms", "700")];
    for node in first.. {
        let node = node % http.nodes.len();
        match http.post(node, "/v1/apps/chain?key=anna", &headers, key.as_bytes()) {
            Ok(answer) if answer.status == 200 => return counted(&answer.body),
            Ok(answer) => assert!(matches!(answer.status, 429 | 503 | 504), "{answer:?}"),
            // Its node is gone, or went before it answered.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
        assert!(begin.elapsed() < PATIENCE, "{key} was not handled");
    }
    unreachable!("there is always another node")
}
