//! Benchmarks of the engine: what a request costs, how fast an instance starts, how long others
//! wait behind an endless loop.
//!
//! A request's cost is given in units of wasmtime's bare call of an empty function, measured in
//! the same run: rounds alternate, and the ratio of the medians is the result. So the figures can
//! be compared between machines, and a noisy neighbour affects both sides equally.

use crate::{Better, Figure, median};
use e3_collections::{CollectionSpec, Kind, State, Txn};
use e3_engine::limits::TICK_ALONE;
use e3_engine::{
    BareCall, Code, Engine, EngineConfig, EngineError, InstanceId, InstanceSpec, LoadError,
    StartError, Ticker,
};
use e3_invocation::{Failed, HandlerError, Invocation, Outcome};
use e3_model::{MessageId, RequestId, Slot, Timestamp};
use e3_random::Random;
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Rounds of each measurement.
const ROUNDS: usize = 41;
/// Requests of one round.
const ROUND_REQUESTS: usize = 8192;
/// Requests that are submitted together, as on a busy node.
const BATCH: usize = 64;
/// Keys of the hash map.
const KEYS: u64 = 1_000_000;
/// Instances that are started.
const STARTS: usize = 400;
/// Requests that arrive while another service loops without end.
const ARRIVALS: usize = 2000;

/// Why a benchmark did not run.
#[derive(Debug, Error)]
enum BenchError {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Submit(#[from] Box<Failed>),
    #[error("ticker: {0}")]
    Ticker(#[from] std::io::Error),
    #[error("text of a module: {0}")]
    Wat(#[from] wat::Error),
    #[error("a request failed: {0}")]
    Handler(HandlerError),
    #[error("{0} of {1} requests ended")]
    Lost(usize, usize),
}

type Result<T> = std::result::Result<T, BenchError>;

/// What every module of the benchmarks has; `%` stands for imports and the handler.
const FRAME: &str = r#"(module %
  (memory (export "memory") 2)
  (data (i32.const 0) "m")
  (func (export "e3_abi_version") (result i32) (i32.const 1))
  (func (export "e3_request_buffer") (result i32) (i32.const 1024))
  (func (export "e3_request_capacity") (result i32) (i32.const 32768)))"#;

/// Replies with the payload.
const ECHO: &str = r#"
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (func (export "e3_handle") (param $len i32) (result i32)
    (call $reply (i32.const 0) (i32.const 1024) (local.get $len)))"#;

/// The first 8 bytes are a key: gets its value, adds to it, puts it, replies with the payload.
const GETPUT: &str = r#"
  (import "e3" "reply" (func $reply (param i32 i32 i32) (result i32)))
  (import "e3" "get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "e3" "put" (func $put (param i32 i32 i32 i32 i32) (result i32)))
  (func (export "e3_handle") (param $len i32) (result i32)
    (if (i32.ne (i32.const 64)
          (call $get (i32.const 0) (i32.const 1024) (i32.const 8) (i32.const 0) (i32.const 64)))
      (then (return (i32.const 1))))
    (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (i64.const 1)))
    (if (call $put (i32.const 0) (i32.const 1024) (i32.const 8) (i32.const 0) (i32.const 64))
      (then (return (i32.const 2))))
    (call $reply (i32.const 0) (i32.const 1024) (local.get $len)))"#;

/// Never returns.
const LOOP: &str = r#"
  (func (export "e3_handle") (param i32) (result i32)
    (loop $again (br $again)) (unreachable))"#;

const SERVICE: InstanceId = InstanceId(0);
const CULPRIT: InstanceId = InstanceId(1);

fn engine() -> Result<Engine> {
    Ok(Engine::new(EngineConfig::new(Ticker::new(TICK_ALONE)?))?)
}

fn load(engine: &Engine, handler: &str) -> Result<Code> {
    Ok(engine.load(&wat::parse_str(FRAME.replace('%', handler))?)?)
}

fn spec(name: &str, collections: &[CollectionSpec]) -> InstanceSpec {
    InstanceSpec {
        name: name.into(),
        collections: collections.to_vec(),
        memory_bytes_max: 1 << 20,
        deadline: Duration::from_secs(3600),
        ..InstanceSpec::default()
    }
}

fn no_state() -> Rc<RefCell<State>> {
    Rc::new(RefCell::new(State::new(&[])))
}

/// What the group runs.
pub const ABOUT: &str = "\
One engine on one core, in process. A bare call is wasmtime's call of an empty function, measured in
rounds that alternate with those of the requests. A request is made, queued, run, taken, its reply read
and its buffers given back.";

/// Runs all benchmarks: about ten seconds.
pub fn run() -> Vec<Figure> {
    let cost = |name, aim, measure: fn() -> Result<Cost>| {
        let measured = measure().map(|c| (c.calls(), c.note()));
        figure(name, "bare calls", aim, measured)
    };
    vec![
        cost("engine.echo_64b", 10.0, || echo(64)),
        cost("engine.echo_512b", 14.0, || echo(512)),
        cost("engine.getput_64b", 22.0, getput),
        figure("engine.start_us", "us", 20.0, start()),
        figure("engine.preempt_us_p99", "us", 200.0, preempt()),
    ]
}

fn figure(name: &str, unit: &str, aim: f64, measured: Result<(f64, String)>) -> Figure {
    let (value, note) = match measured {
        Ok((value, note)) => (Some(value), note),
        Err(e) => (None, e.to_string()),
    };
    let mut figure = Figure::new(name, 0.0, unit, Better::Lower);
    figure.value = value;
    figure.aim(aim).note(note)
}

/// Nanoseconds of a request and of a bare call, medians of the rounds.
struct Cost {
    request_ns: f64,
    bare_ns: f64,
    what: String,
}

impl Cost {
    fn calls(&self) -> f64 {
        self.request_ns / self.bare_ns
    }

    fn note(&self) -> String {
        format!(
            "{}: {:.0} ns a request ({:.2} M/s), {:.1} ns a bare call; {ROUNDS} alternating rounds of {ROUND_REQUESTS}",
            self.what,
            self.request_ns,
            1e3 / self.request_ns,
            self.bare_ns,
        )
    }
}

/// Nanoseconds of a bare call in one round.
fn bare_round(bare: &mut BareCall) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..ROUND_REQUESTS {
        bare.call()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / ROUND_REQUESTS as f64)
}

/// One round of requests on the real way: made by the caller, queued, run, taken, its reply read
/// and its buffer given back. Nanoseconds of one.
fn round(
    engine: &mut Engine,
    mut request: impl FnMut(&mut Engine, u64) -> Invocation,
) -> Result<f64> {
    let start = Instant::now();
    let (mut ended, mut done) = (0, Vec::new());
    for batch in 0..ROUND_REQUESTS / BATCH {
        for i in 0..BATCH {
            let token = (batch * BATCH + i) as u64;
            let request = request(engine, token);
            engine.submit(SERVICE, request)?;
        }
        while engine.run(Duration::from_millis(10)) {}
        done.extend(engine.completions());
        for (_, completion) in done.drain(..) {
            match completion.outcome {
                Outcome::Completed(effects) => {
                    engine.recycle(black_box(effects.writes).into_bytes());
                    if let Some(reply) = effects.reply {
                        engine.recycle(black_box(reply).payload);
                    }
                    ended += 1;
                }
                Outcome::Failed(failed) => return Err(BenchError::Handler(failed.error)),
            }
        }
    }
    if ended != ROUND_REQUESTS {
        return Err(BenchError::Lost(ended, ROUND_REQUESTS));
    }
    Ok(start.elapsed().as_nanos() as f64 / ROUND_REQUESTS as f64)
}

fn compare(
    engine: &mut Engine,
    what: String,
    mut request: impl FnMut(&mut Engine, u64) -> Invocation,
) -> Result<Cost> {
    let mut bare = BareCall::new()?;
    let (mut requests, mut calls) = (Vec::new(), Vec::new());
    round(engine, &mut request)?; // first use of memory and buffers
    bare_round(&mut bare)?;
    for _ in 0..ROUNDS {
        calls.push(bare_round(&mut bare)?);
        requests.push(round(engine, &mut request)?);
    }
    let (request_ns, bare_ns) = (median(requests), median(calls));
    Ok(Cost {
        request_ns,
        bare_ns,
        what,
    })
}

fn request_of(engine: &mut Engine, token: u64, payload: &[u8]) -> Invocation {
    Invocation {
        token,
        id: MessageId::ingress(RequestId {
            client: 7,
            seq: token,
        }),
        state_bytes_max: u64::MAX,
        now: Timestamp(token),
        slot: Slot((token % 4096) as u16),
        key: engine.buffer(&token.to_le_bytes()),
        payload: engine.buffer(payload),
        timer: None,
        answer: None,
        topic: None,
        is_call: false,
    }
}

fn echo(len: usize) -> Result<Cost> {
    let mut engine = engine()?;
    let code = load(&engine, ECHO)?;
    engine.start(SERVICE, &code, spec("echo", &[]), no_state())?;
    let payload = vec![0x5a; len];
    let what = format!("{len} bytes in and back, {BATCH} queued at a time");
    compare(&mut engine, what, |engine, token| {
        request_of(engine, token, &payload)
    })
}

fn getput() -> Result<Cost> {
    let collections = [CollectionSpec {
        name: "map".into(),
        kind: Kind::HashMap,
        ttl: None,
    }];
    let mut state = State::new(&collections);
    let mut txn = Txn::new();
    for key in 0..KEYS {
        txn.begin(0);
        let put = txn.put(&state, 0, &key.to_le_bytes(), &[1; 64]);
        let applied = state.apply(&txn.finish());
        assert!(put.is_ok() && applied.is_ok(), "within all bounds");
    }
    let mut engine = engine()?;
    let code = load(&engine, GETPUT)?;
    let state = Rc::new(RefCell::new(state));
    engine.start(SERVICE, &code, spec("getput", &collections), state)?;
    let mut random = Random::new(0);
    let mut measure = |keyed: bool| {
        compare(&mut engine, String::new(), |engine, token| {
            let key = random.below(KEYS).to_le_bytes();
            let mut payload = [0x5a; 64];
            payload[..8].copy_from_slice(&key);
            let mut request = request_of(engine, token, &payload);
            if keyed {
                request.key.copy_from_slice(&key);
            }
            request
        })
    };
    let unrelated = measure(false)?;
    let mut cost = measure(true)?;
    cost.what = format!(
        "64 bytes in and back, one get and one put of 64 bytes at the request's key, {KEYS} keys drawn evenly ({:.1} bare calls where the request's key is another one)",
        unrelated.calls()
    );
    Ok(cost)
}

fn start() -> Result<(f64, String)> {
    let mut engine = engine()?;
    let code = load(&engine, ECHO)?;
    let state = no_state();
    let mut us = Vec::new();
    for _ in 0..STARTS {
        let spec = spec("echo", &[]);
        let state = Rc::clone(&state);
        let start = Instant::now();
        engine.start(SERVICE, &code, spec, state)?;
        us.push(start.elapsed().as_nanos() as f64 / 1e3);
        let request = request_of(&mut engine, 1, &[1; 64]);
        engine.submit(SERVICE, request)?;
        while engine.run(Duration::from_millis(10)) {}
        let ended = engine.completions().count();
        if ended != 1 {
            return Err(BenchError::Lost(ended, 1));
        }
        engine.stop(SERVICE);
    }
    let worst = us.iter().copied().fold(0.0, f64::max);
    let note = format!(
        "median of {STARTS} starts from loaded code (each then served a request), worst {worst:.0} us"
    );
    Ok((median(us), note))
}

/// Requests arrive at set times, whatever the engine does; their wait counts from then.
fn preempt() -> Result<(f64, String)> {
    let mut engine = engine()?;
    let (echo, culprit) = (load(&engine, ECHO)?, load(&engine, LOOP)?);
    engine.start(SERVICE, &echo, spec("echo", &[]), no_state())?;
    engine.start(CULPRIT, &culprit, spec("endless", &[]), no_state())?;
    let endless = request_of(&mut engine, 0, &[]);
    engine.submit(CULPRIT, endless)?;
    let begin = Instant::now();
    let mut random = Random::new(1);
    let mut arrives = Duration::ZERO;
    let mut arrivals = Vec::new();
    for _ in 0..ARRIVALS {
        arrives += Duration::from_micros(300 + random.below(700));
        arrivals.push(arrives);
    }
    let mut waits_us = Vec::new();
    let mut next = 0;
    while waits_us.len() < ARRIVALS {
        let now = begin.elapsed();
        while next < ARRIVALS && arrivals[next] <= now {
            let request = request_of(&mut engine, next as u64, &[0x5a; 64]);
            engine.submit(SERVICE, request)?;
            next += 1;
        }
        engine.run(Duration::ZERO);
        let now = begin.elapsed();
        for (id, completion) in engine.completions() {
            if id == CULPRIT {
                return Err(BenchError::Lost(waits_us.len(), ARRIVALS));
            }
            let wait = now.saturating_sub(arrivals[completion.token as usize]);
            waits_us.push(wait.as_nanos() as f64 / 1e3);
        }
    }
    let culprit = engine.stats(CULPRIT).unwrap_or_default();
    waits_us.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| waits_us[((ARRIVALS - 1) as f64 * q) as usize];
    let note = format!(
        "{ARRIVALS} echo requests at set times on the core of an endless loop: p50 {:.0} us, max {:.0} us; \"{}\" was preempted {} times and lives",
        at(0.5),
        at(1.0),
        culprit.service,
        culprit.preemptions,
    );
    Ok((at(0.99), note))
}
