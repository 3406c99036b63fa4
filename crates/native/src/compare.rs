//! Measures a service in WebAssembly against itself compiled natively.
//!
//! Both sides handle the same requests in the same order, so their collections stay equal. Before and
//! after the measurement the effects of each request are compared byte for byte: writes, messages and
//! reply. Rounds alternate on one thread and are timed by its processor time; the result is the ratio
//! of the medians.

use crate::NativeError;
use crate::cases::Case;
use crate::side::{Side, same_random};
use e3_bench::{Better, Figure, median};
use e3_engine::Solo;
use e3_invocation::{Completion, Effects, Invocation, Outcome};
use e3_model::{MessageId, Nanos, RequestId, Slot, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// Requests that are queued together, as on a busy node.
const BATCH: usize = 64;
/// Approximate time of a round of the slower side.
const ROUND: Duration = Duration::from_millis(10);
/// Time on the application's clock from one request to the next.
const STEP: Nanos = Nanos::from_micros(10);
/// Start of that clock.
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);
/// Time of the first reading, and the time between two readings, in seconds.
const READINGS_S: (u32, u32) = (1_700_000_000, 2);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of each side.
    pub rounds: usize,
    /// Requests that are compared before the measurement, and again after it.
    pub compared: usize,
}

/// The ratio to its native self that a service should reach.
const AIM: f64 = 0.5;
/// The same for a service whose work is mostly done by accelerators.
const AIM_ACCELERATED: f64 = 0.9;

/// The measurement of a service.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The service.
    pub name: &'static str,
    /// What its requests are.
    pub requests: &'static str,
    /// Bytes of a request, on average.
    pub bytes: f64,
    /// Whether accelerators do most of its work.
    pub accelerated: bool,
    /// Requests per second on one core in WebAssembly, of the median round.
    pub rps: f64,
    /// The same compiled natively.
    pub native_rps: f64,
    /// Rounds of each side.
    pub rounds: usize,
    /// Requests of a round.
    pub round_requests: usize,
    /// Requests whose effects were compared.
    pub compared: usize,
}

impl Comparison {
    /// Both rates, and their ratio with its aim.
    pub fn figures(&self) -> [Figure; 3] {
        let figure = |what: &str, value, unit| {
            let name = format!("services.{}.{what}", self.name);
            Figure::new(name, value, unit, Better::Higher)
        };
        let how = format!(
            "{} (on average {:.0} bytes); {} alternating rounds of {}, effects of {} requests compared",
            self.requests, self.bytes, self.rounds, self.round_requests, self.compared
        );
        let (aim, what) = if self.accelerated {
            (AIM_ACCELERATED, "; lives on accelerators")
        } else {
            (AIM, "")
        };
        let times = format!(
            "{:.0} ns a request, natively {:.0} ns{what}",
            1e9 / self.rps,
            1e9 / self.native_rps
        );
        let ratio = self.rps / self.native_rps;
        [
            figure("rps", self.rps, "requests/s").note(how),
            figure("native_rps", self.native_rps, "requests/s").note("compiled natively"),
            figure("wasm_over_native", ratio, "of native")
                .aim(aim)
                .note(times),
        ]
    }
}

/// A side with its place in the stream of requests.
struct Runner<'a> {
    side: &'a mut dyn Side,
    case: &'a Case,
    sequence: u64,
    ended: Vec<Completion>,
    batch: Vec<Invocation>,
}

impl<'a> Runner<'a> {
    fn new(side: &'a mut dyn Side, case: &'a Case) -> Runner<'a> {
        Runner {
            side,
            case,
            sequence: 0,
            ended: Vec::with_capacity(BATCH),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Handles the next requests of the stream; returns the time it took.
    fn batch(&mut self) -> Result<Duration, NativeError> {
        for _ in 0..BATCH {
            let all = &self.case.requests;
            let (key, payload) = &all[self.sequence as usize % all.len()];
            self.sequence += 1;
            let mut payload = self.side.buffer(payload);
            if let Some(mark) = self.case.time_mark
                && let Some(at) = payload.windows(4).position(|bytes| bytes == mark)
            {
                let time = READINGS_S.0 + self.sequence as u32 * READINGS_S.1;
                payload[at..at + 4].copy_from_slice(&time.to_be_bytes());
            }
            let request = RequestId {
                client: 1,
                seq: self.sequence,
            };
            self.batch.push(Invocation {
                token: self.sequence,
                id: MessageId::ingress(request),
                timer: None,
                answer: None,
                topic: None,
                is_call: false,
                state_bytes_max: u64::MAX,
                now: START + STEP * self.sequence,
                slot: Slot::of(key),
                key: self.side.buffer(key),
                payload,
            });
        }
        let begin = on_core();
        self.side.call_all(&mut self.batch, &mut self.ended)?;
        let took = on_core().saturating_sub(begin);
        match self.ended.len() {
            BATCH => Ok(took),
            ended => Err(NativeError::Lost(ended, BATCH)),
        }
    }

    /// Nanoseconds per request in a round of this many batches.
    fn round(&mut self, batches: usize) -> Result<f64, NativeError> {
        let mut took = Duration::ZERO;
        for _ in 0..batches {
            took += self.batch()?;
            for completion in self.ended.drain(..) {
                give_back(self.side, effects(completion)?);
            }
        }
        Ok(took.as_nanos() as f64 / (batches * BATCH) as f64)
    }
}

/// Processor time of this thread.
fn on_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Gives the buffers of the effects back for reuse.
fn give_back(side: &mut dyn Side, effects: Effects) {
    side.recycle(black_box(effects.writes).into_bytes());
    for output in effects.outputs {
        side.recycle(output.key);
        side.recycle(output.payload);
    }
    if let Some(reply) = effects.reply {
        side.recycle(reply.payload);
    }
}

fn effects(completion: Completion) -> Result<Effects, NativeError> {
    match completion.outcome {
        Outcome::Completed(effects) => Ok(effects),
        Outcome::Failed(failed) => Err(failed.error.into()),
    }
}

/// Handles requests on both sides and compares their effects.
fn agree(wasm: &mut Runner, native: &mut Runner, requests: usize) -> Result<usize, NativeError> {
    let mut compared = 0;
    while compared < requests {
        wasm.batch()?;
        native.batch()?;
        let both = wasm.ended.drain(..).zip(native.ended.drain(..));
        for (a, b) in both {
            let number = a.token;
            let (a, b) = (effects(a)?, effects(b)?);
            if let Some(refused) = a.reply.as_ref().filter(|r| r.status != 0) {
                let text = String::from_utf8_lossy(&refused.payload).into_owned();
                return Err(NativeError::Refused(number, refused.status, text));
            }
            let same = [
                ("writes", a.writes == b.writes),
                ("messages", a.outputs == b.outputs),
                ("reply", a.reply == b.reply),
            ];
            if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
                return Err(NativeError::Differ(number, what));
            }
            give_back(wasm.side, a);
            give_back(native.side, b);
            compared += 1;
        }
    }
    Ok(compared)
}

/// Measures one service, whose module is in this directory.
pub fn measure(case: &Case, services: &Path, effort: Effort) -> Result<Comparison, NativeError> {
    let file = services.join(format!("{}.wasm", case.name));
    let module = std::fs::read(&file).map_err(|e| NativeError::Module(file, e))?;
    let mut solo = Solo::start_with(&module, case.spec.clone(), |config| {
        config.random = same_random();
    })?;
    let mut native = (case.native)(case.spec.clone())?;
    let mut wasm = Runner::new(&mut solo, case);
    let mut native = Runner::new(&mut *native, case);
    let mut compared = agree(&mut wasm, &mut native, effort.compared)?;
    let slower = wasm.round(1)?.max(native.round(1)?);
    let batches = (ROUND.as_nanos() as f64 / slower / BATCH as f64).ceil() as usize;
    let (mut wasm_ns, mut native_ns) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        // each side goes first in every second round
        if round % 2 == 0 {
            wasm_ns.push(wasm.round(batches)?);
            native_ns.push(native.round(batches)?);
        } else {
            native_ns.push(native.round(batches)?);
            wasm_ns.push(wasm.round(batches)?);
        }
    }
    compared += agree(&mut wasm, &mut native, effort.compared)?;
    let bytes: usize = case.requests.iter().map(|(_, payload)| payload.len()).sum();
    Ok(Comparison {
        name: case.name,
        requests: case.about,
        bytes: bytes as f64 / case.requests.len() as f64,
        accelerated: case.accelerated,
        rps: 1e9 / median(wasm_ns),
        native_rps: 1e9 / median(native_ns),
        rounds: effort.rounds,
        round_requests: batches * BATCH,
        compared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aim_is_that_of_the_kind_of_service() {
        let ratio = |accelerated| {
            let comparison = Comparison {
                name: "a",
                requests: "packets",
                bytes: 512.0,
                accelerated,
                rps: 80.0,
                native_rps: 100.0,
                rounds: 3,
                round_requests: 64,
                compared: 8,
            };
            let [rps, native, ratio] = comparison.figures();
            assert_eq!((rps.value, native.pass), (Some(80.0), None));
            (ratio.name, ratio.pass)
        };
        let name = || "services.a.wasm_over_native".to_string();
        assert_eq!(ratio(true), (name(), Some(false)));
        assert_eq!(ratio(false), (name(), Some(true)));
    }
}
