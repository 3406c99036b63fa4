//! States and their reasons, as the API, the metrics and the program name them.

use crate::timing::CLOCK_SKEW_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// State of an instance.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum InstanceStatus {
    /// It serves; a backup has everything that its primary acknowledged.
    Running,
    /// Its node has not applied the plan yet, or its first start is not done.
    Starting,
    /// A primary serves in another version than the plan has.
    Updating,
    /// A new backup is being brought up to date; commits do not wait for it yet.
    Joining,
    /// A backup that counts has not acknowledged its first snapshot.
    Syncing,
    /// The primary has stopped to hand over to the node that it moves to.
    Frozen,
    /// A primary may not serve: it lacks a lease, or its predecessor's leases still run.
    Blocked,
    /// Entries wait and nothing is committed.
    Stalled,
    /// It does not run.
    Failed,
    /// Its node sends heartbeats but no reports.
    Silent,
    /// Its node is down.
    Lost,
    /// Its only copies are on silent nodes; it continues when one is heard again.
    Waiting,
}

impl InstanceStatus {
    /// All of them.
    pub const ALL: [InstanceStatus; 12] = [
        InstanceStatus::Running,
        InstanceStatus::Starting,
        InstanceStatus::Updating,
        InstanceStatus::Joining,
        InstanceStatus::Syncing,
        InstanceStatus::Frozen,
        InstanceStatus::Blocked,
        InstanceStatus::Stalled,
        InstanceStatus::Failed,
        InstanceStatus::Silent,
        InstanceStatus::Lost,
        InstanceStatus::Waiting,
    ];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            InstanceStatus::Running => "running",
            InstanceStatus::Starting => "starting",
            InstanceStatus::Updating => "updating",
            InstanceStatus::Joining => "joining",
            InstanceStatus::Syncing => "syncing",
            InstanceStatus::Frozen => "frozen",
            InstanceStatus::Blocked => "blocked",
            InstanceStatus::Stalled => "stalled",
            InstanceStatus::Failed => "failed",
            InstanceStatus::Silent => "silent",
            InstanceStatus::Lost => "lost",
            InstanceStatus::Waiting => "waiting",
        }
    }
}

impl fmt::Display for InstanceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an instance is not `running`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind"
)]
pub enum Reason {
    /// Its node is down.
    NodeDown,
    /// Its only copies are on silent nodes.
    CopiesSilent {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// No copy is left, and no node has room for it.
    NoRoom {
        /// Which resource, how much is missing, and where it comes closest.
        why: String,
    },
    /// Its node has not reported since it joined.
    NoReport,
    /// Its node has not reported for so long.
    ReportsEnded {
        /// Milliseconds.
        for_ms: u64,
    },
    /// Its node has not applied the present view of the shard yet.
    PlanPending,
    /// The service is being started.
    NotStarted,
    /// The version that runs is not the plan's.
    OldVersion {
        /// The version that runs.
        runs: u32,
        /// The plan's.
        wanted: u32,
    },
    /// It has not acknowledged all that it was sent first.
    Incomplete {
        /// Last entry that it has acknowledged.
        acked: u64,
        /// Last entry of its primary.
        op: u64,
    },
    /// Its primary has not reported its progress.
    PrimarySilent,
    /// It moves to another node.
    HandsOver,
    /// It has stopped until its service has another number of shards.
    ChangesShards,
    /// Not all its copies have their state from a backup of the application.
    Restoring,
    /// The primary holds no lease of these backups.
    NoLease {
        /// Their nodes.
        nodes: Vec<String>,
    },
    /// The leases of the primary before it still run.
    PredecessorLeased,
    /// The clock of its node is wrong.
    ClockOff,
    /// It has no backup, and `whenAlone` is `refuse`.
    Alone,
    /// Entries wait for the acknowledgements of these backups.
    NoCommit {
        /// Their nodes.
        nodes: Vec<String>,
        /// Milliseconds without any commit.
        for_ms: u64,
    },
    /// The service does not run.
    Error {
        /// Why.
        message: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: &u64| *ms as f64 / 1e3;
        match self {
            Reason::NodeDown => f.write_str("the node is down"),
            Reason::CopiesSilent { nodes } => {
                let nodes = nodes.join(", ");
                write!(f, "its only copies are on silent nodes: {nodes}")
            }
            Reason::NoRoom { why } => f.write_str(why),
            Reason::NoReport => f.write_str("the node has not reported yet"),
            Reason::ReportsEnded { for_ms } => {
                write!(f, "the node has not reported for {:.1} s", seconds(for_ms))
            }
            Reason::PlanPending => f.write_str("the node has not applied the plan yet"),
            Reason::NotStarted => f.write_str("the service is being started"),
            Reason::OldVersion { runs, wanted } => {
                write!(f, "version {runs} runs, the plan has version {wanted}")
            }
            Reason::Incomplete { acked, op } => {
                write!(f, "its copy is not complete: entry {acked} of {op}")
            }
            Reason::PrimarySilent => f.write_str("its primary has not reported its progress"),
            Reason::Restoring => {
                f.write_str("not all its copies have their state from the backup yet")
            }
            Reason::HandsOver => f.write_str("it hands over to another node"),
            Reason::ChangesShards => f.write_str("the number of shards of its service is changing"),
            Reason::NoLease { nodes } => write!(f, "no lease from {}", nodes.join(", ")),
            Reason::PredecessorLeased => {
                f.write_str("the leases of the primary before it still run")
            }
            Reason::ClockOff => {
                write!(
                    f,
                    "its node's clock is more than {CLOCK_SKEW_MAX} from most others' or the controller's: set it right and restart the node"
                )
            }
            Reason::Alone => f.write_str("it has no backup, and whenAlone is refuse"),
            Reason::NoCommit { nodes, for_ms } => {
                let of = if nodes.is_empty() {
                    String::new()
                } else {
                    format!(", no acknowledgement from {}", nodes.join(", "))
                };
                write!(f, "no commit for {:.1} s{of}", seconds(for_ms))
            }
            Reason::Error { message } => f.write_str(message),
        }
    }
}

/// How an application is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Every shard can commit and has all its copies, and no request was dead-lettered lately.
    Ready,
    /// Every shard can commit and has all its copies, but requests were dead-lettered lately.
    Degraded,
    /// A shard cannot commit or lacks a copy.
    NotReady,
}

impl Health {
    /// All of them.
    pub const ALL: [Health; 3] = [Health::Ready, Health::Degraded, Health::NotReady];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Health::Ready => "ready",
            Health::Degraded => "degraded",
            Health::NotReady => "not-ready",
        }
    }
}

/// Answer of `GET /healthz` and `GET /readyz`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessStatus {
    /// The process works.
    Ok,
    /// Everything is as it should be.
    Ready,
}

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MovePhase {
    /// The new node is being brought up to date; the old one serves.
    Copying,
    /// The old primary has stopped and hands over the rest.
    Freezing,
    /// The replica is where it was to go.
    Done,
    /// The move has ended without that.
    Cancelled,
}

impl MovePhase {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MovePhase::Copying => "copying",
            MovePhase::Freezing => "freezing",
            MovePhase::Done => "done",
            MovePhase::Cancelled => "cancelled",
        }
    }
}

/// Why a node drops something that it received.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DropReason {
    /// The header is none of a datagram, or says what cannot be.
    Header,
    /// Its format is none that this process reads.
    Format,
    /// The header states another length.
    Length,
    /// The checksum does not suit: the wire damaged it.
    Checksum,
    /// Nothing follows the header.
    Empty,
    /// A kind of datagram that nodes do not take.
    Kind,
    /// It belongs to another cluster.
    Cluster,
    /// It is meant for another process.
    Incarnation,
    /// Its sender is no member, or not with this process.
    Sender,
    /// A frame that cannot be read.
    Frame,
    /// The same from a client.
    #[serde(rename = "client frame")]
    ClientFrame,
    /// A channel that the application does not have.
    Link,
    /// A channel that the present view does not allow.
    View,
    /// The two ends of the channel do not fit together; it begins a new epoch.
    Channel,
    /// A grant of a lease that was not requested.
    Lease,
    /// A reply that nobody waits for.
    Reply,
    /// A request number that stands for another request.
    Request,
    /// A message that its shard cannot take.
    Message,
    /// A call of a shard at which too many wait; the caller repeats it.
    Call,
    /// An item of a replication stream that its backup cannot take.
    Replication,
    /// A message that the service's manifest does not allow.
    Output,
    /// A plan that contradicts itself.
    Plan,
    /// A request before the node's first plan.
    #[serde(rename = "no plan")]
    NoPlan,
    /// A request while the node's clock is wrong.
    Clock,
    /// The queue of an emulated port or traffic manager is full.
    Port,
}

impl DropReason {
    /// All of them.
    pub const ALL: [DropReason; 25] = [
        DropReason::Header,
        DropReason::Format,
        DropReason::Length,
        DropReason::Checksum,
        DropReason::Empty,
        DropReason::Kind,
        DropReason::Cluster,
        DropReason::Incarnation,
        DropReason::Sender,
        DropReason::Frame,
        DropReason::ClientFrame,
        DropReason::Link,
        DropReason::View,
        DropReason::Channel,
        DropReason::Lease,
        DropReason::Reply,
        DropReason::Request,
        DropReason::Message,
        DropReason::Call,
        DropReason::Replication,
        DropReason::Output,
        DropReason::Plan,
        DropReason::NoPlan,
        DropReason::Clock,
        DropReason::Port,
    ];

    /// As in JSON and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Header => "header",
            DropReason::Format => "format",
            DropReason::Length => "length",
            DropReason::Checksum => "checksum",
            DropReason::Empty => "empty",
            DropReason::Kind => "kind",
            DropReason::Cluster => "cluster",
            DropReason::Incarnation => "incarnation",
            DropReason::Sender => "sender",
            DropReason::Frame => "frame",
            DropReason::ClientFrame => "client frame",
            DropReason::Link => "link",
            DropReason::View => "view",
            DropReason::Channel => "channel",
            DropReason::Lease => "lease",
            DropReason::Reply => "reply",
            DropReason::Request => "request",
            DropReason::Message => "message",
            DropReason::Call => "call",
            DropReason::Replication => "replication",
            DropReason::Output => "output",
            DropReason::Plan => "plan",
            DropReason::NoPlan => "no plan",
            DropReason::Clock => "clock",
            DropReason::Port => "port",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for status in InstanceStatus::ALL {
            assert_eq!(
                serde_json::to_string(&status).unwrap(),
                format!("\"{}\"", status.name())
            );
        }
        for health in Health::ALL {
            assert_eq!(
                serde_json::to_string(&health).unwrap(),
                format!("\"{}\"", health.name())
            );
        }
        for reason in DropReason::ALL {
            assert_eq!(
                serde_json::to_string(&reason).unwrap(),
                format!("\"{reason}\"")
            );
        }
        for phase in [
            MovePhase::Copying,
            MovePhase::Freezing,
            MovePhase::Done,
            MovePhase::Cancelled,
        ] {
            assert_eq!(
                serde_json::to_string(&phase).unwrap(),
                format!("\"{}\"", phase.name())
            );
        }
    }
}
