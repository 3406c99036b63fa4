//! A database in memory.

#![allow(dead_code, missing_docs, reason = "each test uses a part")]

use e3_service_sql::engine::memory::Memory;
use e3_service_sql::engine::{Database, Scope, SqlError, Value};

pub struct Shell(pub Database<Memory>);

impl Shell {
    pub fn new() -> Self {
        Self(Database::new(Memory::default(), "").unwrap())
    }

    pub fn run(&mut self, text: &str, parameters: &[Value]) -> Result<u64, SqlError> {
        self.change(text, parameters, None)
    }

    pub fn change(
        &mut self,
        text: &str,
        parameters: &[Value],
        scope: Option<&Scope>,
    ) -> Result<u64, SqlError> {
        self.0.enter(0).unwrap();
        let prepared = self.0.prepare(text)?;
        let changed = self.0.execute(&prepared.plan, parameters, scope);
        match &changed {
            Ok(_) => self.0.commit().unwrap(),
            Err(_) => self.0.rollback(),
        }
        changed
    }

    pub fn rows(&mut self, text: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        self.scoped(text, parameters, None)
    }

    pub fn scoped(
        &mut self,
        text: &str,
        parameters: &[Value],
        scope: Option<&Scope>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        self.0.enter(0).unwrap();
        let prepared = self.0.prepare(text)?;
        let mut rows = Vec::new();
        self.0
            .query(&prepared.plan, parameters, scope, &mut |row| {
                rows.push(row.to_vec());
                true
            })?;
        Ok(rows)
    }

    /// One value of one row.
    pub fn value(&mut self, text: &str) -> Result<Value, SqlError> {
        Ok(self.rows(text, &[])?.remove(0).remove(0))
    }
}

pub const fn int(value: i64) -> Value {
    Value::Integer(value)
}

pub fn text(value: &str) -> Value {
    Value::Text(value.into())
}
