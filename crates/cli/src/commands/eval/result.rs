//! What `e3 eval` shows, in whatever form.

use e3_evaluation::Outcome;
use serde::Serialize;

/// What a quick run says.
pub const QUICK: &str = "This is a quick run: short simulations of few applications. Its figures are less exact than those of a full run.";

/// A line of the list.
#[derive(Serialize)]
pub struct Listed {
    /// Name.
    pub name: &'static str,
    /// In one line.
    pub title: &'static str,
    /// Section of the paper.
    pub section: &'static str,
}

/// What `e3 eval EXPERIMENT -o json` prints.
#[derive(Serialize)]
pub struct EvalView {
    /// The command that gives it.
    pub command: String,
    /// Shorter runs: the figures are less exact.
    pub quick: bool,
    /// By experiment.
    pub outcomes: Vec<Outcome>,
}
