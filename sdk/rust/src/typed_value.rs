//! Values as bytes.

use alloc::string::String;
use alloc::vec::Vec;

use super::key::{take, tuple};
use crate::Error;

/// A value that can be stored: numbers, texts, bytes, and tuples and options of them.
pub trait Value: Sized {
    /// Appends the value's bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes a value from the front of `bytes`; none if there is not one.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// The bytes of a value.
pub(super) fn bytes(value: &impl Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// The value that these bytes are.
pub(super) fn whole<V: Value>(mut bytes: &[u8]) -> Result<V, Error> {
    let value = V::decode(&mut bytes);
    value
        .filter(|_| bytes.is_empty())
        .ok_or(Error::Type("value"))
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl Value for bool {
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

/// Length, then bytes.
impl Value for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        // A value has at most 32 KiB; the host refuses what is longer.
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let len = u32::from_le_bytes(take(bytes)?) as usize;
        let (value, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(value.to_vec())
    }
}

impl Value for String {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::decode(bytes)?).ok()
    }
}

impl<const N: usize> Value for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

impl<T: Value> Value for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if bool::decode(bytes)? {
            T::decode(bytes).map(Some)
        } else {
            Some(None)
        }
    }
}

tuple!(Value: A, B);
tuple!(Value: A, B, C);
tuple!(Value: A, B, C, D);
