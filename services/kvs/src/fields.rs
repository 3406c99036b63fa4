//! Items that are records: some fields of a request, kept together under its key.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::limits::FIELDS_MAX;
use e3_pipeline::{Builder, Fault, Record};
use e3_sdk::{Error, config};

/// The fields that an item keeps, and what they are called when they are read back.
#[derive(Debug)]
pub struct Fields {
    names: Vec<(String, String)>,
}

impl Fields {
    /// From the configuration; None if items are values.
    pub fn open() -> Result<Option<Fields>, Error> {
        let Some(fields) = config("fields") else {
            return Ok(None);
        };
        let prefix = config("prefix").unwrap_or_else(|| "last_".to_string());
        let names: Vec<(String, String)> = fields
            .split(',')
            .map(|field| {
                (
                    field.trim().to_string(),
                    format!("{prefix}{}", field.trim()),
                )
            })
            .collect();
        let empty = names.iter().any(|(field, _)| field.is_empty());
        match empty || names.len() > FIELDS_MAX {
            false => Ok(Some(Fields { names })),
            true => Err(Error::Config {
                name: "fields",
                value: fields,
            }),
        }
    }

    /// The item of a record: those of the fields that it has, at least one.
    pub fn item(&self, record: &Record<'_>) -> Result<Vec<u8>, Fault> {
        if !self.names.iter().any(|(field, _)| record.has(field)) {
            return Err(Fault::Missing(self.names[0].0.clone()));
        }
        let mut item = Builder::new();
        for (field, _) in &self.names {
            item.copy_as(record, field, field);
        }
        Ok(item.bytes().to_vec())
    }

    /// Adds what an item holds; None if it is no record.
    pub fn read(&self, item: &[u8], out: &mut Builder) -> Option<()> {
        let item = Record::parse(item).ok()?;
        for (field, name) in &self.names {
            out.copy_as(&item, field, name);
        }
        Some(())
    }

    /// Their names in a request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }

    /// The names under which they are read back.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(_, name)| &**name)
    }
}
