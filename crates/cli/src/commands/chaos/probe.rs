//! A client that sends requests to one shard without a pause and records when each answer came.

use crate::cluster::client::Client;
use crate::limits::{CHAOS_DEADLINE, PROBE_INTERVAL};
use crate::ui::failure::{Exit, Failure};
use e3_client::{Call, Client as Sender, ClientError, Event};
use e3_model::{Nanos, Slot, Timestamp};
use e3_wire::entry::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender as Tell;
use std::time::Instant;

/// An answer of the application: when its request was sent, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When its request was sent.
    pub sent: Instant,
    /// When it came.
    pub came: Instant,
}

/// A key of a shard, of so many.
pub fn key_of(shard: u16, shards: u16) -> String {
    let mut keys = (0u32..).map(|n| format!("probe{n}"));
    let found = keys.find(|key| Slot::of(key.as_bytes()).shard(shards).0 == shard);
    found.unwrap_or_default()
}

/// Sends requests for a key until `over`, to all nodes but one, and reports each answer.
pub fn run(
    client: &Client,
    app: &str,
    key: &str,
    without: &str,
    over: &AtomicBool,
    tell: &Tell<Answer>,
) -> Result<(), Failure> {
    let mut endpoints = client.endpoints(app)?;
    // Any node accepts any request: the time that a client needs to find another node is not measured.
    endpoints.shards.clear();
    endpoints.nodes.retain(|node| node != without);
    let failed = |e: ClientError| Failure::new(Exit::Unexpected, e);
    let mut sender = Sender::new(&endpoints, None).map_err(failed)?;
    let (begin, zero) = (Instant::now(), sender.now());
    let at = |time: Timestamp| begin + std::time::Duration::from_nanos(time.since(zero).0);
    let interval = Nanos::from(PROBE_INTERVAL);
    let mut due = zero;
    while !over.load(Ordering::Relaxed) {
        let now = sender.now();
        if now >= due {
            let call = Call {
                tag: now.since(zero).0,
                key: key.as_bytes().to_vec(),
                payload: format!("get {key}\r\n").into_bytes(),
            };
            let until = now + Nanos::from(CHAOS_DEADLINE);
            sender.requests.submit(now, now, until, call);
            due = now + interval;
        }
        sender.turn(due).map_err(failed)?;
        while let Some(event) = sender.requests.poll_event() {
            if let Event::Completed(c) = event
                && c.reply.is_some_and(|r| r.outcome == Outcome::Done)
            {
                let sent = at(zero + Nanos(c.tag));
                let _ = tell.send(Answer {
                    sent,
                    came: at(c.at),
                });
            }
        }
    }
    Ok(())
}
