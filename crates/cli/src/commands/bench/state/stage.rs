//! A cluster of three nodes with a key-value store, and clients of it.

use crate::commands::chaos::own::Own;
use crate::documents::Sources;
use crate::documents::builtin;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use e3_bench::peers::{KEYS, Load, VALUE_LEN, key};
use e3_client::{Call, Client, ClientError, Completed, Event};
use e3_model::application::Durability;
use e3_model::{Bytes, Nanos, Timestamp};
use e3_random::Random;
use e3_wire::entry::Outcome;
use std::ops::Deref;
use std::time::{Duration, Instant};

pub const APP: &str = "kvs";
/// Of the application: it is deployed once.
pub const VERSION: u32 = 1;
const TOPOLOGY: &str = "3x-beefy";
/// How long a request may take.
const DEADLINE: Nanos = Nanos::from_secs(60);
/// Requests in flight while a state is filled.
const FILL_CLIENTS: usize = 64;
/// Values of a request that fills a state, and bytes of each: few large ones, or many small ones.
const FEW: (u64, u64) = (28, 1_000);
const MANY: (u64, u64) = (250, 64);

/// What is deployed.
pub struct Store {
    /// Shards.
    pub shards: u16,
    /// Copies of each.
    pub replicas: u16,
    /// What a commit waits for.
    pub durability: Durability,
    /// Memory of an instance.
    pub memory: Bytes,
}

/// The cluster.
pub struct Stage(Own);

impl Deref for Stage {
    type Target = Own;

    fn deref(&self) -> &Own {
        &self.0
    }
}

impl Stage {
    /// Starts it and deploys the store.
    pub fn start(store: &Store, sources: &Sources, settings: &Settings) -> Result<Stage, Failure> {
        let (text, mut app) = builtin::application(APP)?;
        for service in &mut app.spec.services {
            service.shards = store.shards;
            service.replicas = store.replicas;
            service.durability = Some(store.durability);
            service.resources.memory = store.memory;
        }
        let text = text.with(&app);
        Own::with(&text, &app, Some(TOPOLOGY), sources, settings).map(Stage)
    }

    /// A client that sends to the nodes that serve.
    pub fn sender(&self) -> Result<Client, Failure> {
        Client::new(&self.client.endpoints(APP)?, None).map_err(failed)
    }

    /// Stores about so many bytes of values; returns how many.
    pub fn fill(&self, bytes: u64) -> Result<u64, Failure> {
        let (values, len) = FEW;
        let requests = bytes.div_ceil(values * len);
        self.fill_with(requests, FEW)?;
        Ok(requests * values * len)
    }

    /// Stores at least so many keys with small values; returns how many.
    pub fn fill_keys(&self, keys: u64) -> Result<u64, Failure> {
        let (values, _) = MANY;
        let requests = keys.div_ceil(values);
        self.fill_with(requests, MANY)?;
        Ok(requests * values)
    }

    fn fill_with(&self, requests: u64, (values, len): (u64, u64)) -> Result<(), Failure> {
        let mut sender = self.sender()?;
        let (mut sent, mut done) = (0, 0);
        let stored = "STORED\r\n".repeat(values as usize);
        while done < requests {
            while sent < requests && sender.requests.in_flight() < FILL_CLIENTS {
                submit(&mut sender, fill_request(sent, values, len));
                sent += 1;
            }
            for c in completed(&mut sender)? {
                let reply = c.reply.map(|r| r.payload).unwrap_or_default();
                if reply != stored.as_bytes() {
                    let message = format!(
                        "the state is not stored: {}",
                        String::from_utf8_lossy(&reply)
                    );
                    return Err(Failure::new(Exit::Check, message));
                }
                done += 1;
            }
        }
        Ok(())
    }

    /// So many clients; each waits for its answer before its next write. A write that is refused because
    /// the cluster is overloaded is repeated, and its time goes on.
    pub fn write(&self, clients: usize, length: Duration) -> Result<Load, Failure> {
        let mut sender = self.sender()?;
        let mut random = Random::new(1);
        let mut latencies = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < length {
            while sender.requests.in_flight() < clients {
                submit(&mut sender, set(&key(random.below(KEYS))));
            }
            let (done, refused) = answered(&mut sender)?;
            latencies.extend(done.iter().map(|c| c.at.since(c.due)).map(Duration::from));
            for c in refused {
                let write = set(&key(random.below(KEYS)));
                submit_since(&mut sender, c.due, write);
            }
        }
        let length = begin.elapsed();
        // Nothing of this load is left for the next.
        while sender.requests.in_flight() > 0 {
            answered(&mut sender)?;
        }
        Ok(Load::of(latencies, length))
    }
}

/// Sends a request.
pub fn submit(sender: &mut Client, request: (String, String)) {
    let now = sender.now();
    submit_since(sender, now, request);
}

/// Sends a request that was due at that time.
fn submit_since(sender: &mut Client, due: Timestamp, (key, payload): (String, String)) {
    let call = Call {
        tag: 0,
        key: key.into_bytes(),
        payload: payload.into_bytes(),
    };
    let now = sender.now();
    sender.requests.submit(now, due, now + DEADLINE, call);
}

/// Sends what is due and takes the requests that are done; waits briefly for the first.
pub fn completed(sender: &mut Client) -> Result<Vec<Completed>, Failure> {
    wait(sender)?;
    take(sender)
}

/// The same with those that were refused because the cluster is overloaded.
fn answered(sender: &mut Client) -> Result<(Vec<Completed>, Vec<Completed>), Failure> {
    wait(sender)?;
    take_answered(sender)
}

fn wait(sender: &mut Client) -> Result<(), Failure> {
    let until = sender.now() + Nanos::from_millis(10);
    sender.turn(until).map_err(failed)
}

/// Takes the requests that are done. None may be refused.
pub fn take(sender: &mut Client) -> Result<Vec<Completed>, Failure> {
    let (done, refused) = take_answered(sender)?;
    match refused.first() {
        Some(c) => Err(not_done(c)),
        None => Ok(done),
    }
}

fn take_answered(sender: &mut Client) -> Result<(Vec<Completed>, Vec<Completed>), Failure> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    while let Some(event) = sender.requests.poll_event() {
        if let Event::Completed(c) = event {
            match c.reply.as_ref().map(|r| r.outcome) {
                Some(Outcome::Done) => done.push(c),
                Some(Outcome::Overloaded) => refused.push(c),
                _ => return Err(not_done(&c)),
            }
        }
    }
    Ok((done, refused))
}

fn not_done(c: &Completed) -> Failure {
    let outcome = c.reply.as_ref().map(|r| r.outcome);
    let message = format!("a request ended with {outcome:?}, not with a reply");
    Failure::new(Exit::Check, message)
}

/// A write of a value, with its routing key.
pub fn set(key: &str) -> (String, String) {
    let value = "v".repeat(VALUE_LEN);
    let payload = format!("set {key} 0 0 {VALUE_LEN}\r\n{value}\r\n");
    (key.to_string(), payload)
}

/// Many values under one routing key.
fn fill_request(number: u64, values: u64, len: u64) -> (String, String) {
    let value = "f".repeat(len as usize);
    let set = |n| format!("set f{number}-{n} 0 0 {len}\r\n{value}\r\n");
    let payload = (0..values).map(set).collect();
    (format!("f{number}"), payload)
}

/// A client that fails.
pub fn failed(e: ClientError) -> Failure {
    Failure::new(Exit::Unexpected, e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::limits::PAYLOAD_LEN_MAX;

    #[test]
    fn a_request_that_fills_is_no_longer_than_any_may_be() {
        for (values, len) in [FEW, MANY] {
            let (key, payload) = fill_request(u64::from(u32::MAX), values, len);
            assert!(payload.len() <= PAYLOAD_LEN_MAX, "{}", payload.len());
            assert_eq!(key, "f4294967295");
        }
    }
}
