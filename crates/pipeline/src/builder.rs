//! Writes records. Every service writes one for every request, so the encoder is our own and short; the
//! tests compare it with a library's.

use crate::major::{ARRAY, BYTES, MAP, NEGATIVE, SIMPLE, TEXT, UNSIGNED};
use crate::record::{Name, Record};
use alloc::vec::Vec;

/// A value to write.
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

/// Bytes reserved for a record's head; the number of its fields is known only at the end.
const HEAD_LEN: usize = 3;

/// Writes a record.
#[derive(Debug)]
pub struct Builder {
    /// The reserved head, then the fields.
    out: Vec<u8>,
    count: u16,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            out: [0; HEAD_LEN].into(),
            count: 0,
        }
    }
}

/// Writes an array as a field's value; it must get as many elements as announced.
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
    head(out, ARRAY, len as u64);
    fill(&mut Array(out));
}

/// A value's type and number, in the shortest form.
fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..0x1_0000 => {
            let [a, b] = (number as u16).to_be_bytes();
            out.extend_from_slice(&[major | 25, a, b]);
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn write(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Null => out.push(SIMPLE | 22),
        Value::Int(v @ 0..) => head(out, UNSIGNED, v as u64),
        Value::Int(v) => head(out, NEGATIVE, !v as u64),
        Value::Float(v) => {
            out.push(SIMPLE | 27);
            out.extend_from_slice(&v.to_be_bytes());
        }
        Value::Bool(v) => out.push(SIMPLE | 20 | u8::from(v)),
        Value::Text(v) => {
            head(out, TEXT, v.len() as u64);
            out.extend_from_slice(v.as_bytes());
        }
        Value::Bytes(v) => {
            head(out, BYTES, v.len() as u64);
            out.extend_from_slice(v);
        }
    }
}

impl Builder {
    /// An empty one.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts a new record.
    pub fn clear(&mut self) -> &mut Builder {
        self.out.truncate(HEAD_LEN);
        self.count = 0;
        self
    }

    /// Copies all fields of a record but those named.
    pub fn copy(&mut self, record: &Record<'_>, without: &[&str]) -> &mut Builder {
        let place = |name: &&str| record.place(Name::new(name.as_bytes()));
        // a bit for each of at most 64 fields
        let left_out = without
            .iter()
            .filter_map(place)
            .fold(0, |all, at| all | 1u64 << at);
        // adjacent fields are copied at once
        let mut run = 0..0;
        for (at, field) in record.fields.iter().enumerate() {
            if left_out >> at & 1 == 1 {
                continue;
            }
            self.count += 1;
            if run.end != field.start {
                self.out.extend_from_slice(&record.bytes[run]);
                run = field.start..field.start;
            }
            run.end = field.end;
        }
        self.out.extend_from_slice(&record.bytes[run]);
        self
    }

    /// Copies one field of a record, if it exists, under another name.
    pub fn copy_as(&mut self, record: &Record<'_>, field: &str, name: &str) -> &mut Builder {
        if let Some(value) = record.raw(field) {
            self.name(name);
            self.out.extend_from_slice(value);
        }
        self
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: Value<'_>) -> &mut Builder {
        self.name(name);
        write(&mut self.out, value);
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
        array(&mut self.out, len, fill);
        self
    }

    fn name(&mut self, name: &str) {
        write(&mut self.out, Value::Text(name));
        self.count += 1;
    }

    /// The record's bytes.
    pub fn bytes(&mut self) -> &[u8] {
        let [high, low] = self.count.to_be_bytes();
        let (start, head): (usize, &[u8]) = match self.count {
            0..24 => (2, &[MAP | low]),
            24..0x100 => (1, &[MAP | 24, low]),
            _ => (0, &[MAP | 25, high, low]),
        };
        self.out[start..HEAD_LEN].copy_from_slice(head);
        &self.out[start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::Decoder;

    /// Values have the shortest form, which the library's decoder reads.
    #[test]
    fn numbers_and_lengths_have_every_size() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1] {
                let (plus, minus) = (number as i64, !number as i64);
                for value in [plus, minus] {
                    let mut ours = Vec::new();
                    write(&mut ours, Value::Int(value));
                    let mut theirs = Vec::new();
                    minicbor::Encoder::new(&mut theirs).i64(value).unwrap();
                    assert_eq!(ours, theirs, "{value}");
                }
            }
        }
        for len in [0, 1, 23, 24, 255, 256, 65_535, 65_536] {
            let (text, bytes) = ("x".repeat(len), alloc::vec![7; len]);
            let mut ours = Vec::new();
            write(&mut ours, Value::Text(&text));
            write(&mut ours, Value::Bytes(&bytes));
            let mut theirs = Vec::new();
            let mut e = minicbor::Encoder::new(&mut theirs);
            e.str(&text).unwrap().bytes(&bytes).unwrap();
            assert_eq!(ours, theirs, "{len}");
        }
        for count in [0, 1, 23, 24, 255, 256, 300] {
            let mut b = Builder::new();
            for n in 0..count {
                b.field(&alloc::format!("f{n}"), Value::Int(n));
            }
            let mut d = Decoder::new(b.bytes());
            assert_eq!(d.map().unwrap(), Some(count as u64));
            assert_eq!((d.str(), d.i64()).0.ok(), (count > 0).then_some("f0"));
        }
    }

    #[test]
    fn fields_are_copied_but_those_left_out() {
        let mut b = Builder::new();
        for (n, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            b.field(name, Value::Int(n as i64));
        }
        let bytes = b.bytes().to_vec();
        let record = Record::parse(&bytes).unwrap();
        for left_out in 0..32u32 {
            let names = || ["a", "b", "c", "d", "e"].into_iter().enumerate();
            let is_out = |n: usize| left_out >> n & 1 == 1;
            let without: Vec<&str> = names()
                .filter(|(n, _)| is_out(*n))
                .map(|(_, w)| w)
                .collect();
            let mut copy = Builder::new();
            copy.copy(&record, &without).field("z", Value::Null);
            let again = copy.bytes().to_vec();
            let again = Record::parse(&again).unwrap();
            for (n, name) in names() {
                let expected = (!is_out(n)).then_some(n as i64);
                assert_eq!(again.int(name).ok(), expected, "{without:?}");
            }
            assert!(again.has("z"));
        }
    }
}
