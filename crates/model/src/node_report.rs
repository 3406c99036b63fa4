//! What a node reports to the controller: events that the controller must act on, and figures.
//!
//! Events are repeated until a plan shows that the controller acted. Counts never fall while a process runs.

use crate::accelerator::Accelerator;
use crate::ids::{AppId, NodeId, ShardKey};
use crate::meter::MeteredEnergy;
use crate::pending::PendingReport;
use crate::plan::Role;
use crate::status::DropReason;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a node reports to the controller once a second, and at once when there are events.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// Which node.
    pub node: NodeId,
    /// Which process.
    pub incarnation: u32,
    /// Version of the plan that it has applied.
    pub plan_version: u64,
    /// Things that the controller must act on. Repeated until a later plan shows that it did.
    pub events: Vec<NodeEvent>,
    /// Its replicas.
    pub instances: Vec<InstanceReport>,
    /// Peers that it could reach, there and back, and cannot now.
    #[serde(default)]
    pub unreachable: Vec<NodeId>,
    /// What this process did as the primary of each shard that it ever served. Never falls.
    #[serde(default)]
    pub counts: Vec<ShardCounts>,
    /// What is pending at the shards that the controller asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingReport>,
    /// Figures of the whole node.
    pub stats: NodeStats,
}

/// Something that changes the desired state.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum NodeEvent {
    /// A joining backup has everything; from now on the primary waits for it.
    Synced {
        /// Shard.
        key: ShardKey,
        /// View in which it was joining.
        view: u32,
        /// The backup.
        backup: NodeId,
    },
    /// A frozen primary has stopped, and every backup and joining backup has everything.
    Frozen {
        /// Shard.
        key: ShardKey,
        /// View in which it was frozen.
        view: u32,
    },
    /// The primary is in a view that copies are to leave.
    Installed {
        /// Shard.
        key: ShardKey,
        /// The view.
        view: u32,
    },
    /// A backup has entries that its primary, a new process of the same node, did not find on its disk.
    Ahead {
        /// Shard.
        key: ShardKey,
        /// View that the backup is in.
        view: u32,
        /// The backup.
        backup: NodeId,
    },
    /// A shard that began empty has committed its first entry.
    Filled {
        /// Shard.
        key: ShardKey,
        /// View in which its primary took over.
        incarnation: u32,
    },
    /// A primary has sent a whole snapshot for a backup of the application; entries follow.
    Copied {
        /// Shard.
        key: ShardKey,
        /// View in which it took over.
        incarnation: u32,
        /// The backup.
        number: u64,
    },
    /// A primary that has stopped has fixed its position for a backup of the application.
    Cut {
        /// Shard.
        key: ShardKey,
        /// View in which it took over.
        incarnation: u32,
        /// The backup.
        number: u64,
        /// Last entry.
        op: u64,
        /// Bytes that it has sent, or will send.
        len: u64,
        /// CRC-32C of them.
        crc: u32,
    },
    /// A primary has its state from a backup, and every copy of the shard has it.
    Restored {
        /// Shard.
        key: ShardKey,
        /// View that it is in.
        view: u32,
    },
}

/// State of an instance as its node sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InstanceReport {
    /// Shard.
    pub key: ShardKey,
    /// Its part.
    pub role: Role,
    /// View that it is in.
    pub view: u32,
    /// Last entry in its log.
    pub op: u64,
    /// Last entry that all backups have; of a backup, the last one that it knows to be released.
    pub commit: u64,
    /// Requests waiting.
    pub queue: u32,
    /// Dead letters that the shard keeps or has dropped, less those that were replayed.
    pub dead_letters: u64,
    /// Timers of its service that are set.
    #[serde(default)]
    pub timers: u64,
    /// Handler runs that were preempted.
    pub preemptions: u64,
    /// The primary may handle and commit now.
    #[serde(default)]
    pub serving: bool,
    /// It may not, since the clock of its node is wrong.
    #[serde(default)]
    pub clock_off: bool,
    /// How long entries have waited without any commit; 0 below the bound that counts as stalled.
    #[serde(default)]
    pub stalled: Nanos,
    /// The backups as their primary sees them; empty in a backup.
    #[serde(default)]
    pub backups: Vec<BackupReport>,
    /// Memory of its collections and timers in bytes.
    pub memory_bytes: u64,
    /// Version of the application that runs here; 0 if nothing does, as in a backup or before the
    /// first start is done.
    #[serde(default)]
    pub code_version: u32,
    /// Why it does not run, if it does not, or not in the version that the plan has.
    pub error: Option<String>,
    /// Why the last attempt failed that did.
    #[serde(default)]
    pub last_failure: Option<String>,
}

/// A backup as its primary sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BackupReport {
    /// Its node.
    pub node: NodeId,
    /// Last entry that it has acknowledged.
    pub acked: u64,
    /// It has acknowledged the whole snapshot that it was sent first.
    pub synced: bool,
    /// Commits wait for it.
    pub required: bool,
    /// The primary holds its lease.
    pub leased: bool,
}

/// What a process did as the primary of a shard, since it started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardCounts {
    /// Shard.
    pub key: ShardKey,
    /// Requests that have an outcome, dead-lettered ones included.
    pub handled: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Requests that were dead-lettered, for whatever reason.
    pub dead_lettered: u64,
    /// Of these, requests whose deadline had passed.
    pub expired: u64,
    /// Calls of other services that were answered; they are not among the requests.
    #[serde(default)]
    pub calls: u64,
    /// Time spent in the handler.
    pub busy: Nanos,
}

/// What the clients of an application asked of a node, since its process started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct IngressCounts {
    /// Requests admitted.
    pub admitted: u64,
    /// Requests answered "overloaded".
    pub overloaded: u64,
}

/// What a node wrote to its journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JournalCounts {
    /// Records.
    pub records: u64,
    /// How often it waited for the disk; records that come meanwhile share the next wait.
    pub syncs: u64,
}

/// Figures of a node. Counts are totals since the process started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeStats {
    /// Processor time of the process in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Accelerators that the node has, and how fast each is here: bytes per second, 1,500 a call.
    #[serde(default)]
    pub accelerators: BTreeMap<Accelerator, f64>,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// What was dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Messages sent again for want of an acknowledgement.
    pub retransmitted: u64,
    /// What was written for services with `durability: disk`.
    #[serde(default)]
    pub journal: JournalCounts,
    /// Requests admitted from clients.
    pub admitted: u64,
    /// Requests answered "overloaded".
    pub overloaded: u64,
    /// The same by application.
    #[serde(default)]
    pub ingress: BTreeMap<AppId, IngressCounts>,
    /// Channels: shards at both ends and how far they are.
    pub channels: Vec<ChannelReport>,
    /// What its meter has measured, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<MeteredEnergy>,
}

/// State of the sending end of a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChannelReport {
    /// Application.
    pub app: AppId,
    /// "ingress", the channel's name, or "replication".
    pub name: String,
    /// Sending shard, or node.
    pub from: String,
    /// Receiving shard, or node.
    pub to: String,
    /// Messages sent.
    pub sent: u64,
    /// Messages that are durable at the receiver.
    pub durable: u64,
    /// Messages waiting for credit.
    pub waiting: u32,
}
