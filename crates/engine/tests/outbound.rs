//! Outbound requests that handlers make, and the answers that requests bring.

use crate::common::*;
use e3_engine::InstanceSpec;
use e3_invocation::{Invocation, Outcome};
use e3_model::http_access::HttpAccess;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerChange, When};
use e3_model::{Nanos, Via};

/// Makes one outbound request. The payload is the time-out, then kind, name, to and more, each after its
/// length: kind is `s`, `a`, or a method; more is the key to route by, or packed header fields. The
/// reply's status is the code. Without a payload, replies with `answer` and the name.
const MODULE: &str = r#"(module
  (import "e3" "outbound_service"
    (func $service (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)))
  (import "e3" "outbound_application"
    (func $application (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)))
  (import "e3" "outbound_http"
    (func $http (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)))
  (import "e3" "answer" (func $answer (result i64)))
  (import "e3" "timer_name" (func $name (param i32 i32) (result i32)))
  (import "e3" "request_edge" (func $edge (result i32)))
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "body")
  (global $at (mut i32) (i32.const 0))
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 16384))
  ;; address and length of the next part
  (func $part (result i32 i32)
    (local $from i32) (local $n i32)
    (local.set $n (i32.load16_u (global.get $at)))
    (local.set $from (i32.add (global.get $at) (i32.const 2)))
    (global.set $at (i32.add (local.get $from) (local.get $n)))
    (local.get $from) (local.get $n))
  (func (export "e3_handle") (param $len i32) (result i32)
    (local $code i32) (local $timeout i64)
    (local $kind i32) (local $kind_len i32) (local $n i32) (local $n_len i32)
    (local $to i32) (local $to_len i32) (local $more i32) (local $more_len i32)
    (if (i32.eqz (local.get $len))
      (then
        (i64.store (i32.const 512) (call $answer))
        (local.set $code (call $name (i32.const 520) (i32.const 64)))
        (if (i32.lt_s (local.get $code) (i32.const 0)) (then (local.set $code (i32.const 0))))
        (drop (call $reply (call $edge) (i32.const 512)
          (i32.add (i32.const 8) (local.get $code))))
        (return (i32.const 0))))
    (local.set $timeout (i64.load (i32.const 1024)))
    (global.set $at (i32.const 1032))
    (call $part) (local.set $kind_len) (local.set $kind)
    (call $part) (local.set $n_len) (local.set $n)
    (call $part) (local.set $to_len) (local.set $to)
    (call $part) (local.set $more_len) (local.set $more)
    (if (i32.eq (i32.load8_u (local.get $kind)) (i32.const 115))
      (then (local.set $code (call $service (local.get $n) (local.get $n_len) (i32.const 0)
        (i32.const 0) (local.get $to) (local.get $to_len) (local.get $more) (local.get $more_len)
        (i32.const 0) (i32.const 4) (local.get $timeout))))
      (else (if (i32.eq (i32.load8_u (local.get $kind)) (i32.const 97))
        (then (local.set $code (call $application (local.get $n) (local.get $n_len) (i32.const 0)
          (i32.const 0) (local.get $to) (local.get $to_len) (local.get $more)
          (local.get $more_len) (i32.const 0) (i32.const 4) (local.get $timeout))))
        (else (local.set $code (call $http (local.get $n) (local.get $n_len) (i32.const 0)
          (i32.const 0) (local.get $kind) (local.get $kind_len) (local.get $to)
          (local.get $to_len) (local.get $more) (local.get $more_len) (i32.const 0)
          (i32.const 4) (local.get $timeout)))))))
    (drop (call $reply (local.get $code) (i32.const 0) (i32.const 0)))
    (i32.const 0)))"#;

const SECOND: i64 = 1_000_000_000;

fn pair(stateful: bool) -> Pair {
    let mut p = Pair::new();
    let spec = InstanceSpec {
        stateful,
        asks: vec!["stock".into()],
        http: HttpAccess {
            hosts: vec!["127.0.0.1:8080".into()],
        },
        ..spec()
    };
    p.start_with(A, &wat::parse_str(MODULE).unwrap(), spec);
    p
}

fn payload(kind: &str, name: &str, to: &str, more: &[u8], timeout: i64) -> Vec<u8> {
    let mut payload = timeout.to_le_bytes().to_vec();
    for part in [kind.as_bytes(), name.as_bytes(), to.as_bytes(), more] {
        payload.extend((part.len() as u16).to_le_bytes());
        payload.extend(part);
    }
    payload
}

fn packed(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, value) in headers {
        packed.extend((name.len() as u32).to_le_bytes());
        packed.extend((value.len() as u32).to_le_bytes());
        packed.extend([name.as_bytes(), value.as_bytes()].concat());
    }
    packed
}

/// What the call returns, and the timers that the handler leaves.
fn call(p: &mut Pair, payload: &[u8]) -> (i32, Vec<TimerChange>) {
    match p.outcome(A, payload) {
        Outcome::Completed(effects) => (effects.reply.unwrap().status as i32, effects.timers),
        Outcome::Failed(failed) => panic!("{failed}"),
    }
}

fn asked(p: &mut Pair, payload: &[u8]) -> Outbound {
    let (code, mut timers) = call(p, payload);
    assert_eq!((code, timers.len()), (0, 1));
    let timer = timers.remove(0);
    assert_eq!((timer.name.as_str(), &timer.key[..]), ("name", &b"key"[..]));
    let set = timer.set.unwrap();
    assert_eq!(set.payload, b"body");
    match set.when {
        When::Answered(outbound) => *outbound,
        other => panic!("{other:?}"),
    }
}

#[test]
fn outbound_requests_are_part_of_the_effects() {
    let mut p = pair(true);
    let service = asked(&mut p, &payload("s", "name", "stock", b"sku", 5 * SECOND));
    assert_eq!(
        service.to,
        Destination::Service {
            service: "stock".into(),
            key: b"sku".to_vec()
        }
    );
    let application = asked(&mut p, &payload("a", "name", "other", b"k", SECOND));
    assert_eq!(
        application.to,
        Destination::Application {
            application: "other".into(),
            key: b"k".to_vec()
        }
    );
    assert!(service.deadline > application.deadline + Nanos::from_secs(3));
    let url = "http://127.0.0.1:8080/charge?x=1";
    let headers = [("Authorization", "Bearer x"), ("Accept", "*/*")];
    let http = asked(
        &mut p,
        &payload("POST", "name", url, &packed(&headers), SECOND),
    );
    let expected = HttpRequest {
        method: HttpMethod::Post,
        url: url.into(),
        headers: headers.map(|(n, v)| (n.into(), v.into())).to_vec(),
    };
    assert_eq!(http.to, Destination::Http(expected));
}

#[test]
fn what_cannot_be_asked_has_a_code_and_leaves_nothing() {
    let mut p = pair(true);
    let url = "http://127.0.0.1:8080/";
    let day = 24 * 3600 * SECOND;
    let long = "n".repeat(64);
    for (kind, name, to, more, timeout, code) in [
        ("s", "", "stock", &b"k"[..], SECOND, -6),
        ("s", &*long, "stock", b"k", SECOND, -6),
        ("s", "name", "stock", b"", SECOND, -6),
        ("s", "name", "stock", b"k", 0, -7),
        ("s", "name", "stock", b"k", -1, -7),
        ("s", "name", "stock", b"k", day + 1, -7),
        ("s", "name", "other", b"k", SECOND, -21),
        ("a", "name", "", b"k", SECOND, -6),
        ("a", "name", "No/name", b"k", SECOND, -6),
        ("TRACE", "name", url, b"", SECOND, -20),
        ("GET", "name", "ftp://127.0.0.1:8080/", b"", SECOND, -20),
        ("GET", "name", "http://u@127.0.0.1:8080/", b"", SECOND, -20),
        ("GET", "name", url, b"\x01\0\0", SECOND, -20),
        ("GET", "name", url, b"\xff\xff\xff\xff\0\0\0\0", SECOND, -20),
        ("GET", "name", url, &packed(&[("Host", "b")]), SECOND, -20),
        ("GET", "name", "http://127.0.0.1/", b"", SECOND, -21),
        ("GET", "name", "http://169.254.169.254/", b"", SECOND, -21),
    ] {
        let payload = payload(kind, name, to, more, timeout);
        assert_eq!(call(&mut p, &payload), (code, vec![]), "{kind} {name} {to}");
    }
    let good = payload("s", "name", "stock", b"k", day);
    assert_eq!(call(&mut p, &good).0, 0, "a day");
}

#[test]
fn a_service_without_state_makes_no_outbound_requests() {
    let mut p = pair(false);
    let asks = payload("s", "name", "stock", b"k", SECOND);
    let Outcome::Failed(failed) = p.outcome(A, &asks) else {
        panic!("should fail");
    };
    let why = failed.error.to_string();
    assert!(
        why.contains("outbound_service") && why.contains("stateful"),
        "{why}"
    );
}

#[test]
fn the_handler_sees_the_answer() {
    let mut p = pair(true);
    let answered = Answer {
        outcome: e3_model::Outcome::Unknown,
        status: u32::MAX,
    };
    for (answer, edge, expected) in [
        (Some(answered), -4, 6 << 32 | i64::from(u32::MAX)),
        (None, -2, -1),
    ] {
        let mut invocation = Invocation {
            timer: Some("charge".into()),
            answer,
            ..request(1, b"")
        };
        invocation.id.via = Via::Timer;
        p.engine.submit(A, invocation).unwrap();
        p.until_done(1);
        let (_, done) = p.done.remove(0);
        let Outcome::Completed(effects) = done.outcome else {
            panic!("{done:?}");
        };
        let reply = effects.reply.unwrap();
        let told = [&expected.to_le_bytes()[..], b"charge"].concat();
        assert_eq!((reply.status as i32, reply.payload), (edge, told));
    }
}
