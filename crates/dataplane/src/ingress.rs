//! Ingress: admits requests from clients, remembers their answers.
//!
//! Admission is decided here and only here: what is admitted is finished, what is not is answered
//! "overloaded" at once. A repeat of an answered request gets the same answer again.

use crate::check::Refused;
use crate::limits::*;
use crate::links::Tag;
use crate::worker::{Output, Worker};
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::{Address, AppId, MessageId, Nanos, RequestId, ShardKey, Slot, Via};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::seal;
use e3_wire::entry::{Outcome, Reply};
use e3_wire::frame::{Ends, Link};
use e3_wire::message::Message;
use std::collections::{BTreeMap, VecDeque};

/// Requests that clients sent to this node.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    sessions: BTreeMap<(AppId, RequestId), Session>,
    order: VecDeque<(AppId, RequestId, Nanos)>,
    under_way: BTreeMap<AppId, u32>,
    pub(crate) admitted: u64,
    pub(crate) overloaded: u64,
}

#[derive(Debug)]
struct Session {
    client: Address,
    attempt: u16,
    /// Of what was asked first.
    fingerprint: u32,
    reply: Option<Reply>,
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

    /// Decides on an attempt at a request, with its deadline and the fingerprint of what is asked.
    pub(crate) fn admit(
        &mut self,
        from: Address,
        key: (AppId, RequestId),
        (attempt, deadline): (u16, Nanos),
        fingerprint: u32,
        admitted_max: u32,
    ) -> Admission {
        if let Some(session) = self.sessions.get_mut(&key) {
            if session.fingerprint != fingerprint {
                return Admission::Conflict;
            }
            session.client = from;
            if let Some(reply) = &session.reply {
                return Admission::Repeat(reply.clone());
            }
            if attempt > session.attempt {
                session.attempt = attempt;
                return Admission::Forward;
            }
            return Admission::Wait;
        }
        let under_way = self.under_way.entry(key.0).or_default();
        if *under_way >= admitted_max || self.sessions.len() >= SESSIONS_MAX {
            self.overloaded += 1;
            return Admission::Overloaded;
        }
        *under_way += 1;
        self.admitted += 1;
        let until = Nanos(deadline.0.saturating_add(SEEN_GRACE.0));
        self.order.push_back((key.0, key.1, until));
        self.sessions.insert(
            key,
            Session {
                client: from,
                attempt,
                fingerprint,
                reply: None,
            },
        );
        Admission::Forward
    }

    /// Takes an answer to an attempt; gives the client to send it to, and its latest attempt. None
    /// if it is known already. Refused if this node never sent such an attempt.
    pub(crate) fn on_reply(
        &mut self,
        app: AppId,
        id: RequestId,
        attempt: u16,
        reply: &Reply,
    ) -> Result<Option<(Address, u16)>, Refused> {
        let session = self.sessions.get_mut(&(app, id)).ok_or("reply")?;
        if attempt > session.attempt {
            return Err("reply");
        }
        if session.reply.is_some() {
            return Ok(None);
        }
        session.reply = Some(reply.clone());
        if let Some(n) = self.under_way.get_mut(&app) {
            *n = n.saturating_sub(1);
        }
        Ok(Some((session.client, session.attempt)))
    }

    /// Forgets what no client will ask for again.
    pub(crate) fn forget(&mut self, now: Nanos) {
        while let Some((app, id, until)) = self.order.front().copied() {
            if until > now {
                break;
            }
            self.order.pop_front();
            if let Some(session) = self.sessions.remove(&(app, id))
                && session.reply.is_none()
                && let Some(n) = self.under_way.get_mut(&app)
            {
                *n = n.saturating_sub(1);
            }
        }
    }

    /// Forgets an application.
    pub(crate) fn delete(&mut self, app: AppId) {
        self.sessions.retain(|(a, _), _| *a != app);
        self.under_way.remove(&app);
    }

    /// Requests without an answer.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way.values().sum()
    }
}

impl Worker {
    pub(crate) fn on_client(
        &mut self,
        now: Nanos,
        from: Address,
        r: &mut Reader<'_>,
    ) -> Result<(), &'static str> {
        // A node that has just started knows of nothing; the client tries again.
        if self.plan.version == 0 {
            return Err("no plan");
        }
        while !r.is_empty() {
            match ClientFrame::decode(r).map_err(|_| "client frame")? {
                ClientFrame::Request(request) => self.on_request(now, from, request),
                ClientFrame::ReadLetters { shard, skip } => {
                    self.on_read_letters(now, from, shard, skip)
                }
                ClientFrame::Replay(replay) => self.on_replay(now, from, replay),
                ClientFrame::Reply { .. } | ClientFrame::Letters(_) => return Err("client frame"),
            }
        }
        Ok(())
    }

    fn on_request(&mut self, now: Nanos, from: Address, q: Request) {
        let reject = |reason: &str| Reply {
            outcome: Outcome::Rejected,
            status: 0,
            payload: reason.as_bytes().to_vec(),
        };
        let Some(app) = self.apps.get(&q.app) else {
            let reason = format!("application {} is not on this node", q.app);
            self.answer(from, q.id, q.attempt, reject(&reason));
            return;
        };
        if q.id.seq == 0 {
            let reason = "request number is 0, must be at least 1";
            self.answer(from, q.id, q.attempt, reject(reason));
            return;
        }
        if q.key.is_empty() || q.key.len() > KEY_LEN_MAX || q.payload.len() > PAYLOAD_LEN_MAX {
            let reason = format!(
                "key of {} and payload of {} bytes, must be 1..={KEY_LEN_MAX} and at most {PAYLOAD_LEN_MAX}",
                q.key.len(),
                q.payload.len()
            );
            self.answer(from, q.id, q.attempt, reject(&reason));
            return;
        }
        if q.deadline.0 > now.0 + DEADLINE_AHEAD_MAX.0 || q.oldest_seq > q.id.seq {
            let reason = "deadline over an hour ahead, or oldest request after this one";
            self.answer(from, q.id, q.attempt, reject(reason));
            return;
        }
        if q.deadline.0.saturating_add(LATE_MAX.0) < now.0 && !self.ingress.knows((q.app, q.id)) {
            let ago_ms = (now.0 - q.deadline.0) / 1_000_000;
            let reason = format!("deadline was {ago_ms} ms ago");
            self.answer(from, q.id, q.attempt, reject(&reason));
            return;
        }
        let admitted_max = match self.memory_full {
            Some(_) => 0,
            None => app.plan.app.spec.admitted_max,
        };
        let attempt = (q.attempt, q.deadline);
        let fingerprint = q.fingerprint();
        match self
            .ingress
            .admit(from, (q.app, q.id), attempt, fingerprint, admitted_max)
        {
            Admission::Wait => {}
            Admission::Conflict => self.drop_for("request"),
            Admission::Repeat(reply) => self.answer(from, q.id, q.attempt, reply),
            Admission::Overloaded => {
                let reply = Reply {
                    outcome: Outcome::Overloaded,
                    status: 0,
                    payload: Vec::new(),
                };
                self.answer(from, q.id, q.attempt, reply);
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
            Ok(Some((client, attempt))) => self.answer(client, id, attempt, reply),
            Ok(None) => {}
            Err(reason) => self.drop_for(reason),
        }
    }

    pub(crate) fn answer(&mut self, to: Address, id: RequestId, attempt: u16, reply: Reply) {
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
