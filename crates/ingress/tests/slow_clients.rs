//! Clients that send slowly, or not at all: their connections end in bounded time, and keep nobody
//! out.

use e3_ingress::limits::ClientLimits;
use e3_ingress::{http, pair};
use e3_model::api::ErrorView;
use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, NodePlan};
use e3_model::{AppId, Format, NodeId, Timestamp, Token};
use e3_wire::entry::{Outcome, Reply};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for anything that should happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Payload of a request that is answered only when the node ends.
const HELD: &str = "held";

/// Limits that nothing reaches in the time of a test.
fn patient() -> ClientLimits {
    ClientLimits {
        connections_max: 100,
        head_timeout: 10 * PATIENCE,
        body_timeout: 10 * PATIENCE,
        write_timeout: 10 * PATIENCE,
    }
}

/// A node whose only application replies with what it gets.
struct Node {
    address: SocketAddr,
    bell: Sender<Bell>,
    threads: Vec<JoinHandle<()>>,
}

enum Bell {
    Request,
    Stop,
}

fn plan() -> NodePlan {
    let manifest = include_str!("../../model/tests/two-services.yaml");
    let app = parse_application("app.yaml", manifest).unwrap();
    let app = AppPlan {
        id: AppId(1),
        code_version: 1,
        app: Arc::new(app),
        modules: Vec::new(),
        assets: BTreeMap::new(),
        proven: None,
        resharded: Vec::new(),
        backup: None,
        secrets: BTreeMap::new(),
        restored: None,
        slowdown: Vec::new(),
        shards: Vec::new(),
    };
    NodePlan {
        version: 1,
        cluster: 1,
        format: Format::NEWEST,
        node: NodeId(0),
        peers: BTreeMap::new(),
        exited: BTreeMap::new(),
        apps: vec![app],
        ..NodePlan::default()
    }
}

fn token() -> Token {
    Token::new([1; 32])
}

impl Node {
    fn start(limits: ClientLimits) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (bell, rung): (_, Receiver<Bell>) = channel();
        let ring = bell.clone();
        let start = Instant::now();
        let now = move || Timestamp(start.elapsed().as_nanos() as u64);
        let (gate, events, door) = pair(1, now, move || drop(ring.send(Bell::Request)));
        door.set_plan(Some(&plan()));
        let server = move || http::serve(listener, gate, events, token(), limits).unwrap();
        let worker = move || {
            while let Ok(Bell::Request) = rung.recv() {
                while let Some(request) = door.next() {
                    if request.payload != HELD.as_bytes() {
                        let reply = Reply {
                            outcome: Outcome::Done,
                            status: 0,
                            payload: request.payload,
                        };
                        door.answer(request.app, request.id, reply);
                    }
                }
            }
            door.close();
        };
        let threads = vec![std::thread::spawn(server), std::thread::spawn(worker)];
        let node = Node {
            address,
            bell,
            threads,
        };
        let begin = Instant::now();
        while !node.ask("ready").starts_with("HTTP/1.1 200 ") {
            assert!(begin.elapsed() < PATIENCE, "the node does not start");
        }
        node
    }

    /// The head of a request with these headers at its end.
    fn head(&self, more: &str) -> String {
        let authorization = token().authorization();
        let address = self.address;
        format!(
            "POST /v1/apps/two-services?key=k HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\n{more}"
        )
    }

    /// A whole request, after which the connection stays open.
    fn request(&self, body: &str) -> String {
        self.head(&format!("Content-Length: {}\r\n\r\n{body}", body.len()))
    }

    /// Opens a connection and sends this.
    fn open(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream
    }

    /// Answer to a request on a connection of its own.
    #[track_caller]
    fn ask(&self, body: &str) -> String {
        let length = body.len();
        let end = format!("Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        until_closed(&mut self.open(&self.head(&end)))
    }

    /// The node serves others.
    #[track_caller]
    fn serves(&self) {
        let begin = Instant::now();
        let answer = self.ask("other");
        assert!(answer.ends_with("\r\n\r\nother"), "{answer}");
        assert!(begin.elapsed() < PATIENCE);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.bell.send(Bell::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What comes until the node closes.
#[track_caller]
fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("the connection is open: {e}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// What comes up to these words.
#[track_caller]
fn until_said(stream: &mut TcpStream, words: &str) -> String {
    let mut said = String::new();
    while !said.ends_with(words) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        said.push(byte[0].into());
    }
    said
}

/// Sends a byte now and then until the node closes; what it has said.
#[track_caller]
fn drip(stream: &mut TcpStream) -> String {
    let begin = Instant::now();
    let pause = Duration::from_millis(20);
    stream.set_read_timeout(Some(pause)).unwrap();
    let mut said = Vec::new();
    loop {
        assert!(begin.elapsed() < PATIENCE, "the connection is open");
        let _ = stream.write_all(b"x");
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => said.extend_from_slice(&bytes[..len]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let node = Node::start(ClientLimits {
        head_timeout: Duration::from_millis(500),
        ..patient()
    });
    let begins = ["", "POST /v1/ap", &node.head(""), &node.head("X-Any: ")];
    let mut stalled = begins.map(|begin| node.open(begin));
    let mut dripping = [node.open("POST /"), node.open(&node.head("X-Any: "))];
    node.serves();
    for stream in &mut dripping {
        assert_eq!(drip(stream), "");
    }
    for stream in &mut stalled {
        assert_eq!(until_closed(stream), "");
    }
    node.serves();
}

#[test]
fn a_body_that_never_ends_is_answered_with_408() {
    let node = Node::start(ClientLimits {
        body_timeout: Duration::from_millis(500),
        ..patient()
    });
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    let bodies = [
        "Content-Length: 100000\r\n\r\n".to_string(),
        "Content-Length: 100000\r\n\r\nhello".to_string(),
        chunked.to_string(),
        format!("{chunked}5\r\nhel"),
        format!("{chunked}5\r\nhello\r\n"),
    ];
    let mut stalled = bodies.map(|body| node.open(&node.head(&body)));
    let mut dripping = [
        node.open(&node.head("Content-Length: 100000\r\n\r\n")),
        node.open(&node.head(&format!("{chunked}ffff\r\n"))),
    ];
    node.serves();
    let timed_out = |said: String| {
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
        assert!(head.starts_with("HTTP/1.1 408 "), "{said}");
        let body: ErrorView = serde_json::from_str(body).unwrap();
        assert_eq!(body.error, "the body was not complete within 0.5 s");
    };
    for stream in &mut dripping {
        timed_out(drip(stream));
    }
    for stream in &mut stalled {
        timed_out(until_closed(stream));
    }
    node.serves();
}

#[test]
fn an_idle_connection_is_closed() {
    let node = Node::start(ClientLimits {
        head_timeout: Duration::from_millis(500),
        ..patient()
    });
    let mut stream = node.open(&node.request("one"));
    let answer = until_said(&mut stream, "one");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // It takes another request meanwhile.
    stream.write_all(node.request("two").as_bytes()).unwrap();
    let rest = until_closed(&mut stream);
    assert!(rest.ends_with("two"), "{rest}");
}

#[test]
fn idle_connections_make_room_and_those_with_requests_do_not() {
    let node = Node::start(ClientLimits {
        connections_max: 8,
        ..patient()
    });
    let mut held = node.open(&node.request(HELD));
    let mut kept = node.open(&node.request("kept"));
    until_said(&mut kept, "kept");
    let begins = ["", "POST /", &node.head(""), "GET /healthz HTTP/1.1\r\n"];
    let mut idle: Vec<_> = (0..100).map(|i| node.open(begins[i % 4])).collect();
    node.serves();
    // At most 8 are open: those are the last ones, and the one with a request.
    let closed = idle.len() - 8;
    for stream in idle.iter_mut().take(closed).chain([&mut kept]) {
        until_closed(stream);
    }
    let poll = Some(Duration::from_millis(1));
    held.set_read_timeout(poll).unwrap();
    let open = held.read(&mut [0]);
    assert!(open.is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
    // The node takes requests on all places, and a further client waits for one.
    let mut all: Vec<_> = (1..8).map(|_| node.open(&node.request(HELD))).collect();
    let mut last = node.open(&node.request("last"));
    all.pop();
    until_said(&mut last, "last");
}
