//! Bytes that no port of a cluster may take for something: random ones, and what another node, a
//! client or a heartbeat could have sent, but damaged.

use e3_model::api::NodeView;
use e3_model::{
    AppId, DropReason, EdgeId, Format, NodeId, RequestId, ServiceId, ShardId, Timestamp,
};
use e3_random::Random;
use e3_wire::HeartbeatKeys;
use e3_wire::client::ClientFrame;
use e3_wire::datagram::{Header, Kind, seal};
use e3_wire::entry::{Outcome, Reply};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::heartbeat::{self, Heartbeat};

/// Makes bytes that must be dropped.
pub struct Garbage {
    /// Its seed decides about everything.
    pub random: Random,
    /// The cluster that it is sent to.
    pub cluster: u64,
    /// The nodes there.
    pub nodes: Vec<NodeView>,
    /// An application there.
    pub app: AppId,
    /// Lines of the headers that a request to the controller may have: none, and those with which it
    /// is let through to its handler.
    pub headers: Vec<String>,
}

/// Why a node drops what [`Garbage::for_node`] makes, one for each kind.
pub const REASONS: [DropReason; 13] = [
    DropReason::Header,
    DropReason::Length,
    DropReason::Checksum,
    DropReason::Empty,
    DropReason::Cluster,
    DropReason::Incarnation,
    DropReason::Sender,
    DropReason::Kind,
    DropReason::Frame,
    DropReason::ClientFrame,
    DropReason::Link,
    DropReason::View,
    DropReason::Lease,
];

impl Garbage {
    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let len = self.random.below(len_max) + 1;
        (0..len).map(|_| self.random.next_u64() as u8).collect()
    }

    /// Another number than this.
    fn other(&mut self, than: u32) -> u32 {
        than ^ (self.random.next_u64() as u32).max(1)
    }

    /// The header of a datagram that another node could have sent to this one.
    fn header(&mut self, to: usize) -> Header {
        let others = self.nodes.len() as u64 - 1;
        let from = (to + 1 + self.random.below(others) as usize) % self.nodes.len();
        Header {
            kind: Kind::Peer,
            from: NodeId(self.nodes[from].id),
            cluster: self.cluster,
            incarnation: self.nodes[from].incarnation,
            to_incarnation: self.nodes[to].incarnation,
        }
    }

    fn link(&mut self, app: AppId) -> Link {
        let n = |random: &mut Random| random.next_u64() as u16 & 0x3ff;
        let r = &mut self.random;
        let ends = match r.below(3) {
            0 => Ends::Ingress {
                node: NodeId(n(r).into()),
                service: ServiceId(n(r) % 4),
                shard: ShardId(n(r)),
            },
            1 => Ends::Edge {
                edge: EdgeId(n(r) % 8),
                from: ShardId(n(r)),
                to: ShardId(n(r) % 4),
            },
            _ => Ends::Replication {
                service: ServiceId(n(r) % 4),
                shard: ShardId(n(r) % 4),
                backup: NodeId((n(r) % 8).into()),
            },
        };
        Link {
            app,
            ends,
            from_incarnation: r.next_u64() as u32,
            to_incarnation: r.next_u64() as u32 | 1 << 31,
        }
    }

    /// A datagram for a node, of the kind that is dropped for `REASONS[reason]`, or of one that
    /// says nothing that matters.
    pub fn for_node(&mut self, to: usize, reason: usize) -> Vec<u8> {
        let mut header = self.header(to);
        let mut frames = self.bytes(1400);
        match REASONS.get(reason) {
            Some(DropReason::Header) if self.random.one_in(2) => return frames,
            Some(DropReason::Empty) => frames.clear(),
            Some(DropReason::Cluster) => header.cluster ^= u64::from(self.other(0)),
            Some(DropReason::Incarnation) => {
                header.to_incarnation = self.other(header.to_incarnation)
            }
            Some(DropReason::Sender) if self.random.one_in(2) => header.from = NodeId(999),
            Some(DropReason::Sender) => header.incarnation = self.other(header.incarnation),
            Some(DropReason::Kind) => header.kind = Kind::Heartbeat,
            Some(DropReason::Frame) => frames[0] |= 0x80,
            Some(DropReason::ClientFrame) => {
                header = Header::CLIENT;
                frames[0] |= 0x80;
            }
            Some(DropReason::Link) => {
                let link = self.link(AppId(u16::MAX));
                frames = self.data(link);
            }
            Some(DropReason::View) => {
                let (node, shard) = (header.from, ShardId(self.random.below(2) as u16));
                let link = Link {
                    ends: Ends::Ingress {
                        node,
                        service: ServiceId(0),
                        shard,
                    },
                    from_incarnation: header.incarnation,
                    ..self.link(self.app)
                };
                frames = self.data(link);
            }
            Some(DropReason::Lease) => {
                frames.clear();
                let sent = Timestamp(u64::MAX - self.random.below(1 << 62));
                Frame::LeaseGrant { sent }.encode(&mut frames);
            }
            _ => frames = self.of_no_consequence(),
        }
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        datagram.append(&mut frames);
        seal(Format::NEWEST, &mut datagram);
        match REASONS.get(reason) {
            Some(DropReason::Header) => datagram[self.random.below(3) as usize] ^= 0x10,
            Some(DropReason::Length) => datagram.truncate(datagram.len() - 1),
            Some(DropReason::Checksum) => {
                let at = 8 + self.random.below(datagram.len() as u64 - 8) as usize;
                datagram[at] ^= 1 << self.random.below(8);
            }
            _ => {}
        }
        datagram
    }

    fn data(&mut self, link: Link) -> Vec<u8> {
        let (seq, body) = (self.random.next_u64(), self.bytes(900));
        let mut out = Vec::new();
        let body = &body[..];
        let (epoch, behind) = (0, 0);
        Frame::Data {
            link,
            epoch,
            seq,
            behind,
            body,
        }
        .encode(&mut out);
        out
    }

    /// Whole frames about channels and requests that are none.
    fn of_no_consequence(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let ack = Ack {
            epoch: self.random.next_u64() as u32,
            received: self.random.next_u64(),
            selective: [self.random.next_u64(); 4],
            durable: self.random.next_u64(),
            limit: self.random.next_u64(),
        };
        let link = self.link(self.app);
        Frame::Ack { link, ack }.encode(&mut out);
        let reply = Reply {
            outcome: Outcome::Done,
            status: 0,
            payload: self.bytes(100),
        };
        let (app, client) = (self.app, self.random.next_u64());
        let request = RequestId { client, seq: 1 };
        Frame::Reply {
            app,
            request,
            attempt: 0,
            is_branch: false,
            reply,
        }
        .encode(&mut out);
        out
    }

    /// A request of a client that is cut short, or asks for what is not there.
    pub fn request(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        ClientFrame::start(&mut out);
        let mut bytes = self.bytes(300);
        bytes[0] = 1;
        out.append(&mut bytes);
        seal(Format::NEWEST, &mut out);
        out
    }

    /// A datagram for the controller that is no heartbeat of a member.
    pub fn for_controller(&mut self) -> Vec<u8> {
        let at = self.random.below(self.nodes.len() as u64) as usize;
        let (id, incarnation) = (NodeId(self.nodes[at].id), self.nodes[at].incarnation);
        let beat = Heartbeat::default();
        let kind = self.random.below(6);
        let (cluster, incarnation) = match kind {
            0 => return self.bytes(100),
            1 => (self.cluster, self.other(incarnation)),
            2 => (u64::from(self.other(0)), incarnation),
            _ => (self.cluster, incarnation),
        };
        // One of an older format has no tag.
        let format = Format(Format::HEARTBEAT_TAGS.0 - (kind == 3) as u8);
        let mut whole = heartbeat::encode(format, cluster, id, incarnation, &beat);
        if format >= Format::HEARTBEAT_TAGS {
            // The key of another cluster.
            let keys = HeartbeatKeys::new(self.random.bytes(16).first_chunk().unwrap());
            heartbeat::authenticate(format, &mut whole, &keys.of(id, incarnation), u32::MAX);
        }
        if kind == 4 {
            whole.truncate(self.random.below(whole.len() as u64) as usize);
        }
        whole
    }

    /// What is written to a new connection with the controller.
    pub fn for_http(&mut self) -> Vec<u8> {
        let line = match self.random.below(5) {
            0 => return self.bytes(2000),
            1 => return b"GET /v1/nodes HT".to_vec(),
            2 => "POST /v1/apps HTTP/1.1\r\nContent-Length: 99999999\r\n",
            3 => "POST /v1/nodes/hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
            _ => {
                "POST /v1/nodes/0/report HTTP/1.1\r\nContent-Type: application/json\r\n\
                 Content-Length: 50\r\n"
            }
        };
        let headers = self.random.below(self.headers.len() as u64) as usize;
        let mut bytes = format!("{line}{}\r\n", self.headers[headers]).into_bytes();
        bytes.append(&mut self.bytes(200));
        bytes
    }
}
