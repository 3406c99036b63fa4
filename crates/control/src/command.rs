//! The commands that change the controller's state. They are logged; replaying them gives the same state.

use crate::choice::Choice;
use crate::credentials::ApiToken;
use crate::orchestration::Decided;
use e3_model::backup::Restored;
use e3_model::orchestrator::OrchestratorSettings;
use e3_model::plan::{NodeEvent, NodeHello, NodeWelcome};
use e3_model::topology::Rack;
use e3_model::{
    AppId, Application, Format, NodeId, PowerDomain, Profile, Sealed, ServiceId, ShardKey,
    Timestamp, Topology,
};
use e3_placement::InstanceKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::error::CommandError;

/// The first record of the log: the cluster, for [`Control::new`](crate::Control::new). Commands
/// follow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Genesis {
    /// The only kind.
    Init {
        /// Random id, not 0.
        cluster: u64,
        /// The hardware.
        topology: Topology,
        /// The active format.
        #[serde(default)]
        format: Format,
        /// Release of the controller.
        #[serde(default)]
        release: String,
    },
}

/// Where an instance of a new application goes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// The instance.
    pub key: InstanceKey,
    /// Its node.
    pub node: NodeId,
    /// The reason, in one line.
    pub why: String,
}

/// A command to deploy an application; see [`Command::Deploy`].
#[derive(Clone, Copy)]
pub(crate) struct Deployment<'a> {
    pub(crate) app: &'a Application,
    pub(crate) modules: &'a [String],
    pub(crate) assets: &'a BTreeMap<String, String>,
    pub(crate) profiles: &'a BTreeMap<String, Profile>,
    pub(crate) overcommit: bool,
    pub(crate) restored: Option<&'a Restored>,
    pub(crate) placed: &'a [Placed],
}

/// A change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// Deploy an application.
    Deploy {
        /// The manifest.
        app: Box<Application>,
        /// By service: SHA-256 of its module.
        modules: Vec<String>,
        /// By asset: SHA-256 of its contents.
        assets: BTreeMap<String, String>,
        /// By name: the profiles of its services.
        profiles: BTreeMap<String, Profile>,
        /// Accept cores, bandwidth and waiting requests beyond what nodes have free.
        #[serde(default)]
        overcommit: bool,
        /// The state that it begins with. Then the application must be new.
        #[serde(default)]
        restored: Option<Restored>,
        /// Where the instances of a new application go. Empty for one that runs, and in a log of
        /// format 7: then they go where `hcm-kind` puts them, whatever the default placer is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        placed: Vec<Placed>,
    },
    /// Delete an application and its state.
    Delete {
        /// Its name.
        app: String,
    },
    /// A version of an application has started at every primary.
    Started {
        /// The application.
        app: AppId,
        /// The version.
        code_version: u32,
    },
    /// Move a replica.
    Migrate {
        /// The shard.
        key: ShardKey,
        /// Where the replica is.
        from: NodeId,
        /// Where it goes.
        to: NodeId,
        /// The shard stops before its state is copied, instead of serving meanwhile.
        #[serde(default)]
        cold: bool,
    },
    /// Cancel the move of a shard that makes no progress; the shard stays where it is.
    Cancel {
        /// The shard.
        key: ShardKey,
    },
    /// Make a newer format the active one. Every member can write it.
    RaiseFormat {
        /// The format.
        to: Format,
        /// Release of the controller, which can write it.
        release: String,
    },
    /// Take a node out of service: its replicas move elsewhere, and it gets no new ones.
    Drain {
        /// The node.
        node: NodeId,
    },
    /// Take a drained or cordoned node back into service.
    Resume {
        /// The node.
        node: NodeId,
    },
    /// Add hardware to the topology: new racks, servers of racks that exist, nodes of servers that exist.
    AddNodes {
        /// What is new, within the racks and servers that it belongs to.
        racks: Vec<Rack>,
    },
    /// A node gets no new instances, and keeps those that it has.
    Cordon {
        /// The node.
        node: NodeId,
    },
    /// Remove a node, on which nothing is, from the topology. Its id and its name stay used.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Change how many copies each shard of a stateful service has.
    Scale {
        /// The application.
        app: AppId,
        /// The service.
        service: ServiceId,
        /// The number of copies.
        replicas: u16,
    },
    /// Change the number of shards of a service.
    Reshard {
        /// The application.
        app: AppId,
        /// The service.
        service: ServiceId,
        /// How many it is to have.
        shards: u16,
    },
    /// Take a backup of an application.
    Backup {
        /// The application.
        app: AppId,
    },
    /// Give up a backup.
    CancelBackup {
        /// The application.
        app: AppId,
        /// The backup.
        number: u64,
        /// Why.
        why: String,
    },
    /// Deploy the version before the running one again, as a new version.
    Rollback {
        /// The application.
        app: AppId,
        /// The version that is left. Another one has come since if the application has another.
        code_version: u32,
        /// Why the controller rolls back by itself; none if an operator asks for it.
        why: Option<String>,
        /// When.
        at: Timestamp,
    },
    /// A node's process joins.
    Join {
        /// What it says of itself.
        hello: NodeHello,
        /// When.
        at: Timestamp,
    },
    /// Nodes' processes have fallen silent.
    Lose {
        /// By node: its process.
        nodes: BTreeMap<NodeId, u32>,
        /// When the controller noticed.
        at: Timestamp,
    },
    /// A silent process sends heartbeats again.
    Hear {
        /// The node.
        node: NodeId,
        /// The process.
        incarnation: u32,
        /// When it was heard again.
        at: Timestamp,
    },
    /// A node reports which peers it cannot reach.
    Reach {
        /// The node.
        node: NodeId,
        /// Its process.
        incarnation: u32,
        /// The peers, there or back.
        unreachable: BTreeSet<NodeId>,
        /// When it was reported.
        at: Timestamp,
    },
    /// A node's process has certainly ended: whoever started it has seen its exit.
    Exit {
        /// The node.
        node: NodeId,
        /// Its process.
        incarnation: u32,
        /// When it was told.
        at: Timestamp,
    },
    /// Give up the state of a shard whose only copies are on silent nodes.
    Forget {
        /// The shard.
        key: ShardKey,
        /// When.
        at: Timestamp,
    },
    /// A node reports an event.
    Event(NodeEvent),
    /// Create a token of the API.
    CreateToken {
        /// Its name.
        name: String,
        /// What is known of it.
        token: ApiToken,
    },
    /// Revoke a token of the API.
    RevokeToken {
        /// Its name.
        name: String,
    },
    /// Give a secret a value. Services can still read the one before.
    SetSecret {
        /// Name of the application, which need not run yet.
        app: String,
        /// Its name.
        name: String,
        /// The encrypted value.
        value: Sealed,
        /// When.
        at: Timestamp,
    },
    /// Services can no longer read the value of a secret that was before the present one.
    RetireSecret {
        /// Name of the application.
        app: String,
        /// Its name.
        name: String,
    },
    /// Remove a secret that no running application names.
    DeleteSecret {
        /// Name of the application.
        app: String,
        /// Its name.
        name: String,
    },
    /// A command that does not say itself when it was given.
    At {
        /// When.
        at: Timestamp,
        /// The command.
        command: Box<Command>,
    },
    /// A command with the nodes that it chose when it was first carried out.
    With {
        /// They, in the order in which they were chosen.
        choices: Vec<Choice>,
        /// The command.
        command: Box<Command>,
    },
    /// Change the settings of the orchestrator.
    SetOrchestrator {
        /// All of them.
        settings: OrchestratorSettings,
        /// When.
        at: Timestamp,
    },
    /// Set the power cap of a server or a rack, or remove it.
    SetPowerCap {
        /// What is capped.
        domain: PowerDomain,
        /// The cap in watts; none removes it.
        cap_w: Option<u32>,
    },
    /// Carry out a decision of the orchestrator, or record it.
    Orchestrate(Box<Decided>),
}

/// The result of a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Applied {
    /// Nothing changed: the state was already so, or the command came too late.
    Nothing,
    /// The desired state changed.
    Changed,
    /// An application was placed.
    Deployed(AppId),
    /// A node was admitted.
    Joined(NodeWelcome),
    /// A move has begun; this is its number.
    Moving(u64),
    /// A backup has begun; this is its number.
    BackingUp(u64),
    /// Nodes were added; these are their ids.
    Added(Vec<NodeId>),
}
