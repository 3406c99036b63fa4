//! Requests of clients from arrival to outcome, without I/O.
//!
//! A request is passed to the worker and repeated until there is an answer: an answer can be lost
//! with the node that gives it. Clients that send the same request with the same idempotency key
//! while it is in flight wait for one answer together. That the worker has not taken a request
//! (overloaded, rejected) counts only for the first attempt: later, an earlier one may be in flight.

use crate::keys::Keys;
use crate::limits::*;
use e3_client_core::Backoff;
use e3_model::{AppId, Nanos, RequestId, Timestamp, TraceContext};
use e3_random::Random;
use e3_wire::client::Request;
use e3_wire::entry::{Outcome, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a client asks of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Name of the application.
    pub app: String,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
    /// Identifies repeats of the request, also at another node.
    pub idempotency_key: Option<Vec<u8>>,
    /// Time from now to the deadline.
    pub timeout: Nanos,
}

/// Outcome of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Identity of the request.
    pub id: RequestId,
    /// Attempts that this node made.
    pub attempts: u32,
    /// The result.
    pub result: Result,
}

/// Result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Result {
    /// The platform's answer.
    Reply(Reply),
    /// The node is overloaded; nothing was done.
    Overloaded {
        /// Seconds after which a retry should be admitted.
        wait_s: u64,
    },
    /// There was no answer until after the deadline: the outcome of the request is unknown.
    NoAnswer,
    /// The application was deleted meanwhile.
    Deleted,
    /// The node stopped meanwhile: the outcome of the request is unknown.
    Stopped,
}

/// Why a call was not taken. Nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The node has no plan, or stops.
    NotReady,
    /// There is no such application.
    NoApp {
        /// Names of those that there are.
        known: Vec<String>,
    },
    /// Too many requests are in flight.
    Overloaded {
        /// Seconds after which a retry should be admitted.
        wait_s: u64,
    },
    /// The idempotency key was used for another request.
    KeyReused,
    /// The deadline is further ahead than the application allows.
    DeadlineTooLong {
        /// What was asked for.
        timeout: Nanos,
        /// The longest.
        timeout_max: Nanos,
    },
}

/// An application that the node serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Its id.
    pub id: AppId,
    /// In whose name the identities of requests with an idempotency key are made.
    pub identity: AppId,
    /// The longest time from now to the deadline of a request.
    pub timeout_max: Nanos,
}

type Key = (AppId, RequestId);

#[derive(Debug)]
struct Pending {
    key: Vec<u8>,
    payload: Vec<u8>,
    is_keyed: bool,
    since: Timestamp,
    attempts: u32,
    expired: u32,
    backoff: Backoff,
    timer: Timestamp,
    waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: u64,
    deadline: Timestamp,
}

impl Pending {
    fn deadline(&self) -> Timestamp {
        let deadlines = self.waiters.iter().map(|w| w.deadline);
        deadlines.max().unwrap_or_default()
    }

    /// When the first client gets "no answer".
    fn give_up(&self) -> Timestamp {
        let deadlines = self.waiters.iter().map(|w| w.deadline);
        deadlines.min().unwrap_or_default() + ANSWER_GRACE
    }
}

/// All requests of one node's clients.
#[derive(Debug)]
pub struct Calls {
    apps: Option<BTreeMap<String, Served>>,
    pending: BTreeMap<Key, Pending>,
    timers: BTreeSet<(Timestamp, Key)>,
    /// For waits between attempts.
    random: Random,
    keys: Keys,
    /// Names the requests without idempotency key, with numbers from 1.
    client: u64,
    next_seq: u64,
    /// How long requests took lately.
    latency: BTreeMap<AppId, u64>,
    requests: VecDeque<Request>,
    given: VecDeque<(u64, Given)>,
    waiting: usize,
    next_ticket: u64,
}

impl Calls {
    /// No calls. `client` must never have been used before.
    pub fn new(client: u64) -> Calls {
        Calls {
            apps: None,
            pending: BTreeMap::new(),
            timers: BTreeSet::new(),
            random: Random::new(client),
            keys: Keys::default(),
            client,
            next_seq: 1,
            latency: BTreeMap::new(),
            requests: VecDeque::new(),
            given: VecDeque::new(),
            waiting: 0,
            next_ticket: 0,
        }
    }

    /// Whether the node has a plan.
    pub fn is_ready(&self) -> bool {
        self.apps.is_some()
    }

    /// Takes the applications that there are now; None while the node has no plan.
    pub fn set_apps(&mut self, apps: Option<BTreeMap<String, Served>>) {
        self.apps = apps;
        let Some(apps) = &self.apps else { return };
        let ids: BTreeSet<AppId> = apps.values().map(|app| app.id).collect();
        self.latency.retain(|app, _| ids.contains(app));
        let gone = |(app, _): &&Key| !ids.contains(app);
        let gone: Vec<Key> = self.pending.keys().filter(gone).copied().collect();
        for key in gone {
            self.give_all(key, Result::Deleted);
        }
    }

    /// Answers all clients that the node stops.
    pub fn close(&mut self) {
        self.apps = None;
        while let Some(key) = self.pending.keys().next().copied() {
            self.give_all(key, Result::Stopped);
        }
    }

    /// The application of a name.
    pub fn app(&self, name: &str) -> std::result::Result<Served, Refused> {
        let apps = self.apps.as_ref().ok_or(Refused::NotReady)?;
        apps.get(name).copied().ok_or_else(|| Refused::NoApp {
            known: apps.keys().cloned().collect(),
        })
    }

    /// Takes a call; gives the number under which its outcome comes.
    pub fn submit(&mut self, now: Timestamp, call: Call) -> std::result::Result<u64, Refused> {
        let Served {
            id: app,
            identity,
            timeout_max,
        } = self.app(&call.app)?;
        if call.timeout > timeout_max {
            return Err(Refused::DeadlineTooLong {
                timeout: call.timeout,
                timeout_max,
            });
        }
        if self.waiting >= CALLS_MAX {
            let wait_s = self.overload_wait_s(app);
            return Err(Refused::Overloaded { wait_s });
        }
        let id = match &call.idempotency_key {
            Some(key) => crate::identity::keyed(identity, key, &call.key, &call.payload),
            None => RequestId {
                client: self.client,
                seq: self.next_seq,
            },
        };
        let is_keyed = call.idempotency_key.is_some();
        if is_keyed && (self.keys.has_other(app, id) || self.is_elsewhere(app, id, &call.key)) {
            return Err(Refused::KeyReused);
        }
        if !is_keyed {
            self.next_seq += 1;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let deadline = now + call.timeout;
        let waiter = Waiter { ticket, deadline };
        if let Some(pending) = self.pending.get_mut(&(app, id)) {
            pending.waiters.push(waiter);
            let first = pending.timer.min(pending.give_up());
            self.set_timer((app, id), first);
            return Ok(ticket);
        }
        let pending = Pending {
            key: call.key,
            payload: call.payload,
            is_keyed,
            since: now,
            attempts: 0,
            expired: 0,
            backoff: Backoff::default(),
            timer: now,
            waiters: vec![waiter],
        };
        self.pending.insert((app, id), pending);
        self.attempt(now, (app, id));
        Ok(ticket)
    }

    /// Whether a request in flight has the same idempotency key and another routing key: the two
    /// would not meet at a shard.
    fn is_elsewhere(&self, app: AppId, id: RequestId, key: &[u8]) -> bool {
        let client = id.client;
        let of = |seq| (app, RequestId { client, seq });
        let mut same = self.pending.range(of(0)..=of(u64::MAX));
        same.any(|(_, p)| p.is_keyed && p.key != key)
    }

    fn set_timer(&mut self, key: Key, at: Timestamp) {
        let Some(pending) = self.pending.get_mut(&key) else {
            return;
        };
        self.timers.remove(&(pending.timer, key));
        pending.timer = at;
        self.timers.insert((at, key));
    }

    /// Passes an attempt of a request to the worker.
    fn attempt(&mut self, now: Timestamp, key: Key) {
        // Answers to the requests of this client below its first open one are not needed any more.
        let of_client = |seq| {
            let client = self.client;
            (key.0, RequestId { client, seq })
        };
        let mut open = self.pending.range(of_client(0)..=of_client(u64::MAX));
        let oldest = open.next().map_or(1, |((_, id), _)| id.seq);
        let Some(pending) = self.pending.get_mut(&key) else {
            return;
        };
        let request = Request {
            app: key.0,
            id: key.1,
            attempt: 0,
            deadline: pending.deadline(),
            sent: pending.since,
            oldest_seq: if pending.is_keyed { 0 } else { oldest },
            trace: TraceContext {
                trace: u128::from(key.1.client) << 64 | u128::from(key.1.seq),
                span: key.1.seq,
                flags: 0,
            },
            key: pending.key.clone(),
            payload: pending.payload.clone(),
        };
        pending.attempts = pending.attempts.saturating_add(1);
        let at = (now + pending.backoff.next_wait(&mut self.random)).min(pending.give_up());
        // Without a plan the worker would only refuse it.
        if self.apps.is_some() {
            self.requests.push_back(request);
        }
        self.set_timer(key, at);
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.timers.first().copied()
            && at <= now
        {
            let pending = self.pending.get_mut(&key).expect("timers are of pending");
            let late = |w: &&Waiter| w.deadline + ANSWER_GRACE <= now;
            let late: Vec<Waiter> = pending.waiters.iter().filter(late).copied().collect();
            for waiter in late {
                self.give(key, waiter.ticket, Result::NoAnswer);
            }
            let Some(pending) = self.pending.get(&key) else {
                continue;
            };
            if now < pending.deadline() {
                self.attempt(now, key);
            } else {
                let at = pending.give_up();
                self.set_timer(key, at);
            }
        }
    }

    /// Takes the worker's answer.
    pub fn on_answer(&mut self, now: Timestamp, app: AppId, id: RequestId, reply: Reply) {
        let key = (app, id);
        let Some(pending) = self.pending.get_mut(&key) else {
            return;
        };
        match reply.outcome {
            Outcome::Overloaded | Outcome::Rejected if pending.attempts > 1 => {}
            Outcome::Overloaded => {
                let wait_s = self.overload_wait_s(app);
                self.give_all(key, Result::Overloaded { wait_s });
            }
            // An earlier, shorter deadline has passed, that of a repeat has not.
            Outcome::Expired | Outcome::Unknown
                if now < pending.deadline()
                    && pending.expired < EXPIRED_RETRIES_MAX
                    && (pending.is_keyed || reply.outcome == Outcome::Expired) =>
            {
                pending.expired += 1;
                let at = (now + EXPIRED_RETRY_AFTER).min(pending.give_up());
                self.set_timer(key, at);
            }
            Outcome::Rejected | Outcome::Conflict => self.give_all(key, Result::Reply(reply)),
            Outcome::Done | Outcome::Failed | Outcome::Expired | Outcome::Unknown => {
                let took = now.since(pending.since).0;
                let is_keyed = pending.is_keyed;
                let latency = self.latency.entry(app).or_insert(took);
                *latency = (*latency * 7 + took) / 8;
                if is_keyed {
                    self.keys.insert(app, id);
                }
                self.give_all(key, Result::Reply(reply));
            }
        }
    }

    /// What is in flight now is done in about the time that requests took lately.
    fn overload_wait_s(&self, app: AppId) -> u64 {
        let latency = self.latency.get(&app).copied().unwrap_or(0);
        let (least, most) = OVERLOAD_WAIT_S;
        latency.div_ceil(1_000_000_000).clamp(least, most)
    }

    fn give_all(&mut self, key: Key, result: Result) {
        let waiters = self.pending.get(&key).map(|p| p.waiters.clone());
        for waiter in waiters.into_iter().flatten() {
            self.give(key, waiter.ticket, result.clone());
        }
    }

    /// Ends one client's wait; the request is forgotten with its last client.
    fn give(&mut self, key: Key, ticket: u64, result: Result) {
        let Some(pending) = self.pending.get_mut(&key) else {
            return;
        };
        pending.waiters.retain(|w| w.ticket != ticket);
        self.waiting -= 1;
        let given = Given {
            id: key.1,
            attempts: pending.attempts,
            result,
        };
        self.given.push_back((ticket, given));
        if pending.waiters.is_empty() {
            self.timers.remove(&(pending.timer, key));
            self.pending.remove(&key);
        }
    }

    /// Next request for the worker.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Next outcome, with the number of its call.
    pub fn poll_given(&mut self) -> Option<(u64, Given)> {
        self.given.pop_front()
    }

    /// When [`Calls::on_timer`] wants to be called.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
