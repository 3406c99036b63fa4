//! Executes INSERT, UPDATE and DELETE, and maintains the indices.

use alloc::vec;
use alloc::vec::Vec;

use super::access::Source;
use super::expr::{Env, Expr};
use super::plan::{Conflict, Delete, Insert, Update};
use super::schema::{Index, Table};
use super::scope::Part;
use super::store::{Store, Transaction};
use super::value::Value;
use super::walk::{Context, filtered};
use super::{Scope, SqlError, key};
use crate::limits::ROWS_CHANGED_MAX;

/// A key and its row.
type Keyed = (Vec<u8>, Vec<Value>);

/// The target of a change, and the rows that it may affect.
pub(super) struct Target<'a, S> {
    pub(super) store: &'a mut Transaction<S>,
    pub(super) slot: u16,
    pub(super) parameters: &'a [Value],
    pub(super) scope: Option<&'a Scope>,
}

impl<S: Store> Target<'_, S> {
    /// Runs an INSERT.
    pub(super) fn insert(&mut self, insert: &Insert) -> Result<u64, SqlError> {
        let table = &insert.table;
        let part = self.part(table)?;
        let mut changed = 0;
        let mut row = vec![Value::Null; table.columns.len()];
        for values in &insert.rows {
            row.fill(Value::Null);
            for (expr, &column) in values.iter().zip(&insert.columns) {
                row[column] = expr.eval(Env::of(self.parameters))?.into_owned();
            }
            let accepted = row.iter_mut().enumerate().try_for_each(|(column, value)| {
                *value = table.accept(column, core::mem::take(value))?;
                Ok(())
            });
            match accepted {
                Err(SqlError::Null(_)) if insert.conflict == Conflict::Ignore => continue,
                accepted => accepted?,
            }
            stays_within(table, part.as_ref(), &row)?;
            let key = key::of_row(self.slot, table, &row)?;
            // The index entries of the replaced row must be removed.
            let is_looked_at = insert.conflict != Conflict::Replace || !table.indices.is_empty();
            let before = if is_looked_at {
                self.store.get(&key)?
            } else {
                None
            };
            match (before, insert.conflict) {
                (Some(_), Conflict::Refuse) => {
                    return Err(SqlError::DuplicateKey(table.name.clone()));
                }
                (Some(_), Conflict::Ignore) => continue,
                (Some(before), Conflict::Replace) => {
                    let mut old = vec![Value::Null; table.columns.len()];
                    table.decode_row(&key, &before, &mut old)?;
                    self.move_entries(table, &key, Some(&old), Some(&row))?;
                }
                (None, _) => self.move_entries(table, &key, None, Some(&row))?,
            }
            self.store.put(key, table.encode_row(&row))?;
            changed += 1;
        }
        Ok(changed)
    }

    /// Runs an UPDATE.
    pub(super) fn update(&mut self, update: &Update) -> Result<u64, SqlError> {
        let table = &update.table;
        let part = self.part(table)?;
        let found = self.matching(table, part.clone(), update.filter.as_ref())?;
        let changed = found.len() as u64;
        for (key, row) in found {
            let mut new = row.clone();
            for (column, expr) in &update.assignments {
                // All right-hand sides see the row as it was.
                let value = expr.eval(Env {
                    row: &row,
                    ..Env::of(self.parameters)
                })?;
                new[*column] = table.accept(*column, value.into_owned())?;
            }
            stays_within(table, part.as_ref(), &new)?;
            self.move_entries(table, &key, Some(&row), Some(&new))?;
            self.store.put(key, table.encode_row(&new))?;
        }
        Ok(changed)
    }

    /// Runs a DELETE.
    pub(super) fn delete(&mut self, delete: &Delete) -> Result<u64, SqlError> {
        let table = &delete.table;
        let found = self.matching(table, self.part(table)?, delete.filter.as_ref())?;
        let changed = found.len() as u64;
        for (key, row) in found {
            self.move_entries(table, &key, Some(&row), None)?;
            self.store.delete(key)?;
        }
        Ok(changed)
    }

    /// Removes all rows of a table and its indices.
    pub(super) fn clear(&mut self, table: &Table) -> Result<(), SqlError> {
        for (key, row) in self.matching(table, None, None)? {
            self.move_entries(table, &key, Some(&row), None)?;
            self.store.delete(key)?;
        }
        Ok(())
    }

    /// Enters the rows of a table into a new index of it.
    pub(super) fn fill(&mut self, table: &Table, index: &Index) -> Result<(), SqlError> {
        for (key, row) in self.matching(table, None, None)? {
            let entry = key::of_entry(self.slot, index, &row, &key)?;
            self.store.put(entry, Vec::new())?;
        }
        Ok(())
    }

    /// Removes all entries of an index.
    pub(super) fn empty(&mut self, index: &Index) -> Result<(), SqlError> {
        let from = key::of_index(self.slot, index);
        let to = key::above(from.clone());
        let mut entries = Vec::new();
        self.store.scan(&from, &to, false, 0, &mut |entry, _| {
            bound_changes(entries.len())?;
            entries.push(entry.to_vec());
            Ok(true)
        })?;
        entries
            .into_iter()
            .try_for_each(|entry| self.store.delete(entry))
    }

    /// The part of the table that the statement may change; none: all of it.
    fn part(&self, table: &Table) -> Result<Option<Part>, SqlError> {
        let scope = self.scope;
        scope.map(|scope| scope.part_to_change(table)).transpose()
    }

    /// Keys and rows that a change affects.
    fn matching(
        &self,
        table: &Table,
        part: Option<Part>,
        filter: Option<&Expr>,
    ) -> Result<Vec<Keyed>, SqlError> {
        let source = Source {
            table,
            columns: 0..table.columns.len(),
            part,
        };
        let inside = source.part.as_ref().map(|part| part.condition(0));
        let mut conjuncts: Vec<&Expr> = inside.iter().collect();
        if let Some(filter) = filter {
            filter.conjuncts(&mut conjuncts);
        }
        let context = Context {
            store: &*self.store,
            slot: self.slot,
            parameters: self.parameters,
        };
        let mut found = Vec::new();
        filtered(context, &source, &conjuncts, &mut |key, row| {
            bound_changes(found.len())?;
            found.push((key.to_vec(), row.to_vec()));
            Ok(true)
        })?;
        Ok(found)
    }

    /// Replaces the index entries of the old row by those of the new one.
    fn move_entries(
        &mut self,
        table: &Table,
        key: &[u8],
        old: Option<&[Value]>,
        new: Option<&[Value]>,
    ) -> Result<(), SqlError> {
        for index in &table.indices {
            let entry = |row: &[Value]| key::of_entry(self.slot, index, row, key);
            let (old, new) = (old.map(entry).transpose()?, new.map(entry).transpose()?);
            if old == new {
                continue;
            }
            if let Some(old) = old {
                self.store.delete(old)?;
            }
            if let Some(new) = new {
                self.store.put(new, Vec::new())?;
            }
        }
        Ok(())
    }
}

/// A change within a scope must result in rows within it.
fn stays_within(table: &Table, part: Option<&Part>, row: &[Value]) -> Result<(), SqlError> {
    match part {
        Some(part) if !part.has(row) => {
            let column = table.columns[part.column].name.clone();
            Err(SqlError::OutOfScope(column))
        }
        _ => Ok(()),
    }
}

fn bound_changes(count: usize) -> Result<(), SqlError> {
    if count < ROWS_CHANGED_MAX {
        Ok(())
    } else {
        Err(SqlError::TooMany {
            what: "rows to change",
            max: ROWS_CHANGED_MAX,
        })
    }
}
