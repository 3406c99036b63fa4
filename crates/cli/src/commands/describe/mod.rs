//! `e3 describe`: all about one thing.

pub mod why;

use crate::cluster::client::Client;
use crate::commands::get::{app_of, health, instances, joules, role, status};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Paint, Table};
use crate::ui::text::{bytes, count};
use clap::{Args, ValueEnum};
use e3_model::api::{AppView, InstanceView, NodeView, PlacedView, ServiceView};
use serde::Serialize;
use std::fmt::Write as _;
use why::{primaries, why, why_grouped};

/// Kinds of things that `e3 describe` shows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// NAME is NODE
    Node,
    /// NAME is APP
    App,
    /// NAME is APP/SERVICE
    Service,
    /// NAME is APP/SERVICE/SHARD
    Instance,
}

/// `e3 describe`.
#[derive(Args, Debug, Clone)]
pub struct Describe {
    /// Kind
    #[arg(value_enum)]
    pub kind: Thing,
    /// NODE, APP, APP/SERVICE or APP/SERVICE/SHARD
    pub name: String,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// Losses of state that are named in the text.
const LOSSES_SHOWN: usize = 3;

/// A node with its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeDetails {
    node: NodeView,
    instances: Vec<InstanceView>,
}

/// A service with its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceDetails {
    service: ServiceView,
    instances: Vec<InstanceView>,
    placed: Vec<PlacedView>,
}

/// Replicas of a shard.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceDetails {
    replicas: Vec<InstanceView>,
    placed: Vec<PlacedView>,
    migration: Option<e3_model::api::MigrationView>,
}

/// `e3 describe`.
pub fn run(args: &Describe, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let format = settings.format(args.output);
    let paint = settings.paint();
    let name = args.name.trim_end_matches('/');
    match args.kind {
        Thing::Node => {
            let node = client.node(name)?;
            let mut instances = client.instances()?;
            instances.retain(|i| i.node == node.name);
            let details = NodeDetails { node, instances };
            output::show(format, &details, || node_text(&details, paint))
        }
        Thing::App => {
            let app = client.app(name)?;
            let nodes = client.nodes()?;
            output::show(format, &app, || app_text(&app, &nodes, paint))
        }
        Thing::Service => {
            let details = service(&client, name)?;
            output::show(format, &details, || service_text(&details, paint))
        }
        Thing::Instance => {
            let details = instance(&client, name)?;
            output::show(format, &details, || instance_text(&details, paint))
        }
    }
}

fn service(client: &Client, name: &str) -> Result<ServiceDetails, Failure> {
    let Some((app_name, service_name)) = name.split_once('/') else {
        let message = format!("{name:?} is not APP/SERVICE");
        return Err(Failure::new(Exit::Input, message).hint("e3 describe service iot-ts/sql"));
    };
    let app = client.app(app_name)?;
    let names: Vec<&str> = app.services.iter().map(|s| s.name.as_str()).collect();
    let Some(service) = app.services.iter().find(|s| s.name == service_name) else {
        let message = format!("application {app_name:?} has no service {service_name:?}");
        let hint = format!("it has: {}", names.join(", "));
        return Err(Failure::new(Exit::NotFound, message).hint(hint));
    };
    let prefix = format!("{name}/");
    let mut instances = client.instances()?;
    instances.retain(|i| i.instance.starts_with(&prefix));
    let of_service = |p: &&PlacedView| {
        let rest = p.instance.strip_prefix(service_name);
        rest.is_some_and(|r| r.starts_with('/'))
    };
    Ok(ServiceDetails {
        service: service.clone(),
        instances,
        placed: app.placed.iter().filter(of_service).cloned().collect(),
    })
}

fn instance(client: &Client, name: &str) -> Result<InstanceDetails, Failure> {
    let (app_name, shard, _) = crate::commands::migrate::parse(name)?;
    let app = client.app(&app_name)?;
    let mut replicas = client.instances()?;
    replicas.retain(|i| i.instance == shard);
    if replicas.is_empty() {
        let message = format!("there is no instance {shard:?}");
        let hint = format!("list them with: e3 get instances --app {app_name}");
        return Err(Failure::new(Exit::NotFound, message).hint(hint));
    }
    let short = shard
        .strip_prefix(app_of(&shard))
        .unwrap_or_default()
        .trim_start_matches('/');
    let of_shard = |p: &&PlacedView| p.instance.split(' ').next() == Some(short);
    Ok(InstanceDetails {
        placed: app.placed.iter().filter(of_shard).cloned().collect(),
        migration: app.migrations.iter().find(|m| m.shard == shard).cloned(),
        replicas,
    })
}

/// Names and values below each other.
fn facts(rows: Vec<(&str, String)>) -> String {
    let mut table = Table::new(&["", ""]);
    for (name, value) in rows {
        table.row([format!("{name}:"), value]);
    }
    table.render()
}

fn heading(text: &mut String, paint: Paint, words: &str) {
    let _ = writeln!(text, "\n{}", paint.bold(words));
}

fn node_text(details: &NodeDetails, paint: Paint) -> String {
    let n = &details.node;
    let state = match n.up {
        true => paint.green("up"),
        false => paint.red("down"),
    };
    let kind = match n.emulated {
        true => format!("{}, emulated by this machine", n.kind.name()),
        false => n.kind.name().to_string(),
    };
    let dropped: Vec<String> = n
        .dropped
        .iter()
        .map(|(why, times)| format!("{why} {}", count(*times)))
        .collect();
    let accelerators: Vec<String> = n
        .accelerators
        .iter()
        .map(|(a, rate)| format!("{a} {:.1} Gb/s", rate * 8e-9))
        .collect();
    let mut text = facts(vec![
        ("Node", n.name.clone()),
        ("State", state),
        ("Kind", kind),
        (
            "Server",
            format!("{} (fault domain) in {}", n.server, n.rack),
        ),
        ("Size", format!("{} cores, {}", n.cores, bytes(n.memory.0))),
        (
            "Process",
            format!("incarnation {}, plan {}", n.incarnation, n.plan_version),
        ),
        ("Address", n.address.clone().unwrap_or_else(|| "-".into())),
        ("HTTP", n.url.clone().unwrap_or_else(|| "-".into())),
        (
            "Last seen",
            n.heard_ms_ago
                .map_or("never".into(), |ms| format!("{ms} ms ago")),
        ),
        (
            "Use",
            format!("{:.1} s of CPU, {}", n.cpu_seconds, bytes(n.resident_bytes)),
        ),
        (
            "Accelerators",
            match accelerators.is_empty() {
                true => "none".into(),
                false => accelerators.join(", "),
            },
        ),
        (
            "Requests",
            format!(
                "{} admitted, {} refused (overloaded), {} queued",
                count(n.admitted),
                count(n.overloaded),
                n.queue
            ),
        ),
        (
            "Datagrams",
            format!(
                "{} in, {} out, {} messages retransmitted",
                count(n.datagrams_in),
                count(n.datagrams_out),
                count(n.retransmitted)
            ),
        ),
        (
            "Dropped",
            if dropped.is_empty() {
                "none".into()
            } else {
                dropped.join(", ")
            },
        ),
    ]);
    if let Some(e) = &n.energy {
        text += &facts(vec![(
            "Energy, MODELLED",
            format!(
                "{} above idle, {} idle of its server, {:.1} W above idle at present; {}",
                joules(e.active_joules),
                joules(e.idle_joules),
                e.active_watts,
                e.source
            ),
        )]);
    }
    heading(
        &mut text,
        paint,
        &format!("Instances ({})", details.instances.len()),
    );
    text + &instances(&details.instances, paint)
}

fn app_text(app: &AppView, all_nodes: &[NodeView], paint: Paint) -> String {
    let sum = |of: fn(&ServiceView) -> u64| count(app.services.iter().map(of).sum());
    let mut rows = vec![
        ("Application", app.name.clone()),
        ("State", health(app.health, paint)),
        ("Code version", app.code_version.to_string()),
        (
            "Instances",
            format!("{} of {} run", app.instances_ready, app.instances),
        ),
        (
            "Requests",
            format!(
                "{} admitted, {} answered \"overloaded\"",
                count(app.admitted),
                count(app.overloaded)
            ),
        ),
        (
            "Dead-lettered",
            format!(
                "{} in all, {} of them expired, {} in the last 60 s; {} letters kept",
                sum(|s| s.dead_lettered),
                sum(|s| s.expired),
                count(app.dead_lettered_lately),
                count(app.dead_letters)
            ),
        ),
        ("State lost", losses(app)),
    ];
    if let Some(per_request) = app.modelled_joules_per_request {
        let text = format!(
            "{} a request above idle, through all services",
            joules(per_request)
        );
        rows.push(("Energy, MODELLED", text));
    }
    let mut text = facts(rows);
    if !app.problems.is_empty() {
        heading(&mut text, paint, "Problems");
        for problem in &app.problems {
            let _ = writeln!(text, "  {}", paint.yellow(problem));
        }
    }
    heading(&mut text, paint, "Services");
    let mut table = Table::new(&[
        "SERVICE",
        ">SHARDS",
        ">REPLICAS",
        ">HANDLED",
        ">FAILED ATTEMPTS",
        ">DEAD-LETTERED",
        ">QUEUE",
        ">BUSY s",
        ">MODELLED ENERGY/REQUEST",
        "PRIMARIES ON",
        "ERROR",
    ])
    .indent(2);
    for s in &app.services {
        table.row([
            s.name.clone(),
            s.shards.to_string(),
            s.replicas.to_string(),
            count(s.handled),
            count(s.failed),
            count(s.dead_lettered),
            s.queue.to_string(),
            format!("{:.2}", s.busy_seconds),
            s.energy
                .as_ref()
                .and_then(|e| e.joules_per_request)
                .map_or_else(|| "-".into(), joules),
            primaries(s),
            trouble(s.error.as_deref(), s.last_failure.as_deref(), paint),
        ]);
    }
    text += &table.render();
    if !app.migrations.is_empty() {
        heading(&mut text, paint, "Migrations");
        for m in &app.migrations {
            let _ = writeln!(
                text,
                "  {} from {} to {}: {}",
                m.shard,
                m.from,
                m.to,
                m.phase.name()
            );
        }
    }
    heading(&mut text, paint, "Placed at deployment, joules MODELLED");
    text + &why_grouped(&app.placed, all_nodes)
}

/// How often shards lost their state, and which did last.
fn losses(app: &AppView) -> String {
    let last: Vec<String> = app
        .losses
        .iter()
        .rev()
        .take(LOSSES_SHOWN)
        .map(|l| format!("{} at {}", l.shard, utc(l.at_unix_ms)))
        .collect();
    match last.is_empty() {
        true => count(app.state_lost),
        false => format!("{} times, last {}", count(app.state_lost), last.join(", ")),
    }
}

/// The time of day of a Unix time.
fn utc(unix_ms: u64) -> String {
    let s = unix_ms / 1000;
    let (h, m, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    format!("{h:02}:{m:02}:{s:02} UTC")
}

/// Why something does not run, or else why the last attempt failed that did.
fn trouble(error: Option<&str>, last_failure: Option<&str>, paint: Paint) -> String {
    match (error, last_failure) {
        (Some(error), _) => paint.red(error),
        (None, Some(failure)) => paint.yellow(&format!("last failure: {failure}")),
        (None, None) => String::new(),
    }
}

fn service_text(details: &ServiceDetails, paint: Paint) -> String {
    let s = &details.service;
    let mut rows = vec![
        ("Service", s.name.clone()),
        (
            "Shards",
            format!("{}, {} replicas each", s.shards, s.replicas),
        ),
        ("Primaries on", primaries(s)),
        (
            "Handled",
            format!(
                "{}, {} failed attempts, {} dead-lettered, {} of them expired",
                count(s.handled),
                count(s.failed),
                count(s.dead_lettered),
                count(s.expired)
            ),
        ),
        ("Waiting", s.queue.to_string()),
        ("Busy", format!("{:.2} s", s.busy_seconds)),
    ];
    if let Some(e) = &s.energy {
        let per_request = e
            .joules_per_request
            .map(|j| format!(", {} a request", joules(j)));
        let kinds = e.joules_by_kind.iter();
        let kinds: Vec<String> = kinds
            .map(|(k, j)| format!("{} a request on a {}", joules(*j), k.name()))
            .collect();
        let text = format!(
            "{}{} above idle ({}); {}",
            joules(e.joules),
            per_request.unwrap_or_default(),
            kinds.join(", "),
            e.source
        );
        rows.push(("Energy, MODELLED", text));
    }
    if let Some(error) = &s.error {
        rows.push(("Error", paint.red(error)));
    }
    if let Some(failure) = &s.last_failure {
        rows.push(("Last failure", paint.yellow(failure)));
    }
    let mut text = facts(rows);
    heading(&mut text, paint, "Instances");
    text += &instances(&details.instances, paint);
    heading(&mut text, paint, "Placed at deployment");
    text + &why(&details.placed)
}

fn instance_text(details: &InstanceDetails, paint: Paint) -> String {
    let mut text = String::new();
    for r in &details.replicas {
        let mut rows = vec![
            ("Instance", format!("{} {}", r.instance, role(r.role))),
            (
                "State",
                match &r.reason {
                    Some(reason) => format!("{}: {reason}", status(r.status, paint)),
                    None => status(r.status, paint),
                },
            ),
            ("Node", r.node.clone()),
            ("View", r.view.to_string()),
            (
                "Log",
                format!(
                    "entry {}, of which all backups have {}",
                    count(r.op),
                    count(r.commit)
                ),
            ),
            (
                "Handled",
                format!(
                    "{}, {} failed attempts, {} dead-lettered, {} of them expired",
                    count(r.handled),
                    count(r.failed),
                    count(r.dead_lettered),
                    count(r.expired)
                ),
            ),
            ("Letters kept", count(r.dead_letters)),
            ("Preempted", count(r.preemptions)),
            ("Busy", format!("{:.3} s", r.busy_seconds)),
            ("State size", bytes(r.memory_bytes)),
        ];
        if let Some(error) = &r.error {
            rows.push(("Error", paint.red(error)));
        }
        if let Some(failure) = &r.last_failure {
            rows.push(("Last failure", paint.yellow(failure)));
        }
        text += &facts(rows);
        text.push('\n');
    }
    if let Some(m) = &details.migration {
        let _ = writeln!(
            text,
            "Moving from {} to {}: {}\n",
            m.from,
            m.to,
            m.phase.name()
        );
    }
    text += &paint.bold("Placed at deployment");
    text.push('\n');
    text + &why(&details.placed)
}
