//! The report: one HTML page that needs nothing else, readable on a phone, light and dark.

use super::result::{EvalView, QUICK};
use super::{plot, view};
use crate::ui::failure::Failure;
use e3_evaluation::{Cell, Outcome, Table};
use std::fmt::Write as _;

/// Its name.
pub const FILE: &str = "report.html";
/// Longer tables are folded.
const ROWS_OPEN_MAX: usize = 20;

const STYLE: &str = include_str!("report.css");
const ABOUT: &str = "Everything here is modelled by the performance simulator of E3, except where a column says otherwise: \
no cluster, SmartNIC or power meter was at hand. The models are calibrated by Tables 1 and 4 of E3 (Liu, Peter, Krishnamurthy, \
Phothilimthana, USENIX ATC 2019) and the ratios of its Fig. 3; nothing is tuned to the results of its section 5. \
What no source gives is a guess with a range, in docs/design/026-performance-simulator.md.";

/// The page.
pub fn html(view: &EvalView) -> Result<String, Failure> {
    let mut body = String::new();
    let _ = write!(
        body,
        "<h1>E3: experiments of the paper</h1>\n<p>{}</p>\n",
        escape(ABOUT)
    );
    if view.quick {
        let _ = writeln!(body, "<p class=\"warning\">{}</p>", escape(QUICK));
    }
    let _ = writeln!(
        body,
        "<p>Command: <code>{}</code>, version {}</p>\n<nav><ul>",
        escape(&view.command),
        env!("CARGO_PKG_VERSION")
    );
    for o in &view.outcomes {
        let (name, title) = (escape(o.experiment), escape(o.title));
        let _ = writeln!(body, "<li><a href=\"#{name}\">{title}</a></li>");
    }
    body.push_str("</ul></nav>\n");
    for outcome in &view.outcomes {
        section(&mut body, view, outcome)?;
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>E3: experiments of the paper</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    ))
}

fn section(body: &mut String, view: &EvalView, outcome: &Outcome) -> Result<(), Failure> {
    let _ = write!(
        body,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{} (Section {} of the paper.)</p>\n",
        escape(outcome.experiment),
        escape(outcome.title),
        escape(outcome.about),
        escape(outcome.section)
    );
    body.push_str("<div class=\"figures\">\n");
    for drawn in &outcome.plots {
        let label = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&drawn.alt));
        let svg = plot::svg(drawn)?.replacen("<svg ", &label, 1);
        let _ = writeln!(body, "<figure>\n{svg}</figure>");
    }
    body.push_str("</div>\n");
    comparisons(body, outcome);
    for table in &outcome.tables {
        self::table(body, table);
    }
    for note in &outcome.notes {
        let _ = writeln!(body, "<p>{}</p>", escape(note));
    }
    let again = view
        .command
        .replacen("e3 eval all", &format!("e3 eval {}", outcome.experiment), 1);
    let _ = writeln!(
        body,
        "<dl>\n<dt>command</dt><dd><code>{}</code></dd>",
        escape(&again)
    );
    for (name, value) in &outcome.parameters {
        let _ = writeln!(body, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    body.push_str("</dl>\n</section>\n");
    Ok(())
}

fn comparisons(body: &mut String, outcome: &Outcome) {
    if outcome.comparisons.is_empty() {
        return;
    }
    body.push_str(
        "<div class=\"wide\"><table>\n<caption>The paper beside ours</caption>\n\
         <tr><th>what</th><th>paper</th><th>here</th><th>difference, and why we think so</th></tr>\n",
    );
    for c in &outcome.comparisons {
        let cells = [&c.what, &c.paper, &c.ours, &c.why].map(|t| escape(t));
        let _ = writeln!(body, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
    }
    body.push_str("</table></div>\n");
}

fn table(body: &mut String, table: &Table) {
    let title = escape(&table.title);
    let folded = table.rows.len() > ROWS_OPEN_MAX;
    if folded {
        let _ = write!(body, "<details><summary>{title}</summary>");
    }
    let _ = write!(
        body,
        "<div class=\"wide\" tabindex=\"0\"><table class=\"numbers\">\n<caption>{title}</caption>\n<tr>"
    );
    for c in &table.columns {
        let name = escape(&c.name);
        let _ = match c.provenance {
            Some(from) => write!(
                body,
                "<th class=\"number\">{name}<small>{}</small></th>",
                from.name()
            ),
            None => write!(body, "<th>{name}</th>"),
        };
    }
    body.push_str("</tr>\n");
    for row in &table.rows {
        body.push_str("<tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            let class = match cell {
                Cell::Number(_) => " class=\"number\"",
                _ => "",
            };
            let _ = write!(
                body,
                "<td{class}>{}</td>",
                escape(&view::cell(cell, column))
            );
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
    if folded {
        body.push_str("</details>\n");
    }
}

/// Text as it may stand in an element or an attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
