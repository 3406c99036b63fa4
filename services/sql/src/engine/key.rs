//! Keys of the ordered map, such that the order of bytes is the order of values.
//!
//! A key begins with its database, the slot of the request's routing key (2 bytes, big endian).
//! Then `00`: the schema. `01`, a table's number and the encoded primary key: a row. `02`, an
//! index's number, the encoded columns of the index and the encoded primary key: an entry of the
//! index.
//!
//! An integer is big endian with its sign bit flipped. A double is its bits big endian, all
//! flipped if it is negative, else the sign alone. A text has `00` written as `00 ff` and ends with
//! `00 00`, so that a prefix comes first. The kind of a column is fixed and NULL does not occur
//! in a primary key, so it needs no tags; a column of an index has `01` before its value, or is
//! `00` for NULL.

use alloc::string::String;
use alloc::vec::Vec;

use super::SqlError;
use super::schema::{Index, Kind, Table};
use super::value::Value;
use crate::limits::KEY_BYTES_MAX;

/// Database, kind and number.
pub(super) const PREFIX_BYTES: usize = 5;

const SIGN: u64 = 1 << 63;
const NULL: u8 = 0;
const NOT_NULL: u8 = 1;

/// Key of a database's schema.
pub(super) fn schema(slot: u16) -> [u8; 3] {
    let [high, low] = slot.to_be_bytes();
    [high, low, 0]
}

fn prefix(slot: u16, kind: u8, number: u16) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.extend_from_slice(&slot.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The prefix of all rows of a table.
pub(super) fn of_table(slot: u16, table: &Table) -> Vec<u8> {
    prefix(slot, 1, table.number)
}

/// The prefix of all entries of an index.
pub(super) fn of_index(slot: u16, index: &Index) -> Vec<u8> {
    prefix(slot, 2, index.number)
}

/// Key of a row.
pub(super) fn of_row(slot: u16, table: &Table, row: &[Value]) -> Result<Vec<u8>, SqlError> {
    let mut key = of_table(slot, table);
    for &column in &table.primary_key {
        append(&mut key, &row[column]);
    }
    bounded(key, "bytes of a primary key")
}

/// Key of a row's entry in an index; `row_key` is the row's key.
pub(super) fn of_entry(
    slot: u16,
    index: &Index,
    row: &[Value],
    row_key: &[u8],
) -> Result<Vec<u8>, SqlError> {
    let mut key = of_index(slot, index);
    for &column in &index.columns {
        append_nullable(&mut key, &row[column]);
    }
    key.extend_from_slice(&row_key[PREFIX_BYTES..]);
    bounded(key, "bytes of an index's columns and the primary key")
}

/// Key of the row that an index entry refers to.
pub(super) fn row_of_entry(
    slot: u16,
    table: &Table,
    index: &Index,
    entry: &[u8],
) -> Result<Vec<u8>, SqlError> {
    let mut rest = entry.get(PREFIX_BYTES..).ok_or(SqlError::Corrupt)?;
    for &column in &index.columns {
        let (&tag, value) = rest.split_first().ok_or(SqlError::Corrupt)?;
        rest = match tag {
            NULL => value,
            _ => take(table.columns[column].kind, value)?.1,
        };
    }
    let mut key = of_table(slot, table);
    key.extend_from_slice(rest);
    Ok(key)
}

fn bounded(key: Vec<u8>, what: &'static str) -> Result<Vec<u8>, SqlError> {
    if key.len() <= KEY_BYTES_MAX {
        Ok(key)
    } else {
        Err(SqlError::TooMany {
            what,
            max: KEY_BYTES_MAX,
        })
    }
}

/// Appends a column of an index.
pub(super) fn append_nullable(key: &mut Vec<u8>, value: &Value) {
    key.push(match value {
        Value::Null => NULL,
        _ => NOT_NULL,
    });
    append(key, value);
}

/// Appends the prefix of all values of a column of an index but NULL.
pub(super) fn append_not_null(key: &mut Vec<u8>) {
    key.push(NOT_NULL);
}

/// Appends one value of a primary key.
pub(super) fn append(key: &mut Vec<u8>, value: &Value) {
    match value {
        // Of a primary key it is none; an index has its tag.
        Value::Null => {}
        Value::Integer(value) => key.extend_from_slice(&(*value as u64 ^ SIGN).to_be_bytes()),
        Value::Real(value) => {
            // -0.0 and 0.0 are the same key.
            let bits = (value + 0.0).to_bits();
            let bits = if bits & SIGN == 0 { bits | SIGN } else { !bits };
            key.extend_from_slice(&bits.to_be_bytes());
        }
        Value::Text(text) => {
            for (n, part) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
                if n > 0 {
                    key.extend_from_slice(&[0, 0xff]);
                }
                key.extend_from_slice(part);
            }
            key.extend_from_slice(&[0, 0]);
        }
    }
}

/// Reads a value of a primary key from the front of `key`.
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
