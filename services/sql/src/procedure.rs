//! The configured SQL that handles each record.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use e3_pipeline::{Record, RecordError};
use e3_sdk::{Error, config};

use crate::engine::{Database, Expr, Plan, SqlError, Store, Value};
use crate::record;

/// Why a record is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A field.
    Field(RecordError),
    /// A statement.
    Sql(SqlError),
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        Self::Field(error)
    }
}

/// The text of the configuration.
#[derive(Debug)]
pub(crate) struct Source {
    before: String,
    statements: String,
    /// Channels in order, with their conditions.
    when: Vec<(String, Option<String>)>,
    answer: Vec<String>,
}

impl Source {
    pub(crate) fn read() -> Self {
        let list = |name| {
            let text = config(name).unwrap_or_default();
            let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
            names.map(String::from).collect::<Vec<_>>()
        };
        let when = list("to").into_iter().map(|channel| {
            let condition = config(&format!("when-{channel}"));
            (channel, condition)
        });
        Self {
            before: config("before").unwrap_or_default(),
            statements: config("statements").unwrap_or_default(),
            when: when.collect(),
            answer: list("answer"),
        }
    }

    /// Parses everything against the database's schema.
    pub(crate) fn compile<S: Store>(&self, database: &Database<S>) -> Result<Procedure, Error> {
        let mut compiler = Compiler {
            source: self,
            database,
            procedure: Procedure::default(),
            states: Vec::new(),
            before: Vec::new(),
            columns: Vec::new(),
        };
        compiler.compile()?;
        Ok(compiler.procedure)
    }
}

/// Where a parameter's value comes from. Later steps use the values of earlier ones.
#[derive(Debug)]
enum Step {
    /// The field of the record with that name.
    Field(usize),
    /// The request's client.
    Client(usize),
    /// The request's number.
    Sequence(usize),
    /// A SELECT whose first row gives parameters the values of columns.
    Before(Box<Plan>, Vec<(usize, usize)>),
    /// An expression.
    Let(usize, Expr),
    /// The truth value of an expression.
    When(usize, Expr),
}

/// The configuration, ready to run. All its parts share their parameters, whose values are found
/// once for each record.
#[derive(Debug, Default)]
pub(crate) struct Procedure {
    names: Vec<String>,
    steps: Vec<Step>,
    statements: Vec<Plan>,
    /// Channels with conditions, and the parameters with the truth values.
    when: Vec<(String, usize)>,
    answer: Vec<usize>,
}

impl Procedure {
    /// Finds the parameters' values, then runs the statements.
    pub(crate) fn run<S: Store>(
        &self,
        database: &mut Database<S>,
        record: &Record<'_>,
        (client, sequence): (u64, u64),
        values: &mut Vec<Value>,
    ) -> Result<(), Refusal> {
        values.clear();
        values.resize(self.names.len(), Value::Null);
        for step in &self.steps {
            match step {
                Step::Field(at) => values[*at] = record::value(record, &self.names[*at])?,
                // Identities are unsigned, integers are signed: the bits are kept.
                Step::Client(at) => values[*at] = Value::Integer(client as i64),
                Step::Sequence(at) => values[*at] = Value::Integer(sequence as i64),
                Step::Before(plan, columns) => {
                    let mut first = Vec::new();
                    database.query(plan, values, None, &mut |row| {
                        let wanted = columns.iter().map(|(column, _)| row[*column].clone());
                        first.extend(wanted);
                        false
                    })?;
                    for (value, (_, at)) in first.into_iter().zip(columns) {
                        values[*at] = value;
                    }
                }
                Step::Let(at, expr) => values[*at] = expr.value(values)?,
                Step::When(at, expr) => {
                    values[*at] = Value::Integer(i64::from(expr.is_true(values)?));
                }
            }
        }
        for statement in &self.statements {
            database.execute(statement, values, None)?;
        }
        Ok(())
    }

    /// Whether the record goes along a channel, by the values of a run.
    pub(crate) fn wants(&self, channel: &str, values: &[Value]) -> bool {
        let mut when = self.when.iter().filter(|(name, _)| name == channel);
        when.all(|(_, at)| values[*at] == Value::Integer(1))
    }

    /// The parameters of the answer with their values in a run.
    pub(crate) fn answer<'a>(
        &'a self,
        values: &'a [Value],
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let named = |at: &usize| (self.names[*at].as_str(), &values[*at]);
        self.answer.iter().map(named)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unseen,
    /// Its value is being resolved.
    Open,
    Done,
}

/// Finds for each parameter where its value comes from.
struct Compiler<'a, S> {
    source: &'a Source,
    database: &'a Database<S>,
    procedure: Procedure,
    /// One for each name.
    states: Vec<State>,
    /// Columns of `before`: none while its own parameters are being resolved.
    before: Vec<String>,
    /// Columns of `before` that are used, and the parameters with their values.
    columns: Vec<(usize, usize)>,
}

/// An error in a configuration value.
fn config_error(name: &'static str, value: impl ToString) -> Error {
    Error::Config {
        name,
        value: value.to_string(),
    }
}

impl<S: Store> Compiler<'_, S> {
    fn compile(&mut self) -> Result<(), Error> {
        self.before = self.before()?;
        let text = &self.source.statements;
        let statements = self.database.compile(text, &mut self.procedure.names);
        self.procedure.statements =
            statements.map_err(|error| config_error("statements", error))?;
        if let Some(plan) = self
            .procedure
            .statements
            .iter()
            .find(|plan| !plan.is_change())
        {
            let why = format!("{plan:?} is not an INSERT, UPDATE or DELETE");
            return Err(config_error("statements", why));
        }
        for (channel, condition) in &self.source.when {
            if condition.is_some() {
                let at = self.place(&truth_of(channel));
                self.procedure.when.push((channel.clone(), at));
            }
        }
        for name in &self.source.answer {
            let at = self.place(name);
            self.procedure.answer.push(at);
        }
        let mut at = 0;
        while at < self.procedure.names.len() {
            self.find(at)?;
            at += 1;
        }
        for step in &mut self.procedure.steps {
            if let Step::Before(_, columns) = step {
                columns.append(&mut self.columns);
            }
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> usize {
        let names = &mut self.procedure.names;
        let known = names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        })
    }

    /// Finds where the value of a parameter comes from.
    fn find(&mut self, at: usize) -> Result<(), Error> {
        let name = self.procedure.names[at].clone();
        let len = self.states.len().max(at + 1);
        self.states.resize(len, State::Unseen);
        match self.states[at] {
            State::Done => return Ok(()),
            State::Open => return Err(config_error("let-NAME", format!("{name}: needs itself"))),
            State::Unseen => self.states[at] = State::Open,
        }
        let condition = self.source.when.iter().find_map(|(channel, condition)| {
            let condition = condition.as_ref()?;
            (truth_of(channel) == name).then_some(condition)
        });
        let step = if name == "?" {
            return Err(config_error("statements", "?: must have a name, as :name"));
        } else if name == "client" {
            Step::Client(at)
        } else if name == "sequence" {
            Step::Sequence(at)
        } else if let Some(condition) = condition {
            Step::When(at, self.expression("when-CHANNEL", condition)?)
        } else if let Some(text) = config(&format!("let-{name}")) {
            Step::Let(at, self.expression("let-NAME", &text)?)
        } else if let Some(column) = self.before.iter().position(|column| *column == name) {
            self.columns.push((column, at));
            self.states[at] = State::Done;
            return Ok(());
        } else {
            Step::Field(at)
        };
        self.procedure.steps.push(step);
        self.states[at] = State::Done;
        Ok(())
    }

    /// Resolves the parameters that an expression or statement needs.
    fn find_all(&mut self, names: &[String]) -> Result<(), Error> {
        for name in names {
            let at = self.place(name);
            self.find(at)?;
        }
        Ok(())
    }

    fn expression(&mut self, name: &'static str, text: &str) -> Result<Expr, Error> {
        let wrong = |error| config_error(name, format!("{text}: {error}"));
        let mut needed = Vec::new();
        Expr::parse(text, &mut needed).map_err(wrong)?;
        self.find_all(&needed)?;
        Expr::parse(text, &mut self.procedure.names).map_err(wrong)
    }

    fn before(&mut self) -> Result<Vec<String>, Error> {
        let text = &self.source.before;
        let wrong = |error| config_error("before", error);
        let mut needed = Vec::new();
        self.database.compile(text, &mut needed).map_err(wrong)?;
        self.find_all(&needed)?;
        let plans = self.database.compile(text, &mut self.procedure.names);
        let mut plans = plans.map_err(wrong)?.into_iter();
        let columns = match (plans.next(), plans.next()) {
            (None, _) => Vec::new(),
            (Some(plan @ Plan::Select(_)), None) => {
                let columns = plan.columns().to_vec();
                self.procedure
                    .steps
                    .push(Step::Before(Box::new(plan), Vec::new()));
                columns
            }
            _ => return Err(config_error("before", "must be one SELECT")),
        };
        Ok(columns)
    }
}

/// The parameter that says whether a record goes along a channel.
fn truth_of(channel: &str) -> String {
    format!("when_{}", channel.replace('-', "_"))
}
