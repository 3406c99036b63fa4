//! What a shard has handled, so that nothing takes effect twice.
//!
//! Kept per key slot, so that it can follow a slot through a split or merge. Bounded two ways: a
//! client says below which of its requests it needs no answer any more, and a request's deadline
//! says when no copy of its messages is accepted any more. Both are read from the log entries only,
//! so that primary and backups forget the same things.

use crate::limits::SEEN_GRACE;
use e3_model::{MessageId, Nanos, Slot, Via};
use e3_wire::entry::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Messages handled by one shard.
#[derive(Debug, Default)]
pub struct Seen {
    clients: BTreeMap<(Slot, u64), Client>,
    /// In the order of the log, for forgetting.
    order: VecDeque<(Slot, MessageId, Nanos)>,
}

#[derive(Debug, Default)]
struct Client {
    /// Requests of clients below this one are answered.
    oldest_seq: u64,
    entries: BTreeMap<(u64, Via, u32), Rc<Entry>>,
}

/// What is known of a message.
#[derive(Clone, Debug)]
pub enum Known {
    /// Nothing.
    New,
    /// Handled, with this result.
    Handled(Rc<Entry>),
    /// A late copy of a request that its client has done with.
    Stale,
}

impl Seen {
    /// What is known of a message.
    pub fn look_up(&self, slot: Slot, id: &MessageId) -> Known {
        let Some(client) = self.clients.get(&(slot, id.request.client)) else {
            return Known::New;
        };
        match client.entries.get(&(id.request.seq, id.via, id.index)) {
            Some(entry) => Known::Handled(entry.clone()),
            // Only for requests: messages between shards may be under way after the answer.
            None if id.via == Via::Ingress && id.request.seq < client.oldest_seq => Known::Stale,
            None => Known::New,
        }
    }

    /// Remembers a handled message and forgets what needs no remembering any more.
    pub fn insert(&mut self, entry: Rc<Entry>) {
        let now = entry.now;
        let id = entry.id;
        let client = self
            .clients
            .entry((entry.slot, id.request.client))
            .or_default();
        if entry.oldest_seq > client.oldest_seq {
            client.oldest_seq = entry.oldest_seq;
            // Requests sort by sequence number first; what came by an edge stays.
            let answered = (client.oldest_seq, Via::Ingress, 0);
            let old: Vec<_> = client
                .entries
                .range(..answered)
                .map(|(k, _)| *k)
                .filter(|(_, via, _)| *via == Via::Ingress)
                .collect();
            for key in old {
                client.entries.remove(&key);
            }
        }
        self.order.push_back((
            entry.slot,
            id,
            Nanos(entry.deadline.0.saturating_add(SEEN_GRACE.0)),
        ));
        client
            .entries
            .insert((id.request.seq, id.via, id.index), entry);
        while self.order.front().is_some_and(|(_, _, until)| *until < now) {
            let (slot, id, _) = self.order.pop_front().expect("looked at");
            let Some(client) = self.clients.get_mut(&(slot, id.request.client)) else {
                continue;
            };
            client.entries.remove(&(id.request.seq, id.via, id.index));
            if client.entries.is_empty() {
                self.clients.remove(&(slot, id.request.client));
            }
        }
    }

    /// Notes that a copy with this attempt was answered.
    pub fn set_attempt(&mut self, slot: Slot, id: &MessageId, attempt: u16) {
        let client = self.clients.get_mut(&(slot, id.request.client));
        if let Some(entry) =
            client.and_then(|c| c.entries.get_mut(&(id.request.seq, id.via, id.index)))
        {
            let entry = Rc::make_mut(entry);
            entry.attempt = entry.attempt.max(attempt);
        }
    }

    /// All that is remembered, in the order of the log.
    pub fn entries(&self) -> impl Iterator<Item = &Rc<Entry>> {
        self.order.iter().filter_map(|(slot, id, _)| {
            let client = self.clients.get(&(*slot, id.request.client))?;
            client.entries.get(&(id.request.seq, id.via, id.index))
        })
    }

    /// Messages remembered.
    pub fn len(&self) -> usize {
        self.clients.values().map(|c| c.entries.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::{EdgeId, NodeId, RequestId, TraceContext};

    fn entry(seq: u64, via: Via, now: u64, oldest_seq: u64) -> Rc<Entry> {
        Rc::new(Entry {
            op: 0,
            id: MessageId {
                request: RequestId { client: 1, seq },
                via,
                index: 0,
            },
            attempt: 0,
            slot: Slot(5),
            code_version: 1,
            now: Nanos(now),
            deadline: Nanos(now + 10),
            oldest_seq,
            reply_to: NodeId(0),
            reply_to_incarnation: 0,
            trace: TraceContext::default(),
            batch: vec![],
            outputs: vec![],
            reply: None,
            dead: None,
            replays: None,
        })
    }

    #[test]
    fn answered_requests_are_forgotten_messages_between_shards_are_not() {
        let mut seen = Seen::default();
        let edge = Via::Edge(EdgeId(0));
        for seq in 1..=3 {
            seen.insert(entry(seq, Via::Ingress, 0, 1));
            seen.insert(entry(seq, edge, 0, 1));
        }
        seen.insert(entry(4, Via::Ingress, 0, 3));
        let known = |seq, via| {
            seen.look_up(
                Slot(5),
                &MessageId {
                    request: RequestId { client: 1, seq },
                    via,
                    index: 0,
                },
            )
        };
        assert!(matches!(known(2, Via::Ingress), Known::Stale));
        assert!(matches!(known(3, Via::Ingress), Known::Handled(_)));
        assert!(matches!(known(1, edge), Known::Handled(_)));
        assert!(matches!(known(5, Via::Ingress), Known::New));
    }

    #[test]
    fn time_bounds_what_is_remembered() {
        let mut seen = Seen::default();
        for seq in 0..10_000 {
            seen.insert(entry(seq, Via::Edge(EdgeId(1)), seq * 1_000_000_000, 0));
        }
        assert!(seen.len() < 10, "{}", seen.len());
    }
}
