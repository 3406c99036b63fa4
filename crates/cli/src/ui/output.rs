//! Output of the commands: tables, JSON, YAML, colours, progress bars.

use crate::limits::SPINNER_INTERVAL;
use crate::ui::failure::{Exit, Failure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Format of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people to read
    #[default]
    Table,
    /// For programs to read
    Json,
    /// For people and programs to read
    Yaml,
}

/// `-o`.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Output {
    /// Output format [default: table]
    #[arg(short, long, env = "E3_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// Same as -o json
    #[arg(long)]
    json: bool,
}

impl Output {
    /// The requested format.
    pub fn format(self) -> Option<Format> {
        if self.json {
            Some(Format::Json)
        } else {
            self.output
        }
    }
}

/// When to use colours.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// For standard output.
    pub fn stdout(when: When) -> Paint {
        Paint::new(when, std::io::stdout().is_terminal())
    }

    /// For standard error.
    pub fn stderr(when: When) -> Paint {
        Paint::new(when, std::io::stderr().is_terminal())
    }

    fn new(when: When, terminal: bool) -> Paint {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Paint {
            on: match when {
                When::Always => true,
                When::Never => false,
                When::Auto => terminal && !no_color,
            },
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// Something good.
    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }
    /// Something to look at.
    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }
    /// Something bad.
    pub fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }
    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
    /// Green if good, else red.
    pub fn verdict(self, good: bool, text: &str) -> String {
        if good {
            self.green(text)
        } else {
            self.red(text)
        }
    }
}

/// Writes a line for the user to standard error. A failure to write is ignored.
pub fn say(line: &str) {
    e3_log::say(line);
}

/// Standard output was found to be a closed pipe.
static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Writes to standard output. A closed pipe (`e3 get nodes | head -1`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            READER_IS_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => Err(Failure::new(
            Exit::Unexpected,
            format!("write standard output: {e}"),
        )),
    }
}

/// Whether nobody reads standard output any more, as far as a write has shown. Commands that print without end
/// then end.
pub fn reader_is_gone() -> bool {
    READER_IS_GONE.load(Ordering::Relaxed)
}

/// Prints a value as JSON, as YAML, or as the text that `table` returns.
pub fn show<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let unwritable = |e: String| Failure::new(Exit::Unexpected, format!("write output: {e}"));
    let text = match format {
        Format::Table => table(),
        Format::Json => {
            let text =
                serde_json::to_string_pretty(value).map_err(|e| unwritable(e.to_string()))?;
            text + "\n"
        }
        Format::Yaml => serde_norway::to_string(value).map_err(|e| unwritable(e.to_string()))?,
    };
    print(&text)
}

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Aligned columns. Cells may hold colours.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// Columns by heading; `>` before a heading aligns it to the right.
    pub fn new(headings: &[&str]) -> Table {
        let column = |h: &&str| match h.strip_prefix('>') {
            Some(h) => (h.to_string(), Align::Right),
            None => (h.to_string(), Align::Left),
        };
        Table {
            columns: headings.iter().map(column).collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// The table, indented.
    pub fn indent(mut self, spaces: usize) -> Table {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text. There is no heading line if all headings are empty.
    pub fn render(&self) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|(h, _)| width(h)).collect();
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate().take(widths.len()) {
                widths[at] = widths[at].max(width(cell));
            }
        }
        let headings: Vec<String> = self.columns.iter().map(|(h, _)| h.clone()).collect();
        let headed = headings.iter().any(|h| !h.is_empty());
        let mut text = String::new();
        for row in headed.then_some(&headings).into_iter().chain(&self.rows) {
            let mut line = " ".repeat(self.indent);
            for (at, cell) in row.iter().enumerate().take(widths.len()) {
                let gap = " ".repeat(widths[at] - width(cell));
                let _ = match self.columns[at].1 {
                    Align::Left => write!(line, "{cell}{gap}  "),
                    Align::Right => write!(line, "{gap}{cell}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Columns that a text takes on a terminal, where escape sequences take none.
fn width(text: &str) -> usize {
    let mut count = 0;
    let mut escaped = false;
    for c in text.chars() {
        match (escaped, c) {
            (false, '\x1b') => escaped = true,
            (true, 'm') => escaped = false,
            (true, _) => {}
            (false, _) => count += 1,
        }
    }
    count
}

/// A progress bar on standard error, drawn only on a terminal.
pub fn progress(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_string());
    bar
}

/// A spinner on standard error, for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} {spinner} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_string());
    bar.enable_steady_tick(SPINNER_INTERVAL);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_with_and_without_colours() {
        let paint = Paint { on: true };
        let mut table = Table::new(&["NAME", ">COUNT"]);
        table.row(["a", "1"]);
        table.row([paint.red("long"), "20".into()]);
        let plain = table
            .render()
            .replace("\x1b[31m", "")
            .replace("\x1b[0m", "");
        assert_eq!(plain, "NAME  COUNT\na         1\nlong     20\n");
    }

    #[test]
    fn no_colour_without_a_terminal() {
        assert_eq!(Paint::new(When::Auto, false).red("x"), "x");
        assert_eq!(Paint::new(When::Never, true).red("x"), "x");
        assert_eq!(Paint::new(When::Always, false).red("x"), "\x1b[31mx\x1b[0m");
    }
}
