//! An application as its manifest writes it: services, channels, and what they may use.

use crate::accelerator::{Accelerator, Accelerators};
use crate::http_access::HttpAccess;
use crate::ids::{EdgeId, ServiceId};
use crate::limits::DEADLINE_ALLOWED;
pub use crate::load::Load;
use crate::service_timer::ServiceTimer;
use crate::shard_bounds::{ShardBounds, ShardsForm};
use crate::topic::Topic;
use crate::topology::NodeKind;
use crate::units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// `spec` of a document of kind `Application`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationSpec {
    /// What its users accept.
    pub objective: Objective,
    /// How long after it was sent a request may still be worked on; then it becomes a dead letter.
    #[serde(default = "default_deadline")]
    pub deadline: Nanos,
    /// Failed attempts after which a request becomes a dead letter, `1..=100`.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// Requests that may be in flight at one ingress; more are answered "overloaded".
    #[serde(default = "default_admitted_max")]
    pub admitted_max: u32,
    /// The service that requests from clients go to.
    pub ingress: String,
    /// Expected load, for placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// Secrets that services may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Read-only files that services may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assets: Vec<Asset>,
    /// Services; the order gives their ids.
    pub services: Vec<Service>,
    /// Channels in the direction of the requests' flow; the order gives their ids.
    #[serde(default)]
    pub channels: Vec<Channel>,
    /// Topics on which its services publish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// Topics that its services are subscribed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<Subscription>,
}

impl ApplicationSpec {
    /// The longest time that a client may give a request.
    pub fn deadline_max(&self) -> Nanos {
        self.deadline.max(DEADLINE_ALLOWED)
    }
}

/// Latency objective.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objective {
    /// The latency that `percentile` of the requests must not exceed.
    pub latency: Nanos,
    /// Percentile, such as 99.
    #[serde(default = "default_percentile")]
    pub percentile: f64,
}

/// A secret; its value is never part of a manifest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Secret {
    /// Name.
    pub name: String,
    /// Make 32 random bytes at the first deployment. Otherwise the value must be there before.
    #[serde(default)]
    pub generate: bool,
}

/// A read-only file shared by all instances on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asset {
    /// Name.
    pub name: String,
    /// Path, relative to the manifest.
    pub file: String,
    /// The file is text from which this is compiled when it is deployed; otherwise it is taken as
    /// it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<AssetFormat>,
}

/// What an asset is compiled to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum AssetFormat {
    /// A route table for longest-prefix match in one or two reads (Gupta, Lin, McKeown, INFOCOM
    /// 1998), from lines `PREFIX/LEN NEXTHOP`.
    #[serde(rename = "dir-24-8")]
    Dir24_8,
}

/// One microservice.
// How it is written and read as a whole: shard_bounds.rs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Service {
    /// Name, unique in the application.
    pub name: String,
    /// WebAssembly module: a path relative to the manifest.
    pub module: String,
    /// Profile of its costs; by default the one of the service's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Keeps state in collections. A stateless service has no log and no backups.
    #[serde(default)]
    pub stateful: bool,
    /// Shards, `1..=4096`, as they are now.
    #[serde(skip)]
    pub shards: u16,
    /// How many it may have when the orchestrator scales it by load; none if the number is fixed.
    #[serde(skip)]
    pub shard_bounds: Option<ShardBounds>,
    /// Shards: a fixed number, `1..=4096`, or bounds within which the orchestrator scales by load,
    /// such as `{min: 2, max: 16}`.
    // Invariant: the default, but for the moment in which the service is written or read.
    #[doc(hidden)]
    #[serde(rename = "shards", default)]
    pub shards_form: ShardsForm,
    /// Copies of each shard, the primary included, each in a fault domain of its own.
    #[serde(default = "one")]
    pub replicas: u16,
    /// What a commit waits for. If it is not given, the cluster's default is taken when the
    /// application is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// What to do when a backup is lost and no view without it has been recorded yet.
    #[serde(default)]
    pub when_alone: WhenAlone,
    /// Longest run of the handler; then it is stopped and the attempt counts as failed.
    #[serde(default = "default_service_deadline")]
    pub deadline: Nanos,
    /// What one instance needs.
    pub resources: Resources,
    /// Accelerators that it uses. On a node without one it does the same by itself, more slowly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<Accelerator>,
    /// Those of them that it cannot do without: it runs only on nodes that have all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerators_required: Vec<Accelerator>,
    /// Where it must run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Its collections; the order gives their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<Collection>,
    /// Settings that the service reads by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Secrets that it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Assets that it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assets: Vec<String>,
    /// Services of the application that it asks by outbound requests. These alone may reach a
    /// service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<String>,
    /// What it may ask over HTTP; by default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpAccess>,
    /// Services of the application that it may call: their handlers answer while its own waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// Topics of the application on which it publishes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publishes: Vec<String>,
    /// Timers that are set when the application is deployed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<ServiceTimer>,
}

impl Service {
    /// Bytes that the collections of one shard may take; 0 if it has none.
    pub fn quota(&self) -> Bytes {
        if self.stateful {
            self.resources.state.unwrap_or(self.resources.memory)
        } else {
            Bytes(0)
        }
    }

    /// Disk that one instance needs. A journal is as long as two checkpoints before the next one is written
    /// beside them, see docs/design/010-durability.md.
    pub fn disk(&self) -> Bytes {
        let journal = if self.is_on_disk() {
            self.quota().0.saturating_mul(3)
        } else {
            0
        };
        self.resources.disk.unwrap_or(Bytes(journal))
    }

    /// The accelerators that it cannot do without.
    pub fn accelerators_required(&self) -> Accelerators {
        self.accelerators_required.iter().copied().collect()
    }

    /// Whether its state is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.stateful && self.durability == Some(Durability::Disk)
    }
}

/// What a commit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// All backups have the entry in memory.
    Memory,
    /// Also a write-ahead log on disk.
    Disk,
}

/// What a primary does while it waits for a view without a lost backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenAlone {
    /// Serve alone once the controller has recorded that view.
    #[default]
    Serve,
    /// Refuse until it has a backup again.
    Refuse,
}

/// What one instance needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Cores of a host; on another kind of node the profile's factor applies.
    pub cpu: f64,
    /// Memory: linear memory and collections.
    pub memory: Bytes,
    /// Quota of the collections of one shard, at most `memory`; by default `memory`. A request whose
    /// writes would exceed it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Bytes>,
    /// Disk of its node; by default none, and with `durability: disk` three times the quota of its
    /// collections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
}

/// Where a service must run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", try_from = "PinFields", into = "PinFields")]
pub enum Pin {
    /// On this kind of node.
    Kind(NodeKind),
    /// On this node (one shard, one replica).
    Node(String),
}

// YAML would want a tag for an enum.
/// Where a service must run: either `{kind: host}` or `{node: NAME}`.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[schemars(rename = "Pin")]
struct PinFields {
    /// On this kind of node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<NodeKind>,
    /// On this node (one shard, one replica).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl TryFrom<PinFields> for Pin {
    type Error = &'static str;
    fn try_from(fields: PinFields) -> Result<Pin, Self::Error> {
        match (fields.kind, fields.node) {
            (Some(kind), None) => Ok(Pin::Kind(kind)),
            (None, Some(node)) => Ok(Pin::Node(node)),
            _ => Err("a pin must have either kind or node"),
        }
    }
}

impl From<Pin> for PinFields {
    fn from(pin: Pin) -> PinFields {
        match pin {
            Pin::Kind(kind) => PinFields {
                kind: Some(kind),
                node: None,
            },
            Pin::Node(node) => PinFields {
                kind: None,
                node: Some(node),
            },
        }
    }
}

/// A collection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Collection {
    /// Name, unique in the service.
    pub name: String,
    /// Kind.
    pub kind: CollectionKind,
    /// How long a key lives after its last write, unless that write says otherwise; by default for
    /// ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Nanos>,
}

/// Kind of collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollectionKind {
    /// Keys without order.
    HashMap,
    /// Keys in byte order, with ranges.
    OrderedMap,
    /// A sequence of elements at each key.
    Array,
    /// A 64-bit counter at each key.
    Counter,
}

impl fmt::Display for CollectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CollectionKind::HashMap => "hash-map",
            CollectionKind::OrderedMap => "ordered-map",
            CollectionKind::Array => "array",
            CollectionKind::Counter => "counter",
        })
    }
}

/// A channel between two services.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Channel {
    /// Name, unique among those that leave the same service; by default that of `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sending service.
    pub from: String,
    /// Receiving service.
    pub to: String,
    /// Messages that one handler run may send on it, `1..=64`.
    #[serde(default = "one_u32")]
    pub outputs: u32,
}

/// A service that gets what is published on a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subscription {
    /// A topic of this application by its name, one of another application as `APPLICATION/TOPIC`.
    pub topic: String,
    /// The service that handles the publications.
    pub service: String,
}

/// Two services of which one sends to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The sender.
    pub from: ServiceId,
    /// The receiver.
    pub to: ServiceId,
    /// The receiver answers, and the sender waits.
    pub is_call: bool,
}

/// A checked application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Application {
    /// Name, unique in the cluster.
    pub name: String,
    /// Its content.
    pub spec: ApplicationSpec,
}

impl Channel {
    /// The name that the sending service uses.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.to)
    }
}

impl Service {
    /// Name of its profile.
    pub fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or(&self.name)
    }
}

impl Application {
    /// The service of that name.
    pub fn service_named(&self, name: &str) -> Option<(ServiceId, &Service)> {
        let at = self.spec.services.iter().position(|s| s.name == name)?;
        Some((ServiceId(at as u16), &self.spec.services[at]))
    }

    /// The service of that id. Panics on an id of another application.
    pub fn service(&self, id: ServiceId) -> &Service {
        &self.spec.services[usize::from(id.0)]
    }

    /// The topic that a subscription is for.
    pub fn topic_of(&self, subscription: &Subscription) -> Topic {
        let (application, name) = subscription
            .topic
            .split_once('/')
            .unwrap_or((&self.name, &subscription.topic));
        Topic {
            application: application.into(),
            name: name.into(),
        }
    }

    /// The services that are subscribed to a topic.
    pub fn subscribers<'a>(&'a self, topic: &'a Topic) -> impl Iterator<Item = ServiceId> + 'a {
        let all = self.spec.subscriptions.iter();
        let subscriptions = all.filter(move |s| self.topic_of(s) == *topic);
        subscriptions.filter_map(|s| Some(self.service_named(&s.service)?.0))
    }

    /// By sender: its channels, then its calls. Panics if the application was not checked.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        let services = (0..self.spec.services.len()).map(|s| ServiceId(s as u16));
        services.flat_map(|from| {
            let id = |name: &String| self.service_named(name).expect("checked when parsed").0;
            let channels = self.channels_from(from).map(|(_, to, _)| (to, false));
            let calls = self.service(from).calls.iter();
            let all = channels.chain(calls.map(move |name| (id(name), true)));
            all.map(move |(to, is_call)| Flow { from, to, is_call })
        })
    }

    /// The channels that leave a service, in the manifest's order: (edge, receiver, channel).
    pub fn channels_from(
        &self,
        service: ServiceId,
    ) -> impl Iterator<Item = (EdgeId, ServiceId, &Channel)> {
        let name = &self.service(service).name;
        self.spec
            .channels
            .iter()
            .enumerate()
            .filter(move |(_, c)| c.from == *name)
            .map(|(i, c)| {
                let (to, _) = self.service_named(&c.to).expect("checked when parsed");
                (EdgeId(i as u16), to, c)
            })
    }

    /// Instances in all: shards times replicas, over all services.
    pub fn instances(&self) -> u32 {
        self.spec
            .services
            .iter()
            .map(|s| u32::from(s.shards) * u32::from(s.replicas))
            .sum()
    }
}

fn one() -> u16 {
    1
}
fn one_u32() -> u32 {
    1
}
fn default_deadline() -> Nanos {
    Nanos::from_secs(10)
}
fn default_service_deadline() -> Nanos {
    Nanos::from_secs(1)
}
fn default_attempts() -> u32 {
    3
}
fn default_admitted_max() -> u32 {
    65_536
}
fn default_percentile() -> f64 {
    99.0
}
