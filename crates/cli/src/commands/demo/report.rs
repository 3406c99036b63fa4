//! Sections of the report of `e3 demo` about the cluster: placement, nodes, energy.

use crate::commands::demo::model::Modelled;
use crate::commands::describe::why::{primaries, reason};
use crate::commands::load::figures::Figures;
use crate::commands::load::report::{heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::{bytes, kind_and_scale, percent, rate};
use e3_model::api::{AppView, InstanceView, PlacedView};
use e3_model::plan::Role;
use e3_placement::PLACER_DEFAULT;
use std::collections::BTreeMap;

/// Where services run, and why.
pub fn places(text: &mut String, paint: Paint, app: &AppView, visits: &[f64]) {
    heading(
        text,
        paint,
        "Where services run, and why",
        &format!("placer: {PLACER_DEFAULT}"),
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
            primaries(s),
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
            kind_and_scale(n.kind, n.emulated, n.speed),
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
