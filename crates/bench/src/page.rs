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
    let name = |row: &str| row.split('`').nth(1).map(String::from);
    let mut rows: Vec<String> = report.results.iter().map(row).collect();
    let names: Vec<String> = rows.iter().filter_map(|row| name(row)).collect();
    let (mut all, mut last) = (String::new(), String::new());
    for kept in earlier.lines().filter(|line| line.starts_with("| `")) {
        if let Some(at) = rows.iter().position(|row| name(row) == name(kept)) {
            all += &rows.remove(at);
        } else {
            all += &format!("{kept}\n");
            last = format!(" Measured last: {}.", names.join(", "));
        }
    }
    all += &rows.concat();
    let mut text = format!(
        "{}\n{about}\n\nVersion {} on {}.{last}\n\n",
        heading(report.group),
        report.version,
        report.machine
    );
    text += "| name | result | aim | what |\n|---|---|---|---|\n";
    text += &all;
    let mut tables: Vec<String> = report.tables.iter().map(behind).collect();
    let is_new = |title: &str| report.tables.iter().any(|t| title == format!("{}:", t.title));
    let blocks: Vec<&str> = earlier.trim_end().split("\n\n").collect();
    let figures = blocks.iter().position(|b| b.starts_with("| name |"));
    let kept = blocks[figures.map_or(blocks.len(), |at| at + 1)..].chunks(3);
    let kept = kept.filter(|table| !is_new(table[0]));
    tables.extend(kept.map(|table| format!("\n{}\n", table.join("\n\n"))));
    text + &tables.concat()
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
