//! Finds the range of primary keys that a WHERE clause confines a statement to.

use alloc::vec::Vec;

use e3_iot_messages::Value;

use super::catalog::{Kind, Table};
use super::expr::{Comparison, Env, Expr};
use super::{SqlError, key};

/// Integers up to here are doubles exactly.
const EXACT_MAX: i64 = 1 << 53;

/// A range of keys. Every row that the filter takes is in it; the filter is still applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    /// Columns at the head of the primary key that are fixed to one value.
    pub(super) fixed: usize,
}

/// The range for a filter.
pub(super) fn confine(
    table: &Table,
    filter: Option<&Expr>,
    parameters: &[Value],
) -> Result<KeyRange, SqlError> {
    let mut conjuncts = Vec::new();
    if let Some(filter) = filter {
        split(filter, &mut conjuncts);
    }
    let mut prefix = key::table_prefix(table);
    for (fixed, &column) in table.primary_key.iter().enumerate() {
        let bounds = bounds(table, column, &conjuncts, parameters)?;
        if let Some(value) = bounds.equal {
            key::append(&mut prefix, &value);
            continue;
        }
        let with = |value: &Value| {
            let mut key = prefix.clone();
            key::append(&mut key, value);
            key
        };
        let from = match bounds.lower {
            Some((value, true)) => with(&value),
            Some((value, false)) => key::above(with(&value)),
            None => prefix.clone(),
        };
        let to = match bounds.upper {
            Some((value, true)) => key::above(with(&value)),
            Some((value, false)) => with(&value),
            None => key::above(prefix),
        };
        return Ok(KeyRange { from, to, fixed });
    }
    Ok(KeyRange {
        from: prefix.clone(),
        to: key::above(prefix),
        fixed: table.primary_key.len(),
    })
}

fn split<'a>(filter: &'a Expr, conjuncts: &mut Vec<&'a Expr>) {
    match filter {
        Expr::And(a, b) => {
            split(a, conjuncts);
            split(b, conjuncts);
        }
        other => conjuncts.push(other),
    }
}

/// What the conjuncts say of one column. The flag of a bound: the value itself is within. Of
/// several bounds the last counts; that is wide enough, and the filter does the rest.
#[derive(Default)]
struct Bounds {
    equal: Option<Value>,
    lower: Option<(Value, bool)>,
    upper: Option<(Value, bool)>,
}

fn bounds(
    table: &Table,
    column: usize,
    conjuncts: &[&Expr],
    parameters: &[Value],
) -> Result<Bounds, SqlError> {
    let mut bounds = Bounds::default();
    for conjunct in conjuncts {
        let Expr::Compare(op, a, b) = conjunct else {
            continue;
        };
        let (op, constant) = match (&**a, &**b) {
            (Expr::Column(index), constant) if *index == column => (*op, constant),
            (constant, Expr::Column(index)) if *index == column => (op.mirrored(), constant),
            _ => continue,
        };
        if !constant.is_constant() {
            continue;
        }
        let value = constant.eval(Env {
            parameters,
            ..Env::default()
        })?;
        let Some(value) = as_kind(table.columns[column].kind, value) else {
            continue;
        };
        match op {
            Comparison::Equal => bounds.equal = Some(value),
            Comparison::Greater => bounds.lower = Some((value, false)),
            Comparison::GreaterOrEqual => bounds.lower = Some((value, true)),
            Comparison::Less => bounds.upper = Some((value, false)),
            Comparison::LessOrEqual => bounds.upper = Some((value, true)),
            Comparison::NotEqual => {}
        }
    }
    Ok(bounds)
}

/// The value as the column's keys have it, if it is exactly such a value.
fn as_kind(kind: Kind, value: Value) -> Option<Value> {
    match (kind, value) {
        (Kind::Integer, value @ Value::Integer(_)) => Some(value),
        (Kind::Real, value @ Value::Real(_)) => Some(value),
        (Kind::Real, Value::Integer(value)) if value.abs_diff(0) <= EXACT_MAX as u64 => {
            Some(Value::Real(value as f64))
        }
        (Kind::Text, value @ Value::Text(_)) => Some(value),
        _ => None,
    }
}
