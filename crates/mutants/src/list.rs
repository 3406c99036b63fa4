//! The mutants that cargo-mutants lists.

use crate::process;
use serde::Deserialize;
use std::path::Path;

/// A change of the source that a test should notice.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// The file in the workspace.
    pub file: String,
    /// Place, change and function, for people.
    pub name: String,
    /// The function that it is in.
    pub function: Option<Function>,
    /// What kind of expression it changes.
    pub genre: Genre,
    /// What stands there afterwards.
    pub replacement: String,
    /// What it replaces.
    pub span: Span,
}

/// The kinds of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Genre {
    /// The body of a function is replaced by a value.
    FnValue,
    /// An operator is replaced by another.
    BinaryOperator,
    /// An operator is removed.
    UnaryOperator,
    /// The guard of an arm is always true, or never.
    MatchArmGuard,
    /// An arm is removed; a later one takes its cases.
    MatchArm,
    /// A field takes its value from the base of the struct expression.
    StructField,
}

/// A function with mutants.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// With its type, as in `Worker::poll`.
    #[serde(rename = "function_name")]
    pub name: String,
    /// As it is written, with the arrow.
    pub return_type: String,
}

/// A range of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Span {
    /// The first character.
    pub start: Position,
    /// The character after the last one.
    pub end: Position,
}

/// A character of the source; both numbers start at 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

impl Mutant {
    /// What is changed, without the place: `replace > with >=`.
    pub fn change(&self) -> &str {
        let (_, change) = self.name.split_once(": ").unwrap_or(("", &self.name));
        let function = self.function.as_ref().map_or("", |f| f.name.as_str());
        let change = change.strip_suffix(function).unwrap_or(change);
        change.strip_suffix(" in ").unwrap_or(change)
    }

    /// File and function.
    pub fn place(&self) -> String {
        let function = self.function.as_ref().map_or("", |f| f.name.as_str());
        let file = self.file.trim_start_matches("crates/");
        format!("{} {function}", file.replace("/src/", "/"))
    }
}

/// The mutants of these packages, or those of them in what has changed since a commit.
pub fn mutants(
    root: &Path,
    packages: &[String],
    since: Option<&str>,
) -> Result<Vec<Mutant>, String> {
    let mut words = vec!["mutants", "--list", "--json"];
    let diff = root.join("target/mutants.diff");
    let file = diff.to_string_lossy();
    if let Some(commit) = since {
        let text = process::output(root, "git", &["diff", commit])?;
        std::fs::write(&diff, text).map_err(|e| format!("{file}: {e}"))?;
        words.extend(["--in-diff", &file]);
    }
    for package in packages {
        words.extend(["-p", package]);
    }
    let text = process::output(root, "cargo", &words).map_err(|e| {
        format!("{e}\nhint: cargo install --locked cargo-mutants --version {VERSION}")
    })?;
    if text.trim().is_empty() {
        // What has changed has no mutants.
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(|e| format!("the list of cargo-mutants: {e}"))
}

/// The version whose list this program has been tried with.
const VERSION: &str = "27.1.0";
