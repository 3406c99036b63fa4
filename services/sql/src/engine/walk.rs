//! Scans of a table or of a join.

use alloc::vec;
use alloc::vec::Vec;

use super::access::{Access, Source, best, cost};
use super::expr::{Env, Expr};
use super::store::{Store, Transaction};
use super::value::Value;
use super::{SqlError, key};
use crate::limits::PAIRS_MAX;

/// A store, the database in it, and the values of a statement's parameters.
pub(super) struct Context<'a, S> {
    pub(super) store: &'a Transaction<S>,
    pub(super) slot: u16,
    pub(super) parameters: &'a [Value],
}

impl<S> Clone for Context<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Context<'_, S> {}

/// Receives a row's key and the statement's row with this one filled in; false ends the scan.
type Visit<'a> = dyn FnMut(&[u8], &mut [Value]) -> Result<bool, SqlError> + 'a;

/// Receives a row and its key; false ends the scan.
pub(super) type OnRow<'a> = dyn FnMut(&[u8], &[Value]) -> Result<bool, SqlError> + 'a;

/// Visits the rows of `source` in a range, forwards or backwards; each is put into its place
/// of `row`.
pub(super) fn walk<S: Store>(
    context: Context<'_, S>,
    source: &Source<'_>,
    access: &Access<'_>,
    (reverse, expected): (bool, u32),
    row: &mut [Value],
    visit: &mut Visit<'_>,
) -> Result<(), SqlError> {
    let Context { store, slot, .. } = context;
    let table = source.table;
    let mut take = |key: &[u8], value: &[u8]| {
        let columns = source.columns.clone();
        table.decode_row(key, value, &mut row[columns.clone()])?;
        match &source.part {
            Some(part) if !part.has(&row[columns]) => Ok(true),
            _ => visit(key, row),
        }
    };
    if access.is_one(table) {
        return match store.get(&access.from)? {
            Some(value) => take(&access.from, &value).map(drop),
            None => Ok(()),
        };
    }
    if access.from >= access.to {
        return Ok(());
    }
    let (from, to) = (&access.from, &access.to);
    let Some(index) = access.index else {
        return store.scan(from, to, reverse, expected, &mut take);
    };
    store.scan(from, to, reverse, expected, &mut |entry, _| {
        let key = key::row_of_entry(slot, table, index, entry)?;
        // An entry without a row: the index does not match the table.
        let value = store.get(&key)?.ok_or(SqlError::Corrupt)?;
        take(&key, &value)
    })
}

/// Visits the keys and rows of one table that satisfy all conjuncts.
pub(super) fn filtered<S: Store>(
    context: Context<'_, S>,
    source: &Source<'_>,
    conjuncts: &[&Expr],
    visit: &mut OnRow<'_>,
) -> Result<(), SqlError> {
    let parameters = context.parameters;
    let env = Env::of(parameters);
    let access = best(context.slot, source, conjuncts, env, &(0..0))?;
    let mut row = vec![Value::Null; source.columns.len()];
    walk(
        context,
        source,
        &access,
        (false, 0),
        &mut row,
        &mut |key, row| {
            if takes(conjuncts, row, parameters)? {
                visit(key, row)
            } else {
                Ok(true)
            }
        },
    )
}

/// True if a row satisfies all conjuncts.
pub(super) fn takes(
    conjuncts: &[&Expr],
    row: &[Value],
    parameters: &[Value],
) -> Result<bool, SqlError> {
    let env = Env {
        row,
        parameters,
        aggregates: &[],
    };
    for conjunct in conjuncts {
        if conjunct.test(env)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Visits the pairs of rows of two tables that satisfy all conjuncts, in no particular order.
/// The order is the one that seems to look at fewer rows.
pub(super) fn join<S: Store>(
    context: Context<'_, S>,
    sources: [&Source<'_>; 2],
    conjuncts: &[&Expr],
    visit: &mut dyn FnMut(&[Value]) -> Result<bool, SqlError>,
) -> Result<(), SqlError> {
    let Context {
        slot, parameters, ..
    } = context;
    let mut row = vec![Value::Null; sources[0].columns.len() + sources[1].columns.len()];
    let [a, b] = sources;
    let cost = |outer: &Source<'_>, inner: &Source<'_>| {
        cost(outer, conjuncts, &(0..0)) * cost(inner, conjuncts, &outer.columns)
    };
    let (outer, inner) = if cost(a, b) <= cost(b, a) {
        (a, b)
    } else {
        (b, a)
    };
    let of_outer = |expr: &&Expr| {
        expr.all(&mut |leaf| match leaf {
            Expr::Column(at) => outer.columns.contains(at),
            _ => true,
        })
    };
    let (first, second): (Vec<&Expr>, Vec<&Expr>) = conjuncts.iter().copied().partition(of_outer);
    let env = Env::of(parameters);
    let outer_access = best(slot, outer, &first, env, &(0..0))?;
    let mut pairs = 0;
    let forward = (false, 0);
    walk(
        context,
        outer,
        &outer_access,
        forward,
        &mut row,
        &mut |_, row| {
            if !takes(&first, row, parameters)? {
                return Ok(true);
            }
            let env = Env {
                row,
                parameters,
                aggregates: &[],
            };
            let access = best(slot, inner, &second, env, &outer.columns)?;
            let mut goes_on = true;
            walk(context, inner, &access, forward, row, &mut |_, row| {
                pairs += 1;
                if pairs > PAIRS_MAX {
                    return Err(SqlError::TooMany {
                        what: "pairs of rows to join",
                        max: PAIRS_MAX,
                    });
                }
                if takes(&second, row, parameters)? {
                    goes_on = visit(row)?;
                }
                Ok(goes_on)
            })?;
            Ok(goes_on)
        },
    )
}
