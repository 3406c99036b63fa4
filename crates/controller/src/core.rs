//! State, log and soft state under one lock: a command is on disk before it shows.

use crate::blobs::Blobs;
use crate::config::ControllerConfig;
use crate::counters::Counters;
use crate::limits::LOG_LEN_MAX;
use e3_clock::Clock;
use e3_control::{Applied, Command, CommandError, Control, Genesis, Membership};
use e3_model::plan::NodeReport;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use e3_store::{Recovered, Store, StoreError};
use e3_wire::heartbeat::Heartbeat;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::watch;

/// Why a controller does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Until the data path is encrypted, nothing listens beyond loopback.
    #[error("address {0} is not loopback; nothing listens beyond loopback yet")]
    NotLoopback(SocketAddr),
    /// The port is taken.
    #[error("address {0} is in use")]
    InUse(SocketAddr),
    /// The port is not to be had.
    #[error("address {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// The files are not to be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files hold what this program has not written.
    #[error(
        "{dir}: {what}; it was written by another version or is damaged: restore it from a copy, or move it away to start with an empty one"
    )]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// What cannot be read.
        what: String,
    },
    /// The system refuses something else.
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
    #[error("the controller's log is broken since {0}; restart it")]
    Broken(String),
}

/// Everything that the controller knows.
pub(crate) struct Core {
    pub(crate) control: Control,
    pub(crate) membership: Membership,
    /// Latest report of each node, with the time it came.
    pub(crate) reports: BTreeMap<NodeId, (Timestamp, NodeReport)>,
    pub(crate) heartbeats: BTreeMap<NodeId, Heartbeat>,
    pub(crate) progress: Progress,
    pub(crate) counters: Counters,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Clock,
    /// Datagrams on the heartbeat port that are no heartbeat of a member.
    pub(crate) garbage: u64,
    store: Store,
    /// Set when it is not known what is on disk: nothing is decided any more.
    broken: Option<String>,
    /// What was logged last of what could not be stored, so that it is not logged ten times a second.
    pub(crate) complaint: Option<String>,
    version: watch::Sender<u64>,
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
        let control = replay(&recovered).map_err(|what| ControllerError::Unreadable {
            dir: config.dir.join("log"),
            what,
        })?;
        let control = match control {
            Some(control) => control,
            None => found(&mut store, config)?,
        };
        let core = Core {
            membership: Membership::new(clock.now(), config.heartbeat_timeout),
            control,
            reports: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            progress: Progress::default(),
            counters: Counters::default(),
            blobs: Blobs::open(&config.dir)?,
            clock,
            garbage: 0,
            store,
            broken: None,
            complaint: None,
            version,
        };
        core.version.send_replace(core.control.version);
        Ok(core)
    }

    /// Carries a command out: checked, stored, then visible.
    pub(crate) fn execute(&mut self, command: &Command) -> Result<Applied, ExecuteError> {
        let mut applied = self.execute_all(std::slice::from_ref(command))?;
        Ok(applied.pop().expect("one for each command"))
    }

    /// Carries commands out that came together, with one write to the disk for all. The first that
    /// is refused ends it; those before it stand.
    pub(crate) fn execute_all(
        &mut self,
        commands: &[Command],
    ) -> Result<Vec<Applied>, ExecuteError> {
        if let Some(reason) = &self.broken {
            return Err(ExecuteError::Broken(reason.clone()));
        }
        let mut next = self.control.clone();
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
                self.broken = Some(e.to_string());
                return Err(e.into());
            }
            self.show(next);
        }
        refused.map_or(Ok(done), Err)
    }

    /// Applies a command and puts it into the log, not yet durably.
    fn take(&mut self, next: &mut Control, command: &Command) -> Result<Applied, ExecuteError> {
        let before = next.clone();
        let applied = next.apply(command)?;
        if applied != Applied::Nothing {
            let bytes = serde_json::to_vec(command).expect("commands have text keys only");
            if let Err(e) = self.store.append(&bytes) {
                *next = before;
                return Err(e.into());
            }
        }
        Ok(applied)
    }

    /// Makes a state that is on disk the present one.
    fn show(&mut self, next: Control) {
        self.log_losses(&next);
        self.control = next;
        if self.store.log_len() > LOG_LEN_MAX {
            let bytes = serde_json::to_vec(&self.control).expect("state has text keys only");
            // The log goes on growing, which is worth a line but no stop.
            if let Err(e) = self.store.snapshot(&bytes) {
                tracing::warn!(error = %e, "snapshot failed");
            }
        }
        self.version.send_replace(self.control.version);
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

    /// Whether it is not known what is on the disk.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Why nothing can be decided, if so.
    pub(crate) fn broken(&self) -> Option<String> {
        let broken = self.broken.clone();
        broken.or_else(|| self.store.probe().err().map(|e| e.to_string()))
    }

    /// Forgets the reports of a process that is gone.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.reports.remove(&node);
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

/// A new cluster, which is on disk when it returns.
fn found(store: &mut Store, config: &ControllerConfig) -> Result<Control, ControllerError> {
    let mut id = [0; 8];
    getrandom::fill(&mut id)
        .map_err(|e| ControllerError::Runtime(io::Error::other(e.to_string())))?;
    let cluster = u64::from_le_bytes(id) | 1;
    let topology = config.topology.clone();
    let genesis = Genesis::Init { cluster, topology };
    let bytes = serde_json::to_vec(&genesis).expect("topologies have text keys only");
    store.append(&bytes)?;
    store.sync()?;
    let Genesis::Init { cluster, topology } = genesis;
    Ok(Control::new(cluster, topology))
}

/// The state that the snapshot and the records after it lead to; None if the log is new.
fn replay(recovered: &Recovered) -> Result<Option<Control>, String> {
    let read = |i: usize, e| format!("command {} cannot be read: {e}", i + 1);
    let mut entries = recovered.entries.iter().enumerate();
    let mut control: Control = if let Some(snapshot) = &recovered.snapshot {
        serde_json::from_slice(snapshot).map_err(|e| format!("snapshot cannot be read: {e}"))?
    } else if let Some((i, first)) = entries.next() {
        let first = serde_json::from_slice(first).map_err(|e| read(i, e))?;
        let Genesis::Init { cluster, topology } = first;
        Control::new(cluster, topology)
    } else {
        return Ok(None);
    };
    for (i, entry) in entries {
        let command: Command = serde_json::from_slice(entry).map_err(|e| read(i, e))?;
        let applied = control.apply(&command);
        applied.map_err(|e| format!("command {} cannot be replayed: {e}", i + 1))?;
    }
    Ok(Some(control))
}

/// Since when things that should make progress have made none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Shards that wait for a copy, with the view in which they began to.
    shards: BTreeMap<ShardKey, (u32, Timestamp)>,
    /// Channels with messages in flight: how many were durable, since when.
    channels: BTreeMap<(NodeId, String), (u64, Timestamp)>,
}

impl Progress {
    /// Looks at the desired state.
    pub(crate) fn look(&mut self, now: Timestamp, control: &Control) {
        let mut waiting = BTreeMap::new();
        for app in control.apps.values() {
            for shard in &app.plan.shards {
                let key = app.plan.key(shard);
                if !shard.joining.is_empty() || shard.frozen {
                    let since = match self.shards.get(&key) {
                        Some((view, since)) if *view == shard.view => *since,
                        _ => now,
                    };
                    waiting.insert(key, (shard.view, since));
                }
            }
        }
        self.shards = waiting;
    }

    /// Looks at a node's channels.
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

    /// A node's process is gone, and its channels with it.
    fn forget(&mut self, node: NodeId) {
        self.channels.retain(|(n, _), _| *n != node);
    }

    /// What has not moved for `limit`.
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
