//! A scenario: the whole input of a run of the simulator. It is plain data, drawn from a seed, so it
//! can be printed, kept as a file, and shrunk to what a failure needs.

mod draw;
mod fault;
pub(crate) mod known;
mod manifest;
mod members;
mod topics;
mod wire;

pub use draw::draw;
pub use fault::{Act, Fault};
pub use topics::{SubscriberShape, TopicShape};
pub use wire::Wire;

use e3_dataplane::limits::JOIN_AHEAD_LEN;
use e3_model::{AppId, Nanos, ServiceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// How long a disk takes to write at most, if no fault slows it.
pub(crate) const SLOWEST_WRITE: Nanos = Nanos::from_millis(10);

/// The whole input of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// The seed of the random behaviour of network and services.
    pub seed: u64,
    /// By server: the number of its SmartNICs.
    pub servers: Vec<u8>,
    /// By rack: the number of its servers, in their order. All servers are in one rack if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<u8>,
    /// The applications.
    pub apps: Vec<AppShape>,
    /// What services ask of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<AskShape>,
    /// What services publish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicShape>,
    /// The clients.
    pub clients: Vec<ClientShape>,
    /// The network, to which faults add.
    pub network: Wire,
    /// By node: how far its clock is off, and how much it drifts.
    pub clocks: Vec<ClockShape>,
    /// Skips kills that would destroy the last copy of a replicated shard.
    pub spares_last_copies: bool,
    /// The length of the phase with faults.
    pub faults_ms: u64,
    /// The faults, in the order of their start.
    pub script: Vec<Act>,
}

/// How far a clock is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClockShape {
    /// Its offset at the start.
    pub offset_ms: i64,
    /// How fast it runs.
    pub fast_ppm: i64,
}

/// An application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppShape {
    /// Requests that may be in flight at one node.
    pub admitted_max: u32,
    /// Failed attempts after which a message is a dead letter.
    pub attempts: u32,
    /// Services; the first one receives the requests.
    pub services: Vec<ServiceShape>,
    /// Channels, each from an earlier service to a later one.
    pub channels: Vec<ChannelShape>,
}

/// A service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceShape {
    /// Whether it keeps state.
    pub stateful: bool,
    /// Whether the keys of its messages depend on the clock; only a stateless one's may.
    #[serde(default)]
    pub draws_keys: bool,
    /// Shards.
    pub shards: u16,
    /// Copies of each.
    pub replicas: u16,
    /// Whether its state is on disk.
    #[serde(default)]
    pub on_disk: bool,
    /// Whether it refuses requests while it has no backup.
    pub refuses_alone: bool,
    /// Service time.
    pub service_us: u64,
    /// Handler runs that fail, of 1000.
    pub fails_permille: u64,
    /// Bytes of state in each shard beside the effects.
    pub state_bytes: u64,
    /// How long after each message a timer fires that its handler sets; none if 0.
    #[serde(default)]
    pub timer_ms: u64,
    /// Whether it sets timers that repeat each minute.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ticks: bool,
    /// How long some of its keys live; 0 if it has none that expire.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ttl_ms: u64,
    /// A later service with state that its handlers call, if they call any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
}

impl ServiceShape {
    /// Bytes that each effect adds to its state.
    pub(crate) fn fill_len(&self) -> u64 {
        (self.state_bytes / 500).min(32 << 10)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(is: &bool) -> bool {
    !is
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelShape {
    /// The service that sends.
    pub from: usize,
    /// The service that receives.
    pub to: usize,
    /// Messages for each handler run.
    pub messages: u8,
}

/// What a service with state asks of another for each message that it handles.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskShape {
    /// Index of its application.
    pub app: usize,
    /// Index of the service.
    pub service: usize,
    /// Who is asked.
    pub to: AskTarget,
    /// Time from the message to the deadline of the request.
    pub deadline_ms: u64,
}

/// Who is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum AskTarget {
    /// A service of the same application, which may be the one that asks.
    Service(usize),
    /// An application.
    App(usize),
    /// An HTTP server.
    Http,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientShape {
    /// Index of its application.
    pub app: usize,
    /// Requests that it sends in the phase with faults.
    pub requests: u64,
    /// Requests that it sends at once.
    pub burst: u64,
    /// It sends its requests when faults begin, and not evenly.
    pub is_rushing: bool,
    /// How many different keys its requests have.
    pub keys: u64,
    /// Time from sending to the deadline of its requests.
    pub deadline_ms: u64,
    /// One request in three has this time instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurried_ms: Option<u64>,
    /// Whether it uses idempotency keys and sends each request until it is handled.
    pub is_keyed: bool,
    /// How far its clock is off.
    pub offset_ms: i64,
    /// When it vanishes, after its last request.
    pub vanishes_ms: Option<u64>,
}

impl Scenario {
    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.servers.iter().map(|nics| 1 + u32::from(*nics)).sum()
    }

    /// The number of requests of all clients.
    pub fn requests(&self) -> u64 {
        self.clients.iter().map(|c| c.requests).sum()
    }

    /// How long after a power cut of everything its last node may start.
    pub(crate) fn starting_time(&self) -> Nanos {
        let returns_ms = self.script.iter().map(|act| match act.fault {
            Fault::Blackout(return_ms_max) => return_ms_max,
            _ => 0,
        });
        Nanos::from_millis(returns_ms.max().unwrap_or(0))
    }

    /// How long copies on a slow disk take to be made, if all of an application are in one shard. Half of what a
    /// joining copy may have open is durable with each write of a disk.
    pub(crate) fn copying_time(&self) -> Nanos {
        let bytes = |client: &ClientShape| {
            let app = &self.apps[client.app];
            let places = app.places().into_iter();
            let services = places.map(|place| &app.services[usize::from(place.service.0)]);
            let filled = services.filter(|s| s.on_disk).map(ServiceShape::fill_len);
            client.requests * filled.sum::<u64>()
        };
        let bytes: u64 = self.clients.iter().map(bytes).sum();
        SLOWEST_WRITE * (bytes * 2 / JOIN_AHEAD_LEN as u64)
    }

    /// How long disks take to write the entries of all requests one after another, and copies of the state.
    pub(crate) fn writing_time(&self) -> Nanos {
        let writes = |client: &ClientShape| {
            let services = &self.apps[client.app].services;
            let on_disk = |at: usize| u64::from(services[at].on_disk);
            let places = self.apps[client.app].places().into_iter();
            let of_place = |service: &ServiceShape| {
                u64::from(service.on_disk) + service.calls.map_or(0, on_disk)
            };
            let writes = places.map(|place| of_place(&services[usize::from(place.service.0)]));
            client.requests * writes.sum::<u64>()
        };
        let writes: u64 = self.clients.iter().map(writes).sum();
        SLOWEST_WRITE * writes + self.copying_time()
    }

    /// The time that handlers take for all requests, were they to run one after another: no shard has
    /// more to do.
    pub(crate) fn work(&self) -> Nanos {
        let all = self.clients.iter();
        let all = all.map(|c| self.work_of_request(c.app) * c.requests);
        all.fold(Nanos::ZERO, |a, b| a + b)
    }

    /// The same for a request to an application.
    pub(crate) fn work_of_request(&self, app: usize) -> Nanos {
        let shape = &self.apps[app];
        let places = shape.places().into_iter();
        let services = places.map(|p| &shape.services[usize::from(p.service.0)]);
        let sets = |s: &ServiceShape| if s.timer_ms > 0 { 2 } else { 1 };
        let runs = |s: &ServiceShape| self.attempts(app, s) * sets(s);
        let called = |s: &ServiceShape| s.calls.map_or(0, |at| shape.services[at].service_us);
        let us = services.map(|s| (s.service_us + called(s)) * runs(s));
        let us: u64 = us.sum();
        let asks = shape.places().into_iter();
        let asks = asks.map(|p| {
            let service = usize::from(p.service.0);
            self.work_of_ask(app, service) + self.work_of_topic(app, service)
        });
        Nanos::from_micros(us + asks.sum::<u64>())
    }

    /// The longest time that a timer is set ahead.
    pub(crate) fn longest_timer(&self) -> Nanos {
        let services = self.apps.iter().flat_map(|app| &app.services);
        let longest = services.map(|s| s.timer_ms).max();
        Nanos::from_millis(longest.unwrap_or(0))
    }

    /// Whether handlers of a service fail: by themselves, or in a version that is no good.
    pub(crate) fn fails(&self, app: usize, service: &ServiceShape) -> bool {
        let mut acts = self.script.iter();
        let is_bad = |act: &Act| act.fault == Fault::BadVersion(app, true);
        service.fails_permille > 0 || acts.any(is_bad)
    }

    /// How often a handler of a service runs for a message, at most.
    pub(crate) fn attempts(&self, app: usize, service: &ServiceShape) -> u64 {
        if self.fails(app, service) {
            self.apps[app].attempts.into()
        } else {
            1
        }
    }

    /// Whether versions are deployed that are no good.
    pub(crate) fn has_bad_versions(&self) -> bool {
        let mut acts = self.script.iter();
        acts.any(|act| matches!(act.fault, Fault::BadVersion(..)))
    }

    /// Whether the orchestrator has something to do.
    pub(crate) fn has_starvation(&self) -> bool {
        let mut acts = self.script.iter();
        acts.any(|act| matches!(act.fault, Fault::Starve(_)))
    }

    /// Whether a service sets timers that repeat.
    pub(crate) fn ticks(&self) -> bool {
        let mut services = self.apps.iter().flat_map(|app| &app.services);
        services.any(|s| s.ticks)
    }

    /// Whether a service's messages have drawn keys. Not behind a shard that the script may make forget
    /// what it handled: it handles a request again at another time.
    pub(crate) fn draws_keys(&self, app: &AppShape, service: usize) -> bool {
        let mut acts = self.script.iter();
        let gives_up = |fault: &Fault| matches!(fault, Fault::Forget(_) | Fault::NodeBitRot(_));
        let is_given_up = acts.any(|act| gives_up(&act.fault));
        let keeps = |s: &ServiceShape| {
            let survives = s.on_disk || (s.replicas > 1 && self.spares_last_copies);
            !s.stateful || (survives && !is_given_up)
        };
        let shape = &app.services[service];
        let before = app.services_before(service);
        shape.draws_keys
            && !shape.stateful
            && before.iter().all(|s| keeps(&app.services[*s]))
            && !known::may_repeat_later(self, app)
    }

    /// How many first messages on first channels lead to a service, if their keys are those of the
    /// requests.
    pub(crate) fn steps_to_called(&self, app: &AppShape, service: usize) -> Option<usize> {
        let before = app.services_before(service);
        let draws = before.iter().any(|s| self.draws_keys(app, *s));
        app.main_steps_to(service).filter(|_| !draws)
    }

    /// The server of each node.
    pub fn servers_of_nodes(&self) -> Vec<u32> {
        let servers = self.servers.iter().zip(0..);
        servers
            .flat_map(|(nics, server)| vec![server; 1 + usize::from(*nics)])
            .collect()
    }

    /// The servers of each rack, by their numbers.
    pub(crate) fn racks(&self) -> Vec<Range<usize>> {
        let all = [self.servers.len() as u8];
        let counts = if self.racks.is_empty() {
            &all[..]
        } else {
            &self.racks
        };
        let mut first = 0;
        let rack = |count: &u8| {
            let servers = first..first + usize::from(*count);
            first = servers.end;
            servers
        };
        counts.iter().map(rack).collect()
    }

    /// The nodes of a rack; none if there is no such rack.
    pub(crate) fn nodes_of_rack(&self, rack: u32) -> Vec<u32> {
        let servers = self.racks().into_iter().nth(rack as usize);
        let servers = servers.unwrap_or_default();
        servers.flat_map(|s| self.nodes_of(s as u32)).collect()
    }

    /// The nodes of a server.
    pub fn nodes_of(&self, server: u32) -> Vec<u32> {
        let servers = self.servers_of_nodes().into_iter().zip(0..);
        servers
            .filter(|(s, _)| *s == server)
            .map(|(_, node)| node)
            .collect()
    }
}

/// The id of the application at this index: the controller numbers applications from 1 in the order
/// of deployment.
pub fn app_id(at: usize) -> AppId {
    AppId(at as u16 + 1)
}

/// A place that a request reaches in the graph of an application: a service, and the path to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The service.
    pub service: ServiceId,
    /// Two bytes for each step: the channel of the sending service, and the number of the message.
    pub path: Vec<u8>,
    /// Whether every step is the first message on the first channel: this path leads to the service that
    /// answers the client.
    pub is_main: bool,
}

impl AppShape {
    /// By service: its channels as (receiver, messages).
    pub fn channels_of(&self, service: usize) -> Vec<(usize, u8)> {
        let from = self.channels.iter().filter(|c| c.from == service);
        from.map(|c| (c.to, c.messages)).collect()
    }

    /// How many first messages on first channels lead to a service, if they do.
    pub(crate) fn main_steps_to(&self, service: usize) -> Option<usize> {
        let mut places = self.places().into_iter();
        let place = places.find(|p| p.is_main && usize::from(p.service.0) == service)?;
        Some(place.path.len() / 2)
    }

    /// All services whose messages lead to this one.
    fn services_before(&self, service: usize) -> BTreeSet<usize> {
        let mut before = BTreeSet::new();
        let mut open = vec![service];
        while let Some(at) = open.pop() {
            let senders = self.channels.iter().filter(|c| c.to == at).map(|c| c.from);
            open.extend(senders.filter(|s| before.insert(*s)));
        }
        before
    }

    /// The share of its requests that no handler on the way fails, in all attempts.
    pub(crate) fn done_share(&self) -> f64 {
        let done = |place: &Place| {
            let service = &self.services[usize::from(place.service.0)];
            let fails = f64::from(service.fails_permille as u32) / 1e3;
            1.0 - fails.powi(self.attempts as i32)
        };
        self.places().iter().map(done).product()
    }

    /// All places that a request reaches.
    pub fn places(&self) -> Vec<Place> {
        let mut all = vec![Place {
            service: ServiceId(0),
            path: Vec::new(),
            is_main: true,
        }];
        let mut at = 0;
        while at < all.len() {
            let here = all[at].clone();
            let channels = self.channels_of(usize::from(here.service.0));
            for (channel, (to, messages)) in channels.into_iter().enumerate() {
                for number in 0..messages {
                    let mut path = here.path.clone();
                    path.extend([channel as u8, number]);
                    all.push(Place {
                        service: ServiceId(to as u16),
                        path,
                        is_main: here.is_main && channel == 0 && number == 0,
                    });
                }
            }
            at += 1;
        }
        all
    }
}
