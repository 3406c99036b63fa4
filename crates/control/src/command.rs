//! What changes the controller's state. Commands are logged; replaying them gives the same state.

use e3_model::plan::{NodeEvent, NodeHello, NodeWelcome};
use e3_model::{AppId, Application, NodeId, Profile, ShardKey, Timestamp, Topology};
use e3_placement::{AdmitError, Misfit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first record of the log: which cluster this is, for [`Control::new`](crate::Control::new).
/// Commands follow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Genesis {
    /// The only kind.
    Init {
        /// Random id, not 0.
        cluster: u64,
        /// The hardware.
        topology: Topology,
    },
}

/// A change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// Run an application.
    Deploy {
        /// The manifest.
        app: Box<Application>,
        /// By service: SHA-256 of its module.
        modules: Vec<String>,
        /// By asset: SHA-256 of its content.
        assets: BTreeMap<String, String>,
        /// By name: the profiles of its services.
        profiles: BTreeMap<String, Profile>,
        /// Accept cores, bandwidth and waiting requests beyond what nodes have free.
        #[serde(default)]
        overcommit: bool,
    },
    /// Stop an application and forget its state.
    Delete {
        /// Its name.
        app: String,
    },
    /// Move a replica.
    Migrate {
        /// The shard.
        key: ShardKey,
        /// Where the replica is.
        from: NodeId,
        /// Where it goes.
        to: NodeId,
    },
    /// Cancel the move of a shard that makes no progress; the shard stays where it is.
    Cancel {
        /// The shard.
        key: ShardKey,
    },
    /// A node's process says hello.
    Join {
        /// What it says.
        hello: NodeHello,
        /// When.
        at: Timestamp,
    },
    /// Nodes' processes have fallen silent.
    Lose {
        /// By node: its process.
        nodes: BTreeMap<NodeId, u32>,
        /// When that was noticed.
        at: Timestamp,
    },
    /// A process that was silent is heard again.
    Hear {
        /// The node.
        node: NodeId,
        /// The process.
        incarnation: u32,
        /// When it was heard.
        at: Timestamp,
    },
    /// Give up the state of a shard that waits for nodes with its only copies.
    Forget {
        /// The shard.
        key: ShardKey,
        /// When.
        at: Timestamp,
    },
    /// A node reports that something is done.
    Event(NodeEvent),
}

/// What a command did.
#[derive(Clone, PartialEq, Debug)]
pub enum Applied {
    /// Nothing: the state was so already, or the command came too late.
    Nothing,
    /// The desired state changed.
    Changed,
    /// An application was placed.
    Deployed(AppId),
    /// A node was admitted.
    Joined(NodeWelcome),
    /// A move has begun; its number.
    Moving(u64),
}

/// Why a command is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CommandError {
    /// No such application.
    #[error("there is no application {0:?}")]
    NoApp(String),
    /// The running application of that name differs in a field that is fixed while it runs.
    #[error("{field} of application {app:?} cannot change while it runs; delete it first")]
    Fixed {
        /// The application.
        app: String,
        /// The field of the manifest.
        field: String,
    },
    /// Versions tell apart what runs where.
    #[error("application {0:?} has been changed {max} times; delete it first", max = u32::MAX)]
    NoVersion(String),
    /// Too many applications.
    #[error("there are {0} applications, must be at most {max}", max = crate::limits::APPS_MAX)]
    TooManyApps(usize),
    /// Ids are never used again, so that late messages cannot meet another application.
    #[error("all {max} application ids of this cluster have been used", max = u16::MAX)]
    NoAppId,
    /// It cannot be placed.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// No node of that name.
    #[error("there is no node {name:?}; the topology has {}", known.join(", "))]
    NoNode {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// No such shard.
    #[error("there is no shard {0}")]
    NoShard(String),
    /// The shard has no replica there.
    #[error("{shard} has no replica on node {node}")]
    NoReplica {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
    },
    /// It is there already.
    #[error("{shard} is on node {node} already")]
    AlreadyThere {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
    },
    /// One move of a shard at a time.
    #[error("{shard} is moving to node {to} already")]
    Moving {
        /// The shard.
        shard: String,
        /// Where it is moving.
        to: String,
    },
    /// Its primary is silent, and no other node has a complete copy.
    #[error("{shard} waits for node {node}, which is silent and has its only copy")]
    Waits {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
    },
    /// Only the state of a shard that waits can be given up.
    #[error("{0} does not wait for a silent node; its state is there")]
    NotWaiting(String),
    /// It may not go there.
    #[error("{shard} cannot go to node {node}: {misfit}")]
    Misfit {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
        /// Why.
        misfit: Misfit,
    },
}
