//! Ingress: admits requests from clients, remembers their answers.
//!
//! Admission is decided here and only here: what is admitted is finished, what is not is answered
//! "overloaded" at once. A retry of an answered request gets the same answer again, a copy of a
//! refused attempt the same refusal.

mod refused;

use crate::limits::*;
use e3_model::application::ApplicationSpec;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::plan::IngressCounts;
use e3_model::topic::Topic;
use e3_model::{Address, AppId, DropReason, Nanos, RequestId, ServiceId, ShardKey, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::{Outcome, Reply};
use refused::Refused;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Requests that clients sent to this node.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    sessions: BTreeMap<(AppId, RequestId), Session>,
    /// When sessions are forgotten. One whose deadline moved has a later place as well.
    order: BinaryHeap<Reverse<(Timestamp, AppId, RequestId)>>,
    /// When shards forget the requests with an idempotency key that were admitted.
    keyed: BinaryHeap<Reverse<Timestamp>>,
    /// Requests that hold a place of their application's `admittedMax`.
    in_flight: BTreeMap<AppId, u32>,
    /// When requests without an answer give back their places. Invariant: in order.
    awaited: VecDeque<(Timestamp, AppId, RequestId)>,
    refused: Refused,
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
    /// A shard here, for its service.
    Shard(ShardKey),
    /// A shard whose primary here has ended: its next primary asks for itself.
    Former,
}

impl Asker {
    /// Whether each attempt comes once: it is not brought by a network, which may deliver it again.
    pub(crate) fn is_local(self) -> bool {
        match self {
            Asker::Client(_) => false,
            Asker::Driver | Asker::Shard(_) | Asker::Former => true,
        }
    }
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
    /// The client does not have the answer yet, since not all that follows is durable.
    is_held: bool,
    /// It counts as in flight.
    has_place: bool,
    /// A copy is on its way to the shard: its channel keeps it until it is durable there.
    is_on_the_way: bool,
    /// When it gives back its place, if it is durable at its shard and has no answer.
    awaited_until: Timestamp,
}

impl Session {
    fn until(&self) -> Timestamp {
        self.deadline + DEDUP_GRACE
    }

    /// Whether its shard may handle a retry with a later deadline.
    fn is_expired(&self) -> bool {
        match self.reply.as_ref().map(|r| r.outcome) {
            Some(Outcome::Expired) => true,
            // The shard knows whether anything was done.
            Some(Outcome::Unknown) => self.keyed,
            _ => false,
        }
    }
}

/// Where a request enters its application.
#[derive(Debug, Default)]
pub(crate) struct RequestEntry {
    /// The source service, if it is none.
    pub(crate) service: Option<ServiceId>,
    /// The topic of the publication that it brings.
    pub(crate) topic: Option<Box<Topic>>,
}

/// An attempt at a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) from: Asker,
    /// From 0.
    pub(crate) number: u16,
    pub(crate) deadline: Timestamp,
    /// Of what is asked.
    pub(crate) fingerprint: u32,
    /// It has an idempotency key.
    pub(crate) keyed: bool,
    /// It replays a dead letter.
    pub(crate) is_replay: bool,
}

impl Attempt {
    /// The attempt that brings a request.
    pub(crate) fn of(from: Asker, q: &Request) -> Attempt {
        Attempt {
            from,
            number: q.attempt,
            deadline: q.deadline,
            fingerprint: q.fingerprint(),
            keyed: q.oldest_seq == 0,
            is_replay: false,
        }
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

    /// Whether any request of an application is known here, or the refusal of one.
    pub(crate) fn knows_any(&self, app: AppId) -> bool {
        let first = (app, RequestId { client: 0, seq: 0 });
        let mut sessions = self.sessions.range(first..);
        let session = sessions.next().is_some_and(|((of, _), _)| *of == app);
        session || self.refused.knows_any(app)
    }

    /// Decides on an attempt at a request of an application that may have so many in flight. A retry
    /// of an expired request with a later deadline is forwarded: if it has an idempotency key, its
    /// shard may handle it now.
    pub(crate) fn admit(
        &mut self,
        key: (AppId, RequestId),
        attempt: &Attempt,
        admitted_max: u32,
    ) -> Admission {
        let Attempt {
            from,
            number,
            deadline,
            fingerprint,
            keyed,
            is_replay,
        } = *attempt;
        let in_flight = self.in_flight.entry(key.0).or_default();
        if let Some(session) = self.sessions.get_mut(&key) {
            if session.fingerprint != fingerprint {
                return Admission::Conflict;
            }
            session.asker = from;
            let later = deadline > session.deadline;
            // Only the shard can remember a key for longer, so it hears of a repeat that may come again later.
            let is_noted = session.keyed
                && session.reply.is_some()
                && !session.is_held
                && deadline > session.deadline + REPEAT_NOTED_AFTER;
            let is_revived = (session.is_expired() && later) || is_noted;
            if is_revived {
                session.reply = None;
            }
            if let Some(reply) = session.reply.as_ref().filter(|_| !session.is_held) {
                return Admission::Repeat(reply.clone());
            } else if number <= session.attempt && !is_revived {
                return Admission::Wait;
            } else if session.is_on_the_way && !is_replay {
                // Another copy would only wait behind the one before.
                session.attempt = number;
                return Admission::Wait;
            }
            session.attempt = number;
            if !std::mem::replace(&mut session.has_place, true) {
                *in_flight += 1;
            }
            if later {
                session.deadline = deadline;
                self.order.push(Reverse((session.until(), key.0, key.1)));
            }
            return Admission::Forward;
        }
        let full = self.sessions.len() >= SESSIONS_MAX || (keyed && self.keyed.len() >= KEYED_MAX);
        if *in_flight >= admitted_max || full {
            self.overloaded += 1;
            self.counts.entry(key.0).or_default().overloaded += 1;
            return Admission::Overloaded;
        }
        *in_flight += 1;
        self.admitted += 1;
        self.counts.entry(key.0).or_default().admitted += 1;
        if keyed {
            self.keyed.push(Reverse(deadline + KEYED_GRACE));
        }
        let session = Session {
            asker: from,
            attempt: number,
            fingerprint,
            keyed,
            deadline,
            reply: None,
            is_held: false,
            has_place: true,
            is_on_the_way: false,
            awaited_until: Timestamp::MAX,
        };
        self.order.push(Reverse((session.until(), key.0, key.1)));
        self.sessions.insert(key, session);
        Admission::Forward
    }

    /// A copy of the request is on its way to its shard. Gives until when anyone waits for that.
    pub(crate) fn on_forwarded(&mut self, key: (AppId, RequestId)) -> Timestamp {
        let Some(session) = self.sessions.get_mut(&key) else {
            return Timestamp::MAX;
        };
        session.is_on_the_way = true;
        session.until()
    }

    /// The same for a replay of a dead letter. It holds no place: if the process of its shard ends,
    /// nothing of it is on the way any more, and nobody says so.
    pub(crate) fn on_replay_forwarded(&mut self, key: (AppId, RequestId)) {
        self.on_forwarded(key);
        self.release(key);
    }

    /// A copy of the request is durable at its shard, or was given to it here. Then its answer comes
    /// soon, or comes to another node. Gives an answer that waited for this, whom to send it to, and
    /// the latest attempt.
    pub(crate) fn on_durable(
        &mut self,
        now: Timestamp,
        key: (AppId, RequestId),
    ) -> Option<(Asker, u16, Reply)> {
        let session = self.sessions.get_mut(&key)?;
        session.is_on_the_way = false;
        if std::mem::take(&mut session.is_held) {
            let answer = (session.asker, session.attempt, session.reply.clone()?);
            self.release(key);
            return Some(answer);
        }
        if session.has_place {
            session.awaited_until = now + ANSWER_AWAITED;
            let until = session.awaited_until;
            self.awaited.push_back((until, key.0, key.1));
        }
        None
    }

    /// Shards that this node no longer asks for.
    pub(crate) fn end_asks(&mut self, shards: &BTreeSet<ShardKey>) {
        if shards.is_empty() {
            return;
        }
        for session in self.sessions.values_mut() {
            if matches!(session.asker, Asker::Shard(shard) if shards.contains(&shard)) {
                session.asker = Asker::Former;
            }
        }
    }

    /// A channel begins again towards another process. Whether the copy of a request is not sent there,
    /// since it has its answer, or since its asker asks elsewhere: a shard that has lost its state would
    /// handle it once more, after later ones.
    pub(crate) fn give_up(&mut self, key: (AppId, RequestId)) -> bool {
        let session = self.sessions.get_mut(&key);
        let is_over =
            |s: &&mut Session| (s.reply.is_some() && !s.is_held) || s.asker == Asker::Former;
        let Some(session) = session.filter(is_over) else {
            return false;
        };
        session.is_on_the_way = false;
        self.release(key);
        true
    }

    /// A request gives back its place.
    pub(crate) fn release(&mut self, key: (AppId, RequestId)) {
        if let Some(session) = self.sessions.get_mut(&key)
            && std::mem::replace(&mut session.has_place, false)
            && let Some(n) = self.in_flight.get_mut(&key.0)
        {
            *n = n.saturating_sub(1);
        }
    }

    /// What was answered to an attempt that is a copy of a refused one.
    pub(crate) fn refused(
        &mut self,
        now: Timestamp,
        key: (AppId, RequestId),
        attempt: &Attempt,
        oldest_seq: u64,
    ) -> Option<Reply> {
        self.refused.find(now, key, attempt, oldest_seq)
    }

    /// Remembers that an attempt is refused. False if it cannot be remembered: a copy of it may still
    /// be admitted, so the client must not hear of a refusal.
    pub(crate) fn remember_refusal(
        &mut self,
        now: Timestamp,
        key: (AppId, RequestId),
        attempt: &Attempt,
        oldest_seq: u64,
        reply: &Reply,
    ) -> bool {
        self.refused.insert(now, key, attempt, oldest_seq, reply)
    }

    /// The attempt that the driver's next one is.
    pub(crate) fn next_attempt(&self, key: (AppId, RequestId)) -> u16 {
        let session = self.sessions.get(&key);
        session.map_or(0, |s| s.attempt.saturating_add(1))
    }

    /// Takes an answer to an attempt; gives whom to send it to, the latest attempt, and what to send. None
    /// if it is known already, or if it is the answer of a branch and the request is not durable yet: what
    /// else follows from it could be lost, and nobody would retry. If a service before the branches then gives
    /// it up, the outcome is unknown; what has an idempotency key may be repeated if it expired. DropReason if
    /// this node never sent such an attempt; what has an idempotency key other nodes may have sent too.
    pub(crate) fn on_reply(
        &mut self,
        key: (AppId, RequestId),
        attempt: u16,
        is_branch: bool,
        reply: &Reply,
    ) -> Result<Option<(Asker, u16, Reply)>, DropReason> {
        let session = self.sessions.get_mut(&key).ok_or(DropReason::Reply)?;
        if attempt > session.attempt && !session.keyed {
            return Err(DropReason::Reply);
        }
        let mut reply = reply.clone();
        let is_given_up = session.is_held && !is_branch && reply.outcome != Outcome::Done;
        if is_given_up {
            session.is_held = false;
            if !session.keyed || reply.outcome != Outcome::Expired {
                reply.outcome = Outcome::Unknown;
            }
        }
        // A retry of an expired request may have been handled after all. A branch says nothing of that.
        let known = session.reply.as_ref().map(|r| r.outcome);
        let is_news = reply.outcome != Outcome::Expired && Some(reply.outcome) != known;
        let better = session.is_expired() && !is_branch && is_news;
        if session.reply.is_some() && !better && !is_given_up {
            return Ok(None);
        }
        session.reply = Some(reply.clone());
        if is_branch && session.is_on_the_way && reply.outcome == Outcome::Done {
            session.is_held = true;
            return Ok(None);
        }
        let answer = (session.asker, session.attempt, reply);
        self.release(key);
        Ok(Some(answer))
    }

    /// Forgets what no client will ask for again.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        while let Some(Reverse((until, app, id))) = self.order.peek().copied()
            && until <= now
        {
            self.order.pop();
            let session = self.sessions.get(&(app, id));
            if session.is_some_and(|s| s.until() <= now) {
                self.release((app, id));
                self.sessions.remove(&(app, id));
            }
        }
        while let Some((until, app, id)) = self.awaited.front().copied()
            && until <= now
        {
            self.awaited.pop_front();
            // Not if it was forwarded again since.
            let session = self.sessions.get(&(app, id));
            if session.is_some_and(|s| !s.is_on_the_way && s.awaited_until == until) {
                self.release((app, id));
            }
        }
        self.refused.forget(now);
        while self.keyed.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.keyed.pop();
        }
    }

    /// Forgets an application.
    pub(crate) fn delete(&mut self, app: AppId) {
        self.sessions.retain(|(a, _), _| *a != app);
        self.refused.delete(app);
        self.in_flight.remove(&app);
        self.counts.remove(&app);
    }

    /// Requests that it remembers.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Requests that hold a place.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.values().sum()
    }
}

/// How far ahead of now a request's deadline may be.
pub(crate) fn ahead_max(spec: &ApplicationSpec) -> Nanos {
    let bound = spec.deadline_max() + CLOCK_AHEAD_MAX;
    bound.min(DEADLINE_AHEAD_MAX)
}

/// Why a request is refused before it is admitted; in words for its client.
pub(crate) fn check_request(
    now: Timestamp,
    q: &Request,
    is_known: bool,
    ahead_max: Nanos,
) -> Result<(), String> {
    if q.id.seq == 0 {
        return Err("request number is 0, must be at least 1".into());
    }
    if q.key.is_empty() || q.key.len() > KEY_LEN_MAX || q.payload.len() > PAYLOAD_LEN_MAX {
        return Err(format!(
            "key of {} and payload of {} bytes, must be 1..={KEY_LEN_MAX} and at most {PAYLOAD_LEN_MAX}",
            q.key.len(),
            q.payload.len()
        ));
    }
    if q.deadline > now + ahead_max && !is_known {
        let ahead_s = q.deadline.since(now).as_secs();
        let max_s = ahead_max.as_secs();
        return Err(format!(
            "deadline is {ahead_s} s ahead, must be at most {max_s} s: the application's deadline, or a minute if that is longer, and a minute for clocks"
        ));
    }
    if q.sent > now + CLOCK_AHEAD_MAX && !is_known {
        let ahead_s = q.sent.since(now).as_secs();
        let max_s = CLOCK_AHEAD_MAX.as_secs();
        return Err(format!(
            "request is sent {ahead_s} s from now, must be at most {max_s} s: set the client's clock right"
        ));
    }
    if q.oldest_seq > q.id.seq {
        return Err("oldest request without an answer comes after this one".into());
    }
    if is_too_late(now, q.deadline) && !is_known {
        let ago_ms = now.since(q.deadline).as_millis();
        return Err(format!("deadline was {ago_ms} ms ago"));
    }
    Ok(())
}

/// When a request was sent, within its application's deadline. It follows from the request alone, so
/// that every ingress says the same, whatever its clock shows.
pub(crate) fn sent_at(q: &Request, spec: &ApplicationSpec) -> Timestamp {
    q.sent.min(q.deadline).max(q.deadline - spec.deadline_max())
}

/// Whether a request with this deadline may have been forgotten by its shard.
pub(crate) fn is_too_late(now: Timestamp, deadline: Timestamp) -> bool {
    deadline + LATE_MAX < now
}

#[cfg(test)]
mod tests;
