//! A client that keeps a ledger: every request must have exactly one outcome.

use crate::random::Random;
use e3_model::{AppId, Nanos, RequestId, TraceContext};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind};
use e3_wire::entry::{Outcome, Reply};
use std::collections::BTreeMap;

/// Wait before a request is repeated.
const RETRY_AFTER: Nanos = Nanos::from_millis(300);

/// A client of a simulated cluster.
#[derive(Debug)]
pub struct Client {
    /// Its id in request identities.
    pub id: u64,
    app: AppId,
    /// Requests without outcome: the request, the time of its next repeat.
    open: BTreeMap<u64, (Request, Nanos)>,
    /// Outcome of each request.
    pub outcomes: BTreeMap<u64, Reply>,
    /// Replies that contradict the first one.
    pub contradictions: u64,
    next_seq: u64,
}

impl Client {
    /// A client that has sent nothing.
    pub fn new(id: u64, app: AppId) -> Client {
        Client {
            id,
            app,
            open: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            contradictions: 0,
            next_seq: 1,
        }
    }

    /// A new request as a datagram.
    pub fn request(&mut self, now: Nanos, random: &mut Random, deadline: Nanos) -> Vec<u8> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let request = Request {
            app: self.app,
            id: RequestId {
                client: self.id,
                seq,
            },
            attempt: 0,
            deadline: Nanos(now.0 + deadline.0),
            oldest_seq: self.open.keys().next().copied().unwrap_or(seq),
            trace: TraceContext::default(),
            key: random.below(64).to_be_bytes().to_vec(),
            payload: seq.to_le_bytes().to_vec(),
        };
        let bytes = datagram(&request);
        self.open
            .insert(seq, (request, Nanos(now.0 + RETRY_AFTER.0)));
        bytes
    }

    /// Requests that are due to be repeated.
    pub fn repeats(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let oldest = self.open.keys().next().copied().unwrap_or(self.next_seq);
        let mut due = Vec::new();
        for (request, at) in self.open.values_mut().filter(|(_, at)| *at <= now) {
            request.attempt += 1;
            request.oldest_seq = oldest;
            *at = Nanos(now.0 + RETRY_AFTER.0);
            due.push(datagram(request));
        }
        due
    }

    /// Takes a datagram.
    pub fn receive(&mut self, bytes: &[u8]) {
        let mut r = Reader(bytes);
        let header = Header::decode(&mut r).expect("nodes send valid datagrams");
        assert_eq!(header.kind, Kind::Client);
        while !r.is_empty() {
            let frame = ClientFrame::decode(&mut r).expect("nodes send valid frames");
            let ClientFrame::Reply { id, reply } = frame else {
                panic!("a request to a client")
            };
            assert_eq!(id.client, self.id);
            match self.outcomes.get(&id.seq) {
                // The ingress may repeat an answer, but never change it.
                Some(first) => self.contradictions += u64::from(*first != reply),
                None => {
                    self.open.remove(&id.seq);
                    self.outcomes.insert(id.seq, reply);
                }
            }
        }
    }

    /// Requests sent.
    pub fn sent(&self) -> u64 {
        self.next_seq - 1
    }

    /// Requests without outcome.
    pub fn open(&self) -> usize {
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

fn datagram(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientFrame::start(&mut bytes);
    ClientFrame::Request(request.clone()).encode(&mut bytes);
    bytes
}
