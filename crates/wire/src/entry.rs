//! Log entries and the rest of what a primary sends to its backups.
//!
//! An entry has the identity of the message, code version, `now`, trace, write batch, outputs and reply.
//! A backup applies the batch; it does not run the handler.

use crate::codec::{Reader, WireError, Write};
use crate::dead_letter::DeadLetter;
use crate::limits::{BODY_LEN_MAX, ENTRY_OUTPUTS_MAX, REIGNS_MAX};
use crate::message::{decode_id, decode_outcome, decode_trace, encode_id, encode_trace};
use crate::node;
use crate::timer::{self, PublicationName, Timer, TimerName};
pub use e3_model::Outcome;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::timer::TimerChange;
use e3_model::{EdgeId, MessageId, NodeId, Slot, Timestamp, TraceContext};

/// The entries that one primary appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reign {
    /// The view in which it became the primary.
    pub view: u32,
    /// Its first entry; the last is before that of the next reign.
    pub first_op: u64,
}

/// What a primary sends to a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replicated {
    /// Entries from a number on follow. The backup goes on if its last entry is one of the primary's,
    /// and is sent a snapshot if not.
    Resume {
        /// The first of the entries that follow.
        first_op: u64,
        /// Of the primary's log, at most [`crate::limits::REIGNS_MAX`], oldest first.
        reigns: Vec<Reign>,
    },
    /// A snapshot begins; the backup keeps what it has until the end. Entries come between its parts.
    SnapshotBegin {
        /// Last entry before it.
        op: u64,
        /// `now` of that entry.
        now: Timestamp,
        /// Of messages of requests before then the log may know nothing.
        since: Timestamp,
        /// Outputs of entries up to this one need not be sent again.
        released: u64,
        /// As in [`Replicated::Resume`].
        reigns: Vec<Reign>,
    },
    /// An entry before the snapshot whose outputs may have to be sent again, without writes.
    SnapshotOutgoing(Entry),
    /// A message that was handled before the snapshot, as an entry without writes.
    SnapshotSeen(Entry),
    /// A dead letter from before the snapshot.
    SnapshotDead(MessageId, DeadLetter),
    /// A timer, as the last entry before left it.
    SnapshotTimer(Timer),
    /// Part of the collections.
    SnapshotState {
        /// Last entry in it.
        op: u64,
        /// A piece of a walk over the collections.
        piece: Vec<u8>,
    },
    /// The snapshot is whole.
    SnapshotEnd {
        /// Last entry in it.
        op: u64,
    },
    /// The next entry.
    Entry(Entry),
    /// Outputs of entries up to this one are durable at their receivers.
    Released(u64),
}

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

    /// Bytes that [`Replicated::encode`] gives for the entry, nearly.
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

    fn encode(&self, out: &mut Vec<u8>) {
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

    fn decode(r: &mut Reader<'_>) -> Result<Entry, WireError> {
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

fn encode_reigns(out: &mut Vec<u8>, reigns: &[Reign]) {
    out.put_u8(u8::try_from(reigns.len()).expect("bounded"));
    for reign in reigns {
        out.put_u32(reign.view);
        out.put_u64(reign.first_op);
    }
}

fn decode_reigns(r: &mut Reader<'_>) -> Result<Vec<Reign>, WireError> {
    let len = usize::from(r.u8()?);
    if len > REIGNS_MAX {
        return Err(WireError::TooLong {
            what: "reigns",
            len,
            max: REIGNS_MAX,
        });
    }
    let reign = |r: &mut Reader<'_>| {
        Ok(Reign {
            view: r.u32()?,
            first_op: r.u64()?,
        })
    };
    (0..len).map(|_| reign(r)).collect()
}

impl Replicated {
    /// Bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match self {
            Replicated::SnapshotBegin {
                op,
                now,
                since,
                released,
                reigns,
            } => {
                out.put_u8(1);
                out.put_u64(*op);
                out.put_u64(now.0);
                out.put_u64(since.0);
                out.put_u64(*released);
                encode_reigns(&mut out, reigns);
            }
            Replicated::Resume { first_op, reigns } => {
                out.put_u8(9);
                out.put_u64(*first_op);
                encode_reigns(&mut out, reigns);
            }
            Replicated::SnapshotOutgoing(entry) => {
                out.put_u8(8);
                entry.encode(&mut out);
            }
            Replicated::SnapshotSeen(entry) => {
                out.put_u8(3);
                entry.encode(&mut out);
            }
            Replicated::SnapshotDead(id, dead) => {
                out.put_u8(7);
                encode_id(&mut out, id);
                dead.encode(&mut out);
            }
            Replicated::SnapshotTimer(timer) => {
                out.put_u8(10);
                timer.encode(&mut out);
            }
            Replicated::SnapshotState { op, piece } => {
                out.put_u8(2);
                out.put_u64(*op);
                out.put_long(piece);
            }
            Replicated::SnapshotEnd { op } => {
                out.put_u8(4);
                out.put_u64(*op);
            }
            Replicated::Entry(entry) => return Replicated::encode_entry(entry),
            Replicated::Released(op) => {
                out.put_u8(6);
                out.put_u64(*op);
            }
        }
        out
    }

    /// Bytes of [`Replicated::Entry`] without owning the entry.
    pub fn encode_entry(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::with_capacity(entry.len_estimate());
        out.put_u8(5);
        entry.encode(&mut out);
        out
    }

    /// Whether these are the bytes of [`Replicated::SnapshotBegin`].
    pub fn begins_snapshot(bytes: &[u8]) -> bool {
        bytes.first() == Some(&1)
    }

    /// Reads one that fills the whole slice.
    pub fn decode(bytes: &[u8]) -> Result<Replicated, WireError> {
        let r = &mut Reader(bytes);
        let item = match r.u8()? {
            1 => Replicated::SnapshotBegin {
                op: r.u64()?,
                now: Timestamp(r.u64()?),
                since: Timestamp(r.u64()?),
                released: r.u64()?,
                reigns: decode_reigns(r)?,
            },
            2 => Replicated::SnapshotState {
                op: r.u64()?,
                piece: r.long_bytes("snapshot piece", BODY_LEN_MAX)?.to_vec(),
            },
            3 => Replicated::SnapshotSeen(Entry::decode(r)?),
            4 => Replicated::SnapshotEnd { op: r.u64()? },
            5 => Replicated::Entry(Entry::decode(r)?),
            6 => Replicated::Released(r.u64()?),
            7 => Replicated::SnapshotDead(decode_id(r)?, DeadLetter::decode(r)?),
            8 => Replicated::SnapshotOutgoing(Entry::decode(r)?),
            9 => Replicated::Resume {
                first_op: r.u64()?,
                reigns: decode_reigns(r)?,
            },
            10 => Replicated::SnapshotTimer(Timer::decode(r)?),
            other => {
                return Err(WireError::Unknown {
                    what: "kind of replicated item",
                    value: other.into(),
                });
            }
        };
        r.end()?;
        Ok(item)
    }
}
