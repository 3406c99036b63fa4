//! Small modules in text, and an engine to run them.

use e3_collections::{CollectionSpec, Kind, State};
use e3_engine::{ChannelSpec, Engine, EngineConfig, InstanceId, InstanceSpec, Startup, Ticker};
use e3_invocation::{Completion, Effects, HandlerError, Invocation, Outcome};
use e3_model::{Slot, Timestamp};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest wait for anything, generous.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const A: InstanceId = InstanceId(0);
pub const B: InstanceId = InstanceId(1);

pub const IMPORTS: &str = r#"
  (import "e3" "now" (func $now (result i64)))
  (import "e3" "random" (func $random (param i32 i32) (result i32)))
  (import "e3" "request_key" (func $request_key (param i32 i32) (result i32)))
  (import "e3" "request_slot" (func $request_slot (result i32)))
  (import "e3" "request_edge" (func $request_edge (result i32)))
  (import "e3" "log" (func $log (param i32 i32 i32)))
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (import "e3" "send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "put" (func $put (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "put_ttl" (func $put_ttl (param i32 i32 i32 i32 i32 i64) (result i32)))
  (import "e3" "delete" (func $delete (param i32 i32 i32) (result i32)))
  (import "e3" "collection" (func $collection (param i32 i32) (result i32)))
  (import "e3" "scan"
    (func $scan (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "counter_add" (func $counter_add (param i32 i32 i32 i64) (result i64)))"#;

pub const EXPORTS: &str = r#"
  (memory (export "memory") 1)
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 4096))"#;

/// A module with this handler body (parameter `$len`).
pub fn service(body: &str) -> Vec<u8> {
    module(&format!(
        r#"{IMPORTS} {EXPORTS}
        (func (export "e3_handle") (param $len i32) (result i32) {body})"#
    ))
}

pub fn module(content: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {content})")).expect("a module of the tests")
}

/// Replies with the payload.
pub const ECHO: &str = "(call $reply (i32.const 0) (i32.const 1024) (local.get $len))";
pub const LOOP: &str = "(loop $again (br $again)) (unreachable)";

pub struct Pair {
    pub engine: Engine,
    pub done: Vec<(InstanceId, Completion)>,
}

pub fn collections() -> Vec<CollectionSpec> {
    [("map", Kind::OrderedMap), ("counter", Kind::Counter)]
        .map(|(name, kind)| CollectionSpec {
            name: name.into(),
            kind,
            ttl: None,
        })
        .to_vec()
}

pub fn spec() -> InstanceSpec {
    InstanceSpec {
        stateful: true,
        name: "service".into(),
        channels: vec![ChannelSpec {
            name: "out".into(),
            outputs_max: 2,
        }],
        collections: collections(),
        memory_bytes_max: 1 << 20,
        deadline: Duration::from_secs(3600),
        ..InstanceSpec::default()
    }
}

pub fn config() -> EngineConfig {
    let mut config = EngineConfig::new(Ticker::new(Duration::from_micros(100)).unwrap());
    config.instances_max = 8;
    config
}

pub fn request(token: u64, payload: &[u8]) -> Invocation {
    Invocation {
        token,
        now: Timestamp(1_000 + token),
        slot: Slot(3),
        ..Invocation::new(b"key".to_vec(), payload.to_vec())
    }
}

impl Pair {
    pub fn new() -> Pair {
        Pair {
            engine: Engine::new(config()).unwrap(),
            done: Vec::new(),
        }
    }

    pub fn start_with(
        &mut self,
        id: InstanceId,
        wasm: &[u8],
        spec: InstanceSpec,
    ) -> Rc<RefCell<State>> {
        let state = Rc::new(RefCell::new(State::new(&spec.collections)));
        let code = self.engine.load(wasm).unwrap();
        self.engine
            .start(id, &code, spec, Rc::clone(&state))
            .unwrap();
        state
    }

    pub fn start(&mut self, id: InstanceId, body: &str) -> Rc<RefCell<State>> {
        self.start_with(id, &service(body), spec())
    }

    pub fn submit(&mut self, id: InstanceId, token: u64, payload: &[u8]) {
        self.engine.submit(id, request(token, payload)).unwrap();
    }

    /// Runs until an instance's start fails; the reason.
    pub fn startup_failure(&mut self, id: InstanceId) -> HandlerError {
        let start = Instant::now();
        loop {
            self.engine.run(Duration::from_millis(1));
            match self.engine.stats(id).unwrap().startup {
                Startup::Failed(error) => return error,
                Startup::Started => panic!("it started"),
                Startup::Starting => assert!(start.elapsed() < PATIENCE, "its start goes on"),
            }
        }
    }

    /// Runs until so many requests ended.
    pub fn until_done(&mut self, count: usize) {
        let start = Instant::now();
        while self.done.len() < count {
            self.engine.run(Duration::from_millis(1));
            self.done.extend(self.engine.completions());
            assert!(
                start.elapsed() < PATIENCE,
                "{} of {count} ended",
                self.done.len()
            );
        }
        assert_eq!(self.done.len(), count);
    }

    /// How one request ends.
    pub fn outcome(&mut self, id: InstanceId, payload: &[u8]) -> Outcome {
        self.done.clear();
        self.submit(id, 9, payload);
        self.until_done(1);
        self.done.remove(0).1.outcome
    }

    pub fn failure(&mut self, id: InstanceId, payload: &[u8]) -> HandlerError {
        match self.outcome(id, payload) {
            Outcome::Failed(failed) => {
                assert_eq!(failed.invocation, request(9, payload), "can be retried");
                failed.error
            }
            done => panic!("should fail: {done:?}"),
        }
    }

    pub fn reply(&mut self, id: InstanceId, payload: &[u8]) -> Vec<u8> {
        match self.outcome(id, payload) {
            Outcome::Completed(Effects {
                reply: Some(reply), ..
            }) => reply.payload,
            other => panic!("should reply: {other:?}"),
        }
    }
}
