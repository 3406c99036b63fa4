//! The items: how commands change the collections.
//!
//! An item is one entry of `items`: expiry, version, flags, data. If its data has more than
//! [`LARGE_BYTES`], a change of the expiry alone writes a second entry, which then has the valid
//! expiry: a read, a write and a reply of the data would not fit into one request. Commands that store or
//! delete the item remove the second entry.

use alloc::vec::Vec;

use crate::limits::{
    DATA_BYTES_MAX, EFFECTS_BYTES_MAX, KEY_BYTES_MAX, LARGE_BYTES, PURGED, WRITE_OVERHEAD_BYTES,
    WRITES_BYTES_MAX,
};
use crate::protocol::{Verb, unsigned};
use e3_sdk::{Counter, Error, HashMap, OrderedMap};

/// Bytes before the data of an item: expiry, version, flags.
const HEADER: usize = 20;
/// Longest key of a collection: slot, expiry, the item's key.
const STORED_KEY_BYTES_MAX: usize = 2 + 8 + KEY_BYTES_MAX;
/// Length of the key of a second entry, which is longer than that of any item.
const SECOND_KEY_BYTES: usize = 2 + KEY_BYTES_MAX + 1;

/// An existing item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Its version, for `cas`.
    pub version: u64,
    /// Its data.
    pub data: &'a [u8],
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, deleted, touched.
    Done,
    /// The condition of `add`, `replace`, `append` or `prepend` does not hold.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no such item.
    NotFound,
    /// The new number of the item.
    Number(u64),
    /// The item is not a number.
    NoNumber,
    /// The item would be too large.
    TooLarge,
    /// The request writes too much.
    NoRoom,
}

/// The header before the data.
#[derive(Clone, Copy)]
struct Header {
    expires: i64,
    version: u64,
    flags: u32,
}

/// The collections, for one request at a time.
#[derive(Debug)]
pub struct Store {
    items: HashMap,
    expiries: OrderedMap,
    versions: Counter,
    /// Slot of the request.
    slot: [u8; 2],
    now: i64,
    /// Bytes that the request has written.
    pub spent: usize,
    /// Bytes of its reply and messages so far.
    pub outputs: usize,
    /// The item that was read last.
    value: Vec<u8>,
    /// Its length with the header, also if it has expired; 0 if there is none.
    stored: usize,
    next: Vec<u8>,
}

impl Store {
    /// Opens the collections.
    pub fn open() -> Result<Store, Error> {
        Ok(Store {
            items: HashMap::open("items")?,
            expiries: OrderedMap::open("expiries")?,
            versions: Counter::open("versions")?,
            slot: [0; 2],
            now: 0,
            spent: 0,
            outputs: 0,
            stored: 0,
            value: alloc::vec![0; 1024],
            next: Vec::new(),
        })
    }

    /// Starts a request.
    pub fn begin(&mut self, slot: u16, now: i64) {
        self.slot = slot.to_be_bytes();
        self.now = now;
        self.spent = 0;
        self.outputs = 0;
    }

    /// The item of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Item<'_>>, Error> {
        let found = self.load(key)?;
        Ok(found.map(|(header, len)| Item {
            flags: header.flags,
            version: header.version,
            data: &self.value[HEADER..len],
        }))
    }

    /// Reads an item into `value`; returns its length with the header. None if it has expired.
    fn load(&mut self, key: &[u8]) -> Result<Option<(Header, usize)>, Error> {
        let (stored_key, len) = join(self.slot, &[key]);
        let len = match self.items.get(&stored_key[..len], &mut self.value) {
            Ok(found) => found.map(<[u8]>::len),
            Err(Error::Short { len: needed, .. }) => {
                self.value.resize(needed, 0);
                let found = self.items.get(&stored_key[..len], &mut self.value)?;
                found.map(<[u8]>::len)
            }
            Err(error) => return Err(error),
        };
        self.stored = len.unwrap_or(0);
        let Some((len, mut header)) = len.and_then(|l| Some((l, header(&self.value[..l])?))) else {
            return Ok(None);
        };
        if self.is_large() {
            let mut buffer = [0; 8];
            if self.items.get(&self.second(key), &mut buffer)?.is_some() {
                header.expires = i64::from_le_bytes(buffer);
            }
        }
        let expired = header.expires != 0 && header.expires <= self.now;
        Ok((!expired).then_some((header, len)))
    }

    /// Finds how long an item is, without reading it.
    fn measure(&mut self, key: &[u8]) -> Result<(), Error> {
        let (stored_key, len) = join(self.slot, &[key]);
        self.stored = match self.items.get(&stored_key[..len], &mut [0; HEADER]) {
            Ok(found) => found.map_or(0, <[u8]>::len),
            Err(Error::Short { len, .. }) => len,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Whether the item that was read last may have a second entry.
    fn is_large(&self) -> bool {
        self.stored > HEADER + LARGE_BYTES
    }

    /// The key of an item's second entry, padded to a length that no item's key has.
    fn second(&self, key: &[u8]) -> [u8; SECOND_KEY_BYTES] {
        let mut second = [0; SECOND_KEY_BYTES];
        second[..2].copy_from_slice(&self.slot);
        second[2..2 + key.len()].copy_from_slice(key);
        second[SECOND_KEY_BYTES - 1] = key.len() as u8;
        second
    }

    /// A storage command; `expires` in nanoseconds, 0 = never.
    pub fn store(
        &mut self,
        verb: Verb,
        key: &[u8],
        flags: u32,
        expires: i64,
        data: &[u8],
    ) -> Result<Outcome, Error> {
        let there = match verb {
            Verb::Set => {
                self.measure(key)?;
                None
            }
            _ => self.load(key)?,
        };
        let (before, after, kept) = match (verb, there) {
            (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => {
                (&[][..], &[][..], None)
            }
            (Verb::Append, Some((h, len))) => (&self.value[HEADER..len], &[][..], Some(h)),
            (Verb::Prepend, Some((h, len))) => (&[][..], &self.value[HEADER..len], Some(h)),
            (Verb::Cas(_), None) => return Ok(Outcome::NotFound),
            (Verb::Cas(seen), Some((h, _))) if h.version == seen => (&[][..], &[][..], None),
            (Verb::Cas(_), Some(_)) => return Ok(Outcome::Exists),
            _ => return Ok(Outcome::NotStored),
        };
        // append and prepend keep flags and expiry
        let (flags, expires) = kept.map_or((flags, expires), |h| (h.flags, h.expires));
        if before.len() + data.len() + after.len() > DATA_BYTES_MAX {
            // as in memcached, the old value does not stay as if it were current
            if verb == Verb::Set && self.stored > 0 && self.reserve(self.cost_of_removal(key)) {
                self.remove(key)?;
            }
            return Ok(Outcome::TooLarge);
        }
        self.next.clear();
        self.next.resize(HEADER, 0);
        for part in [before, data, after] {
            self.next.extend_from_slice(part);
        }
        self.put(key, flags, expires, kept.is_none())
    }

    /// Stores `next` with a header, in place of the item that was read last.
    fn put(&mut self, key: &[u8], flags: u32, expires: i64, index: bool) -> Result<Outcome, Error> {
        if expires != 0 && expires <= self.now {
            if !self.reserve(self.cost_of_removal(key)) {
                return Ok(Outcome::NoRoom);
            }
            self.remove(key)?;
            return Ok(Outcome::Done);
        }
        let index = index && expires != 0;
        let index_bytes = if index { cost(key, 8) } else { 0 };
        let second_bytes = if self.is_large() { SECOND_COST } else { 0 };
        let item_bytes = cost(key, self.next.len()) + cost(&[], 8);
        if !self.reserve(item_bytes + index_bytes + second_bytes) {
            return Ok(Outcome::NoRoom);
        }
        let version = self.versions.fetch_add(&self.slot, 1).wrapping_add(1) as u64;
        self.next[..8].copy_from_slice(&expires.to_le_bytes());
        self.next[8..16].copy_from_slice(&version.to_le_bytes());
        self.next[16..HEADER].copy_from_slice(&flags.to_le_bytes());
        let (stored_key, len) = join(self.slot, &[key]);
        self.items.put(&stored_key[..len], &self.next)?;
        if self.is_large() {
            self.items.delete(&self.second(key))?;
        }
        if index {
            self.index(expires, key)?;
        }
        Ok(Outcome::Done)
    }

    /// Reserves bytes for writes; false, and nothing reserved, if the request has too few left.
    fn reserve(&mut self, bytes: usize) -> bool {
        let spent = self.spent + bytes;
        let fits = spent <= WRITES_BYTES_MAX && spent + self.outputs <= EFFECTS_BYTES_MAX;
        if fits {
            self.spent = spent;
        }
        fits
    }

    fn cost_of_removal(&self, key: &[u8]) -> usize {
        cost(key, 0) + if self.is_large() { SECOND_COST } else { 0 }
    }

    /// Removes the item that was read last.
    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        let (stored_key, len) = join(self.slot, &[key]);
        self.items.delete(&stored_key[..len])?;
        if self.is_large() {
            self.items.delete(&self.second(key))?;
        }
        Ok(())
    }

    /// Adds the item's expiry to the index, and drops a few items that have expired.
    fn index(&mut self, expires: i64, key: &[u8]) -> Result<(), Error> {
        let (stored_key, len) = join(self.slot, &[&expires.to_be_bytes(), key]);
        self.expiries.put(&stored_key[..len], &[])?;
        let (from, from_len) = join(self.slot, &[]);
        let (to, to_len) = join(self.slot, &[&self.now.to_be_bytes(), &[0]]);
        let mut due = Vec::new();
        let mut scan = self.expiries.scan(&from[..from_len], &to[..to_len]);
        scan = scan.chunk(PURGED as u32);
        for _ in 0..PURGED {
            match scan.next()? {
                Some((key, _)) => due.push(key.to_vec()),
                None => break,
            }
        }
        for entry in due {
            let key = entry.get(10..).unwrap_or_default();
            // it may have been stored or touched since
            let expired = self.load(key)?.is_none();
            let removal = if expired {
                self.cost_of_removal(key)
            } else {
                0
            };
            if !self.reserve(cost(&entry, 0) + removal) {
                break;
            }
            if expired {
                self.remove(key)?;
            }
            self.expiries.delete(&entry)?;
        }
        Ok(())
    }

    /// `delete`.
    pub fn delete(&mut self, key: &[u8]) -> Result<Outcome, Error> {
        if self.load(key)?.is_none() {
            return Ok(Outcome::NotFound);
        }
        if !self.reserve(self.cost_of_removal(key)) {
            return Ok(Outcome::NoRoom);
        }
        self.remove(key)?;
        Ok(Outcome::Done)
    }

    /// `incr` (wraps at 2^64) and `decr` (stops at 0). With `pad` data never becomes shorter: blanks
    /// follow the number, as in memcached.
    pub fn add(&mut self, key: &[u8], delta: u64, down: bool, pad: bool) -> Result<Outcome, Error> {
        let Some((header, len)) = self.load(key)? else {
            return Ok(Outcome::NotFound);
        };
        let Some(value) = unsigned(&self.value[HEADER..len]) else {
            return Ok(Outcome::NoNumber);
        };
        let value = if down {
            value.saturating_sub(delta)
        } else {
            value.wrapping_add(delta)
        };
        self.next.clear();
        self.next.resize(HEADER, 0);
        self.next
            .extend_from_slice(alloc::format!("{value}").as_bytes());
        if pad && self.next.len() < len {
            self.next.resize(len, b' ');
        }
        match self.put(key, header.flags, header.expires, false)? {
            Outcome::Done => Ok(Outcome::Number(value)),
            other => Ok(other),
        }
    }

    /// `touch`: the version stays.
    pub fn touch(&mut self, key: &[u8], expires: i64) -> Result<Outcome, Error> {
        let Some((_, len)) = self.load(key)? else {
            return Ok(Outcome::NotFound);
        };
        if expires != 0 && expires <= self.now {
            if !self.reserve(self.cost_of_removal(key)) {
                return Ok(Outcome::NoRoom);
            }
            self.remove(key)?;
            return Ok(Outcome::Done);
        }
        let large = self.is_large();
        let item_bytes = if large { SECOND_COST } else { cost(key, len) };
        let index_bytes = if expires == 0 { 0 } else { cost(key, 8) };
        if !self.reserve(item_bytes + index_bytes) {
            return Ok(Outcome::NoRoom);
        }
        if large {
            self.items.put(&self.second(key), &expires.to_le_bytes())?;
        } else {
            let (stored_key, key_len) = join(self.slot, &[key]);
            self.value[..8].copy_from_slice(&expires.to_le_bytes());
            self.items.put(&stored_key[..key_len], &self.value[..len])?;
        }
        if expires != 0 {
            self.index(expires, key)?;
        }
        Ok(Outcome::Done)
    }
}

/// The cost of writing a second entry.
const SECOND_COST: usize = SECOND_KEY_BYTES + 8 + WRITE_OVERHEAD_BYTES;

fn header(bytes: &[u8]) -> Option<Header> {
    let (expires, rest) = bytes.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let (flags, _) = rest.split_first_chunk()?;
    Some(Header {
        expires: i64::from_le_bytes(*expires),
        version: u64::from_le_bytes(*version),
        flags: u32::from_le_bytes(*flags),
    })
}

/// The cost of a write.
fn cost(key: &[u8], bytes: usize) -> usize {
    2 + key.len() + bytes + WRITE_OVERHEAD_BYTES
}

/// A key of a collection: the slot, then the parts.
fn join(slot: [u8; 2], parts: &[&[u8]]) -> ([u8; STORED_KEY_BYTES_MAX], usize) {
    let mut key = [0; STORED_KEY_BYTES_MAX];
    key[..2].copy_from_slice(&slot);
    let mut len = 2;
    for part in parts {
        key[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    (key, len)
}
