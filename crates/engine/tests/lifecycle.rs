//! Starting, stopping and replacing instances.

use crate::common::*;
use e3_collections::State;
use e3_engine::{Engine, EngineConfig, InstanceId, InstanceSpec, StartError, Startup, Ticker};
use e3_invocation::{Completion, Effects, HandlerError, Outcome};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A module with this `e3_init`, which replies with its first byte of memory.
fn with_init(init: &str) -> Vec<u8> {
    module(&format!(
        r#"{IMPORTS} {EXPORTS} (func (export "e3_init") (result i32) {init})
        (func (export "e3_handle") (param i32) (result i32)
          (call $reply (i32.const 0) (i32.const 0) (i32.const 1)))"#
    ))
}

fn reply_of((_, done): &(InstanceId, Completion)) -> &[u8] {
    match &done.outcome {
        Outcome::Completed(Effects {
            reply: Some(reply), ..
        }) => &reply.payload,
        other => panic!("should reply: {other:?}"),
    }
}

/// Counts for thousands of ticks: on a busy machine some come late.
const LONG: &str = "(local $n i64)
    (loop $again
      (local.set $n (i64.add (local.get $n) (i64.const 1)))
      (br_if $again (i64.lt_u (local.get $n) (i64.const 400000000))))";

/// Takes long, writes 7 where the reply is taken from, and returns this.
fn long_init(end: &str) -> String {
    format!("{LONG} (i32.store8 (i32.const 0) (i32.const 7)) (i32.const {end})")
}

fn init_failed() -> Result<(), StartError> {
    Err(StartError::Failed {
        service: "service".into(),
        error: HandlerError::Init {
            code: 3,
            said: None,
        },
    })
}

/// Has this module take an instance's place.
fn replace(p: &mut Pair, id: InstanceId, wasm: &[u8]) -> Result<(), StartError> {
    let code = p.engine.load(wasm).unwrap();
    let mut left = Some(p.engine.successor(id, &code, spec())?);
    while let Some(successor) = left {
        left = p.engine.replace(successor)?;
    }
    Ok(())
}

#[test]
fn init_runs_first_and_its_failure_is_the_starts() {
    let mut p = Pair::new();
    // A tick within `e3_init` would have it go on after the start.
    p.engine = Engine::new(EngineConfig::new(
        Ticker::new(Duration::from_secs(60)).unwrap(),
    ))
    .unwrap();
    p.start_with(
        A,
        &with_init("(i32.store8 (i32.const 0) (i32.const 42)) (i32.const 0)"),
        spec(),
    );
    assert_eq!(p.reply(A, b""), [42]);
    let mut start = |wasm: &[u8]| {
        let code = p.engine.load(wasm).unwrap();
        let state = Rc::new(RefCell::new(State::new(&collections())));
        p.engine.start(B, &code, spec(), state)
    };
    let failed = |error| {
        Err(StartError::Failed {
            service: "service".into(),
            error,
        })
    };
    assert_eq!(
        start(&with_init("(i32.const 3)")),
        failed(HandlerError::Init {
            code: 3,
            said: None
        })
    );
    let told = "(i32.store (i32.const 0) (i32.const 0x6c6c6977)) ;; will
        (call $log (i32.const 4) (i32.const 0) (i32.const 4)) (i32.const 3)";
    let said = Some("will".to_string());
    assert_eq!(
        start(&with_init(told)),
        failed(HandlerError::Init { code: 3, said })
    );
    let write = "(call $reply (i32.const 0) (i32.const 0) (i32.const 0))";
    assert_eq!(
        start(&with_init(write)),
        failed(HandlerError::OutsideRequest("reply"))
    );
}

#[test]
fn an_endless_init_does_not_hold_the_core() {
    let mut p = Pair::new();
    p.start(B, ECHO);
    let endless = module(&format!(
        r#"{EXPORTS} (func (export "e3_init") (result i32) {LOOP})
        (func (export "e3_handle") (param i32) (result i32) (i32.const 0))"#
    ));
    let short = InstanceSpec {
        deadline: Duration::from_millis(500),
        ..spec()
    };
    p.start_with(A, &endless, short);
    p.submit(A, 0, b"");
    p.submit(B, 1, b"x");
    p.until_done(2);
    assert_eq!(p.done[0].0, B);
    let Outcome::Failed(failed) = &p.done[1].1.outcome else {
        panic!("should fail");
    };
    assert!(matches!(
        failed.error,
        HandlerError::DeadlineExceeded { .. }
    ));
}

#[test]
fn ids_and_stopping() {
    let mut p = Pair::new();
    p.start(A, LOOP);
    let code = p.engine.load(&service(ECHO)).unwrap();
    let state = Rc::new(RefCell::new(State::new(&collections())));
    let again = p.engine.start(A, &code, spec(), Rc::clone(&state));
    assert_eq!(again, Err(StartError::Id(A)));
    p.submit(A, 0, b"");
    p.submit(A, 1, b"");
    p.engine.run(Duration::ZERO);
    p.engine.stop(A);
    assert_eq!(p.engine.instances(), 0);
    assert!(!p.engine.run(Duration::ZERO));
    let refused = p.engine.submit(A, request(0, b"")).unwrap_err();
    assert_eq!(refused.error, HandlerError::NotRunning);
    assert_eq!(refused.invocation, request(0, b""));
    // instances_max is 8: memory, stack and table of a stopped one are free again
    for _ in 0..20 {
        p.engine.start(A, &code, spec(), Rc::clone(&state)).unwrap();
        assert_eq!(p.reply(A, b"x"), b"x");
        p.engine.stop(A);
    }
}

#[test]
fn more_instances_than_there_is_room_for_are_refused() {
    let mut p = Pair::new();
    let code = p.engine.load(&service(ECHO)).unwrap();
    let state = Rc::new(RefCell::new(State::new(&collections())));
    for id in 0..8 {
        p.engine
            .start(InstanceId(id), &code, spec(), Rc::clone(&state))
            .unwrap();
    }
    let more = p.engine.start(InstanceId(8), &code, spec(), state);
    let (service, maximum) = ("service".into(), 8);
    assert_eq!(more, Err(StartError::Full { service, maximum }));
    assert_eq!(p.reply(A, b"x"), b"x");
}

#[test]
fn another_version_takes_over_between_two_requests() {
    let mut p = Pair::new();
    // replies with the number of times that it ran in this memory
    let counts = |step: u32| {
        service(&format!(
            r#"(i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const {step})))
            (call $reply (i32.const 0) (i32.const 0) (i32.const 1))"#
        ))
    };
    let state = p.start_with(A, &counts(1), spec());
    assert_eq!([p.reply(A, b""), p.reply(A, b"")], [[1], [2]]);
    for token in 0..3 {
        p.submit(A, token, b"");
    }
    replace(&mut p, A, &counts(10)).unwrap();
    p.done.clear();
    p.until_done(3);
    let replies: Vec<_> = p.done.iter().map(reply_of).collect();
    assert_eq!(replies, [[10], [20], [30]], "those that waited are its");
    let stats = p.engine.stats(A).unwrap();
    assert_eq!((stats.requests, stats.failures), (5, 0));
    assert_eq!(Rc::strong_count(&state), 3, "the slot's and the fiber's");
    assert_eq!(p.engine.instances(), 1);
}

#[test]
fn a_version_that_does_not_start_leaves_the_old_one() {
    let mut p = Pair::new();
    p.start(A, ECHO);
    p.submit(A, 0, b"x");
    assert_eq!(
        replace(&mut p, A, &with_init("(i32.const 3)")),
        init_failed()
    );
    p.until_done(1);
    assert_eq!(reply_of(&p.done[0]), b"x");
    let none = replace(&mut p, B, &with_init("(i32.const 3)"));
    assert_eq!(none, Err(StartError::Gone(B)));
}

#[test]
fn the_old_version_serves_while_a_new_one_takes_long_to_start() {
    let mut p = Pair::new();
    p.start(A, ECHO);
    for (end, expected) in [("3", init_failed()), ("0", Ok(()))] {
        let code = p.engine.load(&with_init(&long_init(end))).unwrap();
        let successor = p.engine.successor(A, &code, spec()).unwrap();
        let mut left = p.engine.replace(successor);
        assert!(matches!(left, Ok(Some(_))), "longer than a tick");
        assert_eq!(p.reply(A, b"x"), b"x", "of the old one");
        while let Ok(Some(successor)) = left {
            left = p.engine.replace(successor);
        }
        assert_eq!(left.map(|_| ()), expected);
    }
    assert_eq!(p.reply(A, b"x"), [7], "of the new one");
    let stats = p.engine.stats(A).unwrap();
    assert_eq!((stats.requests, stats.failures), (3, 0));
}

const COUNTER_GET: &str = r#"(import "e3" "counter_get"
    (func $counter_get (param i32 i32 i32) (result i64)))"#;

/// A module that keeps what a counter is when it starts, and replies with that; a request adds 1.
fn with_cache() -> Vec<u8> {
    module(&format!(
        r#"{IMPORTS} {COUNTER_GET} {EXPORTS}
        (func (export "e3_init") (result i32)
          (i64.store8 (i32.const 0) (call $counter_get (i32.const 1) (i32.const 64) (i32.const 1)))
          (i32.const 0))
        (func (export "e3_handle") (param $len i32) (result i32)
          (drop (call $counter_add (i32.const 1) (i32.const 64) (i32.const 1) (i64.const 1)))
          (call $reply (i32.const 0) (i32.const 0) (i32.const 1)))"#
    ))
}

#[test]
fn what_a_new_version_read_in_its_start_is_true_when_it_takes_over() {
    let mut p = Pair::new();
    p.start_with(A, &with_cache(), spec());
    assert_eq!([p.reply(A, b""), p.reply(A, b"")], [[0], [0]]);
    let code = p.engine.load(&with_cache()).unwrap();
    // nothing came between: what it read is true
    replace(&mut p, A, &with_cache()).unwrap();
    assert_eq!(p.reply(A, b""), [2]);
    // a request came between
    let successor = p.engine.successor(A, &code, spec()).unwrap();
    assert_eq!(p.reply(A, b""), [2]);
    let mut left = Some(successor);
    while let Some(successor) = left {
        left = p.engine.replace(successor).unwrap();
    }
    while p.engine.run(Duration::from_millis(1)) {}
    assert_eq!(p.engine.stats(A).unwrap().startup, Startup::Started);
    assert_eq!(p.reply(A, b""), [4]);
}

#[test]
fn an_instance_that_trapped_counts_as_started_until_it_is_made_again() {
    let mut p = Pair::new();
    p.start(A, "(unreachable)");
    assert!(matches!(p.failure(A, b""), HandlerError::Trap(_)));
    assert_eq!(p.engine.stats(A).unwrap().startup, Startup::Started);
    // one that starts but once, since it counts its starts: the second fails
    let once = module(&format!(
        r#"{IMPORTS} {COUNTER_GET} {EXPORTS}
        (func (export "e3_init") (result i32)
          (i32.wrap_i64 (call $counter_get (i32.const 1) (i32.const 64) (i32.const 1))))
        (func (export "e3_handle") (param i32) (result i32)
          (drop (call $counter_add (i32.const 1) (i32.const 64) (i32.const 1) (i64.const 5)))
          (i32.const 0))"#
    ));
    p.start_with(B, &once, spec());
    p.outcome(B, b"");
    let long = vec![0; 5000];
    assert!(matches!(
        p.failure(B, &long),
        HandlerError::RequestTooLong { .. }
    ));
    let failure = p.failure(B, b"");
    assert_eq!(p.engine.stats(B).unwrap().startup, Startup::Failed(failure));
}

#[test]
fn a_successor_is_bound_to_its_instance() {
    let mut p = Pair::new();
    let code = p.engine.load(&service(ECHO)).unwrap();
    p.start(A, ECHO);
    let successor = p.engine.successor(A, &code, spec()).unwrap();
    p.engine.stop(A);
    p.start(A, ECHO);
    assert_eq!(
        p.engine.replace(successor).err(),
        Some(StartError::Gone(A)),
        "these are other collections"
    );
    drop(p.engine.successor(A, &code, spec()).unwrap());
    assert_eq!(p.reply(A, b"x"), b"x");
}

#[test]
fn a_start_that_fails_late_is_told() {
    let mut p = Pair::new();
    p.start_with(A, &with_init(&long_init("3")), spec());
    assert_eq!(p.engine.stats(A).unwrap().startup, Startup::Starting);
    while p.engine.run(Duration::from_millis(1)) {}
    let failure = HandlerError::Init {
        code: 3,
        said: None,
    };
    let startup = p.engine.stats(A).unwrap().startup;
    assert_eq!(startup, Startup::Failed(failure.clone()));
    assert_eq!(p.failure(A, b"x"), failure);
    p.start_with(B, &with_init(&long_init("0")), spec());
    while p.engine.run(Duration::from_millis(1)) {}
    assert_eq!(p.engine.stats(B).unwrap().startup, Startup::Started);
}

#[test]
fn a_request_under_way_ends_in_the_version_that_it_began_in_and_those_that_wait_do_not() {
    let mut p = Pair::new();
    p.start(A, &format!("{LONG} {ECHO}"));
    for token in 0..4 {
        p.submit(A, token, b"old");
    }
    while p.engine.stats(A).unwrap().queue_len > 3 {
        p.engine.run(Duration::ZERO);
    }
    let code = p.engine.load(&with_init("(i32.const 0)")).unwrap();
    let mut left = Some(p.engine.successor(A, &code, spec()).unwrap());
    while let Some(successor) = left {
        left = p.engine.replace(successor).unwrap();
        p.engine.run(Duration::from_millis(5));
    }
    p.until_done(4);
    let replies: Vec<_> = p.done.iter().map(reply_of).collect();
    assert_eq!(replies[0], b"old");
    assert_eq!(replies[1..], [[0]; 3]);
}

#[test]
fn one_that_never_got_to_its_first_request_makes_room() {
    let mut p = Pair::new();
    p.start_with(A, &with_init(LOOP), spec());
    p.submit(A, 1, b"x");
    replace(&mut p, A, &service(ECHO)).unwrap();
    p.until_done(1);
    assert_eq!(reply_of(&p.done[0]), b"x");
}

#[test]
fn there_is_room_to_replace_where_there_is_none_for_more() {
    let mut p = Pair::new();
    let code = p.engine.load(&service(ECHO)).unwrap();
    let state = Rc::new(RefCell::new(State::new(&collections())));
    for id in 0..8 {
        p.engine
            .start(InstanceId(id), &code, spec(), Rc::clone(&state))
            .unwrap();
    }
    for id in (0..8).cycle().take(20) {
        replace(&mut p, InstanceId(id), &service(ECHO)).unwrap();
    }
    assert_eq!(p.reply(A, b"x"), b"x");
}

/// `random`: the bytes of the engine's source, other ones each time, and no more than the bound.
#[test]
fn random_bytes_come_from_the_engines_source() {
    let fill = |len: u32| {
        module(&format!(
            r#"{IMPORTS} {EXPORTS}
            (func (export "e3_handle") (param $len i32) (result i32)
                (call $reply (call $random (i32.const 0) (i32.const {len})) (i32.const 0)
                    (i32.const 256)))"#
        ))
    };
    let replies = |len: u32, config: EngineConfig| {
        let mut p = Pair {
            engine: Engine::new(config).unwrap(),
            done: Vec::new(),
        };
        p.start_with(A, &fill(len), spec());
        [(); 2].map(|()| match p.outcome(A, b"") {
            Outcome::Completed(Effects { reply, .. }) => reply.unwrap(),
            failed => panic!("{failed:?}"),
        })
    };
    let [a, b] = replies(256, config());
    let [c, _] = replies(256, config());
    assert!(a.payload != b.payload && a.payload != c.payload && b.payload != c.payload);
    let [too_many, _] = replies(257, config());
    assert_eq!(
        (too_many.status as i32, too_many.payload),
        (-2, vec![0; 256])
    );
    let sevens = EngineConfig {
        random: Rc::new(|out: &mut [u8]| out.fill(7)),
        ..config()
    };
    let [a, _] = replies(256, sevens);
    assert_eq!((a.status, a.payload), (0, vec![7; 256]));
}
