//! `e3 eval` on the terminal.

use super::result::{EvalView, Listed, QUICK};
use crate::ui::output::{Paint, Table};
use e3_evaluation::{Cell, Column, Outcome};
use std::fmt::Write as _;

/// The experiments.
pub fn list(list: &[Listed]) -> String {
    let mut table = Table::new(&["EXPERIMENT", "SECTION", "WHAT"]);
    for e in list {
        table.row([e.name, e.section, e.title]);
    }
    table.render()
}

/// All figures.
pub fn outcomes(view: &EvalView, paint: Paint) -> String {
    let mut text = String::new();
    if view.quick {
        let _ = writeln!(text, "{}", paint.yellow(QUICK));
    }
    for outcome in &view.outcomes {
        self::outcome(&mut text, outcome, paint);
    }
    text
}

fn outcome(text: &mut String, outcome: &Outcome, paint: Paint) {
    let _ = writeln!(text, "\n{}", paint.bold(outcome.title));
    for table in &outcome.tables {
        let _ = writeln!(text, "\n{}", table.title);
        let headings: Vec<String> = table.columns.iter().map(heading).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut shown = Table::new(&headings).indent(2);
        for row in &table.rows {
            let cells = row.iter().zip(&table.columns);
            shown.row(cells.map(|(cell, column)| self::cell(cell, column)));
        }
        *text += &shown.render();
    }
    for c in &outcome.comparisons {
        let _ = writeln!(
            text,
            "\n{}: the paper {}, here {}\n  {}",
            c.what, c.paper, c.ours, c.why
        );
    }
    text.push('\n');
    for note in &outcome.notes {
        let _ = writeln!(text, "{note}");
    }
}

fn heading(column: &Column) -> String {
    let name = column.name.to_uppercase();
    match column.provenance {
        Some(_) => format!(">{name}"),
        None => name,
    }
}

/// A cell as people read it.
pub fn cell(cell: &Cell, column: &Column) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => format!("{number:.*}", column.digits),
        Cell::None => "-".into(),
    }
}
