//! Aggregates: count, sum, avg, min and max.

use super::SqlError;
use super::expr::{Env, Expr};
use super::value::{Arithmetic, Value, arithmetic, as_real, finite, order};

/// Aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    Sum,
    Average,
    Minimum,
    Maximum,
}

/// An aggregate: `argument` is none for `count(*)`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Aggregate {
    pub(super) function: Function,
    pub(super) argument: Option<Expr>,
}

/// The state of an aggregate. NULLs are skipped; without values, a count is 0 and the others are NULL.
#[derive(Debug)]
pub(super) struct Accumulator<'a> {
    aggregate: &'a Aggregate,
    count: i64,
    held: Value,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(aggregate: &'a Aggregate) -> Self {
        Self {
            aggregate,
            count: 0,
            held: Value::Null,
        }
    }

    pub(super) fn add(&mut self, env: Env<'_>) -> Result<(), SqlError> {
        let value = match &self.aggregate.argument {
            Some(argument) => argument.eval(env)?.into_owned(),
            None => Value::Integer(1),
        };
        if value == Value::Null {
            return Ok(());
        }
        self.count += 1;
        match self.aggregate.function {
            Function::Count => {}
            Function::Sum if self.count > 1 => {
                self.held = arithmetic(Arithmetic::Add, &self.held, &value)?;
            }
            // Also checks that the first operand is a number.
            Function::Sum => self.held = arithmetic(Arithmetic::Add, &value, &Value::Integer(0))?,
            Function::Average => {
                let held = as_real(&self.held)?.unwrap_or(0.0);
                self.held = finite(held + as_real(&value)?.unwrap_or(0.0))?;
            }
            Function::Minimum if self.count > 1 && order(&value, &self.held).is_ge() => {}
            Function::Maximum if self.count > 1 && order(&value, &self.held).is_le() => {}
            Function::Minimum | Function::Maximum => self.held = value,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Value, SqlError> {
        match self.aggregate.function {
            Function::Count => Ok(Value::Integer(self.count)),
            Function::Average => Ok(match as_real(&self.held)? {
                Some(sum) => Value::Real(sum / self.count as f64),
                None => Value::Null,
            }),
            _ => Ok(self.held),
        }
    }
}
