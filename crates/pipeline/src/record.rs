//! Records: one CBOR map (RFC 8949) of named values, with definite lengths.
//!
//! Every language has a CBOR library, records are parsed without copying, and unknown fields are forwarded
//! unchanged. Every text in a record, also in a value that no service reads, is UTF-8 (RFC 8949,
//! section 3.1), so that later readers can decode it.

use crate::builder::Value;
use crate::major::{self, ARRAY, BYTES, MAP, NEGATIVE, TAG, TEXT, UNSIGNED};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use minicbor::Decoder;
use minicbor::data::Type;

#[cfg(test)]
mod tests;

/// Most fields of a record.
pub const FIELDS_MAX: usize = 64;

/// Why a record is invalid: the field, its value, and what is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are not a record.
    Record {
        /// Where reading failed.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A field is missing.
    Missing(String),
    /// A field has the wrong type.
    Type {
        /// Its name.
        field: String,
        /// The actual type.
        is: String,
        /// The required type.
        must_be: &'static str,
    },
    /// A field's value is out of bounds.
    Value {
        /// Its name.
        field: String,
        /// Its value, and the bound.
        why: String,
    },
}

impl RecordError {
    /// A value out of bounds: `why` says the value and the bound.
    pub fn value(field: &str, why: impl Into<String>) -> RecordError {
        RecordError::Value {
            field: field.into(),
            why: why.into(),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Record { at, expected } => {
                write!(f, "record: expected {expected} at byte {at}")
            }
            RecordError::Missing(field) => write!(f, "field {field:?}: is missing"),
            RecordError::Type { field, is, must_be } => {
                write!(f, "field {field:?}: is {is}, must be {must_be}")
            }
            RecordError::Value { field, why } => write!(f, "field {field:?}: {why}"),
        }
    }
}

impl core::error::Error for RecordError {}

/// A parsed record, which borrows the bytes of its fields.
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) fields: Vec<Field<'a>>,
}

/// A field's name, in UTF-8. Most comparisons end at the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// Of its length, its first and its last byte.
    tag: u32,
    bytes: &'a [u8],
}

impl<'a> Name<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Name<'a> {
        let end = |byte: Option<&u8>| u32::from(*byte.unwrap_or(&0));
        let tag = (bytes.len() as u32) << 16 | end(bytes.first()) << 8 | end(bytes.last());
        Name { tag, bytes }
    }

    /// One of 64 bits, mostly different for different names.
    fn bit(self) -> u64 {
        1 << (self.tag.wrapping_mul(0x9e37_79b9) >> 26)
    }
}

/// A field and its place.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) name: Name<'a>,
    value: &'a [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<'a> Record<'a> {
    /// Parses a record, which must end with the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let mut d = Decoder::new(bytes);
        let error = |d: &Decoder<'_>, expected| RecordError::Record {
            at: d.position(),
            expected,
        };
        let count = match d.map() {
            Ok(Some(count)) if count <= FIELDS_MAX as u64 => count,
            _ => return Err(error(&d, "a map of at most 64 fields with definite length")),
        };
        let mut fields: Vec<Field<'_>> = Vec::with_capacity(count as usize);
        let (mut start, mut names) = (d.position(), 0);
        for _ in 0..count {
            let name = short_text(bytes, start).or_else(|| {
                d.set_position(start);
                let text = d.str().ok()?;
                Some((text.as_bytes(), d.position()))
            });
            let Some((name, value_at)) = name else {
                return Err(error(&d, "a field name"));
            };
            let name = Name::new(name);
            if names & name.bit() != 0 && fields.iter().any(|f| f.name == name) {
                d.set_position(value_at);
                return Err(error(&d, "a field name not used before"));
            }
            names |= name.bit();
            let end = match end_of_definite(bytes, value_at) {
                Ok(end) => end,
                Err(Flaw::Text(at)) => {
                    d.set_position(at);
                    return Err(error(&d, "UTF-8 text"));
                }
                Err(Flaw::Length) => {
                    d.set_position(value_at);
                    return Err(error(&d, "a value with definite length"));
                }
            };
            fields.push(Field {
                name,
                value: &bytes[value_at..end],
                start,
                end,
            });
            start = end;
        }
        d.set_position(start);
        if d.position() == bytes.len() {
            Ok(Record { bytes, fields })
        } else {
            Err(error(&d, "the end"))
        }
    }

    /// Index of the field with this name.
    pub(crate) fn place(&self, name: Name<'_>) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    pub(crate) fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let at = self.place(Name::new(name.as_bytes()))?;
        Some(self.fields[at].value)
    }

    /// Whether the field exists.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// A field whose value, all of it, is read by `read`.
    fn read<T>(
        &self,
        name: &str,
        must_be: &'static str,
        read: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<T, RecordError> {
        let raw = self
            .raw(name)
            .ok_or_else(|| RecordError::Missing(name.into()))?;
        read(raw).ok_or_else(|| RecordError::Type {
            field: name.into(),
            is: type_of(raw),
            must_be,
        })
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Result<i64, RecordError> {
        self.read(name, "a whole number", int)
    }

    /// A finite number, whole or not.
    pub fn number(&self, name: &str) -> Result<f64, RecordError> {
        self.read(name, "a finite number", |v| number(&mut Decoder::new(v)))
    }

    /// True or false.
    pub fn bool(&self, name: &str) -> Result<bool, RecordError> {
        self.read(name, "true or false", |v| Decoder::new(v).bool().ok())
    }

    /// Text.
    pub fn text(&self, name: &str) -> Result<&'a str, RecordError> {
        self.read(name, "text", text)
    }

    /// Bytes; text counts as its UTF-8.
    pub fn bytes(&self, name: &str) -> Result<&'a [u8], RecordError> {
        self.read(name, "bytes or text", |v| match string(v, BYTES) {
            None => text(v).map(str::as_bytes),
            bytes => bytes,
        })
    }

    /// A single value of any type; numbers are finite.
    pub fn value(&self, name: &str) -> Result<Value<'a>, RecordError> {
        self.read(
            name,
            "a finite number, text, bytes, true, false or null",
            |v| {
                let mut d = Decoder::new(v);
                Some(match d.datatype().ok()? {
                    Type::Null => Value::Null,
                    Type::Bool => Value::Bool(d.bool().ok()?),
                    Type::String => Value::Text(text(v)?),
                    Type::Bytes => Value::Bytes(string(v, BYTES)?),
                    Type::F16 | Type::F32 | Type::F64 => Value::Float(number(&mut d)?),
                    _ => Value::Int(int(v)?),
                })
            },
        )
    }

    /// Whether the field exists and is an array.
    pub fn is_array(&self, name: &str) -> bool {
        let first = self.raw(name).and_then(<[u8]>::first);
        first.is_some_and(|first| first & major::MASK == ARRAY)
    }

    /// Finite numbers, at most `max` of them.
    pub fn numbers(&self, name: &str, max: usize) -> Result<Vec<f64>, RecordError> {
        self.array(name, "an array of finite numbers", max, number)
    }

    /// Texts, at most `max` of them.
    pub fn texts(&self, name: &str, max: usize) -> Result<Vec<&'a str>, RecordError> {
        self.array(name, "an array of texts", max, |d| d.str().ok())
    }

    fn array<T>(
        &self,
        name: &str,
        must_be: &'static str,
        max: usize,
        mut read: impl FnMut(&mut Decoder<'a>) -> Option<T>,
    ) -> Result<Vec<T>, RecordError> {
        let mut len = 0;
        let all = self.read(name, must_be, |v| {
            let mut d = Decoder::new(v);
            len = d.array().ok()?? as usize;
            // The length is unverified: read at most the maximum.
            (0..len.min(max)).map(|_| read(&mut d)).collect()
        })?;
        if len <= max {
            Ok(all)
        } else {
            Err(RecordError::value(
                name,
                alloc::format!("has {len} elements, must be at most {max}"),
            ))
        }
    }
}

/// A text of at most 23 bytes, and where it ends. The decoder reads all forms, but is slower, and every
/// service of a pipeline parses the record.
fn short_text(bytes: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let len = match bytes.get(start)? {
        head @ 0x60..=0x77 => usize::from(head & 0x1f),
        _ => return None,
    };
    let end = start + 1 + len;
    let text = bytes.get(start + 1..end)?;
    if !is_ascii(text) {
        core::str::from_utf8(text).ok()?;
    }
    Some((text, end))
}

/// Whether a text of at most 24 bytes is ASCII, without a loop.
fn is_ascii(text: &[u8]) -> bool {
    let eight = |at: usize| {
        text.get(at..)?
            .first_chunk()
            .map(|c| u64::from_le_bytes(*c))
    };
    let four = |at: usize| {
        text.get(at..)?
            .first_chunk()
            .map(|c| u32::from_le_bytes(*c))
    };
    let len = text.len();
    let all = match len {
        0 => 0,
        // the first, the middle and the last
        1..4 => u64::from(text[0] | text[len / 2] | text[len - 1]),
        4..8 => u64::from(four(0).unwrap_or(!0) | four(len - 4).unwrap_or(!0)),
        _ => [0, (len - 8) / 2, len - 8]
            .into_iter()
            .fold(0, |all, at| all | eight(at).unwrap_or(!0)),
    };
    all & 0x8080_8080_8080_8080 == 0
}

/// The head of a value: its type, its number, and where they end. None for an
/// indefinite length.
fn head(bytes: &[u8], at: usize) -> Option<(u8, u64, usize)> {
    let rest = bytes.get(at..)?;
    let (first, rest) = rest.split_first()?;
    let short = first & 0x1f;
    if short < 24 {
        return Some((first & major::MASK, short.into(), at + 1));
    }
    let (number, len) = match short {
        24 => (u64::from(*rest.first()?), 1),
        25 => (u16::from_be_bytes(*rest.first_chunk()?).into(), 2),
        26 => (u32::from_be_bytes(*rest.first_chunk()?).into(), 4),
        27 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        _ => return None,
    };
    Some((first & major::MASK, number, at + 1 + len))
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// It is not there as a whole, or has an indefinite length.
    Length,
    /// A text that begins here is not UTF-8.
    Text(usize),
}

/// Where a value ends that is there as a whole and has definite lengths, its elements' too.
fn end_of_definite(bytes: &[u8], start: usize) -> Result<usize, Flaw> {
    let (mut at, mut left) = (start, 1u64);
    while left > 0 {
        let (major, number, end) = head(bytes, at).ok_or(Flaw::Length)?;
        let begin = core::mem::replace(&mut at, end);
        left -= 1;
        let more = match major {
            BYTES | TEXT => {
                let len = usize::try_from(number).map_err(|_| Flaw::Length)?;
                at = at.checked_add(len).ok_or(Flaw::Length)?;
                let string = bytes.get(end..at).ok_or(Flaw::Length)?;
                if major == TEXT && !is_utf8(string) {
                    return Err(Flaw::Text(begin));
                }
                Some(0)
            }
            ARRAY => Some(number),
            MAP => number.checked_mul(2),
            TAG => Some(1),
            _ => Some(0),
        };
        left = more
            .and_then(|more| left.checked_add(more))
            .ok_or(Flaw::Length)?;
    }
    if at <= bytes.len() {
        Ok(at)
    } else {
        Err(Flaw::Length)
    }
}

fn is_utf8(text: &[u8]) -> bool {
    text.len() <= SHORT_BYTES_MAX && is_ascii(text) || core::str::from_utf8(text).is_ok()
}

/// Longest text that is looked at without a loop.
const SHORT_BYTES_MAX: usize = 24;

/// A value as a whole number.
fn int(value: &[u8]) -> Option<i64> {
    let (major, number, _) = head(value, 0)?;
    let number = i64::try_from(number).ok()?;
    match major {
        UNSIGNED => Some(number),
        NEGATIVE => Some(!number),
        _ => None,
    }
}

/// A value as a string of this type.
fn string(value: &[u8], of: u8) -> Option<&[u8]> {
    let (major, _, end) = head(value, 0)?;
    // a value ends where its string does
    value.get(end..).filter(|_| major == of)
}

fn text(value: &[u8]) -> Option<&str> {
    core::str::from_utf8(string(value, TEXT)?).ok()
}

fn number(d: &mut Decoder<'_>) -> Option<f64> {
    let start = d.position();
    // as nearly all are
    if let Some([0xfb, double @ ..]) = d.input().get(start..)
        && let Some(double) = double.first_chunk()
    {
        d.set_position(start + 9);
        return Some(f64::from_be_bytes(*double)).filter(|v| v.is_finite());
    }
    let value = match d.datatype().ok()? {
        Type::F16 => half(d)?,
        Type::F32 => f64::from(d.f32().ok()?),
        Type::F64 => d.f64().ok()?,
        _ => d.i64().ok()? as f64,
    };
    value.is_finite().then_some(value)
}

/// A number of 16 bits, which is what encoders write if nothing is lost by it.
fn half(d: &mut Decoder<'_>) -> Option<f64> {
    let start = d.position();
    let bits = d.input().get(start + 1..start + 3)?;
    let bits = u64::from(u16::from_be_bytes(bits.try_into().ok()?));
    d.set_position(start + 3);
    let (exponent, fraction) = (bits >> 10 & 0x1f, bits & 0x3ff);
    let value = match exponent {
        0 => fraction as f64 / f64::from(1 << 24),
        31 => return None,
        _ => f64::from_bits((exponent + 1023 - 15) << 52 | fraction << 42),
    };
    Some(if bits >> 15 == 1 { -value } else { value })
}

fn type_of(raw: &[u8]) -> String {
    match Decoder::new(raw).datatype() {
        Ok(Type::F64 | Type::F32 | Type::F16) => "a number".into(),
        Ok(t) => t.to_string(),
        Err(_) => "nothing".into(),
    }
}
