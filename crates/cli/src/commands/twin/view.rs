//! The report of `e3 twin` as text.

use super::TwinView;
use crate::commands::load::report::{facts, heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::{micros, rate};

/// An error with its sign.
fn error(part: f64) -> String {
    if part.is_finite() {
        format!("{:+.1} %", part * 100.0)
    } else {
        "-".into()
    }
}

/// The report.
pub fn table(view: &TwinView, paint: Paint) -> String {
    let mut text = format!(
        "{} on {}: measured on this machine, and predicted\nthis machine: {}\n",
        paint.bold(&view.app),
        view.topology,
        view.machine
    );
    services(&mut text, view, paint);
    nodes(&mut text, view, paint);
    loads(&mut text, view, paint);
    heading(
        &mut text,
        paint,
        "Knee",
        "highest throughput over mean latency",
    );
    let median = view.p50_error.map_or_else(
        || "no load is below 70 % of the knee".into(),
        |part| {
            format!(
                "{}, the largest at loads up to 70 % of the knee",
                error(part)
            )
        },
    );
    facts(
        &mut text,
        &[
            (
                "measured",
                format!("{} requests/s", rate(view.knee.measured_rps)),
            ),
            (
                "predicted",
                format!(
                    "{} requests/s, {}",
                    rate(view.knee.predicted_rps),
                    error(view.knee.error)
                ),
            ),
            ("p50", median),
        ],
    );
    for doubt in &view.doubts {
        reading(&mut text, &paint.yellow(doubt));
    }
    text
}

fn services(text: &mut String, view: &TwinView, paint: Paint) {
    heading(text, paint, "Services", "each measured alone");
    let mut headings = vec!["SERVICE", ">MESSAGES/REQUEST", ">HANDLER", ">VARIATION"];
    let kinds: Vec<String> = view
        .nodes
        .keys()
        .map(|kind| format!(">ON A {}", kind.name().to_uppercase()))
        .collect();
    headings.extend(kinds.iter().map(String::as_str));
    let mut table = Table::new(&headings).indent(2);
    for s in &view.services {
        let mut row = vec![
            s.name.clone(),
            format!("{:.2}", s.messages_per_request),
            format!("{:.1} us", s.handler_us),
            format!("{:.2}", s.variation),
        ];
        row.extend(s.message_us.values().map(|us| format!("{us:.1} us")));
        table.row(row);
    }
    *text += &table.render();
}

fn nodes(text: &mut String, view: &TwinView, paint: Paint) {
    heading(text, paint, "Nodes", "measured with bare services");
    let mut table = Table::new(&[
        "NODE",
        ">REQUEST",
        ">MESSAGE",
        ">WAKE-UP",
        ">ROUND TRIP",
        ">HIGHEST RATE",
    ])
    .indent(2);
    for (kind, n) in &view.nodes {
        table.row([
            kind.name().to_string(),
            format!("{:.1} us", n.request_ns / 1e3),
            format!("{:.1} us", n.message_ns / 1e3),
            format!("{:.1} us", n.wake_ns / 1e3),
            format!("{:.1} us", n.round_trip_ns / 1e3),
            rate(n.echo_rps),
        ]);
    }
    *text += &table.render();
    if let Some(hop) = &view.hop {
        let words = format!(
            "A message between them takes {:.1} us to send and {:.1} us to receive.",
            hop.send_ns / 1e3,
            hop.receive_ns / 1e3
        );
        reading(text, &words);
    }
}

fn loads(text: &mut String, view: &TwinView, paint: Paint) {
    heading(text, paint, "Loads", "measured, predicted, error");
    let mut table = Table::new(&[
        ">OFFERED/S",
        ">ANSWERED/S",
        ">P50",
        ">PREDICTED",
        ">ERROR",
        ">P99",
        ">PREDICTED",
        ">ERROR",
        ">CLIENT CORES",
        "",
    ])
    .indent(2);
    for l in &view.loads {
        table.row([
            rate(l.offered_rps),
            rate(l.measured.achieved_rps),
            micros(l.measured.p50_us),
            micros(l.predicted.p50_us),
            error(l.p50_error),
            micros(l.measured.p99_us),
            micros(l.predicted.p99_us),
            error(l.p99_error),
            format!("{:.2}", l.client_cores),
            if l.saturated {
                "predicted to saturate"
            } else {
                ""
            }
            .to_string(),
        ]);
    }
    *text += &table.render();
}
