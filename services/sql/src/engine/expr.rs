//! Expressions over one row, with SQL's three-valued logic.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::SqlError;
use super::value::{Arithmetic, Value, arithmetic, compare, from_truth, truth};

/// An expression with its columns resolved.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Literal(Value),
    /// The n-th parameter, from 0.
    Parameter(usize),
    /// The n-th column of the row.
    Column(usize),
    /// The n-th aggregate of the query.
    Aggregate(usize),
    /// NOT.
    Not(Box<Expr>),
    /// The sign `-`.
    Negate(Box<Expr>),
    /// AND.
    And(Box<Expr>, Box<Expr>),
    /// OR.
    Or(Box<Expr>, Box<Expr>),
    /// A comparison.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// An operator on numbers.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// IS NULL.
    IsNull(Box<Expr>),
    /// IN (list).
    In(Box<Expr>, Vec<Expr>),
    /// `abs`.
    Absolute(Box<Expr>),
    /// `coalesce`.
    Coalesce(Vec<Expr>),
    /// CASE: conditions with their results, and the ELSE.
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
}

/// Comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
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

/// The input of an evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Env<'a> {
    pub(super) row: &'a [Value],
    pub(super) parameters: &'a [Value],
    pub(super) aggregates: &'a [Value],
}

impl<'a> Env<'a> {
    /// The input of an expression without a row.
    pub(super) fn of(parameters: &'a [Value]) -> Self {
        Self {
            parameters,
            ..Self::default()
        }
    }
}

impl Expr {
    /// The value of an expression over parameters only.
    pub fn value(&self, parameters: &[Value]) -> Result<Value, SqlError> {
        self.eval(Env::of(parameters)).map(Cow::into_owned)
    }

    /// True if an expression over parameters only is true: neither false nor unknown.
    pub fn is_true(&self, parameters: &[Value]) -> Result<bool, SqlError> {
        Ok(self.test(Env::of(parameters))? == Some(true))
    }

    /// The value of a part of an expression. Most parts are leaves, which need no call.
    #[inline(always)]
    fn operand<'a>(&'a self, env: Env<'a>) -> Result<Cow<'a, Value>, SqlError> {
        match self {
            Self::Literal(value) => Ok(Cow::Borrowed(value)),
            Self::Parameter(place) if *place < env.parameters.len() => {
                Ok(Cow::Borrowed(&env.parameters[*place]))
            }
            Self::Column(place) => Ok(Cow::Borrowed(&env.row[*place])),
            _ => self.eval(env),
        }
    }

    /// The value of the expression.
    pub(super) fn eval<'a>(&'a self, env: Env<'a>) -> Result<Cow<'a, Value>, SqlError> {
        Ok(match self {
            Self::Literal(value) => Cow::Borrowed(value),
            Self::Parameter(place) => {
                Cow::Borrowed(env.parameters.get(*place).ok_or(SqlError::Parameters {
                    needed: place + 1,
                    given: env.parameters.len(),
                })?)
            }
            Self::Column(place) => Cow::Borrowed(&env.row[*place]),
            Self::Aggregate(place) => Cow::Borrowed(&env.aggregates[*place]),
            Self::Negate(operand) => Cow::Owned(match &*operand.operand(env)? {
                Value::Null => Value::Null,
                Value::Integer(value) => {
                    Value::Integer(value.checked_neg().ok_or(SqlError::Overflow)?)
                }
                Value::Real(value) => Value::Real(-value),
                Value::Text(_) => return Err(SqlError::Operand("a number")),
            }),
            Self::Absolute(operand) => Cow::Owned(match &*operand.operand(env)? {
                Value::Null => Value::Null,
                Value::Integer(value) => {
                    Value::Integer(value.checked_abs().ok_or(SqlError::Overflow)?)
                }
                Value::Real(value) => Value::Real(value.abs()),
                Value::Text(_) => return Err(SqlError::Operand("a number")),
            }),
            Self::Arithmetic(op, a, b) => {
                Cow::Owned(arithmetic(*op, &*a.operand(env)?, &*b.operand(env)?)?)
            }
            Self::Coalesce(list) => {
                let mut found = Cow::Owned(Value::Null);
                for candidate in list {
                    found = candidate.operand(env)?;
                    if *found != Value::Null {
                        break;
                    }
                }
                found
            }
            Self::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    if condition.test(env)? == Some(true) {
                        return result.eval(env);
                    }
                }
                match otherwise {
                    Some(result) => result.operand(env)?,
                    None => Cow::Owned(Value::Null),
                }
            }
            _ => Cow::Owned(from_truth(self.test(env)?)),
        })
    }

    /// The truth value of the expression; none if it is unknown.
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
                let (a, b) = (a.operand(env)?, b.operand(env)?);
                Ok(compare(&a, &b).map(|ordering| op.holds(ordering)))
            }
            Self::IsNull(operand) => Ok(Some(*operand.operand(env)? == Value::Null)),
            Self::In(operand, list) => {
                let value = operand.operand(env)?;
                let mut found = Some(false);
                for candidate in list {
                    match compare(&value, &*candidate.operand(env)?) {
                        Some(Ordering::Equal) => return Ok(Some(true)),
                        Some(_) => {}
                        None => found = None,
                    }
                }
                Ok(found)
            }
            _ => truth(&*self.operand(env)?),
        }
    }

    /// True if `holds` of every leaf: literals, parameters, columns and aggregates.
    pub(super) fn all(&self, holds: &mut dyn FnMut(&Expr) -> bool) -> bool {
        match self {
            Self::Literal(_) | Self::Parameter(_) | Self::Column(_) | Self::Aggregate(_) => {
                holds(self)
            }
            Self::Not(a) | Self::Negate(a) | Self::IsNull(a) | Self::Absolute(a) => a.all(holds),
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Compare(_, a, b)
            | Self::Arithmetic(_, a, b) => a.all(holds) && b.all(holds),
            Self::In(a, list) => a.all(holds) && list.iter().all(|each| each.all(holds)),
            Self::Coalesce(list) => list.iter().all(|each| each.all(holds)),
            Self::Case(branches, otherwise) => {
                branches.iter().all(|(a, b)| a.all(holds) && b.all(holds))
                    && otherwise.as_ref().is_none_or(|each| each.all(holds))
            }
        }
    }

    /// True if no part of the expression depends on a row.
    pub(super) fn is_constant(&self) -> bool {
        self.all(&mut |leaf| !matches!(leaf, Self::Column(_) | Self::Aggregate(_)))
    }

    /// The parts that are joined by AND.
    pub(super) fn conjuncts<'a>(&'a self, out: &mut Vec<&'a Expr>) {
        match self {
            Self::And(a, b) => {
                a.conjuncts(out);
                b.conjuncts(out);
            }
            other => out.push(other),
        }
    }
}
