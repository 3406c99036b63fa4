//! `e3 describe app`.

use super::layout::{facts, heading, list};
use super::why::{primaries, why_grouped};
use crate::commands::get::{health, joules};
use crate::limits::LOSSES_SHOWN;
use crate::ui::output::{Paint, Table};
use crate::ui::text::{bytes, count};
use e3_model::api::{AppView, NodeView, ServiceView, SubscriptionView, TopicView, WaitingView};
use std::fmt::Write as _;

/// The details of an application as text.
pub fn text(app: &AppView, nodes: &[NodeView], paint: Paint) -> String {
    let mut text = facts(summary(app, paint));
    if !app.problems.is_empty() {
        heading(&mut text, paint, "Problems");
        for problem in &app.problems {
            let _ = writeln!(text, "  {}", paint.yellow(problem));
        }
    }
    heading(&mut text, paint, "Services");
    text += &services(&app.services, paint);
    if !app.topics.is_empty() {
        heading(&mut text, paint, "Topics");
        text += &topics(&app.topics);
    }
    if !app.subscriptions.is_empty() {
        heading(&mut text, paint, "Subscriptions");
        text += &subscriptions(&app.subscriptions, paint);
    }
    if !app.migrations.is_empty() {
        heading(&mut text, paint, "Migrations");
        for m in &app.migrations {
            let phase = m.phase.name();
            let _ = writeln!(text, "  {} from {} to {}: {phase}", m.shard, m.from, m.to);
        }
    }
    heading(&mut text, paint, "Placement at deployment, joules MODELLED");
    text + &why_grouped(&app.placed, nodes)
}

fn summary(app: &AppView, paint: Paint) -> Vec<(&'static str, String)> {
    let sum = |of: fn(&ServiceView) -> u64| count(app.services.iter().map(of).sum());
    let mut rows = vec![
        ("Application", app.name.clone()),
        ("State", health(app.health, paint)),
        ("Code version", version(app)),
        (
            "Instances",
            format!("{} of {} run", app.instances_ready, app.instances),
        ),
        (
            "Requests",
            format!(
                "{} admitted, {} refused (overloaded)",
                count(app.admitted),
                count(app.overloaded)
            ),
        ),
        (
            "Dead-lettered",
            format!(
                "{} in all, {} of them expired, {} in the last 60 s; {} dead letters kept",
                sum(|s| s.dead_lettered),
                sum(|s| s.expired),
                count(app.dead_lettered_lately),
                count(app.dead_letters)
            ),
        ),
        ("State lost", losses(app)),
    ];
    if !app.waiting.is_empty() {
        let all: Vec<String> = app.waiting.iter().map(waiting).collect();
        rows.push(("Waiting", all.join("; ")));
    }
    if let Some(per_request) = app.modelled_joules_per_request {
        let joules = joules(per_request);
        let text = format!("{joules} per request above idle, over all services");
        rows.push(("Energy, MODELLED", text));
    }
    rows
}

fn services(services: &[ServiceView], paint: Paint) -> String {
    let mut table = Table::new(&[
        "SERVICE",
        ">SHARDS",
        ">REPLICAS",
        ">HANDLED",
        ">FAILED ATTEMPTS",
        ">DEAD-LETTERED",
        ">QUEUE",
        ">BUSY (s)",
        ">FULLEST SHARD",
        ">STATE QUOTA",
        ">MODELLED ENERGY/REQUEST",
        "PRIMARIES ON",
        "ERROR",
    ])
    .indent(2);
    for s in services {
        let energy = s.energy.as_ref().and_then(|e| e.joules_per_request);
        table.row([
            s.name.clone(),
            match s.shards_wanted {
                Some(wanted) => format!("{}, becomes {wanted}", s.shards),
                None => s.shards.to_string(),
            },
            match s.replicas_in_manifest {
                Some(manifest) => format!("{} (manifest: {manifest})", s.replicas),
                None => s.replicas.to_string(),
            },
            count(s.handled),
            count(s.failed),
            count(s.dead_lettered),
            s.queue.to_string(),
            format!("{:.2}", s.busy_seconds),
            if_stateful(s, s.state_bytes_max),
            if_stateful(s, s.quota_bytes),
            energy.map_or_else(|| "-".into(), joules),
            primaries(s),
            trouble(s.error.as_deref(), s.last_failure.as_deref(), paint),
        ]);
    }
    table.render()
}

fn topics(topics: &[TopicView]) -> String {
    let mut table = Table::new(&["TOPIC", "PUBLISHED BY", "SUBSCRIBERS"]).indent(2);
    for topic in topics {
        table.row([
            topic.name.clone(),
            list(topic.publishers.clone()),
            list(topic.subscribers.clone()),
        ]);
    }
    table.render()
}

fn subscriptions(subscriptions: &[SubscriptionView], paint: Paint) -> String {
    let mut table = Table::new(&["SERVICE", "SUBSCRIBED TO", ""]).indent(2);
    for subscription in subscriptions {
        table.row([
            subscription.service.clone(),
            subscription.topic.clone(),
            if subscription.exists {
                String::new()
            } else {
                paint.yellow("no deployed application has this topic")
            },
        ]);
    }
    table.render()
}

/// The version, the one that a rollback would deploy, and the last rollback.
fn version(app: &AppView) -> String {
    let mut text = app.code_version.to_string();
    if let Some(earlier) = app.earlier_version {
        let _ = write!(text, "; e3 rollback deploys version {earlier} again");
    }
    if let Some(r) = app.rollbacks.last() {
        let (from, to, at) = (r.from, r.to, utc(r.at_unix_ms));
        let why = r.why.as_deref().unwrap_or("an operator asked for it");
        let _ = write!(
            text,
            "; rolled back from version {from} to {to} at {at}: {why}"
        );
    }
    text
}

/// A size of a service's state.
fn if_stateful(s: &ServiceView, size: u64) -> String {
    if s.stateful { bytes(size) } else { "-".into() }
}

/// A shard that waits for its copies.
fn waiting(w: &WaitingView) -> String {
    let (shard, nodes) = (&w.shard, w.nodes.join(", "));
    format!("{shard} for {nodes}, which alone have its state")
}

/// How often shards lost their state, and the last ones that did.
fn losses(app: &AppView) -> String {
    let last: Vec<String> = app
        .losses
        .iter()
        .rev()
        .take(LOSSES_SHOWN)
        .map(|l| format!("{} at {}", l.shard, utc(l.at_unix_ms)))
        .collect();
    if last.is_empty() {
        count(app.state_lost)
    } else {
        format!("{} times, last {}", count(app.state_lost), last.join(", "))
    }
}

/// The time of day in UTC.
fn utc(unix_ms: u64) -> String {
    let s = unix_ms / 1000;
    let (h, m, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    format!("{h:02}:{m:02}:{s:02} UTC")
}

/// Why a service does not run, else why its last failed attempt failed.
fn trouble(error: Option<&str>, last_failure: Option<&str>, paint: Paint) -> String {
    match (error, last_failure) {
        (Some(error), _) => paint.red(error),
        (None, Some(failure)) => paint.yellow(&format!("last failure: {failure}")),
        (None, None) => String::new(),
    }
}
