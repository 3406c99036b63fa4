//! The report of `e3 sim` as text. Everything in it is modelled.

use super::range::Range;
use super::{SimView, SweepView};
use crate::commands::load::report::{facts, heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::{count, latency, micros, percent, rate};
use e3_model::Latency;
use e3_perfsim::{Bottleneck, Report};
use e3_simcontrol::Summary;

/// Rows of nodes that are shown.
const NODES_SHOWN: usize = 24;

/// Rows of events that are shown.
const EVENTS_SHOWN: usize = 24;

/// A run.
pub fn run(view: &SimView, paint: Paint) -> String {
    let placer = placer(&view.placer, view.topology_aware);
    let mut text = title(paint, &view.app, &view.topology, &placer);
    let r = &view.report;
    load(&mut text, paint, r);
    dropped(&mut text, paint, r);
    if view.overcommitted > 0 {
        let words = format!(
            "{} instances do not fit by their reservations; see e3 place",
            count(view.overcommitted as u64)
        );
        reading(&mut text, &paint.yellow(&words));
    }
    if let Some(controller) = &view.controller {
        changes(&mut text, paint, r, controller);
    }
    ranges(&mut text, paint, view.range.as_ref());
    services(&mut text, paint, r, &view.visits_from);
    for assumption in &r.assumptions {
        reading(&mut text, &paint.yellow(assumption));
    }
    nodes(&mut text, paint, r);
    text
}

fn title(paint: Paint, app: &str, topology: &str, placer: &str) -> String {
    let app = paint.bold(app);
    format!("{app} on {topology} by {placer}: modelled, nothing ran\n")
}

fn placer(name: &str, is_topology_aware: bool) -> String {
    if is_topology_aware {
        name.into()
    } else {
        format!("{name} without topology awareness")
    }
}

/// Samples and spans beyond what is kept.
fn dropped(text: &mut String, paint: Paint, r: &Report) {
    let kept = [
        (r.dropped.samples, r.samples.len(), "requests", "--raw"),
        (
            r.dropped.spans,
            r.spans.len(),
            "runs of messages",
            "--trace",
        ),
    ];
    for (dropped, kept, what, option) in kept.into_iter().filter(|k| k.0 > 0) {
        let words = format!(
            "{option} has the first {} of {} {what}",
            count(kept as u64),
            count(kept as u64 + dropped)
        );
        reading(text, &paint.yellow(&words));
    }
}

fn load(text: &mut String, paint: Paint, r: &Report) {
    let source = format!(
        "modelled, {:.3} s of which {:.3} s count, seed {}",
        r.duration_s, r.measured_s, r.seed
    );
    heading(text, paint, "Load", &source);
    let verdict = if r.saturated {
        paint.red("saturated: the cluster cannot carry it, latencies grow with the run")
    } else {
        paint.green("carried")
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
            (
                "latency",
                r.latency
                    .as_ref()
                    .map_or_else(|| "- (no request was answered)".into(), latency),
            ),
            (
                "energy",
                format!(
                    "{joules} a request, {} requests/J, {:.1} W for all servers",
                    rate(r.requests_per_joule),
                    r.watts_total
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

/// Both ends of what is plausible.
fn ranges(text: &mut String, paint: Paint, range: Option<&Range>) {
    let Some(range) = range else {
        return;
    };
    heading(text, paint, "Range", "modelled, over what is plausible");
    if range.uncertain.is_empty() {
        reading(text, "Nothing of messages and sizes is uncertain.");
        return;
    }
    let mut table = Table::new(&[
        "DEMAND",
        ">REQUESTS/S",
        ">SATURATES AT",
        ">P99",
        ">ENERGY/REQUEST",
        "",
    ])
    .indent(2);
    for (name, h) in [
        ("low", &range.low),
        ("central", &range.central),
        ("high", &range.high),
    ] {
        let joules = h.joules_per_request;
        table.row([
            name.to_string(),
            rate(h.rate_rps),
            h.saturates_rps.map_or_else(|| "-".into(), rate),
            h.latency_us_p99.map_or_else(|| "-".into(), micros),
            joules.map_or_else(|| "-".into(), energy),
            if h.saturated { "saturated" } else { "" }.to_string(),
        ]);
    }
    *text += &table.render();
    for what in &range.uncertain {
        reading(text, what);
    }
}

/// Joules in `uJ`, `mJ` or `J`.
fn energy(joules: f64) -> String {
    match joules * 1e6 {
        uj if uj < 1e3 => format!("{uj:.1} uJ"),
        uj if uj < 1e6 => format!("{:.2} mJ", uj / 1e3),
        uj => format!("{:.2} J", uj / 1e6),
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

/// What the controller did, and what faults and moves did to requests.
fn changes(text: &mut String, paint: Paint, r: &Report, controller: &Summary) {
    let mode = controller.orchestrator;
    let source = format!("the product's, orchestrator {mode}, in the simulated cluster");
    heading(text, paint, "Controller", &source);
    let d = &r.disruption;
    let rows = [
        ("late requests", count(d.requests_late)),
        ("failed requests", count(d.requests_failed)),
        (
            "messages lost",
            format!("{}, sent again", count(d.messages_lost)),
        ),
        (
            "moves",
            format!(
                "{}, {} copies of shards, {:.1} MB",
                count(d.moves),
                count(d.copies),
                d.copied_bytes as f64 / 1e6
            ),
        ),
        (
            "state lost",
            format!("{} shards", count(controller.state_lost)),
        ),
    ];
    facts(text, &rows);
    let mut table = Table::new(&[">AT", "EVENT", "INSTANCE", "NODE", "TO", "WHY"]).indent(2);
    for e in controller.events.iter().take(EVENTS_SHOWN) {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".into());
        table.row([
            format!("{:.3} s", e.at_s),
            e.event.kind.to_string(),
            name(&e.event.instance),
            name(&e.event.node),
            name(&e.event.to),
            e.event.why.clone(),
        ]);
    }
    if !controller.events.is_empty() {
        *text += &table.render();
    }
    if controller.events.len() > EVENTS_SHOWN {
        let more = controller.events.len() - EVENTS_SHOWN;
        reading(text, &format!("and {more} more events; see -o json"));
    }
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
    let placer = placer(&view.placer, view.topology_aware);
    let mut text = title(paint, &view.app, &view.topology, &placer);
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
        let mark = if p.saturated {
            "saturated"
        } else if p.offered_rps == knee.offered_rps {
            "knee"
        } else {
            ""
        };
        let joules = p.joules_per_request;
        let of = |us: fn(&Latency) -> f64| {
            let us = p.latency.as_ref().map(us);
            us.map_or_else(|| "-".into(), micros)
        };
        table.row([
            rate(p.offered_rps),
            rate(p.achieved_rps),
            of(|l| l.avg_us),
            of(|l| l.p50_us),
            of(|l| l.p99_us),
            joules.map_or_else(|| "-".into(), |j| format!("{:.1}", j * 1e6)),
            format!("{:.1}", p.watts_total),
            mark.to_string(),
        ]);
    }
    text += &table.render();
    load(&mut text, paint, knee);
    ranges(&mut text, paint, view.range.as_ref());
    reading(
        &mut text,
        "This is the knee: the rate with the highest throughput over mean latency.",
    );
    text
}
