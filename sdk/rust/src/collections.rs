//! Handles to collections, the only durable state (docs/abi.md).

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::limits::{FIRST_READ_BYTES, SCAN_CHUNK_BYTES};
use crate::{Error, check, sys};

fn open(name: &'static str) -> Result<i32, Error> {
    let handle = sys::collection(name);
    if handle < 0 {
        Err(Error::NoCollection(name))
    } else {
        Ok(handle)
    }
}

/// The `out`/`cap` protocol with a vector: calls a second time if the first buffer was too short.
pub(crate) fn read_vec(mut call: impl FnMut(&mut [u8]) -> i32) -> Option<Vec<u8>> {
    let mut bytes = vec![0; FIRST_READ_BYTES];
    loop {
        let len = usize::try_from(call(&mut bytes)).ok()?;
        let fitted = len <= bytes.len();
        bytes.resize(len, 0);
        if fitted {
            return Some(bytes);
        }
    }
}

fn get_into<'a>(handle: i32, key: &[u8], out: &'a mut [u8]) -> Result<Option<&'a [u8]>, Error> {
    let cap = out.len();
    match sys::get(handle, key, out) {
        // Also the code of a handle that is none, but this one is.
        -1 => Ok(None),
        code => match check(code)? as usize {
            len if len <= cap => Ok(Some(&out[..len])),
            len => Err(Error::Short { len, cap }),
        },
    }
}

/// Methods that hash maps and ordered maps share.
macro_rules! map_methods {
    () => {
        /// Opens the collection that the manifest declares under `name`.
        pub fn open(name: &'static str) -> Result<Self, Error> {
            open(name).map(|handle| Self { handle })
        }

        /// The value at `key`, if there is one, in `out`, which must be long enough.
        pub fn get<'a>(&self, key: &[u8], out: &'a mut [u8]) -> Result<Option<&'a [u8]>, Error> {
            get_into(self.handle, key, out)
        }

        /// The value at `key`, however long.
        pub fn get_vec(&self, key: &[u8]) -> Option<Vec<u8>> {
            read_vec(|out| sys::get(self.handle, key, out))
        }

        /// Inserts or replaces.
        pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
            check(sys::put(self.handle, key, value)).map(drop)
        }

        /// Inserts or replaces; the key lives for `ttl`, which must be more than 0, whatever the manifest
        /// says.
        pub fn put_for(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<(), Error> {
            let ttl = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
            check(sys::put_ttl(self.handle, key, value, ttl)).map(drop)
        }

        /// Removes; true if something was there.
        pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
            check(sys::delete(self.handle, key)).map(|count| count > 0)
        }
    };
}

/// A map without order.
#[derive(Clone, Copy, Debug)]
pub struct HashMap {
    handle: i32,
}

impl HashMap {
    map_methods!();
}

/// A map ordered by the bytes of its keys.
#[derive(Clone, Copy, Debug)]
pub struct OrderedMap {
    handle: i32,
}

impl OrderedMap {
    map_methods!();

    /// Entries with keys in `from..to`, smallest first; an empty `to` is unbounded.
    pub fn scan(&self, from: &[u8], to: &[u8]) -> Scan {
        Scan::new(self.handle, from, to, false)
    }

    /// Entries with keys in `from..to`, largest first.
    pub fn scan_reverse(&self, from: &[u8], to: &[u8]) -> Scan {
        Scan::new(self.handle, from, to, true)
    }
}

/// A key and its value.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// A walk over a range of an ordered map, fetched in chunks.
#[derive(Debug)]
pub struct Scan {
    handle: i32,
    from: Vec<u8>,
    to: Vec<u8>,
    reverse: bool,
    /// Entries of a chunk; 0 = as many as fit.
    limit: u32,
    chunk: Vec<u8>,
    filled: usize,
    at: usize,
    done: bool,
}

impl Scan {
    fn new(handle: i32, from: &[u8], to: &[u8], reverse: bool) -> Self {
        Self {
            handle,
            from: from.to_vec(),
            to: to.to_vec(),
            reverse,
            limit: 0,
            chunk: Vec::new(),
            filled: 0,
            at: 0,
            done: false,
        }
    }

    /// Fetches at most `entries` at once: for callers that stop early.
    #[must_use]
    pub fn chunk(mut self, entries: u32) -> Self {
        self.limit = entries;
        self
    }

    /// The next key and value. (A lending iterator, so not an `Iterator`.)
    #[expect(
        clippy::should_implement_trait,
        reason = "what it returns borrows from it"
    )]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, Error> {
        if self.at == self.filled {
            if !self.done {
                self.fetch()?;
            }
            if self.done {
                return Ok(None);
            }
        }
        let key_len = self.length(self.at);
        let value_len = self.length(self.at + 4);
        let key_at = self.at + 8;
        let value_at = key_at + key_len;
        self.at = value_at + value_len;
        if self.at == self.filled {
            // The next chunk begins behind this entry.
            let key = &self.chunk[key_at..value_at];
            if self.reverse {
                self.to.clear();
                self.to.extend_from_slice(key);
            } else {
                self.from.clear();
                self.from.extend_from_slice(key);
                self.from.push(0);
            }
        }
        Ok(Some((
            &self.chunk[key_at..value_at],
            &self.chunk[value_at..value_at + value_len],
        )))
    }

    fn fetch(&mut self) -> Result<(), Error> {
        if self.chunk.is_empty() {
            self.chunk.resize(SCAN_CHUNK_BYTES, 0);
        }
        // Twice: first with the buffer as it is, then with the length that the first entry needs.
        for _ in 0..2 {
            let filled = sys::scan(
                self.handle,
                &self.from,
                &self.to,
                self.limit,
                self.reverse,
                &mut self.chunk,
            );
            if filled >= 0 {
                self.filled = filled as usize;
                self.at = 0;
                self.done = filled == 0;
                return Ok(());
            }
            let needed = filled.unsigned_abs() as usize;
            // A negative answer that is no entry's size is an error code.
            if needed <= self.chunk.len() {
                return check(filled).map(drop);
            }
            self.chunk.resize(needed, 0);
        }
        Err(Error::Short {
            len: self.chunk.len() + 1,
            cap: self.chunk.len(),
        })
    }

    fn length(&self, at: usize) -> usize {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.chunk[at..at + 4]);
        u32::from_le_bytes(bytes) as usize
    }
}

/// Arrays of byte strings, one at each key.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    handle: i32,
}

impl Array {
    pub(crate) fn handle(self) -> i32 {
        self.handle
    }

    /// Opens the collection that the manifest declares under `name`.
    pub fn open(name: &'static str) -> Result<Self, Error> {
        open(name).map(|handle| Self { handle })
    }

    /// Elements of the array at `key`.
    pub fn len(&self, key: &[u8]) -> u64 {
        sys::array_len(self.handle, key).max(0) as u64
    }

    /// True if the array at `key` has no elements.
    pub fn is_empty(&self, key: &[u8]) -> bool {
        self.len(key) == 0
    }

    /// The element at `index`, if there is one, in `out`, which must be long enough.
    pub fn get<'a>(
        &self,
        key: &[u8],
        index: u64,
        out: &'a mut [u8],
    ) -> Result<Option<&'a [u8]>, Error> {
        let cap = out.len();
        let index = i64::try_from(index).map_err(|_| Error::Index)?;
        match usize::try_from(sys::array_get(self.handle, key, index, out)) {
            Ok(len) if len <= cap => Ok(Some(&out[..len])),
            Ok(len) => Err(Error::Short { len, cap }),
            Err(_) => Ok(None),
        }
    }

    /// Calls `see` with the elements from `from` on, in order. One host call fetches many of them.
    pub fn for_each(
        &self,
        key: &[u8],
        from: u64,
        mut see: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        const NO_MORE: u32 = u32::MAX;
        let mut index = i64::try_from(from).map_err(|_| Error::Index)?;
        let (mut short, mut long) = ([0; 512], Vec::new());
        loop {
            let buffer = if long.is_empty() {
                &mut short[..]
            } else {
                &mut long
            };
            let filled = sys::array_scan(self.handle, key, index, buffer);
            let mut rest = match usize::try_from(filled) {
                Ok(0) => return Ok(()),
                Ok(filled) => &buffer[..filled],
                // longer than the buffer
                Err(_) if -filled as usize > buffer.len() => {
                    long.resize(-filled as usize, 0);
                    continue;
                }
                Err(_) => return Err(Error::Code(filled)),
            };
            while let Some((len, after)) = rest.split_first_chunk() {
                let len = match u32::from_le_bytes(*len) {
                    NO_MORE => return Ok(()),
                    len => len as usize,
                };
                let (element, after) = after.split_at(len.min(after.len()));
                see(element)?;
                (index, rest) = (index + 1, after);
            }
        }
    }

    /// Appends an element.
    pub fn push(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        check(sys::array_push(self.handle, key, value)).map(drop)
    }

    /// Replaces the element at `index`, which must exist.
    pub fn put(&self, key: &[u8], index: u64, value: &[u8]) -> Result<(), Error> {
        let index = i64::try_from(index).map_err(|_| Error::Index)?;
        check(sys::array_put(self.handle, key, index, value)).map(drop)
    }

    /// Drops the oldest element; false if there was none.
    pub fn pop_front(&self, key: &[u8]) -> Result<bool, Error> {
        check(sys::array_pop_front(self.handle, key)).map(|count| count > 0)
    }

    /// Drops the whole array at `key`; false if there was none.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        check(sys::delete(self.handle, key)).map(|count| count > 0)
    }
}

/// Counters, one at each key.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    handle: i32,
}

impl Counter {
    /// Opens the collection that the manifest declares under `name`.
    pub fn open(name: &'static str) -> Result<Self, Error> {
        open(name).map(|handle| Self { handle })
    }

    /// Adds, wrapping around; returns the value before.
    pub fn fetch_add(&self, key: &[u8], delta: i64) -> i64 {
        sys::counter_add(self.handle, key, delta)
    }

    /// The value; 0 if nothing was ever added.
    pub fn get(&self, key: &[u8]) -> i64 {
        sys::counter_get(self.handle, key)
    }

    /// Removes the counter at `key`; false if there was none.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        check(sys::delete(self.handle, key)).map(|count| count > 0)
    }
}
