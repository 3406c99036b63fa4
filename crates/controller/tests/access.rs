//! Access: tokens, roles, hosts and origins, and connections that send nothing.

use crate::common;
use crate::common::{Controller, NODES, free_port, node_token, owner_token, token_for};
use e3_controller::{Access, ROUTES};
use e3_model::Token;
use e3_model::api::ErrorView;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections without a request; more than the controller has places for.
const HALF_OPEN: usize = 900;

/// An answer as it came.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn is_refusal(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
        let error: Result<ErrorView, _> = serde_json::from_str(&self.body);
        assert!(error.is_ok_and(|e| !e.error.is_empty()), "{self:?}");
    }
}

/// Sends a request as given, adds `Host` and `Connection` if they are missing, and reads the answer.
fn raw(address: SocketAddr, line: &str, headers: &[String]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = format!("{line} HTTP/1.1\r\n");
    if !headers.iter().any(|h| h.starts_with("Host:")) {
        head += &format!("Host: {address}\r\n");
    }
    for header in headers.iter().filter(|h| *h != "Host:") {
        head += &format!("{header}\r\n");
    }
    head += "Connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The connection may be reset after the answer, for a body that was not read.
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_ascii_lowercase(),
        body: body.to_string(),
    }
}

fn present(token: &Token) -> String {
    format!("Authorization: {}", token.authorization())
}

#[test]
fn every_route_takes_its_own_token_only() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let strangers = [
        vec![],
        vec!["Authorization: Bearer".to_string()],
        vec!["Authorization: Basic dXNlcjp3b3Jk".to_string()],
        vec![present(&Token::new([3; 32]))],
        vec![format!("Authorization: {}", owner_token().expose())],
        vec![present(&owner_token()), present(&owner_token())],
        vec![format!("Cookie: token={}", owner_token().expose())],
    ];
    for r in ROUTES {
        let path = r.path.replace(['{', '}'], "");
        let line = format!("{} {path}", r.method.to_ascii_uppercase());
        for headers in &strangers {
            let answer = raw(controller.address, &line, headers);
            if r.access == Access::Open {
                assert!([200, 503].contains(&answer.status), "{line} {answer:?}");
                continue;
            }
            answer.is_refusal(401);
            assert!(
                answer.head.contains("www-authenticate: bearer"),
                "{line} {answer:?}"
            );
        }
        for (token, is_node) in [(owner_token(), false), (node_token(), true)] {
            let answer = raw(controller.address, &line, &[present(&token)]);
            if r.access == Access::Open || (r.access == Access::Node) == is_node {
                assert!(![401, 403].contains(&answer.status), "{line} {answer:?}");
            } else {
                answer.is_refusal(403);
            }
        }
    }
    // Without a token a client does not learn which paths exist.
    for line in ["GET /nowhere", "PUT /v1/apps", "OPTIONS /v1/apps"] {
        raw(controller.address, line, &[]).is_refusal(401);
    }
    let owner = present(&owner_token());
    raw(
        controller.address,
        "GET /nowhere",
        std::slice::from_ref(&owner),
    )
    .is_refusal(404);
    for line in ["PUT /v1/apps", "post /v1/apps"] {
        let answer = raw(controller.address, line, std::slice::from_ref(&owner));
        answer.is_refusal(405);
        assert!(answer.head.contains("allow: get, post"), "{answer:?}");
    }
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let port = controller.address.port();
    let ask = |line: &str, more: &[String]| {
        let headers = [&[present(&owner_token())], more].concat();
        raw(controller.address, line, &headers)
    };
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        let host = format!("Host: {host}:{port}");
        assert_eq!(ask("GET /v1/nodes", &[host]).status, 200);
    }
    let foreign = [
        "Host: evil.example".to_string(),
        format!("Host: evil.example:{port}"),
        format!("Host: 10.0.0.1:{port}"),
        format!("Host: evil.example@127.0.0.1:{port}"),
        "Host: 127.0.0.1".to_string(),
        format!("Host: 127.0.0.1:{}", port ^ 1),
        "Host: ".to_string(),
        "Host:".to_string(),
    ];
    for host in foreign {
        for line in ["GET /v1/nodes", "GET /healthz", "DELETE /v1/apps/a"] {
            ask(line, std::slice::from_ref(&host)).is_refusal(421);
        }
    }
    let two = ["Host: evil.example", "Host: evil.example"].map(String::from);
    ask("GET /v1/nodes", &two).is_refusal(421);
    ask("GET http://evil.example/v1/nodes", &[]).is_refusal(421);
    let target = format!("GET http://127.0.0.1:{port}/v1/nodes");
    assert_eq!(ask(&target, &[]).status, 200);

    for origin in ["http://127.0.0.1", "http://localhost", "http://[::1]"] {
        let origin = format!("Origin: {origin}:{port}");
        assert_eq!(ask("GET /v1/nodes", &[origin]).status, 200);
    }
    for origin in [
        "null",
        "http://evil.example",
        "https://127.0.0.1",
        "http://localhost",
        "",
    ] {
        let origin = format!("Origin: {origin}");
        ask("GET /v1/nodes", std::slice::from_ref(&origin)).is_refusal(403);
        ask("GET /healthz", std::slice::from_ref(&origin)).is_refusal(403);
        ask("POST /v1/migrations", &[origin]).is_refusal(403);
    }
}

#[test]
fn bodies_are_read_after_the_token_and_within_their_bounds() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let length = |bytes: u64| format!("Content-Length: {bytes}");
    // The bodies are never sent.
    let begin = Instant::now();
    raw(controller.address, "POST /v1/apps", &[length(1 << 27)]).is_refusal(401);
    raw(
        controller.address,
        "POST /v1/nodes/hello",
        &[present(&owner_token()), length(1 << 10)],
    )
    .is_refusal(403);
    for (path, bytes) in [
        ("/v1/apps", (256 << 20) + 1),
        ("/v1/migrations", (64 << 10) + 1),
        ("/v1/nodes/hello", (64 << 20) + 1),
        ("/v1/nodes/0/report", (64 << 20) + 1),
    ] {
        let token = present(&token_for(path));
        let line = format!("POST {path}");
        raw(controller.address, &line, &[token, length(bytes)]).is_refusal(413);
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn large_deployments_are_not_all_read_at_the_same_time() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let address = controller.address;
    let len = 256 << 20;
    // The controller says when it begins to read the body, which is never sent.
    let begin = format!(
        "POST /v1/apps HTTP/1.1\r\nHost: {address}\r\n{}\r\nContent-Length: {len}\r\n\
         Expect: 100-continue\r\n\r\n",
        present(&owner_token())
    );
    let is_read = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"HTTP/1.1 100");
    };
    let mut read = half_open(address, 2, &begin);
    read.iter_mut().for_each(is_read);
    let mut waits = half_open(address, 1, &begin).pop().unwrap();
    // Everything else goes on.
    for _ in 0..20 {
        assert_eq!(controller.get("/v1/nodes").0, 200);
    }
    waits.set_nonblocking(true).unwrap();
    let early = waits.peek(&mut [0]).map_err(|e| e.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock));
    waits.set_nonblocking(false).unwrap();
    drop(read.pop());
    is_read(&mut waits);
}

/// Opens connections and sends the beginning of a request on each.
fn half_open(address: SocketAddr, count: usize, begin: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may be closed already.
        let _ = stream.write_all(begin.as_bytes());
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn half_open_connections_are_closed_and_keep_nobody_out() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let address = controller.address;
    let welcome = controller.join(NODES[0], 1);
    let plan = controller.plan(&welcome);
    // A node waits for a newer plan all the while.
    let beats = common::beat(address, vec![welcome]);
    let path = format!(
        "/v1/nodes/{}/plan?incarnation={}&after={}&wait_ms=30000",
        welcome.node.0, welcome.incarnation, plan.version
    );
    let poll = std::thread::spawn(move || {
        let headers = [present(&node_token())];
        raw(address, &format!("GET {path}"), &headers)
    });
    let kinds = [
        String::new(),
        "GET /v1/nodes HTTP/1.1\r\nHost: ".into(),
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nX: "),
        format!("POST /v1/apps HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9\r\n\r\n"),
    ];
    let mut open = Vec::new();
    let begin = Instant::now();
    for i in 0..HALF_OPEN {
        open.extend(half_open(address, 1, &kinds[i % kinds.len()]));
        if i % 50 == 0 {
            assert_eq!(controller.get("/v1/nodes").0, 200, "after {i} connections");
            assert_eq!(controller.get("/healthz").0, 200, "after {i} connections");
        }
    }
    // The same holds for a connection that sends its header a byte at a time.
    let mut drip = TcpStream::connect(address).unwrap();
    let mut dripped = 0;
    while drip.write_all(b"X").is_ok() {
        assert!(begin.elapsed() < PATIENCE, "{dripped} bytes were taken");
        dripped += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    for (i, stream) in open.iter_mut().enumerate() {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        let left = left.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).unwrap();
        let closed = stream.read_to_end(&mut Vec::new());
        let late = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!closed.is_err_and(|e| late(&e)), "connection {i} is open");
    }
    // The node's request is still waiting: a deployment answers it.
    assert!(!poll.is_finished(), "{:?}", poll.join());
    for node in &NODES[1..] {
        controller.join(node, 1);
    }
    let answer = poll.join().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    drop(beats);
}

/// The answer of the controller to a client that sends this and then a byte now and then until the
/// controller closes the connection.
#[track_caller]
fn drip(address: SocketAddr, begin: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let pause = Duration::from_millis(20);
    stream.set_read_timeout(Some(pause)).unwrap();
    stream.write_all(begin.as_bytes()).unwrap();
    let (mut said, begin) = (Vec::new(), Instant::now());
    loop {
        assert!(begin.elapsed() < PATIENCE, "the connection is open");
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => said.extend_from_slice(&bytes[..len]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        let _ = stream.write_all(b"x");
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn clients_with_a_token_that_send_slowly_are_cut_off_and_hold_nobody_up() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start_with(tmp.path(), free_port(), Some(500));
    let address = controller.address;
    let head = |line: &str, more: &str| {
        let token = present(&owner_token());
        format!("{line} HTTP/1.1\r\nHost: {address}\r\n{token}\r\n{more}")
    };
    let bodies = [
        "Content-Length: 1000\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffff\r\nhello",
    ];
    let mut open: Vec<_> = bodies
        .iter()
        .flat_map(|body| half_open(address, 20, &head("POST /v1/apps", body)))
        .collect();
    assert_eq!(controller.get("/v1/nodes").0, 200);
    let timed_out = |said: &str| {
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        assert!(said.contains("was not complete within 0.5 s"), "{said}");
    };
    timed_out(&drip(address, &head("POST /v1/apps", bodies[0])));
    for stream in &mut open {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        timed_out(&String::from_utf8_lossy(&said));
    }
    // Headers that never end, also after a whole request, and idle connections.
    assert_eq!(drip(address, &head("GET /v1/nodes", "X: ")), "");
    let whole = head("GET /v1/nodes", "\r\n");
    let said = drip(address, &format!("{whole}GET /v1/n"));
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
    let mut idle = half_open(address, 1, &whole).remove(0);
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    idle.read_to_end(&mut said).unwrap();
    assert!(said.starts_with(b"HTTP/1.1 200 "));
}
