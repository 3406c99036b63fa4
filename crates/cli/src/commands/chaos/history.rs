//! A history of a key-value store: what several clients asked, when, and the answers. An independent
//! checker (`checks/linearizability`) decides whether the history is linearizable.
//!
//! Clients share few keys, and each has one request in flight. Every value is written once, so the
//! value that a client read names the version that its `cas` expects. Now and then a client vanishes
//! with its request in flight, and a new one takes its place: such a request may take effect at any
//! later time, or never. Keys are used for only a few seconds, so that each has few such requests.

use crate::cluster::client::Client;
use crate::limits::{
    HISTORY_CLIENTS, HISTORY_KEY_TIME, HISTORY_KEYS, HISTORY_PAUSE_MAX_MS, HISTORY_VANISH_ONE_IN,
};
use crate::ui::failure::{Exit, Failure};
use e3_client::{Call, Client as Sender, ClientError, is_refusal};
use e3_model::Nanos;
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Read the value.
    Get,
    /// Write it.
    Set,
    /// Remove it.
    Delete,
    /// Write it if it is still the one that was read.
    Cas,
}

/// One request and its answer: a line of the history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Operation {
    client: u64,
    key: String,
    op: Op,
    /// The value that `cas` expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    /// The value to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// When it was asked, in nanoseconds since the history began.
    call: u64,
    /// When the answer came; None if it never did.
    #[serde(rename = "return")]
    end: Option<u64>,
    /// The value read, or the outcome of a write; None if it is unknown or a read found nothing.
    result: Option<String>,
}

/// Where the clients send their requests.
pub struct Clients<'a> {
    /// The controller.
    pub client: &'a Client,
    /// The application.
    pub app: &'a str,
    /// The seed of the requests.
    pub seed: u64,
    /// The time from sending to the deadline of a request.
    pub deadline: Duration,
    /// A part of the keys that is unique to this history.
    pub run: u64,
}

/// A value with the number that `cas` names it by.
type Version = (String, u64);

impl Clients<'_> {
    /// Runs the clients until `over`.
    pub fn run(&self, over: &AtomicBool) -> Result<Vec<Operation>, Failure> {
        let begin = Instant::now();
        let mut all = Vec::new();
        let panicked = |_| Failure::new(Exit::Unexpected, "a client of the history has panicked");
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..HISTORY_CLIENTS)
                .map(|n| scope.spawn(move || self.one(n, begin, over)))
                .collect();
            for thread in threads {
                all.extend(thread.join().map_err(panicked)??);
            }
            Ok::<(), Failure>(())
        })?;
        all.sort_by_key(|o: &Operation| o.call);
        Ok(all)
    }

    fn sender(&self) -> Result<Sender, Failure> {
        let (client, app) = (self.client.clone(), self.app.to_string());
        let refresh = move || client.endpoints(&app).ok();
        // The controller may be away; a client that starts then waits for it.
        let begin = Instant::now();
        let endpoints = loop {
            match refresh() {
                Some(endpoints) => break endpoints,
                None if begin.elapsed() < self.deadline => {
                    std::thread::sleep(crate::limits::POLL_INTERVAL);
                }
                None => {
                    return Err(Failure::new(
                        Exit::Unreachable,
                        "the controller does not respond",
                    ));
                }
            }
        };
        Sender::new(&endpoints, Some(Box::new(refresh))).map_err(failed)
    }

    /// Runs one client after another, on one thread.
    fn one(&self, n: u64, begin: Instant, over: &AtomicBool) -> Result<Vec<Operation>, Failure> {
        let mut random = Random::new(self.seed ^ (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut sender = self.sender()?;
        // After a client has vanished, a new one takes its place.
        let mut client = n;
        let mut seen: BTreeMap<String, Version> = BTreeMap::new();
        let mut all = Vec::new();
        for number in 0u64.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let epoch = begin.elapsed().as_nanos() / HISTORY_KEY_TIME.as_nanos();
            let key = random.below(HISTORY_KEYS);
            let key = format!("h{:x}-{epoch}-{key}", self.run);
            let value = format!("{client}.{number}");
            let (op, payload) = request(&mut random, &key, &value, seen.get(&key));
            let mut operation = Operation {
                client,
                expected: (op == Op::Cas).then(|| seen[&key].0.clone()),
                value: matches!(op, Op::Set | Op::Cas).then_some(value),
                key: key.clone(),
                op,
                call: 0,
                end: None,
                result: None,
            };
            operation.call = begin.elapsed().as_nanos() as u64;
            if random.one_in(HISTORY_VANISH_ONE_IN) {
                vanish(&mut sender, key, payload, self.deadline)?;
                sender = self.sender()?;
                client += HISTORY_CLIENTS;
                all.push(operation);
                continue;
            }
            let deadline = Nanos::from(self.deadline);
            let completed = sender.call(key.as_bytes(), &payload, deadline);
            let reply = completed.map_err(failed)?.reply;
            operation.end = Some(begin.elapsed().as_nanos() as u64);
            if !record(&mut operation, reply.as_ref(), &mut seen)? {
                continue;
            }
            all.push(operation);
            std::thread::sleep(Duration::from_millis(random.below(HISTORY_PAUSE_MAX_MS)));
        }
        Ok(all)
    }
}

/// Sends a request and vanishes before the answer.
fn vanish(
    sender: &mut Sender,
    key: String,
    payload: Vec<u8>,
    deadline: Duration,
) -> Result<(), Failure> {
    let now = sender.now();
    let call = Call {
        tag: 0,
        key: key.into_bytes(),
        payload,
    };
    let until = now + Nanos::from(deadline);
    sender.requests.submit(now, now, until, call);
    sender.turn(now).map_err(failed)
}

/// The next request, in memcached's protocol.
fn request(random: &mut Random, key: &str, value: &str, seen: Option<&Version>) -> (Op, Vec<u8>) {
    let len = value.len();
    let (op, text) = match (random.below(10), seen) {
        (0..4, _) => (Op::Get, format!("gets {key}\r\n")),
        (4..7, Some((_, version))) => (
            Op::Cas,
            format!("cas {key} 0 0 {len} {version}\r\n{value}\r\n"),
        ),
        (7, _) => (Op::Delete, format!("delete {key}\r\n")),
        _ => (Op::Set, format!("set {key} 0 0 {len}\r\n{value}\r\n")),
    };
    (op, text.into_bytes())
}

/// Takes an answer; false if the request certainly had no effect.
fn record(
    operation: &mut Operation,
    reply: Option<&Reply>,
    seen: &mut BTreeMap<String, Version>,
) -> Result<bool, Failure> {
    let reply = match reply {
        Some(reply) if reply.outcome == Outcome::Done => reply,
        Some(reply) if is_refusal(reply.outcome) => return Ok(false),
        // Expired or dead-lettered in one attempt, it may have taken effect in another.
        _ => {
            operation.end = None;
            return Ok(operation.op != Op::Get);
        }
    };
    let text = String::from_utf8_lossy(&reply.payload).into_owned();
    let wrong = || {
        let (op, key) = (operation.op, &operation.key);
        let message = format!("the answer to {op:?} {key} is {text:?}");
        Failure::new(Exit::Check, message).hint("a history needs an application like kvs")
    };
    if operation.op != Op::Get {
        let known = ["STORED", "EXISTS", "NOT_FOUND", "DELETED"];
        let word = text.trim_end();
        if !known.contains(&word) {
            return Err(wrong());
        }
        operation.result = Some(word.to_string());
        return Ok(true);
    }
    if text != "END\r\n" {
        let (value, version) = item(&text).ok_or_else(wrong)?;
        operation.result = Some(value.clone());
        seen.insert(operation.key.clone(), (value, version));
    }
    Ok(true)
}

/// Value and version in the answer to `gets`.
fn item(text: &str) -> Option<Version> {
    let mut lines = text.split("\r\n");
    let version = lines.next()?.strip_prefix("VALUE ")?.split(' ').nth(3)?;
    Some((lines.next()?.to_string(), version.parse().ok()?))
}

/// Creates the file of a history.
pub fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|e| Failure::file("write", path, &e))
}

/// Writes a history, one line each.
pub fn write(path: &Path, file: File, history: &[Operation]) -> Result<(), Failure> {
    let failure = |e: std::io::Error| Failure::file("write", path, &e);
    let mut file = std::io::BufWriter::new(file);
    for operation in history {
        let line = serde_json::to_string(operation).map_err(|e| failure(e.into()))?;
        writeln!(file, "{line}").map_err(failure)?;
    }
    file.flush().map_err(failure)
}

fn failed(error: ClientError) -> Failure {
    Failure::new(Exit::Unexpected, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(op: Op) -> Operation {
        Operation {
            client: 1,
            key: "k".into(),
            op,
            expected: None,
            value: None,
            call: 1,
            end: Some(2),
            result: None,
        }
    }

    fn answer(outcome: Outcome, text: &str) -> Reply {
        Reply {
            outcome,
            status: 0,
            payload: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn answers_become_results() {
        let mut seen = BTreeMap::new();
        let mut get = operation(Op::Get);
        let found = answer(Outcome::Done, "VALUE k 0 3 17\r\n4.2\r\nEND\r\n");
        assert!(record(&mut get, Some(&found), &mut seen).unwrap());
        assert_eq!(get.result.as_deref(), Some("4.2"));
        assert_eq!(seen["k"], ("4.2".to_string(), 17));
        let mut set = operation(Op::Set);
        let stored = answer(Outcome::Done, "STORED\r\n");
        assert!(record(&mut set, Some(&stored), &mut seen).unwrap());
        assert_eq!((set.end, set.result.as_deref()), (Some(2), Some("STORED")));
        let other = answer(Outcome::Done, "hello");
        assert!(record(&mut set, Some(&other), &mut seen).is_err());
    }

    #[test]
    fn what_nobody_knows_has_no_end() {
        let mut seen = BTreeMap::new();
        let refused = answer(Outcome::Overloaded, "");
        let expired = answer(Outcome::Expired, "");
        for (reply, op, recorded) in [
            (Some(&refused), Op::Set, false),
            (Some(&expired), Op::Set, true),
            (None, Op::Cas, true),
            (None, Op::Get, false),
        ] {
            let mut o = operation(op);
            assert_eq!(record(&mut o, reply, &mut seen).unwrap(), recorded);
            assert_eq!(o.end, if recorded { None } else { o.end });
        }
    }
}
