//! Outbound requests against local servers that fail in every way.

mod server;

use e3_model::Outcome;
use e3_model::limits::PAYLOAD_LEN_MAX;
use e3_model::outbound::{HttpMethod, HttpRequest};
use e3_outbound::limits::HOST_REQUESTS_MAX;
use e3_outbound::{Answered, Outbound, Request};
use server::{Server, read, response, says, serve};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for an answer, generous.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(30);

struct Client {
    outbound: Outbound,
    bell: Receiver<()>,
}

impl Client {
    fn new() -> Client {
        let (sender, bell) = mpsc::channel();
        let outbound = Outbound::new("1.2.3", move || {
            let _ = sender.send(());
        });
        Client { outbound, bell }
    }

    fn answer(&mut self) -> Answered {
        loop {
            if let Some(answered) = self.outbound.poll() {
                return answered;
            }
            self.bell.recv_timeout(PATIENCE).expect("an answer");
        }
    }

    /// Outcome, status and payload as text.
    fn ask(&mut self, request: Request) -> (Outcome, u32, String) {
        self.outbound.start(request);
        let Answered {
            answer, payload, ..
        } = self.answer();
        let text = String::from_utf8_lossy(&payload).into_owned();
        (answer.outcome, answer.status, text)
    }
}

fn request(url: &str, time: Duration) -> Request {
    Request {
        ticket: 1,
        http: HttpRequest {
            method: HttpMethod::Post,
            url: url.into(),
            headers: vec![("X-Field".into(), "value".into())],
        },
        body: b"body".to_vec(),
        deadline: Instant::now() + time,
        idempotency_key: "key-1".into(),
        may_be_sent: false,
    }
}

fn url(server: &Server) -> String {
    format!("http://{}/path?q=1", server.address)
}

fn done(status: u32, body: &str) -> (Outcome, u32, String) {
    (Outcome::Done, status, body.into())
}

#[test]
fn a_request_is_sent_as_the_service_says() {
    let server = serve(vec![says(response("201 Created", "made"))]);
    let answer = Client::new().ask(request(&url(&server), LONG));
    assert_eq!(answer, done(201, "made"));
    let seen = server.seen.recv().unwrap();
    assert_eq!(seen.line, "POST /path?q=1 HTTP/1.1");
    assert_eq!(seen.body, b"body");
    for (name, value) in [
        ("host", &*server.address),
        ("idempotency-key", "key-1"),
        ("user-agent", "e3/1.2.3"),
        ("x-field", "value"),
        ("content-length", "4"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{seen:?}");
    }
}

#[test]
fn the_attempts_so_far_are_known_until_the_answer_comes() {
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 20\r\ncontent-length: 0\r\n\r\n";
    let server = serve(vec![says(busy)]);
    let mut client = Client::new();
    client.outbound.start(request(&url(&server), LONG));
    server.seen.recv().unwrap();
    let begin = Instant::now();
    let attempts = loop {
        let attempts = client.outbound.attempts(1).expect("it has no answer");
        assert_eq!(attempts.count, 1);
        if attempts.next.is_some() {
            break attempts;
        }
        assert!(begin.elapsed() < PATIENCE, "{attempts:?}");
        thread::yield_now();
    };
    assert!(attempts.next > Some(begin + Duration::from_secs(15)));
    let error = "the server answered with status 503".to_string();
    assert_eq!(attempts.last_error, Some(error));
    client.outbound.cancel(1);
    assert_eq!(client.outbound.attempts(1), None);
}

#[test]
fn every_method_is_sent_with_and_without_a_body() {
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        for body in [&b""[..], b"body"] {
            let server = serve(vec![says(response("200 OK", "ok"))]);
            let mut request = request(&url(&server), LONG);
            request.http.method = HttpMethod::from_name(method).unwrap();
            request.body = body.to_vec();
            assert_eq!(Client::new().ask(request), done(200, "ok"), "{method}");
            let seen = server.seen.recv().unwrap();
            assert!(seen.line.starts_with(method));
            assert_eq!(seen.body, body, "{method}");
        }
    }
}

#[test]
fn a_busy_server_is_asked_again_with_the_same_key() {
    let busy =
        "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = serve(vec![
        says(busy),
        says(response("429 Slow down", "")),
        says(response("200 OK", "done")),
    ]);
    let begin = Instant::now();
    assert_eq!(
        Client::new().ask(request(&url(&server), LONG)),
        done(200, "done")
    );
    assert!(begin.elapsed() >= Duration::from_secs(1), "Retry-After");
    for _ in 0..3 {
        let seen = server.seen.recv().unwrap();
        assert_eq!(seen.header("idempotency-key"), Some("key-1"));
        assert_eq!(seen.body, b"body");
    }
}

#[test]
fn the_last_status_is_the_answer_at_the_deadline() {
    let busy = response("503 Busy", "later").replace("content", "retry-after: 9\r\ncontent");
    let server = serve(vec![says(busy)]);
    let begin = Instant::now();
    let answer = Client::new().ask(request(&url(&server), Duration::from_secs(5)));
    assert_eq!(answer, done(503, "later"));
    assert!(begin.elapsed() < Duration::from_secs(5), "no use to wait");
}

#[test]
fn other_statuses_are_the_answer_and_redirects_are_not_followed() {
    for status in [
        "204 No Content",
        "301 Moved",
        "400 Bad",
        "404 Not Found",
        "409 Conflict",
        "500 Internal",
    ] {
        let text = response(status, "").replace(
            "content",
            "location: http://127.0.0.1:1/elsewhere\r\ncontent",
        );
        let server = serve(vec![says(text)]);
        let number = status[..3].parse().unwrap();
        let answer = Client::new().ask(request(&url(&server), LONG));
        assert_eq!(answer, done(number, ""), "{status}");
    }
}

#[test]
fn a_server_that_nobody_reached_is_expired() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for url in [&*refused, "http://no-such-host.invalid/"] {
        let answer = Client::new().ask(request(url, Duration::from_millis(400)));
        assert_eq!((answer.0, answer.1), (Outcome::Expired, 0), "{answer:?}");
        assert!(!answer.2.is_empty());
    }
}

#[test]
fn a_handshake_that_does_not_end_leaves_the_request_expired() {
    // The system accepts the connection, and nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let answer = Client::new().ask(request(&url, Duration::from_millis(500)));
    assert_eq!((answer.0, answer.1), (Outcome::Expired, 0), "{answer:?}");
}

#[test]
fn a_server_that_is_not_there_yet_is_reached_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut client = Client::new();
    let url = format!("http://{address}/");
    client.outbound.start(request(&url, LONG));
    let listener = TcpListener::bind(address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    read(&stream);
    stream
        .write_all(response("200 OK", "here").as_bytes())
        .unwrap();
    assert_eq!(client.answer().payload, b"here");
}

#[test]
fn a_server_that_breaks_off_leaves_the_outcome_unknown() {
    for (what, text) in [
        ("closes at once", ""),
        ("closes in the head", "HTTP/1.1 200 OK\r\ncontent-le"),
        (
            "closes in the body",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        ),
        ("garbage", "\x01\x02 not http\r\n\r\n"),
        (
            "garbage in a chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ),
    ] {
        // Then it refuses.
        let server = serve(vec![says(text)]);
        let answer = Client::new().ask(request(&url(&server), Duration::from_millis(400)));
        assert_eq!(
            (answer.0, answer.1),
            (Outcome::Unknown, 0),
            "{what}: {answer:?}"
        );
    }
}

#[test]
fn an_attempt_that_broke_off_is_repeated() {
    let server = serve(vec![says(""), says(response("200 OK", "second"))]);
    assert_eq!(
        Client::new().ask(request(&url(&server), LONG)),
        done(200, "second")
    );
}

#[test]
fn a_server_that_does_not_answer_in_time_leaves_the_outcome_unknown() {
    let (release, held) = mpsc::channel::<()>();
    let server = serve(vec![Box::new(move |_| {
        let _ = held.recv();
    })]);
    let begin = Instant::now();
    let answer = Client::new().ask(request(&url(&server), Duration::from_millis(500)));
    assert_eq!(answer.0, Outcome::Unknown, "{answer:?}");
    assert!(answer.2.contains("timeout"), "{answer:?}");
    assert!(begin.elapsed() < LONG);
    drop(release);
}

#[test]
fn chunks_are_put_together() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                   3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    let server = serve(vec![says(chunked)]);
    let answer = Client::new().ask(request(&url(&server), LONG));
    assert_eq!(answer, done(200, "abcde"));
}

#[test]
fn a_body_that_is_too_long_fails_and_keeps_the_status() {
    let most = "x".repeat(PAYLOAD_LEN_MAX);
    let server = serve(vec![says(response("200 OK", &most))]);
    let answer = Client::new().ask(request(&url(&server), LONG));
    assert_eq!(answer, done(200, &most));
    let server = serve(vec![says(response("200 OK", &format!("{most}x")))]);
    let (outcome, status, reason) = Client::new().ask(request(&url(&server), LONG));
    assert_eq!((outcome, status), (Outcome::Failed, 200));
    assert_eq!(
        reason,
        "response with status 200 has a body of more than 32768 bytes"
    );
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let certificate = pem(include_str!("localhost.crt"));
    let key = pem(include_str!("localhost.key"));
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.into()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(key).into(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                break;
            }
        }
        let mut request = Vec::new();
        let _ = tls.reader().read_to_end(&mut request);
        request
    });
    let url = format!("https://localhost:{}/", address.port());
    let (outcome, status, reason) = Client::new().ask(request(&url, LONG));
    assert_eq!((outcome, status), (Outcome::Rejected, 0), "{reason}");
    assert!(reason.contains("certificate"), "{reason}");
    assert_eq!(server.join().unwrap(), b"", "nothing was sent");
}

/// The bytes of a PEM file with one section.
fn pem(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with("-----"));
    let mut bits = 0u32;
    let mut count = 0;
    let mut bytes = Vec::new();
    for c in lines.flat_map(str::bytes).filter(|c| *c != b'=') {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let value = alphabet.iter().position(|a| *a == c).unwrap();
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[test]
fn an_answer_to_a_request_that_was_given_up_does_not_come() {
    let (release, held) = mpsc::channel::<()>();
    let server = serve(vec![
        Box::new(move |stream| {
            let _ = held.recv();
            let _ = stream.write_all(response("200 OK", "first").as_bytes());
        }),
        says(response("200 OK", "second")),
    ]);
    let mut client = Client::new();
    client.outbound.start(request(&url(&server), LONG));
    server.seen.recv().unwrap();
    client.outbound.cancel(1);
    assert!(client.outbound.is_empty());
    let mut again = request(&url(&server), LONG);
    again.ticket = 2;
    client.outbound.start(again);
    drop(release);
    let answered = client.answer();
    assert_eq!(
        (answered.ticket, &answered.payload[..]),
        (2, &b"second"[..])
    );
    assert!(client.outbound.is_empty());
}

#[test]
fn requests_of_one_moment_are_performed_at_the_same_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        for together in [1, HOST_REQUESTS_MAX] {
            // Answers when all are here.
            let accept = |_| listener.accept().unwrap().0;
            let streams: Vec<_> = (0..together).map(accept).collect();
            for mut stream in streams {
                read(&stream);
                let text = response("200 OK", "ok");
                stream.write_all(text.as_bytes()).unwrap();
            }
        }
    });
    let mut client = Client::new();
    assert_eq!(client.ask(request(&url, LONG)), done(200, "ok"));
    for ticket in 0..HOST_REQUESTS_MAX as u64 {
        let mut request = request(&url, LONG);
        request.ticket = ticket;
        client.outbound.start(request);
    }
    for _ in 0..HOST_REQUESTS_MAX {
        assert_eq!(client.answer().answer.status, 200);
    }
    server.join().unwrap();
}

#[test]
fn a_host_that_hangs_does_not_stop_the_others() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let url_of_hanging = format!("http://{}/", hanging.local_addr().unwrap());
    let mut client = Client::new();
    for ticket in 0..200 {
        let mut request = request(&url_of_hanging, LONG);
        request.ticket = ticket;
        client.outbound.start(request);
    }
    let server = serve(vec![says(response("200 OK", "quick"))]);
    let begin = Instant::now();
    let mut quick = request(&url(&server), LONG);
    quick.ticket = 1000;
    client.outbound.start(quick);
    assert_eq!(client.answer().ticket, 1000);
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(client.outbound.len(), 200);
}
