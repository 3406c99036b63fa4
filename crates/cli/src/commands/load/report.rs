//! Sections of the report on a load, written for readers who see one for the first time.

use crate::ui::output::{Paint, Table};
use crate::ui::text::{count, latency, percent, rate};
use e3_loadgen::{LoadReport, ServiceCheck, Verdict};
use std::fmt::Write as _;

pub fn heading(text: &mut String, paint: Paint, words: &str, source: &str) {
    let _ = writeln!(text, "\n{} ({source})", paint.bold(words));
}

pub fn reading(text: &mut String, words: &str) {
    let _ = writeln!(text, "  {words}");
}

pub fn facts(text: &mut String, rows: &[(&str, String)]) {
    let mut table = Table::new(&["", ""]).indent(2);
    for (name, value) in rows {
        table.row([name.to_string(), value.clone()]);
    }
    *text += &table.render();
}

/// Rates and latencies.
pub fn load(text: &mut String, paint: Paint, load: &LoadReport) {
    let seconds = format!("measured here, {:.0} s", load.duration_s);
    heading(text, paint, "Load", &seconds);
    let ledger = &load.ledger;
    // a file has no seed
    let seed = match &*load.workload {
        "file" => String::new(),
        _ => format!(", seed {}", load.seed),
    };
    facts(
        text,
        &[
            (
                "what",
                format!("{} by {}{seed}", load.workload, load.senders),
            ),
            ("offered", format!("{} requests/s", rate(load.offered_rps))),
            (
                "achieved",
                format!("{} requests/s", rate(load.achieved_rps)),
            ),
            ("latency", latency(&load.latency)),
            (
                "longest pause",
                format!("{:.0} ms without a reply", load.longest_pause_ms),
            ),
        ],
    );
    if ledger.saturated > 0 || ledger.not_sent > 0 {
        let words = format!(
            "the load generator was saturated: no sender was free {} times, {} requests were not sent",
            count(ledger.saturated),
            count(ledger.not_sent)
        );
        reading(text, &paint.yellow(&words));
    }
    reading(
        text,
        "Latency counts from the time that a request was due, so it includes all waiting.",
    );
}

/// Outcomes of the requests, checks of the state that was read back, and the verdict.
pub fn ledger(text: &mut String, paint: Paint, load: &LoadReport) {
    let l = &load.ledger;
    heading(
        text,
        paint,
        "Exactly once",
        "measured: the ledger of the load generator against the state read back",
    );
    let mut rows = outcomes(load);
    let lost = l.unknown + l.rows_missing;
    let repeated = l.rows_repeated + l.replies_contradictory;
    rows.extend([
        (
            "lost",
            format!(
                "{} ({} without outcome, {} updates missing)",
                count(lost),
                count(l.unknown),
                count(l.rows_missing)
            ),
        ),
        (
            "repeated",
            format!(
                "{} ({} updates twice, {} contradictory replies), {} updates unexplained",
                count(repeated),
                count(l.rows_repeated),
                count(l.replies_contradictory),
                count(l.rows_unexpected)
            ),
        ),
    ]);
    rows.extend(load.checks.iter().map(|c| (c.service, check(c))));
    let words = verdict(load);
    let good = load.verdict != Verdict::Failed;
    rows.push(("verdict", paint.verdict(good, &words)));
    facts(text, &rows);
    for reason in &load.reasons {
        reading(text, &format!("  {reason}"));
    }
}

/// Rows with the requests sent, their outcomes, and the updates found.
fn outcomes(load: &LoadReport) -> Vec<(&str, String)> {
    let l = &load.ledger;
    let total = l.done + l.overloaded + l.expired + l.failed + l.rejected;
    let others = [
        ("unauthorized, as sent on purpose", l.unauthorized),
        ("refused, as sent on purpose", l.refused_on_purpose),
        ("rate limited", l.rate_limited),
        ("refused by the application", l.refused),
        ("wrong replies", l.wrong),
        ("overloaded", l.overloaded),
        ("expired", l.expired),
        ("dead-lettered", l.failed),
        ("rejected", l.rejected),
    ];
    let others: Vec<String> = others
        .iter()
        .filter(|(_, times)| *times > 0)
        .map(|(what, times)| format!("{} {what}", count(*times)))
        .collect();
    let mut outcome = format!("{}: {} accepted", count(total), count(l.accepted));
    if !others.is_empty() {
        outcome += &format!(", {}", others.join(", "));
    }
    let early = if load.stopped_early {
        "; stopped early"
    } else {
        ""
    };
    let mut rows = vec![
        (
            "sent",
            format!(
                "{} requests, {} retries{early}",
                count(l.sent),
                count(l.repeats)
            ),
        ),
        ("outcomes", outcome),
    ];
    if l.rows_expected + l.rows_found > 0 {
        rows.push((
            "updates",
            format!(
                "{} found of {} accepted",
                count(l.rows_found),
                count(l.rows_expected)
            ),
        ));
    }
    rows
}

/// The check of the state of a service.
fn check(c: &ServiceCheck) -> String {
    if !c.readable {
        return format!("not checked: {}", c.what);
    }
    let mut words = format!("{} of {} correct", count(c.right), count(c.right + c.wrong));
    if c.unread > 0 {
        words += &format!(", {} queries without a reply", count(c.unread));
    }
    if c.unsure > 0 {
        words += &format!(", {} not known to the ledger", count(c.unsure));
    }
    format!("{words}: {}", c.what)
}

fn verdict(load: &LoadReport) -> String {
    let words = match load.verdict {
        Verdict::Proved => {
            "every request has one outcome, and the state of every stateful service agrees with the ledger"
        }
        Verdict::PartlyChecked => {
            "every request has one outcome, and the state that was read back agrees with the ledger"
        }
        Verdict::NotChecked => "every request has one outcome, but no state was read back",
        Verdict::Failed => return format!("{}:", load.verdict),
    };
    format!("{}: {words}", load.verdict)
}

/// What the application found.
pub fn findings(text: &mut String, paint: Paint, load: &LoadReport) {
    if load.findings.is_empty() {
        return;
    }
    heading(text, paint, "Results", "measured: against what was sent");
    let rows: Vec<(&str, String)> = load
        .findings
        .iter()
        .map(|f| {
            let part = match f.of {
                0 => "none to find".into(),
                of => percent(f.right as f64 / of as f64),
            };
            let what = format!("{} of {} ({part}): {}", count(f.right), count(f.of), f.how);
            (f.what, what)
        })
        .collect();
    facts(text, &rows);
}
