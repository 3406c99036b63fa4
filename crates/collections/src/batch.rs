//! Write batches: what one request changes, as bytes.
//!
//! Layout, little endian: `u16 slot`, then writes in order, each `u8 tag, u16 collection,
//! u16 key length`, the time at which the key expires (`u64`) if the tag says so, the key, and what
//! the tag needs. A batch without writes has no bytes at all.

use crate::limits::{BATCH_LEN_MAX, EXPIRED_KEYS_MAX, KEY_LEN_MAX, VALUE_LEN_MAX, WRITES_MAX};
use e3_model::Timestamp;
use thiserror::Error;

const TAG_PUT: u8 = 1;
const TAG_DELETE: u8 = 2;
const TAG_ARRAY_PUSH: u8 = 3;
const TAG_ARRAY_PUT: u8 = 4;
const TAG_ARRAY_POP_FRONT: u8 = 5;
const TAG_COUNTER_ADD: u8 = 6;
/// Bit of a tag: the key expires.
const EXPIRES: u8 = 0x80;

/// Bytes before the first write.
pub(crate) const HEADER_LEN: usize = 2;
/// Bytes of a write without key and value, at most.
pub(crate) const OP_OVERHEAD_MAX: usize = 5 + 8 + 8 + 2;
/// Bytes of the removal of a key without the key.
const DELETE_OVERHEAD: usize = 5;

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// Maps: insert or replace.
    Put(&'a [u8]),
    /// Any kind: remove the key.
    Delete,
    /// Arrays: append an element.
    ArrayPush(&'a [u8]),
    /// Arrays: replace an element.
    ArrayPut(u64, &'a [u8]),
    /// Arrays: drop the oldest element.
    ArrayPopFront,
    /// Counters: add, wrapping.
    CounterAdd(i64),
}

/// One write of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// Number of the collection.
    pub collection: u16,
    /// The key. Invariant: not empty.
    pub key: &'a [u8],
    /// What is done to it.
    pub op: Op<'a>,
    /// When the key expires; [`Timestamp::MAX`] if never. Whatever was said before is void.
    pub expires: Timestamp,
}

/// Why bytes are not a write batch.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BatchError {
    /// Too long.
    #[error("write batch: {0} bytes, must be at most {BATCH_LEN_MAX}")]
    TooLong(usize),
    /// Ends within a header or operation.
    #[error("write batch: ends within the operation at byte {0}")]
    Truncated(usize),
    /// Header, but no operation.
    #[error("write batch: has a header but no operation")]
    NoOperation,
    /// Unknown tag.
    #[error("write batch: tag {tag} at byte {at} is unknown")]
    UnknownTag {
        /// The tag.
        tag: u8,
        /// Where.
        at: usize,
    },
    /// Key length out of bounds.
    #[error("write batch: key of {len} bytes at byte {at}, must be 1..={KEY_LEN_MAX}")]
    KeyLen {
        /// The length.
        len: usize,
        /// Where.
        at: usize,
    },
    /// Value length out of bounds.
    #[error("write batch: value of {len} bytes at byte {at}, must be at most {VALUE_LEN_MAX}")]
    ValueLen {
        /// The length.
        len: usize,
        /// Where.
        at: usize,
    },
    /// Too many operations.
    #[error("write batch: more than {WRITES_MAX} operations")]
    TooManyOperations,
}

/// The writes of one request. Invariant: the bytes are well-formed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
}

impl WriteBatch {
    /// Takes bytes that [`WriteBatch::as_bytes`] gave, after checking all of them.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<WriteBatch, BatchError> {
        if bytes.len() > BATCH_LEN_MAX {
            return Err(BatchError::TooLong(bytes.len()));
        }
        if !bytes.is_empty() {
            if bytes.len() < HEADER_LEN {
                return Err(BatchError::Truncated(0));
            }
            let mut at = HEADER_LEN;
            let mut count = 0;
            while at < bytes.len() {
                let (_, next) = decode(&bytes, at)?;
                at = next;
                count += 1;
                if count > WRITES_MAX + EXPIRED_KEYS_MAX {
                    return Err(BatchError::TooManyOperations);
                }
            }
            if count == 0 {
                return Err(BatchError::NoOperation);
            }
        }
        Ok(WriteBatch { bytes })
    }

    /// For encoders in this crate, which keep the invariant.
    pub(crate) fn trusted(bytes: &[u8], mut buffer: Vec<u8>) -> WriteBatch {
        buffer.clear();
        if bytes.len() > HEADER_LEN {
            buffer.extend_from_slice(bytes);
        }
        WriteBatch { bytes: buffer }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Slot of the request that made it; 0 if it is empty.
    pub fn slot(&self) -> u16 {
        match self.bytes.first_chunk() {
            Some(b) => u16::from_le_bytes(*b),
            None => 0,
        }
    }

    /// Adds the removal of a key that has expired; whether there is room.
    pub(crate) fn remove(&mut self, slot: u16, collection: u16, key: &[u8]) -> bool {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&slot.to_le_bytes());
        }
        let has_room = self.bytes.len() + DELETE_OVERHEAD + key.len() <= BATCH_LEN_MAX;
        if has_room {
            let (op, expires) = (Op::Delete, Timestamp::MAX);
            let write = Write {
                collection,
                key,
                op,
                expires,
            };
            encode(&mut self.bytes, &write);
        } else if self.bytes.len() == HEADER_LEN {
            self.bytes.clear();
        }
        has_room
    }

    /// Its writes in order.
    pub fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let mut at = HEADER_LEN;
        std::iter::from_fn(move || {
            if at >= self.bytes.len() {
                return None;
            }
            let (write, next) = decode(&self.bytes, at).ok()?;
            at = next;
            Some(write)
        })
    }
}

/// Decodes the write at `at`, and where it ends.
fn decode(bytes: &[u8], at: usize) -> Result<(Write<'_>, usize), BatchError> {
    let mut r = Reader {
        bytes,
        start: at,
        at,
    };
    let tag = r.take::<1>()?[0];
    let collection = u16::from_le_bytes(*r.take()?);
    let key_len = usize::from(u16::from_le_bytes(*r.take()?));
    if key_len == 0 || key_len > KEY_LEN_MAX {
        return Err(BatchError::KeyLen { len: key_len, at });
    }
    let expires = match tag & EXPIRES {
        0 => Timestamp::MAX,
        _ => Timestamp(u64::from_le_bytes(*r.take()?)),
    };
    let key = r.slice(key_len)?;
    let op = match tag & !EXPIRES {
        TAG_PUT => Op::Put(r.value()?),
        TAG_DELETE if tag == TAG_DELETE => Op::Delete,
        TAG_ARRAY_PUSH => Op::ArrayPush(r.value()?),
        TAG_ARRAY_PUT => {
            let index = u64::from_le_bytes(*r.take()?);
            Op::ArrayPut(index, r.value()?)
        }
        TAG_ARRAY_POP_FRONT => Op::ArrayPopFront,
        TAG_COUNTER_ADD => Op::CounterAdd(i64::from_le_bytes(*r.take()?)),
        _ => return Err(BatchError::UnknownTag { tag, at }),
    };
    let write = Write {
        collection,
        key,
        op,
        expires,
    };
    Ok((write, r.at))
}

struct Reader<'a> {
    bytes: &'a [u8],
    start: usize,
    at: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], BatchError> {
        let rest = &self.bytes[self.at..];
        let got = rest
            .first_chunk::<N>()
            .ok_or(BatchError::Truncated(self.start))?;
        self.at += N;
        Ok(got)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], BatchError> {
        let got = self
            .bytes
            .get(self.at..self.at + len)
            .ok_or(BatchError::Truncated(self.start))?;
        self.at += len;
        Ok(got)
    }

    fn value(&mut self) -> Result<&'a [u8], BatchError> {
        let len = usize::from(u16::from_le_bytes(*self.take()?));
        if len > VALUE_LEN_MAX {
            return Err(BatchError::ValueLen {
                len,
                at: self.start,
            });
        }
        self.slice(len)
    }
}

/// Appends a write. The caller has checked the bounds. Returns where the key and where the value
/// (empty if there is none) lie.
pub(crate) fn encode(
    buf: &mut Vec<u8>,
    write: &Write<'_>,
) -> (std::ops::Range<u32>, std::ops::Range<u32>) {
    let Write {
        collection,
        key,
        op,
        expires,
    } = *write;
    let expires = Some(expires).filter(|at| *at != Timestamp::MAX);
    let tag = match op {
        Op::Put(_) => TAG_PUT,
        Op::Delete => TAG_DELETE,
        Op::ArrayPush(_) => TAG_ARRAY_PUSH,
        Op::ArrayPut(..) => TAG_ARRAY_PUT,
        Op::ArrayPopFront => TAG_ARRAY_POP_FRONT,
        Op::CounterAdd(_) => TAG_COUNTER_ADD,
    };
    let [c0, c1] = collection.to_le_bytes();
    let [k0, k1] = (key.len() as u16).to_le_bytes();
    let flag = if expires.is_some() { EXPIRES } else { 0 };
    buf.extend_from_slice(&[tag | flag, c0, c1, k0, k1]);
    if let Some(at) = expires {
        buf.extend_from_slice(&at.0.to_le_bytes());
    }
    let key_at = buf.len() as u32;
    buf.extend_from_slice(key);
    let key_end = buf.len() as u32;
    let value = match op {
        Op::ArrayPut(index, value) => {
            buf.extend_from_slice(&index.to_le_bytes());
            Some(value)
        }
        Op::Put(value) | Op::ArrayPush(value) => Some(value),
        Op::CounterAdd(delta) => {
            buf.extend_from_slice(&delta.to_le_bytes());
            None
        }
        Op::Delete | Op::ArrayPopFront => None,
    };
    let value_range = match value {
        Some(value) => {
            buf.extend_from_slice(&(value.len() as u16).to_le_bytes());
            let start = buf.len() as u32;
            buf.extend_from_slice(value);
            start..buf.len() as u32
        }
        None => 0..0,
    };
    (key_at..key_end, value_range)
}
