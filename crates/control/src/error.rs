//! Why commands are refused.

use e3_model::application::Pin;
use e3_model::growth::AddError;
use e3_model::limits::REPLICAS_MAX;
use e3_model::orchestrator::SettingError;
use e3_model::power::{CAP_W_MAX, PowerDomain};
use e3_model::shard_bounds::ShardBounds;
use e3_model::{Format, Formats};
use e3_placement::{AdmitError, Misfit, PlaceError};

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
    /// It is new, and its shards are getting their state.
    #[error(
        "application {app:?} is being restored already: {left} of its shards wait for their state; see e3 describe app {app}"
    )]
    Restoring {
        /// The application.
        app: String,
        /// Shards without their state.
        left: usize,
    },
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
    /// The log has choices of nodes that the command does not ask for: another release would lead to another
    /// state.
    #[error("{left} of the {of} logged choices of nodes do not fit the state")]
    Choices {
        /// Choices that nothing asked for.
        left: usize,
        /// All of them.
        of: usize,
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
    /// A SmartNIC relays the traffic of a host that is to be removed.
    #[error(
        "node {node:?} cannot be removed: SmartNIC {relay:?} of its server relays its traffic; remove the SmartNIC first (e3 node remove {relay})"
    )]
    Relayed {
        /// The host.
        node: String,
        /// The first of its relays.
        relay: String,
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
        "the journal of node {node} is of cluster {found:016x}, this is cluster {expected:016x}; mount the disk of this cluster, or move the journal away and give up the copies in it"
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
    /// The disk of a node lacks what was on it, and no other node has that.
    #[error(
        "the disk of node {node} lacks {}, and no other node has a complete copy; mount the right disk or restore the node's directory, or give up their state with e3 forget",
        shards.join(", ")
    )]
    NotOnDisk {
        /// The node.
        node: String,
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
    #[error("the backup of {shard} on node {node} cannot migrate cold: only a primary can")]
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
    /// A number of shards that the bounds of the manifest do not allow.
    #[error(
        "{service} cannot have {wanted} shards: its manifest allows {bounds}, and the number is doubled or halved; deploy it with other bounds first"
    )]
    ShardBounds {
        /// The service.
        service: String,
        /// What was asked for.
        wanted: u16,
        /// The bounds.
        bounds: ShardBounds,
    },
    /// The bounds of an updated manifest do not have the present number of shards.
    #[error(
        "{service} has {now} shards, which the bounds of its new manifest do not have: {bounds}, doubled from the fewest; scale it first (e3 scale), or choose other bounds"
    )]
    BoundsMiss {
        /// The service.
        service: String,
        /// What it has.
        now: u16,
        /// The bounds.
        bounds: ShardBounds,
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
    /// No server or rack of that name.
    #[error("there is no {domain}; the topology has {}", known.join(", "))]
    NoPowerDomain {
        /// What was to be capped.
        domain: PowerDomain,
        /// The names of all servers or racks.
        known: Vec<String>,
    },
    /// A power cap that no server or rack may have.
    #[error("{domain}: power cap {cap_w} W, must be 1..={CAP_W_MAX} W")]
    PowerCap {
        /// What was to be capped.
        domain: PowerDomain,
        /// The cap.
        cap_w: u32,
    },
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
