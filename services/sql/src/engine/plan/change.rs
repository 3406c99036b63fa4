//! INSERT, UPDATE and DELETE.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use sqlparser::ast;

use super::super::error::{SqlError, support};
use super::super::expr::Expr;
use super::super::schema::{Schema, Table};
use super::bind::{Binder, Named, named, one_name};

/// What INSERT does if the primary key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Conflict {
    Refuse,
    Replace,
    Ignore,
}

/// INSERT INTO table (columns) VALUES rows.
#[derive(Debug)]
pub struct Insert {
    pub(in super::super) table: Rc<Table>,
    pub(in super::super) columns: Vec<usize>,
    pub(in super::super) rows: Vec<Vec<Expr>>,
    pub(in super::super) conflict: Conflict,
}

/// UPDATE table SET assignments WHERE filter.
#[derive(Debug)]
pub struct Update {
    pub(in super::super) table: Rc<Table>,
    pub(in super::super) assignments: Vec<(usize, Expr)>,
    pub(in super::super) filter: Option<Expr>,
}

/// DELETE FROM table WHERE filter.
#[derive(Debug)]
pub struct Delete {
    pub(in super::super) table: Rc<Table>,
    pub(in super::super) filter: Option<Expr>,
}

pub(super) fn insert(
    insert: &ast::Insert,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Insert, SqlError> {
    support(
        insert.on.is_none()
            && insert.returning.is_none()
            && insert.table_alias.is_none()
            && insert.assignments.is_empty(),
        "clauses of INSERT but VALUES",
    )?;
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::Unsupported("INSERT but into a table"));
    };
    let table = schema.table(&one_name(name)?)?;
    let conflict = match insert.or {
        _ if insert.replace_into => Conflict::Replace,
        None | Some(ast::SqliteOnConflict::Abort) => Conflict::Refuse,
        Some(ast::SqliteOnConflict::Replace) => Conflict::Replace,
        Some(ast::SqliteOnConflict::Ignore) => Conflict::Ignore,
        Some(_) => return Err(SqlError::Unsupported("INSERT OR but REPLACE and IGNORE")),
    };
    let columns: Vec<usize> = if insert.columns.is_empty() {
        (0..table.columns.len()).collect()
    } else {
        let names = insert.columns.iter();
        names
            .map(|name| table.column(&one_name(name)?))
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
    let mut binder = Binder::new(&[], names);
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
        conflict,
        table,
    })
}

pub(super) fn update(
    update: &ast::Update,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Update, SqlError> {
    support(
        update.from.is_none()
            && update.returning.is_none()
            && update.or.is_none()
            && update.order_by.is_empty()
            && update.limit.is_none(),
        "clauses of UPDATE but SET and WHERE",
    )?;
    let table = only_table(core::slice::from_ref(&update.table), schema)?;
    let sources = [table.clone()];
    let mut binder = Binder::new(&sources, names);
    let mut assignments = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        let ast::AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(SqlError::Unsupported("assignment to several columns"));
        };
        let column = table.table.column(&one_name(name)?)?;
        if table.table.primary_key.contains(&column) {
            let name = table.table.columns[column].name.clone();
            return Err(SqlError::KeyColumn(name));
        }
        assignments.push((column, binder.expr(&assignment.value)?));
    }
    let filter = binder.filter(update.selection.as_ref())?;
    Ok(Update {
        assignments,
        filter,
        table: table.table,
    })
}

pub(super) fn delete(
    delete: &ast::Delete,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Delete, SqlError> {
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
    let table = only_table(from, schema)?;
    let sources = [table.clone()];
    let mut binder = Binder::new(&sources, names);
    let filter = binder.filter(delete.selection.as_ref())?;
    Ok(Delete {
        filter,
        table: table.table,
    })
}

/// The one table that is named.
fn only_table(from: &[ast::TableWithJoins], schema: &Schema) -> Result<Named, SqlError> {
    match from {
        [ast::TableWithJoins { relation, joins }] if joins.is_empty() => named(relation, schema),
        _ => Err(SqlError::Unsupported("changes of several tables")),
    }
}
