//! The client's side of the protocol, without I/O: numbers requests, repeats them, pairs answers.
//!
//! A repeat has the same id, key, payload and deadline and a higher attempt, and goes to another
//! node. "Overloaded" and "rejected" speak for one attempt only: they are an outcome when every
//! attempt was refused so, otherwise another one may still be in flight.

use crate::limits::*;
use e3_model::{Address, AppId, Nanos, RequestId, Slot, Timestamp, TraceContext};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::datagram::{Header, open, seal};
use e3_wire::entry::{Outcome, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    /// The application.
    pub app: AppId,
    /// By shard of the ingress service: the node that serves it, if one does.
    pub shards: Vec<Option<Address>>,
    /// Every node that takes requests; at least one.
    pub nodes: Vec<Address>,
}

/// One request to the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The workload's own mark; comes back with the answer.
    pub tag: u64,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// What came to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has its outcome.
    Given(Given),
    /// One more answer to a request that has its outcome.
    Repeated(Repeated),
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Number of the request.
    pub seq: u64,
    /// From the call.
    pub tag: u64,
    /// When the request was due.
    pub due: Timestamp,
    /// When the outcome came.
    pub at: Timestamp,
    /// Attempts sent.
    pub attempts: u16,
    /// The answer; None if there was none until well after the deadline.
    pub reply: Option<Reply>,
}

/// An answer after the outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repeated {
    /// Number of the request.
    pub seq: u64,
    /// The answer.
    pub reply: Reply,
}

#[derive(Debug)]
struct Pending {
    call: Call,
    due: Timestamp,
    deadline: Timestamp,
    attempts: u16,
    /// Attempts that were not admitted.
    refused: BTreeSet<u16>,
    last_refusal: Option<Reply>,
    to: Address,
    wait: Nanos,
    timer: Timestamp,
}

impl Pending {
    /// No attempt was admitted.
    fn is_refused(&self) -> bool {
        self.refused.len() == usize::from(self.attempts)
    }
}

/// All requests of one client.
#[derive(Debug)]
pub struct Requests {
    client: u64,
    routes: Routes,
    next_seq: u64,
    pending: BTreeMap<u64, Pending>,
    timers: BTreeSet<(Timestamp, u64)>,
    open: BTreeMap<Address, Vec<u8>>,
    full: VecDeque<(Address, Vec<u8>)>,
    events: VecDeque<Event>,
    stray: u64,
}

impl Requests {
    /// A client that has sent nothing. Its id must never have been used before.
    pub fn new(client: u64, routes: Routes) -> Requests {
        assert!(!routes.nodes.is_empty(), "routes have a node");
        Requests {
            client,
            routes,
            next_seq: 1,
            pending: BTreeMap::new(),
            timers: BTreeSet::new(),
            open: BTreeMap::new(),
            full: VecDeque::new(),
            events: VecDeque::new(),
            stray: 0,
        }
    }

    /// Number that the next request will have.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Requests without outcome.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Sends a request; gives its number.
    pub fn submit(
        &mut self,
        now: Timestamp,
        due: Timestamp,
        deadline: Timestamp,
        call: Call,
    ) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let to = self.route(&call.key).unwrap_or(self.routes.nodes[0]);
        let pending = Pending {
            call,
            due,
            deadline,
            attempts: 0,
            refused: BTreeSet::new(),
            last_refusal: None,
            to,
            wait: RETRY_AFTER,
            timer: now,
        };
        self.pending.insert(seq, pending);
        self.attempt(now, seq, to);
        seq
    }

    fn route(&self, key: &[u8]) -> Option<Address> {
        let shards = u16::try_from(self.routes.shards.len())
            .ok()
            .filter(|n| *n > 0)?;
        self.routes.shards[usize::from(Slot::of(key).shard(shards).0)]
    }

    /// Packs one attempt and sets its timer.
    fn attempt(&mut self, now: Timestamp, seq: u64, to: Address) {
        let oldest_seq = *self.pending.keys().next().expect("this one at least");
        let p = self.pending.get_mut(&seq).expect("pending");
        let frame = ClientFrame::Request(Request {
            app: self.routes.app,
            id: RequestId {
                client: self.client,
                seq,
            },
            attempt: p.attempts,
            deadline: p.deadline,
            oldest_seq,
            trace: TraceContext {
                trace: u128::from(self.client) << 64 | u128::from(seq),
                span: seq,
                flags: 0,
            },
            key: p.call.key.clone(),
            payload: p.call.payload.clone(),
        });
        p.attempts = p.attempts.saturating_add(1);
        p.to = to;
        self.timers.remove(&(p.timer, seq));
        p.timer = (now + p.wait).min(p.deadline.max(now + Nanos(1)));
        p.wait = (p.wait * RETRY_GROWTH.0 / RETRY_GROWTH.1).min(RETRY_AFTER_MAX);
        self.timers.insert((p.timer, seq));

        let buffer = self.open.entry(to).or_default();
        if buffer.is_empty() {
            ClientFrame::start(buffer);
        }
        frame.encode(buffer);
        if buffer.len() > DATAGRAM_LEN_GOAL {
            let mut bytes = std::mem::take(buffer);
            seal(&mut bytes);
            self.full.push_back((to, bytes));
        }
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Timestamp) {
        while let Some((at, seq)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            let p = self
                .pending
                .get_mut(&seq)
                .expect("timers are of pending requests");
            let refused = p.is_refused();
            if now < p.deadline {
                let to = self.other_node(seq);
                self.attempt(now, seq, to);
            } else if refused || now >= p.deadline + ANSWER_GRACE {
                let reply = p.last_refusal.take().filter(|_| refused);
                self.give(now, seq, reply);
            } else {
                p.timer = p.deadline + ANSWER_GRACE;
                self.timers.insert((p.timer, seq));
            }
        }
    }

    /// Where to try next: the shard's node if that has changed, else the node after the last one.
    fn other_node(&self, seq: u64) -> Address {
        let p = &self.pending[&seq];
        if let Some(route) = self.route(&p.call.key)
            && route != p.to
            && (self.routes.nodes.len() == 1 || p.attempts.is_multiple_of(2))
        {
            return route;
        }
        let nodes = &self.routes.nodes;
        let at = nodes.iter().position(|a| *a == p.to);
        nodes[at.map_or(0, |at| (at + 1) % nodes.len())]
    }

    fn give(&mut self, now: Timestamp, seq: u64, reply: Option<Reply>) {
        let p = self.pending.remove(&seq).expect("pending");
        self.timers.remove(&(p.timer, seq));
        let (tag, due, attempts) = (p.call.tag, p.due, p.attempts);
        self.events.push_back(Event::Given(Given {
            seq,
            tag,
            due,
            at: now,
            attempts,
            reply,
        }));
    }

    /// Takes a datagram; what is not an answer is counted.
    pub fn on_datagram(&mut self, now: Timestamp, bytes: &[u8]) {
        let Ok((Header::CLIENT, mut r)) = open(bytes) else {
            self.stray += 1;
            return;
        };
        while !r.is_empty() {
            match ClientFrame::decode(&mut r) {
                Ok(ClientFrame::Reply { id, attempt, reply }) if id.client == self.client => {
                    self.on_reply(now, id.seq, attempt, reply);
                }
                Ok(_) => self.stray += 1,
                Err(_) => {
                    self.stray += 1;
                    return;
                }
            }
        }
    }

    fn on_reply(&mut self, now: Timestamp, seq: u64, attempt: u16, reply: Reply) {
        let Some(p) = self.pending.get_mut(&seq) else {
            if (1..self.next_seq).contains(&seq) {
                self.events
                    .push_back(Event::Repeated(Repeated { seq, reply }));
            } else {
                self.stray += 1;
            }
            return;
        };
        if attempt >= p.attempts {
            // Never sent.
            self.stray += 1;
            return;
        }
        if !refusal(reply.outcome) {
            self.give(now, seq, Some(reply));
            return;
        }
        // The same refusal may come twice: it speaks for its attempt only.
        p.refused.insert(attempt);
        if p.is_refused() && reply.outcome == Outcome::Overloaded {
            self.give(now, seq, Some(reply));
            return;
        }
        if reply.outcome == Outcome::Rejected && p.is_refused() {
            // Perhaps the node has no plan yet: nothing was done, another one may know better.
            let soon = (now + REJECTED_RETRY_AFTER).min(p.deadline);
            self.timers.remove(&(p.timer, seq));
            p.timer = soon;
            self.timers.insert((soon, seq));
        }
        p.last_refusal = Some(reply);
    }

    /// Takes new routes; requests whose shard has moved are repeated there at once.
    pub fn set_routes(&mut self, now: Timestamp, routes: Routes) {
        if routes.nodes.is_empty() || routes == self.routes || routes.app != self.routes.app {
            return;
        }
        let old = std::mem::replace(&mut self.routes, routes);
        let moved: Vec<(u64, Address)> = self
            .pending
            .iter()
            .filter(|(_, p)| now < p.deadline && now >= p.due + RETRY_AFTER)
            .filter_map(|(seq, p)| {
                let shard = Slot::of(&p.call.key);
                let to = self.route(&p.call.key)?;
                let before = u16::try_from(old.shards.len()).ok().filter(|n| *n > 0);
                let before = before.and_then(|n| old.shards[usize::from(shard.shard(n).0)]);
                (before != Some(to)).then_some((*seq, to))
            })
            .collect();
        for (seq, to) in moved {
            self.attempt(now, seq, to);
        }
    }

    /// True while the oldest request has gone unanswered once: the routes may be old.
    pub fn wants_routes(&self) -> bool {
        self.pending.values().next().is_some_and(|p| p.attempts > 1)
    }

    /// Answers to nothing since the last call.
    pub fn take_stray(&mut self) -> u64 {
        std::mem::take(&mut self.stray)
    }

    /// Next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<(Address, Vec<u8>)> {
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        while let Some((to, mut bytes)) = self.open.pop_first() {
            if !bytes.is_empty() {
                seal(&mut bytes);
                return Some((to, bytes));
            }
        }
        None
    }

    /// Next thing that came.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Requests::on_timer`] wants to be called.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }
}

/// True if the outcome says that this attempt was not admitted, so that nothing was done by it.
pub fn refusal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Overloaded | Outcome::Rejected)
}

#[cfg(test)]
mod tests;
