//! What the controller's process knows of versions from reports: which of them run, and how well. It is lost
//! when the process restarts.

use crate::cluster::Cluster;
use e3_control::{Command, Control, Probation, Seen};
use e3_model::plan::NodeReport;
use e3_model::{AppId, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Name of the modules of a version that does not start.
pub(super) const NOT_STARTING: &str = "notStarting";

/// Attempts of a shard: those that succeeded, and those that failed.
type Attempts = (u64, u64);

/// What the controller's process knows of versions from reports.
#[derive(Debug, Default)]
pub(super) struct Versions {
    probation: Probation,
    totals: BTreeMap<ShardKey, Attempts>,
    /// By node: its process, and the attempts in its last report.
    seen: BTreeMap<NodeId, (u32, BTreeMap<ShardKey, Attempts>)>,
    /// By node: the version of each application that it runs, and why it does not run the one of the plan.
    running: BTreeMap<NodeId, BTreeMap<AppId, (u32, Option<String>)>>,
}

/// The part of a node's report that says which versions run, and how well.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Figures {
    attempts: BTreeMap<ShardKey, Attempts>,
    running: BTreeMap<AppId, (u32, Option<String>)>,
}

impl Figures {
    /// What a node reports.
    pub(super) fn of(cluster: &Cluster, node: u32) -> Option<Figures> {
        let worker = cluster.worker(node)?;
        let NodeReport { counts, .. } = worker.report();
        let attempts = counts.iter().map(|c| {
            let succeeded = c.handled.saturating_sub(c.dead_lettered);
            (c.key, (succeeded, c.failed))
        });
        let apps = worker.plan().apps.iter().map(|plan| {
            let starts = plan.modules.iter().all(|module| module != NOT_STARTING);
            let running = if starts {
                (plan.code_version, None)
            } else {
                (0, Some("it does not start".into()))
            };
            (plan.id, running)
        });
        Some(Figures {
            attempts: attempts.collect(),
            running: apps.collect(),
        })
    }
}

impl Versions {
    /// A process has joined: everything that it reports is new.
    pub(super) fn on_join(&mut self, node: NodeId, incarnation: u32) {
        self.seen.insert(node, (incarnation, BTreeMap::new()));
        self.running.remove(&node);
    }

    /// Takes a report.
    pub(super) fn on_report(&mut self, node: NodeId, incarnation: u32, figures: Figures) {
        let Figures { attempts, running } = figures;
        self.running.insert(node, running);
        let before = self.seen.insert(node, (incarnation, attempts.clone()));
        let Some((_, before)) = before.filter(|(of, _)| *of == incarnation) else {
            return;
        };
        for (key, now) in attempts {
            let was = before.get(&key).copied().unwrap_or_default();
            let total = self.totals.entry(key).or_default();
            total.0 += now.0.saturating_sub(was.0);
            total.1 += now.1.saturating_sub(was.1);
        }
    }

    /// The commands that are due.
    pub(super) fn look(&mut self, now: Timestamp, control: &Control) -> Vec<Command> {
        let of = |node: NodeId, app: AppId| self.running.get(&node)?.get(&app).cloned();
        let starting = control.apps.iter().filter(|(_, app)| !app.has_started);
        let started = starting.filter(|(id, app)| {
            app.runs_everywhere(|_, node| of(node, **id).map(|(version, _)| version))
        });
        let started = started.map(|(id, app)| Command::Started {
            app: *id,
            code_version: app.plan.code_version,
        });
        let mut due: Vec<Command> = started.collect();
        let totals = &self.totals;
        let seen = |id: AppId| {
            let app = &control.apps[&id];
            let mut seen = Seen::default();
            for shard in &app.plan.shards {
                let total = totals.get(&app.plan.key(shard)).copied();
                let (succeeded, failed) = total.unwrap_or_default();
                seen.succeeded += succeeded;
                seen.failed += failed;
                let running = of(shard.primary, id);
                let running = running.filter(|(version, _)| *version != app.plan.code_version);
                seen.error = seen.error.or(running.and_then(|(_, error)| error));
            }
            seen
        };
        due.extend(self.probation.look(now, control, seen));
        due
    }
}
