//! Keys as bytes in the same order.
//!
//! No encoded key begins with all of another one, so keys can stand behind each other in a tuple. The
//! escape of texts is that of FoundationDB's tuple layer and of CockroachDB.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Error;

/// Ends a text or bytes: less than what any longer one has in that place.
const END: [u8; 2] = [0, 1];
/// Stands for a zero byte in a text or bytes.
const ZERO: [u8; 2] = [0, 0xff];

/// A key whose encoding keeps its order.
pub trait Key: Sized {
    /// Appends the key's bytes. They are never none, and never the beginning of another key's.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes a key from the front of `bytes`; none if there is not one.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// The bytes of a key.
pub(super) fn bytes(key: &impl Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// The key that these bytes are.
pub(super) fn whole<K: Key>(mut bytes: &[u8]) -> Result<K, Error> {
    let key = K::decode(&mut bytes);
    key.filter(|_| bytes.is_empty()).ok_or(Error::Type("key"))
}

/// The first bytes behind all that begin with these; none if there are no such.
pub(super) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end
}

/// Takes so many bytes from the front.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Key for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(Self::from_be_bytes)
            }
        }
    )*};
}

macro_rules! signed {
    ($($type:ty => $unsigned:ty),*) => {$(
        impl Key for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                // The smallest number becomes 0.
                let shifted = self.wrapping_sub(<$type>::MIN) as $unsigned;
                out.extend_from_slice(&shifted.to_be_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                let shifted = <$unsigned>::from_be_bytes(take(bytes)?);
                Some((shifted as $type).wrapping_add(<$type>::MIN))
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);
signed!(i8 => u8, i16 => u16, i32 => u32, i64 => u64, i128 => u128);

impl Key for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl Key for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        escape(self, out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        unescape(bytes)
    }
}

impl Key for String {
    fn encode(&self, out: &mut Vec<u8>) {
        escape(self.as_bytes(), out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(unescape(bytes)?).ok()
    }
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            0 => out.extend_from_slice(&ZERO),
            byte => out.push(*byte),
        }
    }
    out.extend_from_slice(&END);
}

fn unescape(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        match take(bytes)? {
            [0] => match take(bytes)? {
                [second] if second == ZERO[1] => text.push(0),
                [second] if second == END[1] => return Some(text),
                _ => return None,
            },
            [byte] => text.push(byte),
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        const { assert!(N > 0, "a key has at least one byte") };
        out.extend_from_slice(self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

/// Tuples are encoded part by part, keys as well as values.
macro_rules! tuple {
    ($trait:ident: $($part:ident),+) => {
        impl<$($part: $trait),+> $trait for ($($part,)+) {
            #[expect(non_snake_case, reason = "parts are named by their types")]
            fn encode(&self, out: &mut Vec<u8>) {
                let ($($part,)+) = self;
                $($part.encode(out);)+
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode(bytes)?,)+))
            }
        }
    };
}

pub(crate) use tuple;

tuple!(Key: A, B);
tuple!(Key: A, B, C);
tuple!(Key: A, B, C, D);
