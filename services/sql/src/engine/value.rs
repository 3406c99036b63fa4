//! Values, their comparison and arithmetic, after SQLite: numbers compare by value whatever their
//! type and come before texts; with NULL every result is NULL.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::SqlError;

/// A dynamically typed value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    #[default]
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A finite double.
    Real(f64),
    /// A text, of at most `limits::TEXT_BYTES_MAX` bytes where it is stored.
    Text(String),
}

impl Value {
    /// Appends the value: a byte for its kind, then its bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(0),
            Self::Integer(value) => {
                out.push(1);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Real(value) => {
                out.push(2);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Text(text) => {
                out.push(3);
                out.extend_from_slice(&(text.len() as u16).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Reads a value from the front of `bytes`; returns it and the rest.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), SqlError> {
        let (kind, rest) = bytes.split_first().ok_or(SqlError::Corrupt)?;
        match kind {
            0 => Ok((Self::Null, rest)),
            1 | 2 => {
                let (bytes, rest) = rest.split_first_chunk().ok_or(SqlError::Corrupt)?;
                let value = match kind {
                    1 => Self::Integer(i64::from_le_bytes(*bytes)),
                    _ => Self::Real(f64::from_le_bytes(*bytes)),
                };
                Ok((value, rest))
            }
            3 => {
                let (len, rest) = rest.split_first_chunk().ok_or(SqlError::Corrupt)?;
                let len = usize::from(u16::from_le_bytes(*len));
                let (text, rest) = rest.split_at_checked(len).ok_or(SqlError::Corrupt)?;
                let text = core::str::from_utf8(text).map_err(|_| SqlError::Corrupt)?;
                Ok((Self::Text(text.into()), rest))
            }
            _ => Err(SqlError::Corrupt),
        }
    }
}

/// SQL's comparison: nothing if either is NULL.
pub(super) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => None,
        _ => Some(order(a, b)),
    }
}

/// The order of ORDER BY: total, NULL first.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Real(a), Value::Real(b)) => order_reals(*a, *b),
        (Value::Integer(a), Value::Real(b)) => order_mixed(*a, *b),
        (Value::Real(a), Value::Integer(b)) => order_mixed(*b, *a).reverse(),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => class(a).cmp(&class(b)),
    }
}

fn class(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
    }
}

/// -0.0 equals 0.0; NaN does not occur.
fn order_reals(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// Exact, also where a double cannot hold the integer.
fn order_mixed(a: i64, b: f64) -> Ordering {
    match order_reals(a as f64, b) {
        // Equal doubles: `a` was perhaps rounded. Then `b` is an integer, or 2^63 itself.
        Ordering::Equal if b >= 9_223_372_036_854_775_808.0 => Ordering::Less,
        Ordering::Equal => a.cmp(&(b as i64)),
        decided => decided,
    }
}

/// True, false or unknown (NULL).
pub(super) fn truth(value: &Value) -> Result<Option<bool>, SqlError> {
    match value {
        Value::Null => Ok(None),
        Value::Integer(value) => Ok(Some(*value != 0)),
        Value::Real(value) => Ok(Some(*value != 0.0)),
        Value::Text(_) => Err(SqlError::Operand("a truth value")),
    }
}

/// The value of a truth value.
pub(super) fn from_truth(truth: Option<bool>) -> Value {
    truth.map_or(Value::Null, |truth| Value::Integer(i64::from(truth)))
}

/// A number as a double; nothing if it is NULL.
pub(super) fn as_real(value: &Value) -> Result<Option<f64>, SqlError> {
    match value {
        Value::Null => Ok(None),
        Value::Integer(value) => Ok(Some(*value as f64)),
        Value::Real(value) => Ok(Some(*value)),
        Value::Text(_) => Err(SqlError::Operand("a number")),
    }
}

/// A double that is finite.
pub(super) fn finite(value: f64) -> Result<Value, SqlError> {
    if value.is_finite() {
        Ok(Value::Real(value))
    } else {
        Err(SqlError::Overflow)
    }
}

/// Arithmetic operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

/// Integers stay integers; division by zero is NULL.
pub(super) fn arithmetic(op: Arithmetic, a: &Value, b: &Value) -> Result<Value, SqlError> {
    if let (Value::Integer(a), Value::Integer(b)) = (a, b) {
        let (a, b) = (*a, *b);
        let result = match op {
            Arithmetic::Add => a.checked_add(b),
            Arithmetic::Subtract => a.checked_sub(b),
            Arithmetic::Multiply => a.checked_mul(b),
            Arithmetic::Divide | Arithmetic::Remainder if b == 0 => return Ok(Value::Null),
            Arithmetic::Divide => a.checked_div(b),
            Arithmetic::Remainder => Some(a.wrapping_rem(b)),
        };
        return result.map(Value::Integer).ok_or(SqlError::Overflow);
    }
    if op == Arithmetic::Remainder {
        return remainder(a, b);
    }
    let (Some(a), Some(b)) = (as_real(a)?, as_real(b)?) else {
        return Ok(Value::Null);
    };
    match op {
        Arithmetic::Add => finite(a + b),
        Arithmetic::Subtract => finite(a - b),
        Arithmetic::Multiply => finite(a * b),
        Arithmetic::Divide if b == 0.0 => Ok(Value::Null),
        Arithmetic::Divide | Arithmetic::Remainder => finite(a / b),
    }
}

/// Of the whole parts, but a double if either is one.
fn remainder(a: &Value, b: &Value) -> Result<Value, SqlError> {
    let (Some(a), Some(b)) = (as_real(a)?, as_real(b)?) else {
        return Ok(Value::Null);
    };
    match (a as i64, b as i64) {
        (_, 0) => Ok(Value::Null),
        (a, b) => Ok(Value::Real(a.wrapping_rem(b) as f64)),
    }
}
