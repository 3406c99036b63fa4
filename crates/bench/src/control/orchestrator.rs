//! The orchestrator in a large cluster: heartbeats that one core takes in a second, and the time to
//! decide while a tenth of the SmartNICs are overloaded at once.

use super::scene::{NODES_PER_SERVER, parse, service, topology};
use crate::{Better, Figure};
use e3_control::{Command, Control, InstanceLoad, Member, NodeLoad, Orchestrator, Placed};
use e3_model::orchestrator::OrchestratorSettings;
use e3_model::{
    Address, AppId, Format, Formats, Nanos, NodeId, NodeKind, ServiceId, ShardId, ShardKey,
    Timestamp,
};
use e3_placement::InstanceKey;
use e3_wire::WireError;
use e3_wire::datagram::{HEADER_LEN, Header};
use e3_wire::heartbeat::{self, Heartbeat, PAYLOAD_LEN};
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

const HEARTBEATS_AIM_PER_S: f64 = 5e6;
const DECISION_P99_AIM_MS: f64 = 5.0;
const CLUSTER: u64 = 7;
const MEASURED: Duration = Duration::from_secs(2);
/// One in so many SmartNICs is overloaded.
const OVERLOADED_ONE_IN: usize = 10;
const SHARDS_PER_APP: usize = 400;
/// Turns in which decisions are timed.
const TURNS_MAX: usize = 200;
const AT: Timestamp = Timestamp(1_000_000_000);
/// Every node runs its first process.
const INCARNATION: u32 = 1;

/// The figures for a cluster of so many servers.
pub(super) fn figures(servers: usize) -> Vec<Figure> {
    let plain = heartbeats(servers, MEASURED, heartbeat::parse);
    let verified = verified_per_s(servers, MEASURED);
    let nodes = servers * NODES_PER_SERVER;
    let of = |name, value, what: &str| {
        let note = format!("{nodes} nodes on {servers} servers, {what}, one core");
        let figure = Figure::new(name, value, "heartbeats/s", Better::Higher);
        figure.aim(HEARTBEATS_AIM_PER_S).note(note)
    };
    vec![
        of("control.heartbeats_per_s", plain, "not verified"),
        of(
            "control.heartbeats_verified_per_s",
            verified,
            "checksum verified",
        ),
        decisions(servers),
    ]
}

/// All nodes of the cluster up, and no application.
fn cluster(servers: usize) -> Control {
    let mut control = Control::new(CLUSTER, topology(servers));
    control.format = Format::NEWEST;
    for node in 0..servers * NODES_PER_SERVER {
        let member = Member {
            incarnation: INCARNATION,
            process: 1,
            release: String::new(),
            formats: Formats::PROGRAM,
            address: Address::default(),
            relay: None,
            up: true,
            exited: 0,
            unreachable: BTreeSet::new(),
        };
        control.members.insert(NodeId::of_index(node), member);
    }
    control
}

/// Heartbeats a second, their checksums verified.
pub(super) fn verified_per_s(servers: usize, length: Duration) -> f64 {
    heartbeats(servers, length, |datagram| {
        heartbeat::decode(Formats::PROGRAM, datagram)
    })
}

/// Heartbeats a second: reading, folding in, and a look for decisions after each round of all nodes.
fn heartbeats(
    servers: usize,
    length: Duration,
    read: impl Fn(&[u8]) -> Result<(Header, Heartbeat), WireError>,
) -> f64 {
    let control = cluster(servers);
    let mut orchestrator = Orchestrator::new(&control);
    let nodes = servers * NODES_PER_SERVER;
    let datagram = |node: usize| {
        let beat = Heartbeat {
            queue_len: node as u32 % 50,
            service_time_ns: 20_000,
            busy_permille: 4_000,
            port_permille: 400,
            plan_version_low: 1,
        };
        let id = NodeId::of_index(node);
        heartbeat::encode(Format::NEWEST, CLUSTER, id, INCARNATION, &beat)
    };
    let all: Vec<u8> = (0..nodes).flat_map(datagram).collect();
    let (mut count, mut now) = (0, AT);
    let start = Instant::now();
    while count == 0 || start.elapsed() < length {
        now += Nanos::from_millis(20);
        for datagram in all.chunks_exact(HEADER_LEN + PAYLOAD_LEN) {
            let Ok((header, beat)) = read(datagram) else {
                unreachable!("a whole heartbeat");
            };
            let load = NodeLoad {
                queue_len: beat.queue_len,
                busy_permille: beat.busy_permille,
                port_permille: beat.port_permille,
            };
            orchestrator.on_heartbeat(now, header.from, header.incarnation, load);
            count += 1;
        }
        assert!(black_box(orchestrator.decide(now, &control)).is_empty());
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// Deploys a shard on each of these nodes; returns the shards in the same order.
fn deploy(control: &mut Control, nodes: &[NodeId]) -> Vec<ShardKey> {
    let mut keys = Vec::new();
    for (number, nodes) in nodes.chunks(SHARDS_PER_APP).enumerate() {
        let text = service("s0", 0.5, 64, nodes.len() as u64, 1);
        let app = parse(&format!("app-{number}"), &format!("{text}  channels: []\n"));
        let placed = nodes.iter().enumerate().map(|(shard, node)| Placed {
            key: InstanceKey {
                service: ServiceId(0),
                shard: ShardId(shard as u16),
                replica: 0,
            },
            node: *node,
            why: String::new(),
        });
        let deploy = Command::Deploy {
            app: Box::new(app),
            modules: vec![String::new()],
            assets: BTreeMap::new(),
            profiles: BTreeMap::new(),
            overcommit: false,
            restored: None,
            placed: placed.collect(),
        };
        control.apply(&deploy).expect("each node has room");
        keys.extend((0..nodes.len()).map(|shard| ShardKey {
            app: AppId(1 + number as u16),
            service: ServiceId(0),
            shard: ShardId(shard as u16),
        }));
    }
    keys
}

/// Turns of decisions.
pub(super) struct Decisions {
    /// Times in ascending order.
    pub(super) times_ms: Vec<f64>,
    decided: usize,
    overloaded: usize,
}

impl Decisions {
    pub(super) fn median_ms(&self) -> f64 {
        self.times_ms[self.times_ms.len() / 2]
    }

    pub(super) fn p99_ms(&self) -> f64 {
        self.times_ms[(self.times_ms.len() - 1) * 99 / 100]
    }
}

fn decisions(servers: usize) -> Figure {
    let found = decide(servers);
    let note = format!(
        "{} of {} SmartNICs on {servers} servers overloaded at once; {} decisions in {} turns, median turn \
         {:.2} ms",
        found.overloaded,
        servers * (NODES_PER_SERVER - 1),
        found.decided,
        found.times_ms.len(),
        found.median_ms(),
    );
    let figure = Figure::new(
        "control.decision_ms_p99",
        found.p99_ms(),
        "ms",
        Better::Lower,
    );
    figure.aim(DECISION_P99_AIM_MS).note(note)
}

/// The time to decide in each turn, while more SmartNICs are overloaded than may be relieved at once.
pub(super) fn decide(servers: usize) -> Decisions {
    let mut control = cluster(servers);
    let nics = control.topology.nodes();
    let nics = nics.filter(|n| n.node.kind == NodeKind::SmartNic);
    let overloaded: Vec<NodeId> = nics.step_by(OVERLOADED_ONE_IN).map(|n| n.id).collect();
    let keys = deploy(&mut control, &overloaded);
    let settings = OrchestratorSettings {
        starvation_heartbeats: 2,
        ..OrchestratorSettings::default()
    };
    let set = Command::SetOrchestrator { settings, at: AT };
    control.apply(&set).expect("valid settings");
    let mut orchestrator = Orchestrator::new(&control);
    for node in 0..servers * NODES_PER_SERVER {
        let idle = NodeLoad::default();
        orchestrator.on_heartbeat(AT, NodeId::of_index(node), INCARNATION, idle);
    }
    for round in 1..=2 {
        let at = AT + Nanos::from_millis(500 * round);
        for (node, key) in overloaded.iter().zip(&keys) {
            let load = InstanceLoad {
                key: *key,
                handled: 1_000 * round,
                busy: Nanos::from_millis(100 * round),
                state_bytes: 0,
            };
            let loads = std::iter::once(load);
            orchestrator.on_report(at, *node, INCARNATION, 1_000 * round, loads);
        }
    }
    let now = AT + Nanos::from_millis(1_100);
    let starved = NodeLoad {
        queue_len: 500,
        busy_permille: 3_000,
        port_permille: 50,
    };
    for _ in 0..settings.starvation_heartbeats {
        for node in &overloaded {
            orchestrator.on_heartbeat(now, *node, INCARNATION, starved);
        }
    }
    let (mut times_ms, mut decided) = (Vec::new(), 0);
    while times_ms.len() < TURNS_MAX {
        let start = Instant::now();
        let commands = black_box(orchestrator.decide(now, &control));
        times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        if commands.is_empty() {
            break;
        }
        decided += commands.len();
    }
    times_ms.sort_by(f64::total_cmp);
    Decisions {
        times_ms,
        decided,
        overloaded: overloaded.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_cluster_gives_all_three_figures() {
        let figures = figures(40);
        assert_eq!(figures.len(), 3);
        let last = &figures[2];
        let note = "16 of 160 SmartNICs on 40 servers overloaded at once; 16 decisions";
        assert!(last.note.starts_with(note), "{}", last.note);
    }
}
