//! Frames between nodes. Several share a datagram.

use crate::call::{Call, CallAnswer};
use crate::codec::{Reader, WireError, Write};
use crate::entry::Reply;
use crate::limits::BODY_LEN_MAX;
use crate::message::decode_flag;
use crate::node;
use e3_model::limits::SERVICES_MAX;
use e3_model::{AppId, EdgeId, NodeId, RequestId, ServiceId, ShardId, Timestamp};

/// Bytes of a data frame beside its body.
pub const DATA_HEADER_LEN: usize = 1 + LINK_LEN + 4 + 8 + 4 + 4;
const LINK_LEN: usize = 16;
const ACK_LEN: usize = 4 + 8 + 8 * SELECTIVE_WORDS + 8 + 8;
/// Words of [`Ack::selective`].
pub const SELECTIVE_WORDS: usize = 4;

/// The ends of a channel. They are logical shards, so a migration changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ends {
    /// From the ingress of a node to a shard: of the application's source service, or of one that
    /// another service asks.
    Ingress {
        /// The node.
        node: NodeId,
        /// Service of the receiving shard.
        service: ServiceId,
        /// Receiving shard.
        shard: ShardId,
    },
    /// Along an edge of the DAG.
    Edge {
        /// The edge.
        edge: EdgeId,
        /// Sending shard.
        from: ShardId,
        /// Receiving shard.
        to: ShardId,
    },
    /// From a primary to one of its backups.
    Replication {
        /// Service of the shard.
        service: ServiceId,
        /// The shard.
        shard: ShardId,
        /// The backup.
        backup: NodeId,
    },
}

/// A channel: its ends, and the incarnations of both. A change of either begins a new sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link {
    /// Application.
    pub app: AppId,
    /// Ends.
    pub ends: Ends,
    /// Incarnation of the sending end.
    pub from_incarnation: u32,
    /// Incarnation of the receiving end.
    pub to_incarnation: u32,
}

const REPLICATION: u16 = 0x8000;
const INGRESS: u16 = 0x4000;
/// Bits of a service in the same field; the upper part of a node's code follows.
const SERVICE_BITS: u32 = 10;

const _: () = assert!(SERVICES_MAX <= 1 << SERVICE_BITS, "a service has 10 bits");
const _: () = assert!(
    SERVICE_BITS + node::HIGH_BITS <= 14,
    "two bits say which kind of link"
);

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// One message of a channel.
    Data {
        /// Channel.
        link: Link,
        /// Epoch of the channel, see `e3_channel`.
        epoch: u32,
        /// Number in the epoch, from 1.
        seq: u64,
        /// Messages before this one that the sender still keeps: all earlier ones are durable at
        /// the receiver, as the sender knows it.
        behind: u32,
        /// An encoded message or replicated item.
        body: &'a [u8],
    },
    /// What the receiving end of a channel has.
    Ack {
        /// Channel.
        link: Link,
        /// State of the receiving end.
        ack: Ack,
    },
    /// Asks for a lease.
    LeaseRequest {
        /// The asking node's clock; comes back in the grant.
        sent: Timestamp,
        /// The plan that the asking node has applied.
        plan_version: u64,
    },
    /// Grants a lease that runs from the request's `sent`.
    LeaseGrant {
        /// From the request.
        sent: Timestamp,
    },
    /// Asks whether the way there and back is open.
    Probe {
        /// The sender's time.
        sent: Timestamp,
    },
    /// The answer to [`Frame::Probe`].
    ProbeAnswer {
        /// The probe's time.
        sent: Timestamp,
        /// The time of the node that answers.
        now: Timestamp,
    },
    /// The answer to a request, for the ingress.
    Reply {
        /// Application.
        app: AppId,
        /// The request.
        request: RequestId,
        /// The client's attempt that it answers.
        attempt: u16,
        /// See [`crate::message::Message::is_branch`].
        is_branch: bool,
        /// The answer.
        reply: Reply,
    },
    /// A handler asks a shard of another service.
    Call(Call<'a>),
    /// The answer to [`Frame::Call`].
    CallAnswer(CallAnswer<'a>),
}

/// State of the receiving end of a channel; absolute, so that late and repeated ones do no harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// Epoch of the channel that the receiving end is in.
    pub epoch: u32,
    /// All up to this one have arrived: stops retransmission.
    pub received: u64,
    /// Bit `i`: `received + 2 + i` has arrived too. Covers all that a receiver takes.
    pub selective: [u64; SELECTIVE_WORDS],
    /// All up to this one are durable: frees the sender's outbox.
    pub durable: u64,
    /// The sender may send up to this one.
    pub limit: u64,
}

fn encode_link(out: &mut Vec<u8>, link: &Link) {
    let with_service =
        |kind, service: ServiceId, high| kind | u16::from(high) << SERVICE_BITS | service.0;
    let (edge, from, to) = match link.ends {
        Ends::Ingress {
            node,
            service,
            shard,
        } => {
            let (low, high) = node::code(node);
            (with_service(INGRESS, service, high), low, shard.0)
        }
        Ends::Edge { edge, from, to } => (edge.0, from.0, to.0),
        Ends::Replication {
            service,
            shard,
            backup,
        } => {
            let (low, high) = node::code(backup);
            (with_service(REPLICATION, service, high), shard.0, low)
        }
    };
    for v in [link.app.0, edge, from, to] {
        out.put_u16(v);
    }
    out.put_u32(link.from_incarnation);
    out.put_u32(link.to_incarnation);
}

fn decode_link(r: &mut Reader<'_>) -> Result<Link, WireError> {
    let app = AppId(r.u16()?);
    let (edge, from, to) = (r.u16()?, r.u16()?, r.u16()?);
    let service = ServiceId(edge & ((1 << SERVICE_BITS) - 1));
    let high = (edge >> SERVICE_BITS) as u8 & ((1 << node::HIGH_BITS) - 1);
    let ends = match edge {
        e if e & REPLICATION != 0 => Ends::Replication {
            service,
            shard: ShardId(from),
            backup: node::node(to, high),
        },
        e if e & INGRESS != 0 => Ends::Ingress {
            node: node::node(from, high),
            service,
            shard: ShardId(to),
        },
        e => Ends::Edge {
            edge: EdgeId(e),
            from: ShardId(from),
            to: ShardId(to),
        },
    };
    Ok(Link {
        app,
        ends,
        from_incarnation: r.u32()?,
        to_incarnation: r.u32()?,
    })
}

impl<'a> Frame<'a> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Data {
                link,
                epoch,
                seq,
                behind,
                body,
            } => {
                out.put_u8(1);
                encode_link(out, link);
                out.put_u32(*epoch);
                out.put_u64(*seq);
                out.put_u32(*behind);
                out.put_long(body);
            }
            Frame::Ack { link, ack } => {
                out.put_u8(2);
                encode_link(out, link);
                out.put_u32(ack.epoch);
                out.put_u64(ack.received);
                ack.selective.iter().for_each(|word| out.put_u64(*word));
                out.put_u64(ack.durable);
                out.put_u64(ack.limit);
            }
            Frame::LeaseRequest { sent, plan_version } => {
                out.put_u8(3);
                out.put_u64(sent.0);
                out.put_u64(*plan_version);
            }
            Frame::LeaseGrant { sent } => {
                out.put_u8(4);
                out.put_u64(sent.0);
            }
            Frame::Probe { sent } => {
                out.put_u8(6);
                out.put_u64(sent.0);
            }
            Frame::ProbeAnswer { sent, now } => {
                out.put_u8(7);
                out.put_u64(sent.0);
                out.put_u64(now.0);
            }
            Frame::Reply {
                app,
                request,
                attempt,
                is_branch,
                reply,
            } => {
                out.put_u8(5);
                out.put_u16(app.0);
                out.put_u64(request.client);
                out.put_u64(request.seq);
                out.put_u16(*attempt);
                out.put_u8(u8::from(*is_branch));
                reply.encode(out);
            }
            Frame::Call(call) => {
                out.put_u8(8);
                call.encode(out);
            }
            Frame::CallAnswer(answer) => {
                out.put_u8(9);
                answer.encode(out);
            }
        }
    }

    /// Bytes that [`Frame::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        match self {
            Frame::Data { body, .. } => DATA_HEADER_LEN + body.len(),
            Frame::Ack { .. } => 1 + LINK_LEN + ACK_LEN,
            Frame::LeaseRequest { .. } | Frame::ProbeAnswer { .. } => 17,
            Frame::LeaseGrant { .. } | Frame::Probe { .. } => 9,
            Frame::Reply { reply, .. } => 1 + 2 + 16 + 2 + 1 + 9 + reply.payload.len(),
            Frame::Call(call) => 1 + call.encoded_len(),
            Frame::CallAnswer(answer) => 1 + answer.encoded_len(),
        }
    }

    /// Reads the next frame.
    pub fn decode(r: &mut Reader<'a>) -> Result<Frame<'a>, WireError> {
        Ok(match r.u8()? {
            1 => Frame::Data {
                link: decode_link(r)?,
                epoch: r.u32()?,
                seq: r.u64()?,
                behind: r.u32()?,
                body: r.long_bytes("frame", BODY_LEN_MAX)?,
            },
            2 => Frame::Ack {
                link: decode_link(r)?,
                ack: Ack {
                    epoch: r.u32()?,
                    received: r.u64()?,
                    selective: [r.u64()?, r.u64()?, r.u64()?, r.u64()?],
                    durable: r.u64()?,
                    limit: r.u64()?,
                },
            },
            3 => Frame::LeaseRequest {
                sent: Timestamp(r.u64()?),
                plan_version: r.u64()?,
            },
            4 => Frame::LeaseGrant {
                sent: Timestamp(r.u64()?),
            },
            5 => Frame::Reply {
                app: AppId(r.u16()?),
                request: RequestId {
                    client: r.u64()?,
                    seq: r.u64()?,
                },
                attempt: r.u16()?,
                is_branch: decode_flag(r)?,
                reply: Reply::decode(r)?,
            },
            6 => Frame::Probe {
                sent: Timestamp(r.u64()?),
            },
            7 => Frame::ProbeAnswer {
                sent: Timestamp(r.u64()?),
                now: Timestamp(r.u64()?),
            },
            8 => Frame::Call(Call::decode(r)?),
            9 => Frame::CallAnswer(CallAnswer::decode(r)?),
            other => {
                return Err(WireError::Unknown {
                    what: "kind of frame",
                    value: other.into(),
                });
            }
        })
    }
}
