//! What happened in a cluster, for its operators: a bounded list in the controller, in the order of
//! the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What happened.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The orchestrator moves an instance away.
    OrchestratorMove,
    /// The orchestrator moves an instance back.
    OrchestratorReturn,
    /// The orchestrator moves an instance because the load of its application has changed.
    OrchestratorFollow,
    /// The orchestrator moves an instance because a server or rack draws more than its power cap.
    OrchestratorPower,
    /// The orchestrator moves a shard away from others of its service on the same node, which are busy together.
    OrchestratorSpread,
    /// The orchestrator splits the shards of a service.
    OrchestratorSplit,
    /// The orchestrator merges shards of a service.
    OrchestratorMerge,
    /// The orchestrator would do one of these, if it were not in dry-run mode.
    OrchestratorDryRun,
    /// The orchestrator sees a fault, or a load that should be scaled for, and finds nothing to do about it.
    OrchestratorStuck,
    /// An operator changed the settings of the orchestrator.
    OrchestratorSet,
    /// An operator set or removed a power cap.
    PowerCapSet,
    /// A migration has begun.
    MigrationBegun,
    /// A migration has ended at its destination.
    MigrationDone,
    /// A migration was cancelled.
    MigrationCancelled,
    /// A node's process has joined.
    NodeJoined,
    /// A node has fallen silent.
    NodeLost,
    /// A silent node is heard again.
    NodeReturned,
    /// A node's process has ended.
    NodeExited,
    /// A node was taken out of service.
    NodeDrained,
    /// A drained node was taken back into service.
    NodeResumed,
    /// Nodes were added to the topology.
    NodeAdded,
    /// A node takes no new instances from now on.
    NodeCordoned,
    /// A cordoned node takes new instances again.
    NodeUncordoned,
    /// A node was removed from the topology.
    NodeRemoved,
    /// A copy of a shard waits, since no node has room for it.
    InstanceWaits,
    /// A copy that waited has found a node with room.
    InstancePlaced,
    /// An application was deployed, or updated.
    AppDeployed,
    /// An application went back to an earlier version.
    AppRolledBack,
    /// An application was deleted.
    AppDeleted,
}

impl EventKind {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::OrchestratorMove => "orchestrator-move",
            EventKind::OrchestratorReturn => "orchestrator-return",
            EventKind::OrchestratorFollow => "orchestrator-follow",
            EventKind::OrchestratorPower => "orchestrator-power",
            EventKind::OrchestratorSpread => "orchestrator-spread",
            EventKind::OrchestratorSplit => "orchestrator-split",
            EventKind::OrchestratorMerge => "orchestrator-merge",
            EventKind::OrchestratorDryRun => "orchestrator-dry-run",
            EventKind::OrchestratorStuck => "orchestrator-stuck",
            EventKind::OrchestratorSet => "orchestrator-set",
            EventKind::PowerCapSet => "power-cap-set",
            EventKind::MigrationBegun => "migration-begun",
            EventKind::MigrationDone => "migration-done",
            EventKind::MigrationCancelled => "migration-cancelled",
            EventKind::NodeJoined => "node-joined",
            EventKind::NodeLost => "node-lost",
            EventKind::NodeReturned => "node-returned",
            EventKind::NodeExited => "node-exited",
            EventKind::NodeDrained => "node-drained",
            EventKind::NodeResumed => "node-resumed",
            EventKind::NodeAdded => "node-added",
            EventKind::NodeCordoned => "node-cordoned",
            EventKind::NodeUncordoned => "node-uncordoned",
            EventKind::NodeRemoved => "node-removed",
            EventKind::InstanceWaits => "instance-waits",
            EventKind::InstancePlaced => "instance-placed",
            EventKind::AppDeployed => "app-deployed",
            EventKind::AppRolledBack => "app-rolled-back",
            EventKind::AppDeleted => "app-deleted",
        }
    }

    /// Whether it is a decision of the orchestrator.
    pub fn is_decision(self) -> bool {
        self <= EventKind::OrchestratorStuck
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that happened; an element of `GET /v1/events`. It has names, since what they name may be
/// gone when it is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its number: 1, 2, 3, ... in the order of the log.
    pub number: u64,
    /// When, in milliseconds since the Unix epoch. Of a cluster that writes format 7: not before this.
    pub at_unix_ms: u64,
    /// What happened.
    pub kind: EventKind,
    /// The application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The instance: `app/service/shard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The node; of a migration the one that it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of a migration: the node that it enters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why, in one line; empty if the kind says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The numbers behind a decision, each with its unit at the end of its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_json() {
        for kind in [
            EventKind::OrchestratorMove,
            EventKind::OrchestratorFollow,
            EventKind::OrchestratorPower,
            EventKind::OrchestratorSpread,
            EventKind::OrchestratorSplit,
            EventKind::OrchestratorMerge,
            EventKind::OrchestratorDryRun,
            EventKind::PowerCapSet,
            EventKind::MigrationCancelled,
            EventKind::NodeUncordoned,
            EventKind::InstanceWaits,
            EventKind::InstancePlaced,
            EventKind::AppRolledBack,
        ] {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("{:?}", kind.name()));
        }
        assert!(EventKind::OrchestratorStuck.is_decision());
        assert!(!EventKind::OrchestratorSet.is_decision());
    }
}
