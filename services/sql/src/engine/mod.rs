//! A small SQL engine on an ordered map.
//!
//! `plan` turns text into a [`Plan`] with the parser of the crate `sqlparser`, `access` chooses the
//! range of the primary key or of an index that a WHERE clause allows, `walk` scans it,
//! `select` and `change` execute statements. A table is a range of the map: its rows in the order of an
//! order-preserving encoding of their primary keys (`key`), so ranges and sorting by a key
//! prefix are scans; an index is a second range, whose keys end with those of the rows. A join is a
//! nested loop.
//!
//! Each slot of routing keys is a separate database with its own schema, so a shard can be
//! split between any two slots without a change to what statements see.

mod access;
mod aggregate;
mod change;
mod error;
mod expr;
mod key;
#[cfg(not(target_arch = "wasm32"))]
pub mod memory;
mod plan;
mod schema;
mod scope;
mod select;
mod store;
mod value;
mod walk;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Deref;

use crate::limits::STATEMENTS_CACHED_MAX;
use change::Target;
use store::Transaction;
use walk::Context;

pub use error::SqlError;
pub use expr::Expr;
pub use plan::{Definition, Plan};
pub use schema::{Column, Index, Kind, Schema, Table};
pub use scope::Scope;
pub use store::{Store, Visit};
pub use value::Value;

/// A statement with the names of its parameters, in the order in which values are given.
#[derive(Debug)]
pub struct Prepared {
    /// The statement.
    pub plan: Plan,
    /// `?` for each `?`; `name` for all `:name` of it.
    pub names: Vec<String>,
}

/// A schema with the statements that were parsed for it.
#[derive(Debug, Default)]
pub struct SharedSchema {
    schema: Schema,
    /// Statements by their text. A schema does not change (a definition makes another one), so they
    /// stay valid.
    statements: RefCell<BTreeMap<String, Rc<Prepared>>>,
}

impl SharedSchema {
    fn new(schema: Schema) -> Rc<Self> {
        let statements = RefCell::default();
        Rc::new(Self { schema, statements })
    }
}

impl Deref for SharedSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.schema
    }
}

/// The state of one slot's database.
#[derive(Clone, Debug)]
struct Space {
    schema: Rc<SharedSchema>,
    /// True if the schema is in the store.
    is_stored: bool,
    /// Bytes that storing it takes.
    schema_bytes: usize,
}

impl Space {
    fn new(schema: Rc<SharedSchema>, is_stored: bool) -> Self {
        let schema_bytes = schema.encode().len() + key::PREFIX_BYTES;
        Self {
            schema,
            is_stored,
            schema_bytes,
        }
    }
}

/// The databases in a store, one for each slot, with their parsed statements. Statements are for
/// the one that was entered last; their changes are visible at once and stored by `commit`.
#[derive(Debug)]
pub struct Database<S> {
    store: Transaction<S>,
    /// The initial schema of every database.
    definitions: Vec<Definition>,
    initial: Rc<SharedSchema>,
    /// Schemas by their encoding: slots that have the same one share it and its statements.
    schemas: BTreeMap<Vec<u8>, Rc<SharedSchema>>,
    spaces: BTreeMap<u16, Space>,
    slot: u16,
    current: Space,
}

impl<S: Store> Database<S> {
    /// The databases in `store`; each begins with `definitions`.
    pub fn new(store: S, definitions: &str) -> Result<Self, SqlError> {
        Self::scoped(store, definitions, None)
    }

    /// The databases in `store`; each begins with `definitions`. If statements are to change
    /// rows within scopes on a column, it becomes the first of the primary key of each table that
    /// has it, so that each scope has keys of its own.
    pub fn scoped(store: S, definitions: &str, column: Option<&str>) -> Result<Self, SqlError> {
        let empty = Schema::default();
        let plans = plan::statements(definitions, usize::MAX, &empty, &mut Vec::new())?;
        let definitions: Vec<Definition> = plans
            .into_iter()
            .map(|plan| match plan {
                Plan::Define(mut definition) if definition.is_repeatable() => {
                    if let Some(column) = column {
                        definition.lead_key_with(column);
                    }
                    Ok(definition)
                }
                _ => Err(SqlError::Unsupported(
                    "a schema with other statements than CREATE IF NOT EXISTS and DROP IF EXISTS",
                )),
            })
            .collect::<Result<_, _>>()?;
        let mut initial = empty;
        for definition in &definitions {
            initial = definition.apply(&initial)?.unwrap_or(initial);
        }
        let initial = SharedSchema::new(initial);
        Ok(Self {
            store: Transaction::new(store),
            definitions,
            schemas: BTreeMap::from([(initial.encode(), Rc::clone(&initial))]),
            spaces: BTreeMap::new(),
            slot: 0,
            current: Space::new(Rc::clone(&initial), false),
            initial,
        })
    }

    /// Selects the database of a slot.
    pub fn enter(&mut self, slot: u16) -> Result<(), SqlError> {
        self.slot = slot;
        if let Some(space) = self.spaces.get(&slot) {
            self.current = space.clone();
            self.store.reserve(self.current.schema_bytes);
            return Ok(());
        }
        self.current = Space::new(Rc::clone(&self.initial), false);
        // Without a schema nothing is written before the first change.
        if let Some(bytes) = self.store.get(&key::schema(slot))? {
            let schema = match self.schemas.get(&bytes) {
                Some(schema) => Rc::clone(schema),
                None => self.known(Schema::decode(&bytes)?),
            };
            self.current = Space::new(schema, true);
            if !Rc::ptr_eq(&self.current.schema, &self.initial) {
                self.migrate()?;
            }
        }
        self.store.reserve(self.current.schema_bytes);
        self.spaces.insert(slot, self.current.clone());
        Ok(())
    }

    /// The schema of the database.
    pub fn schema(&self) -> &Rc<SharedSchema> {
        &self.current.schema
    }

    /// The store, with the committed changes.
    pub fn store(&self) -> &S {
        self.store.inner()
    }

    /// Parses a statement, or finds it in the cache.
    pub fn prepare(&self, text: &str) -> Result<Rc<Prepared>, SqlError> {
        let schema = &self.current.schema;
        if let Some(prepared) = schema.statements.borrow().get(text) {
            return Ok(Rc::clone(prepared));
        }
        let mut names = Vec::new();
        let plans = plan::statements(text, 1, schema, &mut names)?;
        let plan = plans.into_iter().next();
        let plan = plan.ok_or(SqlError::Unsupported("an empty statement"))?;
        let prepared = Rc::new(Prepared { plan, names });
        let mut statements = schema.statements.borrow_mut();
        if statements.len() >= STATEMENTS_CACHED_MAX {
            statements.clear();
        }
        statements.insert(text.into(), Rc::clone(&prepared));
        Ok(prepared)
    }

    /// Parses statements that share their parameters: `names` has those that are known and takes
    /// those that are new.
    pub fn compile(&self, text: &str, names: &mut Vec<String>) -> Result<Vec<Plan>, SqlError> {
        plan::statements(text, usize::MAX, &self.current.schema, names)
    }

    /// Runs a statement that changes something, within `scope` if there is one; returns the rows
    /// changed. Of one that fails, `rollback` takes back what it did.
    pub fn execute(
        &mut self,
        plan: &Plan,
        parameters: &[Value],
        scope: Option<&Scope>,
    ) -> Result<u64, SqlError> {
        self.ensure_stored()?;
        let mut target = Target {
            store: &mut self.store,
            slot: self.slot,
            parameters,
            scope,
        };
        match plan {
            Plan::Insert(insert) => target.insert(insert),
            Plan::Update(update) => target.update(update),
            Plan::Delete(delete) => target.delete(delete),
            Plan::Define(_) if scope.is_some() => {
                Err(SqlError::Unsupported("CREATE and DROP here"))
            }
            Plan::Define(definition) => self.define(definition),
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
        let context = Context {
            store: &self.store,
            slot: self.slot,
            parameters,
        };
        match plan {
            Plan::Select(plan) => select::select(context, plan, scope, sink),
            _ => Err(SqlError::NotASelect),
        }
    }

    /// Stores the changes since the last commit.
    pub fn commit(&mut self) -> Result<(), SqlError> {
        self.store.commit()
    }

    /// Discards the changes since the last commit.
    pub fn rollback(&mut self) {
        self.store.rollback();
        self.spaces.remove(&self.slot);
    }

    /// Drops the caches. Needed after the store has lost writes.
    pub fn forget(&mut self) {
        self.store.rollback();
        self.spaces.clear();
    }

    /// The shared copy of a schema.
    fn known(&mut self, schema: Schema) -> Rc<SharedSchema> {
        let encoded = schema.encode();
        if self.schemas.len() >= STATEMENTS_CACHED_MAX && !self.schemas.contains_key(&encoded) {
            // Slots keep the copies that they have.
            self.schemas.clear();
            let initial = Rc::clone(&self.initial);
            self.schemas.insert(initial.encode(), initial);
        }
        let known = self
            .schemas
            .entry(encoded)
            .or_insert_with(|| SharedSchema::new(schema));
        Rc::clone(known)
    }

    /// Extends a stored schema to the configured one, if that defines more than it
    /// did. What does not fit into one request, an index over many rows, is left as it is.
    fn migrate(&mut self) -> Result<(), SqlError> {
        let before = self.current.clone();
        for definition in self.definitions.clone() {
            match self.define(&definition) {
                Err(SqlError::TooMany { .. }) => {
                    self.store.rollback();
                    self.current = before;
                    break;
                }
                defined => defined?,
            };
        }
        self.current.is_stored = true;
        Ok(())
    }

    /// Stores the schema before the first change.
    fn ensure_stored(&mut self) -> Result<(), SqlError> {
        if !self.current.is_stored {
            let encoded = self.initial.encode();
            if !encoded.is_empty() {
                self.store
                    .put_reserved(key::schema(self.slot).to_vec(), encoded);
            }
            self.current.is_stored = true;
            self.spaces.insert(self.slot, self.current.clone());
        }
        Ok(())
    }

    fn define(&mut self, definition: &Definition) -> Result<u64, SqlError> {
        let old = Rc::clone(&self.current.schema);
        let Some(new) = definition.apply(&old)? else {
            return Ok(0);
        };
        let new = self.known(new);
        let mut target = Target {
            store: &mut self.store,
            slot: self.slot,
            parameters: &[],
            scope: None,
        };
        match definition {
            Definition::CreateTable { .. } => {}
            Definition::CreateIndex { name, table, .. } => {
                // Found by the old table, which does not have the index yet.
                let table = old.table(table)?;
                let with = new.table(&table.name)?;
                let index = with.indices.iter().find(|index| index.name == *name);
                index.map_or(Ok(()), |index| target.fill(&table, index))?;
            }
            Definition::DropTable { name, .. } => target.clear(&*old.table(name)?)?,
            Definition::DropIndex { name, .. } => {
                let indices = old.tables.iter().flat_map(|table| &table.indices);
                let mut dropped = indices.filter(|index| index.name == *name);
                dropped.try_for_each(|index| target.empty(index))?;
            }
        }
        self.store
            .put(key::schema(self.slot).to_vec(), new.encode())?;
        self.current = Space::new(new, true);
        self.spaces.insert(self.slot, self.current.clone());
        Ok(0)
    }
}
