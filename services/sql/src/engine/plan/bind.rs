//! Expressions: from the parser's tree, with names of columns, to [`Expr`], with their indices.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use e3_iot_messages::Value;

use super::super::SqlError;
use super::super::catalog::Table;
use super::super::expr::{Aggregate, Comparison, Expr, Function};
use super::super::value::Arithmetic;
use super::support;
use crate::limits::EXPRESSION_DEPTH_MAX;

/// Resolves the names of a statement and numbers its parameters.
pub(super) struct Binder<'a> {
    table: Option<&'a Table>,
    /// `?` so far.
    pub(super) parameters: usize,
    /// Aggregates so far.
    pub(super) aggregates: Vec<Aggregate>,
    aggregates_allowed: bool,
    depth: usize,
}

impl<'a> Binder<'a> {
    /// For expressions over rows of a table.
    pub(super) fn of(table: &'a Table) -> Self {
        Self {
            table: Some(table),
            ..Self::without_row()
        }
    }

    /// For expressions that no row stands behind.
    pub(super) fn without_row() -> Self {
        Self {
            table: None,
            parameters: 0,
            aggregates: Vec::new(),
            aggregates_allowed: false,
            depth: 0,
        }
    }

    /// A WHERE clause.
    pub(super) fn filter(&mut self, expr: Option<&ast::Expr>) -> Result<Option<Expr>, SqlError> {
        expr.map(|expr| self.expr(expr)).transpose()
    }

    /// An expression that may hold aggregates.
    pub(super) fn aggregated(&mut self, expr: &ast::Expr) -> Result<Expr, SqlError> {
        self.aggregates_allowed = true;
        let bound = self.expr(expr);
        self.aggregates_allowed = false;
        bound
    }

    /// An expression.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Result<Expr, SqlError> {
        if self.depth == EXPRESSION_DEPTH_MAX {
            return Err(SqlError::TooMany {
                what: "levels of an expression",
                max: EXPRESSION_DEPTH_MAX,
            });
        }
        self.depth += 1;
        let bound = self.node(expr);
        self.depth -= 1;
        bound
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Result<Box<Expr>, SqlError> {
        self.expr(expr).map(Box::new)
    }

    fn node(&mut self, expr: &ast::Expr) -> Result<Expr, SqlError> {
        match expr {
            ast::Expr::Identifier(name) => self.column(&name.value),
            ast::Expr::CompoundIdentifier(names) => match (names.as_slice(), self.table) {
                ([table, column], Some(known)) if known.name.eq_ignore_ascii_case(&table.value) => {
                    self.column(&column.value)
                }
                _ => Err(SqlError::NoColumn {
                    table: self.table.map_or(String::new(), |table| table.name.clone()),
                    column: expr.to_string(),
                }),
            },
            ast::Expr::Value(value) => self.value(&value.value),
            ast::Expr::Nested(expr) => self.expr(expr),
            ast::Expr::UnaryOp { op, expr } => match op {
                UnaryOperator::Plus => self.expr(expr),
                UnaryOperator::Minus => self.negate(expr),
                UnaryOperator::Not => self.boxed(expr).map(Expr::Not),
                _ => Err(SqlError::Unsupported(
                    "operators but + - * / % and comparisons",
                )),
            },
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::IsNull(expr) => self.boxed(expr).map(Expr::IsNull),
            ast::Expr::IsNotNull(expr) => {
                let is_null = self.boxed(expr).map(Expr::IsNull)?;
                Ok(Expr::Not(Box::new(is_null)))
            }
            ast::Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let operand = self.boxed(expr)?;
                let low = self.boxed(low)?;
                let high = self.boxed(high)?;
                let above = Expr::Compare(Comparison::GreaterOrEqual, operand.clone(), low);
                let below = Expr::Compare(Comparison::LessOrEqual, operand, high);
                let between = Expr::And(Box::new(above), Box::new(below));
                Ok(maybe_not(*negated, between))
            }
            ast::Expr::InList {
                expr,
                list,
                negated,
            } => {
                let operand = self.boxed(expr)?;
                let list = list.iter().map(|expr| self.expr(expr));
                let list = list.collect::<Result<_, _>>()?;
                Ok(maybe_not(*negated, Expr::In(operand, list)))
            }
            ast::Expr::Function(function) => self.function(function),
            _ => Err(SqlError::Unsupported(
                "expressions but columns, numbers, texts, ?, operators and aggregates",
            )),
        }
    }

    fn column(&self, name: &str) -> Result<Expr, SqlError> {
        match self.table {
            Some(table) => table.column(name).map(Expr::Column),
            None => Err(SqlError::Unsupported("columns in VALUES")),
        }
    }

    fn value(&mut self, value: &ast::Value) -> Result<Expr, SqlError> {
        let value = match value {
            ast::Value::Number(text, _) => number(text)?,
            ast::Value::SingleQuotedString(text) => Value::Text(text.clone()),
            ast::Value::Boolean(truth) => Value::Integer(i64::from(*truth)),
            ast::Value::Null => Value::Null,
            ast::Value::Placeholder(name) if name == "?" => {
                self.parameters += 1;
                return Ok(Expr::Parameter(self.parameters - 1));
            }
            ast::Value::Placeholder(_) => return Err(SqlError::Unsupported("parameters but ?")),
            _ => return Err(SqlError::Unsupported("literals but numbers and 'texts'")),
        };
        Ok(Expr::Literal(value))
    }

    fn negate(&mut self, expr: &ast::Expr) -> Result<Expr, SqlError> {
        // The smallest integer has no positive counterpart, so the sign goes to the literal.
        if let ast::Expr::Value(value) = expr
            && let ast::Value::Number(text, _) = &value.value
        {
            let mut signed = String::from("-");
            signed.push_str(text);
            return number(&signed).map(Expr::Literal);
        }
        self.boxed(expr).map(Expr::Negate)
    }

    fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Expr, SqlError> {
        let (left, right) = (self.boxed(left)?, self.boxed(right)?);
        Ok(match op {
            BinaryOperator::And => Expr::And(left, right),
            BinaryOperator::Or => Expr::Or(left, right),
            BinaryOperator::Eq => Expr::Compare(Comparison::Equal, left, right),
            BinaryOperator::NotEq => Expr::Compare(Comparison::NotEqual, left, right),
            BinaryOperator::Lt => Expr::Compare(Comparison::Less, left, right),
            BinaryOperator::LtEq => Expr::Compare(Comparison::LessOrEqual, left, right),
            BinaryOperator::Gt => Expr::Compare(Comparison::Greater, left, right),
            BinaryOperator::GtEq => Expr::Compare(Comparison::GreaterOrEqual, left, right),
            BinaryOperator::Plus => Expr::Arithmetic(Arithmetic::Add, left, right),
            BinaryOperator::Minus => Expr::Arithmetic(Arithmetic::Subtract, left, right),
            BinaryOperator::Multiply => Expr::Arithmetic(Arithmetic::Multiply, left, right),
            BinaryOperator::Divide => Expr::Arithmetic(Arithmetic::Divide, left, right),
            BinaryOperator::Modulo => Expr::Arithmetic(Arithmetic::Remainder, left, right),
            _ => {
                return Err(SqlError::Unsupported(
                    "operators but + - * / % and comparisons",
                ));
            }
        })
    }

    fn function(&mut self, function: &ast::Function) -> Result<Expr, SqlError> {
        let name = function.name.to_string().to_ascii_lowercase();
        let kind = match name.as_str() {
            "count" => Function::Count,
            "sum" => Function::Sum,
            "avg" => Function::Average,
            "min" => Function::Minimum,
            "max" => Function::Maximum,
            _ => {
                return Err(SqlError::Unsupported(
                    "functions but count, sum, avg, min and max",
                ));
            }
        };
        if !self.aggregates_allowed {
            return Err(SqlError::Aggregate);
        }
        let ast::FunctionArguments::List(list) = &function.args else {
            return Err(SqlError::Unsupported("aggregates without one argument"));
        };
        support(
            list.duplicate_treatment.is_none()
                && list.clauses.is_empty()
                && function.filter.is_none()
                && function.over.is_none(),
            "DISTINCT, FILTER and OVER in aggregates",
        )?;
        let argument = match list.args.as_slice() {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)]
                if kind == Function::Count =>
            {
                None
            }
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr))] => {
                // Aggregates do not nest.
                self.aggregates_allowed = false;
                let argument = self.expr(expr);
                self.aggregates_allowed = true;
                Some(argument?)
            }
            _ => return Err(SqlError::Unsupported("aggregates without one argument")),
        };
        self.aggregates.push(Aggregate {
            function: kind,
            argument,
        });
        Ok(Expr::Aggregate(self.aggregates.len() - 1))
    }
}

fn maybe_not(negated: bool, expr: Expr) -> Expr {
    if negated {
        Expr::Not(Box::new(expr))
    } else {
        expr
    }
}

/// An integer if it is written as one and fits, else a finite double.
fn number(text: &str) -> Result<Value, SqlError> {
    if let Ok(value) = text.parse() {
        return Ok(Value::Integer(value));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Value::Real(value)),
        _ => Err(SqlError::Overflow),
    }
}

/// The one name that a table or a column may have, in lower case.
pub(super) fn table_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(name)] => Ok(name.value.to_ascii_lowercase()),
        _ => Err(SqlError::Unsupported("qualified names")),
    }
}
