//! Tables and indices: definitions, storage, and the encoding of rows.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::value::Value;
use super::{SqlError, key};
use crate::limits::TEXT_BYTES_MAX;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 64-bit signed integers.
    Integer,
    /// Finite doubles.
    Real,
    /// Texts.
    Text,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Integer => "an INTEGER",
            Self::Real => "a REAL",
            Self::Text => "a TEXT",
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, in lower case.
    pub name: String,
    /// The actual type.
    pub kind: Kind,
    /// True if it holds no NULL. Invariant: true for columns of the primary key.
    pub not_null: bool,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, in lower case.
    pub name: String,
    /// Its number in keys.
    pub number: u16,
    /// Its columns, by their places in the table. Invariant: not empty.
    pub columns: Vec<usize>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, in lower case.
    pub name: String,
    /// Its number in keys.
    pub number: u16,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Places of the columns of the primary key, in its order. Invariant: not empty.
    pub primary_key: Vec<usize>,
    /// Its secondary indices.
    pub indices: Vec<Index>,
}

impl Table {
    /// Place of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, SqlError> {
        self.columns
            .iter()
            .position(|column| column.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| SqlError::NoColumn {
                table: self.name.clone(),
                column: name.into(),
            })
    }

    /// The value as column `place` stores it, or why it cannot.
    pub(super) fn accept(&self, place: usize, value: Value) -> Result<Value, SqlError> {
        let column = &self.columns[place];
        match (column.kind, value) {
            (_, Value::Null) if column.not_null => Err(SqlError::Null(column.name.clone())),
            (_, Value::Null) => Ok(Value::Null),
            (Kind::Integer, value @ Value::Integer(_)) => Ok(value),
            (Kind::Integer, Value::Real(value)) if value as i64 as f64 == value => {
                // 2^63 itself is no integer of 64 bits, but the nearest one is as this double.
                if value < 9_223_372_036_854_775_808.0 {
                    Ok(Value::Integer(value as i64))
                } else {
                    Err(SqlError::Overflow)
                }
            }
            (Kind::Real, Value::Integer(value)) => Ok(Value::Real(value as f64)),
            // -0.0 is stored as 0.0.
            (Kind::Real, Value::Real(value)) => Ok(Value::Real(value + 0.0)),
            (Kind::Text, Value::Text(text)) if text.len() > TEXT_BYTES_MAX => {
                Err(SqlError::TooMany {
                    what: "bytes of a text",
                    max: TEXT_BYTES_MAX,
                })
            }
            (Kind::Text, value @ Value::Text(_)) => Ok(value),
            _ => Err(SqlError::WrongKind {
                column: column.name.clone(),
                kind: column.kind.name(),
            }),
        }
    }

    fn is_key(&self, place: usize) -> bool {
        self.primary_key.contains(&place)
    }

    /// The stored value of a row: its columns that are not in the key.
    pub(super) fn encode_row(&self, row: &[Value]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        for (place, value) in row.iter().enumerate() {
            if !self.is_key(place) {
                value.encode(&mut out);
            }
        }
        out
    }

    /// A row from its key and its value, into `row`, which is as long as the table is wide.
    pub(super) fn decode_row(
        &self,
        key: &[u8],
        mut value: &[u8],
        row: &mut [Value],
    ) -> Result<(), SqlError> {
        let mut key = key.get(key::PREFIX_BYTES..).ok_or(SqlError::Corrupt)?;
        for &place in &self.primary_key {
            (row[place], key) = key::take(self.columns[place].kind, key)?;
        }
        for (place, column) in row.iter_mut().enumerate() {
            if !self.is_key(place) {
                (*column, value) = Value::decode(value)?;
            }
        }
        Ok(())
    }
}

/// The tables of a database.
#[derive(Debug, Default)]
pub struct Schema {
    pub(super) tables: Vec<Rc<Table>>,
}

impl Schema {
    pub(super) fn of(tables: Vec<Rc<Table>>) -> Self {
        Self { tables }
    }

    /// The table of that name.
    pub(super) fn table(&self, name: &str) -> Result<Rc<Table>, SqlError> {
        let found = self.tables.iter().find(|table| table.name == name);
        found.cloned().ok_or_else(|| SqlError::NoTable(name.into()))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for table in &self.tables {
            put_text(&mut out, &table.name);
            out.extend_from_slice(&table.number.to_be_bytes());
            out.push(table.columns.len() as u8);
            for column in &table.columns {
                let kind = match column.kind {
                    Kind::Integer => 0,
                    Kind::Real => 1,
                    Kind::Text => 2,
                };
                out.push(kind | u8::from(column.not_null) << 7);
                put_text(&mut out, &column.name);
            }
            put_places(&mut out, &table.primary_key);
            out.push(table.indices.len() as u8);
            for index in &table.indices {
                put_text(&mut out, &index.name);
                out.extend_from_slice(&index.number.to_be_bytes());
                put_places(&mut out, &index.columns);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SqlError> {
        let mut tables = Vec::new();
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            let table = reader.table().ok_or(SqlError::Corrupt)?;
            tables.push(Rc::new(table));
        }
        Ok(Self::of(tables))
    }
}

/// Names are at most `NAME_BYTES_MAX` long.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// There are at most `COLUMNS_MAX` of them.
fn put_places(out: &mut Vec<u8>, places: &[usize]) {
    out.push(places.len() as u8);
    out.extend(places.iter().map(|&place| place as u8));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn table(&mut self) -> Option<Table> {
        let name = self.text()?;
        let number = self.number()?;
        let mut columns = Vec::new();
        for _ in 0..self.byte()? {
            let kind = self.byte()?;
            columns.push(Column {
                name: self.text()?,
                kind: match kind & 0x7f {
                    0 => Kind::Integer,
                    1 => Kind::Real,
                    _ => Kind::Text,
                },
                not_null: kind & 0x80 != 0,
            });
        }
        let primary_key = self.places(columns.len())?;
        let mut indices = Vec::new();
        for _ in 0..self.byte()? {
            indices.push(Index {
                name: self.text()?,
                number: self.number()?,
                columns: self.places(columns.len())?,
            });
        }
        Some(Table {
            name,
            number,
            columns,
            primary_key,
            indices,
        })
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.byte()?;
        let bytes = self.bytes(usize::from(len))?;
        core::str::from_utf8(bytes).ok().map(String::from)
    }

    fn places(&mut self, columns: usize) -> Option<Vec<usize>> {
        let len = self.byte()?;
        let bytes = self.bytes(usize::from(len))?;
        let places: Vec<usize> = bytes.iter().map(|&place| usize::from(place)).collect();
        let fit = !places.is_empty() && places.iter().all(|&place| place < columns);
        fit.then_some(places)
    }
}
