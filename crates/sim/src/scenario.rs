//! A scenario: everything that a run of the simulator is given. It is plain data, drawn from a seed,
//! so it can be printed, kept as a file, and cut down to what a failure needs.

mod draw;
pub(crate) mod known;
mod manifest;

pub use draw::draw;

use crate::network::Faults;
use e3_model::{AppId, ServiceId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Everything that a run is given.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// Decides what the network and the services do by chance.
    pub seed: u64,
    /// By server: its SmartNICs.
    pub servers: Vec<u8>,
    /// What runs.
    pub apps: Vec<AppShape>,
    /// Who asks.
    pub clients: Vec<ClientShape>,
    /// The network while no fault adds to it.
    pub network: Wire,
    /// By node: how far its clock is off, and how much it drifts.
    pub clocks: Vec<ClockShape>,
    /// Kills that would take the last copy of a replicated shard are left out.
    pub spares_last_copies: bool,
    /// Length of the phase with faults.
    pub faults_ms: u64,
    /// The faults, by time.
    pub script: Vec<Act>,
}

/// How far a clock is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClockShape {
    /// At the start.
    pub offset_ms: i64,
    /// How much it is too fast.
    pub fast_ppm: i64,
}

/// A network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wire {
    /// Datagrams lost, of 1000.
    pub loss_permille: u64,
    /// Datagrams delivered twice.
    pub repeat_permille: u64,
    /// Datagrams in which bits change.
    pub damage_permille: u64,
    /// Longest delay; a long one reorders.
    pub delay_us_max: u64,
}

impl Wire {
    /// A network that does its work.
    pub const GOOD: Wire = Wire {
        loss_permille: 0,
        repeat_permille: 0,
        damage_permille: 0,
        delay_us_max: 40,
    };

    /// What two troubles at a time do.
    pub fn and(self, other: Wire) -> Wire {
        Wire {
            loss_permille: self.loss_permille.max(other.loss_permille),
            repeat_permille: self.repeat_permille.max(other.repeat_permille),
            damage_permille: self.damage_permille.max(other.damage_permille),
            delay_us_max: self.delay_us_max.max(other.delay_us_max),
        }
    }

    /// For the simulated network.
    pub fn faults(self) -> Faults {
        use crate::damage::Damage;
        use e3_model::Nanos;
        Faults {
            loss_permille: self.loss_permille,
            repeat_permille: self.repeat_permille,
            damaged: (self.damage_permille > 0).then_some((self.damage_permille, Damage::Wire)),
            delay_min: Nanos::from_micros(20),
            delay_max: Nanos::from_micros(self.delay_us_max.max(20)),
        }
    }
}

/// An application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppShape {
    /// Requests that may be in flight at one node.
    pub admitted_max: u32,
    /// Failed attempts after which a message is a dead letter.
    pub attempts: u32,
    /// Services; the first one takes the requests.
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
    /// Shards.
    pub shards: u16,
    /// Copies of each.
    pub replicas: u16,
    /// It refuses while it has no backup.
    pub refuses_alone: bool,
    /// How long a handler runs.
    pub service_us: u64,
    /// Runs that fail, of 1000.
    pub fails_permille: u64,
    /// Bytes of state that each shard has beside the effects.
    pub state_bytes: u64,
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelShape {
    /// The service that sends.
    pub from: usize,
    /// The service that receives.
    pub to: usize,
    /// Messages of one handler run.
    pub messages: u8,
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
    /// Different keys.
    pub keys: u64,
    /// Time that its requests have.
    pub deadline_ms: u64,
    /// It uses idempotency keys, and sends each request until it is handled.
    pub is_keyed: bool,
    /// How far its clock is off.
    pub offset_ms: i64,
    /// It vanishes after so long.
    pub vanishes_ms: Option<u64>,
}

/// A fault with its time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Act {
    /// When it begins, counted from the beginning of the phase.
    pub at_ms: u64,
    /// How long it lasts.
    pub for_ms: u64,
    /// What happens.
    pub fault: Fault,
}

/// What goes wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// The network loses datagrams.
    Loss(Wire),
    /// It delivers them twice.
    Repetition(Wire),
    /// It delivers them late and out of order.
    Reordering(Wire),
    /// It changes bits in them.
    Damage(Wire),
    /// A node is cut off from everybody.
    Isolate(u16),
    /// A node is cut off from the other nodes, and not from the controller and the clients.
    CutPeers(u16),
    /// A node is cut off from the controller only.
    CutController(u16),
    /// Nothing comes from the first node to the second.
    OneWay(u16, u16),
    /// The controller hears nothing of a node, and is heard.
    Unheard(u16),
    /// These nodes are cut off from the others.
    Split(Vec<u16>),
    /// A node's process stands still.
    Pause(u16),
    /// The processes of all nodes stand still.
    PauseAll,
    /// A node is slower by this factor.
    Slow(u16, u64),
    /// A node's process is killed, and starts again afterwards.
    Kill(u16),
    /// The same, on all nodes of a server.
    PowerCut(u16),
    /// A node's process is killed and starts again at once.
    Restart(u16),
    /// A node's wall clock steps, and its process starts again with it.
    ClockStep(u16, i64),
    /// A node's clock drifts.
    Drift(u16, i64),
    /// The controller is killed, and starts again afterwards from its log.
    KillController,
    /// The controller stands still.
    PauseController,
    /// The controller's disk is full.
    DiskFull,
    /// The controller's disk takes so long for each write.
    DiskSlow(u64),
    /// The controller is killed with half a record on its disk.
    TornWrite,
    /// Reports of nodes are lost.
    ReportsLost,
    /// Reports of nodes come late and out of order.
    ReportsLate,
    /// A replica moves; the number chooses which, and where to.
    Move(u64),
    /// A replica moves, and one of the nodes of its shard is killed on the way.
    MoveAndKill(u64),
    /// An application gets another version.
    Update(usize),
}

impl Fault {
    /// Kind, as counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Loss(_) => "loss",
            Fault::Repetition(_) => "repetition",
            Fault::Reordering(_) => "reordering",
            Fault::Damage(_) => "damage",
            Fault::Isolate(_) => "isolate",
            Fault::CutPeers(_) => "cutPeers",
            Fault::CutController(_) => "cutController",
            Fault::OneWay(..) => "oneWay",
            Fault::Unheard(_) => "unheard",
            Fault::Split(_) => "split",
            Fault::Pause(_) => "pause",
            Fault::PauseAll => "pauseAll",
            Fault::Slow(..) => "slow",
            Fault::Kill(_) => "kill",
            Fault::PowerCut(_) => "powerCut",
            Fault::Restart(_) => "restart",
            Fault::ClockStep(..) => "clockStep",
            Fault::Drift(..) => "drift",
            Fault::KillController => "killController",
            Fault::PauseController => "pauseController",
            Fault::DiskFull => "diskFull",
            Fault::DiskSlow(_) => "diskSlow",
            Fault::TornWrite => "tornWrite",
            Fault::ReportsLost => "reportsLost",
            Fault::ReportsLate => "reportsLate",
            Fault::Move(_) => "move",
            Fault::MoveAndKill(_) => "moveAndKill",
            Fault::Update(_) => "update",
        }
    }
}

impl Act {
    /// When it is over.
    pub fn end_ms(&self) -> u64 {
        self.at_ms + self.for_ms
    }

    /// Whether both last at the same time, or one follows the other within a second.
    pub fn meets(&self, other: &Act) -> bool {
        self.at_ms <= other.end_ms() + 1_000 && other.at_ms <= self.end_ms() + 1_000
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Act {
            at_ms,
            for_ms,
            fault,
        } = self;
        write!(f, "{at_ms:>6} ms, for {for_ms:>5} ms: {fault:?}")
    }
}

impl Scenario {
    /// Nodes.
    pub fn nodes(&self) -> u16 {
        self.servers.iter().map(|nics| 1 + u16::from(*nics)).sum()
    }

    /// Requests of all clients.
    pub fn requests(&self) -> u64 {
        self.clients.iter().map(|c| c.requests).sum()
    }

    /// Server of each node.
    pub fn servers_of_nodes(&self) -> Vec<u16> {
        let servers = self.servers.iter().zip(0..);
        servers
            .flat_map(|(nics, server)| vec![server; 1 + usize::from(*nics)])
            .collect()
    }

    /// Nodes of a server.
    pub fn nodes_of(&self, server: u16) -> Vec<u16> {
        let servers = self.servers_of_nodes().into_iter().zip(0..);
        servers
            .filter(|(s, _)| *s == server)
            .map(|(_, node)| node)
            .collect()
    }
}

/// Id of the application at this index: the controller numbers them from 1 in the order in which
/// they come.
pub fn app_id(at: usize) -> AppId {
    AppId(at as u16 + 1)
}

/// A place in the graph of an application that one request reaches: the service, and by which
/// channels of each service before, and as the how manyth message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The service.
    pub service: ServiceId,
    /// Two bytes a step: channel of the sending service, number of the message.
    pub path: Vec<u8>,
    /// Every step is the first message of the first channel: what answers the client lies here.
    pub is_main: bool,
}

impl AppShape {
    /// By service: its channels, as (receiver, messages).
    pub fn channels_of(&self, service: usize) -> Vec<(usize, u8)> {
        let from = self.channels.iter().filter(|c| c.from == service);
        from.map(|c| (c.to, c.messages)).collect()
    }

    /// All places that one request reaches.
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
