//! Requests as their client and the stubs know them: which are open, and whether a run ends one.

use crate::limits::DEADLINE;
use e3_model::limits::SLOTS;
use e3_model::{AppId, Format, MessageId, RequestId, Slot, Timestamp, TraceContext};
use e3_wire::client::{ClientFrame, Request};
use std::collections::{BTreeMap, BTreeSet};

/// The one client.
const CLIENT: u64 = 1;

/// A request without an outcome, or with messages in flight.
#[derive(Clone, Debug)]
struct Open {
    /// Its number in the simulator; none once it is answered.
    request: Option<u32>,
    /// Messages that no handler has run.
    messages: u32,
    /// Those that a handler has run. It may run one again where its service moves to.
    run: BTreeSet<MessageId>,
    /// The message whose handler answers.
    answered_by: Option<MessageId>,
}

/// All requests.
#[derive(Debug)]
pub(crate) struct Requests {
    app: AppId,
    last: u64,
    open: BTreeMap<u64, Open>,
    /// A key of each slot.
    keys: Vec<[u8; 8]>,
    payload: Vec<u8>,
}

impl Requests {
    pub fn new(app: AppId, bytes: u32) -> Requests {
        Requests {
            app,
            last: 0,
            open: BTreeMap::new(),
            keys: keys(),
            payload: vec![5; bytes as usize],
        }
    }

    /// A new request: its datagram.
    pub fn submit(&mut self, now: Timestamp, request: u32, slot: u16) -> Vec<u8> {
        self.last += 1;
        let open = Open {
            request: Some(request),
            messages: 1,
            run: BTreeSet::new(),
            answered_by: None,
        };
        self.open.insert(self.last, open);
        let oldest = self
            .open
            .first_key_value()
            .map_or(self.last, |(seq, _)| *seq);
        let frame = ClientFrame::Request(Request {
            app: self.app,
            id: RequestId {
                client: CLIENT,
                seq: self.last,
            },
            attempt: 0,
            deadline: now + DEADLINE,
            sent: now,
            oldest_seq: oldest,
            trace: TraceContext::default(),
            key: self.keys[usize::from(slot)].to_vec(),
            payload: self.payload.clone(),
        });
        frame.to_datagram(Format::NEWEST)
    }

    /// The number in the simulator of a request that is not answered.
    pub fn number(&self, seq: u64) -> Option<u32> {
        self.open.get(&seq)?.request
    }

    /// A handler has run a message and sends so many. Whether it must answer the client: it is the last
    /// message, or `answers` says so and nothing answered before.
    pub fn on_run(&mut self, id: MessageId, outputs: usize, answers: bool) -> bool {
        let seq = id.request.seq;
        let Some(open) = self.open.get_mut(&seq) else {
            return false;
        };
        if !open.run.insert(id) {
            return open.answered_by == Some(id);
        }
        open.messages = open.messages.saturating_sub(1) + outputs as u32;
        let must = open.answered_by.is_none() && (answers || open.messages == 0);
        if must {
            open.answered_by = Some(id);
        }
        self.forget(seq);
        must
    }

    /// The client has its outcome; the request's number in the simulator.
    pub fn on_outcome(&mut self, seq: u64) -> Option<u32> {
        let request = self.open.get_mut(&seq)?.request.take();
        self.forget(seq);
        request
    }

    fn forget(&mut self, seq: u64) {
        let is_over = |open: &Open| open.request.is_none() && open.messages == 0;
        if self.open.get(&seq).is_some_and(is_over) {
            self.open.remove(&seq);
        }
    }
}

/// A key of each slot, found by trying.
fn keys() -> Vec<[u8; 8]> {
    let mut keys: Vec<Option<[u8; 8]>> = vec![None; usize::from(SLOTS)];
    let mut left = keys.len();
    for number in 0u64.. {
        let key = number.to_be_bytes();
        let at = &mut keys[usize::from(Slot::of(&key).0)];
        if at.is_none() {
            *at = Some(key);
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    keys.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_key() {
        for (slot, key) in keys().iter().enumerate() {
            assert_eq!(usize::from(Slot::of(key).0), slot);
        }
    }

    #[test]
    fn the_last_run_answers_unless_a_service_does_before() {
        let mut requests = Requests::new(AppId(1), 10);
        requests.submit(Timestamp(1), 7, 0);
        let message = |index| MessageId {
            index,
            ..MessageId::ingress(RequestId { client: 1, seq: 1 })
        };
        assert!(
            !requests.on_run(message(0), 2, false),
            "two messages are left"
        );
        assert!(
            !requests.on_run(message(0), 2, false),
            "they are the same two"
        );
        assert!(requests.on_run(message(1), 0, true));
        assert!(
            requests.on_run(message(1), 0, true),
            "the answer may be lost"
        );
        assert!(!requests.on_run(message(2), 0, false), "it is answered");
        assert_eq!(requests.number(1), Some(7));
        assert_eq!(requests.on_outcome(1), Some(7));
        assert_eq!(requests.on_outcome(1), None);
    }
}
