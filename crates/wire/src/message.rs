//! A message between shards: identity, routing, deadline, trace, key and payload.

use crate::codec::{Reader, WireError, Write};
use crate::node;
use crate::timer::text;
use e3_model::limits::{KEY_LEN_MAX, NAME_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::topic::Topic;
use e3_model::{EdgeId, MessageId, NodeId, Outcome, RequestId, Slot, Timestamp, TraceContext, Via};

/// Bytes of a message beside key and payload.
pub const HEADER_LEN: usize = 16 + 2 + 4 + 2 + 2 + 2 + 4 + 8 + 8 + 8 + 25 + 4 + 1 + 2 + 4;

/// Code of [`Via::Ingress`] in place of an edge.
const VIA_INGRESS: u16 = u16::MAX;
/// The same of [`Via::Timer`].
const VIA_TIMER: u16 = u16::MAX - 1;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Identity: equal for every copy and attempt.
    pub id: MessageId,
    /// The client's attempt that this copy belongs to, from 0. A copy with a higher attempt than
    /// any before asks the receiver to repeat what it sent for the first.
    pub attempt: u16,
    /// Slot of the key.
    pub slot: Slot,
    /// Node whose ingress the client spoke to.
    pub reply_to: NodeId,
    /// Process of that node.
    pub reply_to_incarnation: u32,
    /// When the request expires, since the Unix epoch.
    pub deadline: Timestamp,
    /// When the client sent the request, or the last stateful service before here handled it: the
    /// clock of a stateless service's handler, equal for every copy and attempt.
    pub sent: Timestamp,
    /// The client needs no answer to requests below this one any more; 0 = the request has an
    /// idempotency key.
    pub oldest_seq: u64,
    /// Trace.
    pub trace: TraceContext,
    /// Version of the code that sent it; 0 from an ingress.
    pub code_version: u32,
    /// A stateless service before here sent something else as well, which is lost with its node. The
    /// client gets its answer when all of it is durable.
    pub is_branch: bool,
    /// The topic of the publication that it brings, if it does.
    pub topic: Option<Box<Topic>>,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

impl Message {
    /// Whether it belongs to a request with an idempotency key, see [`crate::client::Request`].
    pub fn is_keyed(&self) -> bool {
        self.oldest_seq == 0
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let topic_len = self.topic.as_ref().map_or(0, |topic| topic_len(topic));
        let len = HEADER_LEN + topic_len + self.key.len() + self.payload.len();
        let mut out = Vec::with_capacity(len);
        encode_id(&mut out, &self.id);
        out.put_u16(self.attempt);
        let (low, high) = node::code(self.reply_to);
        out.put_u16(node::with_slot(self.slot, high));
        out.put_u16(low);
        out.put_u32(self.reply_to_incarnation);
        out.put_u64(self.deadline.0);
        out.put_u64(self.sent.0);
        out.put_u64(self.oldest_seq);
        encode_trace(&mut out, &self.trace);
        out.put_u32(self.code_version);
        out.put_u8(u8::from(self.is_branch) | u8::from(self.topic.is_some()) << 1);
        if let Some(topic) = &self.topic {
            encode_topic(&mut out, topic);
        }
        out.put_short(&self.key);
        out.put_long(&self.payload);
        debug_assert_eq!(out.len(), len);
        out
    }

    /// Reads a message that fills the whole slice.
    pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        let r = &mut Reader(bytes);
        let (id, attempt) = (decode_id(r)?, r.u16()?);
        let (slot, high) = node::slot_and_high(r.u16()?);
        let mut message = Message {
            id,
            attempt,
            slot,
            reply_to: node::node(r.u16()?, high),
            reply_to_incarnation: r.u32()?,
            deadline: Timestamp(r.u64()?),
            sent: Timestamp(r.u64()?),
            oldest_seq: r.u64()?,
            trace: decode_trace(r)?,
            code_version: r.u32()?,
            is_branch: false,
            topic: None,
            key: Vec::new(),
            payload: Vec::new(),
        };
        let flags = r.u8()?;
        if flags > 3 {
            return Err(WireError::Unknown {
                what: "flags of a message",
                value: flags.into(),
            });
        }
        message.is_branch = flags & 1 != 0;
        if flags & 2 != 0 {
            message.topic = Some(Box::new(decode_topic(r)?));
        }
        message.key = r.short_bytes("key", KEY_LEN_MAX)?.to_vec();
        message.payload = r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec();
        r.end()?;
        Ok(message)
    }
}

/// Bytes of an encoded topic.
pub(crate) fn topic_len(topic: &Topic) -> usize {
    2 + topic.application.len() + 2 + topic.name.len()
}

pub(crate) fn encode_topic(out: &mut Vec<u8>, topic: &Topic) {
    out.put_short(topic.application.as_bytes());
    out.put_short(topic.name.as_bytes());
}

pub(crate) fn decode_topic(r: &mut Reader<'_>) -> Result<Topic, WireError> {
    Ok(Topic {
        application: text(r, "name of an application", NAME_LEN_MAX)?,
        name: text(r, "name of a topic", NAME_LEN_MAX)?,
    })
}

pub(crate) fn decode_outcome(r: &mut Reader<'_>) -> Result<Outcome, WireError> {
    let code = r.u8()?;
    Outcome::from_code(code).ok_or(WireError::Unknown {
        what: "outcome",
        value: code.into(),
    })
}

pub(crate) fn decode_flag(r: &mut Reader<'_>) -> Result<bool, WireError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(WireError::Unknown {
            what: "flag",
            value: other.into(),
        }),
    }
}

pub(crate) fn encode_id(out: &mut Vec<u8>, id: &MessageId) {
    out.put_u64(id.request.client);
    out.put_u64(id.request.seq);
    out.put_u16(match id.via {
        Via::Ingress => VIA_INGRESS,
        Via::Timer => VIA_TIMER,
        Via::Edge(e) => e.0,
    });
    out.put_u32(id.index);
}

pub(crate) fn decode_id(r: &mut Reader<'_>) -> Result<MessageId, WireError> {
    let request = RequestId {
        client: r.u64()?,
        seq: r.u64()?,
    };
    let via = match r.u16()? {
        VIA_INGRESS => Via::Ingress,
        VIA_TIMER => Via::Timer,
        e => Via::Edge(EdgeId(e)),
    };
    Ok(MessageId {
        request,
        via,
        index: r.u32()?,
    })
}

pub(crate) fn encode_trace(out: &mut Vec<u8>, t: &TraceContext) {
    out.put_u128(t.trace);
    out.put_u64(t.span);
    out.put_u8(t.flags);
}

pub(crate) fn decode_trace(r: &mut Reader<'_>) -> Result<TraceContext, WireError> {
    Ok(TraceContext {
        trace: r.u128()?,
        span: r.u64()?,
        flags: r.u8()?,
    })
}
