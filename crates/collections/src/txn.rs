//! One request's view of the collections: its own writes over the committed contents.

mod arrays;

use crate::batch::{HEADER_LEN, OP_OVERHEAD_MAX, Op, Write, WriteBatch, encode};
use crate::hash::{key_hash, widen};
use crate::limits::{BATCH_LEN_MAX, KEY_LEN_MAX, OVERLAY_LINEAR_MAX, VALUE_LEN_MAX, WRITES_MAX};
use crate::{Kind, State};
use e3_model::{Nanos, Timestamp};
use hashbrown::HashTable;
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Range;
use thiserror::Error;

/// Why an access is refused. What was buffered before stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TxnError {
    /// No such collection.
    #[error("is not in the manifest")]
    NoCollection,
    /// The key is empty or too long.
    #[error("key has {0} bytes, must be 1..={KEY_LEN_MAX}")]
    KeyLen(usize),
    /// The value is too long.
    #[error("value has {0} bytes, must be at most {VALUE_LEN_MAX}")]
    ValueLen(usize),
    /// All writes of the request together are too long.
    #[error("all writes of a request have {0} bytes, must be at most {BATCH_LEN_MAX}")]
    WritesLen(usize),
    /// The request has too many writes.
    #[error("a request has more than {WRITES_MAX} writes")]
    TooManyWrites,
    /// A time to live of nothing.
    #[error("time to live is 0, must be more than 0")]
    Ttl,
    /// The operation does not suit the collection's kind.
    #[error("is of kind {0}, which the call does not suit")]
    WrongKind(Kind),
    /// No such element.
    #[error("index {index}, must be below {len}")]
    Index {
        /// The index.
        index: u64,
        /// Elements of the array.
        len: u64,
    },
}

impl TxnError {
    /// The code that the service ABI gives it.
    pub fn code(self) -> i32 {
        match self {
            TxnError::NoCollection => -1,
            TxnError::KeyLen(_)
            | TxnError::ValueLen(_)
            | TxnError::WritesLen(_)
            | TxnError::TooManyWrites
            | TxnError::Ttl => -2,
            TxnError::WrongKind(_) => -3,
            TxnError::Index { .. } => -4,
        }
    }
}

/// Sub-key of what lies at the key itself; below it, absolute positions of an array's elements.
const WHOLE: u64 = u64::MAX;

/// State that the request gave to something.
#[derive(Clone)]
enum Effect {
    /// A value, at this range of the buffer: a map's value or an array's element.
    Value(Range<u32>),
    /// Removed.
    Gone,
    /// A counter's value.
    Count(i64),
    /// An array: its elements have absolute positions `front..end`, counted from the front of the
    /// committed array, which an element is taken from unless the overlay has it.
    Array { front: u64, end: u64 },
}

/// Something that the request wrote.
struct Touched {
    hash: u32,
    collection: u16,
    sub: u64,
    key: Range<u32>,
    effect: Effect,
}

/// One request's writes, seen by its own reads. Reused from request to request; it allocates only
/// when a request needs more memory than any before.
#[derive(Default)]
pub struct Txn {
    buf: Vec<u8>,
    writes: usize,
    touched: Vec<Touched>,
    /// Places in `touched`, once there are more than `OVERLAY_LINEAR_MAX`.
    index: HashTable<u32>,
    scratch: Vec<u32>,
    /// The first access that was refused, and its collection.
    refused: Cell<Option<(u16, TxnError)>>,
    /// A write was refused that cannot tell its caller.
    is_write_lost: bool,
}

fn bytes_of<'a>(buf: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    &buf[range.start as usize..range.end as usize]
}

impl Txn {
    /// An empty one. Call [`Txn::begin`] before each request.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Forgets what was buffered and starts a request whose key has this slot.
    pub fn begin(&mut self, slot: u16) {
        self.buf.clear();
        self.buf.extend_from_slice(&slot.to_le_bytes());
        self.writes = 0;
        self.refused.set(None);
        self.is_write_lost = false;
        self.touched.clear();
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// The first access that was refused since the request began: collection and reason.
    pub fn refused(&self) -> Option<(u16, TxnError)> {
        self.refused.get()
    }

    /// Whether a write was refused that cannot tell its caller, so that the request must not commit.
    pub fn is_write_lost(&self) -> bool {
        self.is_write_lost
    }

    /// Notes that an access is refused.
    #[cold]
    fn refuse<T>(&self, collection: u16, error: TxnError) -> Result<T, TxnError> {
        self.refused
            .set(self.refused.get().or(Some((collection, error))));
        Err(error)
    }

    /// The collection must be of one of these kinds.
    #[inline]
    fn expect_kind(&self, state: &State, collection: u16, kinds: &[Kind]) -> Result<(), TxnError> {
        match state.kind(collection) {
            Some(kind) if kinds.contains(&kind) => Ok(()),
            Some(kind) => self.refuse(collection, TxnError::WrongKind(kind)),
            None => self.refuse(collection, TxnError::NoCollection),
        }
    }

    /// Writes so far.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// The request's writes as one batch; starts over.
    pub fn finish(&mut self) -> WriteBatch {
        self.finish_in(Vec::new())
    }

    /// The same, in a buffer that is there already; what it holds is lost.
    pub fn finish_in(&mut self, buffer: Vec<u8>) -> WriteBatch {
        let batch = WriteBatch::trusted(&self.buf, buffer);
        self.begin(0);
        batch
    }

    /// Maps: the value at a key.
    #[inline]
    pub fn get<'a>(
        &'a self,
        state: &'a State,
        collection: u16,
        key: &[u8],
    ) -> Result<Option<&'a [u8]>, TxnError> {
        self.expect_kind(state, collection, &[Kind::HashMap, Kind::OrderedMap])?;
        let hash = key_hash(key);
        match self.find(hash, collection, WHOLE, key) {
            Some(at) => Ok(self.value_of(at)),
            None => Ok(state.get_hashed(collection, hash, key)),
        }
    }

    /// Maps: insert or replace. The key lives as long as the collection's keys do by default.
    pub fn put(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        self.put_until(state, collection, key, value, expiry(state, collection))
    }

    /// Maps: insert or replace; the key lives for `ttl`.
    pub fn put_for(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        value: &[u8],
        ttl: Nanos,
    ) -> Result<(), TxnError> {
        if ttl == Nanos::ZERO {
            return self.refuse(collection, TxnError::Ttl);
        }
        self.put_until(state, collection, key, value, state.now() + ttl)
    }

    fn put_until(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        value: &[u8],
        expires: Timestamp,
    ) -> Result<(), TxnError> {
        self.expect_kind(state, collection, &[Kind::HashMap, Kind::OrderedMap])?;
        let (key_at, value_at) = self.write(collection, key, Op::Put(value), expires)?;
        let effect = Effect::Value(value_at);
        self.touch(key_hash(key), collection, WHOLE, key_at, effect);
        Ok(())
    }

    /// Any kind: removes what is at the key; whether something was there.
    pub fn delete(&mut self, state: &State, collection: u16, key: &[u8]) -> Result<bool, TxnError> {
        let Some(kind) = state.kind(collection) else {
            return self.refuse(collection, TxnError::NoCollection);
        };
        let there = match kind {
            Kind::HashMap | Kind::OrderedMap => self.get(state, collection, key)?.is_some(),
            Kind::Array => self.array_len(state, collection, key)? > 0,
            Kind::Counter => self.counter(state, collection, key).is_some(),
        };
        if there {
            let effect = match self.array_bounds(state, collection, key) {
                Some((_, end)) => Effect::Array { front: end, end },
                None => Effect::Gone,
            };
            let (key_at, _) = self.write(collection, key, Op::Delete, Timestamp::MAX)?;
            self.touch(key_hash(key), collection, WHOLE, key_at, effect);
        }
        Ok(there)
    }

    /// Ordered maps: visits the entries from `from` (inclusive) to `to` (exclusive; empty = no
    /// bound) in key order, or backwards, until `visit` returns false.
    pub fn scan(
        &mut self,
        state: &State,
        collection: u16,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), TxnError> {
        self.expect_kind(state, collection, &[Kind::OrderedMap])?;
        let (buf, touched, own) = (&self.buf, &self.touched, &mut self.scratch);
        let key_of = |at: u32| bytes_of(buf, &touched[at as usize].key);
        own.clear();
        own.extend((0..touched.len() as u32).filter(|at| {
            let key = key_of(*at);
            touched[*at as usize].collection == collection
                && key >= from
                && (to.is_empty() || key < to)
        }));
        own.sort_unstable_by(|a, b| key_of(*a).cmp(key_of(*b)));
        if reverse {
            own.reverse();
        }
        let range = state.range(collection, from, to);
        let mut committed: Box<dyn Iterator<Item = (&[u8], &[u8])>> = if reverse {
            Box::new(range.rev())
        } else {
            Box::new(range)
        };
        let mut theirs = committed.next();
        let mut own = own.iter().copied().peekable();
        loop {
            let order = match (own.peek(), theirs) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(at), Some((key, _))) if reverse => key.cmp(key_of(*at)),
                (Some(at), Some((key, _))) => key_of(*at).cmp(key),
            };
            let entry = if order == Ordering::Greater {
                theirs
            } else {
                own.next()
                    .and_then(|at| match &touched[at as usize].effect {
                        Effect::Value(value) => Some((key_of(at), bytes_of(buf, value))),
                        _ => None,
                    })
            };
            if order != Ordering::Less {
                theirs = committed.next();
            }
            if let Some((key, value)) = entry
                && !visit(key, value)
            {
                return Ok(());
            }
        }
    }

    /// Counters: fetch-and-add, wrapping; the value before. Any value may stand for itself, so a service
    /// cannot see an error: see [`Txn::is_write_lost`].
    pub fn counter_add(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        delta: i64,
    ) -> Result<i64, TxnError> {
        let added = self.add(state, collection, key, delta);
        self.is_write_lost |= added.is_err();
        added
    }

    fn add(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
        delta: i64,
    ) -> Result<i64, TxnError> {
        self.expect_kind(state, collection, &[Kind::Counter])?;
        let before = self.counter(state, collection, key);
        if before.is_none() {
            self.remove_expired(state, collection, key)?;
        }
        let before = before.unwrap_or(0);
        let expires = expiry(state, collection);
        let (key_at, _) = self.write(collection, key, Op::CounterAdd(delta), expires)?;
        let effect = Effect::Count(before.wrapping_add(delta));
        self.touch(key_hash(key), collection, WHOLE, key_at, effect);
        Ok(before)
    }

    /// Counters: the value, 0 if absent.
    pub fn counter_get(&self, state: &State, collection: u16, key: &[u8]) -> Result<i64, TxnError> {
        self.expect_kind(state, collection, &[Kind::Counter])?;
        Ok(self.counter(state, collection, key).unwrap_or(0))
    }

    fn counter(&self, state: &State, collection: u16, key: &[u8]) -> Option<i64> {
        match self.find(key_hash(key), collection, WHOLE, key) {
            Some(at) => match self.touched[at].effect {
                Effect::Count(value) => Some(value),
                _ => None,
            },
            None => state.counter(collection, key).map(|c| c.value),
        }
    }

    fn value_of(&self, at: usize) -> Option<&[u8]> {
        match &self.touched[at].effect {
            Effect::Value(range) => Some(bytes_of(&self.buf, range)),
            _ => None,
        }
    }

    /// Encodes a write if it is within bounds; where its key and value lie.
    #[inline]
    fn write(
        &mut self,
        collection: u16,
        key: &[u8],
        op: Op<'_>,
        expires: Timestamp,
    ) -> Result<(Range<u32>, Range<u32>), TxnError> {
        let value_len = match op {
            Op::Put(v) | Op::ArrayPush(v) | Op::ArrayPut(_, v) => v.len(),
            Op::Delete | Op::ArrayPopFront | Op::CounterAdd(_) => 0,
        };
        if self.buf.len() < HEADER_LEN {
            self.begin(0);
        }
        let len = self.buf.len() + OP_OVERHEAD_MAX + key.len() + value_len;
        let error = if key.is_empty() || key.len() > KEY_LEN_MAX {
            Some(TxnError::KeyLen(key.len()))
        } else if value_len > VALUE_LEN_MAX {
            Some(TxnError::ValueLen(value_len))
        } else if len > BATCH_LEN_MAX {
            Some(TxnError::WritesLen(len))
        } else if self.writes == WRITES_MAX {
            Some(TxnError::TooManyWrites)
        } else {
            None
        };
        if let Some(error) = error {
            return self.refuse(collection, error);
        }
        self.writes += 1;
        let write = Write {
            collection,
            key,
            op,
            expires,
        };
        Ok(encode(&mut self.buf, &write))
    }

    /// Removes a key that has expired and that the request has not touched, so that a write that adds
    /// to what is there begins again.
    #[inline]
    fn remove_expired(
        &mut self,
        state: &State,
        collection: u16,
        key: &[u8],
    ) -> Result<(), TxnError> {
        if state.is_expired(collection, key)
            && self.find(key_hash(key), collection, WHOLE, key).is_none()
        {
            self.write(collection, key, Op::Delete, Timestamp::MAX)?;
        }
        Ok(())
    }

    #[inline]
    fn find(&self, hash: u32, collection: u16, sub: u64, key: &[u8]) -> Option<usize> {
        let is = |t: &Touched| {
            t.hash == hash
                && t.collection == collection
                && t.sub == sub
                && bytes_of(&self.buf, &t.key) == key
        };
        if self.touched.len() <= OVERLAY_LINEAR_MAX {
            return self.touched.iter().position(is);
        }
        let found = self
            .index
            .find(widen(hash), |at| is(&self.touched[*at as usize]));
        found.map(|at| *at as usize)
    }

    /// Records what the request made of something.
    fn touch(&mut self, hash: u32, collection: u16, sub: u64, key: Range<u32>, effect: Effect) {
        let found = self.find(hash, collection, sub, bytes_of(&self.buf, &key));
        if let Some(at) = found {
            self.touched[at].effect = effect;
            return;
        }
        self.touched.push(Touched {
            hash,
            collection,
            sub,
            key,
            effect,
        });
        let len = self.touched.len();
        if len > OVERLAY_LINEAR_MAX {
            let touched = &self.touched;
            let first = if self.index.is_empty() { 0 } else { len - 1 };
            for at in first..len {
                self.index
                    .insert_unique(widen(touched[at].hash), at as u32, |at| {
                        widen(touched[*at as usize].hash)
                    });
            }
        }
    }
}

/// When a key that is written now expires by default.
#[inline]
fn expiry(state: &State, collection: u16) -> Timestamp {
    let ttl = state.ttl(collection);
    ttl.map_or(Timestamp::MAX, |ttl| state.now() + ttl)
}
