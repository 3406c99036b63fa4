//! What clients and ingresses say to each other: datagrams of kind [`Kind::Client`] that hold
//! one or more of these.

use crate::codec::{Reader, WireError, Write};
use crate::datagram::{Header, Kind};
use crate::entry::Reply;
use crate::message::{decode_trace, encode_trace};
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::{AppId, Nanos, NodeId, RequestId, TraceContext};

/// A request. A repeat has the same id, key, payload and deadline, and a higher attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Application.
    pub app: AppId,
    /// Identity.
    pub id: RequestId,
    /// Attempt, from 0.
    pub attempt: u16,
    /// When it expires, since the Unix epoch.
    pub deadline: Nanos,
    /// All requests of this client below this one have their outcome.
    pub oldest_seq: u64,
    /// Trace.
    pub trace: TraceContext,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// One item of a client datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFrame {
    /// Client to ingress.
    Request(Request),
    /// Ingress to client.
    Reply {
        /// Which request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
}

impl ClientFrame {
    /// Appends the header that a datagram from a client or to a client begins with.
    pub fn start(out: &mut Vec<u8>) {
        Header {
            kind: Kind::Client,
            from: NodeId(0),
            cluster: 0,
            incarnation: 0,
            to_incarnation: 0,
        }
        .encode(out);
    }

    /// Appends the item.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ClientFrame::Request(q) => {
                out.put_u8(1);
                out.put_u16(q.app.0);
                out.put_u64(q.id.client);
                out.put_u64(q.id.seq);
                out.put_u16(q.attempt);
                out.put_u64(q.deadline.0);
                out.put_u64(q.oldest_seq);
                encode_trace(out, &q.trace);
                out.put_short(&q.key);
                out.put_long(&q.payload);
            }
            ClientFrame::Reply { id, reply } => {
                out.put_u8(2);
                out.put_u64(id.client);
                out.put_u64(id.seq);
                reply.encode(out);
            }
        }
    }

    /// Reads the next item.
    pub fn decode(r: &mut Reader<'_>) -> Result<ClientFrame, WireError> {
        Ok(match r.u8()? {
            1 => ClientFrame::Request(Request {
                app: AppId(r.u16()?),
                id: RequestId {
                    client: r.u64()?,
                    seq: r.u64()?,
                },
                attempt: r.u16()?,
                deadline: Nanos(r.u64()?),
                oldest_seq: r.u64()?,
                trace: decode_trace(r)?,
                key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
                payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec(),
            }),
            2 => ClientFrame::Reply {
                id: RequestId {
                    client: r.u64()?,
                    seq: r.u64()?,
                },
                reply: Reply::decode(r)?,
            },
            other => {
                return Err(WireError::Unknown {
                    what: "kind of client frame",
                    value: other.into(),
                });
            }
        })
    }
}
