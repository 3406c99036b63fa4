//! Ingress: admits requests from clients, remembers their answers.
//!
//! Admission is decided here and only here: what is admitted is finished, what is not is answered
//! "overloaded" at once. A repeat of an answered request gets the same answer again.

use crate::limits::*;
use e3_model::{Address, AppId, Nanos, RequestId};
use e3_wire::entry::Reply;
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
    reply: Option<Reply>,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Forward it.
    Forward,
    /// Answer it with what was answered before.
    Repeat(Reply),
    /// Nothing: it is under way.
    Wait,
    /// Too much is under way.
    Overloaded,
}

impl Ingress {
    /// Decides on an attempt at a request, with its deadline.
    pub(crate) fn admit(
        &mut self,
        from: Address,
        key: (AppId, RequestId),
        (attempt, deadline): (u16, Nanos),
        admitted_max: u32,
    ) -> Admission {
        if let Some(session) = self.sessions.get_mut(&key) {
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
        let until = Nanos(deadline.0 + SEEN_GRACE.0);
        self.order.push_back((key.0, key.1, until));
        self.sessions.insert(
            key,
            Session {
                client: from,
                attempt,
                reply: None,
            },
        );
        Admission::Forward
    }

    /// Takes an answer; gives the client to send it to. None if it is known already.
    pub(crate) fn on_reply(&mut self, app: AppId, id: RequestId, reply: &Reply) -> Option<Address> {
        let session = self.sessions.get_mut(&(app, id))?;
        if session.reply.is_some() {
            return None;
        }
        session.reply = Some(reply.clone());
        if let Some(n) = self.under_way.get_mut(&app) {
            *n = n.saturating_sub(1);
        }
        Some(session.client)
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
