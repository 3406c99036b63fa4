//! Attempts that were refused. A refusal is final: the client may take it for the outcome of its
//! request, so a copy of the attempt that the network delivers later must be refused as well.
//!
//! By client, since a client says which of its requests it has done with: what is remembered follows
//! from its requests in flight, not from how many were refused. A copy that comes after the deadline
//! is refused for that reason, and nothing need be remembered any more.

use super::Attempt;
use crate::limits::{DEADLINE_AHEAD_MAX, LATE_MAX, REFUSED_MAX};
use crate::refusal::refuse;
use e3_model::{AppId, RequestId, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Attempts of clients that were refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    clients: BTreeMap<(AppId, u64), Client>,
    /// When clients are forgotten. Each has one place; one whose time moved is put in again.
    order: BinaryHeap<Reverse<(Timestamp, AppId, u64)>>,
    /// Clients and their requests.
    len: usize,
}

#[derive(Debug)]
struct Client {
    /// Requests below this one are refused: the client has done with them, or there was no room.
    oldest_seq: u64,
    requests: BTreeMap<u64, Refusal>,
    until: Timestamp,
}

#[derive(Debug)]
struct Refusal {
    /// The highest one.
    attempt: u16,
    deadline: Timestamp,
    reply: Reply,
}

impl Client {
    /// Gives how many requests are forgotten with that.
    fn done_below(&mut self, oldest_seq: u64) -> usize {
        self.oldest_seq = self.oldest_seq.max(oldest_seq);
        let left = self.requests.split_off(&self.oldest_seq);
        std::mem::replace(&mut self.requests, left).len()
    }
}

impl Refused {
    /// Whether a refusal of an application is remembered.
    pub(super) fn knows_any(&self, app: AppId) -> bool {
        let mut clients = self.clients.range((app, 0)..);
        clients.next().is_some_and(|((of, _), _)| *of == app)
    }

    /// The refusal of an attempt, if it is a copy of one that was refused. An idempotency key may
    /// come again with a later deadline, which is another request to be admitted.
    pub(super) fn find(
        &mut self,
        now: Timestamp,
        (app, id): (AppId, RequestId),
        attempt: &Attempt,
        oldest_seq: u64,
    ) -> Option<Reply> {
        let client = self.clients.get_mut(&(app, id.client))?;
        self.len -= client.done_below(oldest_seq);
        if id.seq < client.oldest_seq {
            client.until = client.until.max(until(now, attempt.deadline));
            return Some(refuse(Outcome::Overloaded, ""));
        }
        let refusal = client.requests.get(&id.seq)?;
        let is_copy = attempt.number <= refusal.attempt && attempt.deadline <= refusal.deadline;
        is_copy.then(|| refusal.reply.clone())
    }

    /// Remembers the refusal of an attempt. False if there is no room: then it must not be told.
    pub(super) fn insert(
        &mut self,
        now: Timestamp,
        (app, id): (AppId, RequestId),
        attempt: &Attempt,
        oldest_seq: u64,
        reply: &Reply,
    ) -> bool {
        let until = until(now, attempt.deadline);
        if until < now {
            return true;
        }
        if !self.clients.contains_key(&(app, id.client)) {
            if self.len >= REFUSED_MAX {
                return false;
            }
            self.order.push(Reverse((until, app, id.client)));
            self.len += 1;
        }
        let client = self.clients.entry((app, id.client)).or_insert(Client {
            oldest_seq,
            requests: BTreeMap::new(),
            until,
        });
        client.until = client.until.max(until);
        self.len -= client.done_below(oldest_seq);
        if self.len >= REFUSED_MAX {
            let Some(oldest) = client.requests.keys().next().copied() else {
                return false;
            };
            self.len -= client.done_below(oldest.saturating_add(1));
        }
        let refusal = Refusal {
            attempt: attempt.number,
            deadline: attempt.deadline,
            reply: reply.clone(),
        };
        self.len += usize::from(client.requests.insert(id.seq, refusal).is_none());
        true
    }

    /// Forgets clients all of whose refused requests have expired.
    pub(super) fn forget(&mut self, now: Timestamp) {
        while let Some(Reverse((at, app, client))) = self.order.peek().copied()
            && at < now
        {
            self.order.pop();
            match self.clients.get(&(app, client)).map(|c| c.until) {
                Some(until) if until >= now => self.order.push(Reverse((until, app, client))),
                Some(_) => self.remove((app, client)),
                None => {}
            }
        }
    }

    fn remove(&mut self, client: (AppId, u64)) {
        let gone = self.clients.remove(&client);
        self.len -= gone.map_or(0, |c| 1 + c.requests.len());
    }

    /// Forgets an application.
    pub(super) fn delete(&mut self, app: AppId) {
        let of_app = self.clients.range((app, 0)..=(app, u64::MAX));
        for client in of_app.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(client);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Until when a copy of a request with this deadline may be admitted.
fn until(now: Timestamp, deadline: Timestamp) -> Timestamp {
    deadline.min(now + DEADLINE_AHEAD_MAX) + LATE_MAX
}
