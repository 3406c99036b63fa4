//! Records: one CBOR map (RFC 8949) of named values, with definite lengths.
//!
//! Every language has a library for CBOR, it is read without copying, and a field that a service
//! does not know passes through as it came: whether a text is UTF-8 is asked where it is read.

use crate::builder::Value;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use minicbor::Decoder;
use minicbor::data::Type;

#[cfg(test)]
mod tests;

/// Most fields of a record.
pub const FIELDS_MAX: usize = 64;

/// What is wrong with a record: which field, what it holds, what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are no record.
    Record {
        /// Where reading failed.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A field is missing.
    Missing(String),
    /// A field holds something of another type.
    Type {
        /// Its name.
        field: String,
        /// What it holds.
        is: String,
        /// What it should hold.
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

impl Fault {
    /// A value out of bounds: `why` says the value and the bound.
    pub fn value(field: &str, why: impl Into<String>) -> Fault {
        Fault::Value {
            field: field.into(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Record { at, expected } => {
                write!(f, "record: byte {at}: {expected} expected")
            }
            Fault::Missing(field) => write!(f, "field {field:?}: is missing"),
            Fault::Type { field, is, must_be } => {
                write!(f, "field {field:?}: is {is}, must be {must_be}")
            }
            Fault::Value { field, why } => write!(f, "field {field:?}: {why}"),
        }
    }
}

impl core::error::Error for Fault {}

/// A record as it came: its fields are looked at where they lie.
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) fields: Vec<Field<'a>>,
}

/// Where a field lies.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    /// UTF-8.
    pub(crate) name: &'a [u8],
    value: &'a [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<'a> Record<'a> {
    /// Reads a record, which must end with the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, Fault> {
        let mut d = Decoder::new(bytes);
        let fault = |d: &Decoder<'_>, expected| Fault::Record {
            at: d.position(),
            expected,
        };
        let count = match d.map() {
            Ok(Some(count)) if count <= FIELDS_MAX as u64 => count,
            _ => return Err(fault(&d, "a map of at most 64 fields, of definite length,")),
        };
        let mut fields: Vec<Field<'_>> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = d.position();
            let name = short_text(bytes, &mut d).or_else(|| d.str().ok().map(str::as_bytes));
            let Some(name) = name else {
                return Err(fault(&d, "a field's name"));
            };
            if fields.iter().any(|f| f.name == name) {
                return Err(fault(&d, "another field's name, since this one was there,"));
            }
            let value_at = d.position();
            match end_of_definite(bytes, value_at) {
                Some(end) => d.set_position(end),
                None if d.skip().is_err() => return Err(fault(&d, "a value")),
                None => {}
            }
            let end = d.position();
            let value = &bytes[value_at..end];
            fields.push(Field {
                name,
                value,
                start,
                end,
            });
        }
        match d.position() == bytes.len() {
            true => Ok(Record { bytes, fields }),
            false => Err(fault(&d, "the end")),
        }
    }

    pub(crate) fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.fields.iter().find(|f| f.name == name.as_bytes());
        found.map(|f| f.value)
    }

    /// Whether there is such a field.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// A field read by `read`, which must use all of it.
    fn read<T>(
        &self,
        name: &str,
        must_be: &'static str,
        read: impl FnOnce(&mut Decoder<'a>) -> Option<T>,
    ) -> Result<T, Fault> {
        let raw = self.raw(name).ok_or_else(|| Fault::Missing(name.into()))?;
        read(&mut Decoder::new(raw)).ok_or_else(|| Fault::Type {
            field: name.into(),
            is: type_of(raw),
            must_be,
        })
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Result<i64, Fault> {
        self.read(name, "a whole number", |d| d.i64().ok())
    }

    /// A finite number, whole or not.
    pub fn number(&self, name: &str) -> Result<f64, Fault> {
        self.read(name, "a finite number", number)
    }

    /// True or false.
    pub fn bool(&self, name: &str) -> Result<bool, Fault> {
        self.read(name, "true or false", |d| d.bool().ok())
    }

    /// Text.
    pub fn text(&self, name: &str) -> Result<&'a str, Fault> {
        self.read(name, "text", |d| d.str().ok())
    }

    /// Bytes; text counts as its UTF-8.
    pub fn bytes(&self, name: &str) -> Result<&'a [u8], Fault> {
        self.read(name, "bytes or text", |d| match d.datatype() {
            Ok(Type::Bytes) => d.bytes().ok(),
            Ok(Type::String) => d.str().ok().map(str::as_bytes),
            _ => None,
        })
    }

    /// Whatever single value it is; numbers are finite.
    pub fn value(&self, name: &str) -> Result<Value<'a>, Fault> {
        self.read(
            name,
            "a finite number, text, bytes, true, false or null",
            |d| {
                Some(match d.datatype().ok()? {
                    Type::Null => Value::Null,
                    Type::Bool => Value::Bool(d.bool().ok()?),
                    Type::String => Value::Text(d.str().ok()?),
                    Type::Bytes => Value::Bytes(d.bytes().ok()?),
                    Type::F16 | Type::F32 | Type::F64 => Value::Float(number(d)?),
                    _ => Value::Int(d.i64().ok()?),
                })
            },
        )
    }

    /// Finite numbers, at most `max` of them.
    pub fn numbers(&self, name: &str, max: usize) -> Result<Vec<f64>, Fault> {
        self.array(name, "an array of finite numbers", max, number)
    }

    /// Texts, at most `max` of them.
    pub fn texts(&self, name: &str, max: usize) -> Result<Vec<&'a str>, Fault> {
        self.array(name, "an array of texts", max, |d| d.str().ok())
    }

    fn array<T>(
        &self,
        name: &str,
        must_be: &'static str,
        max: usize,
        mut read: impl FnMut(&mut Decoder<'a>) -> Option<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut len = 0;
        let all = self.read(name, must_be, |d| {
            len = d.array().ok()?? as usize;
            // The length is the sender's word: read no more than is allowed.
            (0..len.min(max)).map(|_| read(d)).collect()
        })?;
        match len <= max {
            true => Ok(all),
            false => Err(Fault::value(
                name,
                alloc::format!("has {len} elements, must be at most {max}"),
            )),
        }
    }
}

/// A text of at most 23 bytes. The decoder knows all forms, but takes longer over it, and every service
/// on the way of a request reads its record.
fn short_text<'a>(bytes: &'a [u8], d: &mut Decoder<'_>) -> Option<&'a [u8]> {
    let start = d.position();
    let len = match bytes.get(start)? {
        head @ 0x60..=0x77 => usize::from(head & 0x1f),
        _ => return None,
    };
    let text = bytes.get(start + 1..start + 1 + len)?;
    if !text.is_ascii() {
        core::str::from_utf8(text).ok()?;
    }
    d.set_position(start + 1 + len);
    Some(text)
}

/// Where a value ends that is there as a whole and has definite lengths, its elements' too.
fn end_of_definite(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut left) = (start, 1u64);
    while left > 0 {
        left -= 1;
        let head = *bytes.get(at)?;
        let rest = bytes.get(at + 1..)?;
        at += 1;
        let number = match head & 0x1f {
            short @ 0..=23 => u64::from(short),
            24 => {
                at += 1;
                u64::from(*rest.first()?)
            }
            25 => {
                at += 2;
                u64::from(u16::from_be_bytes(*rest.first_chunk()?))
            }
            26 => {
                at += 4;
                u64::from(u32::from_be_bytes(*rest.first_chunk()?))
            }
            27 => {
                at += 8;
                u64::from_be_bytes(*rest.first_chunk()?)
            }
            _ => return None,
        };
        match head >> 5 {
            // bytes, text
            2 | 3 => at = at.checked_add(usize::try_from(number).ok()?)?,
            // an array, a map, a tag
            4 => left = left.checked_add(number)?,
            5 => left = left.checked_add(number.checked_mul(2)?)?,
            6 => left = left.checked_add(1)?,
            // numbers, true, false, null
            _ => {}
        }
    }
    (at <= bytes.len()).then_some(at)
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
