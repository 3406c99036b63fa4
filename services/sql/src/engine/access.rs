//! Access paths: the primary key or an index of a table, and the range of its keys that a WHERE clause
//! restricts a statement to.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

use super::expr::{Comparison, Env, Expr};
use super::schema::{Index, Kind, Table};
use super::scope::Part;
use super::value::Value;
use super::{SqlError, key};

/// Integers up to here are doubles exactly.
const EXACT_MAX: i64 = 1 << 53;

/// A table in a statement.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) table: &'a Table,
    /// Where its columns are in the statement's row.
    pub(super) columns: Range<usize>,
    /// The part of the table that the statement may see; none: all of it.
    pub(super) part: Option<Part>,
}

impl<'a> Source<'a> {
    /// The indices that a walk may use. Within a scope, only those that begin with its column: along
    /// another one a statement would visit rows of other scopes, and take longer the more there are.
    fn indices(&self) -> impl Iterator<Item = &'a Index> {
        let first = self.part.as_ref().map(|part| part.column);
        let table = self.table;
        let usable = move |index: &&Index| first.is_none_or(|first| index.columns[0] == first);
        table.indices.iter().filter(usable)
    }
}

/// A range of keys. It contains every row that satisfies the conjuncts, which are still applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access<'a> {
    /// None: the primary key.
    pub(super) index: Option<&'a Index>,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    /// Number of leading columns that are fixed to one value.
    pub(super) fixed: usize,
    /// True if the first column after them is bounded.
    bounded: bool,
}

impl Access<'_> {
    /// True if there is one row at most, at the key `from`; then there is no `to`.
    pub(super) fn is_one(&self, table: &Table) -> bool {
        self.index.is_none() && self.fixed == table.primary_key.len()
    }

    /// How selective it is: the more the better.
    pub(super) fn rank(&self, table: &Table) -> (bool, usize, bool) {
        (self.is_one(table), self.fixed, self.bounded)
    }
}

/// Columns of an access path: those of the index, if any, then those of the primary key.
pub(super) fn path_columns<'a>(
    table: &'a Table,
    index: Option<&'a Index>,
) -> impl Iterator<Item = usize> + 'a {
    let columns = index.map_or(&[][..], |index| &index.columns);
    columns.iter().chain(&table.primary_key).copied()
}

/// The access paths to rows of `source` with the ranges from the conjuncts, the primary key first.
/// `env` has the row as far as it is `known`.
pub(super) fn accesses<'a>(
    slot: u16,
    source: &Source<'a>,
    conjuncts: &[&Expr],
    env: Env<'_>,
    known: &Range<usize>,
) -> Result<Vec<Access<'a>>, SqlError> {
    let indices = source.indices().map(Some);
    core::iter::once(None)
        .chain(indices)
        .map(|index| confine(slot, source, index, conjuncts, env, known))
        .collect()
}

/// The most selective one; of equals, the first.
pub(super) fn best<'a>(
    slot: u16,
    source: &Source<'a>,
    conjuncts: &[&Expr],
    env: Env<'_>,
    known: &Range<usize>,
) -> Result<Access<'a>, SqlError> {
    let first = confine(slot, source, None, conjuncts, env, known)?;
    if source.indices().next().is_none() || first.is_one(source.table) {
        return Ok(first);
    }
    let table = source.table;
    let others = accesses(slot, source, conjuncts, env, known)?;
    let better = |best: Access<'a>, other: Access<'a>| {
        if other.rank(table) > best.rank(table) {
            other
        } else {
            best
        }
    };
    Ok(others.into_iter().fold(first, better))
}

fn confine<'a>(
    slot: u16,
    source: &Source<'a>,
    index: Option<&'a Index>,
    conjuncts: &[&Expr],
    env: Env<'_>,
    known: &Range<usize>,
) -> Result<Access<'a>, SqlError> {
    let table = source.table;
    let tagged = index.map_or(0, |index| index.columns.len());
    let mut prefix = match index {
        Some(index) => key::of_index(slot, index),
        None => key::of_table(slot, table),
    };
    let mut fixed = 0;
    for column in path_columns(table, index) {
        let bounds = bounds(source, column, conjuncts, env, known)?;
        let is_tagged = fixed < tagged;
        let append = if is_tagged {
            key::append_nullable
        } else {
            key::append
        };
        if let Some(value) = bounds.equal {
            append(&mut prefix, &value);
            fixed += 1;
            continue;
        }
        let with = |value: &Value| {
            let mut key = prefix.clone();
            append(&mut key, value);
            key
        };
        let bounded = bounds.lower.is_some() || bounds.upper.is_some();
        let from = match bounds.lower {
            Some((value, true)) => with(&value),
            Some((value, false)) => key::above(with(&value)),
            None => {
                let mut from = prefix.clone();
                if bounded && is_tagged {
                    // No comparison with NULL is true.
                    key::append_not_null(&mut from);
                }
                from
            }
        };
        let to = match bounds.upper {
            Some((value, true)) => key::above(with(&value)),
            Some((value, false)) => with(&value),
            None => key::above(prefix),
        };
        return Ok(Access {
            index,
            from,
            to,
            fixed,
            bounded,
        });
    }
    let mut access = Access {
        index,
        from: prefix,
        to: Vec::new(),
        fixed,
        bounded: false,
    };
    if !access.is_one(table) {
        access.to = key::above(access.from.clone());
    }
    Ok(access)
}

/// Comparisons of a column with a known value, as `column op value`.
fn comparisons<'a>(
    source: &Source<'_>,
    column: usize,
    conjuncts: &[&'a Expr],
    known: &Range<usize>,
) -> impl Iterator<Item = (Comparison, &'a Expr)> {
    let place = source.columns.start + column;
    conjuncts.iter().filter_map(move |conjunct| {
        let Expr::Compare(op, a, b) = conjunct else {
            return None;
        };
        let (op, value) = match (&**a, &**b) {
            (Expr::Column(at), value) if *at == place => (*op, value),
            (value, Expr::Column(at)) if *at == place => (op.mirrored(), value),
            _ => return None,
        };
        let is_known = value.all(&mut |leaf| match leaf {
            Expr::Column(at) => known.contains(at),
            Expr::Aggregate(_) => false,
            _ => true,
        });
        is_known.then_some((op, value))
    })
}

/// The range of one column from the conjuncts. The flag of a bound: the value itself is within. Of
/// several bounds the last counts; that is wide enough, and the filter does the rest.
#[derive(Default)]
struct Bounds<'a> {
    equal: Option<Cow<'a, Value>>,
    lower: Option<(Cow<'a, Value>, bool)>,
    upper: Option<(Cow<'a, Value>, bool)>,
}

fn bounds<'a>(
    source: &Source<'_>,
    column: usize,
    conjuncts: &[&'a Expr],
    env: Env<'a>,
    known: &Range<usize>,
) -> Result<Bounds<'a>, SqlError> {
    let mut bounds = Bounds::default();
    for (op, value) in comparisons(source, column, conjuncts, known) {
        let value = value.eval(env)?;
        let Some(value) = as_kind(source.table.columns[column].kind, value) else {
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

/// An estimate of the visited rows of a table if the columns in `known` have values: there
/// are no statistics.
pub(super) fn cost(source: &Source<'_>, conjuncts: &[&Expr], known: &Range<usize>) -> u32 {
    const ONE: u32 = 1;
    const SOME: u32 = 8;
    const MANY: u32 = 128;
    const ALL: u32 = 1024;
    let table = source.table;
    let has = |column, is: fn(Comparison) -> bool| {
        comparisons(source, column, conjuncts, known).any(|(op, _)| is(op))
    };
    let of = |index| {
        let is_fixed = |column: &usize| has(*column, |op| op == Comparison::Equal);
        let has_range = |column: Option<usize>| {
            column.is_some_and(|column| has(column, |op| op != Comparison::NotEqual))
        };
        let mut columns = path_columns(table, index).peekable();
        match (columns.peek().is_some_and(is_fixed), index) {
            (true, None) if columns.all(|column| is_fixed(&column)) => ONE,
            (true, _) => SOME,
            _ if has_range(columns.next()) => MANY,
            _ => ALL,
        }
    };
    let indices = source.indices().map(Some);
    let costs = core::iter::once(None).chain(indices).map(of);
    costs.min().unwrap_or(ALL)
}

/// The value as stored in keys of the column, if it can be stored exactly.
pub(super) fn as_kind(kind: Kind, value: Cow<'_, Value>) -> Option<Cow<'_, Value>> {
    match (kind, &*value) {
        (Kind::Integer, Value::Integer(_))
        | (Kind::Real, Value::Real(_))
        | (Kind::Text, Value::Text(_)) => Some(value),
        (Kind::Integer, Value::Real(real))
            if real.abs() <= EXACT_MAX as f64 && *real as i64 as f64 == *real =>
        {
            Some(Cow::Owned(Value::Integer(*real as i64)))
        }
        (Kind::Real, Value::Integer(integer)) if integer.abs_diff(0) <= EXACT_MAX as u64 => {
            Some(Cow::Owned(Value::Real(*integer as f64)))
        }
        _ => None,
    }
}
