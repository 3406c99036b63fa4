//! Parts of the texts of `e3 describe`.

use crate::ui::output::{Paint, Table};
use std::fmt::Write as _;

/// Names and values, one pair a line.
pub fn facts(rows: Vec<(&str, String)>) -> String {
    let mut table = Table::new(&["", ""]);
    for (name, value) in rows {
        table.row([format!("{name}:"), value]);
    }
    table.render()
}

/// A heading after an empty line.
pub fn heading(text: &mut String, paint: Paint, title: &str) {
    let _ = writeln!(text, "\n{}", paint.bold(title));
}

/// The values, or `none`.
pub fn list(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<String> = values.into_iter().collect();
    if values.is_empty() {
        "none".into()
    } else {
        values.join(", ")
    }
}
