//! The table of `ARCHITECTURE.md` that says what each crate may do.
//!
//! It is the table with a column `may depend on`; crates are named by their directory, without
//! `crates/`. A row whose name ends in `/*` stands for every member below that has no own row.

use std::collections::BTreeMap;
use std::path::Path;

use crate::process::Outcome;

/// Layers, lowest first: an arrow never points to a later one.
const LAYERS: [&str; 5] = ["ground", "core", "adapter", "program", "around"];

/// What the table says, by crate.
#[derive(Debug)]
pub struct Architecture {
    rows: BTreeMap<String, Row>,
}

/// One crate's rights.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Index in the list of layers.
    pub layer: usize,
    /// Whether clocks, sockets, files and threads are banned by its `clippy.toml`.
    pub io_banned: bool,
    /// Whether it may hold unsafe code.
    pub unsafe_code: bool,
    /// The members that it may depend on.
    pub may_depend_on: Vec<String>,
}

impl Architecture {
    /// Reads `ARCHITECTURE.md` under `root`.
    pub fn load(root: &Path) -> Outcome<Self> {
        let path = root.join("ARCHITECTURE.md");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("ARCHITECTURE.md:{e}"))
    }

    /// Finds and reads the table; errors begin with the line number.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, cells(line)));
        let (line, header) = lines
            .by_ref()
            .find(|(_, cells)| cells.iter().any(|c| c == "may depend on"))
            .ok_or("0: no table with a column \"may depend on\"")?;
        let column = |name: &str| {
            let at = header.iter().position(|c| c == name);
            at.ok_or_else(|| format!("{line}: the table has no column {name:?}"))
        };
        let (name, layer, io_banned, unsafe_code, arrows) = (
            column("crate")?,
            column("layer")?,
            column("I/O banned")?,
            column("unsafe")?,
            column("may depend on")?,
        );
        let mut rows = BTreeMap::new();
        for (line, cells) in lines.skip(1).take_while(|(_, cells)| !cells.is_empty()) {
            if cells.len() != header.len() {
                return Err(format!(
                    "{line}: {} cells, must be {}",
                    cells.len(),
                    header.len()
                ));
            }
            let row = Row {
                layer: LAYERS
                    .iter()
                    .position(|l| *l == cells[layer])
                    .ok_or_else(|| {
                        format!(
                            "{line}: layer is {:?}, must be one of {LAYERS:?}",
                            cells[layer]
                        )
                    })?,
                io_banned: yes_or_no(line, &cells[io_banned])?,
                unsafe_code: yes_or_no(line, &cells[unsafe_code])?,
                may_depend_on: code_spans(&cells[arrows]),
            };
            for name in code_spans(&cells[name]) {
                if rows
                    .insert(
                        name.clone(),
                        Row {
                            may_depend_on: row.may_depend_on.clone(),
                            ..row
                        },
                    )
                    .is_some()
                {
                    return Err(format!("{line}: {name} has two rows"));
                }
            }
        }
        Ok(Self { rows })
    }

    /// The row of a member.
    pub fn row(&self, short: &str) -> Option<&Row> {
        let wildcard = || Some(format!("{}/*", short.rsplit_once('/')?.0));
        self.rows.get(short).or_else(|| self.rows.get(&wildcard()?))
    }

    /// Every row with its name, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row))
    }
}

/// Cells of a table's line; nothing if it is none.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    inner
        .map(|l| l.split('|').map(|c| c.trim().to_owned()).collect())
        .unwrap_or_default()
}

fn yes_or_no(line: usize, cell: &str) -> Outcome<bool> {
    match cell {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(format!("{line}: found {other:?}, must be yes or no")),
    }
}

/// What stands between backticks.
pub fn code_spans(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Map

| crate | what |
|---|---|
| `model` | types |

| crate | layer | I/O banned | unsafe | may depend on |
|---|---|---|---|---|
| `model` | ground | yes | no | - |
| `wire` | ground | yes | no | `model` |
| `net`, `engine` | adapter | no | yes | `model`, `wire` |
| `services/*` | around | no | no | |

Text after the table.
";

    #[test]
    fn table_gives_rows() {
        let architecture = Architecture::parse(TABLE).expect("valid");
        assert_eq!(architecture.rows().count(), 5);
        let net = architecture.row("net").expect("there");
        assert_eq!(net.may_depend_on, ["model", "wire"]);
        assert!(!net.io_banned && net.unsafe_code && net.layer == 2);
        assert_eq!(architecture.row("services/ema").map(|r| r.layer), Some(4));
        assert!(architecture.row("gone").is_none());
    }

    #[test]
    fn faults_name_the_line() {
        let errors = |text: &str| Architecture::parse(text).expect_err("invalid");
        assert!(errors("nothing").starts_with("0: no table"));
        assert!(
            errors(&TABLE.replace("I/O banned", "I/O")).starts_with("7: the table has no column")
        );
        assert!(errors(&TABLE.replace("adapter", "attic")).starts_with("11: layer is \"attic\""));
        assert!(errors(&TABLE.replace("no | -", "perhaps | -")).starts_with("9: found"));
        assert!(errors(&TABLE.replace("`wire` |", "`model` |")).starts_with("10: model has two"));
        assert!(errors(&TABLE.replace("| no | no | |", "| no | |")).starts_with("12: 4 cells"));
    }
}
