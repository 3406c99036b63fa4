//! Items that are records: some fields of a request, stored together under its key.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::limits::FIELDS_MAX;
use e3_pipeline::{Builder, Record, RecordError};
use e3_sdk::{Error, config};

/// The fields of an item, and their names in a result.
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
        if empty || names.len() > FIELDS_MAX {
            Err(Error::Config {
                name: "fields",
                value: fields,
            })
        } else {
            Ok(Some(Fields { names }))
        }
    }

    /// The item of a record: those of the fields that the record has, at least one.
    pub fn item(&self, record: &Record<'_>) -> Result<Vec<u8>, RecordError> {
        if !self.names.iter().any(|(field, _)| record.has(field)) {
            return Err(RecordError::Missing(self.names[0].0.clone()));
        }
        let mut item = Builder::new();
        for (field, _) in &self.names {
            item.copy_as(record, field, field);
        }
        Ok(item.bytes().to_vec())
    }

    /// Adds the fields of an item; None if it is not a record.
    pub fn read(&self, item: &[u8], out: &mut Builder) -> Option<()> {
        let item = Record::parse(item).ok()?;
        for (field, name) in &self.names {
            out.copy_as(&item, field, name);
        }
        Some(())
    }

    /// The names in a request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }

    /// The names in a result.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(_, name)| &**name)
    }
}
