//! Timers that handlers set and cancel, and the requests of timers.

use crate::common::*;
use e3_engine::InstanceSpec;
use e3_invocation::{HandlerError, Invocation, Outcome};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Timestamp, Via};

/// Calls `timer_set`, `timer_cron` or `timer_cancel`, as the first byte of the payload says, with the
/// name in the rest of it, and replies with the result. Without a payload, replies with the name of the timer.
const MODULE: &str = r#"(module
  (import "e3" "timer_set" (func $set (param i32 i32 i32 i32 i64 i32 i32) (result i32)))
  (import "e3" "timer_cron" (func $cron (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "timer_cancel" (func $cancel (param i32 i32 i32 i32) (result i32)))
  (import "e3" "timer_name" (func $name (param i32 i32) (result i32)))
  (import "e3" "request_edge" (func $edge (result i32)))
  (import "e3" "now" (func $now (result i64)))
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "*/5 * * * *nonsense")
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 1024))
  (func (export "e3_handle") (param $len i32) (result i32)
    (local $n i32) (local $code i32)
    (if (i32.eqz (local.get $len))
      (then
        (local.set $code (call $name (i32.const 512) (i32.const 64)))
        (if (i32.lt_s (local.get $code) (i32.const 0)) (then (local.set $code (i32.const 0))))
        (drop (call $reply (call $edge) (i32.const 512) (local.get $code)))
        (return (i32.const 0))))
    (local.set $n (i32.sub (local.get $len) (i32.const 1)))
    (local.set $code (i32.const 99))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 115)) (then
      (local.set $code (call $set (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 0)
        (i64.add (call $now) (i64.const 5)) (i32.const 1024) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 121)) (then
      (local.set $code (call $set (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 0)
        (i64.const 0x7fffffffffffffff) (i32.const 1024) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 107)) (then
      (local.set $code (call $set (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 1)
        (i64.const 0) (i32.const 1024) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 99)) (then
      (local.set $code (call $cron (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 0)
        (i32.const 0) (i32.const 11) (i32.const 1024) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 110)) (then
      (local.set $code (call $cron (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 0)
        (i32.const 11) (i32.const 8) (i32.const 1024) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 100)) (then
      (local.set $code (call $cancel (i32.const 1025) (local.get $n) (i32.const 0) (i32.const 0)))))
    (drop (call $reply (local.get $code) (i32.const 0) (i32.const 0)))
    (i32.const 0)))"#;

fn pair(stateful: bool) -> Pair {
    let mut p = Pair::new();
    let spec = InstanceSpec { stateful, ..spec() };
    p.start_with(A, &wat::parse_str(MODULE).unwrap(), spec);
    p
}

/// What the call returns, and the timers that the handler leaves.
fn call(p: &mut Pair, payload: &[u8]) -> (i32, Vec<TimerChange>) {
    match p.outcome(A, payload) {
        Outcome::Completed(effects) => (effects.reply.unwrap().status as i32, effects.timers),
        Outcome::Failed(failed) => panic!("{failed}"),
    }
}

fn change(set: Option<When>, payload: &[u8]) -> TimerChange {
    TimerChange {
        name: "name".into(),
        key: b"key".to_vec(),
        set: set.map(|when| TimerSet {
            when,
            payload: payload.to_vec(),
        }),
    }
}

#[test]
fn timers_are_part_of_the_effects() {
    let mut p = pair(true);
    let (code, timers) = call(&mut p, b"sname");
    let Some(When::At(at)) = timers[0].set.as_ref().map(|set| set.when.clone()) else {
        panic!("{timers:?}");
    };
    assert!(at > Timestamp(5));
    assert_eq!(
        (code, &timers),
        (0, &vec![change(Some(When::At(at)), b"s")])
    );
    let cron = When::Cron("*/5 * * * *".parse().unwrap());
    assert_eq!(call(&mut p, b"cname"), (0, vec![change(Some(cron), b"c")]));
    assert_eq!(call(&mut p, b"dname"), (0, vec![change(None, b"")]));
}

#[test]
fn what_cannot_be_set_has_a_code_each() {
    let mut p = pair(true);
    let long = [b"s".as_slice(), &[b'x'; 64]].concat();
    for (payload, code) in [
        (&b"s"[..], -6),
        (&long, -6),
        (b"s\xff", -6),
        (b"s\x01name", -6),
        (b"yname", -7),
        (b"nname", -8),
        (b"kname", -9),
    ] {
        assert_eq!(call(&mut p, payload), (code, Vec::new()), "{payload:?}");
    }
    assert_eq!(call(&mut p, &long[..64]).0, 0, "63 bytes");
}

#[test]
fn a_service_without_state_has_no_timers() {
    let mut p = pair(false);
    let Outcome::Failed(failed) = p.outcome(A, b"sname") else {
        panic!("should fail");
    };
    let why = failed.error.to_string();
    assert!(
        why.contains("timer_set") && why.contains("stateful"),
        "{why}"
    );
}

#[test]
fn the_handler_sees_that_a_timer_asks() {
    let mut p = pair(true);
    for (via, timer, expected) in [
        (Via::Timer, Some("alarm"), (-2, &b"alarm"[..])),
        (Via::Ingress, None, (-1, b"")),
    ] {
        let mut invocation = Invocation {
            timer: timer.map(str::to_string),
            ..request(1, b"")
        };
        invocation.id.via = via;
        p.engine.submit(A, invocation).unwrap();
        p.until_done(1);
        let (_, done) = p.done.remove(0);
        let Outcome::Completed(effects) = done.outcome else {
            panic!("{done:?}");
        };
        let reply = effects.reply.unwrap();
        assert_eq!((reply.status as i32, &reply.payload[..]), expected);
    }
}

#[test]
fn a_full_service_may_cancel_only() {
    let mut p = pair(true);
    for (payload, fails) in [(&b"sname"[..], true), (b"dname", false)] {
        let invocation = Invocation {
            state_bytes_max: 0,
            ..request(1, payload)
        };
        p.engine.submit(A, invocation).unwrap();
        p.until_done(1);
        let (_, done) = p.done.remove(0);
        let failed = matches!(&done.outcome, Outcome::Failed(f) if matches!(f.error, HandlerError::Full { .. }));
        assert_eq!(failed, fails, "{done:?}");
    }
}
