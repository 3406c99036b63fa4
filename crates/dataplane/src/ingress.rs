//! Ingress: admits requests from clients, remembers their answers.
//!
//! Admission is decided here and only here: what is admitted is finished, what is not is answered
//! "overloaded" at once. A repeat of an answered request gets the same answer again.

use crate::check::Refused;
use crate::limits::*;
use crate::links::Tag;
use crate::worker::{Output, Worker};
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::plan::IngressCounts;
use e3_model::{Address, AppId, MessageId, RequestId, ShardKey, Slot, Timestamp, Via};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::seal;
use e3_wire::entry::{Outcome, Reply};
use e3_wire::frame::{Ends, Link};
use e3_wire::message::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Requests that clients sent to this node.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    sessions: BTreeMap<(AppId, RequestId), Session>,
    /// When sessions are forgotten.
    order: BTreeSet<(Timestamp, AppId, RequestId)>,
    /// When shards forget the requests with an idempotency key that were admitted.
    keyed: BinaryHeap<Reverse<Timestamp>>,
    under_way: BTreeMap<AppId, u32>,
    pub(crate) admitted: u64,
    pub(crate) overloaded: u64,
    /// The same by application.
    pub(crate) counts: BTreeMap<AppId, IngressCounts>,
}

/// Who sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A client, by datagram.
    Client(Address),
    /// This node's driver, for the clients of another protocol.
    Driver,
}

#[derive(Debug)]
struct Session {
    asker: Asker,
    attempt: u16,
    /// Of what was asked first.
    fingerprint: u32,
    keyed: bool,
    deadline: Timestamp,
    reply: Option<Reply>,
}

impl Session {
    fn until(&self) -> Timestamp {
        self.deadline + SEEN_GRACE
    }

    fn is_expired(&self) -> bool {
        let outcome = self.reply.as_ref().map(|r| r.outcome);
        outcome == Some(Outcome::Expired)
    }
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Forward it.
    Forward,
    /// Answer it with what was answered before.
    Repeat(Reply),
    /// Nothing: it is in flight.
    Wait,
    /// Nothing: the number stands for another request.
    Conflict,
    /// Too much is in flight, or the node has no memory left.
    Overloaded,
}

impl Ingress {
    /// Whether the request is known here.
    pub(crate) fn knows(&self, key: (AppId, RequestId)) -> bool {
        self.sessions.contains_key(&key)
    }

    /// Decides on an attempt at a request, with its deadline and the fingerprint of what is asked. A repeat of an expired request with a
    /// later deadline is forwarded: if it has an idempotency key, its shard may handle it now.
    pub(crate) fn admit(
        &mut self,
        from: Asker,
        key: (AppId, RequestId),
        (attempt, deadline): (u16, Timestamp),
        fingerprint: u32,
        admitted_max: u32,
        keyed: bool,
    ) -> Admission {
        let under_way = self.under_way.entry(key.0).or_default();
        if let Some(session) = self.sessions.get_mut(&key) {
            if session.fingerprint != fingerprint {
                return Admission::Conflict;
            }
            session.asker = from;
            let later = deadline > session.deadline;
            if session.is_expired() && later {
                session.reply = None;
                *under_way += 1;
            } else if let Some(reply) = &session.reply {
                return Admission::Repeat(reply.clone());
            } else if attempt <= session.attempt {
                return Admission::Wait;
            }
            session.attempt = attempt;
            if later {
                self.order.remove(&(session.until(), key.0, key.1));
                session.deadline = deadline;
                self.order.insert((session.until(), key.0, key.1));
            }
            return Admission::Forward;
        }
        let full = self.sessions.len() >= SESSIONS_MAX || (keyed && self.keyed.len() >= KEYED_MAX);
        if *under_way >= admitted_max || full {
            self.overloaded += 1;
            self.counts.entry(key.0).or_default().overloaded += 1;
            return Admission::Overloaded;
        }
        *under_way += 1;
        self.admitted += 1;
        self.counts.entry(key.0).or_default().admitted += 1;
        if keyed {
            self.keyed.push(Reverse(deadline + KEYED_GRACE));
        }
        let session = Session {
            asker: from,
            attempt,
            fingerprint,
            keyed,
            deadline,
            reply: None,
        };
        self.order.insert((session.until(), key.0, key.1));
        self.sessions.insert(key, session);
        Admission::Forward
    }

    /// The attempt that the driver's next one is.
    fn next_attempt(&self, key: (AppId, RequestId)) -> u16 {
        let session = self.sessions.get(&key);
        session.map_or(0, |s| s.attempt.saturating_add(1))
    }

    /// Takes an answer to an attempt; gives who to send it to, and its latest attempt. None if it is
    /// known already. Refused if this node never sent such an attempt; what has an idempotency key
    /// other nodes may have sent too.
    pub(crate) fn on_reply(
        &mut self,
        app: AppId,
        id: RequestId,
        attempt: u16,
        reply: &Reply,
    ) -> Result<Option<(Asker, u16)>, Refused> {
        let session = self.sessions.get_mut(&(app, id)).ok_or("reply")?;
        if attempt > session.attempt && !session.keyed {
            return Err("reply");
        }
        // A repeat of an expired request may have been handled after all.
        let better = session.is_expired() && reply.outcome != Outcome::Expired;
        if session.reply.is_some() && !better {
            return Ok(None);
        }
        if session.reply.replace(reply.clone()).is_none()
            && let Some(n) = self.under_way.get_mut(&app)
        {
            *n = n.saturating_sub(1);
        }
        Ok(Some((session.asker, session.attempt)))
    }

    /// Forgets what no client will ask for again.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        while let Some((until, app, id)) = self.order.first().copied() {
            if until > now {
                break;
            }
            self.order.pop_first();
            if let Some(session) = self.sessions.remove(&(app, id))
                && session.reply.is_none()
                && let Some(n) = self.under_way.get_mut(&app)
            {
                *n = n.saturating_sub(1);
            }
        }
        while self.keyed.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.keyed.pop();
        }
    }

    /// Forgets an application.
    pub(crate) fn delete(&mut self, app: AppId) {
        self.sessions.retain(|(a, _), _| *a != app);
        self.under_way.remove(&app);
        self.counts.remove(&app);
    }

    /// Requests without an answer.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way.values().sum()
    }
}

impl Worker {
    pub(crate) fn on_client(
        &mut self,
        now: Timestamp,
        from: Address,
        r: &mut Reader<'_>,
    ) -> Result<(), &'static str> {
        // A node that has just started knows of nothing; the client tries again.
        if self.plan.version == 0 {
            return Err("no plan");
        }
        while !r.is_empty() {
            match ClientFrame::decode(r).map_err(|_| "client frame")? {
                ClientFrame::Request(request) => self.on_request(now, Asker::Client(from), request),
                ClientFrame::ReadLetters { shard, skip } => {
                    self.on_read_letters(now, from, shard, skip)
                }
                ClientFrame::Replay(replay) => self.on_replay(now, from, replay),
                ClientFrame::Reply { .. } | ClientFrame::Letters(_) => return Err("client frame"),
            }
        }
        Ok(())
    }

    /// Takes a request that this node's driver passes on for a client of another protocol. Each call
    /// is one more attempt. The answer is an [`Output::Answer`].
    pub fn handle_request(&mut self, now: Timestamp, mut request: Request) {
        self.now = now;
        request.attempt = self.ingress.next_attempt((request.app, request.id));
        self.on_request(now, Asker::Driver, request);
    }

    fn on_request(&mut self, now: Timestamp, from: Asker, q: Request) {
        let reject = |reason: &str| Reply {
            outcome: Outcome::Rejected,
            status: 0,
            payload: reason.as_bytes().to_vec(),
        };
        let Some(app) = self.apps.get(&q.app) else {
            let reason = "the application does not run on this node";
            self.answer(from, q.app, q.id, q.attempt, reject(reason));
            return;
        };
        if q.id.seq == 0 {
            let reason = "request number is 0, must be at least 1";
            self.answer(from, q.app, q.id, q.attempt, reject(reason));
            return;
        }
        if q.key.is_empty() || q.key.len() > KEY_LEN_MAX || q.payload.len() > PAYLOAD_LEN_MAX {
            let reason = format!(
                "key of {} and payload of {} bytes, must be 1..={KEY_LEN_MAX} and at most {PAYLOAD_LEN_MAX}",
                q.key.len(),
                q.payload.len()
            );
            self.answer(from, q.app, q.id, q.attempt, reject(&reason));
            return;
        }
        if q.deadline > now + DEADLINE_AHEAD_MAX || q.oldest_seq > q.id.seq {
            let reason = "deadline over an hour ahead, or oldest request after this one";
            self.answer(from, q.app, q.id, q.attempt, reject(reason));
            return;
        }
        if q.deadline + LATE_MAX < now && !self.ingress.knows((q.app, q.id)) {
            let ago_ms = now.since(q.deadline).as_millis();
            let reason = format!("deadline was {ago_ms} ms ago");
            self.answer(from, q.app, q.id, q.attempt, reject(&reason));
            return;
        }
        let admitted_max = match self.memory_full {
            Some(_) => 0,
            None => app.plan.app.spec.admitted_max,
        };
        let attempt = (q.attempt, q.deadline);
        let (id, fingerprint) = ((q.app, q.id), q.fingerprint());
        let keyed = q.oldest_seq == 0;
        match self
            .ingress
            .admit(from, id, attempt, fingerprint, admitted_max, keyed)
        {
            Admission::Conflict => self.drop_for("request"),
            Admission::Wait => {}
            Admission::Repeat(reply) => self.answer(from, q.app, q.id, q.attempt, reply),
            Admission::Overloaded => {
                let reply = Reply {
                    outcome: Outcome::Overloaded,
                    status: 0,
                    payload: Vec::new(),
                };
                self.answer(from, q.app, q.id, q.attempt, reply);
            }
            Admission::Forward => {
                let service = app.dag.source();
                let slot = Slot::of(&q.key);
                let shard = slot.shard(app.plan.app.service(service).shards);
                let route = app.route(ShardKey {
                    app: q.app,
                    service,
                    shard,
                });
                let link = Link {
                    app: q.app,
                    ends: Ends::Ingress {
                        node: self.config.node,
                        shard,
                    },
                    from_incarnation: self.config.incarnation,
                    to_incarnation: route.incarnation,
                };
                let to = route.primary;
                let message = Message {
                    id: MessageId {
                        request: q.id,
                        via: Via::Ingress,
                        index: 0,
                    },
                    attempt: q.attempt,
                    slot,
                    reply_to: self.config.node,
                    reply_to_incarnation: self.config.incarnation,
                    deadline: q.deadline,
                    oldest_seq: q.oldest_seq,
                    trace: q.trace,
                    code_version: 0,
                    key: q.key,
                    payload: q.payload,
                };
                self.links
                    .send(link, to, message.encode().into(), Tag::Ingress);
            }
        }
    }

    pub(crate) fn on_reply(&mut self, app: AppId, id: RequestId, attempt: u16, reply: Reply) {
        match self.ingress.on_reply(app, id, attempt, &reply) {
            Ok(Some((asker, attempt))) => self.answer(asker, app, id, attempt, reply),
            Ok(None) => {}
            Err(reason) => self.drop_for(reason),
        }
    }

    pub(crate) fn answer(
        &mut self,
        to: Asker,
        app: AppId,
        id: RequestId,
        attempt: u16,
        reply: Reply,
    ) {
        let to = match to {
            Asker::Client(address) => address,
            Asker::Driver => {
                self.outputs.push_back(Output::Answer { app, id, reply });
                return;
            }
        };
        let buffer = self.client_open.entry(to).or_default();
        if buffer.is_empty() {
            ClientFrame::start(buffer);
        }
        ClientFrame::Reply { id, attempt, reply }.encode(buffer);
        if buffer.len() > DATAGRAM_LEN_GOAL / 2 {
            let mut bytes = std::mem::take(buffer);
            seal(&mut bytes);
            self.client_open.remove(&to);
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }
}

#[cfg(test)]
mod tests;
