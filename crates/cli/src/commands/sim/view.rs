//! The report of `e3 sim` as text. Everything in it is modelled.

use super::{SimView, SweepView};
use crate::commands::load::report::{facts, heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::{count, latency, micros, percent, rate};
use e3_perfsim::{Bottleneck, Report};

/// Rows of nodes that are shown.
const NODES_SHOWN: usize = 24;

/// A run.
pub fn run(view: &SimView, paint: Paint) -> String {
    let mut text = format!(
        "{} on {} by {}: modelled, nothing ran\n",
        paint.bold(&view.app),
        view.topology,
        view.placer
    );
    let r = &view.report;
    load(&mut text, paint, r);
    if view.overcommitted > 0 {
        let words = format!(
            "{} instances do not fit by their reservations; see e3 place",
            count(view.overcommitted as u64)
        );
        reading(&mut text, &paint.yellow(&words));
    }
    services(&mut text, paint, r, &view.visits_from);
    nodes(&mut text, paint, r);
    text
}

fn load(text: &mut String, paint: Paint, r: &Report) {
    let source = format!(
        "modelled, {:.3} s of which {:.3} s count, seed {}",
        r.duration_s, r.measured_s, r.seed
    );
    heading(text, paint, "Load", &source);
    let verdict = match r.saturated {
        true => paint.red("saturated: the cluster cannot carry it, latencies grow with the run"),
        false => paint.green("carried"),
    };
    let joules = r.joules_per_request;
    let joules = joules.map_or_else(|| "-".into(), energy);
    facts(
        text,
        &[
            ("offered", format!("{} requests/s", rate(r.offered_rps))),
            (
                "answered",
                format!("{} requests/s, {verdict}", rate(r.achieved_rps)),
            ),
            ("latency", latency(&r.latency)),
            (
                "energy",
                format!(
                    "{joules} a request, {:.0} requests/J, {:.1} W for all servers",
                    r.requests_per_joule, r.watts_total
                ),
            ),
            ("most used", bottleneck(&r.bottleneck)),
            (
                "in flight",
                format!("{} requests at the end", count(r.in_flight as u64)),
            ),
        ],
    );
}

/// Joules in `uJ` or `mJ`.
fn energy(joules: f64) -> String {
    match joules * 1e6 {
        uj if uj < 1e3 => format!("{uj:.1} uJ"),
        uj => format!("{:.2} mJ", uj / 1e3),
    }
}

fn bottleneck(b: &Bottleneck) -> String {
    let of = if b.node.is_empty() {
        String::new()
    } else {
        format!(" of {}", b.node)
    };
    format!("{}{of}: {}", b.what.words(), percent(b.utilisation))
}

fn services(text: &mut String, paint: Paint, r: &Report, visits_from: &str) {
    heading(
        text,
        paint,
        "Services",
        &format!("messages from {visits_from}"),
    );
    let mut table =
        Table::new(&["SERVICE", ">MESSAGES/REQUEST", ">AT ITS NODE", ">ENERGY"]).indent(2);
    for s in &r.services {
        let part = s.joules / r.energy.total_j.max(f64::MIN_POSITIVE);
        table.row([
            s.name.clone(),
            format!("{:.2}", s.messages_per_request),
            micros(s.sojourn_us),
            percent(part),
        ]);
    }
    *text += &table.render();
}

fn nodes(text: &mut String, paint: Paint, r: &Report) {
    heading(
        text,
        paint,
        "Nodes",
        "modelled; watts above the server's idle power",
    );
    let mut table = Table::new(&["NODE", "KIND", ">CORES", ">PORT", ">WATTS"]).indent(2);
    for n in r.nodes.iter().take(NODES_SHOWN) {
        table.row([
            n.name.clone(),
            n.kind.name().to_string(),
            percent(n.utilisation),
            percent(n.port_utilisation),
            format!("{:.1}", n.watts),
        ]);
    }
    *text += &table.render();
    if r.nodes.len() > NODES_SHOWN {
        let more = format!("and {} more; see -o json", r.nodes.len() - NODES_SHOWN);
        reading(text, &more);
    }
}

/// A curve.
pub fn sweep(view: &SweepView, paint: Paint) -> String {
    let mut text = format!(
        "{} on {} by {}: modelled, nothing ran\n",
        paint.bold(&view.app),
        view.topology,
        view.placer
    );
    heading(&mut text, paint, "Latency against throughput", "modelled");
    let mut table = Table::new(&[
        ">OFFERED/S",
        ">ANSWERED/S",
        ">AVERAGE",
        ">P50",
        ">P99",
        ">UJ/REQUEST",
        ">WATTS",
        "",
    ])
    .indent(2);
    let knee = &view.sweep.knee;
    for p in &view.sweep.points {
        let mark = match p.saturated {
            true => "saturated",
            false if p.offered_rps == knee.offered_rps => "knee",
            false => "",
        };
        let joules = p.joules_per_request;
        table.row([
            rate(p.offered_rps),
            rate(p.achieved_rps),
            micros(p.latency.avg_us),
            micros(p.latency.p50_us),
            micros(p.latency.p99_us),
            joules.map_or_else(|| "-".into(), |j| format!("{:.1}", j * 1e6)),
            format!("{:.1}", p.watts_total),
            mark.to_string(),
        ]);
    }
    text += &table.render();
    load(&mut text, paint, knee);
    reading(
        &mut text,
        "This is the knee: the rate with the highest throughput over mean latency.",
    );
    text
}
