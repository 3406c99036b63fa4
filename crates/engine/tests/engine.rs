//! Services as small modules in text, run on a real engine.

use crate::common::*;
use e3_collections::State;
use e3_engine::{Engine, InstanceSpec, LoadError, StartError};
use e3_invocation::{Effects, HandlerError, Invocation, Outcome};
use e3_model::{MessageId, Nanos, RequestId, Slot, Timestamp, Via};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn requests_end_in_order_with_their_replies() {
    let mut p = Pair::new();
    p.start(A, ECHO);
    for token in 0..200u64 {
        p.submit(A, token, &token.to_le_bytes());
    }
    p.until_done(200);
    for (token, (id, c)) in (0..200u64).zip(&p.done) {
        assert_eq!((*id, c.token), (A, token));
        let Outcome::Completed(Effects {
            reply: Some(reply),
            writes,
            outputs,
            timers: _,
        }) = &c.outcome
        else {
            panic!("{c:?}");
        };
        assert_eq!(reply.payload, token.to_le_bytes());
        assert!(writes.is_empty() && outputs.is_empty());
    }
    assert!(!p.engine.run(Duration::ZERO));
    assert_eq!(p.engine.stats(A).unwrap().requests, 200);
}

#[test]
fn writes_and_messages_come_out_together() {
    let mut p = Pair::new();
    // puts the payload at "key", counts, sends it twice; the third send is over the bound
    let state = p.start(
        A,
        r#"
        (drop (call $request_key (i32.const 0) (i32.const 64)))
        (drop (call $put (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 1024) (local.get $len)))
        (drop (call $counter_add (i32.const 1) (i32.const 0) (i32.const 3) (i64.const 5)))
        (drop (call $send (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 1024) (local.get $len)))
        (drop (call $send (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 1024) (i32.const 1)))
        (if (i32.ne (i32.const -2)
          (call $send (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 1024) (i32.const 1)))
          (then (return (i32.const 1))))
        (if (i32.ne (i32.const -1)
          (call $send (i32.const 1) (i32.const 0) (i32.const 3) (i32.const 1024) (i32.const 1)))
          (then (return (i32.const 2))))
        (if (i32.ne (i32.const 3) (call $request_slot)) (then (return (i32.const 3))))
        (i32.const 0)"#,
    );
    let Outcome::Completed(Effects {
        writes,
        outputs,
        reply,
        timers: _,
    }) = p.outcome(A, b"value")
    else {
        panic!("should be done");
    };
    assert_eq!(reply, None);
    assert_eq!(writes.slot(), 3);
    let payloads: Vec<_> = outputs
        .iter()
        .map(|o| (o.channel, &*o.key, &*o.payload))
        .collect();
    assert_eq!(
        payloads,
        [(0, &b"key"[..], &b"value"[..]), (0, b"key", b"v")]
    );
    let mut backup = State::new(&collections());
    backup.apply(&writes).unwrap();
    assert_eq!(backup.get(0, b"key"), Some(&b"value"[..]));
    assert_eq!(state.borrow().counter_get(1, b"key"), 5);
    assert_eq!(backup.digest(), state.borrow().digest());
}

#[test]
fn a_failed_attempt_leaves_no_trace() {
    let mut p = Pair::new();
    // puts, sends, replies, then fails with the payload's first byte
    let state = p.start(
        A,
        r#"
        (drop (call $put (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 1024) (i32.const 1)))
        (drop (call $send (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 1024) (i32.const 1)))
        (drop (call $reply (i32.const 0) (i32.const 1024) (local.get $len)))
        (i32.store8 (i32.const 0) (i32.const 1))
        (i32.load8_u (i32.const 1024))"#,
    );
    assert_eq!(p.failure(A, &[7]), HandlerError::Code(7));
    assert!(state.borrow().is_empty());
    let Outcome::Completed(Effects { outputs, reply, .. }) = p.outcome(A, &[0]) else {
        panic!("should be done");
    };
    assert_eq!(
        (outputs.len(), reply.map(|r| r.payload)),
        (1, Some(vec![0]))
    );
    assert_eq!(p.engine.stats(A).unwrap().failures, 1);
}

#[test]
fn a_trap_discards_memory_and_the_queue_goes_on() {
    let mut p = Pair::new();
    // replies with a byte that it then changes; traps if the payload is empty
    p.start(
        A,
        r#"
        (drop (call $reply (i32.const 0) (i32.const 0) (i32.const 1)))
        (i32.store8 (i32.const 0) (i32.add (i32.const 1) (i32.load8_u (i32.const 0))))
        (if (i32.eqz (local.get $len)) (then (unreachable)))
        (i32.const 0)"#,
    );
    p.start(B, ECHO);
    for (token, payload) in [&b"x"[..], b"x", b"", b"x"].iter().enumerate() {
        p.submit(A, token as u64, payload);
    }
    p.submit(B, 4, b"other");
    p.until_done(5);
    let bytes: Vec<_> = p
        .done
        .iter()
        .filter(|(id, _)| *id == A)
        .map(|(_, c)| match &c.outcome {
            Outcome::Completed(Effects { reply, .. }) => Some(reply.clone().unwrap().payload[0]),
            Outcome::Failed(f) => {
                assert!(matches!(&f.error, HandlerError::Trap(t) if t.contains("unreachable")));
                None
            }
        })
        .collect();
    assert_eq!(bytes, [Some(0), Some(1), None, Some(0)]);
    let stats = p.engine.stats(A).unwrap();
    assert_eq!((stats.traps, stats.restarts, stats.requests), (1, 1, 4));
}

#[test]
fn an_endless_loop_yields_to_others_until_its_deadline() {
    let mut p = Pair::new();
    let slow = InstanceSpec {
        name: "culprit".into(),
        deadline: Duration::from_millis(50),
        ..spec()
    };
    p.start_with(A, &service(LOOP), slow);
    p.start(B, ECHO);
    p.submit(A, 0, b"");
    p.engine.run(Duration::ZERO);
    p.submit(B, 1, b"x");
    p.until_done(1);
    assert_eq!(
        (p.done[0].0, p.done[0].1.token),
        (B, 1),
        "others go on meanwhile"
    );
    p.until_done(2);
    let Outcome::Failed(failed) = &p.done[1].1.outcome else {
        panic!("should be stopped");
    };
    assert_eq!(failed.to_string(), "handler exceeded its 50 ms deadline");
    assert!(p.done[1].1.busy >= Nanos::from_millis(50));
    let stats = p.engine.stats(A).unwrap();
    assert_eq!((&*stats.service, stats.deadlines_exceeded), ("culprit", 1));
    assert!(stats.preemptions > 0);
}

#[test]
fn a_long_handler_goes_on_where_it_was() {
    let mut p = Pair::new();
    // counts to a hundred million, then puts
    let state = p.start(
        A,
        r#"(local $i i32)
        (loop $again
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $i) (i32.const 100000000))))
        (i32.store (i32.const 0) (local.get $i))
        (call $put (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 4))"#,
    );
    let Outcome::Completed(Effects { writes, .. }) = p.outcome(A, b"") else {
        panic!("should be done");
    };
    assert!(!writes.is_empty());
    assert_eq!(
        state.borrow().get(0, &[0]),
        Some(&100_000_000u32.to_le_bytes()[..])
    );
    assert!(p.engine.stats(A).unwrap().preemptions > 0);
}

#[test]
fn scans_pack_entries_and_say_what_room_they_need() {
    let mut p = Pair::new();
    // puts key = first byte, value = payload; replies with a scan of all into `cap` = second byte
    p.start(
        A,
        r#"(local $n i32)
        (drop (call $put (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 1024) (local.get $len)))
        (local.set $n (call $scan (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 1) (i32.const 8192) (i32.load8_u (i32.const 1025))))
        (if (i32.lt_s (local.get $n) (i32.const 0)) (then
          (return (i32.sub (i32.const 0) (local.get $n)))))
        (call $reply (i32.const 0) (i32.const 8192) (local.get $n))"#,
    );
    assert_eq!(p.failure(A, &[1, 10]), HandlerError::Code(11));
    let one = [&[1, 0, 0, 0, 2, 0, 0, 0, 1][..], &[1, 11]].concat();
    assert_eq!(p.reply(A, &[1, 11]), one);
    let two = [&[1, 0, 0, 0, 2, 0, 0, 0, 2][..], &[2, 99], &one].concat();
    assert_eq!(p.reply(A, &[2, 99]), two);
}

#[test]
fn memory_is_bounded() {
    let mut p = Pair::new();
    let grow = "(if (i32.eq (i32.const -1) (memory.grow (i32.const 100))) (then (unreachable)))
        (i32.const 0)";
    p.start(A, grow);
    let failure = p.failure(A, b"");
    assert_eq!(
        failure,
        HandlerError::MemoryLimit {
            asked: 101 << 16,
            maximum: 1 << 20
        }
    );
    let four_gib = module(&format!(
        r#"{} (func (export "e3_handle") (param i32) (result i32) (i32.const 0))"#,
        EXPORTS.replace(r#""memory") 1"#, r#""memory") 65536"#)
    ));
    assert_eq!(
        p.engine.load(&four_gib).err(),
        Some(LoadError::Memory {
            minimum: 4 << 30,
            maximum: 64 << 20
        })
    );
    let small = InstanceSpec {
        memory_bytes_max: 100,
        ..spec()
    };
    let code = p.engine.load(&service(ECHO)).unwrap();
    let state = Rc::new(RefCell::new(State::new(&collections())));
    assert_eq!(
        p.engine.start(B, &code, small, state),
        Err(StartError::Memory {
            service: "service".into(),
            minimum: 1 << 16,
            maximum: 100
        })
    );
}

#[test]
fn pointers_out_of_range_and_long_requests_fail_the_attempt() {
    let mut p = Pair::new();
    p.start(
        A,
        "(call $reply (i32.const 0) (i32.const -1) (i32.const 2))",
    );
    assert_eq!(
        p.failure(A, b""),
        HandlerError::Pointer {
            ptr: u32::MAX,
            len: 2,
            memory: 1 << 16
        }
    );
    p.start(B, ECHO);
    assert_eq!(
        p.failure(B, &[0; 4097]),
        HandlerError::RequestTooLong {
            len: 4097,
            capacity: 4096
        }
    );
    assert_eq!(p.reply(B, &[5; 4096]), [5; 4096]);
}

/// A module with a buffer for the head at this address, which replies with the buffer.
fn with_head(address: u32) -> Vec<u8> {
    module(&format!(
        r#"{IMPORTS} {EXPORTS}
        (func (export "e3_request_head") (result i32) (i32.const {address}))
        (func (export "e3_handle") (param i32) (result i32)
          (call $reply (i32.const 0) (i32.const {address}) (i32.const 96)))"#
    ))
}

#[test]
fn the_head_of_a_request_lies_in_its_room() {
    let mut p = Pair::new();
    let last = (1 << 16) - 96;
    p.start_with(A, &with_head(last), spec());
    for key_len in [1, 64, 65, 1024] {
        let key: Vec<u8> = (0..key_len).map(|n| 1 + n as u8 % 100).collect();
        let request = Invocation {
            id: MessageId {
                request: RequestId {
                    client: u64::from_le_bytes(*b"01234567"),
                    seq: u64::from_le_bytes(*b"89abcdef"),
                },
                via: Via::Ingress,
                index: 0,
            },
            now: Timestamp(0x0102_0304_0506_0708),
            slot: Slot(0x0a0b),
            key: key.clone(),
            ..request(0, b"")
        };
        p.done.clear();
        p.engine.submit(A, request).unwrap();
        p.until_done(1);
        let Outcome::Completed(Effects {
            reply: Some(reply), ..
        }) = &p.done[0].1.outcome
        else {
            panic!("{:?}", p.done);
        };
        let head = &reply.payload;
        assert_eq!(head[..16], *b"0123456789abcdef");
        assert_eq!(head[16..24], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(head[24..30], [255, 255, 255, 255, 0x0b, 0x0a]);
        assert_eq!(head[30..32], (key_len as u16).to_le_bytes());
        if key_len <= 64 {
            assert_eq!(head[32..32 + key_len], key);
        }
    }
    let code = p.engine.load(&with_head(last + 1)).unwrap();
    let state = Rc::new(RefCell::new(State::new(&collections())));
    let failure = match p.engine.start(B, &code, spec(), state) {
        Err(StartError::Failed { error, .. }) => error,
        // preempted before it got there, on a busy machine
        Ok(()) => p.startup_failure(B),
        Err(other) => panic!("{other}"),
    };
    let (address, memory) = (last + 1, 1 << 16);
    assert_eq!(failure, HandlerError::RequestHead { address, memory });
}

#[test]
fn bad_modules_are_told_apart() {
    let p = Pair::new();
    let error = |wasm: &[u8]| p.engine.load(wasm).err().expect("must not load");
    assert!(matches!(error(b"no wasm"), LoadError::Invalid(_)));
    assert!(matches!(
        error(&service(ECHO)[..100]),
        LoadError::Invalid(_)
    ));
    assert_eq!(error(&module("")), LoadError::MissingExport("memory"));
    assert_eq!(
        error(&module(EXPORTS)),
        LoadError::MissingExport("e3_handle")
    );
    let typed = format!(r#"{EXPORTS} (func (export "e3_handle") (result i32) (i32.const 0))"#);
    assert_eq!(
        error(&module(&typed)),
        LoadError::ExportType {
            name: "e3_handle",
            expected: "(i32) -> i32"
        }
    );
    let handle = r#"(func (export "e3_handle") (param i32) (result i32) (i32.const 0))"#;
    let unknown = format!(r#"(import "e3" "fly" (func)) {EXPORTS} {handle}"#);
    assert_eq!(
        error(&module(&unknown)),
        LoadError::UnknownImport {
            module: "e3".into(),
            name: "fly".into()
        }
    );
    let mistyped = format!(r#"(import "e3" "get" (func)) {EXPORTS} {handle}"#);
    assert!(matches!(error(&module(&mistyped)), LoadError::ImportType(t) if t.contains("get")));
    let started = format!("{EXPORTS} {handle} (func $s) (start $s)");
    assert_eq!(error(&module(&started)), LoadError::StartFunction);

    // Most of it is found without compiling.
    let checked = |wasm: &[u8]| e3_engine::check(wasm, 1 << 20).err();
    assert_eq!(checked(&service(ECHO)), None);
    for wasm in [module(""), module(EXPORTS), module(&started)] {
        assert_eq!(checked(&wasm), Some(error(&wasm)));
    }
    let elsewhere = format!(r#"(import "wasi" "fly" (func)) {EXPORTS} {handle}"#);
    assert_eq!(
        checked(&module(&elsewhere)),
        Some(error(&module(&elsewhere)))
    );
    let memory = (1 << 16, (1 << 16) - 1);
    assert_eq!(
        e3_engine::check(&service(ECHO), memory.1),
        Err(LoadError::Memory {
            minimum: memory.0,
            maximum: memory.1
        })
    );
}

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_corrupt_cache_is_compiled_again() {
    let dir = Dir(std::env::temp_dir().join(format!("e3-engine-{}", std::process::id())));
    let cached = || {
        let files = std::fs::read_dir(&dir.0).unwrap();
        let files: Vec<_> = files.map(|f| f.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    };
    let load = || {
        let mut config = config();
        config.cache_dir = Some(dir.0.clone());
        let mut p = Pair {
            engine: Engine::new(config).unwrap(),
            done: Vec::new(),
        };
        p.start(A, ECHO);
        assert_eq!(p.reply(A, b"x"), b"x");
    };
    load();
    let good = std::fs::read(cached()).unwrap();
    load();
    assert_eq!(std::fs::read(cached()).unwrap(), good);
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&good[..0], &good[..31], &good[..good.len() - 1], &flipped] {
        std::fs::write(cached(), bad).unwrap();
        load();
        assert_eq!(std::fs::read(cached()).unwrap(), good, "repaired");
    }
    // A process that ended while it wrote leaves nothing for ever.
    let file = cached();
    std::fs::rename(&file, file.with_extension("part")).unwrap();
    load();
    assert_eq!(std::fs::read(cached()).unwrap(), good, "replaced");
}

#[test]
fn a_module_that_another_process_compiles_is_waited_for() {
    let root = Dir(std::env::temp_dir().join(format!("e3-engine-wait-{}", std::process::id())));
    let loader = |dir: &std::path::Path| {
        let mut config = config();
        config.cache_dir = Some(dir.to_path_buf());
        Engine::new(config).unwrap().loader()
    };
    let wasm = service(ECHO);
    let (theirs, shared) = (root.0.join("theirs"), root.0.join("shared"));
    loader(&theirs).load(&wasm).unwrap();
    let compiled = std::fs::read_dir(&theirs).unwrap().next().unwrap().unwrap();

    std::fs::create_dir(&shared).unwrap();
    let other = std::fs::File::open(&shared).unwrap();
    other.lock().unwrap();
    let loads: Vec<_> = (0..3)
        .map(|_| {
            let (loader, wasm) = (loader(&shared), wasm.clone());
            std::thread::spawn(move || loader.load(&wasm).map(|_| ()))
        })
        .collect();
    let result = shared.join(compiled.file_name());
    std::fs::copy(compiled.path(), &result).unwrap();
    let id = |path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = id(&result);
    // The other still has the lock: nobody could compile.
    for load in loads {
        load.join().unwrap().unwrap();
    }
    assert_eq!(id(&result), before);
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 1);
}

#[test]
fn effects_that_fit_no_log_entry_fail_the_attempt_before_they_count() {
    let mut pair = Pair::new();
    // A write and a reply of 32,000 bytes each: either is fine alone, not both in one entry.
    let state = pair.start(
        A,
        r#"(drop (call $put (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 0) (i32.const 32000)))
           (call $reply (i32.const 0) (i32.const 0) (i32.const 32000))"#,
    );
    let failure = pair.failure(A, b"x");
    assert!(
        matches!(failure, HandlerError::EffectsTooLong { len } if len > 64_000),
        "{failure}"
    );
    assert_eq!(state.borrow().get(0, b"x"), None);
}
