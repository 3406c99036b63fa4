//! What clients and ingresses say to each other: datagrams of kind
//! [`crate::datagram::Kind::Client`] that hold one or more of these.

use crate::codec::{Reader, WireError, Write};
use crate::datagram::{Header, seal};
use crate::dead_letter::DeadLetter;
use crate::entry::Reply;
use crate::limits::DEAD_LETTERS_LEN_MAX;
use crate::message::{decode_id, decode_trace, encode_id, encode_trace};
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::{
    AppId, Format, MessageId, RequestId, ServiceId, ShardId, ShardKey, Slot, Timestamp,
    TraceContext,
};

/// A request. A repeat has the same id, key, payload, deadline and time of sending, and a higher
/// attempt.
///
/// Clients count their requests from 1. A request with an idempotency key has no number: its
/// identity follows from the key (`id.client`) and from what it asks (`id.seq`), and its
/// `oldest_seq` is 0. So another node, or another process, gives a repeat the same identity; and a
/// second request with the same key that asks for something else is recognised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Application.
    pub app: AppId,
    /// Identity.
    pub id: RequestId,
    /// Attempt, from 0.
    pub attempt: u16,
    /// When it expires, since the Unix epoch.
    pub deadline: Timestamp,
    /// When the first attempt was sent, by the client's clock.
    pub sent: Timestamp,
    /// All requests of this client below this one have their outcome; 0 = the request has an
    /// idempotency key and is remembered for longer.
    pub oldest_seq: u64,
    /// Trace.
    pub trace: TraceContext,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// Asks the node of a shard's primary to replay a dead letter. Its answer is that of a
/// request; a node that does not serve the shard stays silent. A repeat has a higher attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The shard.
    pub shard: ShardKey,
    /// The dead letter; it is removed when the replay is done.
    pub letter: MessageId,
    /// Slot of its key.
    pub slot: Slot,
    /// Identity of the replay.
    pub id: RequestId,
    /// Attempt, from 0.
    pub attempt: u16,
    /// When it expires, since the Unix epoch.
    pub deadline: Timestamp,
}

/// Some of a shard's dead letters, oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetters {
    /// The shard.
    pub shard: ShardKey,
    /// Dead letters before the first of these.
    pub skipped: u32,
    /// Dead letters that the shard has.
    pub total: u32,
    /// As many as fit: at least one if there is one.
    pub letters: Vec<(MessageId, DeadLetter)>,
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
        /// The attempt that it answers. An outcome holds for all attempts; a refusal for this one.
        attempt: u16,
        /// The answer.
        reply: Reply,
    },
    /// Client to the node of a shard's primary: asks for its dead letters. A node that does not
    /// serve the shard stays silent.
    ReadDeadLetters {
        /// The shard.
        shard: ShardKey,
        /// Dead letters to skip.
        skip: u32,
    },
    /// Node to client.
    DeadLetters(DeadLetters),
    /// Client to the node of a shard's primary.
    Replay(Replay),
}

impl Request {
    /// Digest of what every repeat must have in common with the first attempt.
    pub fn fingerprint(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.key), &self.payload)
            ^ (self.key.len() as u32).rotate_left(16)
    }
}

impl Replay {
    /// Digest of what every repeat must have in common with the first attempt.
    pub fn fingerprint(&self) -> u32 {
        let mut bytes = Vec::new();
        encode_shard(&mut bytes, &self.shard);
        encode_id(&mut bytes, &self.letter);
        crc32c::crc32c(&bytes)
    }
}

impl ClientFrame {
    /// Appends the header that a datagram from a client or to a client begins with. After the last
    /// item comes [`crate::datagram::seal`].
    pub fn start(out: &mut Vec<u8>) {
        Header::CLIENT.encode(out);
    }

    /// A datagram that holds this item alone.
    pub fn to_datagram(&self, format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        ClientFrame::start(&mut out);
        self.encode(&mut out);
        seal(format, &mut out);
        out
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
                out.put_u64(q.sent.0);
                out.put_u64(q.oldest_seq);
                encode_trace(out, &q.trace);
                out.put_short(&q.key);
                out.put_long(&q.payload);
            }
            ClientFrame::Reply { id, attempt, reply } => {
                out.put_u8(2);
                out.put_u64(id.client);
                out.put_u64(id.seq);
                out.put_u16(*attempt);
                reply.encode(out);
            }
            ClientFrame::ReadDeadLetters { shard, skip } => {
                out.put_u8(3);
                encode_shard(out, shard);
                out.put_u32(*skip);
            }
            ClientFrame::DeadLetters(l) => {
                out.put_u8(4);
                encode_shard(out, &l.shard);
                out.put_u32(l.skipped);
                out.put_u32(l.total);
                out.put_u16(u16::try_from(l.letters.len()).expect("bounded by a datagram"));
                for (id, letter) in &l.letters {
                    encode_id(out, id);
                    letter.encode(out);
                }
            }
            ClientFrame::Replay(replay) => {
                out.put_u8(5);
                encode_shard(out, &replay.shard);
                encode_id(out, &replay.letter);
                out.put_u16(replay.slot.0);
                out.put_u64(replay.id.client);
                out.put_u64(replay.id.seq);
                out.put_u16(replay.attempt);
                out.put_u64(replay.deadline.0);
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
                deadline: Timestamp(r.u64()?),
                sent: Timestamp(r.u64()?),
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
                attempt: r.u16()?,
                reply: Reply::decode(r)?,
            },
            3 => ClientFrame::ReadDeadLetters {
                shard: decode_shard(r)?,
                skip: r.u32()?,
            },
            4 => {
                let shard = decode_shard(r)?;
                let (skipped, total) = (r.u32()?, r.u32()?);
                let mut letters = Vec::new();
                for _ in 0..r.u16()? {
                    letters.push((decode_id(r)?, DeadLetter::decode(r)?));
                }
                ClientFrame::DeadLetters(DeadLetters {
                    shard,
                    skipped,
                    total,
                    letters,
                })
            }
            5 => ClientFrame::Replay(Replay {
                shard: decode_shard(r)?,
                letter: decode_id(r)?,
                slot: Slot(r.u16()?),
                id: RequestId {
                    client: r.u64()?,
                    seq: r.u64()?,
                },
                attempt: r.u16()?,
                deadline: Timestamp(r.u64()?),
            }),
            other => {
                return Err(WireError::Unknown {
                    what: "kind of client frame",
                    value: other.into(),
                });
            }
        })
    }
}

impl DeadLetters {
    /// Takes letters while they fit a datagram.
    pub fn of<'a>(
        shard: ShardKey,
        skipped: u32,
        total: u32,
        all: impl Iterator<Item = (MessageId, &'a DeadLetter)>,
    ) -> DeadLetters {
        let mut len = 0;
        let fits = |(_, letter): &(MessageId, &DeadLetter)| {
            len += letter.len_estimate();
            len <= DEAD_LETTERS_LEN_MAX
        };
        DeadLetters {
            shard,
            skipped,
            total,
            letters: all
                .take_while(fits)
                .map(|(id, letter)| (id, letter.clone()))
                .collect(),
        }
    }
}

fn encode_shard(out: &mut Vec<u8>, key: &ShardKey) {
    out.put_u16(key.app.0);
    out.put_u16(key.service.0);
    out.put_u16(key.shard.0);
}

fn decode_shard(r: &mut Reader<'_>) -> Result<ShardKey, WireError> {
    Ok(ShardKey {
        app: AppId(r.u16()?),
        service: ServiceId(r.u16()?),
        shard: ShardId(r.u16()?),
    })
}
