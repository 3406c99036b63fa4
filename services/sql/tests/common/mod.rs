//! A database in memory.

#![allow(dead_code, missing_docs, reason = "each test uses a part")]

use std::collections::BTreeMap;

use e3_service_sql::engine::{Database, Scope, SqlError, Store, Value, Visit};

#[derive(Default)]
pub struct Memory(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        _expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError> {
        let mut entries: Vec<_> = self.0.range(from.to_vec()..to.to_vec()).collect();
        if reverse {
            entries.reverse();
        }
        for (key, value) in entries {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

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
