//! An SQL database for records.
//!
//! *A record without a field `sql`* is handled by the statements of the configuration:
//!
//! - `before`: one SELECT; the columns of its first row become parameters, NULL if it has no row;
//! - `statements`: INSERT, UPDATE and DELETE, separated by `;`. All take effect or none;
//! - `when-CHANNEL`: an expression; the record goes along that channel of `to` only if it is true
//!   (default: along all);
//! - `let-NAME`: an expression, whose value is the parameter `:NAME`;
//! - `answer`: names of parameters, separated by commas, which are the reply if this service replies
//!   (default: the record).
//!
//! All of these may use parameters. `:NAME` is the first that exists of: `:client` and `:sequence`, the
//! identity of the request (64 bits each, shown as signed integers), which no field can forge;
//! `:when_CHANNEL`, 1 or 0 (`-` in the name of the channel becomes `_`); `let-NAME`; the column of `before`
//! of that name, but not in `before` itself or what it needs; the field of the record, which must exist.
//! The record is forwarded unchanged.
//!
//! *A record with a field `sql`* is a client's own statement; its parameters `:NAME` are fields of the
//! record. A SELECT returns `columns` (texts), `rows` (arrays) and `more`, 1 if rows were left out because
//! the reply was full, else 0; a change returns `changed`, the number of rows. `allow`: `write` (default) or
//! `read`, only SELECT. `scope`: a field name, `=`, a column name: the statement reads and changes only rows
//! in which that column has the value of the record's field, in tables that have the column, and its result
//! is as if no other rows existed; CREATE and DROP are refused. Where such statements may write, the column
//! becomes the first of the primary key of each table of `schema` that has it, so rows of different users
//! never have the same key. They cannot change a table with another primary key, which was made before
//! there was a scope.
//!
//! Each slot of routing keys is a separate database: requests whose keys have the same slot see each
//! other's rows. `schema`: CREATE TABLE IF NOT EXISTS and CREATE INDEX IF NOT EXISTS, separated by `;`, the
//! initial content of each database. Later additions are applied to existing databases too, but an index
//! only to a table of at most 256 rows. `docs/sql.md` describes the SQL.
//!
//! Further configuration: that of [`Stage`]. Collection: ordered map `tables`. Errors: status 1 for an
//! error in a record or a statement, 2 for a table that does not exist, 3 for a primary key that exists,
//! what is not allowed, and what exceeds a bound (`limits`); then nothing is changed.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod engine;
pub mod limits;
mod procedure;
mod record;

use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use e3_pipeline::{Builder, Record, RecordError, Stage, Value as Field, status};
use e3_sdk::{Error, OrderedMap, Request, Service, config, reply};

use engine::{Database, Plan, Scope, SharedSchema, SqlError, Value};
use procedure::{Procedure, Refusal, Source};
use record::Rows;

/// Code of an attempt that failed because stored bytes are not a row.
const CODE_CORRUPT: i32 = 1;

/// Procedures that an instance keeps: one for each schema that its slots have.
const PROCEDURES_MAX: usize = 16;

/// The service.
#[derive(Debug)]
pub struct Sql {
    stage: Stage,
    database: Database<OrderedMap>,
    source: Source,
    procedures: Vec<(Rc<SharedSchema>, Rc<Procedure>)>,
    /// Field and column.
    scope: Option<(String, String)>,
    only_read: bool,
    values: Vec<Value>,
    out: Builder,
}

impl Service for Sql {
    fn init() -> Result<Self, Error> {
        let schema = config("schema").unwrap_or_default();
        let allow = config("allow").unwrap_or_else(|| "write".into());
        if !matches!(allow.as_str(), "read" | "write") {
            return Err(Error::Config {
                name: "allow",
                value: allow,
            });
        }
        let scope = scope()?;
        let key_column = scope.as_ref().filter(|_| allow == "write");
        let key_column = key_column.map(|(_, column)| column.as_str());
        let database = Database::scoped(OrderedMap::open("tables")?, &schema, key_column);
        let database = database.map_err(|error| Error::Config {
            name: "schema",
            value: error.to_string(),
        })?;
        let source = Source::read();
        let procedure = source.compile(&database)?;
        let procedures = [(Rc::clone(database.schema()), Rc::new(procedure))];
        Ok(Self {
            stage: Stage::open()?,
            source,
            procedures: procedures.into(),
            scope,
            only_read: allow == "read",
            database,
            values: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some(record) = self.stage.record(request)? else {
            return Ok(());
        };
        let handled = match self.act(request, &record) {
            Ok(()) => Ok(()),
            Err(Failure::Refused(refusal)) => self.refuse(&refusal),
            Err(Failure::Platform(error)) => Err(error),
        };
        if handled.is_err() {
            // The writes are dropped, so the cache of them must go too.
            self.database.forget();
        }
        handled
    }
}

/// Why a record was not handled.
enum Failure {
    /// The record or statement is wrong.
    Refused(Refusal),
    /// The platform failed.
    Platform(Error),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Host(error) => Self::Platform(error),
            SqlError::Corrupt => Self::Platform(Error::Code(CODE_CORRUPT)),
            error => Self::Refused(Refusal::Sql(error)),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Sql(error) => error.into(),
            refusal => Self::Refused(refusal),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Platform(error)
    }
}

/// The configured scope: a field and a column.
fn scope() -> Result<Option<(String, String)>, Error> {
    let Some(text) = config("scope") else {
        return Ok(None);
    };
    match text.split_once('=').map(|(a, b)| (a.trim(), b.trim())) {
        Some((field, column)) if !field.is_empty() && !column.is_empty() => {
            Ok(Some((field.into(), column.into())))
        }
        _ => Err(Error::Config {
            name: "scope",
            value: text,
        }),
    }
}

impl Sql {
    fn act(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Failure> {
        self.database.enter(request.slot())?;
        if record.has("sql") {
            self.on_statement(record)
        } else {
            self.on_record(request, record)
        }
    }

    fn on_record(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Failure> {
        let procedure = self.procedure()?;
        let id = request.id();
        let id = (id.client, id.sequence);
        procedure.run(&mut self.database, record, id, &mut self.values)?;
        self.database.commit()?;
        let values = &self.values;
        self.out.clear().copy(record, &[]);
        self.stage.send_record(request, &mut self.out, |channel| {
            procedure.wants(channel, values)
        })?;
        if !self.stage.replies() {
            return Ok(());
        }
        let mut answer = procedure.answer(values).peekable();
        if answer.peek().is_some() {
            self.out.clear();
            for (name, value) in answer {
                self.out.field(name, record::field(value));
            }
        }
        Ok(reply(status::OK, self.out.bytes())?)
    }

    /// The configured procedure for the schema of the request's slot.
    fn procedure(&mut self) -> Result<Rc<Procedure>, Failure> {
        let schema = self.database.schema();
        let mut known = self.procedures.iter();
        if let Some((_, procedure)) = known.find(|(known, _)| Rc::ptr_eq(known, schema)) {
            return Ok(Rc::clone(procedure));
        }
        // A client's CREATE or DROP has changed the schema.
        let compiled = self.source.compile(&self.database).map_err(|error| {
            let why = match error {
                Error::Config { name, value } => format!("configured {name}: {value}"),
                error => error.to_string(),
            };
            Refusal::Sql(SqlError::Syntax(why))
        })?;
        let compiled = Rc::new(compiled);
        if self.procedures.len() == PROCEDURES_MAX {
            self.procedures.clear();
        }
        let kept = (Rc::clone(schema), Rc::clone(&compiled));
        self.procedures.push(kept);
        Ok(compiled)
    }

    fn on_statement(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        let text = record.text("sql")?;
        if text.len() > limits::STATEMENT_BYTES_MAX {
            let max = limits::STATEMENT_BYTES_MAX;
            let why = format!("has {} bytes, must have at most {max}", text.len());
            return Err(RecordError::value("sql", why).into());
        }
        let prepared = self.database.prepare(text)?;
        let is_select = matches!(prepared.plan, Plan::Select(_));
        if self.only_read && !is_select {
            return Err(SqlError::NotASelect.into());
        }
        self.values.clear();
        for name in &prepared.names {
            if name == "?" {
                return Err(SqlError::Unsupported("?: parameters must be named, as :name").into());
            }
            self.values.push(record::value(record, name)?);
        }
        let scope = match &self.scope {
            Some((field, column)) => Some(Scope {
                column: column.clone(),
                value: record::value(record, field)?,
            }),
            None => None,
        };
        let (plan, values, scope) = (&prepared.plan, &self.values, scope.as_ref());
        self.out.clear();
        if is_select {
            let mut rows = Rows::new(plan.columns());
            self.database
                .query(plan, values, scope, &mut |row| rows.take(row))?;
            rows.write(&mut self.out);
        } else {
            let changed = self.database.execute(plan, values, scope)?;
            self.out.field("changed", Field::Int(changed as i64));
        }
        self.database.commit()?;
        Ok(reply(status::OK, self.out.bytes())?)
    }

    /// Answers an invalid request, which has changed nothing.
    fn refuse(&mut self, refusal: &Refusal) -> Result<(), Error> {
        self.database.rollback();
        match refusal {
            Refusal::Field(error) => self.stage.refuse(error),
            Refusal::Sql(error) => {
                let status = match error {
                    SqlError::NoTable(_) | SqlError::NoIndex(_) => status::NOT_FOUND,
                    SqlError::DuplicateKey(_)
                    | SqlError::TableExists(_)
                    | SqlError::IndexExists(_)
                    | SqlError::NotASelect
                    | SqlError::OutOfScope(_)
                    | SqlError::ScopeKey { .. }
                    | SqlError::TooMany { .. } => status::REFUSED,
                    _ => status::MALFORMED,
                };
                reply(status, error.to_string().as_bytes())
            }
        }
    }
}

e3_sdk::service!(Sql, request_capacity = 32 * 1024);
