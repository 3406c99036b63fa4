//! The table of `ARCHITECTURE.md` that says what each crate may do.
//!
//! It is the table with a column `may depend on`; crates are named by their directory without
//! `crates/`. A row whose name ends in `/*` applies to every member below without a row of its own.

use std::collections::BTreeMap;
use std::path::Path;

use crate::process::Outcome;

/// Layers, lowest first; a crate never depends on one of a later layer.
const LAYERS: [&str; 5] = ["ground", "core", "adapter", "program", "around"];

/// What the table says, by crate.
#[derive(Debug)]
pub struct Architecture {
    rows: BTreeMap<String, Row>,
}

/// One crate's rights.
#[derive(Clone, Debug)]
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
        let mut lines = text.lines().map(cells).zip(1..);
        let (header, line) = lines
            .by_ref()
            .find(|(cells, _)| cells.iter().any(|c| c == "may depend on"))
            .ok_or("0: no table with a column \"may depend on\"")?;
        let columns = Columns::find(&header).map_err(|e| format!("{line}: {e}"))?;
        let mut rows = BTreeMap::new();
        for (cells, line) in lines.skip(1).take_while(|(cells, _)| !cells.is_empty()) {
            if cells.len() != header.len() {
                let (found, wanted) = (cells.len(), header.len());
                return Err(format!("{line}: {found} cells, must be {wanted}"));
            }
            let row = columns.row(&cells).map_err(|e| format!("{line}: {e}"))?;
            for name in code_spans(&cells[columns.name]) {
                if rows.insert(name.clone(), row.clone()).is_some() {
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

/// Where the columns of the table are.
struct Columns {
    name: usize,
    layer: usize,
    io_banned: usize,
    unsafe_code: usize,
    may_depend_on: usize,
}

impl Columns {
    fn find(header: &[String]) -> Outcome<Self> {
        let column = |name: &str| {
            let at = header.iter().position(|c| c == name);
            at.ok_or_else(|| format!("the table has no column {name:?}"))
        };
        Ok(Self {
            name: column("crate")?,
            layer: column("layer")?,
            io_banned: column("I/O banned")?,
            unsafe_code: column("unsafe")?,
            may_depend_on: column("may depend on")?,
        })
    }

    fn row(&self, cells: &[String]) -> Outcome<Row> {
        let name = cells[self.layer].as_str();
        let layer = LAYERS.iter().position(|layer| *layer == name);
        Ok(Row {
            layer: layer.ok_or_else(|| format!("layer is {name:?}, must be one of {LAYERS:?}"))?,
            io_banned: yes_or_no(&cells[self.io_banned])?,
            unsafe_code: yes_or_no(&cells[self.unsafe_code])?,
            may_depend_on: code_spans(&cells[self.may_depend_on]),
        })
    }
}

/// Cells of a table's line; none if the line is not part of a table.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    inner
        .map(|l| l.split('|').map(|c| c.trim().to_owned()).collect())
        .unwrap_or_default()
}

fn yes_or_no(cell: &str) -> Outcome<bool> {
    match cell {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(format!("found {other:?}, must be yes or no")),
    }
}

/// The texts between backticks.
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
    fn errors_name_the_line() {
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
