//! A small SQL engine on an ordered map.
//!
//! `plan` turns text into a [`Plan`] with the parser of the crate `sqlparser`,
//! `range` finds the part of the primary key that a WHERE clause confines, `execute` walks
//! it. A table is a range of the map: its rows in the order of an order-preserving encoding of
//! their primary keys (`key`), so that ranges and sorting by a key prefix are scans. One table
//! in a query for now: a join would be a second walk within the first, an index a second range of
//! keys, which `key` keeps room for.

mod catalog;
mod error;
mod execute;
mod expr;
mod key;
mod plan;
mod range;
mod store;
mod value;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;

use e3_iot_messages::Value;

use crate::limits::STATEMENTS_CACHED_MAX;

pub use catalog::{Column, Kind, Table};
pub use error::SqlError;
pub use plan::Plan;
pub use store::{Store, Visit};

/// Confines a query to the rows with one value in one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// The column, which every table that is asked must have.
    pub column: &'static str,
    /// The value.
    pub value: Value,
}

/// Tables in a store, with what was parsed for them.
#[derive(Debug)]
pub struct Database<S> {
    store: S,
    tables: BTreeMap<String, Rc<Table>>,
    statements: BTreeMap<String, Rc<Plan>>,
}

impl<S: Store> Database<S> {
    /// The database in `store`.
    pub fn new(store: S) -> Self {
        Self {
            store,
            tables: BTreeMap::new(),
            statements: BTreeMap::new(),
        }
    }

    /// Drops what is kept in memory. Needed after the store has lost writes.
    pub fn forget(&mut self) {
        self.tables.clear();
        self.statements.clear();
    }

    /// Parses a statement, or finds it parsed. Tables do not change once they are made, so a
    /// plan stays good.
    pub fn prepare(&mut self, text: &str) -> Result<Rc<Plan>, SqlError> {
        if let Some(plan) = self.statements.get(text) {
            return Ok(Rc::clone(plan));
        }
        let plan = plan::parse(text, &mut |name| self.table(name))?;
        let plan = Rc::new(plan);
        if self.statements.len() >= STATEMENTS_CACHED_MAX {
            self.statements.clear();
        }
        self.statements.insert(text.into(), Rc::clone(&plan));
        Ok(plan)
    }

    /// Runs a statement that changes something; returns the rows changed.
    pub fn execute(&mut self, plan: &Plan, parameters: &[Value]) -> Result<u64, SqlError> {
        plan.check_parameters(parameters)?;
        match plan {
            Plan::CreateTable {
                table,
                if_not_exists,
            } => {
                if self.table(&table.name).is_ok() {
                    return if *if_not_exists {
                        Ok(0)
                    } else {
                        Err(SqlError::TableExists(table.name.clone()))
                    };
                }
                catalog::create(&mut self.store, table)?;
                Ok(0)
            }
            Plan::Insert(insert) => execute::insert(&mut self.store, insert, parameters),
            Plan::Update(update) => execute::update(&mut self.store, update, parameters),
            Plan::Delete(delete) => execute::delete(&mut self.store, delete, parameters),
            Plan::Select(_) => Err(SqlError::Unsupported("SELECT where a change is expected")),
        }
    }

    /// Runs a SELECT, within `scope` if there is one; gives each row to `sink` until it returns
    /// false.
    pub fn query(
        &self,
        plan: &Plan,
        parameters: &[Value],
        scope: Option<&Scope>,
        sink: &mut dyn FnMut(&[Value]) -> bool,
    ) -> Result<(), SqlError> {
        plan.check_parameters(parameters)?;
        match plan {
            Plan::Select(select) => execute::select(&self.store, select, parameters, scope, sink),
            _ => Err(SqlError::NotASelect),
        }
    }

    fn table(&mut self, name: &str) -> Result<Rc<Table>, SqlError> {
        if let Some(table) = self.tables.get(name) {
            return Ok(Rc::clone(table));
        }
        let table =
            catalog::load(&self.store, name)?.ok_or_else(|| SqlError::NoTable(name.into()))?;
        let table = Rc::new(table);
        self.tables.insert(name.into(), Rc::clone(&table));
        Ok(table)
    }
}
