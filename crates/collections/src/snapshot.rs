//! Snapshots: all contents as pieces, while writes go on.
//!
//! [`Walk`] passes over the contents in an order that no write disturbs: collections by number,
//! ordered maps by key, the others by hash and key, arrays by index. A piece holds what comes next
//! in that order, as it is when the piece is made, so the work for a piece is bounded. [`Restore`]
//! takes pieces and, between them, every batch that was applied since the walk began.
//!
//! Why both are equal in the end: a piece sets what it holds, and batches after it apply exactly. A
//! key that no piece holds was absent when the walk passed it. Whatever batches did to it before on
//! a restore that lacked it, its removal removed there too. Until its piece comes, a key may have a
//! wrong value or be absent, so a batch that expects an element there does nothing.
//!
//! A piece is the number of records before it (`u64`), then records, little endian: `u16 collection,
//! u16 slot, u16 key length, u32 value length`, the time at which the key expires (`u64`) if the first
//! bit of the key length is set, `key, value`. A counter's value is 8 bytes. An array is one record for
//! each element, whose value begins with its index (`u64`).

use crate::apply::ApplyError;
use crate::batch::{Op, Write, WriteBatch};
use crate::hash::digest;
use crate::limits::{
    INDEX_LEN, KEY_LEN_MAX, PIECE_HEADER_LEN, PIECE_SORT_MAX, RECORD_EXPIRES_LEN,
    RECORD_HEADER_LEN, VALUE_LEN_MAX,
};
use crate::map::Entry;
use crate::state::{Array, Contents, Counter, Ordered};
use crate::table::{Hashed, Rest, Table};
use crate::{CollectionSpec, Kind, State};
use e3_model::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use thiserror::Error;

/// Bit of a record's key length: the key expires.
const EXPIRES: u16 = 0x8000;

/// Why a snapshot's piece is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RestoreError {
    /// A record ends beyond the piece.
    #[error("snapshot: the record at byte {0} of the piece is cut off")]
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
    /// A piece is missing, repeated or swapped.
    #[error("snapshot: the piece begins with record {found}, must be {expected}")]
    Order {
        /// Records before it, as the piece says.
        found: u64,
        /// Records that have come.
        expected: u64,
    },
    /// An element beyond the end of its array.
    #[error("snapshot: element {index} of an array of {len}")]
    Gap {
        /// The element.
        index: u64,
        /// Elements that have come.
        len: u64,
    },
    /// Does not suit the collections.
    #[error("snapshot: {0}")]
    Unsuited(#[from] ApplyError),
    /// A counter, or an array's element, whose value is too short or too long.
    #[error("snapshot: value of {0} bytes for a counter or an element")]
    Value(usize),
}

/// How much one piece may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceMax {
    /// Bytes of the piece; a single record may be longer, up to
    /// [`crate::limits::RECORD_LEN_MAX`].
    pub bytes: usize,
    /// Entries looked at, plus at most one part of a table.
    pub entries: usize,
}

/// Where a walk over a state is.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The collection whose turn it is.
    collection: u16,
    /// In it: everything up to this hash (not in ordered maps) and key was passed.
    after: (u32, Vec<u8>),
    /// The array after `after` that was passed in part.
    within: Option<Within>,
    /// Records so far.
    records: u64,
    /// Entries looked at so far.
    entries: u64,
    is_done: bool,
}

/// How far an array was passed.
#[derive(Clone, Debug)]
struct Within {
    born: u64,
    popped: u64,
    /// First element that was not passed, of the array as it was then.
    next: u64,
}

impl Walk {
    /// Whether everything was passed.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Entries and parts of tables that were looked at so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

/// A piece that is being made.
struct Piece {
    bytes: Vec<u8>,
    records: u64,
    /// Entries looked at.
    entries: usize,
    max: PieceMax,
}

/// No room is left.
struct Full;

impl Piece {
    fn put(
        &mut self,
        (collection, slot, key): (u16, u16, &[u8]),
        expires: Timestamp,
        index: &[u8],
        value: &[u8],
    ) -> Result<(), Full> {
        let value_len = index.len() + value.len();
        let (flag, expires_len) = match expires {
            Timestamp::MAX => (0, 0),
            _ => (EXPIRES, RECORD_EXPIRES_LEN),
        };
        let len = RECORD_HEADER_LEN + expires_len + key.len() + value_len;
        if self.records > 0 && self.bytes.len() + len > self.max.bytes {
            return Err(Full);
        }
        let out = &mut self.bytes;
        out.extend_from_slice(&collection.to_le_bytes());
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(&(key.len() as u16 | flag).to_le_bytes());
        out.extend_from_slice(&(value_len as u32).to_le_bytes());
        out.extend_from_slice(&expires.0.to_le_bytes()[..expires_len]);
        out.extend_from_slice(key);
        out.extend_from_slice(index);
        out.extend_from_slice(value);
        self.records += 1;
        Ok(())
    }

    /// Passes over a table, a part at a time; `put` adds an entry.
    fn table<'a, E: Hashed>(
        &mut self,
        table: &'a Table<E>,
        after: &mut (u32, Vec<u8>),
        mut put: impl FnMut(&mut Piece, &'a E) -> Result<(), Full>,
    ) -> Result<(), Full> {
        loop {
            let next = table.after((after.0, &after.1), PIECE_SORT_MAX);
            self.entries += next.looked_at + 1;
            let (mut last, mut room) = (None, Ok(()));
            for entry in next.entries {
                room = put(self, entry);
                if room.is_err() {
                    break;
                }
                last = Some(entry);
            }
            if let Some(last) = last {
                *after = (last.hash(), last.key().to_vec());
            }
            room?;
            match next.rest {
                Rest::Same => {}
                // No key is empty: this comes before all of the hash.
                Rest::Part(hash) => *after = (hash, Vec::new()),
                Rest::Nothing => return Ok(()),
            }
            if self.entries >= self.max.entries {
                return Err(Full);
            }
        }
    }

    fn ordered(
        &mut self,
        collection: u16,
        map: &BTreeMap<Box<[u8]>, Ordered>,
        after: &mut Vec<u8>,
    ) -> Result<(), Full> {
        let from = match &**after {
            [] => Bound::Unbounded,
            key => Bound::Excluded(key),
        };
        let mut last = None;
        let mut room = Ok(());
        for (key, entry) in map.range::<[u8], _>((from, Bound::Unbounded)) {
            self.entries += 1;
            room = self.put(
                (collection, entry.slot, key),
                entry.expires,
                &[],
                &entry.value,
            );
            if room.is_err() {
                break;
            }
            last = Some(key);
        }
        if let Some(last) = last {
            *after = last.to_vec();
        }
        room
    }

    fn array(
        &mut self,
        collection: u16,
        array: &Array,
        within: &mut Option<Within>,
    ) -> Result<(), Full> {
        let begun = within.take_if(|w| w.born == array.born);
        let first = begun.map_or(0, |w| w.next.saturating_sub(array.popped - w.popped));
        for (index, item) in array.items.iter().enumerate().skip(first as usize) {
            self.entries += 1;
            let at = (collection, array.slot, &*array.key);
            let number = (index as u64).to_le_bytes();
            if self.put(at, array.expires, &number, item).is_err() {
                *within = Some(Within {
                    born: array.born,
                    popped: array.popped,
                    next: index as u64,
                });
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Passes over what is left of a collection.
    fn collection(&mut self, contents: &Contents, walk: &mut Walk) -> Result<(), Full> {
        let (c, after, within) = (walk.collection, &mut walk.after, &mut walk.within);
        match contents {
            Contents::Hash(table) => self.table(table, after, |piece, e: &Entry| {
                piece.put((c, e.slot(), e.key()), e.expires(), &[], e.value())
            }),
            Contents::Ordered(map) => self.ordered(c, map, &mut after.1),
            Contents::Array(table) => {
                self.table(table, after, |piece, a: &Array| piece.array(c, a, within))
            }
            Contents::Counter(table) => self.table(table, after, |piece, e: &Counter| {
                piece.put((c, e.slot, &e.key), e.expires, &[], &e.value.to_le_bytes())
            }),
        }
    }
}

impl State {
    /// What comes next on the walk, as it is now; none if that was nothing. Equal contents give
    /// equal pieces.
    pub fn next_piece(&self, walk: &mut Walk, max: PieceMax) -> Option<Vec<u8>> {
        let mut piece = Piece {
            bytes: walk.records.to_le_bytes().to_vec(),
            records: 0,
            entries: 0,
            max,
        };
        while let Some(contents) = self.contents.get(usize::from(walk.collection)) {
            if let Err(Full) = piece.collection(contents, walk) {
                break;
            }
            *walk = Walk {
                collection: walk.collection + 1,
                records: walk.records,
                entries: walk.entries,
                ..Walk::default()
            };
        }
        walk.is_done = usize::from(walk.collection) == self.contents.len();
        walk.records += piece.records;
        walk.entries += piece.entries as u64;
        (piece.records > 0).then_some(piece.bytes)
    }

    /// Digest of the contents, for comparing replicas (not against an adversary).
    pub fn digest(&self) -> u64 {
        let max = PieceMax {
            bytes: 1 << 20,
            entries: usize::MAX,
        };
        let mut walk = Walk::default();
        let mut digest = 0;
        while !walk.is_done() {
            if let Some(piece) = self.next_piece(&mut walk, max) {
                digest = piece_digest(digest, &piece[PIECE_HEADER_LEN..]);
            }
        }
        digest
    }
}

/// Digest that does not depend on where pieces end, only on the records.
fn piece_digest(mut h: u64, mut rest: &[u8]) -> u64 {
    while let Ok((record, after)) = Record::parse(rest, 0) {
        let head = u64::from(record.collection) << 16 | u64::from(record.slot);
        h = digest(digest(h, &head.to_le_bytes()), record.key);
        h = digest(h, &record.expires.0.to_le_bytes());
        h = digest(h, record.value);
        rest = after;
    }
    h
}

/// A record of a piece.
struct Record<'a> {
    collection: u16,
    slot: u16,
    key: &'a [u8],
    expires: Timestamp,
    value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The first record of `rest`, and what follows it.
    fn parse(rest: &'a [u8], at: usize) -> Result<(Record<'a>, &'a [u8]), RestoreError> {
        let truncated = RestoreError::Truncated(at);
        let (head, body) = rest
            .split_first_chunk::<RECORD_HEADER_LEN>()
            .ok_or(truncated.clone())?;
        let [c0, c1, s0, s1, k0, k1, v0, v1, v2, v3] = *head;
        let key_len = u16::from_le_bytes([k0, k1]);
        let (flag, key_len) = (key_len & EXPIRES, usize::from(key_len & !EXPIRES));
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        if key_len == 0 || key_len > KEY_LEN_MAX || value_len > INDEX_LEN + VALUE_LEN_MAX {
            return Err(RestoreError::Lengths { key_len, value_len });
        }
        let (expires, body) = match flag {
            0 => (Timestamp::MAX, body),
            _ => {
                let split = body.split_first_chunk::<RECORD_EXPIRES_LEN>();
                let (at, body) = split.ok_or(truncated.clone())?;
                (Timestamp(u64::from_le_bytes(*at)), body)
            }
        };
        let (key, body) = body.split_at_checked(key_len).ok_or(truncated.clone())?;
        let (value, after) = body.split_at_checked(value_len).ok_or(truncated)?;
        let record = Record {
            collection: u16::from_le_bytes([c0, c1]),
            slot: u16::from_le_bytes([s0, s1]),
            key,
            expires,
            value,
        };
        Ok((record, after))
    }
}

/// Rebuilds a state from the pieces of a snapshot and the batches between them, in their order.
pub struct Restore {
    state: State,
    /// Records that have come.
    records: u64,
}

impl Restore {
    /// Starts with empty collections, which must be those of the snapshot.
    pub fn new(specs: &[CollectionSpec]) -> Restore {
        Restore {
            state: State::new(specs),
            records: 0,
        }
    }

    /// Takes the next piece. After an error the restore is of no use.
    pub fn accept(&mut self, piece: &[u8]) -> Result<(), RestoreError> {
        let (found, mut rest) = piece
            .split_first_chunk::<PIECE_HEADER_LEN>()
            .ok_or(RestoreError::Truncated(0))?;
        let (found, expected) = (u64::from_le_bytes(*found), self.records);
        if found != expected {
            return Err(RestoreError::Order { found, expected });
        }
        while !rest.is_empty() {
            let (record, after) = Record::parse(rest, piece.len() - rest.len())?;
            self.set(&record)?;
            self.records += 1;
            rest = after;
        }
        Ok(())
    }

    /// Sets what the record holds, whatever was there.
    fn set(&mut self, record: &Record<'_>) -> Result<(), RestoreError> {
        let Record {
            collection,
            slot,
            key,
            expires,
            value,
        } = *record;
        let wrong = RestoreError::Value(value.len());
        let write = |op, expires| Write {
            collection,
            key,
            op,
            expires,
        };
        let op = match self.state.kind(collection) {
            Some(Kind::Array) => {
                let (index, item) = value.split_first_chunk::<INDEX_LEN>().ok_or(wrong)?;
                let index = u64::from_le_bytes(*index);
                let len = self.state.array_len(collection, key);
                if index > len {
                    return Err(RestoreError::Gap { index, len });
                }
                // What batches added before the elements that were there came.
                self.state.truncate(collection, key, index as usize);
                Op::ArrayPush(item)
            }
            Some(Kind::Counter) => {
                let value = value.try_into().map_err(|_| wrong)?;
                let delete = write(Op::Delete, Timestamp::MAX);
                self.state.apply_write(slot, &delete)?;
                Op::CounterAdd(i64::from_le_bytes(value))
            }
            _ if value.len() > VALUE_LEN_MAX => return Err(wrong),
            _ => Op::Put(value),
        };
        Ok(self.state.apply_write(slot, &write(op, expires))?)
    }

    /// Applies a batch that was applied to the state since the walk began.
    pub fn apply(&mut self, batch: &WriteBatch) -> Result<(), ApplyError> {
        for write in batch.writes() {
            match self.state.apply_write(batch.slot(), &write) {
                // Its array has not come, or not so far.
                Ok(()) | Err(ApplyError::Index { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Accounted memory of what has come.
    pub fn memory_bytes(&self) -> usize {
        self.state.memory_bytes()
    }

    /// The state, after the last piece.
    pub fn finish(self) -> State {
        self.state
    }
}
