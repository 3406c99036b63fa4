//! The page of benchmarks: `e3 bench GROUP --write FILE` puts its own section there and leaves the
//! others as they are, so that every figure on the page comes from the command that it names.

use crate::{Better, Figure, Report, Table};
use std::io;
use std::path::Path;

/// What stands above the sections.
const HEAD: &str = "\
# Benchmarks

Written by `e3 bench GROUP --write docs/benchmarks.md`, a section for each group; `make bench` runs
all but `chaos`, which takes hours. Machines are shared and noisy, so a figure that can be compared between
machines is the ratio of medians of alternating rounds; absolute figures stand beside it for orientation.
";

/// Puts the report's section into the page. If it has a part of the group's figures only, the others stay as
/// they are, and so do tables of other titles.
pub fn write(file: &Path, about: &str, report: &Report, is_part: bool) -> io::Result<()> {
    let old = match std::fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => HEAD.to_string(),
        read => read?,
    };
    let (_, earlier, _) = around(&old, report.group);
    let earlier = if is_part { earlier } else { "" };
    let section = section(about, report, earlier);
    std::fs::write(file, with_section(&old, report.group, &section))
}

fn heading(group: &str) -> String {
    format!("## `e3 bench {group}`\n")
}

/// The section of a report, with what an earlier one has beyond it.
fn section(about: &str, report: &Report, earlier: &str) -> String {
    let new: Vec<&str> = report.results.iter().map(|f| f.name.as_str()).collect();
    let is_kept = |line: &&str| name(line).is_some_and(|name| !new.contains(&name));
    let last = if earlier.lines().any(|line| is_kept(&line)) {
        format!(" Measured last: `{}`.", new.join("`, `"))
    } else {
        String::new()
    };
    format!(
        "{}\n{about}\n\nVersion {} on {}.{last}\n\n| name | result | aim | what |\n|---|---|---|---|\n{}{}",
        heading(report.group),
        report.version,
        report.machine,
        rows(report, earlier),
        tables(report, earlier),
    )
}

/// The name of the figure whose row this line is.
fn name(line: &str) -> Option<&str> {
    Some(line.strip_prefix("| `")?.split_once('`')?.0)
}

/// The rows of an earlier section, each replaced by the report's if it has the figure; then its other ones.
fn rows(report: &Report, earlier: &str) -> String {
    let mut new: Vec<&Figure> = report.results.iter().collect();
    let mut rows = String::new();
    for line in earlier.lines() {
        let Some(name) = name(line) else { continue };
        match new.iter().position(|figure| figure.name == name) {
            Some(at) => rows += &row(new.remove(at)),
            None => rows += &format!("{line}\n"),
        }
    }
    rows.extend(new.into_iter().map(row));
    rows
}

/// The tables of the report, and those of an earlier section with other titles: there a table is a paragraph
/// each for title, rows and note, below the figures.
fn tables(report: &Report, earlier: &str) -> String {
    let mut tables: String = report.tables.iter().map(behind).collect();
    let is_new = |title: &str| {
        report
            .tables
            .iter()
            .any(|t| title == format!("{}:", t.title))
    };
    let paragraphs: Vec<&str> = earlier.trim_end().split("\n\n").collect();
    let figures = paragraphs.iter().position(|p| p.starts_with("| name |"));
    let below = figures.map_or(&[][..], |at| &paragraphs[at + 1..]);
    for table in below.chunks(3).filter(|table| !is_new(table[0])) {
        tables += &format!("\n{}\n", table.join("\n\n"));
    }
    tables
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

/// What is before the group's section on a page, the section, and what is behind it.
fn around<'a>(page: &'a str, group: &str) -> (&'a str, &'a str, &'a str) {
    let (before, rest) = match page.find(&heading(group)) {
        Some(at) => page.split_at(at),
        None => (page, ""),
    };
    let end = rest.get(1..).and_then(|r| r.find("\n## "));
    let (section, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 2));
    (before, section, behind)
}

/// The page with this section in place of the group's old one, or at its end.
fn with_section(page: &str, group: &str, section: &str) -> String {
    let (before, _, after) = around(page, group);
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
        assert!(section("about", &report, "").ends_with(expected));
    }

    #[test]
    fn a_part_of_the_figures_leaves_the_others() {
        let table = |title: &str| Table {
            title: title.into(),
            columns: vec!["ms".into()],
            rows: vec![vec!["1".into()]],
            note: "A note.".into(),
        };
        let figure = |name, value| Figure::new(name, value, "ms", Better::Lower);
        let all = [figure("a", 1.0), figure("b", 2.0), figure("c", 3.0)];
        let all = Report::new("a", all.into()).tables(vec![table("Times"), table("Sizes")]);
        let part = [figure("d", 5.0), figure("b", 4.0)];
        let part = Report::new("a", part.into()).tables(vec![table("Sizes")]);

        let text = section("about", &part, &section("about", &all, ""));
        let expected = "\
| `a` | 1.00 ms |  |  |
| `b` | 4.00 ms |  |  |
| `c` | 3.00 ms |  |  |
| `d` | 5.00 ms |  |  |

Sizes:

| ms |
| ---: |
| 1 |

A note.

Times:

| ms |
| ---: |
| 1 |

A note.
";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains(". Measured last: `d`, `b`.\n"), "{text}");
        let whole = section("about", &part, "");
        assert!(!whole.contains("`a`") && !whole.contains("last"), "{whole}");
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
