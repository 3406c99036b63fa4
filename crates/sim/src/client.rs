//! A client of a simulated cluster. It keeps a ledger: every request must have exactly one outcome.
//!
//! It uses the protocol of real clients ([`e3_client_core::Requests`]); the cluster drives it.

use crate::clock::SimClock;
use crate::network::node_address;
use e3_client_core::{Call, Completed, Event, Requests, Routes};
use e3_model::{Address, AppId, MessageId, Nanos, RequestId, ShardKey, Timestamp};
use e3_random::Random;
use e3_wire::client::DeadLetters;
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Outcome, Reply};
use std::collections::BTreeMap;

/// How long a client waits for the dead letters of a shard.
const READ_DEADLINE: Nanos = Nanos::from_secs(10);

/// A client of a simulated cluster.
#[derive(Debug)]
pub struct Client {
    /// Its id in request identities.
    pub id: u64,
    app: AppId,
    requests: Requests,
    /// Requests and replays without an outcome, by their number in the protocol.
    in_flight: BTreeMap<u64, Sent>,
    /// The outcome of each request, by its number.
    pub outcomes: BTreeMap<u64, Reply>,
    /// The number of each request, by its number in the protocol.
    numbers: BTreeMap<u64, u64>,
    /// The last answer about dead letters, by shard.
    pub dead_letters: BTreeMap<ShardKey, DeadLetters>,
    /// Replies that contradict the first one.
    pub contradictions: u64,
    sent: u64,
    /// If set, its requests have idempotency keys, and each attempt has a new deadline this far ahead.
    keyed: Option<Nanos>,
    /// How often it repeats a request with a key whose outcome is unknown.
    pub unknown_repeats: u32,
    /// When the cluster will next call [`Client::on_timer`].
    pub(crate) tick_at: Timestamp,
    /// Its clock.
    pub clock: SimClock,
    /// The nodes that it knows; empty if it knows only those that are up.
    pub nodes: Vec<u32>,
    /// The primaries of the shards whose dead letters it reads or replays, as the controller says.
    pub primaries: BTreeMap<ShardKey, u32>,
    /// How many different keys its requests have.
    pub keys: u64,
    /// The requests that it still has to send.
    pub load: Option<Load>,
    /// It sends and receives nothing any more.
    pub has_vanished: bool,
    /// Every request, in the order of sending.
    pub history: Vec<Request>,
}

/// The requests that a client is to send.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many are left.
    pub left: u64,
    /// How many it sends at once.
    pub burst: u64,
    /// Mean time between two requests; none if the bursts have their times from elsewhere.
    pub every: Option<Nanos>,
    /// Time from sending to the deadline of each.
    pub deadline: Nanos,
    /// One in three has this time instead.
    pub hurried: Option<Nanos>,
}

/// A request as its client remembers it, in true time.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its routing key.
    pub key: Vec<u8>,
    /// When it was sent.
    pub sent: Timestamp,
    /// Its deadline.
    pub deadline: Timestamp,
    /// When it got its outcome or was given up.
    pub done: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Sent {
    number: u64,
    call: Option<Call>,
    /// How often it was sent before, with earlier deadlines.
    repeats: u32,
}

impl Client {
    /// A client that has sent nothing.
    pub fn new(id: u64, app: AppId) -> Client {
        let routes = Routes {
            app,
            ..Routes::default()
        };
        Client {
            id,
            app,
            requests: Requests::new(id, routes),
            in_flight: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            contradictions: 0,
            sent: 0,
            keyed: None,
            unknown_repeats: 0,
            tick_at: Timestamp::MAX,
            clock: SimClock::TRUE,
            nodes: Vec::new(),
            primaries: BTreeMap::new(),
            keys: 64,
            load: None,
            has_vanished: false,
            history: Vec::new(),
        }
    }

    /// The same, with idempotency keys: it sends every request until it is handled, with a new
    /// deadline in each attempt.
    pub fn keyed(id: u64, app: AppId, deadline: Nanos) -> Client {
        Client {
            keyed: Some(deadline),
            ..Client::new(id, app)
        }
    }

    /// The identity of a request.
    fn request_id(&self, number: u64) -> RequestId {
        let client = self.id;
        match self.keyed {
            // Only requests have been sent, so both numbers are the same.
            None => RequestId {
                client,
                seq: number,
            },
            // Each request has its own key; the payload is the same for all.
            Some(_) => RequestId {
                client: client << 32 | number,
                seq: 7,
            },
        }
    }

    /// The identities of all requests.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> {
        (1..=self.sent).map(|number| self.request_id(number))
    }

    /// Tells the client where the nodes are; it sends to the first one next.
    pub fn set_routes(&mut self, now: Timestamp, nodes: impl Iterator<Item = u32>) {
        let primaries = self.primaries.iter();
        let routes = Routes {
            app: self.app,
            nodes: nodes.map(node_address).collect(),
            primaries: primaries
                .map(|(shard, node)| (*shard, node_address(*node)))
                .collect(),
            ..Routes::default()
        };
        self.requests.set_routes(self.clock.shown(now), routes);
    }

    /// Whether the client waits for a replay.
    pub fn replays(&self) -> bool {
        self.in_flight.values().any(|sent| sent.call.is_none())
    }

    /// Sends a new request.
    pub fn request(&mut self, now: Timestamp, random: &mut Random, deadline: Nanos) {
        let key = random.below(self.keys).to_be_bytes().to_vec();
        self.request_with_key(now, key, deadline);
    }

    /// Sends a new request with this key.
    pub fn request_with_key(&mut self, now: Timestamp, key: Vec<u8>, deadline: Nanos) {
        if self.has_vanished {
            return;
        }
        self.sent += 1;
        self.history.push(Request {
            key: key.clone(),
            sent: now,
            deadline: now + self.keyed.unwrap_or(deadline),
            done: None,
        });
        let call = Call {
            tag: 0,
            key,
            payload: self.tag(self.sent).to_vec(),
        };
        self.submit(now, self.sent, call, deadline, 0);
    }

    /// Its application.
    pub(crate) fn app(&self) -> AppId {
        self.app
    }

    /// The part of the payload that identifies the request.
    pub fn tag(&self, number: u64) -> [u8; 8] {
        (self.id << 32 | number).to_le_bytes()
    }

    fn submit(&mut self, now: Timestamp, number: u64, call: Call, deadline: Nanos, repeats: u32) {
        let now = self.clock.shown(now);
        let seq = match self.keyed {
            None => self.requests.submit(now, now, now + deadline, call.clone()),
            Some(span) => {
                let id = self.request_id(number);
                self.requests
                    .submit_keyed(now, now + span, call.clone(), id)
            }
        };
        let sent = Sent {
            number,
            call: Some(call),
            repeats,
        };
        self.in_flight.insert(seq, sent);
        self.numbers.insert(seq, number);
    }

    /// Asks for the dead letters of a shard.
    pub fn read_dead_letters(&mut self, now: Timestamp, shard: ShardKey) {
        let now = self.clock.shown(now);
        let deadline = now + READ_DEADLINE;
        self.requests.read_dead_letters(now, deadline, shard, 0);
    }

    /// Replays a dead letter.
    pub fn replay(
        &mut self,
        now: Timestamp,
        shard: ShardKey,
        letter: &(MessageId, DeadLetter),
        deadline: Nanos,
    ) {
        self.sent += 1;
        let now = self.clock.shown(now);
        let seq = self.requests.replay(now, now + deadline, shard, letter);
        let sent = Sent {
            number: self.sent,
            call: None,
            repeats: 0,
        };
        self.in_flight.insert(seq, sent);
        self.numbers.insert(seq, self.sent);
    }

    /// Retries what is due.
    pub fn on_timer(&mut self, now: Timestamp) {
        if self.has_vanished {
            return;
        }
        let at = now;
        let now = self.clock.shown(now);
        if let Some(span) = self.keyed {
            for seq in self.in_flight.keys() {
                self.requests.extend_deadline(*seq, now + span);
            }
        }
        self.requests.on_timer(now);
        self.take_events(at);
    }

    /// Receives a datagram.
    pub fn receive(&mut self, now: Timestamp, bytes: &[u8]) {
        if self.has_vanished {
            return;
        }
        self.requests.on_datagram(self.clock.shown(now), bytes);
        self.take_events(now);
    }

    fn take_events(&mut self, now: Timestamp) {
        while let Some(event) = self.requests.poll_event() {
            match event {
                Event::Completed(completed) => self.on_completed(now, completed),
                // A node may repeat a reply, but never change it.
                Event::Duplicate(duplicate) => {
                    let number = self.numbers.get(&duplicate.seq);
                    let first = number.and_then(|number| self.outcomes.get(number));
                    let outcome = duplicate.reply.outcome;
                    // The refusal is of this attempt only.
                    let is_expiry = self.keyed.is_some() && outcome == Outcome::Expired
                        || e3_client_core::is_refusal(outcome)
                        || outcome == Outcome::Unknown;
                    let is_certain = |r: &&Reply| r.outcome != Outcome::Unknown;
                    let first = first.filter(is_certain);
                    let differs = first.is_some_and(|first| *first != duplicate.reply);
                    self.contradictions += u64::from(differs && !is_expiry);
                }
                Event::DeadLetters(page) => {
                    self.dead_letters.insert(page.letters.shard, page.letters);
                }
            }
        }
    }

    fn on_completed(&mut self, now: Timestamp, completed: Completed) {
        let Some(sent) = self.in_flight.remove(&completed.seq) else {
            return;
        };
        let comes_again = |reply: &Reply| match reply.outcome {
            Outcome::Expired => self.keyed.is_some(),
            Outcome::Unknown => sent.repeats < self.unknown_repeats,
            _ => false,
        };
        let handled = completed.reply.filter(|reply| !comes_again(reply));
        match (handled, sent.call) {
            (Some(mut reply), _) => {
                // That the repeat was refused says nothing of what was sent before.
                if sent.repeats > 0 && e3_client_core::is_refusal(reply.outcome) {
                    reply.outcome = Outcome::Unknown;
                }
                self.note_done(now, sent.number);
                self.outcomes.insert(sent.number, reply);
            }
            // Not handled: the request is sent again with the same key.
            (None, Some(call)) if self.keyed.is_some() => {
                self.submit(now, sent.number, call, Nanos::default(), sent.repeats + 1);
            }
            // Lost: the request stays without an outcome.
            (None, call) => {
                self.note_done(now, sent.number);
                self.in_flight.insert(completed.seq, Sent { call, ..sent });
            }
        }
    }

    fn note_done(&mut self, now: Timestamp, number: u64) {
        if let Some(request) = self.history.get_mut(number as usize - 1) {
            request.done.get_or_insert(now);
        }
    }

    /// Whether its requests have idempotency keys.
    pub fn is_keyed(&self) -> bool {
        self.keyed.is_some()
    }

    /// The number of requests in flight.
    pub fn open(&self) -> usize {
        self.requests.in_flight()
    }

    /// The requests whose outcomes it waits for, with their times of sending.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (u64, Timestamp)> {
        self.in_flight.values().filter_map(|sent| {
            let request = self.history.get(sent.number as usize - 1)?;
            request
                .done
                .is_none()
                .then_some((sent.number, request.sent))
        })
    }

    /// How long it waits for a reply before it sends a request again, if replies have taken long.
    pub(crate) fn reply_wait(&self, now: Timestamp) -> Nanos {
        self.requests.reply_wait(self.clock.shown(now))
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<(Address, Vec<u8>)> {
        self.requests.poll_transmit()
    }

    /// When [`Client::on_timer`] is to be called.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let next = self.requests.next_deadline()?;
        Some(self.clock.when(next))
    }

    /// The number of requests sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The number of requests without an outcome.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of requests with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        let outcomes = self.outcomes.values();
        outcomes.filter(|r| r.outcome == outcome).count()
    }
}
