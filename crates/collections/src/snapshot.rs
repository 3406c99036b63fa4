//! Snapshots: all contents as chunks of bytes, in one order whatever the history.
//!
//! A chunk is a run of records, little endian: `u16 collection, u16 slot, u16 key length,
//! u32 value length, key, value`. Records come sorted by collection and key; an array is one record
//! for each element, in order; a counter's value is 8 bytes.

use crate::batch::Op;
use crate::hash::digest;
use crate::limits::{KEY_LEN_MAX, RECORD_HEADER_LEN, VALUE_LEN_MAX};
use crate::state::{ApplyError, Contents};
use crate::{CollectionSpec, Kind, State};
use thiserror::Error;

/// Why a snapshot's chunk is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RestoreError {
    /// A record ends beyond the chunk.
    #[error("snapshot: the record at byte {0} of the chunk is cut off")]
    Truncated(usize),
    /// Lengths out of bounds.
    #[error(
        "snapshot: key of {key_len} and value of {value_len} bytes, must be 1..={KEY_LEN_MAX} and at most {VALUE_LEN_MAX}"
    )]
    Lengths {
        /// Bytes of the key.
        key_len: usize,
        /// Bytes of the value.
        value_len: usize,
    },
    /// Records out of order: a chunk is missing, repeated or swapped.
    #[error("snapshot: collection {collection} is out of order")]
    Order {
        /// The collection.
        collection: u16,
    },
    /// Does not suit the collections.
    #[error("snapshot: {0}")]
    Unsuited(#[from] ApplyError),
    /// A counter whose value has not 8 bytes.
    #[error("snapshot: counter of {0} bytes, must be 8")]
    Counter(usize),
}

/// A record: collection, slot, key, value.
type Record<'a> = (u16, u16, &'a [u8], &'a [u8]);

fn append(chunk: &mut Vec<u8>, (collection, slot, key, value): Record<'_>) {
    chunk.extend_from_slice(&collection.to_le_bytes());
    chunk.extend_from_slice(&slot.to_le_bytes());
    chunk.extend_from_slice(&(key.len() as u16).to_le_bytes());
    chunk.extend_from_slice(&(value.len() as u32).to_le_bytes());
    chunk.extend_from_slice(key);
    chunk.extend_from_slice(value);
}

/// Records of one collection, sorted by key.
fn records(contents: &Contents) -> Box<dyn Iterator<Item = (u16, &[u8], Value<'_>)> + '_> {
    match contents {
        Contents::Hash(m) => {
            let mut all: Vec<_> = m.iter().collect();
            all.sort_unstable_by_key(|(key, _, _)| *key);
            Box::new(
                all.into_iter()
                    .map(|(k, slot, v)| (slot, k, Value::Bytes(v))),
            )
        }
        Contents::Ordered(m) => Box::new(
            m.iter()
                .map(|(k, e)| (e.slot, &**k, Value::Bytes(&e.value))),
        ),
        Contents::Array(m) => {
            let mut all: Vec<_> = m.iter().collect();
            all.sort_unstable_by_key(|(key, _)| *key);
            Box::new(all.into_iter().flat_map(|(k, a)| {
                a.items
                    .iter()
                    .map(move |item| (a.slot, &**k, Value::Bytes(item)))
            }))
        }
        Contents::Counter(m) => {
            let mut all: Vec<_> = m.iter().collect();
            all.sort_unstable_by_key(|(key, _)| *key);
            Box::new(
                all.into_iter()
                    .map(|(k, c)| (c.slot, &**k, Value::Count(c.value.to_le_bytes()))),
            )
        }
    }
}

enum Value<'a> {
    Bytes(&'a [u8]),
    Count([u8; 8]),
}

impl Value<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Count(bytes) => bytes,
        }
    }
}

/// Chunks of a snapshot; see [`State::snapshot_chunks`].
pub struct SnapshotChunks<'a> {
    records: Box<dyn Iterator<Item = (u16, u16, &'a [u8], Value<'a>)> + 'a>,
    bytes_max: usize,
    next: Vec<u8>,
}

impl Iterator for SnapshotChunks<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        for (collection, slot, key, value) in self.records.by_ref() {
            let value = value.bytes();
            let len = RECORD_HEADER_LEN + key.len() + value.len();
            let full = !self.next.is_empty() && self.next.len() + len > self.bytes_max;
            let done = full.then(|| std::mem::take(&mut self.next));
            append(&mut self.next, (collection, slot, key, value));
            if done.is_some() {
                return done;
            }
        }
        if self.next.is_empty() {
            None
        } else {
            Some(std::mem::take(&mut self.next))
        }
    }
}

impl State {
    /// The contents in chunks of at most `bytes_max` bytes (a single record may be longer, up to
    /// [`crate::limits::RECORD_LEN_MAX`]). Equal contents give equal chunks.
    pub fn snapshot_chunks(&self, bytes_max: usize) -> SnapshotChunks<'_> {
        let records = self.contents.iter().enumerate().flat_map(|(i, c)| {
            let collection = i as u16;
            records(c).map(move |(slot, key, value)| (collection, slot, key, value))
        });
        SnapshotChunks {
            records: Box::new(records),
            bytes_max,
            next: Vec::new(),
        }
    }

    /// Digest of the contents, for comparing replicas (not against an adversary).
    pub fn digest(&self) -> u64 {
        self.snapshot_chunks(64 * 1024)
            .fold(0, |h, chunk| chunk_digest(h, &chunk))
    }
}

/// Digest that does not depend on where chunks end, only on the records.
fn chunk_digest(mut h: u64, chunk: &[u8]) -> u64 {
    let mut rest = chunk;
    while let Ok((collection, slot, key, value, after)) = parse(rest, 0) {
        let head = u64::from(collection) << 16 | u64::from(slot);
        h = digest(digest(digest(h, &head.to_le_bytes()), key), value);
        rest = after;
    }
    h
}

/// The first record of `rest`, and what follows it.
#[expect(clippy::type_complexity)]
fn parse(rest: &[u8], at: usize) -> Result<(u16, u16, &[u8], &[u8], &[u8]), RestoreError> {
    let (head, body) = rest
        .split_first_chunk::<RECORD_HEADER_LEN>()
        .ok_or(RestoreError::Truncated(at))?;
    let [c0, c1, s0, s1, k0, k1, v0, v1, v2, v3] = *head;
    let key_len = usize::from(u16::from_le_bytes([k0, k1]));
    let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
    if key_len == 0 || key_len > KEY_LEN_MAX || value_len > VALUE_LEN_MAX {
        return Err(RestoreError::Lengths { key_len, value_len });
    }
    let (key, body) = body
        .split_at_checked(key_len)
        .ok_or(RestoreError::Truncated(at))?;
    let (value, after) = body
        .split_at_checked(value_len)
        .ok_or(RestoreError::Truncated(at))?;
    let (collection, slot) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([s0, s1]));
    Ok((collection, slot, key, value, after))
}

/// Rebuilds a state from the chunks of a snapshot, in their order.
pub struct Restore {
    state: State,
    /// Collection and key of the last record.
    last: Option<(u16, Vec<u8>)>,
}

impl Restore {
    /// Starts with empty collections, which must be those of the snapshot.
    pub fn new(specs: &[CollectionSpec]) -> Restore {
        Restore {
            state: State::new(specs),
            last: None,
        }
    }

    /// Takes the next chunk. After an error the restore is of no use.
    pub fn accept(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        let mut rest = chunk;
        while !rest.is_empty() {
            let at = chunk.len() - rest.len();
            let (collection, slot, key, value, after) = parse(rest, at)?;
            rest = after;
            let array = self.state.kind(collection) == Some(Kind::Array);
            if let Some((last_collection, last_key)) = &self.last {
                let order = (*last_collection, &**last_key).cmp(&(collection, key));
                if order.is_gt() || (order.is_eq() && !array) {
                    return Err(RestoreError::Order { collection });
                }
            }
            let op = match self.state.kind(collection) {
                Some(Kind::Array) => Op::ArrayPush(value),
                Some(Kind::Counter) => {
                    let bytes = value
                        .try_into()
                        .map_err(|_| RestoreError::Counter(value.len()))?;
                    Op::CounterAdd(i64::from_le_bytes(bytes))
                }
                _ => Op::Put(value),
            };
            self.state.apply_op(slot, collection, key, op)?;
            match &mut self.last {
                Some((last_collection, last_key)) => {
                    *last_collection = collection;
                    last_key.clear();
                    last_key.extend_from_slice(key);
                }
                None => self.last = Some((collection, key.to_vec())),
            }
        }
        Ok(())
    }

    /// Accounted memory of what has come.
    pub fn memory_bytes(&self) -> usize {
        self.state.memory_bytes()
    }

    /// The state, after the last chunk.
    pub fn finish(self) -> State {
        self.state
    }
}
