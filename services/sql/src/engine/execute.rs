//! Runs plans: walks a range of keys, filters, sorts, aggregates, changes.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

use e3_iot_messages::Value;

use super::catalog::Table;
use super::expr::{Accumulator, Comparison, Env, Expr};
use super::plan::{Delete, Insert, Order, Select, Update};
use super::range::{KeyRange, confine};
use super::value::order;
use super::{Scope, SqlError, Store, key};
use crate::limits::{ROWS_CHANGED_MAX, ROWS_SORTED_MAX};

/// Takes a key and its row; false ends the walk.
type OnRow<'a> = dyn FnMut(&[u8], &[Value]) -> Result<bool, SqlError> + 'a;

/// Visits the rows in `range` that `filter` takes.
fn walk(
    store: &impl Store,
    table: &Table,
    filter: Option<&Expr>,
    parameters: &[Value],
    range: &KeyRange,
    (reverse, expected): (bool, u32),
    on_row: &mut OnRow<'_>,
) -> Result<(), SqlError> {
    let mut row = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        table.decode_row(key, value, &mut row)?;
        let env = Env {
            row: &row,
            parameters,
            ..Env::default()
        };
        let taken = match filter {
            Some(filter) => filter.test(env)? == Some(true),
            None => true,
        };
        if taken { on_row(key, &row) } else { Ok(true) }
    };
    if range.fixed == table.primary_key.len() {
        return match store.get(&range.from)? {
            Some(value) => visit(&range.from, &value).map(drop),
            None => Ok(()),
        };
    }
    if range.from >= range.to {
        return Ok(());
    }
    store.scan(&range.from, &range.to, reverse, expected, &mut visit)
}

/// Runs a SELECT.
pub(super) fn select(
    store: &impl Store,
    select: &Select,
    parameters: &[Value],
    scope: Option<&Scope>,
    sink: &mut dyn FnMut(&[Value]) -> bool,
) -> Result<(), SqlError> {
    let filter = scoped(select, scope)?;
    let filter = filter.as_ref();
    let range = confine(&select.table, filter, parameters)?;
    let mut window = Window::new(select, parameters)?;
    let mut out = Vec::with_capacity(select.projection.len());
    if !select.aggregates.is_empty() {
        let mut accumulators: Vec<_> = select.aggregates.iter().map(Accumulator::new).collect();
        let table = &select.table;
        walk(
            store,
            table,
            filter,
            parameters,
            &range,
            (false, 0),
            &mut |_, row| {
                let env = Env {
                    row,
                    parameters,
                    ..Env::default()
                };
                accumulators.iter_mut().try_for_each(|each| each.add(env))?;
                Ok(true)
            },
        )?;
        let aggregates: Vec<_> = accumulators
            .into_iter()
            .map(Accumulator::finish)
            .collect::<Result<_, _>>()?;
        let env = Env {
            parameters,
            aggregates: &aggregates,
            ..Env::default()
        };
        if window.admits() {
            project(select, env, &mut out)?;
            sink(&out);
        }
        return Ok(());
    }
    if let Some(reverse) = key_order(select, &range) {
        let hint = (reverse, window.expected());
        let table = &select.table;
        return walk(
            store,
            table,
            filter,
            parameters,
            &range,
            hint,
            &mut |_, row| {
                if window.is_over() {
                    return Ok(false);
                }
                if !window.admits() {
                    return Ok(true);
                }
                let env = Env {
                    row,
                    parameters,
                    ..Env::default()
                };
                project(select, env, &mut out)?;
                Ok(sink(&out) && !window.is_over())
            },
        );
    }
    for row in sorted(store, select, filter, parameters, &range)? {
        if window.is_over() || (window.admits() && !sink(&row)) {
            break;
        }
    }
    Ok(())
}

/// The filter of a SELECT and of the scope together.
fn scoped(select: &Select, scope: Option<&Scope>) -> Result<Option<Expr>, SqlError> {
    let Some(scope) = scope else {
        return Ok(select.filter.clone());
    };
    let column = select.table.column(scope.column)?;
    let inside = Expr::Compare(
        Comparison::Equal,
        Box::new(Expr::Column(column)),
        Box::new(Expr::Literal(scope.value.clone())),
    );
    // The scope comes first, so that the filter is not evaluated over rows outside of it.
    Ok(Some(match select.filter.clone() {
        Some(filter) => Expr::And(Box::new(inside), Box::new(filter)),
        None => inside,
    }))
}

/// Which way to walk so that rows come in the order asked for; nothing if neither way does.
fn key_order(select: &Select, range: &KeyRange) -> Option<bool> {
    let reverse = select.order.first().is_some_and(|order| order.descending);
    let fixed = &select.table.primary_key[..range.fixed];
    let mut open = select.table.primary_key[range.fixed..].iter();
    for Order { expr, descending } in &select.order {
        let Expr::Column(column) = expr else {
            return None;
        };
        if fixed.contains(column) {
            continue;
        }
        match open.next() {
            Some(next) if next == column && *descending == reverse => {}
            // All columns of the key: no two rows are equal, what follows decides nothing.
            None => break,
            Some(_) => return None,
        }
    }
    Some(reverse)
}

/// The rows to show, sorted in memory.
fn sorted(
    store: &impl Store,
    select: &Select,
    filter: Option<&Expr>,
    parameters: &[Value],
    range: &KeyRange,
) -> Result<impl Iterator<Item = Vec<Value>>, SqlError> {
    let mut rows: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
    let table = &select.table;
    walk(
        store,
        table,
        filter,
        parameters,
        range,
        (false, 0),
        &mut |_, row| {
            if rows.len() == ROWS_SORTED_MAX {
                return Err(SqlError::TooMany {
                    what: "rows to sort",
                    max: ROWS_SORTED_MAX,
                });
            }
            let env = Env {
                row,
                parameters,
                ..Env::default()
            };
            let by = select.order.iter().map(|order| order.expr.eval(env));
            let by = by.collect::<Result<_, _>>()?;
            let mut out = Vec::new();
            project(select, env, &mut out)?;
            rows.push((by, out));
            Ok(true)
        },
    )?;
    rows.sort_by(|(a, _), (b, _)| {
        let sides = a.iter().zip(b).zip(&select.order);
        sides
            .map(|((a, b), by)| {
                let ordering = order(a, b);
                if by.descending {
                    ordering.reverse()
                } else {
                    ordering
                }
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    Ok(rows.into_iter().map(|(_, row)| row))
}

fn project(select: &Select, env: Env<'_>, out: &mut Vec<Value>) -> Result<(), SqlError> {
    out.clear();
    for expr in &select.projection {
        out.push(expr.eval(env)?);
    }
    Ok(())
}

/// LIMIT and OFFSET at work.
struct Window {
    skip: u64,
    left: Option<u64>,
}

impl Window {
    fn new(select: &Select, parameters: &[Value]) -> Result<Self, SqlError> {
        let count = |expr: &Option<Expr>| match expr {
            None => Ok(None),
            Some(expr) => match expr.eval(Env {
                parameters,
                ..Env::default()
            })? {
                Value::Integer(count @ 0..) => Ok(Some(count.unsigned_abs())),
                _ => Err(SqlError::Operand("a count, 0 or more")),
            },
        };
        Ok(Self {
            skip: count(&select.offset)?.unwrap_or(0),
            left: count(&select.limit)?,
        })
    }

    fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// True if the next row is to be shown.
    fn admits(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return false;
            }
            *left -= 1;
        }
        true
    }

    fn expected(&self) -> u32 {
        let expected = self.left.map_or(0, |left| left.saturating_add(self.skip));
        u32::try_from(expected).unwrap_or(0)
    }
}

/// Runs an INSERT.
pub(super) fn insert(
    store: &mut impl Store,
    insert: &Insert,
    parameters: &[Value],
) -> Result<u64, SqlError> {
    let table = &insert.table;
    // All rows are checked before the first is written: a refused statement changes nothing.
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(insert.rows.len());
    for values in &insert.rows {
        let mut row = vec![Value::Null; table.columns.len()];
        for (expr, &column) in values.iter().zip(&insert.columns) {
            row[column] = expr.eval(Env {
                parameters,
                ..Env::default()
            })?;
        }
        for (column, value) in row.iter_mut().enumerate() {
            *value = table.accept(column, core::mem::replace(value, Value::Null))?;
        }
        let key = key::of_row(table, &row)?;
        let taken = rows.iter().any(|(other, _)| *other == key) || store.get(&key)?.is_some();
        if taken {
            return Err(SqlError::DuplicateKey(table.name.clone()));
        }
        rows.push((key, table.encode_row(&row)));
    }
    for (key, value) in &rows {
        store.put(key, value)?;
    }
    Ok(rows.len() as u64)
}

/// A key and its row.
type Keyed = (Vec<u8>, Vec<Value>);

/// Keys and rows that a change concerns.
fn matching(
    store: &impl Store,
    table: &Table,
    filter: Option<&Expr>,
    parameters: &[Value],
) -> Result<Vec<Keyed>, SqlError> {
    let range = confine(table, filter, parameters)?;
    let mut found = Vec::new();
    walk(
        store,
        table,
        filter,
        parameters,
        &range,
        (false, 0),
        &mut |key, row| {
            if found.len() == ROWS_CHANGED_MAX {
                return Err(SqlError::TooMany {
                    what: "rows to change",
                    max: ROWS_CHANGED_MAX,
                });
            }
            found.push((key.to_vec(), row.to_vec()));
            Ok(true)
        },
    )?;
    Ok(found)
}

/// Runs an UPDATE.
pub(super) fn update(
    store: &mut impl Store,
    update: &Update,
    parameters: &[Value],
) -> Result<u64, SqlError> {
    let table = &update.table;
    let found = matching(store, table, update.filter.as_ref(), parameters)?;
    let mut changed = Vec::with_capacity(found.len());
    for (key, row) in found {
        let mut new = row.clone();
        for (column, expr) in &update.assignments {
            // All right-hand sides see the row as it was.
            let value = expr.eval(Env {
                row: &row,
                parameters,
                ..Env::default()
            })?;
            new[*column] = table.accept(*column, value)?;
        }
        changed.push((key, table.encode_row(&new)));
    }
    for (key, value) in &changed {
        store.put(key, value)?;
    }
    Ok(changed.len() as u64)
}

/// Runs a DELETE.
pub(super) fn delete(
    store: &mut impl Store,
    delete: &Delete,
    parameters: &[Value],
) -> Result<u64, SqlError> {
    let found = matching(store, &delete.table, delete.filter.as_ref(), parameters)?;
    for (key, _) in &found {
        store.delete(key)?;
    }
    Ok(found.len() as u64)
}
