//! State, log and soft state under one lock: a command is on disk before it shows.

use crate::blobs::Blobs;
use crate::{Clock, ControllerConfig, log};
use e3_control::{Applied, Command, CommandError, Control, Membership};
use e3_model::plan::NodeReport;
use e3_model::{Nanos, NodeId, ShardKey};
use e3_store::{Store, StoreError};
use e3_wire::heartbeat::Heartbeat;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use tokio::sync::watch;

/// Bytes of log after which a snapshot replaces it.
const LOG_LEN_MAX: u64 = 4 << 20;

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
    #[error("state on disk cannot be read: {0}")]
    Unreadable(String),
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
    pub(crate) reports: BTreeMap<NodeId, (Nanos, NodeReport)>,
    pub(crate) heartbeats: BTreeMap<NodeId, Heartbeat>,
    pub(crate) progress: Progress,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Clock,
    /// Datagrams and requests that made no sense.
    pub(crate) garbage: u64,
    store: Store,
    /// Set when it is not known what is on disk: nothing is decided any more.
    broken: Option<String>,
    version: watch::Sender<u64>,
}

impl Core {
    pub(crate) fn open(
        config: &ControllerConfig,
        clock: Clock,
        version: watch::Sender<u64>,
    ) -> Result<Core, ControllerError> {
        let (store, recovered) = Store::open(&config.dir.join("log"))?;
        if recovered.torn_bytes > 0 {
            let bytes = recovered.torn_bytes;
            log(&format!(
                "dropped {bytes} bytes of a record that was never acknowledged"
            ));
        }
        let unreadable = |e: serde_json::Error| ControllerError::Unreadable(e.to_string());
        let mut control = match recovered.snapshot {
            Some(snapshot) => serde_json::from_slice(&snapshot).map_err(unreadable)?,
            None => Control::default(),
        };
        for entry in &recovered.entries {
            let command: Command = serde_json::from_slice(entry).map_err(unreadable)?;
            let applied = control.apply(&command);
            applied.map_err(|e| ControllerError::Unreadable(e.to_string()))?;
        }
        let mut core = Core {
            membership: Membership::new(clock.now(), config.heartbeat_timeout),
            control,
            reports: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            progress: Progress::default(),
            blobs: Blobs::open(&config.dir)?,
            clock,
            garbage: 0,
            store,
            broken: None,
            version,
        };
        if core.control.topology.is_none() {
            let mut id = [0; 8];
            getrandom::fill(&mut id)
                .map_err(|e| ControllerError::Runtime(io::Error::other(e.to_string())))?;
            let cluster = u64::from_le_bytes(id) | 1;
            let init = Command::Init {
                cluster,
                topology: config.topology.clone(),
            };
            core.execute(&init)
                .map_err(|e| ControllerError::Unreadable(e.to_string()))?;
        }
        core.version.send_replace(core.control.version);
        Ok(core)
    }

    /// Carries a command out: checked, stored, then visible.
    pub(crate) fn execute(&mut self, command: &Command) -> Result<Applied, ExecuteError> {
        if let Some(reason) = &self.broken {
            return Err(ExecuteError::Broken(reason.clone()));
        }
        let mut next = self.control.clone();
        let applied = next.apply(command)?;
        if applied == Applied::Nothing {
            return Ok(applied);
        }
        let bytes = serde_json::to_vec(command).expect("commands have text keys only");
        self.store.append(&bytes)?;
        if let Err(e) = self.store.sync() {
            self.broken = Some(e.to_string());
            return Err(e.into());
        }
        self.control = next;
        if self.store.log_len() > LOG_LEN_MAX {
            let bytes = serde_json::to_vec(&self.control).expect("state has text keys only");
            // The log goes on growing, which is worth a line but no stop.
            if let Err(e) = self.store.snapshot(&bytes) {
                log(&format!("snapshot failed: {e}"));
            }
        }
        self.version.send_replace(self.control.version);
        Ok(applied)
    }

    /// Why nothing can be decided, if so.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub(crate) fn node_name(&self, id: NodeId) -> String {
        let topology = self.control.topology.as_ref();
        let node = topology
            .and_then(|t| t.node(id))
            .map(|n| n.node.name.clone());
        node.unwrap_or_else(|| id.to_string())
    }

    /// `app/service/shard`.
    pub(crate) fn shard_name(&self, key: ShardKey) -> String {
        match self.control.apps.get(&key.app) {
            Some(app) => {
                let app = &app.plan.app;
                format!(
                    "{}/{}/{}",
                    app.name,
                    app.service(key.service).name,
                    key.shard
                )
            }
            None => key.to_string(),
        }
    }
}

/// Since when things that should move have not moved: wedged is not healthy.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Shards that wait for a copy, with the view in which they began to.
    shards: BTreeMap<ShardKey, (u32, Nanos)>,
    /// Channels with messages under way: how many were durable, since when.
    channels: BTreeMap<(NodeId, String), (u64, Nanos)>,
}

impl Progress {
    /// Looks at the desired state.
    pub(crate) fn look(&mut self, now: Nanos, control: &Control) {
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
    pub(crate) fn on_report(&mut self, now: Nanos, report: &NodeReport) {
        let node = report.node;
        let mut before = std::mem::take(&mut self.channels);
        for c in report
            .stats
            .channels
            .iter()
            .filter(|c| c.sent + u64::from(c.waiting) > c.durable)
        {
            let key = (node, format!("{} {} {} {}", c.app, c.name, c.from, c.to));
            let since = match before.get(&key) {
                Some((durable, since)) if *durable == c.durable => *since,
                _ => now,
            };
            self.channels.insert(key, (c.durable, since));
        }
        before.retain(|(n, _), _| *n != node);
        self.channels.append(&mut before);
    }

    /// What has not moved for `limit`.
    pub(crate) fn stuck(&self, now: Nanos, limit: Nanos) -> (Vec<ShardKey>, Vec<&str>) {
        let late = |since: &Nanos| now.0 > since.0 + limit.0;
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
