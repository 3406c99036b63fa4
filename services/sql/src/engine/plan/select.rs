//! SELECT.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sqlparser::ast;

use super::super::aggregate::Aggregate;
use super::super::error::{SqlError, support};
use super::super::expr::Expr;
use super::super::schema::{Schema, Table};
use super::bind::{Binder, Named, named, one_name};
use crate::limits::COLUMNS_MAX;

/// SELECT projection FROM tables WHERE filter GROUP BY group HAVING having ORDER BY order LIMIT limit
/// OFFSET offset. The row of expressions has the columns of all tables, one after the other.
#[derive(Debug)]
pub struct Select {
    /// At most two.
    pub(in super::super) tables: Vec<Rc<Table>>,
    /// Names of the result's columns.
    pub columns: Vec<String>,
    pub(in super::super) projection: Vec<Expr>,
    pub(in super::super) aggregates: Vec<Aggregate>,
    /// The condition of the join is a part of it.
    pub(in super::super) filter: Option<Expr>,
    pub(in super::super) group: Vec<Expr>,
    pub(in super::super) having: Option<Expr>,
    pub(in super::super) order: Vec<Order>,
    pub(in super::super) limit: Option<Expr>,
    pub(in super::super) offset: Option<Expr>,
}

/// One expression of an ORDER BY.
#[derive(Debug)]
pub(in super::super) struct Order {
    pub(in super::super) expr: Expr,
    pub(in super::super) descending: bool,
}

impl Select {
    /// True if the result has groups, not rows.
    pub(in super::super) fn is_grouped(&self) -> bool {
        !self.aggregates.is_empty() || !self.group.is_empty()
    }

    /// Columns in the result of a grouped query must be those of GROUP BY.
    fn check_groups(&self) -> Result<(), SqlError> {
        let order = self.order.iter().map(|order| &order.expr);
        let is_of_group = |expr: &Expr| {
            self.group.contains(expr)
                || expr
                    .all(&mut |leaf| !matches!(leaf, Expr::Column(_)) || self.group.contains(leaf))
        };
        let mut shown = self.projection.iter().chain(&self.having).chain(order);
        if !self.is_grouped() || shown.all(is_of_group) {
            Ok(())
        } else {
            Err(SqlError::Aggregate)
        }
    }
}

pub(super) fn select(
    query: &ast::Query,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Select, SqlError> {
    const CLAUSES: &str = "clauses but WHERE, GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET";
    support(
        query.with.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty()
            && query.for_clause.is_none()
            && query.pipe_operators.is_empty(),
        CLAUSES,
    )?;
    let ast::SetExpr::Select(select) = &*query.body else {
        return Err(SqlError::Unsupported("queries but a plain SELECT"));
    };
    support(select.distinct.is_none(), "DISTINCT")?;
    support(
        select.top.is_none()
            && select.into.is_none()
            && select.prewhere.is_none()
            && select.qualify.is_none()
            && select.lateral_views.is_empty()
            && select.connect_by.is_empty()
            && select.named_window.is_empty(),
        CLAUSES,
    )?;
    let (sources, conditions) = from(&select.from, schema)?;
    let mut binder = Binder::new(&sources, names);
    // Parameters are numbered as they stand in the text.
    let (columns, projection) = projection(&select.projection, &sources, &mut binder)?;
    let mut filter = None;
    for condition in conditions.into_iter().chain(&select.selection) {
        let condition = binder.expr(condition)?;
        filter = Some(match filter {
            Some(before) => Expr::And(Box::new(before), Box::new(condition)),
            None => condition,
        });
    }
    let ast::GroupByExpr::Expressions(by, modifiers) = &select.group_by else {
        return Err(SqlError::Unsupported("GROUP BY ALL"));
    };
    support(modifiers.is_empty(), "modifiers of GROUP BY")?;
    let group = by.iter().map(|expr| binder.expr(expr));
    let group = group.collect::<Result<Vec<_>, _>>()?;
    support(
        !group.iter().any(|by| matches!(by, Expr::Literal(_))),
        "numbers of columns in GROUP BY",
    )?;
    let having = select.having.as_ref();
    let having = having.map(|expr| binder.aggregated(expr)).transpose()?;
    let order = order(
        query.order_by.as_ref(),
        &mut binder,
        &select.projection,
        &projection,
    )?;
    let (limit, offset) = limit(query.limit_clause.as_ref(), &mut binder)?;
    let aggregates = binder.aggregates;
    support(
        having.is_none() || !aggregates.is_empty() || !group.is_empty(),
        "HAVING without GROUP BY",
    )?;
    let select = Select {
        tables: sources.into_iter().map(|source| source.table).collect(),
        columns,
        projection,
        aggregates,
        filter,
        group,
        having,
        order,
        limit,
        offset,
    };
    select.check_groups()?;
    Ok(select)
}

/// Names and expressions of the result.
fn projection(
    items: &[ast::SelectItem],
    sources: &[Named],
    binder: &mut Binder<'_>,
) -> Result<(Vec<String>, Vec<Expr>), SqlError> {
    let (mut columns, mut projection) = (Vec::new(), Vec::new());
    for item in items {
        let wanted = match item {
            ast::SelectItem::UnnamedExpr(expr) => {
                projection.push(binder.aggregated(expr)?);
                columns.push(match expr {
                    ast::Expr::CompoundIdentifier(names) => names
                        .last()
                        .map_or(String::new(), |name| name.value.clone()),
                    expr => expr.to_string(),
                });
                continue;
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                projection.push(binder.aggregated(expr)?);
                columns.push(alias.value.clone());
                continue;
            }
            ast::SelectItem::Wildcard(_) => None,
            ast::SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) => Some(one_name(name)?),
            _ => return Err(SqlError::Unsupported("wildcards but * and table.*")),
        };
        let before = columns.len();
        let mut place = 0;
        for source in sources {
            let is_wanted = wanted.as_ref().is_none_or(|name| *name == source.name);
            for column in &source.table.columns {
                if is_wanted {
                    projection.push(Expr::Column(place));
                    columns.push(column.name.clone());
                }
                place += 1;
            }
        }
        if columns.len() == before {
            return Err(SqlError::NoTable(wanted.unwrap_or_default()));
        }
    }
    if projection.len() <= COLUMNS_MAX {
        Ok((columns, projection))
    } else {
        Err(SqlError::TooMany {
            what: "columns",
            max: COLUMNS_MAX,
        })
    }
}

/// The tables, and the conditions that they are joined on.
fn from<'a>(
    from: &'a [ast::TableWithJoins],
    schema: &Schema,
) -> Result<(Vec<Named>, Vec<&'a ast::Expr>), SqlError> {
    let (mut sources, mut conditions) = (Vec::new(), Vec::new());
    for table in from {
        sources.push(named(&table.relation, schema)?);
        for join in &table.joins {
            sources.push(named(&join.relation, schema)?);
            let (ast::JoinOperator::Join(on)
            | ast::JoinOperator::Inner(on)
            | ast::JoinOperator::CrossJoin(on)) = &join.join_operator
            else {
                return Err(SqlError::Unsupported("JOIN but INNER and CROSS"));
            };
            match on {
                ast::JoinConstraint::On(condition) => conditions.push(condition),
                ast::JoinConstraint::None => {}
                _ => return Err(SqlError::Unsupported("USING and NATURAL in JOIN")),
            }
        }
    }
    support(sources.len() <= 2, "a join of more than two tables")?;
    if let [a, b] = sources.as_slice()
        && a.name == b.name
    {
        return Err(SqlError::TableTwice(b.name.clone()));
    }
    Ok((sources, conditions))
}

fn order(
    order_by: Option<&ast::OrderBy>,
    binder: &mut Binder<'_>,
    items: &[ast::SelectItem],
    projection: &[Expr],
) -> Result<Vec<Order>, SqlError> {
    let Some(order_by) = order_by else {
        return Ok(Vec::new());
    };
    let ast::OrderByKind::Expressions(exprs) = &order_by.kind else {
        return Err(SqlError::Unsupported("ORDER BY ALL"));
    };
    let mut order = Vec::with_capacity(exprs.len());
    for by in exprs {
        support(
            by.with_fill.is_none() && by.options.nulls_first.is_none(),
            "options of ORDER BY but ASC and DESC",
        )?;
        let descending = match &by.options.sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            Some(_) => return Err(SqlError::Unsupported("ORDER BY USING")),
        };
        order.push(Order {
            expr: match shown(&by.expr, items, projection)? {
                Some(expr) => expr,
                None => binder.aggregated(&by.expr)?,
            },
            descending,
        });
    }
    Ok(order)
}

/// The expression that a number or an alias in ORDER BY refers to.
fn shown(
    by: &ast::Expr,
    items: &[ast::SelectItem],
    projection: &[Expr],
) -> Result<Option<Expr>, SqlError> {
    if let ast::Expr::Value(value) = by
        && let ast::Value::Number(number, _) = &value.value
    {
        let place = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let expr = place.and_then(|place| projection.get(place)).cloned();
        return expr
            .map(Some)
            .ok_or(SqlError::Operand("the number of a column of the result"));
    }
    let ast::Expr::Identifier(name) = by else {
        return Ok(None);
    };
    // With a wildcard before it, an item's place is not that of its expression.
    let is_plain = items.len() == projection.len();
    let is_alias = |item: &ast::SelectItem| {
        matches!(item, ast::SelectItem::ExprWithAlias { alias, .. }
            if alias.value.eq_ignore_ascii_case(&name.value))
    };
    let place = items.iter().position(is_alias).filter(|_| is_plain);
    Ok(place.map(|place| projection[place].clone()))
}

fn limit(
    clause: Option<&ast::LimitClause>,
    binder: &mut Binder<'_>,
) -> Result<(Option<Expr>, Option<Expr>), SqlError> {
    let (limit, offset) = match clause {
        None => return Ok((None, None)),
        Some(ast::LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) => {
            support(limit_by.is_empty(), "LIMIT BY")?;
            (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
        }
        Some(ast::LimitClause::OffsetCommaLimit { .. }) => {
            return Err(SqlError::Unsupported("LIMIT with a comma"));
        }
    };
    let mut constant = |expr: Option<&ast::Expr>| -> Result<Option<Expr>, SqlError> {
        let bound = expr.map(|expr| binder.expr(expr)).transpose()?;
        support(
            bound.as_ref().is_none_or(Expr::is_constant),
            "columns in LIMIT and OFFSET",
        )?;
        Ok(bound)
    };
    Ok((constant(limit)?, constant(offset)?))
}
