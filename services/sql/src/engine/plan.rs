//! From text to plan: parses with `sqlparser`, resolves names, refuses unsupported SQL.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sqlparser::ast;
use sqlparser::dialect::SQLiteDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::SqlError;
use super::expr::Expr;
use super::schema::Schema;
use crate::limits::NESTING_MAX;

mod bind;
mod change;
mod define;
mod select;

pub(super) use change::Conflict;
pub use change::{Delete, Insert, Update};
pub use define::Definition;
pub(super) use select::Order;
pub use select::Select;

/// A statement that is ready to run.
#[derive(Debug)]
pub enum Plan {
    /// CREATE or DROP.
    Define(Definition),
    /// INSERT.
    Insert(Insert),
    /// SELECT.
    Select(Select),
    /// UPDATE.
    Update(Update),
    /// DELETE.
    Delete(Delete),
}

impl Plan {
    /// True for INSERT, UPDATE and DELETE.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Insert(_) | Self::Update(_) | Self::Delete(_))
    }

    /// Names of the result's columns; only SELECT has any.
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Select(select) => &select.columns,
            _ => &[],
        }
    }
}

const OTHER_STATEMENTS: SqlError = SqlError::Unsupported(
    "statements but CREATE and DROP of TABLE and INDEX, INSERT, SELECT, UPDATE and DELETE",
);

const DIALECT: SQLiteDialect = SQLiteDialect {};

fn parser(text: &str) -> Result<Parser<'static>, SqlError> {
    Parser::new(&DIALECT)
        .with_recursion_limit(NESTING_MAX)
        .try_with_sql(text)
        .map_err(syntax)
}

fn syntax(error: ParserError) -> SqlError {
    SqlError::Syntax(error.to_string())
}

fn keyword(parser: &Parser<'_>, place: usize) -> Keyword {
    match parser.peek_nth_token_ref(place).token {
        Token::Word(ref word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Parses statements, which `;` separates, at most `max` of them. `names` takes the names of
/// parameters; `?` is a name each time, `:name` one name however often it stands there.
pub(super) fn statements(
    text: &str,
    max: usize,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Vec<Plan>, SqlError> {
    let mut parser = parser(text)?;
    let mut plans = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            return Ok(plans);
        }
        if plans.len() == max {
            return Err(SqlError::TooMany {
                what: "statements",
                max,
            });
        }
        // Checked first because the parser's bound on nesting does not cover statements within
        // statements, such as a chain of EXPLAIN.
        let first = keyword(&parser, 0);
        let known = match first {
            Keyword::CREATE | Keyword::DROP => {
                matches!(
                    keyword(&parser, 1),
                    Keyword::TABLE | Keyword::INDEX | Keyword::UNIQUE
                )
            }
            Keyword::INSERT
            | Keyword::REPLACE
            | Keyword::SELECT
            | Keyword::UPDATE
            | Keyword::DELETE => true,
            _ => false,
        };
        if !known {
            return Err(OTHER_STATEMENTS);
        }
        let statement = parser.parse_statement().map_err(syntax)?;
        plans.push(plan(&statement, schema, names)?);
        let end = &parser.peek_token_ref().token;
        if !matches!(end, Token::SemiColon | Token::EOF) {
            return Err(SqlError::Syntax(alloc::format!("{end} after a statement")));
        }
    }
}

fn plan(
    statement: &ast::Statement,
    schema: &Schema,
    names: &mut Vec<String>,
) -> Result<Plan, SqlError> {
    match statement {
        ast::Statement::CreateTable(create) => define::create_table(create).map(Plan::Define),
        ast::Statement::CreateIndex(create) => define::create_index(create).map(Plan::Define),
        ast::Statement::Drop {
            object_type,
            names,
            if_exists,
            ..
        } => define::drop(object_type, names, *if_exists).map(Plan::Define),
        ast::Statement::Insert(insert) => change::insert(insert, schema, names).map(Plan::Insert),
        ast::Statement::Query(query) => select::select(query, schema, names).map(Plan::Select),
        ast::Statement::Update(update) => change::update(update, schema, names).map(Plan::Update),
        ast::Statement::Delete(delete) => change::delete(delete, schema, names).map(Plan::Delete),
        _ => Err(OTHER_STATEMENTS),
    }
}

impl Expr {
    /// Parses an expression over parameters only; `names` has the known parameters and
    /// gets the new ones.
    pub fn parse(text: &str, names: &mut Vec<String>) -> Result<Expr, SqlError> {
        let mut parser = parser(text)?;
        let expr = parser.parse_expr().map_err(syntax)?;
        let end = &parser.peek_token_ref().token;
        if *end != Token::EOF {
            return Err(SqlError::Syntax(alloc::format!(
                "{end} after an expression"
            )));
        }
        bind::Binder::new(&[], names).expr(&expr)
    }
}
