//! The dedup table: what a shard has handled, so that nothing takes effect twice.
//!
//! Kept per key slot, so that it can follow a slot through a split or merge. Bounded two ways: a
//! client says below which of its requests it needs no answer any more, and a request's deadline
//! says when no copy of its messages is accepted any more. A request with an idempotency key is
//! remembered for longer, since its client may come back through another node. All of it is read
//! from the log entries only, so that primary and backups forget the same things.

use crate::deliberate::{self, Fault};
use crate::limits::{DEDUP_GRACE, KEYED_GRACE, REMEMBERED_OVERHEAD_BYTES};
use e3_model::{MessageId, RequestId, Slot, Timestamp, Via};
use e3_wire::entry::{Entry, Outcome};
use e3_wire::message::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

/// Messages handled by one shard.
#[derive(Debug, Default)]
pub(crate) struct DedupTable {
    clients: BTreeMap<(Slot, u64), Client>,
    /// About what the remembered entries take.
    bytes: usize,
    /// What is forgotten next comes first: time, number of the entry, its message. An entry that
    /// was replaced or forgotten earlier stays until its time and then means nothing.
    order: BinaryHeap<Reverse<(Timestamp, u64, Slot, MessageId)>>,
}

#[derive(Debug, Default)]
struct Client {
    /// Requests below this one are answered.
    oldest_seq: u64,
    /// Its places in the order of forgetting. While there is one, a copy of an answered request may
    /// still come, and must be known as such.
    places: usize,
    /// What came from clients, apart from the rest: answered requests are forgotten from the
    /// front, without a look at what stays.
    requests: BTreeMap<(u64, u32), Rc<Entry>>,
    /// What came from other shards, and replays of timers' requests.
    messages: BTreeMap<(u64, Via, u32), Rc<Entry>>,
}

impl Client {
    fn get(&self, id: &MessageId) -> Option<&Rc<Entry>> {
        let seq = id.request.seq;
        match id.via {
            Via::Ingress => self.requests.get(&(seq, id.index)),
            via => self.messages.get(&(seq, via, id.index)),
        }
    }

    fn get_mut(&mut self, id: &MessageId) -> Option<&mut Rc<Entry>> {
        let seq = id.request.seq;
        match id.via {
            Via::Ingress => self.requests.get_mut(&(seq, id.index)),
            via => self.messages.get_mut(&(seq, via, id.index)),
        }
    }

    /// Gives the entry that was there before.
    fn insert(&mut self, entry: Rc<Entry>) -> Option<Rc<Entry>> {
        let MessageId {
            request,
            via,
            index,
        } = entry.id;
        match via {
            Via::Ingress => self.requests.insert((request.seq, index), entry),
            via => self.messages.insert((request.seq, via, index), entry),
        }
    }

    fn remove(&mut self, id: &MessageId) -> Option<Rc<Entry>> {
        let seq = id.request.seq;
        match id.via {
            Via::Ingress => self.requests.remove(&(seq, id.index)),
            via => self.messages.remove(&(seq, via, id.index)),
        }
    }

    /// Forgets the requests that this entry says are answered; gives what they took. One of which a copy
    /// may come when this entry is forgotten keeps its place: a snapshot has nothing else that says so.
    fn answered(&mut self, by: &Entry) -> usize {
        let from = self.oldest_seq;
        if by.oldest_seq <= from {
            return 0;
        }
        self.oldest_seq = by.oldest_seq;
        let remembered = until(by);
        let mut freed = 0;
        let answered = (from, 0)..(by.oldest_seq, 0);
        let forgotten = self.requests.extract_if(answered, |_, entry| {
            freed += bytes(entry);
            if until(entry) <= remembered {
                return true;
            }
            clear(entry);
            freed -= bytes(entry);
            false
        });
        forgotten.for_each(drop);
        freed
    }

    fn entries(&self) -> impl Iterator<Item = &Rc<Entry>> {
        self.requests.values().chain(self.messages.values())
    }

    /// Entries behind this message, in the order of [`Client::entries`].
    fn entries_after(&self, id: MessageId) -> impl Iterator<Item = &Rc<Entry>> {
        let seq = id.request.seq;
        let (request, message) = match id.via {
            Via::Ingress => (Excluded((seq, id.index)), Unbounded),
            // Messages come after all requests.
            via => (
                Excluded((u64::MAX, u32::MAX)),
                Excluded((seq, via, id.index)),
            ),
        };
        let requests = self.requests.range((request, Unbounded));
        let messages = self.messages.range((message, Unbounded));
        requests.map(|(_, e)| e).chain(messages.map(|(_, e)| e))
    }
}

/// Nobody wants the answer of this entry's request any more.
fn clear(entry: &mut Rc<Entry>) {
    let known = Rc::make_mut(entry);
    (known.outputs, known.reply, known.dead) = (Vec::new(), None, None);
}

/// About what an entry takes while it is remembered.
fn bytes(entry: &Rc<Entry>) -> usize {
    REMEMBERED_OVERHEAD_BYTES + entry.len_estimate()
}

/// Until when an entry's message is remembered.
fn until(entry: &Entry) -> Timestamp {
    if deliberate::is(Fault::ForgetEarly) {
        return entry.now;
    }
    remembered_until(entry.deadline, entry.is_keyed())
}

/// Until when a message of a request with this deadline is remembered.
pub(crate) fn remembered_until(deadline: Timestamp, is_keyed: bool) -> Timestamp {
    deadline + if is_keyed { KEYED_GRACE } else { DEDUP_GRACE }
}

/// Whether a message that replays this dead letter was sent by a client for that. One that comes again with
/// more time replays its own.
pub(crate) fn is_replay(replays: Option<MessageId>, id: MessageId) -> bool {
    replays.is_some_and(|letter| letter != id)
}

/// Whether this shard did nothing for a message because its deadline had passed, so that it may be handled when it
/// comes with more time. A former process of a stateless service may have handled it: then the services downstream
/// recognise what follows from it.
pub(crate) fn may_come_again(given_up: &Entry, stateful: bool) -> bool {
    let is_late = given_up.deadline < given_up.now;
    let outcome = given_up.reply.as_ref().map(|r| r.outcome);
    given_up.dead.is_some()
        && match outcome {
            Some(Outcome::Expired) => true,
            Some(Outcome::Unknown) => !stateful && is_late,
            _ => false,
        }
}

/// Whether a retry of an expired message may be handled now, in place of its dead letter: its
/// request has an idempotency key and a later deadline.
pub(crate) fn revives(expired: &Entry, retry: &Message, now: Timestamp, stateful: bool) -> bool {
    retry.is_keyed()
        && may_come_again(expired, stateful)
        && retry.deadline > expired.deadline.max(now)
}

/// What is known of a message.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// Nothing.
    New,
    /// Handled, with this result.
    Handled(Rc<Entry>),
    /// A late copy of a request that its client has done with.
    Stale,
}

impl DedupTable {
    /// What is known of a message.
    pub(crate) fn look_up(&self, slot: Slot, id: &MessageId) -> Lookup {
        let Some(client) = self.clients.get(&(slot, id.request.client)) else {
            return Lookup::New;
        };
        // Only requests: messages between shards may be in flight after the answer.
        if id.via == Via::Ingress && id.request.seq < client.oldest_seq {
            return Lookup::Stale;
        }
        client
            .get(id)
            .map_or(Lookup::New, |entry| Lookup::Handled(entry.clone()))
    }

    /// Remembers a handled message and forgets what needs no remembering any more.
    pub(crate) fn insert(&mut self, mut entry: Rc<Entry>) {
        let now = entry.now;
        let id = entry.id;
        let client = self
            .clients
            .entry((entry.slot, id.request.client))
            .or_default();
        self.bytes -= client.answered(&entry);
        // A later one was handled first.
        if id.via == Via::Ingress && id.request.seq < client.oldest_seq {
            clear(&mut entry);
        }
        client.places += 1;
        self.order
            .push(Reverse((until(&entry), entry.op, entry.slot, id)));
        self.bytes += bytes(&entry);
        self.bytes -= client.insert(entry).as_ref().map_or(0, bytes);
        self.forget(now);
    }

    /// Forgets a message, which is handled again if it comes again.
    pub(crate) fn remove(&mut self, slot: Slot, id: &MessageId) {
        let client = self.clients.get_mut(&(slot, id.request.client));
        let entry = client.and_then(|client| client.remove(id));
        self.bytes -= entry.as_ref().map_or(0, bytes);
    }

    /// A dead letter was replayed as another message: no retry may be handled in its place. A client
    /// that retries an expired request gets the outcome *unknown*, so that it stops.
    pub(crate) fn on_replayed(&mut self, slot: Slot, letter: &MessageId) {
        let client = self.clients.get_mut(&(slot, letter.request.client));
        if let Some(entry) = client.and_then(|c| c.get_mut(letter)) {
            self.bytes -= bytes(entry);
            let known = Rc::make_mut(entry);
            known.dead = None;
            if let Some(reply) = &mut known.reply
                && reply.outcome == Outcome::Expired
            {
                reply.outcome = Outcome::Unknown;
                reply.payload = b"its dead letter was replayed".to_vec();
            }
            self.bytes += bytes(entry);
        }
    }

    /// Forgets what no copy can come of any more.
    fn forget(&mut self, now: Timestamp) {
        while let Some(Reverse((until, op, slot, id))) = self.order.peek().copied()
            && until < now
            && !deliberate::is(Fault::NothingForgotten)
        {
            self.order.pop();
            let Some(client) = self.clients.get_mut(&(slot, id.request.client)) else {
                continue;
            };
            if client.get(&id).is_some_and(|e| e.op == op) {
                self.bytes -= client.remove(&id).as_ref().map_or(0, bytes);
            }
            client.places -= 1;
            if client.places == 0 {
                self.clients.remove(&(slot, id.request.client));
            }
        }
    }

    /// Whether the idempotency key of this request belongs to another request.
    pub(crate) fn has_other(&self, slot: Slot, id: RequestId) -> bool {
        let Some(client) = self.clients.get(&(slot, id.client)) else {
            return false;
        };
        let mut requests = client.requests.iter();
        requests.any(|((seq, _), entry)| *seq != id.seq && entry.is_keyed())
    }

    /// The attempt under which a copy of a handled message is answered once more; None if it asks
    /// for nothing new. With an idempotency key each ingress counts attempts for itself, and the primary of each
    /// shard, whose successor does not know them, so every copy that one passes on asks; any other asks if its
    /// attempt, which the client counts, is higher than those before.
    pub(crate) fn next_attempt(&mut self, slot: Slot, id: &MessageId, attempt: u16) -> Option<u16> {
        let client = self.clients.get_mut(&(slot, id.request.client))?;
        let entry = client.get_mut(id)?;
        let next = if entry.is_keyed() {
            attempt.max(entry.attempt.saturating_add(1))
        } else if attempt > entry.attempt {
            attempt
        } else {
            return None;
        };
        Rc::make_mut(entry).attempt = next;
        Some(next)
    }

    /// All that is remembered behind this message, in an order that writes do not disturb.
    pub(crate) fn entries_after(
        &self,
        place: Option<(Slot, MessageId)>,
    ) -> impl Iterator<Item = &Rc<Entry>> {
        let client = place.map(|(slot, id)| (slot, id.request.client));
        let rest = client.map_or(Unbounded, Excluded);
        let within = client.and_then(|key| self.clients.get(&key)).zip(place);
        let within = within.map(|(client, (_, id))| client.entries_after(id));
        let rest = self.clients.range((rest, Unbounded));
        let rest = rest.flat_map(|(_, client)| client.entries());
        within.into_iter().flatten().chain(rest)
    }

    /// Divides what some shards remember among `count` others, whose time is `now`; `place` says which of them
    /// has a slot. The time of one of the shards may have been earlier, so that it remembers more: that is
    /// forgotten, as a copy that gets the table in pieces would forget it.
    pub(crate) fn reshard(
        from: Vec<DedupTable>,
        count: usize,
        now: Timestamp,
        place: impl Fn(Slot) -> usize,
    ) -> Vec<DedupTable> {
        // Tree and heap are made whole: the shard stands still meanwhile.
        let mut to: Vec<(Vec<_>, Vec<_>, usize)> = (0..count).map(|_| Default::default()).collect();
        for table in from {
            for (key, client) in table.clients {
                let (clients, _, len) = &mut to[place(key.0)];
                *len += client.entries().map(bytes).sum::<usize>();
                clients.push((key, client));
            }
            for Reverse(place_in_order) in table.order {
                to[place(place_in_order.2)].1.push(Reverse(place_in_order));
            }
        }
        let table = |(clients, order, bytes): (Vec<_>, Vec<_>, usize)| {
            let mut table = DedupTable {
                clients: clients.into_iter().collect(),
                order: order.into(),
                bytes,
            };
            table.forget(now);
            table
        };
        to.into_iter().map(table).collect()
    }

    /// About what is remembered takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that have a place in the order of forgetting: those that are remembered, and more.
    pub(crate) fn places(&self) -> usize {
        self.order.len()
    }

    /// Messages remembered.
    pub(crate) fn len(&self) -> usize {
        self.clients
            .values()
            .map(|c| c.requests.len() + c.messages.len())
            .sum()
    }
}

#[cfg(test)]
pub(crate) mod tests;
