//! Records: one CBOR map (RFC 8949) of named values, with definite lengths.
//!
//! Every language has a library for CBOR, it is read without copying, and a field that a service
//! does not know passes through as it came.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

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
    fields: Vec<(&'a str, &'a [u8])>,
}

/// A value to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
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
        let mut fields: Vec<(&str, &[u8])> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let Some(name) = short_text(bytes, &mut d).or_else(|| d.str().ok()) else {
                return Err(fault(&d, "a field's name"));
            };
            if fields.iter().any(|(n, _)| *n == name) {
                return Err(fault(&d, "another field's name, since this one was there,"));
            }
            let start = d.position();
            match end_of_short(bytes, start) {
                Some(end) => d.set_position(end),
                None if d.skip().is_err() => return Err(fault(&d, "a value")),
                None => {}
            }
            fields.push((name, &bytes[start..d.position()]));
        }
        match d.position() == bytes.len() {
            true => Ok(Record { fields }),
            false => Err(fault(&d, "the end")),
        }
    }

    fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.fields.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| *value)
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
fn short_text<'a>(bytes: &'a [u8], d: &mut Decoder<'_>) -> Option<&'a str> {
    let start = d.position();
    let len = match bytes.get(start)? {
        head @ 0x60..=0x77 => usize::from(head & 0x1f),
        _ => return None,
    };
    let text = bytes.get(start + 1..start + 1 + len)?;
    let text = core::str::from_utf8(text).ok()?;
    d.set_position(start + 1 + len);
    Some(text)
}

/// Where a value ends that has one of the usual short forms, and is there as a whole.
fn end_of_short(bytes: &[u8], start: usize) -> Option<usize> {
    let head = *bytes.get(start)?;
    let len = 1 + match head {
        // whole numbers, false, true, null
        0x00..=0x17 | 0x20..=0x37 | 0xf4..=0xf6 => 0,
        0x18 | 0x38 => 1,
        0x19 | 0x39 | 0xf9 => 2,
        0x1a | 0x3a | 0xfa => 4,
        0x1b | 0x3b | 0xfb => 8,
        // bytes and text
        0x40..=0x57 | 0x60..=0x77 => usize::from(head & 0x1f),
        0x58 | 0x78 => 1 + usize::from(*bytes.get(start + 1)?),
        0x59 | 0x79 => {
            let len = bytes.get(start + 1..)?.first_chunk()?;
            2 + usize::from(u16::from_be_bytes(*len))
        }
        _ => return None,
    };
    let end = start + len;
    (end <= bytes.len()).then_some(end)
}

fn number(d: &mut Decoder<'_>) -> Option<f64> {
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

/// Writes a record.
#[derive(Debug, Default)]
pub struct Builder {
    /// The fields, without the map's head.
    body: Vec<u8>,
    count: u64,
    out: Vec<u8>,
}

/// Writes an array as a field's value; it must get as many elements as were promised.
#[derive(Debug)]
pub struct Array<'b>(&'b mut Vec<u8>);

impl Array<'_> {
    /// Adds a value.
    pub fn push(&mut self, value: Value<'_>) {
        write(self.0, value);
    }

    /// Adds an array, filled by `fill`.
    pub fn array(&mut self, len: usize, fill: impl FnOnce(&mut Array<'_>)) {
        array(self.0, len, fill);
    }
}

fn array(out: &mut Vec<u8>, len: usize, fill: impl FnOnce(&mut Array<'_>)) {
    infallible(Encoder::new(&mut *out).array(len as u64));
    fill(&mut Array(out));
}

fn infallible<T>(written: Result<T, minicbor::encode::Error<core::convert::Infallible>>) {
    // a vector takes whatever is written to it
    debug_assert!(written.is_ok());
}

fn write(out: &mut Vec<u8>, value: Value<'_>) {
    let mut e = Encoder::new(out);
    match value {
        Value::Null => infallible(e.null()),
        Value::Int(v) => infallible(e.i64(v)),
        Value::Float(v) => infallible(e.f64(v)),
        Value::Bool(v) => infallible(e.bool(v)),
        Value::Text(v) => infallible(e.str(v)),
        Value::Bytes(v) => infallible(e.bytes(v)),
    }
}

impl Builder {
    /// An empty one.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Begins again.
    pub fn clear(&mut self) -> &mut Builder {
        self.body.clear();
        self.count = 0;
        self
    }

    /// Takes over all fields of a record but those named.
    pub fn copy(&mut self, record: &Record<'_>, without: &[&str]) -> &mut Builder {
        for (name, value) in &record.fields {
            if !without.contains(name) {
                self.name(name);
                self.body.extend_from_slice(value);
            }
        }
        self
    }

    /// Takes over one field of a record, if it is there, under another name.
    pub fn copy_as(&mut self, record: &Record<'_>, field: &str, name: &str) -> &mut Builder {
        if let Some(value) = record.raw(field) {
            self.name(name);
            self.body.extend_from_slice(value);
        }
        self
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: Value<'_>) -> &mut Builder {
        self.name(name);
        write(&mut self.body, value);
        self
    }

    /// Adds a field that holds an array of `len` elements, filled by `fill`.
    pub fn array(
        &mut self,
        name: &str,
        len: usize,
        fill: impl FnOnce(&mut Array<'_>),
    ) -> &mut Builder {
        self.name(name);
        array(&mut self.body, len, fill);
        self
    }

    fn name(&mut self, name: &str) {
        infallible(Encoder::new(&mut self.body).str(name));
        self.count += 1;
    }

    /// The record's bytes.
    pub fn bytes(&mut self) -> &[u8] {
        self.out.clear();
        infallible(Encoder::new(&mut self.out).map(self.count));
        self.out.extend_from_slice(&self.body);
        &self.out
    }
}
