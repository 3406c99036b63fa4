//! Keys of the ordered map, such that the order of bytes is the order of values.
//!
//! `00` and a name: the definition of a table. `01`, the table's number (big endian) and the
//! encoded primary key: a row. `02` is kept for indices.
//!
//! An integer is big endian with its sign bit flipped. A double is its bits big endian, all
//! flipped if it is negative, else the sign alone. A text has `00` written as `00 ff` and ends with
//! `00 00`, so that a prefix comes first. The kind of a column is fixed and NULL does not occur
//! in a primary key, so no tags are needed.

use alloc::string::String;
use alloc::vec::Vec;

use e3_iot_messages::Value;

use super::SqlError;
use super::catalog::{Kind, Table};
use crate::limits::KEY_BYTES_MAX;

const SIGN: u64 = 1 << 63;

/// Key of a table's definition.
pub(super) fn definition(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(0);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The range of all definitions.
pub(super) fn definitions() -> ([u8; 1], [u8; 1]) {
    ([0], [1])
}

/// What all rows of a table begin with.
pub(super) fn table_prefix(table: &Table) -> Vec<u8> {
    let mut key = Vec::with_capacity(48);
    key.push(1);
    key.extend_from_slice(&table.number.to_be_bytes());
    key
}

/// Key of a row.
pub(super) fn of_row(table: &Table, row: &[Value]) -> Result<Vec<u8>, SqlError> {
    let mut key = table_prefix(table);
    for &column in &table.primary_key {
        append(&mut key, &row[column]);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(SqlError::TooMany {
            what: "bytes of a primary key",
            max: KEY_BYTES_MAX,
        });
    }
    Ok(key)
}

/// Appends one value of a primary key.
pub(super) fn append(key: &mut Vec<u8>, value: &Value) {
    match value {
        // Not reached: columns of a primary key are never NULL.
        Value::Null => {}
        Value::Integer(value) => key.extend_from_slice(&(*value as u64 ^ SIGN).to_be_bytes()),
        Value::Real(value) => {
            // -0.0 and 0.0 are the same key.
            let bits = (value + 0.0).to_bits();
            let bits = if bits & SIGN == 0 { bits | SIGN } else { !bits };
            key.extend_from_slice(&bits.to_be_bytes());
        }
        Value::Text(text) => {
            for &byte in text.as_bytes() {
                key.push(byte);
                if byte == 0 {
                    key.push(0xff);
                }
            }
            key.extend_from_slice(&[0, 0]);
        }
    }
}

/// Takes a value of a primary key off the front of `key`.
pub(super) fn take(kind: Kind, key: &[u8]) -> Result<(Value, &[u8]), SqlError> {
    if kind == Kind::Text {
        return take_text(key);
    }
    let (bytes, rest) = key.split_first_chunk().ok_or(SqlError::Corrupt)?;
    let bits = u64::from_be_bytes(*bytes);
    let value = if kind == Kind::Integer {
        Value::Integer((bits ^ SIGN) as i64)
    } else {
        let bits = if bits & SIGN == 0 { !bits } else { bits ^ SIGN };
        Value::Real(f64::from_bits(bits))
    };
    Ok((value, rest))
}

fn take_text(key: &[u8]) -> Result<(Value, &[u8]), SqlError> {
    let mut text = Vec::new();
    let mut bytes = key.iter().enumerate();
    while let Some((_, &byte)) = bytes.next() {
        if byte != 0 {
            text.push(byte);
            continue;
        }
        match bytes.next() {
            Some((_, 0xff)) => text.push(0),
            Some((at, 0)) => {
                let text = String::from_utf8(text).map_err(|_| SqlError::Corrupt)?;
                return Ok((Value::Text(text), &key[at + 1..]));
            }
            _ => break,
        }
    }
    Err(SqlError::Corrupt)
}

/// The smallest key above all keys that begin with `prefix`.
pub(super) fn above(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.pop_if(|byte| *byte == 0xff).is_some() {}
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::value::order;

    fn check(kind: Kind, values: &[Value]) {
        for a in values {
            let mut key_a = Vec::new();
            append(&mut key_a, a);
            assert_eq!(take(kind, &key_a), Ok((a.clone(), &[][..])));
            for b in values {
                let mut key_b = Vec::new();
                append(&mut key_b, b);
                assert_eq!(key_a.cmp(&key_b), order(a, b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_order_of_keys_is_the_order_of_values() {
        let integers = [i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX];
        check(Kind::Integer, &integers.map(Value::Integer));
        let reals = [
            f64::MIN,
            -1.5,
            -1e-300,
            0.0,
            1e-300,
            1.0,
            1.5,
            256.0,
            f64::MAX,
        ];
        check(Kind::Real, &reals.map(Value::Real));
        let texts = [
            "",
            "\0",
            "\0a",
            "a",
            "a\0",
            "a\0b",
            "aa",
            "b",
            "ü",
            "\u{10ffff}",
        ];
        check(Kind::Text, &texts.map(|text| Value::Text(text.into())));
    }

    #[test]
    fn above_a_prefix_is_above_all_that_begins_with_it() {
        assert_eq!(above(vec![1, 2]), [1, 3]);
        assert_eq!(above(vec![1, 0xff, 0xff]), [2]);
    }
}
