//! Versions of applications that are no good: the controller goes back by itself from one that does not
//! start, and from one whose attempts fail. What it has counted is lost when it restarts, so an operator goes
//! back where it cannot know.
//!
//! A version says what it is by the names of its modules.

use super::Run;
use super::controller::ControllerProcess;
use crate::cluster::Cluster;
use crate::scenario::app_id;
use e3_control::limits::{START_FAILED_TIME, START_GRACE};
use e3_control::{Command, Control, Probation, Seen};
use e3_model::plan::NodeReport;
use e3_model::{AppId, Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Module whose handlers fail.
pub(crate) const FAILING: &str = "failing";
/// Module that does not start.
const NOT_STARTING: &str = "notStarting";
/// How long after all is whole the controller has gone back from a version that does not start.
const BACK_WITHIN: Nanos = Nanos(START_FAILED_TIME.0 + START_GRACE.0 + 5_000_000_000);

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
    pub(super) fn of(cluster: &Cluster, node: u16) -> Option<Figures> {
        let worker = cluster.worker(node)?;
        let NodeReport { counts, .. } = worker.report();
        let attempts = counts.iter().map(|c| {
            let succeeded = c.handled.saturating_sub(c.dead_lettered);
            (c.key, (succeeded, c.failed))
        });
        let apps = worker.plan().apps.iter().map(|plan| {
            let starts = plan.modules.iter().all(|module| module != NOT_STARTING);
            let running = match starts {
                true => (plan.code_version, None),
                false => (0, Some("it does not start".into())),
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

impl Run<'_> {
    /// Deploys a version that does not start, or one whose handlers fail.
    pub(super) fn deploy_bad(&mut self, app: usize, starts: bool) {
        let module = if starts { FAILING } else { NOT_STARTING };
        let manifest = self.next_manifest(app);
        if let Some(manifest) = manifest {
            let (now, modules) = (self.cluster.now, vec![module; manifest.spec.services.len()]);
            self.controller.deploy_modules(now, manifest, &modules);
        }
    }

    /// Whether the version of an application does not start.
    pub(super) fn is_stuck(&self, app: AppId) -> bool {
        let app = self.controller.control.apps.get(&app);
        app.is_some_and(|app| app.plan.modules[0] == NOT_STARTING)
    }

    /// Checks that the controller went back from versions that do not start, and does what an operator
    /// does where it cannot know that a version is no good.
    pub(super) fn leave_bad_versions(&mut self) {
        if !self.scenario.has_bad_versions() {
            return;
        }
        self.wait(BACK_WITHIN);
        for at in 0..self.scenario.apps.len() {
            let Some(app) = self.controller.control.apps.get(&app_id(at)) else {
                continue;
            };
            let plan = &app.plan;
            if self.is_stuck(plan.id) && plan.proven.is_some() {
                self.cluster.ledger.violation(format!(
                    "application {at} is still in version {}, which does not start",
                    plan.code_version
                ));
            } else if !plan.modules[0].is_empty() {
                self.update(at);
            }
        }
        let apps = self.controller.control.apps.values();
        let by_itself = apps.flat_map(|app| &app.rollbacks);
        self.went_back = by_itself.filter(|r| r.why.is_some()).count() as u64;
        // What the version that failed had in hand has its end before the next requests come.
        self.wait(super::PROBE);
    }
}

/// What the controller decides about versions after a report.
pub(super) fn watch(controller: &mut ControllerProcess, now: Timestamp) {
    for command in controller.versions.look(now, &controller.control) {
        controller.execute(now, &command);
    }
}
