//! Conversion between records and SQL: field values, result rows.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Record, RecordError, Value as Field};

use crate::engine::Value;
use crate::limits::{NAME_BYTES_MAX, RESULT_BYTES_MAX};

/// The value of a record's field.
pub(crate) fn value(record: &Record<'_>, name: &str) -> Result<Value, RecordError> {
    Ok(match record.value(name)? {
        Field::Null => Value::Null,
        Field::Int(value) => Value::Integer(value),
        Field::Float(value) => Value::Real(value),
        Field::Bool(value) => Value::Integer(i64::from(value)),
        Field::Text(text) => Value::Text(text.into()),
        Field::Bytes(_) => {
            return Err(RecordError::Type {
                field: name.into(),
                is: "bytes".into(),
                must_be: "a finite number, text, true, false or null",
            });
        }
    })
}

/// A value as a field's.
pub(crate) fn field(value: &Value) -> Field<'_> {
    match value {
        Value::Null => Field::Null,
        Value::Integer(value) => Field::Int(*value),
        Value::Real(value) => Field::Float(*value),
        Value::Text(text) => Field::Text(text),
    }
}

/// Bytes of a CBOR head with a number.
fn head(number: u64) -> usize {
    match number {
        0..=23 => 1,
        24..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Collects the rows of a result as long as they fit into a reply.
pub(crate) struct Rows<'a> {
    columns: Vec<&'a str>,
    rows: Vec<Vec<Value>>,
    left: usize,
    is_full: bool,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(columns: &'a [String]) -> Self {
        // A column name may be a whole expression; it is only displayed, so it may be cut.
        let cut = |name: &'a String| &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let columns: Vec<&str> = columns.iter().map(cut).collect();
        let named: usize = columns.iter().map(|name| 2 + name.len()).sum();
        Self {
            columns,
            rows: Vec::new(),
            left: RESULT_BYTES_MAX - named,
            is_full: false,
        }
    }

    /// Adds a row; false if it does not fit.
    pub(crate) fn take(&mut self, row: &[Value]) -> bool {
        let bytes = |value: &Value| match value {
            Value::Null => 1,
            Value::Integer(value) => head((value ^ (value >> 63)).unsigned_abs()),
            Value::Real(_) => 9,
            Value::Text(text) => head(text.len() as u64) + text.len(),
        };
        let bytes = head(row.len() as u64) + row.iter().map(bytes).sum::<usize>();
        self.is_full = bytes > self.left;
        if !self.is_full {
            self.left -= bytes;
            self.rows.push(row.to_owned());
        }
        !self.is_full
    }

    pub(crate) fn write(&self, out: &mut Builder) {
        out.array("columns", self.columns.len(), |array| {
            for name in &self.columns {
                array.push(Field::Text(name));
            }
        });
        out.array("rows", self.rows.len(), |array| {
            for row in &self.rows {
                array.array(row.len(), |array| {
                    for value in row {
                        array.push(field(value));
                    }
                });
            }
        });
        out.field("more", Field::Int(i64::from(self.is_full)));
    }
}
