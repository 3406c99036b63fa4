//! State, log and soft state under one lock. A command is on disk before its effects are visible.

use crate::at_start::AtStart;
use crate::blobs::Blobs;
use crate::config::ControllerConfig;
use crate::counters::Counters;
use crate::error::{ControllerError, ExecuteError};
use crate::limits::LOG_LEN_MAX;
use crate::parts::Parts;
use crate::pending::Questions;
use crate::progress::Progress;
use crate::replay::{found, random_number, replay};
use crate::seal::{SecretKey, provide_key};
use crate::taking::Taking;
use e3_clock::Clock;
use e3_control::{
    Applied, Command, Control, Hearing, LaterCopy, Membership, Orchestrator, PlanAnswer,
    PlanRequest, Plans, Probation, Receipts,
};
use e3_model::application::Durability;
use e3_model::plan::NodeReport;
use e3_model::{AppId, Formats, NodeId, ShardKey, Timestamp};
use e3_store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Everything that the controller knows.
pub(crate) struct Core {
    pub(crate) control: Control,
    /// What is known from heartbeats.
    pub(crate) hearing: Hearing,
    /// The latest report of each node, with its time of arrival.
    pub(crate) reports: BTreeMap<NodeId, (Timestamp, NodeReport)>,
    pub(crate) progress: Progress,
    pub(crate) counters: Counters,
    pub(crate) probation: Probation,
    /// Versions that the controller would leave if the earlier one were stored, and when it looked last.
    pub(crate) kept_back: BTreeMap<AppId, (u32, Timestamp)>,
    pub(crate) receipts: Receipts,
    pub(crate) at_start: AtStart,
    /// By node: why its last process could not join.
    pub(crate) refused: BTreeMap<NodeId, String>,
    /// When versions of applications and receipts of plans were last looked at.
    pub(crate) watched_at: Timestamp,
    pub(crate) blobs: Blobs,
    pub(crate) secret_key: SecretKey,
    /// Whether there may be secrets in files, which belong into the log.
    pub(crate) secret_files: bool,
    /// States of shards in backups that were taken since this process started.
    pub(crate) backups: Parts,
    pub(crate) taking: Vec<Taking>,
    /// States that applications begin with.
    pub(crate) restores: Parts,
    /// By number: when the last bytes of parts came that no application is deployed with yet.
    pub(crate) uploads: BTreeMap<u64, Timestamp>,
    /// What owners want to know of primaries.
    pub(crate) questions: Questions,
    pub(crate) clock: Clock,
    /// Formats that this process reads and can write.
    pub(crate) formats: Formats,
    /// Of services whose manifests give none.
    pub(crate) durability: Durability,
    /// Program of the solver HiGHS.
    pub(crate) highs: PathBuf,
    /// Until then heartbeats without a tag count, although the active format has tags.
    pub(crate) tagless_until: Timestamp,
    /// Datagrams on the heartbeat port that are not heartbeats of members.
    pub(crate) garbage: u64,
    store: Store,
    /// Why the controller decides nothing any more: it is not known what is on disk, or decisions are
    /// missing.
    broken: Option<String>,
    /// Tells the process to end, so that another one reads what is on disk.
    pub(crate) restart: Arc<Notify>,
    /// The last message about a decision that was not stored, so that it is not logged ten times a
    /// second.
    pub(crate) complaint: Option<String>,
    version: watch::Sender<u64>,
    plans: Plans,
    /// By node: number of its last request for a plan.
    pub(crate) plan_requests: BTreeMap<NodeId, u64>,
    /// Random number of this process: what it sent as a version is what it knows by that number.
    pub(crate) plan_source: u64,
}

/// Tells the process to end if a decision panics.
struct RestartsOnPanic(Arc<Notify>);

impl Drop for RestartsOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.notify_one();
        }
    }
}

/// A command as it is logged. It is read back here, since a log that cannot be read holds up the controller
/// for good.
fn record_of(command: &Command) -> Result<Vec<u8>, ExecuteError> {
    let bytes = serde_json::to_vec(command).expect("commands have text keys only");
    match serde_json::from_slice::<Command>(&bytes) {
        Ok(read) if read == *command => Ok(bytes),
        Ok(_) => Err(ExecuteError::Unlogged("it would be read as another".into())),
        Err(e) => Err(ExecuteError::Unlogged(e.to_string())),
    }
}

impl Core {
    pub(crate) fn open(
        config: &ControllerConfig,
        clock: Clock,
        version: watch::Sender<u64>,
    ) -> Result<Core, ControllerError> {
        let (mut store, recovered) = Store::open(&config.dir.join("log"))?;
        if recovered.torn_bytes > 0 {
            let bytes = recovered.torn_bytes;
            tracing::warn!(
                bytes,
                "dropped the torn last record, which was never acknowledged"
            );
        }
        let dir = config.dir.join("log");
        let control = replay(&recovered, config.formats).map_err(|e| e.in_dir(dir))?;
        let secret_key = provide_key(config, control.as_ref())?;
        let is_new = control.is_none();
        let control = match control {
            Some(control) => control,
            None => found(&mut store, config)?,
        };
        // The log may lack the decision that needs them. What nobody needs goes when that is known.
        let restores = Parts::open(config.dir.join("restores"), true)?;
        let membership = Membership::sharded(
            clock.now(),
            config.heartbeat_timeout,
            config.heartbeat_shards,
        );
        let membership = match is_new {
            true => membership.of_new_cluster(),
            false => membership,
        };
        let mut core = Core {
            hearing: Hearing::new(membership, Orchestrator::new(&control)),
            at_start: AtStart::new(&control),
            control,
            reports: BTreeMap::new(),
            progress: Progress::default(),
            counters: Counters::default(),
            probation: Probation::default(),
            kept_back: BTreeMap::new(),
            receipts: Receipts::default(),
            refused: BTreeMap::new(),
            watched_at: Timestamp::default(),
            blobs: Blobs::open(&config.dir)?,
            secret_key,
            secret_files: true,
            backups: Parts::open(config.dir.join("backups"), false)?,
            taking: Vec::new(),
            restores,
            uploads: BTreeMap::new(),
            questions: Questions::default(),
            clock,
            formats: config.formats,
            durability: config.durability,
            highs: config.highs.clone(),
            tagless_until: Timestamp::default(),
            garbage: 0,
            store,
            broken: None,
            restart: Arc::default(),
            complaint: None,
            version,
            plans: Plans::default(),
            plan_requests: BTreeMap::new(),
            plan_source: random_number()?,
        };
        core.plans.note(&core.control);
        core.version.send_replace(core.control.version);
        Ok(core)
    }

    /// What is placed from now on goes where no long queue is, if it can.
    pub(crate) fn note_waiting_requests(&mut self) {
        let waiting = self.hearing.orchestrator.waiting();
        self.control.set_waiting_requests(waiting);
    }

    /// Executes a command: checks it, stores it, then makes it visible.
    pub(crate) fn execute(&mut self, command: &Command) -> Result<Applied, ExecuteError> {
        let mut applied = self.execute_all(std::slice::from_ref(command))?;
        Ok(applied.pop().expect("one for each command"))
    }

    /// Executes commands that arrived together, with one write to the disk. It stops at the first
    /// refused command; those before it remain in effect.
    pub(crate) fn execute_all(
        &mut self,
        commands: &[Command],
    ) -> Result<Vec<Applied>, ExecuteError> {
        let executed = self.execute_while(commands, |_| false)?;
        executed.into_iter().collect()
    }

    /// Executes commands that do not depend on each other, with one write to the disk; gives what became of
    /// each. It stops if the log takes no more.
    pub(crate) fn execute_each(
        &mut self,
        commands: &[Command],
    ) -> Result<Vec<Result<Applied, ExecuteError>>, ExecuteError> {
        self.execute_while(commands, |e| matches!(e, ExecuteError::Command(_)))
    }

    /// Executes commands with one write to the disk, until one fails after which it does not go on.
    fn execute_while(
        &mut self,
        commands: &[Command],
        goes_on: impl Fn(&ExecuteError) -> bool,
    ) -> Result<Vec<Result<Applied, ExecuteError>>, ExecuteError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(reason) = &self.broken {
            return Err(ExecuteError::Broken(reason.clone()));
        }
        let mut next = self.control.fork();
        next.set_waiting_requests(self.hearing.orchestrator.waiting());
        // If this panics, the log may hold commands that the state lacks.
        self.broken = Some("a decision failed while it was stored; the controller restarts".into());
        let _guard = RestartsOnPanic(self.restart.clone());
        let mut done = Vec::new();
        for command in commands {
            let taken = self.take(&mut next, command);
            let ends = taken.as_ref().is_err_and(|e| !goes_on(e));
            done.push(taken);
            if ends {
                break;
            }
        }
        self.broken = None;
        if next.version != self.control.version {
            if let Err(e) = self.store.sync() {
                self.give_up(&format!("{e}: it is not known what is in the log"));
                return Err(e.into());
            }
            self.show(next);
        } else {
            // Nothing has changed, and the index is with the copy.
            self.control = next;
        }
        if self.store.is_in_doubt() {
            self.give_up("a write to the log failed: it is not known what is in it");
        }
        Ok(done)
    }

    /// Decides nothing more, and has the controller restart.
    fn give_up(&mut self, why: &str) {
        tracing::error!("{why}");
        self.broken = Some(format!("{why}; the controller restarts"));
        self.restart.notify_one();
    }

    /// Applies a command and appends it to the log, which is not yet durable.
    fn take(&mut self, next: &mut Control, command: &Command) -> Result<Applied, ExecuteError> {
        let before = next.clone();
        let command = next.at(self.clock.now(), command);
        let format = next.format;
        let (applied, choices) = next.apply_choosing(&command)?;
        let command = Control::logged(format, command, choices);
        if applied != Applied::Nothing {
            let record = record_of(&command);
            let stored = record.and_then(|bytes| Ok(self.store.append(&bytes)?));
            if let Err(e) = stored {
                *next = before;
                return Err(e);
            }
        }
        Ok(applied)
    }

    /// Makes a state that is on disk the current one.
    fn show(&mut self, next: Control) {
        self.log_losses(&next);
        self.control = next;
        self.plans.note(&self.control);
        if self.store.log_len() > LOG_LEN_MAX {
            let bytes = serde_json::to_vec(&self.control).expect("state has text keys only");
            // The log keeps growing, which is worth a warning but no reason to stop.
            if let Err(e) = self.store.snapshot(&bytes) {
                tracing::warn!(error = %e, "snapshot failed");
            }
        }
        self.version.send_replace(self.control.version);
    }

    /// What a node is sent of the plan; none if its plan is as it should be.
    pub(crate) fn answer_plan(&mut self, asked: &PlanRequest) -> Option<PlanAnswer> {
        self.plans.answer(&self.control, asked)
    }

    fn log_losses(&self, next: &Control) {
        for (id, app) in &next.apps {
            let before = self.control.apps.get(id).map_or(0, |a| a.state_lost);
            let new = app.state_lost.saturating_sub(before) as usize;
            for loss in app.losses.iter().rev().take(new) {
                let (service, shard) = (loss.service, loss.shard);
                let key = ShardKey {
                    app: *id,
                    service,
                    shard,
                };
                let shard = next.shard_name(key);
                tracing::warn!(
                    shard,
                    "the last copy of its state is lost or given up, the shard begins empty"
                );
            }
        }
    }

    /// A node of this cluster has applied a version that the log lacks. The controller decides nothing any
    /// more: other decisions in place of the missing ones could give a shard two primaries.
    pub(crate) fn on_missing(&mut self, node: NodeId, applied: u64) {
        if self.broken.is_none() {
            let (name, version) = (self.node_name(node), self.control.version);
            self.on_older_log(&format!(
                "node {name} has applied plan {applied}, but the controller's log ends with plan {version}"
            ));
        }
    }

    /// The same of a version that an earlier process of the controller sent: the log did not have it when this
    /// one started, and may have it now with other decisions.
    pub(crate) fn on_sent_before(&mut self, node: NodeId, applied: u64) {
        if self.broken.is_none()
            && let Some(end) = self.at_start.end_before(applied)
        {
            let name = self.node_name(node);
            self.on_older_log(&format!(
                "node {name} has applied plan {applied} of an earlier process of the controller, but the log ended with plan {end} when this process started"
            ));
        }
    }

    /// The same of a copy on the disk of a node that asks to join.
    pub(crate) fn on_later_copy(&mut self, node: &str, later: LaterCopy) {
        if self.broken.is_none() {
            let LaterCopy { key, view, known } = later;
            self.on_older_log(&match known {
                Some(known) => format!(
                    "node {node} has a copy of shard {} of view {view} on its disk, but the controller's log ends with its view {known}",
                    self.shard_name(key)
                ),
                None => format!(
                    "node {node} has a copy of a shard of application {} on its disk, which the controller's log does not have",
                    key.app
                ),
            });
        }
    }

    fn on_older_log(&mut self, what: &str) {
        let reason =
            format!("{what}; restore the log from its newest copy and restart the controller");
        tracing::error!("{reason}");
        self.broken = Some(reason);
    }

    /// Whether what the state does not name can be removed: no node is known, or may still show, to need it.
    pub(crate) fn knows_all(&self) -> bool {
        let have_asked = self.at_start.have_all_asked(&self.control);
        have_asked && self.has_heard_nodes() && !self.is_broken()
    }

    /// Whether every member was heard since this process started, or had enough time.
    pub(crate) fn has_heard_nodes(&self) -> bool {
        self.is_broken()
            || self
                .hearing
                .membership
                .is_settled(self.clock.now(), &self.control)
    }

    /// Whether the controller decides nothing any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Why no decision can be made; None if decisions can be made.
    pub(crate) fn broken(&self) -> Option<String> {
        let broken = self.broken.clone();
        broken.or_else(|| self.store.probe().err().map(|e| e.to_string()))
    }

    /// Removes the reports of a process that is gone.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.reports.remove(&node);
        self.plan_requests.remove(&node);
        self.hearing.forget(node);
        self.progress.forget(node);
    }

    pub(crate) fn node_name(&self, id: NodeId) -> String {
        self.control.node_name(id)
    }

    /// `app/service/shard`.
    pub(crate) fn shard_name(&self, key: ShardKey) -> String {
        self.control.shard_name(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::Application;
    use e3_model::document::{parse_application, parse_profile};

    const APP: &str = include_str!("../../model/tests/two-services.yaml");
    const PROFILE: &str = "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {name: p}\nspec:\n  provenance: modelled\n  source: a test\n  nodes:\n    host: {serviceTime: [{bytes: 1, time: 1us}], activePowerW: 0.1, activeCores: 1}\n";

    fn deploy(outputs: f64) -> Command {
        let app: Application = parse_application("a.yaml", APP).unwrap();
        let mut profile = parse_profile("p.yaml", PROFILE).unwrap();
        profile.spec.outputs.insert("back".into(), outputs);
        Command::Deploy {
            app: Box::new(app),
            modules: Vec::new(),
            assets: BTreeMap::new(),
            profiles: BTreeMap::from([("p".into(), profile)]),
            overcommit: false,
            restored: None,
            placed: Vec::new(),
        }
    }

    #[test]
    fn a_command_that_the_log_cannot_hold_is_not_logged() {
        assert!(record_of(&deploy(1.0 / 3.0)).is_ok());
        for wrong in [f64::NAN, f64::INFINITY] {
            let error = record_of(&deploy(wrong)).unwrap_err().to_string();
            assert!(error.contains("the log cannot hold it"), "{error}");
        }
    }

    #[test]
    fn a_command_that_would_be_read_as_another_is_not_logged() {
        let racks = |budget: &str| {
            let text = format!(
                "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: t}}\nspec:\n  racks:\n    - name: r\n      powerBudgetW: {budget}\n      servers:\n        - name: s\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: h, kind: host, cores: 12, memory: 64Gi}}\n"
            );
            let mut racks = e3_model::document::parse_topology("t.yaml", &text)
                .unwrap()
                .spec
                .racks;
            if budget == "1" {
                racks[0].power_budget_w = Some(f64::INFINITY);
            }
            racks
        };
        assert!(
            record_of(&Command::AddNodes {
                racks: racks("500")
            })
            .is_ok()
        );
        let error = record_of(&Command::AddNodes { racks: racks("1") }).unwrap_err();
        assert!(error.to_string().contains("read as another"), "{error}");
    }
}
