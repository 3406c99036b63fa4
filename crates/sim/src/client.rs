//! A client that keeps a ledger: every request must have exactly one outcome.

use crate::random::Random;
use e3_model::{AppId, MessageId, Nanos, RequestId, ShardKey, Slot, Timestamp, TraceContext};
use e3_wire::client::{ClientFrame, Letters, Replay, Request};
use e3_wire::datagram::{Header, open};
use e3_wire::entry::{DeadLetter, Outcome, Reply};
use std::collections::BTreeMap;

/// Wait before a request is repeated.
const RETRY_AFTER: Nanos = Nanos::from_millis(300);

/// A client of a simulated cluster.
#[derive(Debug)]
pub struct Client {
    /// Its id in request identities.
    pub id: u64,
    app: AppId,
    /// Requests and replays without outcome: what is sent, the time of its next repeat.
    open: BTreeMap<u64, (ClientFrame, Timestamp)>,
    /// Outcome of each request.
    pub outcomes: BTreeMap<u64, Reply>,
    /// The last answer about dead letters, by shard.
    pub letters: BTreeMap<ShardKey, Letters>,
    /// Replies that contradict the first one.
    pub contradictions: u64,
    /// Datagrams that did not arrive as they were sent, and answers to nothing.
    pub strays: u64,
    next_seq: u64,
    /// Its requests have idempotency keys, and it repeats each with a new deadline so long ahead.
    keyed: Option<Nanos>,
}

impl Client {
    /// A client that has sent nothing.
    pub fn new(id: u64, app: AppId) -> Client {
        Client {
            id,
            app,
            open: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            letters: BTreeMap::new(),
            contradictions: 0,
            strays: 0,
            next_seq: 1,
            keyed: None,
        }
    }

    /// The same, with idempotency keys: it repeats every request until it is handled, with a new
    /// deadline each time.
    pub fn keyed(id: u64, app: AppId, deadline: Nanos) -> Client {
        Client {
            keyed: Some(deadline),
            ..Client::new(id, app)
        }
    }

    /// Identity of a request.
    fn request_id(&self, seq: u64) -> RequestId {
        let client = self.id;
        match self.keyed {
            None => RequestId { client, seq },
            // A key of its own for each; what it asks is the same for all.
            Some(_) => RequestId {
                client: client << 32 | seq,
                seq: 7,
            },
        }
    }

    /// Identities of all requests.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> {
        (1..self.next_seq).map(|seq| self.request_id(seq))
    }

    /// A new request as a datagram.
    pub fn request(&mut self, now: Timestamp, random: &mut Random, deadline: Nanos) -> Vec<u8> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let request = Request {
            app: self.app,
            id: self.request_id(seq),
            attempt: 0,
            deadline: now + self.keyed.unwrap_or(deadline),
            oldest_seq: match self.keyed {
                None => self.open.keys().next().copied().unwrap_or(seq),
                Some(_) => 0,
            },
            trace: TraceContext::default(),
            key: random.below(64).to_be_bytes().to_vec(),
            payload: seq.to_le_bytes().to_vec(),
        };
        self.open(now, seq, ClientFrame::Request(request))
    }

    /// The question what dead letters a shard has, as a datagram.
    pub fn read_letters(&self, shard: ShardKey) -> Vec<u8> {
        ClientFrame::ReadLetters { shard, skip: 0 }.to_datagram()
    }

    /// The order to handle a dead letter once more, as a datagram.
    pub fn replay(
        &mut self,
        now: Timestamp,
        shard: ShardKey,
        letter: &(MessageId, DeadLetter),
        deadline: Nanos,
    ) -> Vec<u8> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let replay = Replay {
            shard,
            letter: letter.0,
            slot: Slot::of(&letter.1.key),
            id: RequestId {
                client: self.id,
                seq,
            },
            attempt: 0,
            deadline: now + deadline,
        };
        self.open(now, seq, ClientFrame::Replay(replay))
    }

    fn open(&mut self, now: Timestamp, seq: u64, frame: ClientFrame) -> Vec<u8> {
        let bytes = frame.to_datagram();
        self.open.insert(seq, (frame, now + RETRY_AFTER));
        bytes
    }

    /// Requests that are due to be repeated.
    pub fn repeats(&mut self, now: Timestamp) -> Vec<Vec<u8>> {
        let oldest = self.open.keys().next().copied().unwrap_or(self.next_seq);
        let mut due = Vec::new();
        for (frame, at) in self.open.values_mut().filter(|(_, at)| *at <= now) {
            match frame {
                ClientFrame::Request(request) => {
                    request.attempt += 1;
                    match self.keyed {
                        None => request.oldest_seq = oldest,
                        Some(deadline) => request.deadline = now + deadline,
                    }
                }
                ClientFrame::Replay(replay) => replay.attempt += 1,
                _ => {}
            }
            *at = now + RETRY_AFTER;
            due.push(frame.to_datagram());
        }
        due
    }

    /// Takes a datagram.
    pub fn receive(&mut self, bytes: &[u8]) {
        let Ok((Header::CLIENT, mut r)) = open(bytes) else {
            self.strays += 1;
            return;
        };
        while !r.is_empty() {
            let (id, reply) = match ClientFrame::decode(&mut r) {
                Ok(ClientFrame::Reply { id, reply, .. }) => (id, reply),
                Ok(ClientFrame::Letters(letters)) => {
                    self.letters.insert(letters.shard, letters);
                    continue;
                }
                _ => {
                    self.strays += 1;
                    return;
                }
            };
            let seq = match self.keyed {
                None => id.seq,
                Some(_) => id.client & u64::from(u32::MAX),
            };
            if id != self.request_id(seq) || !(1..self.next_seq).contains(&seq) {
                self.strays += 1;
                continue;
            }
            if self.keyed.is_some() && reply.outcome == Outcome::Expired {
                // Not handled: it is repeated.
                continue;
            }
            match self.outcomes.get(&seq) {
                // The ingress may repeat an answer, but never change it.
                Some(first) => self.contradictions += u64::from(*first != reply),
                None => {
                    self.open.remove(&seq);
                    self.outcomes.insert(seq, reply);
                }
            }
        }
    }

    /// Requests sent.
    pub fn sent(&self) -> u64 {
        self.next_seq - 1
    }

    /// Requests without outcome.
    pub fn under_way(&self) -> usize {
        self.open.len()
    }

    /// Requests with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.outcomes
            .values()
            .filter(|r| r.outcome == outcome)
            .count()
    }
}
