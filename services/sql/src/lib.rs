//! Stores the readings of thermostats in SQL tables, answers questions, triggers the analyses.
//!
//! A reading becomes a row of `readings`, whose primary key ends with the request's identity:
//! each accepted update is one row. `latest` holds one row for each thermostat: the last
//! reading, the last one passed to `ema`, and the count of rows. The client gets the row's
//! number, and the analyses get the reading if it passes their threshold:
//!
//! - `ema`: it differs by `ema-change-c` (default 0.5) or more from the last one passed on
//!   (send on delta: the average stays within that of what all readings would give);
//! - `spike`: it differs by `spike-change-c` or more from the last reading. Default 0, that is
//!   every reading: the detector judges a change by the usual changes, so it must see those;
//! - `recommend`: it is outside of `comfort-low-c..=comfort-high-c` (default 10..=18).
//!
//! A late reading, older than the latest, is stored and triggers nothing. A question in SQL is a
//! SELECT that sees the asking thermostat's rows only; the other questions go to the service
//! concerned, which answers.
//!
//! Needs the channels `ema`, `spike` and `recommend` and the ordered collection `tables`. At
//! most three messages and a reply for each request.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod engine;
pub mod limits;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use e3_iot_messages::{
    AnalysisMessage, Query, Reading, Reply, RowsWriter, SqlMessage, Value, routing_key, status,
};
use e3_sdk::{Channel, Error, OrderedMap, Request, RequestId, Service, config_or, reply};

use engine::{Database, Plan, Scope, SqlError};

const TABLES: [(&str, &str); 2] = [
    (
        "readings",
        "CREATE TABLE IF NOT EXISTS readings (
            thermostat INTEGER, reading_time_s INTEGER, client INTEGER, sequence INTEGER,
            temperature_c REAL NOT NULL,
            PRIMARY KEY (thermostat, reading_time_s, client, sequence))",
    ),
    (
        "latest",
        "CREATE TABLE IF NOT EXISTS latest (
            thermostat INTEGER PRIMARY KEY, reading_time_s INTEGER NOT NULL,
            temperature_c REAL NOT NULL, ema_temperature_c REAL NOT NULL,
            row_count INTEGER NOT NULL)",
    ),
];
const INSERT_READING: &str = "INSERT INTO readings
    (thermostat, reading_time_s, client, sequence, temperature_c) VALUES (?, ?, ?, ?, ?)";
const SELECT_LATEST: &str = "SELECT reading_time_s, temperature_c, ema_temperature_c, row_count
    FROM latest WHERE thermostat = ?";
const INSERT_LATEST: &str = "INSERT INTO latest
    (thermostat, reading_time_s, temperature_c, ema_temperature_c, row_count)
    VALUES (?, ?, ?, ?, ?)";
const UPDATE_LATEST: &str = "UPDATE latest
    SET reading_time_s = ?, temperature_c = ?, ema_temperature_c = ?, row_count = ?
    WHERE thermostat = ?";

/// Code of an attempt that failed over stored bytes that are no row.
const CODE_CORRUPT: i32 = 1;

/// What passes to the analyses.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    ema_change_c: f64,
    spike_change_c: f64,
    comfort_low_c: f64,
    comfort_high_c: f64,
}

/// A row of `latest`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Latest {
    reading_time_s: i64,
    temperature_c: f64,
    ema_temperature_c: f64,
    row_count: i64,
}

/// Which analyses a reading goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Triggers {
    ema: bool,
    spike: bool,
    recommend: bool,
}

impl Thresholds {
    /// The row after a reading, and where the reading goes.
    fn step(&self, before: Option<&Latest>, reading: &Reading) -> (Latest, Triggers) {
        let temperature_c = reading.temperature_c;
        let recommend = !(self.comfort_low_c..=self.comfort_high_c).contains(&temperature_c);
        let mut after = Latest {
            reading_time_s: reading.reading_time_s,
            temperature_c,
            ema_temperature_c: temperature_c,
            row_count: 1,
        };
        let Some(before) = before else {
            let first = Triggers {
                ema: true,
                spike: true,
                recommend,
            };
            return (after, first);
        };
        after.row_count = before.row_count + 1;
        if reading.reading_time_s < before.reading_time_s {
            let row_count = after.row_count;
            return (
                Latest {
                    row_count,
                    ..*before
                },
                Triggers::default(),
            );
        }
        let ema = distance(temperature_c, before.ema_temperature_c) >= self.ema_change_c;
        if !ema {
            after.ema_temperature_c = before.ema_temperature_c;
        }
        let spike = distance(temperature_c, before.temperature_c) >= self.spike_change_c;
        (
            after,
            Triggers {
                ema,
                spike,
                recommend,
            },
        )
    }
}

fn distance(a: f64, b: f64) -> f64 {
    (a - b).abs()
}

/// The service.
#[derive(Debug)]
pub struct Sql {
    database: Database<OrderedMap>,
    tables_ready: bool,
    thresholds: Thresholds,
    ema: Channel,
    spike: Channel,
    recommend: Channel,
    out: Vec<u8>,
}

impl Service for Sql {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            database: Database::new(OrderedMap::open("tables")?),
            tables_ready: false,
            thresholds: Thresholds {
                ema_change_c: config_or("ema-change-c", 0.5)?,
                spike_change_c: config_or("spike-change-c", 0.0)?,
                comfort_low_c: config_or("comfort-low-c", 10.0)?,
                comfort_high_c: config_or("comfort-high-c", 18.0)?,
            },
            ema: Channel::open("ema")?,
            spike: Channel::open("spike")?,
            recommend: Channel::open("recommend")?,
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let handled = match SqlMessage::decode(request.payload()) {
            Ok(SqlMessage::Store(reading)) => self.on_store(&reading, request.id()),
            Ok(SqlMessage::Query {
                thermostat,
                query: Query::Sql { text, parameters },
            }) => self.on_select(thermostat, text, &parameters),
            Ok(SqlMessage::Query { thermostat, query }) => self.on_question(thermostat, &query),
            Err(error) => self.answer(&Reply::Malformed(error.to_string())),
        };
        if handled.is_err() {
            // The writes are dropped, so what is kept of them must go too.
            self.database.forget();
            self.tables_ready = false;
        }
        handled
    }
}

impl Sql {
    fn on_store(&mut self, reading: &Reading, id: RequestId) -> Result<(), Error> {
        match self.store(reading, id) {
            Ok((latest, triggers)) => {
                self.out.clear();
                AnalysisMessage::Reading(*reading).encode(&mut self.out);
                let key = routing_key(reading.thermostat);
                for (channel, triggered) in [
                    (&self.ema, triggers.ema),
                    (&self.spike, triggers.spike),
                    (&self.recommend, triggers.recommend),
                ] {
                    if triggered {
                        channel.send(&key, &self.out)?;
                    }
                }
                let row_id = latest.row_count.unsigned_abs();
                self.answer(&Reply::Stored { row_id })
            }
            Err(error) => self.refuse(error),
        }
    }

    fn store(&mut self, reading: &Reading, id: RequestId) -> Result<(Latest, Triggers), SqlError> {
        self.ensure_tables()?;
        let thermostat = Value::Integer(i64::from(reading.thermostat));
        // Identities are 64 bits without a sign, integers have one: the bits are what counts.
        let row = [
            thermostat.clone(),
            Value::Integer(reading.reading_time_s),
            Value::Integer(id.client as i64),
            Value::Integer(id.sequence as i64),
            Value::Real(reading.temperature_c),
        ];
        let plan = self.database.prepare(INSERT_READING)?;
        self.database.execute(&plan, &row)?;
        let before = self.latest(&thermostat)?;
        let (after, triggers) = self.thresholds.step(before.as_ref(), reading);
        let mut columns = vec![
            Value::Integer(after.reading_time_s),
            Value::Real(after.temperature_c),
            Value::Real(after.ema_temperature_c),
            Value::Integer(after.row_count),
        ];
        let statement = if before.is_some() {
            columns.push(thermostat);
            UPDATE_LATEST
        } else {
            columns.insert(0, thermostat);
            INSERT_LATEST
        };
        let plan = self.database.prepare(statement)?;
        self.database.execute(&plan, &columns)?;
        Ok((after, triggers))
    }

    fn latest(&mut self, thermostat: &Value) -> Result<Option<Latest>, SqlError> {
        let plan = self.database.prepare(SELECT_LATEST)?;
        let mut latest = None;
        let parameters = core::slice::from_ref(thermostat);
        self.database.query(&plan, parameters, None, &mut |row| {
            if let [
                Value::Integer(reading_time_s),
                Value::Real(temperature_c),
                Value::Real(ema_temperature_c),
                Value::Integer(row_count),
            ] = row
            {
                latest = Some(Latest {
                    reading_time_s: *reading_time_s,
                    temperature_c: *temperature_c,
                    ema_temperature_c: *ema_temperature_c,
                    row_count: *row_count,
                });
            }
            true
        })?;
        Ok(latest)
    }

    fn ensure_tables(&mut self) -> Result<(), SqlError> {
        if !self.tables_ready {
            for (_, statement) in TABLES {
                let plan = self.database.prepare(statement)?;
                self.database.execute(&plan, &[])?;
            }
            self.tables_ready = true;
        }
        Ok(())
    }

    fn on_select(
        &mut self,
        thermostat: u32,
        text: &str,
        parameters: &[Value],
    ) -> Result<(), Error> {
        let mut selected = self.select(thermostat, text, parameters);
        if let Err(SqlError::NoTable(name)) = &selected
            && TABLES.iter().any(|(known, _)| known == name)
        {
            // Nothing has been stored in this shard yet.
            selected = self
                .ensure_tables()
                .and_then(|()| self.select(thermostat, text, parameters));
        }
        match selected {
            Ok(()) => reply(status::OK, &self.out),
            Err(error) => self.refuse(error),
        }
    }

    /// Runs a SELECT and leaves the reply in `out`.
    fn select(
        &mut self,
        thermostat: u32,
        text: &str,
        parameters: &[Value],
    ) -> Result<(), SqlError> {
        let plan = self.database.prepare(text)?;
        let Plan::Select(select) = &*plan else {
            return Err(SqlError::NotASelect);
        };
        let scope = Scope {
            column: "thermostat",
            value: Value::Integer(i64::from(thermostat)),
        };
        self.out.clear();
        let mut rows = RowsWriter::new(&mut self.out, &select.columns);
        let mut full = false;
        self.database
            .query(&plan, parameters, Some(&scope), &mut |row| {
                full = !rows.row(row);
                !full
            })?;
        rows.finish(full);
        Ok(())
    }

    fn on_question(&mut self, thermostat: u32, query: &Query<'_>) -> Result<(), Error> {
        let (channel, from_time_s) = match query {
            Query::Spikes { from_time_s } => (&self.spike, *from_time_s),
            Query::Ema => (&self.ema, 0),
            Query::Recommendation => (&self.recommend, 0),
            // `handle` answers these itself.
            Query::Sql { .. } => return Ok(()),
        };
        self.out.clear();
        AnalysisMessage::Query {
            thermostat,
            from_time_s,
        }
        .encode(&mut self.out);
        channel.send(&routing_key(thermostat), &self.out)
    }

    /// Answers a fault of the request; passes a fault of the platform on.
    fn refuse(&mut self, error: SqlError) -> Result<(), Error> {
        match error {
            SqlError::Host(error) => Err(error),
            SqlError::Corrupt => Err(Error::Code(CODE_CORRUPT)),
            error => self.answer(&Reply::Sql(error.to_string())),
        }
    }

    fn answer(&mut self, answer: &Reply) -> Result<(), Error> {
        self.out.clear();
        answer.encode(&mut self.out);
        reply(answer.status(), &self.out)
    }
}

e3_sdk::service!(Sql, request_capacity = 32 * 1024);
