//! The commands that change the controller's state. They are logged; replaying them gives the same state.

use crate::credentials::ApiToken;
use crate::orchestration::Decided;
use e3_model::application::Pin;
use e3_model::backup::Restored;
use e3_model::growth::AddError;
use e3_model::limits::REPLICAS_MAX;
use e3_model::orchestrator::{OrchestratorSettings, SettingError};
use e3_model::plan::{NodeEvent, NodeHello, NodeWelcome};
use e3_model::topology::Rack;
use e3_model::{
    AppId, Application, Format, Formats, NodeId, Profile, Sealed, ServiceId, ShardKey, Timestamp,
    Topology,
};
use e3_placement::{AdmitError, InstanceKey, Misfit, PlaceError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Change the settings of the orchestrator.
    SetOrchestrator {
        /// All of them.
        settings: OrchestratorSettings,
        /// When.
        at: Timestamp,
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

/// Why a command is refused. A refused command changes nothing.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CommandError {
    /// No such application.
    #[error("there is no application {0:?}")]
    NoApp(String),
    /// The application cannot do this now.
    #[error("application {app:?} is busy: {what}; try again")]
    Busy {
        /// The application.
        app: String,
        /// What it is doing.
        what: String,
    },
    /// An application with state from a backup must be new.
    #[error("there is an application {0:?} already")]
    Exists(String),
    /// The shards of the backup are not those of the manifest.
    #[error(
        "the backup has the state of {found} shards, application {app:?} has {expected} with state"
    )]
    Parts {
        /// The application.
        app: String,
        /// In the backup.
        found: usize,
        /// In the manifest.
        expected: usize,
    },
    /// The running application of that name differs in a field that is fixed while it runs.
    #[error("{field} of application {app:?} cannot change while it runs; delete it first")]
    Fixed {
        /// The application.
        app: String,
        /// The field of the manifest.
        field: String,
    },
    /// All version numbers of the application are used.
    #[error("application {0:?} has been changed {max} times; delete it first", max = u32::MAX)]
    NoVersion(String),
    /// No version has run before the present one.
    #[error("application {0:?} has no earlier version that ran")]
    NoEarlier(String),
    /// No such service.
    #[error("application {app:?} has no service {service:?}; it has {}", known.join(", "))]
    NoService {
        /// The application.
        app: String,
        /// The name that was given.
        service: String,
        /// The names of its services.
        known: Vec<String>,
    },
    /// A service without state has one copy of each shard.
    #[error("service {0:?} is stateless: it has no copies to add or remove")]
    Stateless(String),
    /// A number of copies that no service may have.
    #[error("service {service:?}: replicas is {replicas}, must be 1..={max}", max = REPLICAS_MAX)]
    Replicas {
        /// The service.
        service: String,
        /// The number that was given.
        replicas: u16,
    },
    /// Too few servers for the copies.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Too many applications.
    #[error("there are {0} applications, must be at most {max}", max = crate::limits::APPS_MAX)]
    TooManyApps(usize),
    /// All ids are used. Ids are never reused, so that late messages cannot reach another application.
    #[error("all {max} application ids of this cluster have been used", max = u16::MAX)]
    NoAppId,
    /// It cannot be placed.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// What was decided before it was logged does not hold any more, or never did.
    #[error("the placement is out of date: instance {instance}: {why}; deploy again")]
    Placed {
        /// `service/shard replica N`.
        instance: String,
        /// What is wrong.
        why: String,
    },
    /// No node of that name.
    #[error("there is no node {name:?}; the topology has {}", known.join(", "))]
    NoNode {
        /// The name that was given.
        name: String,
        /// The names of all nodes.
        known: Vec<String>,
    },
    /// Hardware cannot be added.
    #[error(transparent)]
    Hardware(AddError),
    /// A name that a removed node had.
    #[error(
        "node {0:?} was removed from this cluster, and its name stays used; choose another name"
    )]
    NameUsed(String),
    /// The node was removed from the topology.
    #[error("node {0:?} was removed from this cluster")]
    Removed(String),
    /// A cluster has a node.
    #[error("node {0:?} is the last one; a cluster has at least 1 node")]
    LastNode(String),
    /// Something is still on a node that is to be removed.
    #[error("node {node:?} cannot be removed: {} on it: {}{}; drain it first (e3 node drain {node}), or both at once (e3 node remove {node} --drain)",
        replicas(left.len()), left[..left.len().min(NAMED_MAX)].join(", "), if left.len() > NAMED_MAX { ", ..." } else { "" })]
    InUse {
        /// The node.
        node: String,
        /// The shards.
        left: Vec<String>,
    },
    /// A replica on a node that is to be drained may be nowhere else.
    #[error("node {node:?} cannot be drained: {}; add a server (e3 node add){}",
        no_domain(shard, *replicas, pin.as_ref()),
        if *replicas > 1 { format!(", or keep fewer copies (e3 scale {service} --replicas {})", replicas - 1) } else { String::new() })]
    NoDomain {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
        /// `app/service`.
        service: String,
        /// Copies of each shard.
        replicas: u16,
        /// Where the service may be.
        pin: Option<Pin>,
    },
    /// The disk of a node holds shards of another cluster.
    #[error(
        "the journal of node {node} is of cluster {found:016x}, this is cluster {expected:016x}; move the node's journal away to start without it"
    )]
    OtherCluster {
        /// The node.
        node: String,
        /// What its journal says.
        found: u64,
        /// This cluster.
        expected: u64,
    },
    /// The journal of a node is damaged, and other nodes lack some of what was in it.
    #[error(
        "the journal of node {node} is damaged ({damage}), and no other node has a complete copy of {}; restore the file from a copy, or give up their state with e3 forget",
        shards.join(", ")
    )]
    Damaged {
        /// The node.
        node: String,
        /// File, byte, and what is wrong there.
        damage: String,
        /// The shards.
        shards: Vec<String>,
    },
    /// The program of a node does not write the active format.
    #[error(
        "node {node} cannot join: release {release:?} has formats {formats}, the cluster writes format {active}; {}",
        if *active > formats.newest() {
            "start a newer release of the program on it"
        } else {
            "raise the cluster's format first (e3 upgrade --finish)"
        }
    )]
    Format {
        /// The node.
        node: String,
        /// Its release.
        release: String,
        /// What it has.
        formats: Formats,
        /// The active one.
        active: Format,
    },
    /// A member does not have the format that is to become the active one.
    #[error(
        "format {to} cannot become the cluster's: node {node} has formats {formats} (release {release:?}); upgrade it first (e3 upgrade --program PATH)"
    )]
    OlderMember {
        /// The format.
        to: Format,
        /// The node.
        node: String,
        /// Its release.
        release: String,
        /// What it has.
        formats: Formats,
    },
    /// A silent member may be of the older release.
    #[error("format {to} cannot become the cluster's: node {node} is silent; start it first")]
    SilentMember {
        /// The format.
        to: Format,
        /// The node.
        node: String,
    },
    /// A hello that was on its way when its process ended.
    #[error("this process of node {0:?} has ended")]
    Exited(String),
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
    /// The shard already has a replica there.
    #[error("{shard} is already on node {node}")]
    AlreadyThere {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
    },
    /// Only a primary serves, so only a primary can stop for a move.
    #[error(
        "the backup of {shard} on node {node} cannot move cold: it serves nobody that could wait"
    )]
    ColdBackup {
        /// The shard.
        shard: String,
        /// The node of the backup.
        node: String,
    },
    /// The shard is already moving.
    #[error("{shard} is already moving to node {to}")]
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
    /// The number of shards cannot become this.
    #[error(
        "{service} has {now} shards and cannot have {wanted}: it must be a multiple or a divisor of that, 1 to {max}",
        max = e3_model::limits::SHARDS_MAX
    )]
    Shards {
        /// The service.
        service: String,
        /// What it has.
        now: u16,
        /// What was asked for.
        wanted: u16,
    },
    /// The number of shards of a service is being changed.
    #[error("the number of shards of {service} is being changed to {shards}")]
    Resharding {
        /// The service.
        service: String,
        /// What it becomes.
        shards: u16,
    },
    /// Shards that would be merged are on different nodes.
    #[error(
        "{one} and {other} cannot be merged: they are on different nodes ({nodes}, and {others}, primary first), and no copy of {other} can move to those of {one}; make room there, or move replicas with e3 migrate"
    )]
    Apart {
        /// A shard.
        one: String,
        /// Another.
        other: String,
        /// Nodes of the first.
        nodes: String,
        /// Nodes of the other.
        others: String,
    },
    /// The replica may not go there.
    #[error("{shard} cannot go to node {node}: {misfit}")]
    Misfit {
        /// The shard.
        shard: String,
        /// The node.
        node: String,
        /// Why.
        misfit: Misfit,
    },
    /// The active format has no such thing.
    #[error(
        "{what} need format {needed}, the cluster writes format {active}; raise it first (e3 upgrade --finish)"
    )]
    OlderFormat {
        /// What was asked for.
        what: &'static str,
        /// The first format that has it.
        needed: Format,
        /// The active one.
        active: Format,
    },
    /// A setting of the orchestrator is out of bounds.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// No token of that name.
    #[error("there is no token {name:?}; there are {}", if known.is_empty() { "none".into() } else { known.join(", ") })]
    NoToken {
        /// The name that was given.
        name: String,
        /// The names of all tokens.
        known: Vec<String>,
    },
    /// A token of that name.
    #[error("there is a token {0:?} already; revoke it first (e3 token revoke {0})")]
    TokenExists(String),
    /// Too many tokens.
    #[error("there are {0} tokens, must be at most {max}; revoke one first (e3 token revoke NAME)", max = crate::limits::TOKENS_MAX)]
    TooManyTokens(usize),
    /// No such secret.
    #[error("application {app:?} has no secret {name:?}")]
    NoSecret {
        /// The application.
        app: String,
        /// The name that was given.
        name: String,
    },
    /// A running application names the secret.
    #[error("application {app:?} runs and names secret {name:?}; delete the application first")]
    SecretInUse {
        /// The application.
        app: String,
        /// The secret.
        name: String,
    },
    /// The secret is too long.
    #[error("secret {name:?} of application {app:?} is too long, must be at most {max} bytes", max = crate::limits::SECRET_LEN_MAX)]
    SecretLength {
        /// The application.
        app: String,
        /// The secret.
        name: String,
    },
    /// Too many secrets.
    #[error("there are {0} secrets, must be at most {max}; delete one first (e3 secret delete APP NAME)", max = crate::limits::SECRETS_MAX)]
    TooManySecrets(usize),
}

/// Shards that an error names; the rest is counted.
const NAMED_MAX: usize = 5;

fn replicas(count: usize) -> String {
    match count {
        1 => "1 replica is".into(),
        count => format!("{count} replicas are"),
    }
}

/// Why a replica could not leave its node.
fn no_domain(shard: &str, replicas: u16, pin: Option<&Pin>) -> String {
    let pinned = match pin {
        None => String::new(),
        Some(Pin::Kind(kind)) => format!(" of kind {}", kind.name()),
        Some(Pin::Node(name)) => return format!("{shard} is pinned to node {name:?}"),
    };
    match replicas {
        0 | 1 => format!("{shard} could go nowhere: no other node{pinned} is in service"),
        _ => format!(
            "{shard} has {replicas} replicas, each on a server of its own, and no other server with a node{pinned} in service is left"
        ),
    }
}
