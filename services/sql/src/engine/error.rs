//! Errors of statements.

use alloc::string::String;
use core::fmt;

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlError {
    /// The text is not SQL; the parser's message.
    Syntax(String),
    /// Unsupported SQL.
    Unsupported(&'static str),
    /// The statement is not a SELECT.
    NotASelect,
    /// The table does not exist.
    NoTable(String),
    /// The table already exists.
    TableExists(String),
    /// The table has no such column.
    NoColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// The index does not exist.
    NoIndex(String),
    /// The index already exists.
    IndexExists(String),
    /// A table that is joined with itself, without an alias.
    TableTwice(String),
    /// A column that two tables have.
    Ambiguous(String),
    /// A change with a result outside of the scope, by its column.
    OutOfScope(String),
    /// A change within a scope, of a table whose primary key does not begin with the scope's column.
    ScopeKey {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A column that is named twice.
    ColumnTwice(String),
    /// A table without a primary key.
    NoPrimaryKey(String),
    /// A change of a column of the primary key.
    KeyColumn(String),
    /// A row with this primary key exists.
    DuplicateKey(String),
    /// NULL in a column that is NOT NULL.
    Null(String),
    /// A value of the wrong kind for its column.
    WrongKind {
        /// The column.
        column: String,
        /// The kind of the column.
        kind: &'static str,
    },
    /// An operand of the wrong kind for its operator.
    Operand(&'static str),
    /// A result that no 64-bit integer or finite double holds.
    Overflow,
    /// Too few parameters were given.
    Parameters {
        /// Parameters in the statement.
        needed: usize,
        /// Values given.
        given: usize,
    },
    /// A column that is not grouped beside an aggregate, or an aggregate where none is allowed.
    Aggregate,
    /// Too many of something.
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// Stored bytes that are not a row or table.
    Corrupt,
    /// The platform failed, not the statement.
    Host(e3_sdk::Error),
}

impl From<e3_sdk::Error> for SqlError {
    fn from(error: e3_sdk::Error) -> Self {
        Self::Host(error)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(f, "syntax: {error}"),
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::NotASelect => f.write_str("statement: is not a SELECT"),
            Self::NoTable(name) => write!(f, "table {name}: does not exist"),
            Self::TableExists(name) => write!(f, "table {name}: already exists"),
            Self::NoColumn { table, column } => write!(f, "table {table}: has no column {column}"),
            Self::NoIndex(name) => write!(f, "index {name}: does not exist"),
            Self::IndexExists(name) => write!(f, "index {name}: already exists"),
            Self::TableTwice(name) => write!(f, "table {name}: is used twice, needs an alias"),
            Self::Ambiguous(name) => {
                write!(f, "column {name}: is ambiguous, qualify it with a table")
            }
            Self::OutOfScope(name) => {
                write!(f, "column {name}: differs from the request's scope")
            }
            Self::ScopeKey { table, column } => write!(
                f,
                "table {table}: cannot be changed within a scope, its primary key must begin with column {column}"
            ),
            Self::ColumnTwice(name) => write!(f, "column {name}: is named twice"),
            Self::NoPrimaryKey(name) => write!(f, "table {name}: has no primary key"),
            Self::KeyColumn(name) => {
                write!(
                    f,
                    "column {name}: belongs to the primary key, which cannot be changed"
                )
            }
            Self::DuplicateKey(name) => {
                write!(f, "table {name}: already has a row with this primary key")
            }
            Self::Null(name) => write!(f, "column {name}: is NULL, must have a value"),
            Self::WrongKind { column, kind } => write!(f, "column {column}: must be {kind}"),
            Self::Operand(what) => write!(f, "operand: must be {what}"),
            Self::Overflow => f.write_str("number: out of range"),
            Self::Parameters { needed, given } => {
                write!(f, "parameters: {given} given, must be at least {needed}")
            }
            Self::Aggregate => f.write_str(
                "aggregate: not allowed here, or used with a column that is not in GROUP BY",
            ),
            Self::TooMany { what, max } => write!(f, "{what}: too many, must be at most {max}"),
            Self::Corrupt => f.write_str("store: has bytes that are not a row"),
            Self::Host(error) => write!(f, "platform: {error}"),
        }
    }
}

impl core::error::Error for SqlError {}

/// `condition`, or `what` is not supported.
pub(super) fn support(condition: bool, what: &'static str) -> Result<(), SqlError> {
    if condition {
        Ok(())
    } else {
        Err(SqlError::Unsupported(what))
    }
}
