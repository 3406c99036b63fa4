//! Expressions: from the parser's tree, with column names, to [`Expr`], with column indices.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::super::aggregate::{Aggregate, Function};
use super::super::error::{SqlError, support};
use super::super::expr::{Comparison, Expr};
use super::super::schema::{Schema, Table};
use super::super::value::{Arithmetic, Value};
use crate::limits::EXPRESSION_DEPTH_MAX;

/// A table with its name in a statement.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) table: Rc<Table>,
}

/// Resolves the names of a statement and numbers its parameters.
pub(super) struct Binder<'a> {
    sources: &'a [Named],
    /// Names of parameters so far.
    names: &'a mut Vec<String>,
    /// Aggregates so far.
    pub(super) aggregates: Vec<Aggregate>,
    aggregates_allowed: bool,
    depth: usize,
}

impl<'a> Binder<'a> {
    /// For expressions over rows of all `sources` together.
    pub(super) fn new(sources: &'a [Named], names: &'a mut Vec<String>) -> Self {
        Self {
            sources,
            names,
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
            ast::Expr::Identifier(name) => self.column(None, &name.value),
            ast::Expr::CompoundIdentifier(names) => match names.as_slice() {
                [table, column] => self.column(Some(&table.value), &column.value),
                _ => Err(SqlError::Unsupported("qualified names but table.column")),
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
            ast::Expr::Case {
                operand: None,
                conditions,
                else_result,
                ..
            } => {
                let branches = conditions
                    .iter()
                    .map(|when| Ok((self.expr(&when.condition)?, self.expr(&when.result)?)));
                let branches = branches.collect::<Result<_, SqlError>>()?;
                let otherwise = else_result.as_ref();
                let otherwise = otherwise.map(|expr| self.boxed(expr)).transpose()?;
                Ok(Expr::Case(branches, otherwise))
            }
            ast::Expr::Function(function) => self.function(function),
            _ => Err(SqlError::Unsupported(
                "expressions but columns, numbers, texts, parameters, operators, CASE and functions",
            )),
        }
    }

    fn column(&self, table: Option<&str>, name: &str) -> Result<Expr, SqlError> {
        let mut found = None;
        let mut start = 0;
        for source in self.sources {
            let is_meant = table.is_none_or(|table| source.name.eq_ignore_ascii_case(table));
            if is_meant && let Ok(place) = source.table.column(name) {
                if found.is_some() {
                    return Err(SqlError::Ambiguous(name.into()));
                }
                found = Some(start + place);
            }
            start += source.table.columns.len();
        }
        match (found, self.sources.first()) {
            (Some(place), _) => Ok(Expr::Column(place)),
            (None, Some(first)) => Err(SqlError::NoColumn {
                table: table.unwrap_or(&first.name).into(),
                column: name.into(),
            }),
            (None, None) => Err(SqlError::Unsupported("columns without a table")),
        }
    }

    fn value(&mut self, value: &ast::Value) -> Result<Expr, SqlError> {
        let value = match value {
            ast::Value::Number(text, _) => number(text)?,
            ast::Value::SingleQuotedString(text) => Value::Text(text.clone()),
            ast::Value::Boolean(truth) => Value::Integer(i64::from(*truth)),
            ast::Value::Null => Value::Null,
            ast::Value::Placeholder(name) => return self.parameter(name),
            _ => return Err(SqlError::Unsupported("literals but numbers and 'texts'")),
        };
        Ok(Expr::Literal(value))
    }

    fn parameter(&mut self, name: &str) -> Result<Expr, SqlError> {
        let name = match name.strip_prefix(':') {
            Some(name) if !name.is_empty() => name,
            None if name == "?" => {
                self.names.push(name.into());
                return Ok(Expr::Parameter(self.names.len() - 1));
            }
            _ => return Err(SqlError::Unsupported("parameters but ? and :name")),
        };
        let place = self.names.iter().position(|known| known == name);
        Ok(Expr::Parameter(place.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        })))
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
        let ast::FunctionArguments::List(list) = &function.args else {
            return Err(SqlError::Unsupported("functions without arguments"));
        };
        support(
            list.duplicate_treatment.is_none()
                && list.clauses.is_empty()
                && function.filter.is_none()
                && function.over.is_none(),
            "DISTINCT, FILTER and OVER in functions",
        )?;
        let name = function.name.to_string().to_ascii_lowercase();
        let kind = match (name.as_str(), list.args.as_slice()) {
            ("abs", [one]) => {
                let operand = self.argument(one)?;
                return Ok(Expr::Absolute(Box::new(operand)));
            }
            ("coalesce", [_, _, ..]) => {
                let list = list.args.iter().map(|each| self.argument(each));
                return Ok(Expr::Coalesce(list.collect::<Result<_, _>>()?));
            }
            ("count", [_]) => Function::Count,
            ("sum", [_]) => Function::Sum,
            ("avg", [_]) => Function::Average,
            ("min", [_]) => Function::Minimum,
            ("max", [_]) => Function::Maximum,
            _ => {
                return Err(SqlError::Unsupported(
                    "functions but abs, coalesce and of one argument count, sum, avg, min and max",
                ));
            }
        };
        if !self.aggregates_allowed {
            return Err(SqlError::Aggregate);
        }
        let all = ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard);
        let argument = if kind == Function::Count && list.args[0] == all {
            None
        } else {
            // Aggregates do not nest.
            self.aggregates_allowed = false;
            let argument = self.argument(&list.args[0]);
            self.aggregates_allowed = true;
            Some(argument?)
        };
        self.aggregates.push(Aggregate {
            function: kind,
            argument,
        });
        Ok(Expr::Aggregate(self.aggregates.len() - 1))
    }

    fn argument(&mut self, argument: &ast::FunctionArg) -> Result<Expr, SqlError> {
        match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => self.expr(expr),
            _ => Err(SqlError::Unsupported("arguments but expressions")),
        }
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

/// A table that is named in FROM.
pub(super) fn named(factor: &ast::TableFactor, schema: &Schema) -> Result<Named, SqlError> {
    let ast::TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = factor
    else {
        return Err(SqlError::Unsupported("FROM but tables"));
    };
    let table = schema.table(&one_name(name)?)?;
    let name = match alias {
        Some(alias) if alias.columns.is_empty() => alias.name.value.to_ascii_lowercase(),
        Some(_) => return Err(SqlError::Unsupported("aliases of columns in FROM")),
        None => table.name.clone(),
    };
    Ok(Named { name, table })
}

/// The one name that a table or a column may have, in lower case.
pub(super) fn one_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(name)] => Ok(name.value.to_ascii_lowercase()),
        _ => Err(SqlError::Unsupported("qualified names")),
    }
}
