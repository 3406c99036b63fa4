//! Definitions of tables, and the encoding of them and of rows.

use alloc::string::String;
use alloc::vec::Vec;

use e3_iot_messages::Value;

use super::{SqlError, Store, key};
use crate::limits::{COLUMNS_MAX, NAME_BYTES_MAX, TABLES_MAX, TEXT_BYTES_MAX};

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
    fn name(self) -> &'static str {
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
    /// What it holds.
    pub kind: Kind,
    /// True if it holds no NULL. Invariant: true for columns of the primary key.
    pub not_null: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, in lower case.
    pub name: String,
    /// Its number in keys; 0 until it is created.
    pub number: u32,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Indices of the columns of the primary key, in its order. Invariant: not empty.
    pub primary_key: Vec<usize>,
}

impl Table {
    /// Index of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, SqlError> {
        self.columns
            .iter()
            .position(|column| column.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| SqlError::NoColumn {
                table: self.name.clone(),
                column: name.into(),
            })
    }

    /// The value as column `index` stores it, or why it cannot.
    pub(super) fn accept(&self, index: usize, value: Value) -> Result<Value, SqlError> {
        let column = &self.columns[index];
        match (column.kind, value) {
            (_, Value::Null) if column.not_null => Err(SqlError::Null(column.name.clone())),
            (_, Value::Null) => Ok(Value::Null),
            (Kind::Integer, value @ Value::Integer(_)) => Ok(value),
            (Kind::Real, Value::Integer(value)) => Ok(Value::Real(value as f64)),
            (Kind::Real, value @ Value::Real(_)) => Ok(value),
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

    fn is_key(&self, index: usize) -> bool {
        self.primary_key.contains(&index)
    }

    /// The stored value of a row: its columns that are not in the key.
    pub(super) fn encode_row(&self, row: &[Value]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        for (index, value) in row.iter().enumerate() {
            if !self.is_key(index) {
                value.encode(&mut out);
            }
        }
        out
    }

    /// A row from its key and its value, into `row`.
    pub(super) fn decode_row(
        &self,
        key: &[u8],
        mut value: &[u8],
        row: &mut Vec<Value>,
    ) -> Result<(), SqlError> {
        row.clear();
        row.resize(self.columns.len(), Value::Null);
        // The table's prefix: a byte and the number.
        let mut key = key.get(5..).ok_or(SqlError::Corrupt)?;
        for &index in &self.primary_key {
            (row[index], key) = key::take(self.columns[index].kind, key)?;
        }
        for (index, column) in row.iter_mut().enumerate() {
            if !self.is_key(index) {
                (*column, value) = Value::decode_prefix(value).map_err(|_| SqlError::Corrupt)?;
            }
        }
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.number.to_be_bytes());
        out.push(self.columns.len() as u8);
        for column in &self.columns {
            let kind = match column.kind {
                Kind::Integer => 0,
                Kind::Real => 1,
                Kind::Text => 2,
            };
            out.push(kind | u8::from(column.not_null) << 7);
            Value::Text(column.name.clone()).encode(&mut out);
        }
        out.extend(self.primary_key.iter().map(|&index| index as u8));
        out
    }

    fn decode(name: &str, bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (&column_count, mut rest) = rest.split_first()?;
        let mut columns = Vec::new();
        for _ in 0..column_count {
            let (&kind, text) = rest.split_first()?;
            let (Value::Text(name), after) = Value::decode_prefix(text).ok()? else {
                return None;
            };
            columns.push(Column {
                name,
                kind: match kind & 0x7f {
                    0 => Kind::Integer,
                    1 => Kind::Real,
                    _ => Kind::Text,
                },
                not_null: kind & 0x80 != 0,
            });
            rest = after;
        }
        let primary_key: Vec<usize> = rest.iter().map(|&index| usize::from(index)).collect();
        if primary_key.is_empty() || primary_key.iter().any(|&index| index >= columns.len()) {
            return None;
        }
        Some(Self {
            name: name.into(),
            number: u32::from_be_bytes(*number),
            columns,
            primary_key,
        })
    }
}

/// The definition of a table, if there is one.
pub(super) fn load(store: &impl Store, name: &str) -> Result<Option<Table>, SqlError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Ok(None);
    }
    let Some(bytes) = store.get(&key::definition(name))? else {
        return Ok(None);
    };
    Table::decode(name, &bytes)
        .ok_or(SqlError::Corrupt)
        .map(Some)
}

/// Stores the definition of a new table under the next number.
pub(super) fn create(store: &mut impl Store, table: &Table) -> Result<(), SqlError> {
    let names = table.columns.iter().map(|column| &column.name);
    for name in names.chain([&table.name]) {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SqlError::TooMany {
                what: "bytes of a name",
                max: NAME_BYTES_MAX,
            });
        }
    }
    if table.columns.len() > COLUMNS_MAX {
        return Err(SqlError::TooMany {
            what: "columns",
            max: COLUMNS_MAX,
        });
    }
    let mut count = 0_usize;
    let (from, to) = key::definitions();
    store.scan(&from, &to, false, 0, &mut |_, _| {
        count += 1;
        Ok(true)
    })?;
    if count >= TABLES_MAX {
        return Err(SqlError::TooMany {
            what: "tables",
            max: TABLES_MAX,
        });
    }
    // Tables are never dropped, so that their count is a number not yet taken.
    let numbered = Table {
        number: count as u32 + 1,
        ..table.clone()
    };
    store.put(&key::definition(&table.name), &numbered.encode())
}
