//! Requests and responses of the controller's HTTP API, as JSON. Nodes use the types of [`crate::plan`].

use crate::accelerator::Accelerator;
pub use crate::access::{
    AuditView, DeleteSecretResponse, RevokeResponse, SecretValue, SecretView, TokenRequest,
    TokenResponse, TokenView,
};
pub use crate::backup::{
    BackupFile, BackupHead, BackupPhase, BackupRequest, BackupView, ChunkResponse, RestoreRequest,
    RestoreResponse,
};
pub use crate::commands::{
    DeleteResponse, DeployRequest, DeployResponse, ExitedRequest, ExitedResponse, ForgetRequest,
    ForgetResponse, MigrateRequest, MigrateResponse,
};
pub use crate::event::{Event, EventKind};
use crate::format::{Format, Formats};
pub use crate::meter::{NodeMeterView, ServiceMeterView};
pub use crate::operate::{
    AddNodesRequest, AddNodesResponse, CordonResponse, DrainRequest, DrainResponse, FormatRequest,
    FormatResponse, NodeRequest, RemoveNodeResponse, ReshardRequest, ReshardResponse,
    RollbackRequest, RollbackResponse, RollbackView, ScaleRequest, ScaleResponse, UndrainedView,
};
pub use crate::orchestrator::{
    DisplacedView, OrchestratorMode, OrchestratorRequest, OrchestratorSettings, OrchestratorView,
};
pub use crate::pending::{PendingAsked, PendingView};
use crate::plan::{ChannelReport, Role};
pub use crate::power::{PowerCapRequest, PowerDomain, PowerView};
use crate::profile::Provenance;
pub use crate::status::{DropReason, Health, InstanceStatus, MovePhase, ProcessStatus, Reason};
pub use crate::topic::{SubscriptionView, TopicView};
use crate::topology::NodeKind;
use crate::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /v1/cluster`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Id of the cluster, in hexadecimal.
    pub cluster: String,
    /// Version of the desired state.
    pub plan_version: u64,
    /// Name of the topology.
    pub topology: String,
    /// Nodes of the topology.
    pub nodes: u32,
    /// Nodes that take part now.
    pub nodes_up: u32,
    /// Names of the applications.
    pub apps: Vec<String>,
    /// Release of the controller.
    #[serde(default)]
    pub release: String,
    /// Formats that the controller reads and can write.
    #[serde(default)]
    pub formats: Formats,
    /// The active format: what the cluster's processes write.
    #[serde(default)]
    pub format: Format,
    /// What the orchestrator does with its decisions.
    #[serde(default)]
    pub orchestrator: OrchestratorMode,
}

fn full_speed() -> f64 {
    1.0
}

/// An element of `GET /v1/nodes`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// Id.
    pub id: u32,
    /// Kind.
    pub kind: NodeKind,
    /// Its server: its fault domain.
    pub server: String,
    /// Its rack.
    pub rack: String,
    /// This machine only stands in for it.
    pub emulated: bool,
    /// Scale of the emulation: speed of its cores and its port as a part of what it stands for.
    #[serde(default = "full_speed")]
    pub speed: f64,
    /// Cores.
    pub cores: u16,
    /// Memory.
    pub memory: Bytes,
    /// Takes part now.
    pub up: bool,
    /// An operator has taken it out of service: its replicas move elsewhere, and it gets no new ones.
    #[serde(default)]
    pub drained: bool,
    /// An operator has cordoned it: it gets no new instances, and keeps those that it has.
    #[serde(default)]
    pub cordoned: bool,
    /// The replicas that are still there although it is drained.
    #[serde(default)]
    pub undrained: Vec<UndrainedView>,
    /// Number of its process.
    pub incarnation: u32,
    /// Release of its program; empty if it has not joined or does not say.
    #[serde(default)]
    pub release: String,
    /// Formats that its program reads and can write.
    #[serde(default)]
    pub formats: Formats,
    /// Where its data path listens.
    pub address: Option<String>,
    /// Where it listens for the traffic of its host, if it relays that.
    #[serde(default)]
    pub relay: Option<String>,
    /// Where programs send requests over HTTP: the TCP port of the same number.
    #[serde(default)]
    pub url: Option<String>,
    /// Milliseconds since the last heartbeat.
    pub heard_ms_ago: Option<u64>,
    /// Nodes that it cannot reach, there or back, although it could before.
    #[serde(default)]
    pub unreachable: Vec<String>,
    /// Version of the plan that it has applied.
    pub plan_version: u64,
    /// Instances that should run there.
    pub instances: u32,
    /// Processor time of its process in seconds.
    pub cpu_seconds: f64,
    /// Resident memory of its process.
    pub resident_bytes: u64,
    /// Accelerators that it has, and how fast each is there: bytes per second, 1,500 a call.
    pub accelerators: BTreeMap<Accelerator, f64>,
    /// Requests waiting, at its services and at its traffic manager.
    pub queue: u32,
    /// Part of its port's bandwidth that was used of late, of the busier direction.
    #[serde(default)]
    pub port_use: f64,
    /// Requests admitted from clients.
    pub admitted: u64,
    /// Requests answered "overloaded".
    pub overloaded: u64,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Messages sent again.
    pub retransmitted: u64,
    /// Records that it wrote to its journal, for services with `durability: disk`.
    #[serde(default)]
    pub journal_records: u64,
    /// How often it waited for the disk; records that come meanwhile share the next wait.
    #[serde(default)]
    pub journal_syncs: u64,
    /// Datagrams dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Energy since the controller started, if there is a power model of its server.
    #[serde(default)]
    pub energy: Option<NodeEnergyView>,
    /// Measured energy since the controller started, if the node has a meter.
    #[serde(default)]
    pub measured: Option<NodeMeterView>,
}

/// Energy of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeEnergyView {
    /// Always `modelled`; what meters say is in `measured`.
    pub provenance: Provenance,
    /// What it is modelled from.
    pub source: String,
    /// Joules of the server when idle, counted at its first node while that is up.
    pub idle_joules: f64,
    /// Joules above idle, from the counts of handled requests.
    pub active_joules: f64,
    /// Watts above idle over the last report.
    pub active_watts: f64,
}

/// Energy of a service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceEnergyView {
    /// Always `modelled`; what meters say is in `measured`.
    pub provenance: Provenance,
    /// What it is modelled from.
    pub source: String,
    /// Joules above idle of the requests handled since the controller started.
    pub joules: f64,
    /// The same for each request handled.
    pub joules_per_request: Option<f64>,
    /// By kind of node: joules of one request there.
    pub joules_by_kind: BTreeMap<NodeKind, f64>,
}

/// `GET /v1/apps/{name}`, and an element of `GET /v1/apps`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppView {
    /// Name.
    pub name: String,
    /// Id.
    pub id: u16,
    /// Version of manifest and code.
    pub code_version: u32,
    /// The version that a rollback would deploy again, if one is kept.
    #[serde(default)]
    pub earlier_version: Option<u32>,
    /// Rollbacks, the oldest first, at most 16.
    #[serde(default)]
    pub rollbacks: Vec<RollbackView>,
    /// Instances that should run.
    pub instances: u32,
    /// Instances that run and are up to date.
    pub instances_ready: u32,
    /// Every shard can commit and has all its copies.
    pub ready: bool,
    /// The same in one word, and whether requests were dead-lettered in the last 60 s.
    pub health: Health,
    /// What is not as it should be, one line each.
    pub problems: Vec<String>,
    /// Shards whose only copies are on silent nodes: they wait for one of these.
    #[serde(default)]
    pub waiting: Vec<WaitingView>,
    /// How often the last copy of a shard that had state was lost, or given up by an operator.
    pub state_lost: u64,
    /// The latest of these losses, the oldest first.
    #[serde(default)]
    pub losses: Vec<LossView>,
    /// Dead letters that its shards keep or have dropped, less those that were replayed.
    pub dead_letters: u64,
    /// Requests dead-lettered in the last 60 s.
    pub dead_lettered_lately: u64,
    /// Requests admitted from clients since the controller started.
    pub admitted: u64,
    /// Requests answered "overloaded" since then.
    pub overloaded: u64,
    /// Modelled joules above idle of a request through all services, if all have a profile.
    #[serde(default)]
    pub modelled_joules_per_request: Option<f64>,
    /// Services.
    pub services: Vec<ServiceView>,
    /// Topics. Empty in the list of applications.
    #[serde(default)]
    pub topics: Vec<TopicView>,
    /// Topics to which services are subscribed. Empty in the list of applications.
    #[serde(default)]
    pub subscriptions: Vec<SubscriptionView>,
    /// Why every instance was placed where it was at deployment. Empty in the list of applications.
    #[serde(default)]
    pub placed: Vec<PlacedView>,
    /// Moves in flight.
    #[serde(default)]
    pub migrations: Vec<MigrationView>,
    /// Moves that have ended, the oldest first. Empty in the list of applications.
    #[serde(default)]
    pub moves: Vec<MigrationView>,
}

/// A shard whose only copies are on silent nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    /// `app/service/shard`.
    pub shard: String,
    /// The nodes with its complete copies. It continues when one of them is heard again.
    pub nodes: Vec<String>,
    /// Whether it has committed anything.
    pub had_state: bool,
}

/// The last copy of a shard that had state was lost, or given up: the shard began again empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LossView {
    /// `app/service/shard`.
    pub shard: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
}

/// A service of an application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Name.
    pub name: String,
    /// Shards.
    pub shards: u16,
    /// Within which bounds the orchestrator scales their number by load, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_bounds: Option<crate::shard_bounds::ShardBounds>,
    /// What the number of shards is being changed to.
    #[serde(default)]
    pub shards_wanted: Option<u16>,
    /// Copies of each shard.
    pub replicas: u16,
    /// What the manifest says of that, if the service was scaled since.
    #[serde(default)]
    pub replicas_in_manifest: Option<u16>,
    /// Whether it has collections.
    #[serde(default)]
    pub stateful: bool,
    /// Whether its state is on disk, and so survives the end of all processes.
    #[serde(default)]
    pub on_disk: bool,
    /// Memory of the collections of its primaries together.
    #[serde(default)]
    pub state_bytes: u64,
    /// The same of the shard with the most.
    #[serde(default)]
    pub state_bytes_max: u64,
    /// What the collections of one shard may take; 0 if the service is stateless.
    #[serde(default)]
    pub quota_bytes: u64,
    /// Nodes of its primaries, with how many are there.
    pub nodes: BTreeMap<String, u32>,
    /// Requests that have an outcome, dead-lettered ones included. This and the counts below are
    /// totals since the controller started; moves, fail-overs and restarts of nodes do not change
    /// them.
    pub handled: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Requests that were dead-lettered, for whatever reason.
    pub dead_lettered: u64,
    /// Of these, requests whose deadline had passed.
    pub expired: u64,
    /// Time spent in its handlers in seconds.
    pub busy_seconds: f64,
    /// Dead letters that its shards keep or have dropped, less those that were replayed.
    pub dead_letters: u64,
    /// Timers that are set in its shards.
    #[serde(default)]
    pub timers: u64,
    /// Requests waiting at its primaries.
    pub queue: u32,
    /// Energy, if there is a profile.
    #[serde(default)]
    pub energy: Option<ServiceEnergyView>,
    /// Measured energy, if it ran on a node with a meter.
    #[serde(default)]
    pub measured: Option<ServiceMeterView>,
    /// Why it does not run somewhere, if it does not.
    pub error: Option<String>,
    /// Why the last attempt failed that did, on a present primary.
    #[serde(default)]
    pub last_failure: Option<String>,
}

/// Why an instance is where it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacedView {
    /// `service/shard` and its part.
    pub instance: String,
    /// Node.
    pub node: String,
    /// Reason in one line.
    pub why: String,
}

/// A move.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationView {
    /// Its number, from the answer to `POST /v1/migrations`.
    pub id: u64,
    /// `app/service/shard`.
    pub shard: String,
    /// From node.
    pub from: String,
    /// To node.
    pub to: String,
    /// How far it is, or how it ended.
    pub phase: MovePhase,
    /// Why it was cancelled, if it was.
    #[serde(default)]
    pub reason: Option<String>,
}

/// An element of `GET /v1/instances`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// `app/service/shard`.
    pub instance: String,
    /// Its part.
    pub role: Role,
    /// Node.
    pub node: String,
    /// View of the shard.
    pub view: u32,
    /// Its state.
    pub status: InstanceStatus,
    /// Why it is not `running`, if it is not.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Last entry in its log; of a backup, the last one that it has acknowledged to its primary.
    pub op: u64,
    /// Last entry that all backups have, as the primary knows it.
    pub commit: u64,
    /// Requests waiting.
    pub queue: u32,
    /// Requests of the shard that have an outcome, dead-lettered ones included. This and the counts
    /// below are the shard's totals since the controller started, shown at its primary; a backup
    /// handles nothing and shows 0.
    pub handled: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Requests that were dead-lettered, for whatever reason.
    pub dead_lettered: u64,
    /// Of these, requests whose deadline had passed.
    pub expired: u64,
    /// Dead letters that it keeps or has dropped, less those that were replayed.
    pub dead_letters: u64,
    /// Timers that are set in it.
    #[serde(default)]
    pub timers: u64,
    /// Handler runs that were preempted.
    pub preemptions: u64,
    /// Time spent in the handler in seconds.
    pub busy_seconds: f64,
    /// Memory of its collections.
    pub memory_bytes: u64,
    /// What its collections may take; 0 if the service is stateless.
    #[serde(default)]
    pub quota_bytes: u64,
    /// Why it does not run, if it does not.
    pub error: Option<String>,
    /// Why the last attempt failed that did.
    #[serde(default)]
    pub last_failure: Option<String>,
}

/// An element of `GET /v1/channels`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelView {
    /// Application.
    pub app: String,
    /// Node of the sending end.
    pub node: String,
    /// The channel.
    pub channel: ChannelReport,
}

/// `GET /v1/apps/{name}/endpoints`: where clients send requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointsView {
    /// The application's id on the data path.
    pub app: u16,
    /// By shard of the ingress service: address of the node of its primary. Any node takes any
    /// request; this one is the shortest way.
    pub shards: Vec<String>,
    /// Addresses of all nodes that take part, those that host the application first.
    pub nodes: Vec<String>,
    /// Where these take requests over HTTP, by their `POST /v1/apps/{app}`.
    #[serde(default)]
    pub urls: Vec<String>,
}

/// `GET /healthz` and `GET /readyz`, with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Whether the process works, or everything is as it should be.
    pub status: ProcessStatus,
}

/// Answer to `POST /v1/nodes/{id}/report`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportResponse {
    /// Version of the desired state after the report.
    pub plan_version: u64,
    /// What an owner wants to know of shards: the next report is to say it, and to come at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingAsked>,
}

/// Body of every answer with a status of 400 or more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorView {
    /// What is wrong, in one line.
    pub error: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
