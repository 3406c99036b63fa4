//! Accelerators: this engine's and the portable code in a service's module give the same results,
//! and those of the published vectors.

use e3_collections::State;
use e3_engine::{Engine, EngineConfig, InstanceId, InstanceSpec, Ticker};
use e3_invocation::{Effects, Invocation, Outcome, Reply};
use e3_model::{Accelerator, Accelerators};
use e3_service_accelcheck::vectors::{VECTORS, bytes};
use e3_service_accelcheck::{op, request, run};
use e3_testkit::Random;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest wait for anything, generous.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    engine: Engine,
}

impl Node {
    fn new(wasm: &[u8], accelerators: Accelerators) -> Node {
        Node::running(wasm, accelerators, Accelerators::ALL)
    }

    /// One that has these, with a service that uses those.
    fn running(wasm: &[u8], accelerators: Accelerators, used: Accelerators) -> Node {
        let mut config = EngineConfig::new(Ticker::new(Duration::from_millis(1)).unwrap());
        config.instances_max = 2;
        config.accelerators = accelerators;
        let mut engine = Engine::new(config).unwrap();
        let spec = InstanceSpec {
            name: "service".into(),
            accelerators: used,
            memory_bytes_max: 16 << 20,
            deadline: PATIENCE,
            ..InstanceSpec::default()
        };
        let code = engine.load(wasm).unwrap();
        let state = Rc::new(RefCell::new(State::new(&[])));
        engine.start(InstanceId(0), &code, spec, state).unwrap();
        Node { engine }
    }

    fn call(&mut self, payload: &[u8]) -> Reply {
        let request = Invocation::new(b"key".to_vec(), payload.to_vec());
        self.engine.submit(InstanceId(0), request).unwrap();
        let start = Instant::now();
        loop {
            self.engine.run(Duration::from_millis(10));
            if let Some((_, done)) = self.engine.completions().next() {
                match done.outcome {
                    Outcome::Completed(Effects { reply, .. }) => return reply.expect("a reply"),
                    Outcome::Failed(failed) => panic!("{failed}"),
                }
            }
            assert!(start.elapsed() < PATIENCE, "no answer");
        }
    }
}

/// The service that does every accelerator on demand; none if services are not built.
fn accelcheck() -> Option<Vec<u8>> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services");
    let wasm = std::fs::read(built.join("accelcheck.wasm"));
    if wasm.is_err() {
        println!("SKIPPED: target/services is not built (cargo xtask build-services)");
    }
    wasm.ok()
}

/// Bytes of so many different values; if they are few, letters.
fn bytes_of(random: &mut Random, len: usize, values: usize) -> Vec<u8> {
    let first = if values < 256 { b'A' } else { 0 };
    (0..len)
        .map(|_| first.wrapping_add(random.index(values) as u8))
        .collect()
}

fn any_request(random: &mut Random) -> Vec<u8> {
    let kind = random.index(8) as u8;
    let len = random.index(2000);
    let key_len = [16, 32, 16, 32, 24][random.index(5)];
    let key = bytes_of(random, key_len, 256);
    let aad_len = random.index(40);
    let (iv, aad) = (bytes_of(random, 16, 256), bytes_of(random, aad_len, 256));
    match kind {
        op::CBC_ENCRYPT | op::CBC_DECRYPT => {
            let odd = usize::from(random.index(10) == 0);
            request(
                kind,
                &[&key, &iv, &bytes_of(random, len / 16 * 16 + odd, 256)],
            )
        }
        op::GCM_SEAL | op::GCM_OPEN => {
            request(kind, &[&key, &iv[..12], &aad, &bytes_of(random, len, 256)])
        }
        op::HMAC_SHA1 | op::HMAC_SHA256 => {
            let key_len = random.index(200);
            let key = bytes_of(random, key_len, 256);
            request(kind, &[&key, &bytes_of(random, len, 256)])
        }
        op::CRC32 => request(kind, &[&iv[..4], &bytes_of(random, len, 256)]),
        _ => {
            // few letters of both cases, so that patterns occur and overlap
            let letter = |r: &mut Random| b"abABc"[r.index(5)];
            let text: Vec<u8> = (0..random.index(300)).map(|_| letter(random)).collect();
            let patterns: Vec<Vec<u8>> = (0..random.index(12))
                .map(|_| {
                    let nocase = random.index(2) as u8;
                    let len = 1 + random.index(4);
                    let bytes = (0..len).map(|_| letter(random));
                    [nocase].into_iter().chain(bytes).collect()
                })
                .collect();
            let texts = [&text].into_iter().chain(&patterns);
            request(kind, &texts.map(Vec::as_slice).collect::<Vec<_>>())
        }
    }
}

#[test]
fn vectors_hold_on_both_sides() {
    let Some(wasm) = accelcheck() else { return };
    for set in [Accelerators::ALL, Accelerators::NONE] {
        let mut node = Node::new(&wasm, set);
        for vector in VECTORS {
            let reply = node.call(&vector.request());
            let expected = (0, bytes(vector.result));
            assert_eq!(
                (reply.status, reply.payload),
                expected,
                "{}, {set:?}",
                vector.source
            );
        }
    }
}

#[test]
fn both_sides_agree_on_random_requests() {
    let Some(wasm) = accelcheck() else { return };
    let mut accelerated = Node::new(&wasm, Accelerators::ALL);
    let mut portable = Node::new(&wasm, Accelerators::NONE);
    const SEED: u64 = 3;
    let mut random = Random::new(SEED);
    for step in 0..4000 {
        let request = any_request(&mut random);
        let reply = accelerated.call(&request);
        assert_eq!(
            reply,
            portable.call(&request),
            "seed {SEED}, step {step}: {request:?}"
        );
        let native = run(&request).unwrap_or_else(|e| e.to_string().into_bytes());
        assert_eq!(reply.payload, native, "seed {SEED}, step {step}");
        if request[0] == op::GCM_SEAL && reply.status == 0 {
            // what was sealed on one side opens on the other
            let mut open = request.clone();
            open[0] = op::GCM_OPEN;
            let data = reply.payload.len() - 16;
            open.truncate(open.len() - data - 4);
            open.extend((reply.payload.len() as u32).to_le_bytes());
            open.extend(&reply.payload);
            assert_eq!(portable.call(&open).payload[0], 1, "seed {SEED}, {step}");
        }
    }
}

/// All occurrences by looking at every place for every pattern.
fn naive(text: &[u8], patterns: &[(Vec<u8>, bool)]) -> Vec<u8> {
    let mut found = Vec::new();
    for end in 0..=text.len() {
        for (index, (pattern, nocase)) in patterns.iter().enumerate() {
            let Some(start) = end.checked_sub(pattern.len()) else {
                continue;
            };
            let part = &text[start..end];
            if part == pattern || *nocase && part.eq_ignore_ascii_case(pattern) {
                found.extend((index as u32).to_le_bytes());
                found.extend((end as u32).to_le_bytes());
            }
        }
    }
    found
}

#[test]
fn matches_are_those_of_a_naive_search_on_both_sides() {
    let Some(wasm) = accelcheck() else { return };
    for set in [Accelerators::ALL, Accelerators::NONE] {
        let mut node = Node::new(&wasm, set);
        const SEED: u64 = 5;
        let mut random = Random::new(SEED);
        for step in 0..1000 {
            // now and then a set too large for a table of states
            let large = step % 100 == 0;
            let count = if large { 1000 } else { random.index(20) };
            let len_max = if large { 40 } else { 4 };
            let patterns: Vec<(Vec<u8>, bool)> = (0..count)
                .map(|_| {
                    let len = 1 + random.index(len_max);
                    let values = if large { 60 } else { 3 };
                    (bytes_of(&mut random, len, values), random.index(2) == 0)
                })
                .collect();
            let len = random.index(400);
            let mut text = bytes_of(&mut random, len, 60);
            for byte in &mut text {
                *byte = if large {
                    *byte
                } else {
                    b"ABCabc"[usize::from(*byte) % 6]
                };
            }
            let packed: Vec<Vec<u8>> = patterns
                .iter()
                .map(|(p, nocase)| [&[u8::from(*nocase)], &p[..]].concat())
                .collect();
            let texts = [&text].into_iter().chain(&packed);
            let texts: Vec<&[u8]> = texts.map(Vec::as_slice).collect();
            let reply = node.call(&request(op::MATCH, &texts));
            assert_eq!(
                (reply.status, reply.payload),
                (0, naive(&text, &patterns)),
                "seed {SEED}, step {step}, {set:?}"
            );
        }
    }
}

/// Answers with the results, 32 bits each, of these calls.
fn calls(calls: &str, count: usize) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (import "e3" "accel_key" (func $key (param i32 i32 i32) (result i32)))
  (import "e3" "accel_drop" (func $drop (param i32) (result i32)))
  (import "e3" "aes_cbc_encrypt" (func $cbc (param i32 i32 i32 i32) (result i32)))
  (import "e3" "aes_gcm_seal" (func $seal (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "aes_gcm_open" (func $open (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "hmac" (func $hmac (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "crc32" (func $crc32 (param i32 i32 i32) (result i64)))
  (import "e3" "match_set" (func $set (param i32 i32) (result i32)))
  (import "e3" "match_find" (func $find (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 4096))
  (global $at (mut i32) (i32.const 0))
  (func $say (param i32)
    (i32.store (global.get $at) (local.get 0))
    (global.set $at (i32.add (global.get $at) (i32.const 4))))
  (func (export "e3_handle") (param $len i32) (result i32)
    {calls}
    (call $reply (i32.const 0) (i32.const 0) (i32.const {}))))"#,
        count * 4
    );
    // the tests write calls without the noise: `n` for `(i32.const n)`
    let text: String = text
        .split_inclusive(|c: char| c.is_whitespace() || c == ')')
        .map(|word| match word.strip_prefix('#') {
            Some(number) => {
                let end = number.len() - 1;
                format!("(i32.const {}){}", &number[..end], &number[end..])
            }
            None => word.into(),
        })
        .collect();
    wat::parse_str(text).expect("a module of the tests")
}

fn answers(node: &mut Node) -> Vec<i32> {
    let payload = node.call(&[7; 4000]).payload;
    let (words, _) = payload.as_chunks::<4>();
    words.iter().map(|w| i32::from_le_bytes(*w)).collect()
}

#[test]
fn handles_kinds_and_lengths_are_checked() {
    let script = "
      (call $say (call $key #1 #1024 #16))
      (call $say (call $key #4 #1024 #0))
      (call $say (call $key #2 #1024 #17))
      (call $say (call $key #9 #1024 #16))
      (call $say (call $cbc #0 #2048 #2048 #32 ))
      (call $say (call $cbc #0 #2048 #2048 #33 ))
      (call $say (call $cbc #1 #2048 #2048 #32 ))
      (call $say (call $cbc #7 #2048 #2048 #32 ))
      (call $say (call $hmac #1 #1024 #100 #2048 #31 ))
      (call $say (call $hmac #0 #1024 #100 #2048 #32 ))
      (call $say (call $drop #0 ))
      (call $say (call $drop #0 ))
      (call $say (call $hmac #0 #1024 #100 #2048 #32 ))
      (call $say (call $set #1024 #9 ))
      (call $say (call $key #3 #1024 #1 ))
      (call $say (call $find #0 #1024 #9 #2048 #8 ))
      (call $say (call $set #8192 #0 ))
      (call $say (call $find #2 #1024 #9 #2048 #8 ))";
    let mut node = Node::new(&calls(script, 18), Accelerators::ALL);
    let (no_handle, kind, length) = (-1, -3, -6);
    assert_eq!(
        answers(&mut node),
        [
            0, 1, length, kind, 0, length, kind, no_handle, 32, kind, 1, 0, no_handle, length, 0,
            kind, 2, 0
        ]
    );
}

#[test]
fn an_accelerator_that_is_not_there_says_so() {
    let script = "
      (call $say (call $key #1 #1024 #16 ))
      (call $say (call $key #2 #1024 #16 ))
      (call $say (call $key #3 #1024 #16 ))
      (call $say (call $key #4 #1024 #16 ))
      (call $say (i32.wrap_i64 (call $crc32 #0 #1024 #0 )))
      (call $say (call $set #1024 #0 ))";
    let wasm = calls(script, 6);
    assert_eq!(answers(&mut Node::new(&wasm, Accelerators::NONE)), [-5; 6]);
    let some = Accelerators::from_iter([Accelerator::AesGcm, Accelerator::Crc32]);
    let mut node = Node::new(&wasm, some);
    assert_eq!(answers(&mut node), [-5, 0, -5, -5, 0, -5]);
    // nor is there one that the manifest does not name
    let mut node = Node::running(&wasm, Accelerators::ALL, some);
    assert_eq!(answers(&mut node), [-5, 0, -5, -5, 0, -5]);
}

/// The associated text of a sealed one may be anywhere, the data themselves included.
#[test]
fn texts_may_overlap() {
    let script = "
      (drop (call $key #2 #1024 #16 ))
      (call $say (call $seal #0 #1024 #1032 #40 #1040 #40 #2048 ))
      (memory.copy #4096 #1024 #100 )
      (memory.copy #1024 #3000 #100 )
      (call $say (call $seal #0 #1024 #1032 #40 #3200 #40 #2064 ))
      (call $say (i32.eq (i32.load #2048 ) (i32.load #2064 )))
      (call $say (i32.eq (i32.load #4132 ) (i32.load #3220 )))
      (call $say (call $open #0 #1024 #1032 #40 #3200 #40 #2064 ))
      (call $say (call $open #0 #1024 #1032 #40 #3200 #40 #2064 ))";
    let mut node = Node::new(&calls(script, 6), Accelerators::ALL);
    assert_eq!(answers(&mut node), [1, 1, 1, 1, 1, 0]);
}
