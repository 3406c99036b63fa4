//! Executes SELECT: scans, filters, groups, sorts, projects.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::access::{Access, Source, accesses, best, path_columns};
use super::aggregate::Accumulator;
use super::expr::{Env, Expr};
use super::plan::{Order, Select};
use super::schema::Table;
use super::value::{Value, order};
use super::walk::{Context, join, takes, walk};
use super::{Scope, SqlError, Store};
use crate::limits::ROWS_SORTED_MAX;

/// Receives rows of the result; false ends it.
pub(super) type Sink<'a> = dyn FnMut(&[Value]) -> bool + 'a;

/// Runs a SELECT.
pub(super) fn select<S: Store>(
    context: Context<'_, S>,
    select: &Select,
    scope: Option<&Scope>,
    sink: &mut Sink<'_>,
) -> Result<(), SqlError> {
    let parameters = context.parameters;
    let mut sources = Vec::with_capacity(select.tables.len());
    let mut start = 0;
    for table in &select.tables {
        let columns = start..start + table.columns.len();
        start = columns.end;
        sources.push(Source {
            table,
            columns,
            part: scope.map(|scope| scope.part(table)).transpose()?,
        });
    }
    // The scope comes first, so that the filter is not evaluated over rows outside of it.
    let inside: Vec<Expr> = sources
        .iter()
        .filter_map(|source| Some(source.part.as_ref()?.condition(source.columns.start)))
        .collect();
    let mut conjuncts: Vec<&Expr> = inside.iter().collect();
    if let Some(filter) = &select.filter {
        filter.conjuncts(&mut conjuncts);
    }
    let mut window = Window::new(select, parameters)?;
    if select.is_grouped() {
        let rows = grouped(context, select, &sources, &conjuncts)?;
        show(select, rows, &mut window, sink);
        return Ok(());
    }
    if let [source] = sources.as_slice()
        && let Some((access, reverse)) = in_order(context, select, source, &conjuncts)?
    {
        let mut row = vec![Value::Null; start];
        let hint = (reverse, window.expected());
        return walk(context, source, &access, hint, &mut row, &mut |_, row| {
            if window.is_over() {
                return Ok(false);
            }
            if !takes(&conjuncts, row, parameters)? || !window.admits() {
                return Ok(true);
            }
            let env = Env {
                row,
                ..Env::of(parameters)
            };
            Ok(sink(&project(select, env)?) && !window.is_over())
        });
    }
    if select.order.is_empty() {
        return rows(context, &sources, &conjuncts, &mut |row| {
            if window.is_over() {
                return Ok(false);
            }
            if !window.admits() {
                return Ok(true);
            }
            let env = Env {
                row,
                ..Env::of(parameters)
            };
            Ok(sink(&project(select, env)?) && !window.is_over())
        });
    }
    let mut sorted = Vec::new();
    rows(context, &sources, &conjuncts, &mut |row| {
        let env = Env {
            row,
            ..Env::of(parameters)
        };
        keep(select, env, &mut sorted)?;
        Ok(true)
    })?;
    show(select, sorted, &mut window, sink);
    Ok(())
}

/// Visits the rows of all sources together that satisfy all conjuncts.
fn rows<S: Store>(
    context: Context<'_, S>,
    sources: &[Source<'_>],
    conjuncts: &[&Expr],
    visit: &mut dyn FnMut(&[Value]) -> Result<bool, SqlError>,
) -> Result<(), SqlError> {
    match sources {
        [source] => super::walk::filtered(context, source, conjuncts, &mut |_, row| visit(row)),
        [a, b] => join(context, [a, b], conjuncts, visit),
        // Without FROM there is one row of no columns.
        _ => {
            if takes(conjuncts, &[], context.parameters)? {
                visit(&[]).map(drop)
            } else {
                Ok(())
            }
        }
    }
}

/// An access path with rows in the requested order, and whether to scan it backwards: the best one if
/// possible, else with LIMIT another one that is as selective.
fn in_order<'a, S>(
    context: Context<'_, S>,
    select: &Select,
    source: &Source<'a>,
    conjuncts: &[&Expr],
) -> Result<Option<(Access<'a>, bool)>, SqlError> {
    let table = source.table;
    let env = Env::of(context.parameters);
    let first = best(context.slot, source, conjuncts, env, &(0..0))?;
    if let Some(reverse) = serves(table, &first, &select.order) {
        return Ok(Some((first, reverse)));
    }
    if select.limit.is_none() {
        return Ok(None);
    }
    let all = accesses(context.slot, source, conjuncts, env, &(0..0))?;
    let as_good = all
        .into_iter()
        .filter(|access| access.rank(table) >= first.rank(table));
    Ok(as_good
        .filter_map(|access| {
            serves(table, &access, &select.order).map(|backwards| (access, backwards))
        })
        .next())
}

/// The scan direction that gives rows in an order; none if neither does.
fn serves(table: &Table, access: &Access<'_>, order: &[Order]) -> Option<bool> {
    if access.is_one(table) {
        return Some(false);
    }
    let reverse = order.first().is_some_and(|order| order.descending);
    let columns: Vec<usize> = path_columns(table, access.index).collect();
    let (fixed, open) = columns.split_at(access.fixed);
    let mut open = open.iter();
    for Order { expr, descending } in order {
        let Expr::Column(column) = expr else {
            return None;
        };
        if fixed.contains(column) {
            continue;
        }
        match open.next() {
            Some(next) if next == column && *descending == reverse => {}
            // All columns of the path: no two rows are equal, so further columns do not matter.
            None => break,
            Some(_) => return None,
        }
    }
    Some(reverse)
}

/// A row of the result with its sort key.
type Sortable = (Vec<Value>, Vec<Value>);

fn keep(select: &Select, env: Env<'_>, rows: &mut Vec<Sortable>) -> Result<(), SqlError> {
    if rows.len() == ROWS_SORTED_MAX {
        return Err(SqlError::TooMany {
            what: "rows to sort",
            max: ROWS_SORTED_MAX,
        });
    }
    let by = select.order.iter();
    let by = by.map(|order| order.expr.eval(env).map(Cow::into_owned));
    rows.push((by.collect::<Result<_, _>>()?, project(select, env)?));
    Ok(())
}

/// Sorts the rows and passes them to the sink.
fn show(select: &Select, mut rows: Vec<Sortable>, window: &mut Window, sink: &mut Sink<'_>) {
    rows.sort_by(|(a, _), (b, _)| {
        let sides = a.iter().zip(b).zip(&select.order);
        sides
            .map(|((a, b), by)| {
                if by.descending {
                    order(b, a)
                } else {
                    order(a, b)
                }
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    for (_, row) in rows {
        if window.is_over() || (window.admits() && !sink(&row)) {
            break;
        }
    }
}

fn project(select: &Select, env: Env<'_>) -> Result<Vec<Value>, SqlError> {
    let values = select.projection.iter();
    values
        .map(|expr| Ok(expr.eval(env)?.into_owned()))
        .collect()
}

/// Values by which rows are grouped.
struct Key(Vec<Value>);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let sides = self.0.iter().zip(&other.0);
        sides
            .map(|(a, b)| order(a, b))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

/// A group's first row, which has the values of the columns that it is grouped by, and its
/// aggregates.
type Group<'a> = (Vec<Value>, Vec<Accumulator<'a>>);

/// The groups of the result. Without GROUP BY there is one, even if it has no rows.
fn grouped<S: Store>(
    context: Context<'_, S>,
    select: &Select,
    sources: &[Source<'_>],
    conjuncts: &[&Expr],
) -> Result<Vec<Sortable>, SqlError> {
    let parameters = context.parameters;
    let fresh = || select.aggregates.iter().map(Accumulator::new).collect();
    let mut groups: BTreeMap<Key, Group<'_>> = BTreeMap::new();
    if select.group.is_empty() {
        groups.insert(Key(Vec::new()), (Vec::new(), fresh()));
    }
    rows(context, sources, conjuncts, &mut |row| {
        let env = Env {
            row,
            ..Env::of(parameters)
        };
        let by = select.group.iter().map(|expr| expr.eval(env));
        let key = Key(by
            .map(|v| v.map(Cow::into_owned))
            .collect::<Result<_, _>>()?);
        if groups.len() == ROWS_SORTED_MAX && !groups.contains_key(&key) {
            return Err(SqlError::TooMany {
                what: "groups",
                max: ROWS_SORTED_MAX,
            });
        }
        let (_, accumulators) = groups.entry(key).or_insert_with(|| (row.to_vec(), fresh()));
        accumulators.iter_mut().try_for_each(|each| each.add(env))?;
        Ok(true)
    })?;
    let mut shown = Vec::new();
    for (row, accumulators) in groups.into_values() {
        let aggregates: Vec<_> = accumulators
            .into_iter()
            .map(Accumulator::finish)
            .collect::<Result<_, _>>()?;
        let env = Env {
            row: &row,
            parameters,
            aggregates: &aggregates,
        };
        let having = select.having.as_ref();
        if having.map_or(Ok(Some(true)), |having| having.test(env))? == Some(true) {
            keep(select, env, &mut shown)?;
        }
    }
    Ok(shown)
}

/// The state of LIMIT and OFFSET.
struct Window {
    skip: u64,
    left: Option<u64>,
}

impl Window {
    fn new(select: &Select, parameters: &[Value]) -> Result<Self, SqlError> {
        let count = |expr: &Option<Expr>| match expr {
            None => Ok(None),
            Some(expr) => match *expr.eval(Env::of(parameters))? {
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

    /// True if the next row belongs to the result.
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
