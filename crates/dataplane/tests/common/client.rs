//! The client of the test cluster.

use super::{APP, Cluster, address};
use e3_model::{
    Address, Format, Formats, Nanos, RequestId, ShardKey, Slot, Timestamp, TraceContext,
};
use e3_wire::client::{ClientFrame, DeadLetters, Replay, Request};
use e3_wire::datagram::open;
use e3_wire::entry::Outcome;

impl Cluster {
    /// A client sends a datagram.
    pub fn send_raw(&mut self, to: Address, bytes: Vec<u8>) {
        self.wire.push((None, to, bytes));
    }

    fn send(&mut self, node: u32, frame: &ClientFrame) {
        self.wire
            .push((None, address(node), frame.to_datagram(Format::NEWEST)));
    }

    /// The client sends an attempt at a request.
    pub fn request(&mut self, node: u32, seq: u64, attempt: u16, key: &[u8], deadline: Timestamp) {
        let request = self.request_of(seq, attempt, key, deadline);
        self.send(node, &ClientFrame::Request(request));
    }

    pub fn request_of(&self, seq: u64, attempt: u16, key: &[u8], deadline: Timestamp) -> Request {
        Request {
            app: APP,
            id: RequestId { client: 1, seq },
            attempt,
            deadline,
            sent: self.now,
            oldest_seq: 1,
            trace: TraceContext::default(),
            key: key.to_vec(),
            payload: b"payload".to_vec(),
        }
    }

    pub fn send_request(&mut self, node: u32, request: Request) {
        self.send(node, &ClientFrame::Request(request));
    }

    /// A client of another protocol asks a node's driver.
    pub fn ask(&mut self, node: u32, request: Request) {
        let now = self.clock(node);
        let asked = self.nodes.get_mut(&node).expect("it runs");
        asked.worker.handle_request(now, request);
        self.drain(node);
    }

    /// The client asks for dead letters.
    pub fn read_letters(&mut self, node: u32, key: ShardKey) -> DeadLetters {
        self.letters.clear();
        let frame = ClientFrame::ReadDeadLetters {
            shard: key,
            skip: 0,
        };
        self.send(node, &frame);
        self.pass(5);
        self.letters.pop().expect("the node serves the shard")
    }

    /// The client has the first dead letter of a shard replayed.
    pub fn replay_first(&mut self, node: u32, key: ShardKey, seq: u64) -> Replay {
        let letters = self.read_letters(node, key).letters;
        let (letter, content) = &letters[0];
        let replay = Replay {
            shard: key,
            letter: *letter,
            slot: Slot::of(&content.key),
            id: RequestId { client: 2, seq },
            attempt: 0,
            deadline: self.now + Nanos::from_secs(2),
        };
        self.send_replay(node, replay.clone());
        replay
    }

    pub fn send_replay(&mut self, node: u32, replay: Replay) {
        self.send(node, &ClientFrame::Replay(replay));
        self.pass(50);
    }

    /// Outcomes that the client got for a request.
    pub fn outcomes(&self, seq: u64) -> Vec<Outcome> {
        let of = self.replies.iter().filter(|(id, ..)| id.seq == seq);
        of.map(|(.., reply)| reply.outcome).collect()
    }

    pub(super) fn on_client_datagram(&mut self, bytes: &[u8]) {
        let (_, mut reader) = open(Formats::PROGRAM, bytes).unwrap();
        while !reader.is_empty() {
            match ClientFrame::decode(&mut reader).unwrap() {
                ClientFrame::Reply { id, attempt, reply } => {
                    self.replies.push((id, attempt, reply));
                }
                ClientFrame::DeadLetters(letters) => self.letters.push(letters),
                other => panic!("{other:?}"),
            }
        }
    }
}
