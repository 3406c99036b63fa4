//! All requests of one client, from submission to outcome.
//!
//! A retry has the same id, key and payload and a higher attempt, and goes to another node.
//! "Overloaded" and "rejected" refuse one attempt only: they are an outcome when every attempt was
//! refused, otherwise another attempt may still be in flight.

use crate::backoff::Backoff;
use crate::events::{Completed, DeadLetterPage, Duplicate, Event};
use crate::keyed::Keyed;
use crate::limits::*;
use crate::operation::{Attempt, Call, Operation};
use crate::outbox::Outbox;
use crate::reply_time::ReplyTime;
use crate::routes::Routes;
use e3_model::{Address, Formats, MessageId, Nanos, RequestId, ShardKey, Slot, Timestamp};
use e3_random::Random;
use e3_wire::client::{ClientFrame, DeadLetters};
use e3_wire::datagram::{Header, open};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Outcome, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
struct Pending {
    id: RequestId,
    tag: u64,
    operation: Operation,
    due: Timestamp,
    /// When the first attempt was sent, and the last.
    sent: Timestamp,
    last_sent: Timestamp,
    deadline: Timestamp,
    attempts: u16,
    /// Attempts that were not admitted.
    refused: BTreeSet<u16>,
    last_refusal: Option<Reply>,
    /// Where the last attempt went.
    to: Option<Address>,
    /// The node of the last attempt that did not go to the shard's.
    around: Option<Address>,
    backoff: Backoff,
    timer: Timestamp,
}

impl Pending {
    /// No attempt was admitted.
    fn is_refused(&self) -> bool {
        self.attempts > 0 && self.refused.len() == usize::from(self.attempts)
    }

    /// Time from an attempt to the reply to it, if it is known when the attempt was sent.
    fn took(&self, now: Timestamp, attempt: u16) -> Option<Nanos> {
        let sent = match attempt {
            0 => self.sent,
            last if last + 1 == self.attempts => self.last_sent,
            _ => return None,
        };
        Some(now.since(sent))
    }

    /// Where to try next: every other time the shard's node, otherwise each node in turn. What is known
    /// of the shard may be old, so that any one node may be the only one that can help.
    fn other_node(&mut self, routes: &Routes) -> Option<Address> {
        let route = routes.of(&self.operation);
        let its_turn = routes.nodes.len() == 1 || self.attempts.is_multiple_of(2);
        if its_turn && route.is_some() && route != self.to {
            return route;
        }
        self.around = routes.after(self.around.or(self.to));
        if self.around == route {
            self.around = routes.after(self.around);
        }
        self.around
    }
}

/// All requests of one client.
#[derive(Debug)]
pub struct Requests {
    client: u64,
    routes: Routes,
    next_seq: u64,
    pending: BTreeMap<u64, Pending>,
    keyed: Keyed,
    timers: BTreeSet<(Timestamp, u64)>,
    /// For waits between attempts.
    random: Random,
    reply_time: ReplyTime,
    outbox: Outbox,
    events: VecDeque<Event>,
    stray: u64,
    /// An attempt went unanswered since the routes were last confirmed.
    routes_may_be_old: bool,
}

impl Requests {
    /// A client that has sent nothing. Its id must never have been used before.
    pub fn new(client: u64, routes: Routes) -> Requests {
        Requests {
            client,
            routes,
            next_seq: 1,
            pending: BTreeMap::new(),
            keyed: Keyed::default(),
            timers: BTreeSet::new(),
            random: Random::new(client),
            reply_time: ReplyTime::default(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            stray: 0,
            routes_may_be_old: false,
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

    /// Sends a request, which was due at `due`; returns its number.
    pub fn submit(
        &mut self,
        now: Timestamp,
        due: Timestamp,
        deadline: Timestamp,
        call: Call,
    ) -> u64 {
        let Call { tag, key, payload } = call;
        let operation = Operation::Call { key, payload };
        self.start(now, due, deadline, tag, operation, None)
    }

    /// Sends a request with an idempotency key, from which its identity follows; returns its number.
    /// No other request with this identity may be in flight.
    pub fn submit_keyed(
        &mut self,
        now: Timestamp,
        deadline: Timestamp,
        call: Call,
        id: RequestId,
    ) -> u64 {
        let Call { tag, key, payload } = call;
        let operation = Operation::Call { key, payload };
        self.start(now, now, deadline, tag, operation, Some(id))
    }

    /// Has a dead letter handled again; returns the number of the request.
    pub fn replay(
        &mut self,
        now: Timestamp,
        deadline: Timestamp,
        shard: ShardKey,
        (letter, content): &(MessageId, DeadLetter),
    ) -> u64 {
        let operation = Operation::Replay {
            shard,
            letter: *letter,
            slot: Slot::of(&content.key),
        };
        self.start(now, now, deadline, 0, operation, None)
    }

    /// Asks for the dead letters of a shard, but for the first `skip`; returns the number of the
    /// request. Its outcome is [`Event::DeadLetters`], or [`Event::Completed`] without a reply.
    pub fn read_dead_letters(
        &mut self,
        now: Timestamp,
        deadline: Timestamp,
        shard: ShardKey,
        skip: u32,
    ) -> u64 {
        let operation = Operation::ReadDeadLetters { shard, skip };
        self.start(now, now, deadline, 0, operation, None)
    }

    /// Moves the deadline of a request that is in flight to a later time.
    pub fn extend_deadline(&mut self, seq: u64, deadline: Timestamp) {
        if let Some(p) = self.pending.get_mut(&seq) {
            p.deadline = p.deadline.max(deadline);
        }
    }

    fn start(
        &mut self,
        now: Timestamp,
        due: Timestamp,
        deadline: Timestamp,
        tag: u64,
        operation: Operation,
        keyed: Option<RequestId>,
    ) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let client = self.client;
        if let Some(id) = keyed {
            self.keyed.insert(id, seq);
        }
        let pending = Pending {
            id: keyed.unwrap_or(RequestId { client, seq }),
            tag,
            operation,
            due,
            sent: now,
            last_sent: now,
            deadline,
            attempts: 0,
            refused: BTreeSet::new(),
            last_refusal: None,
            to: None,
            around: None,
            backoff: Backoff::default(),
            timer: now,
        };
        let to = self.routes.of(&pending.operation);
        let to = to.or(self.routes.nodes.first().copied());
        self.pending.insert(seq, pending);
        self.attempt(now, seq, to);
        seq
    }

    /// Packs one attempt and sets its timer.
    fn attempt(&mut self, now: Timestamp, seq: u64, to: Option<Address>) {
        let oldest = self.pending.keys().next().map_or(seq, |oldest| *oldest);
        let Some(p) = self.pending.get_mut(&seq) else {
            return;
        };
        if let Some(to) = to {
            let frame = p.operation.frame(&Attempt {
                app: self.routes.app,
                id: p.id,
                number: p.attempts,
                deadline: p.deadline,
                sent: p.sent,
                oldest_seq: if p.id.client == self.client {
                    oldest
                } else {
                    0
                },
            });
            p.attempts = p.attempts.saturating_add(1);
            p.to = Some(to);
            p.last_sent = now;
            self.outbox.push(to, &frame);
        }
        let at = if now < p.deadline {
            (now + p.backoff.next_wait(&mut self.random)).min(p.deadline)
        } else {
            (now + ASK_AGAIN_AFTER).min(p.deadline + ANSWER_GRACE)
        };
        self.set_timer(seq, at);
    }

    fn set_timer(&mut self, seq: u64, at: Timestamp) {
        let Some(p) = self.pending.get_mut(&seq) else {
            return;
        };
        self.timers.remove(&(p.timer, seq));
        p.timer = at;
        self.timers.insert((at, seq));
    }

    /// Retries and completes what is due.
    pub fn on_timer(&mut self, now: Timestamp) {
        while let Some((at, seq)) = self.timers.first().copied()
            && at <= now
        {
            self.routes_may_be_old = true;
            let p = self.pending.get_mut(&seq).expect("timers are of pending");
            let refused = p.is_refused();
            // Where answers take long, a retry would only make them take longer.
            let half = p.last_sent.until(p.deadline) / 2;
            let not_before = p.last_sent + self.reply_time.wait(now).min(half);
            if now < not_before && p.attempts > 0 && !refused {
                // They may soon take less long.
                self.set_timer(seq, not_before.min(now + RETRY_AFTER));
                continue;
            }
            if now < p.deadline {
                let to = p.other_node(&self.routes);
                self.attempt(now, seq, to);
            } else if refused || now >= p.deadline + ANSWER_GRACE {
                let reply = p.last_refusal.take().filter(|_| refused);
                self.complete(now, seq, reply);
            } else {
                // It is not handled any more, but what became of it may still be told.
                let to = p.other_node(&self.routes);
                self.attempt(now, seq, to);
            }
        }
    }

    /// Removes a request that has its outcome.
    fn remove(&mut self, seq: u64) -> Option<Pending> {
        let p = self.pending.remove(&seq)?;
        self.timers.remove(&(p.timer, seq));
        Some(p)
    }

    fn complete(&mut self, now: Timestamp, seq: u64, reply: Option<Reply>) {
        let Some(p) = self.remove(seq) else {
            return;
        };
        self.events.push_back(Event::Completed(Completed {
            seq,
            tag: p.tag,
            due: p.due,
            at: now,
            attempts: p.attempts,
            reply,
        }));
    }

    /// Takes a datagram; what is not a reply is counted.
    pub fn on_datagram(&mut self, now: Timestamp, bytes: &[u8]) {
        let Ok((Header::CLIENT, mut r)) = open(Formats::PROGRAM, bytes) else {
            self.stray += 1;
            return;
        };
        while !r.is_empty() {
            match ClientFrame::decode(&mut r) {
                Ok(ClientFrame::Reply { id, attempt, reply }) => match self.seq_of(id) {
                    Some(seq) => self.on_reply(now, seq, attempt, reply),
                    None => self.stray += 1,
                },
                Ok(ClientFrame::DeadLetters(letters)) => self.on_dead_letters(letters),
                Ok(_) => self.stray += 1,
                Err(_) => {
                    self.stray += 1;
                    return;
                }
            }
        }
    }

    /// The number of a request of this client, in flight or completed.
    fn seq_of(&self, id: RequestId) -> Option<u64> {
        let numbered = id.client == self.client && (1..self.next_seq).contains(&id.seq);
        numbered
            .then_some(id.seq)
            .or_else(|| self.keyed.seqs.get(&id).copied())
    }

    fn on_dead_letters(&mut self, letters: DeadLetters) {
        let asked = self.pending.iter();
        let mut asked = asked.filter(|(_, p)| p.operation.asks_for(&letters));
        let Some((&seq, _)) = asked.next() else {
            self.stray += 1;
            return;
        };
        self.remove(seq);
        let page = DeadLetterPage { seq, letters };
        self.events.push_back(Event::DeadLetters(page));
    }

    fn on_reply(&mut self, now: Timestamp, seq: u64, attempt: u16, reply: Reply) {
        let Some(p) = self.pending.get_mut(&seq) else {
            let duplicate = Duplicate { seq, reply };
            self.events.push_back(Event::Duplicate(duplicate));
            return;
        };
        if attempt >= p.attempts {
            // Never sent.
            self.stray += 1;
            return;
        }
        let is_call = matches!(p.operation, Operation::Call { .. });
        if !is_call || !is_refusal(reply.outcome) {
            if is_call
                && matches!(reply.outcome, Outcome::Done | Outcome::Failed)
                && let Some(took) = p.took(now, attempt)
            {
                self.reply_time.record(now, took);
            }
            self.complete(now, seq, Some(reply));
            return;
        }
        // The same refusal may come twice: it refuses its attempt only.
        p.refused.insert(attempt);
        let (refused, deadline) = (p.is_refused(), p.deadline);
        if refused && reply.outcome == Outcome::Overloaded {
            self.complete(now, seq, Some(reply));
            return;
        }
        let retry_soon = refused && reply.outcome == Outcome::Rejected;
        p.last_refusal = Some(reply);
        if retry_soon {
            // Perhaps the node has no plan yet: nothing was done, another one may know better.
            self.set_timer(seq, (now + REJECTED_RETRY_AFTER).min(deadline));
        }
    }

    /// Takes new routes. Requests whose shard has moved, or that no node has been sent, are sent
    /// there at once.
    pub fn set_routes(&mut self, now: Timestamp, routes: Routes) {
        if routes.nodes.is_empty() || routes.app != self.routes.app {
            return;
        }
        self.routes_may_be_old = false;
        if routes == self.routes {
            return;
        }
        let old = std::mem::replace(&mut self.routes, routes);
        let new = &self.routes;
        let moved = |p: &Pending| {
            let to = new.of(&p.operation);
            if p.to.is_none() {
                return to.or(new.nodes.first().copied());
            }
            to.filter(|_| old.of(&p.operation) != to && now >= p.due + RETRY_AFTER)
        };
        let pending = self.pending.iter().filter(|(_, p)| now < p.deadline);
        let moved: Vec<_> = pending
            .filter_map(|(seq, p)| Some((*seq, moved(p)?)))
            .collect();
        for (seq, to) in moved {
            self.attempt(now, seq, Some(to));
        }
    }

    /// True while the oldest request goes unanswered, and since any attempt went unanswered until
    /// routes come: a retry is often answered at once, by another node, and would leave the routes old.
    pub fn wants_routes(&self) -> bool {
        let oldest = self.pending.values().next();
        self.routes_may_be_old || oldest.is_some_and(|p| p.attempts != 1)
    }

    /// How long replies may take before they count as lost, by those that came lately. A retry waits for at least as
    /// long, but for at most half of the time to the deadline.
    pub fn reply_wait(&self, now: Timestamp) -> Nanos {
        self.reply_time.wait(now)
    }

    /// Datagrams and frames that were no reply to a request of this client, since the last call.
    pub fn take_stray(&mut self) -> u64 {
        std::mem::take(&mut self.stray)
    }

    /// Next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<(Address, Vec<u8>)> {
        self.outbox.pop()
    }

    /// Next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Requests::on_timer`] wants to be called.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }
}

/// True if the outcome says that the attempt was not admitted, so that it had no effect.
pub fn is_refusal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Overloaded | Outcome::Rejected)
}

#[cfg(test)]
mod tests;
