//! Text to plan: parses with `sqlparser`, resolves names, refuses what this engine does not have.

use alloc::borrow::ToOwned;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sqlparser::ast;
use sqlparser::dialect::SQLiteDialect;
use sqlparser::parser::Parser;

use e3_iot_messages::Value;

use super::SqlError;
use super::catalog::{Column, Kind, Table};
use super::expr::{Aggregate, Expr};
use crate::limits::NESTING_MAX;

mod bind;

use bind::{Binder, table_name};

/// A statement that is ready to run.
#[derive(Debug)]
pub enum Plan {
    /// CREATE TABLE.
    CreateTable {
        /// The table, not numbered yet.
        table: Table,
        /// True if an existing table is no error.
        if_not_exists: bool,
    },
    /// INSERT.
    Insert(Insert),
    /// SELECT.
    Select(Select),
    /// UPDATE.
    Update(Update),
    /// DELETE.
    Delete(Delete),
}

/// INSERT INTO table (columns) VALUES rows.
#[derive(Debug)]
pub struct Insert {
    pub(super) table: Rc<Table>,
    pub(super) columns: Vec<usize>,
    pub(super) rows: Vec<Vec<Expr>>,
    parameters: usize,
}

/// SELECT projection FROM table WHERE filter ORDER BY order LIMIT limit OFFSET offset.
#[derive(Debug)]
pub struct Select {
    pub(super) table: Rc<Table>,
    /// Names of the result's columns.
    pub columns: Vec<String>,
    pub(super) projection: Vec<Expr>,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) filter: Option<Expr>,
    pub(super) order: Vec<Order>,
    pub(super) limit: Option<Expr>,
    pub(super) offset: Option<Expr>,
    parameters: usize,
}

/// One expression of an ORDER BY.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) expr: Expr,
    pub(super) descending: bool,
}

/// UPDATE table SET assignments WHERE filter.
#[derive(Debug)]
pub struct Update {
    pub(super) table: Rc<Table>,
    pub(super) assignments: Vec<(usize, Expr)>,
    pub(super) filter: Option<Expr>,
    parameters: usize,
}

/// DELETE FROM table WHERE filter.
#[derive(Debug)]
pub struct Delete {
    pub(super) table: Rc<Table>,
    pub(super) filter: Option<Expr>,
    parameters: usize,
}

impl Plan {
    /// Checks that there is a value for each `?`.
    pub(super) fn check_parameters(&self, given: &[Value]) -> Result<(), SqlError> {
        let needed = match self {
            Self::CreateTable { .. } => 0,
            Self::Insert(insert) => insert.parameters,
            Self::Select(select) => select.parameters,
            Self::Update(update) => update.parameters,
            Self::Delete(delete) => delete.parameters,
        };
        if needed == given.len() {
            Ok(())
        } else {
            Err(SqlError::Parameters {
                needed,
                given: given.len(),
            })
        }
    }
}

type Tables<'a> = dyn FnMut(&str) -> Result<Rc<Table>, SqlError> + 'a;

/// `condition`, or `what` is not supported.
fn support(condition: bool, what: &'static str) -> Result<(), SqlError> {
    if condition {
        Ok(())
    } else {
        Err(SqlError::Unsupported(what))
    }
}

/// What statements begin with.
const KEYWORDS: [&str; 5] = ["CREATE", "INSERT", "SELECT", "UPDATE", "DELETE"];
const OTHER_STATEMENTS: SqlError =
    SqlError::Unsupported("statements but CREATE TABLE, INSERT, SELECT, UPDATE and DELETE");

/// Parses one statement; `tables` finds the tables that it names.
pub(super) fn parse(text: &str, tables: &mut Tables<'_>) -> Result<Plan, SqlError> {
    // Checked first because the parser's bound on nesting does not cover statements within
    // statements, such as a chain of EXPLAIN.
    let word = text
        .trim_start()
        .split(|c: char| !c.is_ascii_alphabetic())
        .next();
    let is_known = |word: &str| {
        KEYWORDS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word))
    };
    if !word.is_some_and(is_known) {
        return Err(OTHER_STATEMENTS);
    }
    let statements = Parser::new(&SQLiteDialect {})
        .with_recursion_limit(NESTING_MAX)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| SqlError::Syntax(error.to_string()))?;
    let mut statements = statements.into_iter();
    let (Some(statement), None) = (statements.next(), statements.next()) else {
        return Err(SqlError::Unsupported("other than one statement"));
    };
    match statement {
        ast::Statement::CreateTable(create) => create_table(&create),
        ast::Statement::Insert(statement) => insert(&statement, tables).map(Plan::Insert),
        ast::Statement::Query(query) => select(&query, tables).map(Plan::Select),
        ast::Statement::Update(statement) => update(&statement, tables).map(Plan::Update),
        ast::Statement::Delete(statement) => delete(&statement, tables).map(Plan::Delete),
        _ => Err(OTHER_STATEMENTS),
    }
}

fn create_table(create: &ast::CreateTable) -> Result<Plan, SqlError> {
    support(
        create.query.is_none()
            && create.like.is_none()
            && create.clone.is_none()
            && !create.or_replace
            && !create.temporary
            && !create.without_rowid
            && !create.strict,
        "options of CREATE TABLE",
    )?;
    let mut primary_key: Vec<&str> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    for definition in &create.columns {
        let name = definition.name.value.to_ascii_lowercase();
        if columns.iter().any(|column| column.name == name) {
            return Err(SqlError::ColumnTwice(name));
        }
        let mut not_null = false;
        for option in &definition.options {
            match &option.option {
                ast::ColumnOption::Null => {}
                ast::ColumnOption::NotNull => not_null = true,
                ast::ColumnOption::PrimaryKey(_) => primary_key.push(&definition.name.value),
                _ => {
                    return Err(SqlError::Unsupported(
                        "column options but NOT NULL, PRIMARY KEY",
                    ));
                }
            }
        }
        columns.push(Column {
            name,
            kind: kind(&definition.data_type)?,
            not_null,
        });
    }
    for constraint in &create.constraints {
        let ast::TableConstraint::PrimaryKey(key) = constraint else {
            return Err(SqlError::Unsupported("constraints but PRIMARY KEY"));
        };
        for column in &key.columns {
            let ast::Expr::Identifier(name) = &column.column.expr else {
                return Err(SqlError::Unsupported("expressions in PRIMARY KEY"));
            };
            support(
                column.column.options.sort.is_none(),
                "sort orders in PRIMARY KEY",
            )?;
            primary_key.push(&name.value);
        }
    }
    let mut table = Table {
        name: table_name(&create.name)?,
        number: 0,
        columns,
        primary_key: Vec::new(),
    };
    for name in primary_key {
        let index = table.column(name)?;
        if table.primary_key.contains(&index) {
            return Err(SqlError::ColumnTwice(name.into()));
        }
        table.columns[index].not_null = true;
        table.primary_key.push(index);
    }
    if table.primary_key.is_empty() {
        return Err(SqlError::NoPrimaryKey(table.name));
    }
    Ok(Plan::CreateTable {
        table,
        if_not_exists: create.if_not_exists,
    })
}

fn kind(data_type: &ast::DataType) -> Result<Kind, SqlError> {
    match data_type {
        ast::DataType::Integer(_)
        | ast::DataType::Int(_)
        | ast::DataType::Int8(_)
        | ast::DataType::BigInt(_) => Ok(Kind::Integer),
        ast::DataType::Real
        | ast::DataType::Float(_)
        | ast::DataType::Float8
        | ast::DataType::Double(_)
        | ast::DataType::DoublePrecision => Ok(Kind::Real),
        ast::DataType::Text | ast::DataType::Varchar(_) => Ok(Kind::Text),
        _ => Err(SqlError::Unsupported("types but INTEGER, REAL and TEXT")),
    }
}

fn insert(insert: &ast::Insert, tables: &mut Tables<'_>) -> Result<Insert, SqlError> {
    support(
        insert.or.is_none()
            && insert.on.is_none()
            && insert.returning.is_none()
            && insert.table_alias.is_none()
            && insert.assignments.is_empty()
            && !insert.replace_into,
        "clauses of INSERT but VALUES",
    )?;
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::Unsupported("INSERT but into a table"));
    };
    let table = tables(&table_name(name)?)?;
    let columns: Vec<usize> = if insert.columns.is_empty() {
        (0..table.columns.len()).collect()
    } else {
        let names = insert.columns.iter();
        names
            .map(|name| table.column(&table_name(name)?))
            .collect::<Result<_, _>>()?
    };
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].contains(column) {
            let name = table.columns[*column].name.clone();
            return Err(SqlError::ColumnTwice(name));
        }
    }
    let source = insert.source.as_deref().map(|query| &*query.body);
    let Some(ast::SetExpr::Values(values)) = source else {
        return Err(SqlError::Unsupported("INSERT but of VALUES"));
    };
    let mut binder = Binder::without_row();
    let mut rows = Vec::with_capacity(values.rows.len());
    for row in &values.rows {
        support(
            row.content.len() == columns.len(),
            "VALUES of another length than the columns",
        )?;
        let exprs = row.content.iter().map(|expr| binder.expr(expr));
        rows.push(exprs.collect::<Result<_, _>>()?);
    }
    Ok(Insert {
        columns,
        rows,
        parameters: binder.parameters,
        table,
    })
}

fn select(query: &ast::Query, tables: &mut Tables<'_>) -> Result<Select, SqlError> {
    support(
        query.with.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty()
            && query.for_clause.is_none()
            && query.pipe_operators.is_empty(),
        "clauses but WHERE, ORDER BY, LIMIT and OFFSET",
    )?;
    let ast::SetExpr::Select(select) = &*query.body else {
        return Err(SqlError::Unsupported("queries but a plain SELECT"));
    };
    support(select.distinct.is_none(), "DISTINCT")?;
    let ungrouped = matches!(&select.group_by,
        ast::GroupByExpr::Expressions(by, modifiers) if by.is_empty() && modifiers.is_empty());
    support(ungrouped && select.having.is_none(), "GROUP BY and HAVING")?;
    support(
        select.top.is_none()
            && select.into.is_none()
            && select.prewhere.is_none()
            && select.qualify.is_none()
            && select.lateral_views.is_empty()
            && select.connect_by.is_empty()
            && select.named_window.is_empty(),
        "clauses but WHERE, ORDER BY, LIMIT and OFFSET",
    )?;
    let table = tables(&only_table(&select.from)?)?;
    let mut binder = Binder::of(&table);
    let mut columns = Vec::new();
    let mut projection = Vec::new();
    // Parameters are numbered as they stand in the text: projection, filter, order, limit.
    for item in &select.projection {
        match item {
            ast::SelectItem::UnnamedExpr(expr) => {
                projection.push(binder.aggregated(expr)?);
                columns.push(expr.to_string());
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                projection.push(binder.aggregated(expr)?);
                columns.push(alias.value.clone());
            }
            ast::SelectItem::Wildcard(_) => {
                for (index, column) in table.columns.iter().enumerate() {
                    projection.push(Expr::Column(index));
                    columns.push(column.name.clone());
                }
            }
            _ => return Err(SqlError::Unsupported("wildcards but *")),
        }
    }
    let limits = &e3_iot_messages::limits::COLUMNS_MAX;
    if projection.len() > *limits {
        return Err(SqlError::TooMany {
            what: "columns",
            max: *limits,
        });
    }
    let aggregates = core::mem::take(&mut binder.aggregates);
    if !aggregates.is_empty() && projection.iter().any(Expr::has_column) {
        return Err(SqlError::Aggregate);
    }
    let filter = binder.filter(select.selection.as_ref())?;
    let order = order(query.order_by.as_ref(), &mut binder)?;
    let (limit, offset) = limit(query.limit_clause.as_ref(), &mut binder)?;
    Ok(Select {
        columns,
        projection,
        aggregates,
        filter,
        order,
        limit,
        offset,
        parameters: binder.parameters,
        table,
    })
}

fn order(order_by: Option<&ast::OrderBy>, binder: &mut Binder<'_>) -> Result<Vec<Order>, SqlError> {
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
            expr: binder.expr(&by.expr)?,
            descending,
        });
    }
    Ok(order)
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

fn update(update: &ast::Update, tables: &mut Tables<'_>) -> Result<Update, SqlError> {
    support(
        update.from.is_none()
            && update.returning.is_none()
            && update.or.is_none()
            && update.order_by.is_empty()
            && update.limit.is_none(),
        "clauses of UPDATE but SET and WHERE",
    )?;
    let table = tables(&only_table(core::slice::from_ref(&update.table))?)?;
    let mut binder = Binder::of(&table);
    let mut assignments = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        let ast::AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(SqlError::Unsupported("assignment to several columns"));
        };
        let column = table.column(&table_name(name)?)?;
        if table.primary_key.contains(&column) {
            return Err(SqlError::KeyColumn(table.columns[column].name.to_owned()));
        }
        assignments.push((column, binder.expr(&assignment.value)?));
    }
    let filter = binder.filter(update.selection.as_ref())?;
    Ok(Update {
        assignments,
        filter,
        parameters: binder.parameters,
        table,
    })
}

fn delete(delete: &ast::Delete, tables: &mut Tables<'_>) -> Result<Delete, SqlError> {
    support(
        delete.tables.is_empty()
            && delete.using.is_none()
            && delete.returning.is_none()
            && delete.order_by.is_empty()
            && delete.limit.is_none(),
        "clauses of DELETE but WHERE",
    )?;
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
        &delete.from;
    let table = tables(&only_table(from)?)?;
    let mut binder = Binder::of(&table);
    let filter = binder.filter(delete.selection.as_ref())?;
    Ok(Delete {
        filter,
        parameters: binder.parameters,
        table,
    })
}

/// The name of the one table that is named.
fn only_table(from: &[ast::TableWithJoins]) -> Result<String, SqlError> {
    let [table] = from else {
        return Err(SqlError::Unsupported("other than one table"));
    };
    support(table.joins.is_empty(), "JOIN")?;
    match &table.relation {
        ast::TableFactor::Table {
            name,
            alias: None,
            args: None,
            ..
        } => table_name(name),
        _ => Err(SqlError::Unsupported("FROM but a table without an alias")),
    }
}
