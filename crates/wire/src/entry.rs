//! Log entries.
//!
//! An entry has the identity of the message, code version, `now`, trace, write batch, outputs and reply.
//! A backup applies the batch; it does not run the handler.

use crate::codec::{Reader, WireError, Write};
use crate::dead_letter::DeadLetter;
use crate::limits::{BODY_LEN_MAX, ENTRY_OUTPUTS_MAX};
use crate::message::{decode_id, decode_outcome, decode_trace, encode_id, encode_trace};
use crate::node;
use crate::timer::{self, PublicationName, TimerName};
pub use e3_model::Outcome;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::timer::TimerChange;
use e3_model::{EdgeId, MessageId, NodeId, Slot, Timestamp, TraceContext};

/// One committed message, or the removal of keys that have expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Number in the shard's log, from 1.
    pub op: u64,
    /// The message that it answers.
    pub id: MessageId,
    /// Highest attempt of the client that has arrived.
    pub attempt: u16,
    /// Slot of the message's key.
    pub slot: Slot,
    /// Version of the code that ran.
    pub code_version: u32,
    /// `now` of the request.
    pub now: Timestamp,
    /// `sent` of its outputs. Invariant: `now` if the service is stateful; others do not replicate.
    pub sent: Timestamp,
    /// When the request expires.
    pub deadline: Timestamp,
    /// The client's oldest request without an answer.
    pub oldest_seq: u64,
    /// Node whose ingress the client spoke to.
    pub reply_to: NodeId,
    /// Process of that node.
    pub reply_to_incarnation: u32,
    /// See [`crate::message::Message::is_branch`].
    pub is_branch: bool,
    /// The primary made it by itself, to remove keys that have expired: it answers no message.
    pub is_expiry: bool,
    /// Trace.
    pub trace: TraceContext,
    /// Encoded writes.
    pub batch: Vec<u8>,
    /// Messages to send.
    pub outputs: Vec<Output>,
    /// Answer to the client, if this handler gave it.
    pub reply: Option<Reply>,
    /// Set if the message became a dead letter: why, and the message.
    pub dead: Option<DeadLetter>,
    /// Set if the message was a dead letter that was replayed: it is no dead letter any more.
    pub replays: Option<MessageId>,
    /// Set if the message was a timer's request, and the timer has fired with this entry. Not if it
    /// was a replay.
    pub fired: Option<TimerName>,
    /// What it does to timers, in this order, after `fired`.
    pub timers: Vec<TimerChange>,
    /// Publications that all subscribers have confirmed; at most [`crate::limits::ENTRY_CONFIRMED_MAX`]. Only in an entry
    /// that the primary made by itself.
    pub confirmed: Vec<PublicationName>,
}

/// An outgoing message; the rest of it follows from the entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Along this edge.
    pub edge: EdgeId,
    /// Number of the message on this edge, see [`e3_model::dag::Dag::index`].
    pub index: u32,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// An answer to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Outcome of the request.
    pub outcome: Outcome,
    /// The application's status; 0 = ok.
    pub status: u32,
    /// Content.
    pub payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.outcome.code());
        out.put_u32(self.status);
        out.put_long(&self.payload);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Reply, WireError> {
        Ok(Reply {
            outcome: decode_outcome(r)?,
            status: r.u32()?,
            payload: r.long_bytes("reply", PAYLOAD_LEN_MAX)?.to_vec(),
        })
    }
}

impl Entry {
    /// Whether it belongs to a request with an idempotency key, see [`crate::client::Request`].
    pub fn is_keyed(&self) -> bool {
        self.oldest_seq == 0
    }

    /// Bytes that [`crate::replicated::Replicated::encode`] gives for the entry, nearly.
    pub fn len_estimate(&self) -> usize {
        let outputs: usize = self
            .outputs
            .iter()
            .map(|o| 12 + o.key.len() + o.payload.len())
            .sum();
        let dead = self.dead.as_ref().map_or(0, DeadLetter::len_estimate);
        let fired = self.fired.as_ref().map_or(0, TimerName::bytes);
        let timers: usize = self.timers.iter().map(|t| 24 + t.bytes()).sum();
        let confirmed = self.confirmed.iter().map(|c| 10 + c.key.len());
        let timers = fired + timers + confirmed.sum::<usize>();
        192 + self.batch.len()
            + outputs
            + timers
            + self.reply.as_ref().map_or(0, |r| r.payload.len())
            + dead
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.op);
        encode_id(out, &self.id);
        out.put_u16(self.attempt);
        let (low, high) = node::code(self.reply_to);
        out.put_u16(node::with_slot(self.slot, high));
        out.put_u32(self.code_version);
        out.put_u64(self.now.0);
        out.put_u64(self.deadline.0);
        out.put_u64(self.oldest_seq);
        out.put_u16(low);
        out.put_u32(self.reply_to_incarnation);
        encode_trace(out, &self.trace);
        out.put_long(&self.batch);
        out.put_u16(u16::try_from(self.outputs.len()).expect("bounded by the manifest"));
        for o in &self.outputs {
            out.put_u16(o.edge.0);
            out.put_u32(o.index);
            out.put_short(&o.key);
            out.put_long(&o.payload);
        }
        let flag = |set: bool, bit: u8| u8::from(set) << bit;
        out.put_u8(
            flag(self.reply.is_some(), 0)
                | flag(self.dead.is_some(), 1)
                | flag(self.replays.is_some(), 2)
                | flag(self.is_branch, 3)
                | flag(self.is_expiry, 4)
                | flag(self.fired.is_some(), 5)
                | flag(!self.timers.is_empty(), 6)
                | flag(!self.confirmed.is_empty(), 7),
        );
        if let Some(reply) = &self.reply {
            reply.encode(out);
        }
        if let Some(dead) = &self.dead {
            dead.encode(out);
        }
        if let Some(letter) = &self.replays {
            encode_id(out, letter);
        }
        if let Some(fired) = &self.fired {
            fired.encode(out);
        }
        if !self.timers.is_empty() {
            timer::encode_changes(out, &self.timers);
        }
        if !self.confirmed.is_empty() {
            timer::encode_confirmed(out, &self.confirmed);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Entry, WireError> {
        let op = r.u64()?;
        let id = decode_id(r)?;
        let attempt = r.u16()?;
        let (slot, high) = node::slot_and_high(r.u16()?);
        let code_version = r.u32()?;
        let (now, deadline) = (Timestamp(r.u64()?), Timestamp(r.u64()?));
        let oldest_seq = r.u64()?;
        let (reply_to, reply_to_incarnation) = (node::node(r.u16()?, high), r.u32()?);
        let trace = decode_trace(r)?;
        let batch = r.long_bytes("write batch", BODY_LEN_MAX)?.to_vec();
        let outputs = decode_outputs(r)?;
        let flags = r.u8()?;
        let reply = if flags & 1 != 0 {
            Some(Reply::decode(r)?)
        } else {
            None
        };
        let dead = if flags & 2 != 0 {
            Some(DeadLetter::decode(r)?)
        } else {
            None
        };
        let replays = if flags & 4 != 0 {
            Some(decode_id(r)?)
        } else {
            None
        };
        let fired = match flags & 32 {
            0 => None,
            _ => Some(TimerName::decode(r)?),
        };
        let timers = match flags & 64 {
            0 => Vec::new(),
            _ => timer::decode_changes(r)?,
        };
        let confirmed = match flags & 128 {
            0 => Vec::new(),
            _ => timer::decode_confirmed(r)?,
        };
        Ok(Entry {
            op,
            id,
            attempt,
            slot,
            code_version,
            now,
            sent: now,
            deadline,
            oldest_seq,
            reply_to,
            reply_to_incarnation,
            is_branch: flags & 8 != 0,
            is_expiry: flags & 16 != 0,
            trace,
            batch,
            outputs,
            reply,
            dead,
            replays,
            fired,
            timers,
            confirmed,
        })
    }
}

fn decode_outputs(r: &mut Reader<'_>) -> Result<Vec<Output>, WireError> {
    let count = usize::from(r.u16()?);
    if count > ENTRY_OUTPUTS_MAX {
        return Err(WireError::TooLong {
            what: "outputs",
            len: count,
            max: ENTRY_OUTPUTS_MAX,
        });
    }
    let mut outputs = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        outputs.push(Output {
            edge: EdgeId(r.u16()?),
            index: r.u32()?,
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
            payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec(),
        });
    }
    Ok(outputs)
}
