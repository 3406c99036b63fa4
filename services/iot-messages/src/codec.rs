//! Little-endian reading and writing of plain fields.

use alloc::string::String;
use alloc::vec::Vec;

use crate::DecodeError;

/// Takes fields off the front of a message.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(
        &mut self,
        len: usize,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(DecodeError::Short {
                field,
                needed: len,
                left: self.rest.len(),
            }),
        }
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let bytes = self.bytes(N, field)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_le_bytes)
    }

    /// A finite number: no message carries NaN or an infinity.
    pub(crate) fn f64(&mut self, field: &'static str) -> Result<f64, DecodeError> {
        let value = f64::from_le_bytes(self.array(field)?);
        if value.is_finite() {
            Ok(value)
        } else {
            Err(DecodeError::NotFinite { field })
        }
    }

    /// A text with its length (u16) before it.
    pub(crate) fn text(
        &mut self,
        bytes_max: usize,
        field: &'static str,
    ) -> Result<&'a str, DecodeError> {
        let len = usize::from(self.u16(field)?);
        bound(len, bytes_max, field)?;
        core::str::from_utf8(self.bytes(len, field)?).map_err(|_| DecodeError::NotUtf8 { field })
    }

    /// Whatever is left, as text.
    pub(crate) fn rest_as_text(
        &mut self,
        bytes_max: usize,
        field: &'static str,
    ) -> Result<&'a str, DecodeError> {
        bound(self.rest.len(), bytes_max, field)?;
        let bytes = core::mem::take(&mut self.rest);
        core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { field })
    }

    /// Checks that nothing is left over.
    pub(crate) fn end<T>(self, value: T) -> Result<T, DecodeError> {
        match self.rest.len() {
            0 => Ok(value),
            extra => Err(DecodeError::Trailing { extra }),
        }
    }
}

/// Refuses a length or count beyond its bound.
pub(crate) fn bound(value: usize, max: usize, field: &'static str) -> Result<(), DecodeError> {
    if value > max {
        Err(DecodeError::TooLarge { field, value, max })
    } else {
        Ok(())
    }
}

/// Appends a text with its length (u16), cut at `bytes_max` on a character boundary.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) {
    let text = cut(text, bytes_max.min(usize::from(u16::MAX)));
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The longest prefix of `text` of at most `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A dynamically typed SQL value, as a parameter or in a row of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A finite double.
    Real(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// Bytes of the encoded value.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Null => 1,
            Self::Integer(_) | Self::Real(_) => 9,
            Self::Text(text) => 3 + text.len(),
        }
    }

    /// Appends the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(0),
            Self::Integer(value) => {
                out.push(1);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Real(value) => {
                out.push(2);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Text(text) => {
                out.push(3);
                put_text(out, text, crate::limits::TEXT_BYTES_MAX);
            }
        }
    }

    /// Takes a value off the front of `bytes`; returns it and the rest.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        Ok((value, reader.rest))
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8("value")? {
            0 => Ok(Self::Null),
            1 => reader.i64("integer").map(Self::Integer),
            2 => reader.f64("real").map(Self::Real),
            3 => reader
                .text(crate::limits::TEXT_BYTES_MAX, "text")
                .map(|text| Self::Text(String::from(text))),
            kind => Err(DecodeError::UnknownKind {
                field: "value",
                kind,
            }),
        }
    }
}
