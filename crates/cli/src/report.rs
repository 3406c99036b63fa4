//! Sections of the reports of `e3 load` and `e3 demo`, written for someone who sees them first.

use crate::figures::Figures;
use crate::model::Modelled;
use crate::output::{Paint, Table};
use crate::text::{bytes, count, micros, percent, rate};
use e3_load::{LoadReport, ServiceCheck, Verdict};
use e3_model::api::{AppView, InstanceView, PlacedView};
use e3_model::plan::Role;
use std::collections::BTreeMap;
use std::fmt::Write as _;

fn heading(text: &mut String, paint: Paint, words: &str, source: &str) {
    let _ = writeln!(text, "\n{} ({source})", paint.bold(words));
}

fn reading(text: &mut String, words: &str) {
    let _ = writeln!(text, "  {words}");
}

fn facts(text: &mut String, rows: &[(&str, String)]) {
    let mut table = Table::new(&["", ""]).indent(2);
    for (name, value) in rows {
        table.row([name.to_string(), value.clone()]);
    }
    *text += &table.render();
}

/// Rates and latencies.
pub fn load(text: &mut String, paint: Paint, load: &LoadReport) {
    let l = &load.latency;
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
            (
                "latency",
                format!(
                    "average {}, p50 {}, p99 {}, p99.9 {}, longest {}",
                    micros(l.avg_us),
                    micros(l.p50_us),
                    micros(l.p99_us),
                    micros(l.p99_9_us),
                    micros(l.max_us)
                ),
            ),
            (
                "longest pause",
                format!("{:.0} ms without any answer", load.longest_pause_ms),
            ),
        ],
    );
    if ledger.saturated > 0 || ledger.not_sent > 0 {
        let words = format!(
            "the load generator was saturated: {} times no sender was free, {} requests were not sent",
            count(ledger.saturated),
            count(ledger.not_sent)
        );
        reading(text, &paint.yellow(&words));
    }
    reading(
        text,
        "Latency counts from the moment a request was due, so waiting is not hidden.",
    );
}

/// What became of the requests, what was read back, and the verdict.
pub fn ledger(text: &mut String, paint: Paint, load: &LoadReport) {
    let l = &load.ledger;
    heading(
        text,
        paint,
        "Exactly once",
        "measured: the sender's ledger against the state read back",
    );
    let outcomes = l.done + l.overloaded + l.expired + l.failed + l.rejected;
    let others = [
        ("unauthorized, as sent on purpose", l.unauthorized),
        ("refused, as sent on purpose", l.refused_on_purpose),
        ("rate limited", l.rate_limited),
        ("refused by the application", l.refused),
        ("wrong answers", l.wrong),
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
    let mut outcome = format!("{}: {} accepted", count(outcomes), count(l.accepted));
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
                "{} ({} updates twice, {} contradictory answers), {} updates unexplained",
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

/// What was read back of a service.
fn check(c: &ServiceCheck) -> String {
    if !c.readable {
        return format!("not checked: {}", c.what);
    }
    let mut words = format!("{} of {} right", count(c.right), count(c.right + c.wrong));
    if c.unread > 0 {
        words += &format!(", {} questions without an answer", count(c.unread));
    }
    if c.unsure > 0 {
        words += &format!(", {} not known to the ledger", count(c.unsure));
    }
    format!("{words}: {}", c.what)
}

fn verdict(load: &LoadReport) -> String {
    let words = match load.verdict {
        Verdict::Proved => {
            "every request has one outcome, and every stateful service keeps what the ledger says"
        }
        Verdict::PartlyChecked => {
            "every request has one outcome, and what was read back is what the ledger says"
        }
        Verdict::NotChecked => "every request has one outcome, but no state was read back",
        Verdict::Failed => return format!("{}:", load.verdict),
    };
    format!("{}: {words}", load.verdict)
}

/// The score of spike detection.
pub fn spikes(text: &mut String, paint: Paint, load: &LoadReport) {
    let Some(s) = &load.spikes else { return };
    heading(
        text,
        paint,
        "Spike detection",
        "measured: injected spikes against those that were found",
    );
    let part = |value: Option<f64>, none: &str, of: &str| match value {
        Some(value) => format!("{} of {of}", percent(value)),
        None => none.to_string(),
    };
    facts(
        text,
        &[
            ("injected", count(s.injected)),
            (
                "found",
                format!(
                    "{}, of which {} were injected",
                    count(s.detected),
                    count(s.hits)
                ),
            ),
            (
                "precision",
                part(s.precision, "none found", "those found were injected"),
            ),
            (
                "recall",
                part(s.recall, "none injected", "those injected were found"),
            ),
        ],
    );
}

/// What the application found of what there was to find.
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

/// A reason without the instance that it is about.
pub fn reason(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(_, rest)| rest)
}

/// Where services run, and why.
pub fn places(text: &mut String, paint: Paint, app: &AppView, visits: &[f64]) {
    heading(
        text,
        paint,
        "Where services run, and why",
        "placer: hierarchical, communication-aware",
    );
    let mut table = Table::new(&[
        "SERVICE",
        ">SHARDS",
        "PRIMARIES",
        "BACKUPS",
        ">MESSAGES/REQUEST",
    ])
    .indent(2);
    let mut reasons = Table::new(&["", ""]).indent(2);
    for (s, visits) in app.services.iter().zip(visits) {
        table.row([
            s.name.clone(),
            s.shards.to_string(),
            crate::describe::nodes(s),
            backups(&app.placed, &s.name),
            format!("{visits:.2}"),
        ]);
        let first = format!("{}/0 primary", s.name);
        if let Some(p) = app.placed.iter().find(|p| p.instance == first) {
            reasons.row([format!("why {}/0", s.name), reason(&p.why).to_string()]);
        }
    }
    *text += &table.render();
    *text += &reasons.render();
    reading(
        text,
        "Level 1 is the same node as the caller, 2 the same server, 3 and 4 another server's",
    );
    reading(
        text,
        "SmartNIC or host. A backup is always on another server than its primary.",
    );
}

fn backups(placed: &[PlacedView], service: &str) -> String {
    let mut nodes: BTreeMap<&str, u32> = BTreeMap::new();
    for p in placed {
        let of_service = p.instance.split('/').next() == Some(service);
        if of_service && p.instance.ends_with("backup") {
            *nodes.entry(&p.node).or_default() += 1;
        }
    }
    let each: Vec<String> = nodes
        .iter()
        .map(|(n, times)| format!("{n} {times}"))
        .collect();
    each.join(", ")
}

/// Use of each node, here and at the modelled knee.
pub fn nodes(
    text: &mut String,
    paint: Paint,
    figures: &Figures,
    instances: &[InstanceView],
    modelled: Option<&Modelled>,
) {
    heading(
        text,
        paint,
        "Use of each node",
        "left measured here, right modelled at the knee",
    );
    let mut table = Table::new(&[
        "NODE",
        "KIND",
        ">PRIMARIES",
        ">BACKUPS",
        ">CPU HERE",
        ">MEMORY",
        ">MODEL: CORES",
        ">ACTIVE W",
    ])
    .indent(2);
    for n in &figures.nodes {
        let count_of = |primary: bool| {
            let on = |i: &&InstanceView| i.node == n.name && (i.role == Role::Primary) == primary;
            instances.iter().filter(on).count().to_string()
        };
        let model = modelled.and_then(|m| m.knee.nodes.iter().find(|u| u.name == n.name));
        table.row([
            n.name.clone(),
            n.kind.name().to_string() + if n.emulated { " (emulated)" } else { "" },
            count_of(true),
            count_of(false),
            percent(n.cpu_cores),
            bytes(n.resident_bytes),
            model.map_or_else(|| "-".into(), |u| percent(u.utilisation)),
            model.map_or_else(|| "-".into(), |u| format!("{:.1}", u.watts.0)),
        ]);
    }
    *text += &table.render();
    reading(
        text,
        "CPU here: part of one core of this machine. Model: part of the node's cores, watts above idle.",
    );
}

/// Energy, next to the same application elsewhere.
pub fn energy(text: &mut String, paint: Paint, all: &[Modelled]) {
    heading(
        text,
        paint,
        "Energy",
        "MODELLED from E3 (USENIX ATC 2019), Tables 1 and 4; nothing here is measured",
    );
    let mut table = Table::new(&[
        "PLACEMENT",
        ">KNEE, REQUESTS/S",
        ">WATTS",
        ">REQUESTS/J",
        "BOUND BY",
    ])
    .indent(2);
    for m in all {
        table.row([
            m.placement.clone(),
            rate(m.knee.rate_rps),
            format!("{:.0}", m.knee.watts_total.0),
            format!("{:.1}", m.knee.requests_per_joule),
            m.bound.clone(),
        ]);
    }
    *text += &table.render();
    if let [here, others @ ..] = all {
        let against = |m: &Modelled| {
            let ratio = here.knee.requests_per_joule / m.knee.requests_per_joule;
            format!("{ratio:.2} times that of {}", m.placement)
        };
        let words: Vec<String> = others.iter().map(against).collect();
        reading(
            text,
            &paint.bold(&format!("Requests per joule: {}.", words.join(", "))),
        );
    }
    reading(
        text,
        "The knee is the highest rate at which no core or port is used above 80 %; watts are those",
    );
    reading(
        text,
        "of all servers at that rate, idle power included. Two shared cores cannot show it.",
    );
}
