//! Collections with typed keys and values.
//!
//! Keys are encoded so that the order of their bytes is the order of the keys ([`Key`]); so an
//! [`OrderedMap`] is scanned in the order of integers, texts or tuples. Values are encoded by [`Value`].
//! What lies in a collection must have been written with the same types.
//!
//! ```
//! use core::time::Duration;
//! use e3_sdk::testing::{Host, Kind};
//! use e3_sdk::typed::{Counter, OrderedMap};
//!
//! let host = Host::new()
//!     .collection("readings", Kind::Ordered)
//!     .collection("total", Kind::Counter);
//! // By sensor and time.
//! let readings: OrderedMap<(String, i64), f64> = OrderedMap::open("readings")?;
//! let total: Counter<String> = Counter::open("total")?;
//! for (at, celsius) in [(-5, 20.5), (10, 21.0), (300, 21.5)] {
//!     readings.put_for(&("s1".into(), at), &celsius, Duration::from_secs(3600))?;
//!     total.fetch_add(&"s1".into(), 1)?;
//! }
//! let mut scan = readings.range(("s1".into(), 0)..("s1".into(), 1_000))?;
//! let mut found = Vec::new();
//! while let Some(((_, at), celsius)) = scan.next()? {
//!     found.push((at, celsius));
//! }
//! assert_eq!(found, [(10, 21.0), (300, 21.5)]);
//! assert_eq!(total.get(&"s1".into())?, 3);
//! # drop(host);
//! # Ok::<(), e3_sdk::Error>(())
//! ```

#[path = "typed_key.rs"]
mod key;
#[path = "typed_value.rs"]
mod value;

pub use key::Key;
pub use value::Value;

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};
use core::time::Duration;

use crate::collections as raw;
use crate::{Error, check};

/// A handle is only a number, whatever its types are.
macro_rules! handle {
    ($name:ident<$($type:ident: $bound:ident),+>, $raw:ty) => {
        impl<$($type),+> Clone for $name<$($type),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($type),+> Copy for $name<$($type),+> {}

        impl<$($type),+> core::fmt::Debug for $name<$($type),+> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.raw.fmt(f)
            }
        }

        impl<$($type: $bound),+> $name<$($type),+> {
            /// Opens the collection that the manifest declares under `name`.
            pub fn open(name: &'static str) -> Result<Self, Error> {
                let raw = <$raw>::open(name)?;
                Ok(Self {
                    raw,
                    types: PhantomData,
                })
            }
        }
    };
}

/// Methods that both maps share.
macro_rules! map_methods {
    () => {
        /// The value at `key`, if there is one.
        pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
            let bytes = self.raw.get_vec(&key::bytes(key));
            bytes.map(|bytes| value::whole(&bytes)).transpose()
        }

        /// Inserts or replaces.
        pub fn put(&self, key: &K, value: &V) -> Result<(), Error> {
            self.raw.put(&key::bytes(key), &value::bytes(value))
        }

        /// Inserts or replaces; the key lives for `ttl`, which must be more than 0.
        pub fn put_for(&self, key: &K, value: &V, ttl: Duration) -> Result<(), Error> {
            let (key, value) = (key::bytes(key), value::bytes(value));
            self.raw.put_for(&key, &value, ttl)
        }

        /// Removes; true if something was there.
        pub fn delete(&self, key: &K) -> Result<bool, Error> {
            self.raw.delete(&key::bytes(key))
        }
    };
}

/// A map without order.
pub struct HashMap<K, V> {
    raw: raw::HashMap,
    types: PhantomData<fn() -> (K, V)>,
}

handle!(HashMap<K: Key, V: Value>, raw::HashMap);

impl<K: Key, V: Value> HashMap<K, V> {
    map_methods!();
}

/// A map in the order of its keys.
pub struct OrderedMap<K, V> {
    raw: raw::OrderedMap,
    types: PhantomData<fn() -> (K, V)>,
}

handle!(OrderedMap<K: Key, V: Value>, raw::OrderedMap);

impl<K: Key, V: Value> OrderedMap<K, V> {
    map_methods!();

    /// Entries with keys in a range, smallest first.
    pub fn range(&self, keys: impl RangeBounds<K>) -> Result<Scan<K, V>, Error> {
        let (from, to) = bounds(&keys);
        Ok(Scan::new(from < to || to.is_empty(), || {
            self.raw.scan(&from, &to)
        }))
    }

    /// Entries with keys in a range, largest first.
    pub fn range_reverse(&self, keys: impl RangeBounds<K>) -> Result<Scan<K, V>, Error> {
        let (from, to) = bounds(&keys);
        Ok(Scan::new(from < to || to.is_empty(), || {
            self.raw.scan_reverse(&from, &to)
        }))
    }

    /// Entries whose keys, which are tuples, begin with `first`; smallest first.
    pub fn prefix<P: Key>(&self, first: &P) -> Result<Scan<K, V>, Error> {
        let from = key::bytes(first);
        let to = key::after_prefix(&from);
        Ok(Scan::new(true, || self.raw.scan(&from, &to)))
    }
}

/// The first key of a range and the one behind it, as bytes; the latter is empty if there is none.
fn bounds<K: Key>(keys: &impl RangeBounds<K>) -> (Vec<u8>, Vec<u8>) {
    // No key begins with all of another one, so a further byte is behind it and before the next.
    let after = |key: &K| {
        let mut bytes = key::bytes(key);
        bytes.push(0);
        bytes
    };
    let from = match keys.start_bound() {
        Bound::Included(key) => key::bytes(key),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    };
    let to = match keys.end_bound() {
        Bound::Included(key) => after(key),
        Bound::Excluded(key) => key::bytes(key),
        Bound::Unbounded => Vec::new(),
    };
    (from, to)
}

/// A walk over a range of an ordered map.
#[derive(Debug)]
pub struct Scan<K, V> {
    /// None if the range is empty.
    raw: Option<raw::Scan>,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Scan<K, V> {
    fn new(is_range: bool, scan: impl FnOnce() -> raw::Scan) -> Self {
        Self {
            raw: is_range.then(scan),
            types: PhantomData,
        }
    }

    /// The next key and value.
    #[expect(clippy::should_implement_trait, reason = "errors end the request")]
    pub fn next(&mut self) -> Result<Option<(K, V)>, Error> {
        let Some(scan) = &mut self.raw else {
            return Ok(None);
        };
        match scan.next()? {
            Some((key, value)) => Ok(Some((key::whole(key)?, value::whole(value)?))),
            None => Ok(None),
        }
    }
}

/// Arrays of elements, one at each key.
pub struct Array<K, T> {
    raw: raw::Array,
    types: PhantomData<fn() -> (K, T)>,
}

handle!(Array<K: Key, T: Value>, raw::Array);

impl<K: Key, T: Value> Array<K, T> {
    /// Elements of the array at `key`.
    pub fn len(&self, key: &K) -> u64 {
        self.raw.len(&key::bytes(key))
    }

    /// True if the array at `key` has no elements.
    pub fn is_empty(&self, key: &K) -> bool {
        self.len(key) == 0
    }

    /// The element at `index`, if there is one.
    pub fn get(&self, key: &K, index: u64) -> Result<Option<T>, Error> {
        let key = key::bytes(key);
        let index = i64::try_from(index).map_err(|_| Error::Index)?;
        let bytes = raw::read_vec(|out| crate::sys::array_get(self.raw.handle(), &key, index, out));
        bytes.map(|bytes| value::whole(&bytes)).transpose()
    }

    /// Calls `see` with the elements from `from` on, in order.
    pub fn for_each(
        &self,
        key: &K,
        from: u64,
        mut see: impl FnMut(T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let see = |bytes: &[u8]| see(value::whole(bytes)?);
        self.raw.for_each(&key::bytes(key), from, see)
    }

    /// Appends an element.
    pub fn push(&self, key: &K, element: &T) -> Result<(), Error> {
        self.raw.push(&key::bytes(key), &value::bytes(element))
    }

    /// Replaces the element at `index`, which must exist.
    pub fn put(&self, key: &K, index: u64, element: &T) -> Result<(), Error> {
        self.raw
            .put(&key::bytes(key), index, &value::bytes(element))
    }

    /// Drops the oldest element; false if there was none.
    pub fn pop_front(&self, key: &K) -> Result<bool, Error> {
        self.raw.pop_front(&key::bytes(key))
    }

    /// Drops the whole array at `key`; false if there was none.
    pub fn delete(&self, key: &K) -> Result<bool, Error> {
        self.raw.delete(&key::bytes(key))
    }
}

/// Counters, one at each key.
pub struct Counter<K> {
    raw: raw::Counter,
    types: PhantomData<fn() -> K>,
}

handle!(Counter<K: Key>, raw::Counter);

impl<K: Key> Counter<K> {
    /// Adds, wrapping around; returns the value before.
    pub fn fetch_add(&self, key: &K, delta: i64) -> Result<i64, Error> {
        Ok(self.raw.fetch_add(checked(&key::bytes(key))?, delta))
    }

    /// The value; 0 if nothing was ever added, or the counter has expired.
    pub fn get(&self, key: &K) -> Result<i64, Error> {
        Ok(self.raw.get(checked(&key::bytes(key))?))
    }

    /// Removes the counter at `key`; false if there was none.
    pub fn delete(&self, key: &K) -> Result<bool, Error> {
        self.raw.delete(&key::bytes(key))
    }
}

/// A key that a counter can have: the host cannot tell, since any value may be a counter's.
fn checked(key: &[u8]) -> Result<&[u8], Error> {
    match key.len() {
        1..=crate::limits::KEY_BYTES_MAX => Ok(key),
        _ => check(-2).map(|_| key),
    }
}
