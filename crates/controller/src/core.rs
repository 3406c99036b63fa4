//! State, log and soft state under one lock. A command is on disk before its effects are visible.

use crate::blobs::Blobs;
use crate::config::ControllerConfig;
use crate::counters::Counters;
use crate::limits::LOG_LEN_MAX;
use crate::parts::Parts;
use crate::pending::Questions;
use crate::seal::{SecretKey, SecretKeyError, provide_key};
use crate::taking::Taking;
use e3_clock::Clock;
use e3_control::{
    Applied, Command, CommandError, Control, Genesis, Membership, Orchestrator, PlanAnswer,
    PlanRequest, Plans, Probation,
};
use e3_model::application::Durability;
use e3_model::format::RELEASE;
use e3_model::plan::{NodeReport, ShardPlan};
use e3_model::{Format, Formats, Nanos, NodeId, ShardKey, Timestamp};
use e3_store::{Recovered, Store, StoreError};
use e3_wire::heartbeat::Heartbeat;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::watch;

/// Why a controller does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Until the data path is encrypted, nothing listens beyond loopback.
    #[error("address {0} is not loopback; nothing listens beyond loopback yet")]
    NotLoopback(SocketAddr),
    /// The port is taken.
    #[error("address {0} is in use")]
    InUse(SocketAddr),
    /// The port cannot be opened.
    #[error("address {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The files cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The contents of the files are not what this program wrote.
    #[error(
        "{dir}: {what}; it was written by another version or is damaged: restore it from a copy, or move it away to start with an empty one"
    )]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// What cannot be read.
        what: String,
    },
    /// The cluster has gone on to a newer release.
    #[error(
        "{dir}: the cluster writes format {found}, this program (release {own}) has formats {formats}; start release {release:?} or a newer one",
        own = e3_model::format::RELEASE
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The cluster's active format.
        found: Format,
        /// What this process has.
        formats: Formats,
        /// The release that made it the active one.
        release: String,
    },
    /// The secrets cannot be read.
    #[error(transparent)]
    SecretKey(#[from] SecretKeyError),
    /// Another error of the system.
    #[error("controller: {0}")]
    Runtime(io::Error),
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("decision cannot be stored: {0}")]
    Store(#[from] StoreError),
    #[error("the controller decides nothing: {0}")]
    Broken(String),
}

/// Everything that the controller knows.
pub(crate) struct Core {
    pub(crate) control: Control,
    pub(crate) membership: Membership,
    /// The latest report of each node, with its time of arrival.
    pub(crate) reports: BTreeMap<NodeId, (Timestamp, NodeReport)>,
    pub(crate) heartbeats: BTreeMap<NodeId, Heartbeat>,
    pub(crate) progress: Progress,
    pub(crate) counters: Counters,
    pub(crate) probation: Probation,
    pub(crate) orchestrator: Orchestrator,
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
    /// Datagrams on the heartbeat port that are not heartbeats of members.
    pub(crate) garbage: u64,
    store: Store,
    /// Why the controller decides nothing any more: it is not known what is on disk, or decisions are
    /// missing.
    broken: Option<String>,
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
        let control = match control {
            Some(control) => control,
            None => found(&mut store, config)?,
        };
        let is_restored = |number| {
            let mut apps = control.apps.values();
            apps.any(|a| a.plan.restored.as_ref().is_some_and(|r| r.number == number))
        };
        let restores = Parts::open(config.dir.join("restores"), is_restored)?;
        let mut core = Core {
            membership: Membership::sharded(
                clock.now(),
                config.heartbeat_timeout,
                config.heartbeat_shards,
            ),
            orchestrator: Orchestrator::new(&control),
            control,
            reports: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            progress: Progress::default(),
            counters: Counters::default(),
            probation: Probation::default(),
            blobs: Blobs::open(&config.dir)?,
            secret_key,
            secret_files: true,
            backups: Parts::open(config.dir.join("backups"), |_| false)?,
            taking: Vec::new(),
            restores,
            uploads: BTreeMap::new(),
            questions: Questions::default(),
            clock,
            formats: config.formats,
            durability: config.durability,
            highs: config.highs.clone(),
            garbage: 0,
            store,
            broken: None,
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
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(reason) = &self.broken {
            return Err(ExecuteError::Broken(reason.clone()));
        }
        let mut next = self.control.fork();
        let mut done = Vec::new();
        let mut refused = None;
        for command in commands {
            match self.take(&mut next, command) {
                Ok(applied) => done.push(applied),
                Err(e) => {
                    refused = Some(e);
                    break;
                }
            }
        }
        if next.version != self.control.version {
            if let Err(e) = self.store.sync() {
                self.broken = Some(format!("{e}; restart the controller"));
                return Err(e.into());
            }
            self.show(next);
        } else {
            // Nothing has changed, and the index is with the copy.
            self.control = next;
        }
        refused.map_or(Ok(done), Err)
    }

    /// Applies a command and appends it to the log, which is not yet durable.
    fn take(&mut self, next: &mut Control, command: &Command) -> Result<Applied, ExecuteError> {
        let before = next.clone();
        let command = next.at(self.clock.now(), command);
        let format = next.format;
        let (applied, choices) = next.apply_choosing(&command)?;
        let command = Control::logged(format, command, choices);
        if applied != Applied::Nothing {
            let bytes = serde_json::to_vec(&command).expect("commands have text keys only");
            if let Err(e) = self.store.append(&bytes) {
                *next = before;
                return Err(e.into());
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

    /// A node of this cluster has applied a version, of which this is the low half. If the log lacks
    /// it, the controller decides nothing any more: other decisions in place of the missing ones could
    /// give a shard two primaries.
    pub(crate) fn on_applied(&mut self, node: NodeId, version_low: u32) {
        if let Some(applied) = self.control.missing_version(version_low)
            && self.broken.is_none()
        {
            let (name, version) = (self.node_name(node), self.control.version);
            let reason = format!(
                "node {name} has applied plan {applied}, but the controller's log ends with plan {version}; \
                 restore the log from its newest copy and restart the controller"
            );
            tracing::error!("{reason}");
            self.broken = Some(reason);
        }
    }

    /// Whether every member was heard since this process started, or had enough time.
    pub(crate) fn has_heard_nodes(&self) -> bool {
        self.is_broken() || self.membership.is_settled(self.clock.now(), &self.control)
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
        self.heartbeats.remove(&node);
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

fn random_number() -> Result<u64, ControllerError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| ControllerError::Runtime(io::Error::other(e.to_string())))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Creates a cluster; it is on disk when this returns.
fn found(store: &mut Store, config: &ControllerConfig) -> Result<Control, ControllerError> {
    let cluster = random_number()? | 1;
    let topology = config.topology.clone();
    let genesis = Genesis::Init {
        cluster,
        topology,
        format: config.formats.newest(),
        release: RELEASE.into(),
    };
    let bytes = serde_json::to_vec(&genesis).expect("topologies have text keys only");
    store.append(&bytes)?;
    store.sync()?;
    Ok(Control::founded(genesis))
}

/// Why a log cannot be used.
#[derive(Debug)]
enum LogError {
    Unreadable(String),
    /// The active format, which this process does not have, and the release that chose it.
    Newer {
        found: Format,
        formats: Formats,
        release: String,
    },
}

impl LogError {
    fn in_dir(self, dir: PathBuf) -> ControllerError {
        match self {
            LogError::Unreadable(what) => ControllerError::Unreadable { dir, what },
            LogError::Newer {
                found,
                formats,
                release,
            } => ControllerError::Newer {
                dir,
                found,
                formats,
                release,
            },
        }
    }
}

/// What every snapshot says of its format, whatever else it holds.
#[derive(Deserialize)]
struct FormatOfSnapshot {
    #[serde(default)]
    format: Format,
    #[serde(default)]
    format_release: String,
}

/// The state that follows from the snapshot and the records after it; None if the log is new. Nothing
/// is read that follows a change to a format that this process does not have.
fn replay(recovered: &Recovered, formats: Formats) -> Result<Option<Control>, LogError> {
    let read = |i: usize, e| LogError::Unreadable(format!("command {} cannot be read: {e}", i + 1));
    let check = |found: Format, release: &str| {
        if formats.include(found) {
            Ok(())
        } else {
            Err(LogError::Newer {
                found,
                formats,
                release: release.to_string(),
            })
        }
    };
    let mut entries = recovered.entries.iter().enumerate();
    let mut control: Control = if let Some(snapshot) = &recovered.snapshot {
        let of = |e| LogError::Unreadable(format!("snapshot cannot be read: {e}"));
        let head: FormatOfSnapshot = serde_json::from_slice(snapshot).map_err(of)?;
        check(head.format, &head.format_release)?;
        serde_json::from_slice(snapshot).map_err(of)?
    } else if let Some((i, first)) = entries.next() {
        Control::founded(serde_json::from_slice(first).map_err(|e| read(i, e))?)
    } else {
        return Ok(None);
    };
    check(control.format, &control.format_release)?;
    for (i, entry) in entries {
        let command: Command = serde_json::from_slice(entry).map_err(|e| read(i, e))?;
        let applied = control.apply(&command);
        applied.map_err(|e| {
            LogError::Unreadable(format!("command {} cannot be replayed: {e}", i + 1))
        })?;
        check(control.format, &control.format_release)?;
    }
    Ok(Some(control))
}

/// How long shards and channels that should make progress have made none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Shards that wait for a copy, with the view in which the wait began.
    shards: BTreeMap<ShardKey, (u32, Timestamp)>,
    /// Channels with messages in flight: how many were durable, and since when.
    channels: BTreeMap<(NodeId, String), (u64, Timestamp)>,
}

impl Progress {
    /// Updates the shards from the desired state.
    pub(crate) fn look(&mut self, now: Timestamp, control: &Control) {
        let mut waiting = BTreeMap::new();
        for key in control.busy_shards() {
            let shard = control.apps.get(&key.app).and_then(|app| app.shard(key));
            let changes =
                |s: &&ShardPlan| !s.joining.is_empty() || !s.leaving.is_empty() || s.frozen;
            if let Some(shard) = shard.filter(changes) {
                let since = match self.shards.get(&key) {
                    Some((view, since)) if *view == shard.view => *since,
                    _ => now,
                };
                waiting.insert(key, (shard.view, since));
            }
        }
        self.shards = waiting;
    }

    /// Updates the channels from a node's report.
    pub(crate) fn on_report(&mut self, now: Timestamp, report: &NodeReport, control: &Control) {
        let node = report.node;
        let mut before = std::mem::take(&mut self.channels);
        for c in report
            .stats
            .channels
            .iter()
            .filter(|c| c.sent.saturating_add(c.waiting.into()) > c.durable)
        {
            let app = control.apps.get(&c.app).map(|a| a.plan.app.name.as_str());
            let Some(app) = app else { continue };
            let name = format!("{} of {app} from {} to {}", c.name, c.from, c.to);
            let key = (node, name);
            let since = match before.get(&key) {
                Some((durable, since)) if *durable == c.durable => *since,
                _ => now,
            };
            self.channels.insert(key, (c.durable, since));
        }
        before.retain(|(n, _), _| *n != node);
        self.channels.append(&mut before);
    }

    /// Removes the channels of a node's process that is gone.
    fn forget(&mut self, node: NodeId) {
        self.channels.retain(|(n, _), _| *n != node);
    }

    /// What has made no progress for `limit`.
    pub(crate) fn stuck(&self, now: Timestamp, limit: Nanos) -> (Vec<ShardKey>, Vec<&str>) {
        let late = |since: &Timestamp| now > *since + limit;
        let shards = self
            .shards
            .iter()
            .filter(|(_, (_, since))| late(since))
            .map(|(k, _)| *k);
        let channels = self.channels.iter().filter(|(_, (_, since))| late(since));
        (
            shards.collect(),
            channels.map(|((_, name), _)| name.as_str()).collect(),
        )
    }
}
