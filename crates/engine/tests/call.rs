//! Calls that handlers make and wait for, and handlers that are called.

use crate::common::*;
use e3_engine::{InstanceId, InstanceSpec};
use e3_invocation::{
    Call, CallAnswer, CallError, Completion, Effects, HandlerError, Invocation, Outcome, Reply,
};
use e3_model::Nanos;
use std::time::{Duration, Instant};

/// What the handler does depends on the first byte of its payload: `c` calls "prices" with the rest and
/// replies with the answer, `w` writes before it does that, `u` calls a service that the manifest does
/// not name, `k` calls with an empty key, `n` calls 65 times, `e` replies with the edge of the request,
/// `p` writes and replies, `s` sends and replies, `q` returns without a reply.
const MODULE: &str = r#"
  (import "e3" "call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "call_status" (func $status (result i32)))
  (import "e3" "call_answer" (func $answer (param i32 i32) (result i32)))
  (import "e3" "request_edge" (func $edge (result i32)))
  (import "e3" "put" (func $put (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (data (i32.const 0) "pricesk")
  (memory (export "memory") 1)
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 1024))
  (func $is (param $letter i32) (result i32)
    (i32.eq (i32.load8_u (i32.const 1024)) (local.get $letter)))
  (func $ask (param $len i32) (result i32)
    (call $call (i32.const 0) (i32.const 6) (i32.const 6) (i32.const 1)
      (i32.const 1025) (i32.sub (local.get $len) (i32.const 1))))
  (func $tell (param $code i32)
    (drop (call $reply (local.get $code) (i32.const 0) (i32.const 0))))
  (func (export "e3_handle") (param $len i32) (result i32)
    (local $code i32) (local $n i32)
    (if (i32.or (call $is (i32.const 119)) (call $is (i32.const 112)))
      (then (drop (call $put (i32.const 0) (i32.const 6) (i32.const 1) (i32.const 0) (i32.const 6)))))
    (if (i32.or (call $is (i32.const 99)) (call $is (i32.const 119))) (then
      (local.set $code (call $ask (local.get $len)))
      (if (i32.lt_s (local.get $code) (i32.const 0)) (then
        (call $tell (local.get $code)) (return (i32.const 0))))
      (drop (call $answer (i32.const 4096) (i32.const 1024)))
      (drop (call $reply (call $status) (i32.const 4096) (local.get $code)))
      (return (i32.const 0))))
    (if (call $is (i32.const 117)) (then
      (call $tell (call $call (i32.const 1) (i32.const 5) (i32.const 6) (i32.const 1)
        (i32.const 0) (i32.const 0)))))
    (if (call $is (i32.const 107)) (then
      (call $tell (call $call (i32.const 0) (i32.const 6) (i32.const 6) (i32.const 0)
        (i32.const 0) (i32.const 0)))))
    (if (call $is (i32.const 110)) (then
      (loop $again
        (local.set $code (call $ask (local.get $len)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (i32.const 65))))
      (call $tell (local.get $code))))
    (if (call $is (i32.const 101)) (then (call $tell (call $edge))))
    (if (call $is (i32.const 112)) (then (call $tell (i32.const 0))))
    (if (call $is (i32.const 115)) (then
      (drop (call $send (i32.const 0) (i32.const 6) (i32.const 1) (i32.const 0) (i32.const 6)))
      (call $tell (i32.const 0))))
    (i32.const 0))"#;

fn caller() -> InstanceSpec {
    InstanceSpec {
        calls: vec!["prices".into()],
        ..spec()
    }
}

fn pair() -> Pair {
    let mut p = Pair::new();
    for id in [A, B] {
        p.start_with(id, &module(MODULE), caller());
    }
    p
}

fn replied(status: u32, payload: &[u8]) -> CallAnswer {
    let payload = payload.to_vec();
    Ok(Reply { status, payload })
}

/// Runs until a handler makes a call.
fn next_call(p: &mut Pair) -> (InstanceId, Call) {
    let start = Instant::now();
    loop {
        p.engine.run(Duration::from_millis(1));
        let mut calls = p.engine.calls();
        if let Some(call) = calls.pop() {
            assert!(calls.is_empty());
            return call;
        }
        assert!(start.elapsed() < PATIENCE, "no handler makes a call");
    }
}

fn answer(p: &mut Pair, (id, call): &(InstanceId, Call), answer: CallAnswer) {
    p.engine.answer(*id, (call.token, call.index), answer);
}

/// Status and payload that a request is answered with, if its calls bring `answers`.
fn reply(p: &mut Pair, payload: &[u8], answers: &[CallAnswer]) -> (i32, Vec<u8>) {
    p.done.clear();
    p.submit(A, 9, payload);
    for next in answers {
        let call = next_call(p);
        answer(p, &call, next.clone());
    }
    p.until_done(1);
    assert_eq!(p.engine.calls(), [], "no further call");
    told(&p.done[0].1)
}

fn told(done: &Completion) -> (i32, Vec<u8>) {
    match &done.outcome {
        Outcome::Completed(Effects {
            reply: Some(reply), ..
        }) => (reply.status as i32, reply.payload.clone()),
        other => panic!("should reply: {other:?}"),
    }
}

/// How the handler ends that is called.
fn called(payload: &[u8]) -> Outcome {
    let mut p = pair();
    let invocation = Invocation {
        is_call: true,
        ..request(9, payload)
    };
    p.engine.submit(A, invocation).unwrap();
    p.until_done(1);
    p.done.remove(0).1.outcome
}

/// What a request, or a call, leaves to its entry.
fn effects(p: &mut Pair, token: u64, payload: &[u8], is_call: bool) -> Effects {
    let invocation = Invocation {
        is_call,
        ..request(token, payload)
    };
    p.engine.submit(A, invocation).unwrap();
    p.until_done(1);
    match p.done.remove(0).1.outcome {
        Outcome::Completed(effects) => effects,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_leaves_keys_that_have_expired_to_the_next_request() {
    let mut p = Pair::new();
    let mut spec = caller();
    spec.collections[0].ttl = Some(Nanos(100));
    let state = p.start_with(A, &module(MODULE), spec);
    assert!(!effects(&mut p, 1, b"p", false).writes.is_empty());
    assert_eq!(state.borrow().expiring(), 1);
    // No entry would say that it is gone.
    assert!(effects(&mut p, 500, b"e", true).writes.is_empty());
    assert_eq!(state.borrow().expiring(), 1);
    assert!(!effects(&mut p, 501, b"e", false).writes.is_empty());
    assert_eq!(state.borrow().expiring(), 0);
}

#[test]
fn a_handler_waits_for_the_answer_and_others_run_meanwhile() {
    let mut p = pair();
    p.submit(A, 1, b"capple");
    p.submit(A, 2, b"e");
    let call = next_call(&mut p);
    let expected = Call {
        token: 1,
        index: 0,
        service: "prices".into(),
        key: b"k".to_vec(),
        payload: b"apple".to_vec(),
    };
    assert_eq!(call, (A, expected));
    assert!(p.engine.is_waiting(A) && !p.engine.has_work());
    p.submit(B, 3, b"e");
    p.until_done(1);
    assert_eq!((p.done[0].0, p.done[0].1.token), (B, 3));
    // What waits at the same instance waits for its handler.
    p.submit(A, 4, b"e");
    assert!(!p.engine.has_work());
    answer(&mut p, &call, replied(7, b"3 euros"));
    p.until_done(4);
    let tokens: Vec<u64> = p.done.iter().map(|(_, done)| done.token).collect();
    assert_eq!(tokens, [3, 1, 2, 4]);
    assert_eq!(told(&p.done[1].1), (7, b"3 euros".to_vec()));
}

#[test]
fn a_call_that_fails_is_an_error_that_the_handler_sees() {
    let mut p = pair();
    for (error, code) in [
        (CallError::Unavailable, -10),
        (CallError::TimedOut, -11),
        (CallError::Failed("no stock".into()), -12),
    ] {
        assert_eq!(reply(&mut p, b"c", &[Err(error)]), (code, Vec::new()));
    }
    assert_eq!(p.engine.stats(A).unwrap().failures, 0);
}

#[test]
fn calls_beyond_the_manifest_and_the_bounds_are_refused_at_once() {
    let mut p = pair();
    assert_eq!(reply(&mut p, b"u", &[]), (-1, Vec::new()));
    assert_eq!(reply(&mut p, b"k", &[]), (-2, Vec::new()));
    let answers = vec![replied(0, b""); 64];
    assert_eq!(reply(&mut p, b"n", &answers), (-2, Vec::new()));
    // The bound is that of a request.
    assert_eq!(reply(&mut p, b"c", &[replied(0, b"a")]), (0, b"a".to_vec()));
}

#[test]
fn an_answer_to_another_call_is_dropped() {
    let mut p = pair();
    p.submit(A, 1, b"c");
    let call = next_call(&mut p);
    for awaited in [(1, 1), (2, 0)] {
        p.engine.answer(A, awaited, replied(0, b"another"));
        assert!(!p.engine.has_work());
    }
    p.engine.answer(B, (1, 0), replied(0, b"another"));
    answer(&mut p, &call, replied(0, b"this"));
    answer(&mut p, &call, replied(0, b"late"));
    p.until_done(1);
    assert_eq!(told(&p.done[0].1), (0, b"this".to_vec()));
}

#[test]
fn waiting_is_no_processor_time_and_does_not_exceed_the_deadline() {
    let mut p = Pair::new();
    let deadline = Duration::from_millis(20);
    let spec = InstanceSpec {
        deadline,
        ..caller()
    };
    p.start_with(A, &module(MODULE), spec);
    p.submit(A, 1, b"c");
    let call = next_call(&mut p);
    let begin = Instant::now();
    while begin.elapsed() < 3 * deadline {
        p.engine.run(Duration::from_millis(1));
    }
    answer(&mut p, &call, replied(0, b""));
    p.until_done(1);
    let done = &p.done[0].1;
    assert_eq!(told(done), (0, Vec::new()));
    assert!(Duration::from(done.busy) < deadline, "{:?}", done.busy);
}

#[test]
fn writes_before_a_call_take_effect_when_the_handler_returns_and_not_if_it_is_stopped() {
    let mut p = Pair::new();
    let state = p.start_with(A, &module(MODULE), caller());
    p.submit(A, 1, b"w");
    let call = next_call(&mut p);
    assert_eq!(state.borrow().get(0, b"k"), None, "buffered");
    p.engine.stop(A);
    answer(&mut p, &call, replied(0, b""));
    assert!(!p.engine.has_work());
    assert_eq!((state.borrow().get(0, b"k"), p.done.len()), (None, 0));

    let state = p.start_with(A, &module(MODULE), caller());
    assert_eq!(reply(&mut p, b"w", &[replied(0, b"")]), (0, Vec::new()));
    assert!(state.borrow().get(0, b"k").is_some());
}

#[test]
fn a_called_handler_knows_it_and_may_reply() {
    let Outcome::Completed(effects) = called(b"e") else {
        panic!("it replies");
    };
    assert_eq!(effects.reply.map(|r| r.status as i32), Some(-3));
}

#[test]
fn a_called_handler_that_does_more_than_reply_fails() {
    for (payload, error) in [
        (b"p", HandlerError::CallEffect("a write")),
        (b"s", HandlerError::CallEffect("a message")),
        (b"q", HandlerError::CallUnanswered),
    ] {
        match called(payload) {
            Outcome::Failed(failed) => assert_eq!(failed.error, error),
            other => panic!("should fail: {other:?}"),
        }
    }
}

#[test]
fn a_new_version_takes_over_when_the_answer_is_here() {
    let mut p = pair();
    p.submit(A, 1, b"c");
    let call = next_call(&mut p);
    let code = p.engine.load(&module(MODULE)).unwrap();
    let successor = p.engine.successor(A, &code, caller()).unwrap();
    let successor = p.engine.replace(successor).unwrap();
    let successor = successor.expect("a handler waits");
    answer(&mut p, &call, replied(0, b"a"));
    p.until_done(1);
    assert_eq!(told(&p.done[0].1), (0, b"a".to_vec()));
    assert!(p.engine.replace(successor).unwrap().is_none());
    assert_eq!(reply(&mut p, b"c", &[replied(0, b"b")]), (0, b"b".to_vec()));
}
