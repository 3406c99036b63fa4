//! What the controller wants of a node. What the node reports is in `node_report`.
//!
//! Plans are level-triggered: each states all that should be, carries a version, and can be applied
//! twice. A node ignores a plan that is older than the one it has.

use crate::accelerator::Accelerators;
use crate::application::Application;
use crate::backup::{BackupOrder, Restored};
use crate::format::{Format, Formats};
use crate::ids::{Address, AppId, NodeId, ServiceId, ShardId, ShardKey};
pub use crate::node_report::{
    BackupReport, ChannelReport, IngressCounts, InstanceReport, JournalCounts, NodeEvent,
    NodeReport, NodeStats, ShardCounts,
};
use crate::reshard::Resharded;
use crate::time::Timestamp;
use crate::topology::NodeKind;
use crate::units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All that one node should do, and what it must know of the others.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodePlan {
    /// Version; grows with every change.
    pub version: u64,
    /// Which plan of this process it is. Plans of one version differ in the applications that the node
    /// asked for. Not sent.
    #[serde(skip)]
    pub revision: u64,
    /// The cluster that this plan belongs to.
    pub cluster: u64,
    /// The cluster's active format: what the node writes.
    #[serde(default)]
    pub format: Format,
    /// The node that it is for.
    pub node: NodeId,
    /// Every node that is a member now.
    pub peers: BTreeMap<NodeId, Peer>,
    /// By node: the latest incarnation whose process has certainly ended. Nobody needs to keep what
    /// was promised to it.
    #[serde(default)]
    pub exited: BTreeMap<NodeId, u32>,
    /// Of a host: where the SmartNICs listen through which its traffic with other servers and clients
    /// passes. Empty if it passes none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<Address>,
    /// Of a SmartNIC that relays: where its host listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relayed: Option<Address>,
    /// Applications with all their shards. A node that says what it is interested in is sent no others
    /// than these and what concerns it.
    pub apps: Vec<AppPlan>,
    /// All applications of the cluster, those in `apps` included. Empty if the controller's release sends
    /// all of them as `apps`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub directory: BTreeMap<AppId, ListedApp>,
}

/// What every node knows of an application, whether it routes its requests or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedApp {
    /// Name.
    pub name: String,
    /// See [`AppPlan::identity`].
    pub identity: AppId,
    /// The longest deadline of its requests.
    pub deadline_max: Nanos,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Name.
    pub name: String,
    /// Index of its server: its fault domain.
    pub server: u32,
    /// Number of its process among all that ever ran for this node.
    pub incarnation: u32,
    /// Where its data path listens.
    pub address: Address,
}

/// An application on the cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AppPlan {
    /// Id.
    pub id: AppId,
    /// Version of manifest and code.
    pub code_version: u32,
    /// The manifest.
    pub app: Arc<Application>,
    /// By service: SHA-256 of its module, in hexadecimal.
    pub modules: Vec<String>,
    /// By asset name: SHA-256 of its content, in hexadecimal.
    pub assets: BTreeMap<String, String>,
    /// The last version that started at every primary, if it is an older one. Instances start in it
    /// and are then updated, so that a version that does not start stops no shard.
    #[serde(default)]
    pub proven: Option<Release>,
    /// By service: kind of node -> how many times slower than the fastest kind (emulated nodes).
    pub slowdown: Vec<BTreeMap<NodeKind, f64>>,
    /// Every shard of every service, in order.
    pub shards: Vec<ShardPlan>,
    /// By service whose number of shards has changed: how it changed last.
    #[serde(default)]
    pub resharded: Vec<Resharded>,
    /// The backup that is being taken of it.
    #[serde(default)]
    pub backup: Option<BackupOrder>,
    /// Where its state came from, if it was restored.
    #[serde(default)]
    pub restored: Option<Restored>,
    /// By secret: its version. A node that holds another one fetches it again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, u64>,
}

/// One version of an application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// Version of manifest and code.
    pub code_version: u32,
    /// The manifest.
    pub app: Arc<Application>,
    /// By service: SHA-256 of its module, in hexadecimal.
    pub modules: Vec<String>,
    /// By asset name: SHA-256 of its content, in hexadecimal.
    pub assets: BTreeMap<String, String>,
}

/// Who serves a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardPlan {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// Number of this view; grows with every change of primary, backups or joining backups.
    pub view: u32,
    /// The view in which the primary took over. Channels from and to the shard restart when it
    /// changes.
    pub incarnation: u32,
    /// Serves requests.
    pub primary: NodeId,
    /// Have all entries that the primary ever acknowledged; must acknowledge what it commits.
    pub backups: Vec<NodeId>,
    /// Are being brought up to date.
    pub joining: Vec<NodeId>,
    /// Had all entries that were acknowledged before this view, and are to leave. They keep what
    /// they have until the primary confirms the view, since it may be gone by now. Those among the
    /// backups are waited for until then.
    #[serde(default)]
    pub leaving: Vec<NodeId>,
    /// The primary of the previous incarnation.
    pub predecessor: Option<NodeId>,
    /// The predecessor has confirmed that it stopped, so that its leases need not run out.
    pub fenced: bool,
    /// The primary must stop handling, bring every backup up to date, and confirm it.
    pub frozen: bool,
    /// The frozen primary confirms it only when its outputs are durable at their receivers too.
    #[serde(default)]
    pub quiet: bool,
    /// The view in which the shard last began empty: copies of before then are none of its state.
    /// Later than `incarnation` while no node has room for it, so that nobody serves it.
    #[serde(default)]
    pub era: u32,
    /// The shard has committed something since it last began empty: losing all replicas loses state.
    #[serde(default)]
    pub filled: bool,
}

impl ShardPlan {
    /// Which of its application's shards it is.
    pub fn id(&self) -> (ServiceId, ShardId) {
        (self.service, self.shard)
    }

    /// Part of a node in this view; None if it has none.
    pub fn role(&self, node: NodeId) -> Option<Role> {
        if self.incarnation < self.era {
            None
        } else if self.primary == node {
            Some(Role::Primary)
        } else if self.backups.contains(&node) {
            Some(Role::Backup)
        } else if self.joining.contains(&node) {
            Some(Role::Joining)
        } else {
            None
        }
    }

    /// Whether a node must keep what it has of the shard.
    pub fn keeps(&self, node: NodeId) -> bool {
        self.role(node).is_some() || self.leaving.contains(&node)
    }

    /// Whether the primary is on the node that was it before.
    pub fn succeeds_itself(&self) -> bool {
        self.predecessor == Some(self.primary)
    }

    /// Whether the primary is a new process of the node that was it before: its log is what the disk
    /// had. That of a shard that was just made of others is the process that had these.
    pub fn has_restarted(&self) -> bool {
        self.succeeds_itself() && self.incarnation != self.era
    }

    /// The backups that stay.
    pub fn staying(&self) -> impl Iterator<Item = NodeId> + '_ {
        let backups = self.backups.iter().copied();
        backups.filter(|n| !self.leaving.contains(n))
    }
}

impl AppPlan {
    /// In whose name identities are made: the application whose state it began with, or itself.
    pub fn identity(&self) -> AppId {
        self.restored.as_ref().map_or(self.id, |r| r.identity)
    }

    /// What every node knows of it.
    pub fn listed(&self) -> ListedApp {
        ListedApp {
            name: self.app.name.clone(),
            identity: self.identity(),
            deadline_max: self.app.spec.deadline_max(),
        }
    }

    /// The version that every instance should run.
    pub fn wanted(&self) -> Release {
        Release {
            code_version: self.code_version,
            app: self.app.clone(),
            modules: self.modules.clone(),
            assets: self.assets.clone(),
        }
    }

    /// The version in which an instance starts.
    pub fn initial(&self) -> Release {
        self.proven.clone().unwrap_or_else(|| self.wanted())
    }

    /// All versions that may run.
    pub fn releases(&self) -> impl Iterator<Item = Release> {
        self.proven.clone().into_iter().chain([self.wanted()])
    }

    /// Whether a shard waits for its state from a backup.
    pub fn is_restoring(&self, key: ShardKey) -> bool {
        let restored = self.restored.as_ref();
        restored.is_some_and(|r| r.part(key.service, key.shard).is_some())
    }

    /// The shard's key.
    pub fn key(&self, shard: &ShardPlan) -> ShardKey {
        ShardKey {
            app: self.id,
            service: shard.service,
            shard: shard.shard,
        }
    }

    /// Whether a node's disk holds a copy of a shard, or those of all shards that it was made of.
    pub fn is_held(&self, hello: &NodeHello, shard: &ShardPlan) -> bool {
        let made_of = self.made_of(shard);
        hello.holds(self.key(shard), shard.era)
            || made_of.is_some_and(|all| all.iter().all(|(key, era)| hello.holds(*key, *era)))
    }

    /// The shards that a shard was made of since it last began empty, each with its era; none if it
    /// began so.
    pub fn made_of(&self, shard: &ShardPlan) -> Option<Vec<(ShardKey, u32)>> {
        let mut changes = self.resharded.iter();
        let change = changes.find(|r| (r.service, r.era) == (shard.service, shard.era))?;
        let parents = change.split.parents(shard.shard);
        let made_of = parents.map(|parent| {
            let key = self.key_of(shard.service, parent);
            Some((key, *change.eras.get(usize::from(parent))?))
        });
        made_of.collect()
    }

    /// The key of a shard of this application.
    pub fn key_of(&self, service: ServiceId, shard: u16) -> ShardKey {
        ShardKey {
            app: self.id,
            service,
            shard: ShardId(shard),
        }
    }

    /// `app/service/shard`, as users name the shard. None if it is of another application.
    pub fn shard_name(&self, key: ShardKey) -> Option<String> {
        let service = self.app.spec.services.get(usize::from(key.service.0))?;
        (key.app == self.id).then(|| format!("{}/{}/{}", self.app.name, service.name, key.shard))
    }
}

impl NodePlan {
    /// Ids of the applications whose routes it has.
    pub fn routed(&self) -> impl Iterator<Item = AppId> + '_ {
        self.apps.iter().map(|app| app.id)
    }

    /// All applications of the cluster.
    pub fn listed(&self) -> BTreeMap<AppId, ListedApp> {
        let routed = self.apps.iter().map(|app| (app.id, app.listed()));
        let others = self.directory.iter().map(|(id, app)| (*id, app.clone()));
        routed.chain(others).collect()
    }

    /// `app/service/shard`, as users name the shard.
    pub fn shard_name(&self, key: ShardKey) -> String {
        let mut names = self.apps.iter().filter_map(|a| a.shard_name(key));
        names
            .next()
            .unwrap_or_else(|| "shard of a deleted application".into())
    }
}

/// Part of a replica.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves.
    Primary,
    /// Up to date.
    Backup,
    /// Being brought up to date.
    Joining,
}

/// What a node process says when it starts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeHello {
    /// Its name in the topology.
    pub name: String,
    /// Where its data path listens.
    pub address: Address,
    /// Where it listens for the traffic of its host, if it relays that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Address>,
    /// See [`process_number`]. It tells a repeated hello from that of another process.
    pub process: u64,
    /// What its disk holds of shards; none if it holds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disk: Option<OnDisk>,
    /// What of its journal is damaged: file, byte, and what is wrong there. It holds no copy then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Release of its program; empty if it does not say.
    #[serde(default)]
    pub release: String,
    /// Formats that it reads and can write.
    #[serde(default)]
    pub formats: Formats,
}

/// Copies of shards on the disk of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OnDisk {
    /// The cluster that they are of.
    pub cluster: u64,
    /// The copies.
    pub copies: Vec<CopyOnDisk>,
}

/// A copy of a shard on the disk of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CopyOnDisk {
    /// The shard.
    pub key: ShardKey,
    /// See [`ShardPlan::era`].
    pub era: u32,
    /// The latest view of the shard that the copy shows; 0 if the node's release does not say.
    #[serde(default)]
    pub view: u32,
}

impl NodeHello {
    /// Whether the disk holds a copy of the shard as it is since it last began empty.
    pub fn holds(&self, key: ShardKey, era: u32) -> bool {
        let copies = self.on_disk.iter().flat_map(|on_disk| &on_disk.copies);
        copies
            .into_iter()
            .any(|copy| (copy.key, copy.era) == (key, era))
    }
}

/// What a process calls itself: its id in the operating system, by which whoever started it knows it,
/// and a number that differs each time it joins.
pub fn process_number(pid: u32, joins: u32) -> u64 {
    (u64::from(pid) << 32) | u64::from(joins)
}

/// The id in the operating system of a process that calls itself so.
pub fn pid_of(process: u64) -> u32 {
    (process >> 32) as u32
}

/// What the controller answers to a node process that it admits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeWelcome {
    /// The cluster.
    pub cluster: u64,
    /// Its id.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u32,
    /// The cluster's active format: what the node writes until its first plan.
    #[serde(default)]
    pub format: Format,
    /// The controller's clock.
    pub now: Timestamp,
    /// Kind of node that it is or stands for.
    pub kind: NodeKind,
    /// Whether it only stands for that kind.
    pub emulated: bool,
    /// Whether services take as many times longer as the plan's slowdown says: some node of the
    /// cluster is emulated, and each is slowed against the kind that is fastest for the service.
    #[serde(default)]
    pub slowed: bool,
    /// One-way latency of an emulated link: added to what the node sends and to what it receives.
    pub link_latency: Nanos,
    /// Memory that the process of an emulated node may use; none where the hardware is the limit.
    #[serde(default)]
    pub memory_max: Option<Bytes>,
    /// Accelerators that it has.
    #[serde(default)]
    pub accelerators: Accelerators,
    /// Cores that it has.
    #[serde(default)]
    pub cores: u16,
    /// Speed of its cores as a part of the speed of what it stands for.
    #[serde(default = "full_speed")]
    pub speed: f64,
    /// What its port carries in each direction.
    #[serde(default)]
    pub port_gbps: f64,
    /// Whether it relays the traffic of its host. It says where it listens for that by joining again.
    #[serde(default)]
    pub relay: bool,
}

fn full_speed() -> f64 {
    1.0
}
