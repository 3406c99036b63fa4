//! CREATE and DROP: definitions, and how they change a schema.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use sqlparser::ast;

use super::super::error::{SqlError, support};
use super::super::schema::{Column, Index, Kind, Schema, Table};
use super::bind::one_name;
use crate::limits::{COLUMNS_MAX, INDICES_MAX, NAME_BYTES_MAX, SCHEMA_BYTES_MAX, TABLES_MAX};

/// CREATE or DROP.
#[derive(Clone, Debug)]
pub enum Definition {
    /// CREATE TABLE.
    CreateTable {
        /// The table, without a number yet.
        table: Table,
        /// True with IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// CREATE INDEX.
    CreateIndex {
        /// The index's name.
        name: String,
        /// Its table.
        table: String,
        /// Its columns.
        columns: Vec<String>,
        /// True with IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP TABLE.
    DropTable {
        /// The table.
        name: String,
        /// True with IF EXISTS.
        if_exists: bool,
    },
    /// DROP INDEX.
    DropIndex {
        /// The index.
        name: String,
        /// True with IF EXISTS.
        if_exists: bool,
    },
}

impl Definition {
    /// True if it may run repeatedly, as the configured schema does.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::CreateTable { if_not_exists, .. } | Self::CreateIndex { if_not_exists, .. } => {
                *if_not_exists
            }
            Self::DropTable { if_exists, .. } | Self::DropIndex { if_exists, .. } => *if_exists,
        }
    }

    /// Puts a column first in the primary key of a table that is created, if the table has it.
    pub(in super::super) fn lead_key_with(&mut self, column: &str) {
        if let Self::CreateTable { table, .. } = self
            && let Ok(place) = table.column(column)
        {
            table.primary_key.retain(|other| *other != place);
            table.primary_key.insert(0, place);
            table.columns[place].not_null = true;
        }
    }

    /// The changed schema; none if nothing changes.
    pub(in super::super) fn apply(&self, schema: &Schema) -> Result<Option<Schema>, SqlError> {
        let mut tables = schema.tables.clone();
        let with_index = |name: &str| {
            tables
                .iter()
                .position(|t| t.indices.iter().any(|i| i.name == name))
        };
        match self {
            Self::CreateTable {
                table,
                if_not_exists,
            } => {
                if schema.table(&table.name).is_ok() {
                    return unless(*if_not_exists, SqlError::TableExists(table.name.clone()));
                }
                check(table.columns.iter().map(|column| &column.name))?;
                check([&table.name])?;
                bound(table.columns.len(), COLUMNS_MAX, "columns")?;
                bound(tables.len() + 1, TABLES_MAX, "tables")?;
                let number = 1 + tables.iter().map(|t| t.number).max().unwrap_or(0);
                tables.push(Rc::new(Table {
                    number,
                    ..table.clone()
                }));
            }
            Self::CreateIndex {
                name,
                table,
                columns,
                if_not_exists,
            } => {
                if with_index(name).is_some() {
                    return unless(*if_not_exists, SqlError::IndexExists(name.clone()));
                }
                let old = schema.table(table)?;
                check([name])?;
                bound(old.indices.len() + 1, INDICES_MAX, "indices")?;
                bound(columns.len(), COLUMNS_MAX, "columns")?;
                let mut places = Vec::with_capacity(columns.len());
                for column in columns {
                    let place = old.column(column)?;
                    if places.contains(&place) {
                        return Err(SqlError::ColumnTwice(column.clone()));
                    }
                    places.push(place);
                }
                let numbers = tables
                    .iter()
                    .flat_map(|t| t.indices.iter().map(|i| i.number));
                let index = Index {
                    name: name.clone(),
                    number: 1 + numbers.max().unwrap_or(0),
                    columns: places,
                };
                let mut new = (*old).clone();
                new.indices.push(index);
                replace(&mut tables, new);
            }
            Self::DropTable { name, if_exists } => {
                let Some(at) = tables.iter().position(|table| table.name == *name) else {
                    return unless(*if_exists, SqlError::NoTable(name.clone()));
                };
                tables.remove(at);
            }
            Self::DropIndex { name, if_exists } => {
                let Some(at) = with_index(name) else {
                    return unless(*if_exists, SqlError::NoIndex(name.clone()));
                };
                let mut new = (*tables[at]).clone();
                new.indices.retain(|index| index.name != *name);
                replace(&mut tables, new);
            }
        }
        let made = Schema::of(tables);
        bound(made.encode().len(), SCHEMA_BYTES_MAX, "bytes of a schema")?;
        Ok(Some(made))
    }
}

fn unless(allowed: bool, error: SqlError) -> Result<Option<Schema>, SqlError> {
    if allowed { Ok(None) } else { Err(error) }
}

fn replace(tables: &mut [Rc<Table>], new: Table) {
    for table in tables {
        if table.name == new.name {
            *table = Rc::new(new);
            return;
        }
    }
}

fn check<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), SqlError> {
    names.into_iter().try_for_each(|name| match name.len() {
        0 => Err(SqlError::Unsupported("empty names")),
        len => bound(len, NAME_BYTES_MAX, "bytes of a name"),
    })
}

fn bound(count: usize, max: usize, what: &'static str) -> Result<(), SqlError> {
    if count <= max {
        Ok(())
    } else {
        Err(SqlError::TooMany { what, max })
    }
}

pub(super) fn create_index(create: &ast::CreateIndex) -> Result<Definition, SqlError> {
    support(
        !create.unique
            && create.using.is_none()
            && create.predicate.is_none()
            && create.include.is_empty()
            && create.with.is_empty(),
        "options of CREATE INDEX, such as UNIQUE and WHERE",
    )?;
    let Some(name) = &create.name else {
        return Err(SqlError::Unsupported("an index without a name"));
    };
    let columns = create.columns.iter().map(|column| {
        let ast::Expr::Identifier(name) = &column.column.expr else {
            return Err(SqlError::Unsupported("expressions in an index"));
        };
        let options = &column.column.options;
        support(options.sort.is_none(), "sort orders in an index")?;
        Ok(name.value.to_ascii_lowercase())
    });
    Ok(Definition::CreateIndex {
        name: one_name(name)?,
        table: one_name(&create.table_name)?,
        columns: columns.collect::<Result<_, _>>()?,
        if_not_exists: create.if_not_exists,
    })
}

pub(super) fn drop(
    object: &ast::ObjectType,
    names: &[ast::ObjectName],
    if_exists: bool,
) -> Result<Definition, SqlError> {
    let [name] = names else {
        return Err(SqlError::Unsupported("DROP of several"));
    };
    let name = one_name(name)?;
    match object {
        ast::ObjectType::Table => Ok(Definition::DropTable { name, if_exists }),
        ast::ObjectType::Index => Ok(Definition::DropIndex { name, if_exists }),
        _ => Err(SqlError::Unsupported("DROP but of TABLE and INDEX")),
    }
}

pub(super) fn create_table(create: &ast::CreateTable) -> Result<Definition, SqlError> {
    support(
        create.query.is_none()
            && create.like.is_none()
            && create.clone.is_none()
            && !create.or_replace
            && !create.temporary
            && !create.without_rowid,
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
        name: one_name(&create.name)?,
        number: 0,
        columns,
        primary_key: Vec::new(),
        indices: Vec::new(),
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
    Ok(Definition::CreateTable {
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
