//! A scope: only the rows with one value in one column.
//!
//! The effects and results of a statement within a scope depend on its rows alone, as if there were no
//! others (`tests/scope.rs`). Three rules ensure it:
//!
//! - A scan gives no row of another scope to the statement. It does not even visit one if the primary key
//!   begins with the scope's column, since it uses only indices that do so too.
//! - A statement may change a table only if its primary key begins with the scope's column, so rows of two
//!   scopes never have the same key.
//! - The bounds of a statement count its own work, not the contents of the database.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;

use super::SqlError;
use super::access::as_kind;
use super::expr::{Comparison, Expr};
use super::schema::Table;
use super::value::{Value, order};

/// Confines a statement to the rows with one value in one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// The column, which every table that is named must have.
    pub column: String,
    /// The value.
    pub value: Value,
}

/// The part of a table within a scope.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// Place of the scope's column in the table.
    pub(super) column: usize,
    /// Its value, as the column holds it.
    pub(super) value: Value,
}

impl Scope {
    /// The part of `table` to read.
    pub(super) fn part(&self, table: &Table) -> Result<Part, SqlError> {
        let column = table.column(&self.column)?;
        let kind = table.columns[column].kind;
        // Only a value that the column can hold exactly: a rounded one may be that of another scope.
        match as_kind(kind, Cow::Borrowed(&self.value)) {
            Some(value) => Ok(Part {
                column,
                value: value.into_owned(),
            }),
            None => Err(SqlError::WrongKind {
                column: self.column.clone(),
                kind: kind.name(),
            }),
        }
    }

    /// The part of `table` to change.
    pub(super) fn part_to_change(&self, table: &Table) -> Result<Part, SqlError> {
        let part = self.part(table)?;
        if table.primary_key[0] == part.column {
            Ok(part)
        } else {
            Err(SqlError::ScopeKey {
                table: table.name.clone(),
                column: self.column.clone(),
            })
        }
    }
}

impl Part {
    /// Whether a row of the table is in it.
    pub(super) fn has(&self, row: &[Value]) -> bool {
        order(&row[self.column], &self.value).is_eq()
    }

    /// The same as a condition on a statement's row, in which the table's columns begin at `start`.
    pub(super) fn condition(&self, start: usize) -> Expr {
        Expr::Compare(
            Comparison::Equal,
            Box::new(Expr::Column(start + self.column)),
            Box::new(Expr::Literal(self.value.clone())),
        )
    }
}
