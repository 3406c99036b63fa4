//! What handlers publish, and the topic that requests bring.

use crate::common::*;
use e3_engine::InstanceSpec;
use e3_invocation::{Invocation, Outcome};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::{Publication, Topic};

/// Publishes `body` on the topic in the payload, which begins with the length of the key, made of
/// zeros. The reply's status is the code. Without a payload, replies with the topic, and the edge as
/// status.
const MODULE: &str = r#"(module
  (import "e3" "publish" (func $publish (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "topic" (func $topic (param i32 i32) (result i32)))
  (import "e3" "request_edge" (func $edge (result i32)))
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "body")
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 16384))
  (func (export "e3_handle") (param $len i32) (result i32)
    (local $n i32)
    (if (i32.eqz (local.get $len))
      (then
        (local.set $n (call $topic (i32.const 512) (i32.const 256)))
        (if (i32.lt_s (local.get $n) (i32.const 0)) (then (local.set $n (i32.const 0))))
        (drop (call $reply (call $edge) (i32.const 512) (local.get $n)))
        (return (i32.const 0))))
    (drop (call $reply
      (call $publish (i32.const 1026) (i32.sub (local.get $len) (i32.const 2))
        (i32.const 32768) (i32.load16_u (i32.const 1024)) (i32.const 0) (i32.const 4))
      (i32.const 0) (i32.const 0)))
    (i32.const 0)))"#;

fn pair(stateful: bool) -> Pair {
    let mut p = Pair::new();
    let spec = InstanceSpec {
        stateful,
        publishes: vec!["orders".into()],
        ..spec()
    };
    p.start_with(A, &wat::parse_str(MODULE).unwrap(), spec);
    p
}

fn payload(topic: &str, key_len: u16) -> Vec<u8> {
    [&key_len.to_le_bytes(), topic.as_bytes()].concat()
}

/// What the call returns, and what the handler leaves.
fn call(p: &mut Pair, topic: &str, key_len: u16) -> (i32, Vec<TimerChange>) {
    match p.outcome(A, &payload(topic, key_len)) {
        Outcome::Completed(effects) => (effects.reply.unwrap().status as i32, effects.timers),
        Outcome::Failed(failed) => panic!("{failed}"),
    }
}

#[test]
fn a_publication_is_part_of_the_effects_under_the_key_of_the_request() {
    let publication = Publication {
        topic: "orders".into(),
        key: vec![0; 3],
    };
    let change = TimerChange {
        name: String::new(),
        key: b"key".to_vec(),
        set: Some(TimerSet {
            when: When::Published(Box::new(publication)),
            payload: b"body".to_vec(),
        }),
    };
    assert_eq!(call(&mut pair(true), "orders", 3), (0, vec![change]));
}

#[test]
fn what_may_not_be_published_has_a_code_and_leaves_nothing() {
    let mut p = pair(true);
    for (topic, key_len, code) in [("sales", 3, -21), ("orders", 0, -6), ("orders", 1025, -6)] {
        assert_eq!(call(&mut p, topic, key_len), (code, vec![]), "{topic}");
    }
}

#[test]
fn a_service_without_state_does_not_publish() {
    let Outcome::Failed(failed) = pair(false).outcome(A, &payload("orders", 3)) else {
        panic!("should fail");
    };
    let why = failed.error.to_string();
    assert!(why.contains("publish") && why.contains("stateful"), "{why}");
}

#[test]
fn the_handler_sees_the_topic() {
    let mut p = pair(true);
    let topic = Topic {
        application: "shop".into(),
        name: "orders".into(),
    };
    for (topic, edge, told) in [
        (Some(Box::new(topic)), -5, &b"shop/orders"[..]),
        (None, -1, b""),
    ] {
        let invocation = Invocation {
            topic,
            ..request(1, b"")
        };
        p.engine.submit(A, invocation).unwrap();
        p.until_done(1);
        let (_, done) = p.done.remove(0);
        let Outcome::Completed(effects) = done.outcome else {
            panic!("{done:?}");
        };
        let reply = effects.reply.unwrap();
        assert_eq!((reply.status as i32, &*reply.payload), (edge, told));
    }
}
