//! `e3 describe instance`.

use super::layout::facts;
use super::why::why;
use crate::cluster::client::Client;
use crate::commands::get::{app_of, role, status};
use crate::commands::migrate;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::Paint;
use crate::ui::text::{bytes, count};
use e3_model::api::{InstanceView, MigrationView, PlacedView};
use serde::Serialize;
use std::fmt::Write as _;

/// Replicas of a shard.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDetails {
    replicas: Vec<InstanceView>,
    placed: Vec<PlacedView>,
    migration: Option<MigrationView>,
}

impl InstanceDetails {
    /// Asks the controller for APP/SERVICE/SHARD.
    pub fn get(client: &Client, name: &str) -> Result<InstanceDetails, Failure> {
        let (app_name, shard, _) = migrate::parse(name)?;
        let app = client.app(&app_name)?;
        let mut replicas = client.instances()?;
        replicas.retain(|i| i.instance == shard);
        if replicas.is_empty() {
            let message = format!("no instance {shard:?}");
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

    /// The details as text.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        for r in &self.replicas {
            text += &facts(replica(r, paint));
            text.push('\n');
        }
        if let Some(m) = &self.migration {
            let phase = m.phase.name();
            let _ = writeln!(text, "Moving from {} to {}: {phase}\n", m.from, m.to);
        }
        let _ = writeln!(text, "{}", paint.bold("Placement at deployment"));
        text + &why(&self.placed)
    }
}

fn replica(r: &InstanceView, paint: Paint) -> Vec<(&'static str, String)> {
    let status = status(r.status, paint);
    let state = match &r.reason {
        Some(reason) => format!("{status}: {reason}"),
        None => status,
    };
    let log = format!(
        "op number {}, commit number {}",
        count(r.op),
        count(r.commit)
    );
    let handled = format!(
        "{}, {} failed attempts, {} dead-lettered, {} of them expired",
        count(r.handled),
        count(r.failed),
        count(r.dead_lettered),
        count(r.expired)
    );
    let size = match r.quota_bytes {
        0 => bytes(r.memory_bytes),
        quota => format!("{} of {}", bytes(r.memory_bytes), bytes(quota)),
    };
    let mut rows = vec![
        ("Instance", format!("{} {}", r.instance, role(r.role))),
        ("State", state),
        ("Node", r.node.clone()),
        ("View", r.view.to_string()),
        ("Log", log),
        ("Handled", handled),
        ("Dead letters kept", count(r.dead_letters)),
        ("Timers set", count(r.timers)),
        ("Preempted", count(r.preemptions)),
        ("Busy", format!("{:.3} s", r.busy_seconds)),
        ("State size", size),
    ];
    let error = r.error.as_ref().map(|e| ("Error", paint.red(e)));
    let failure = r.last_failure.as_ref();
    rows.extend(error);
    rows.extend(failure.map(|f| ("Last failure", paint.yellow(f))));
    rows
}
