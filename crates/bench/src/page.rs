//! The page of benchmarks: `e3 bench GROUP --write FILE` puts its own section there and leaves the
//! others as they are, so that every figure on the page comes from the command that it names.

use crate::{Better, Figure, Report, Table};
use std::io;
use std::path::Path;

/// What stands above the sections.
const HEAD: &str = "\
# Benchmarks

Written by `e3 bench GROUP --write docs/benchmarks.md`, a section for each group; `make bench` runs
all. Machines are shared and noisy, so a figure that can be compared between machines is the ratio of
medians of alternating rounds; absolute figures stand beside it for orientation.
";

/// Puts the report's section into the page.
pub fn write(file: &Path, about: &str, report: &Report) -> io::Result<()> {
    let old = match std::fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => HEAD.to_string(),
        read => read?,
    };
    let new = with_section(&old, report.group, &section(about, report));
    std::fs::write(file, new)
}

fn heading(group: &str) -> String {
    format!("## `e3 bench {group}`\n")
}

fn section(about: &str, report: &Report) -> String {
    let mut text = format!(
        "{}\n{about}\n\nVersion {} on {}.\n\n",
        heading(report.group),
        report.version,
        report.machine
    );
    text += "| name | result | aim | what |\n|---|---|---|---|\n";
    for figure in &report.results {
        text += &row(figure);
    }
    for table in &report.tables {
        text += &behind(table);
    }
    text
}

fn behind(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---:".to_string(); table.columns.len()];
    let rows = table.rows.iter().map(|row| line(row));
    let rows: String = rows.collect();
    format!(
        "\n{}:\n\n{}{}{rows}\n{}\n",
        table.title,
        line(&table.columns),
        line(&rule),
        table.note
    )
}

fn row(figure: &Figure) -> String {
    let number = |v: f64| match v.abs() {
        100.0.. => format!("{v:.0}"),
        10.0.. => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    };
    let bound = match figure.better {
        Better::Lower => "at most",
        Better::Higher => "at least",
    };
    let verdict = match figure.pass {
        Some(true) => "met",
        _ => "**missed**",
    };
    let aim = figure.aim.map(|aim| format!("{bound} {aim}, {verdict}"));
    let value = figure.value.map_or_else(|| "none".into(), number);
    format!(
        "| `{}` | {value} {} | {} | {} |\n",
        figure.name,
        figure.unit,
        aim.unwrap_or_default(),
        figure.note.replace('|', "\\|")
    )
}

/// The page with this section in place of the group's old one, or at its end.
fn with_section(page: &str, group: &str, section: &str) -> String {
    let (before, rest) = match page.find(&heading(group)) {
        Some(at) => page.split_at(at),
        None => (page, ""),
    };
    let after = match rest.get(1..).and_then(|r| r.find("\n## ")) {
        Some(at) => &rest[at + 2..],
        None => "",
    };
    let parts = [before.trim_end(), section.trim_end(), after.trim_end()];
    let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stands_below_the_figures() {
        let table = Table {
            title: "Times".into(),
            columns: ["servers", "hcm_ms"].map(String::from).into(),
            rows: vec![["100", "1.5"].map(String::from).into()],
            note: "A note.".into(),
        };
        let report = Report::new("a", Vec::new()).tables(vec![table]);
        let expected =
            "\nTimes:\n\n| servers | hcm_ms |\n| ---: | ---: |\n| 100 | 1.5 |\n\nA note.\n";
        assert!(section("about", &report).ends_with(expected));
    }

    #[test]
    fn a_section_replaces_its_own_old_one_only() {
        let old = "# Page\n\n## `e3 bench a`\n\n1\n\n## `e3 bench b`\n\n2\n";
        let new_a = "## `e3 bench a`\n\n3\n";
        assert_eq!(with_section(old, "a", new_a), old.replace('1', "3"));
        let new_b = "## `e3 bench b`\n\n3\n";
        assert_eq!(with_section(old, "b", new_b), old.replace('2', "3"));
        let new_c = "## `e3 bench c`\n\n3\n";
        assert_eq!(with_section(old, "c", new_c), format!("{old}\n{new_c}"));
    }
}
