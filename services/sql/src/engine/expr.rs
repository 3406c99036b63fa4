//! Expressions over one row, with SQL's three-valued logic.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use e3_iot_messages::Value;

use super::SqlError;
use super::value::{Arithmetic, arithmetic, as_real, compare, finite, from_truth, order, truth};

/// An expression with its columns resolved.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Literal(Value),
    /// The n-th `?`, from 0.
    Parameter(usize),
    /// The n-th column of the row.
    Column(usize),
    /// The n-th aggregate of the query.
    Aggregate(usize),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
}

/// Comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    /// The operator with its sides exchanged.
    pub(super) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// What an expression is evaluated over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Env<'a> {
    pub(super) row: &'a [Value],
    pub(super) parameters: &'a [Value],
    pub(super) aggregates: &'a [Value],
}

impl Expr {
    /// The value of the expression.
    pub(super) fn eval(&self, env: Env<'_>) -> Result<Value, SqlError> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Parameter(index) => Ok(env.parameters[*index].clone()),
            Self::Column(index) => Ok(env.row[*index].clone()),
            Self::Aggregate(index) => Ok(env.aggregates[*index].clone()),
            Self::Negate(operand) => match operand.eval(env)? {
                Value::Null => Ok(Value::Null),
                Value::Integer(value) => value
                    .checked_neg()
                    .map(Value::Integer)
                    .ok_or(SqlError::Overflow),
                Value::Real(value) => Ok(Value::Real(-value)),
                Value::Text(_) => Err(SqlError::Operand("a number")),
            },
            Self::Arithmetic(op, a, b) => arithmetic(*op, &a.eval(env)?, &b.eval(env)?),
            _ => self.test(env).map(from_truth),
        }
    }

    /// The truth of the expression; nothing if it is unknown.
    pub(super) fn test(&self, env: Env<'_>) -> Result<Option<bool>, SqlError> {
        match self {
            Self::Not(operand) => Ok(operand.test(env)?.map(|truth| !truth)),
            Self::And(a, b) => match a.test(env)? {
                Some(false) => Ok(Some(false)),
                a => match (a, b.test(env)?) {
                    (_, Some(false)) => Ok(Some(false)),
                    (Some(true), Some(true)) => Ok(Some(true)),
                    _ => Ok(None),
                },
            },
            Self::Or(a, b) => match a.test(env)? {
                Some(true) => Ok(Some(true)),
                a => match (a, b.test(env)?) {
                    (_, Some(true)) => Ok(Some(true)),
                    (Some(false), Some(false)) => Ok(Some(false)),
                    _ => Ok(None),
                },
            },
            Self::Compare(op, a, b) => {
                Ok(compare(&a.eval(env)?, &b.eval(env)?).map(|ordering| op.holds(ordering)))
            }
            Self::IsNull(operand) => Ok(Some(operand.eval(env)? == Value::Null)),
            Self::In(operand, list) => {
                let value = operand.eval(env)?;
                let mut found = Some(false);
                for candidate in list {
                    match compare(&value, &candidate.eval(env)?) {
                        Some(Ordering::Equal) => return Ok(Some(true)),
                        Some(_) => {}
                        None => found = None,
                    }
                }
                Ok(found)
            }
            _ => truth(&self.eval(env)?),
        }
    }

    /// True if no part of the expression depends on the row.
    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Literal(_) | Self::Parameter(_) => true,
            Self::Column(_) | Self::Aggregate(_) => false,
            Self::Not(a) | Self::Negate(a) | Self::IsNull(a) => a.is_constant(),
            Self::And(a, b) | Self::Or(a, b) => a.is_constant() && b.is_constant(),
            Self::Compare(_, a, b) => a.is_constant() && b.is_constant(),
            Self::Arithmetic(_, a, b) => a.is_constant() && b.is_constant(),
            Self::In(a, list) => a.is_constant() && list.iter().all(Self::is_constant),
        }
    }

    /// True if a column stands in the expression.
    pub(super) fn has_column(&self) -> bool {
        match self {
            Self::Column(_) => true,
            Self::Literal(_) | Self::Parameter(_) | Self::Aggregate(_) => false,
            Self::Not(a) | Self::Negate(a) | Self::IsNull(a) => a.has_column(),
            Self::And(a, b) | Self::Or(a, b) => a.has_column() || b.has_column(),
            Self::Compare(_, a, b) => a.has_column() || b.has_column(),
            Self::Arithmetic(_, a, b) => a.has_column() || b.has_column(),
            Self::In(a, list) => a.has_column() || list.iter().any(Self::has_column),
        }
    }
}

/// Aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    Sum,
    Average,
    Minimum,
    Maximum,
}

/// An aggregate: `argument` is nothing for `count(*)`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Aggregate {
    pub(super) function: Function,
    pub(super) argument: Option<Expr>,
}

/// An aggregate at work. NULLs are left out; of nothing, a count is 0 and the rest NULL.
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
            Some(argument) => argument.eval(env)?,
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
