//! The orchestrator in a large cluster: the time to decide, carry out and log, while a tenth of the
//! SmartNICs are overloaded at once.

use super::heartbeats;
use super::logged::Logged;
use super::members::{INCARNATION, cluster};
use super::plans::next_event;
use super::scene::{NODES_PER_SERVER, parse, service};
use crate::{Better, Figure, median};
use e3_control::{Command, Control, InstanceLoad, NodeLoad, Orchestrator, Placed};
use e3_model::orchestrator::OrchestratorSettings;
use e3_model::timing::SILENCE_CHECK_INTERVAL;
use e3_model::{AppId, Nanos, NodeId, NodeKind, ServiceId, ShardId, ShardKey, Timestamp};
use e3_placement::InstanceKey;
use std::collections::BTreeMap;
use std::time::Instant;

const DECISION_P99_AIM_MS: f64 = 5.0;
/// One in so many SmartNICs is overloaded.
const OVERLOADED_ONE_IN: usize = 10;
const SHARDS_PER_APP: usize = 400;
/// Turns in which decisions are timed.
const TURNS_MAX: usize = 400;
const AT: Timestamp = Timestamp(1_000_000_000);
/// Between two reports of an overloaded SmartNIC.
const REPORT_INTERVAL: Nanos = Nanos::from_secs(1);

/// The figures for a cluster of so many servers.
pub(super) fn figures(servers: usize) -> Vec<Figure> {
    let mut figures: Vec<Figure> = heartbeats::figures(servers).into();
    figures.push(decisions(servers));
    figures
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
#[derive(Default)]
pub(super) struct Decisions {
    /// Times in ascending order: deciding, carrying out, logging.
    pub(super) times_ms: Vec<f64>,
    /// Of these, deciding alone.
    deciding_ms: Vec<f64>,
    /// Waiting for the disk.
    disk_ms: Vec<f64>,
    decided: usize,
    moved: usize,
    overloaded: usize,
    snapshots: usize,
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
        "{} of {} SmartNICs on {servers} servers overloaded at once; {} decisions and {} moves begun in {} turns, each \
         decided, applied, in the log on the disk and planned before the next turn, the moves done meanwhile; median \
         turn {:.2} ms, of which {:.2} ms to decide and {:.2} ms for the disk; longest {:.2} ms; {} snapshots",
        found.overloaded,
        servers * (NODES_PER_SERVER - 1),
        found.decided,
        found.moved,
        found.times_ms.len(),
        found.median_ms(),
        median(found.deciding_ms.clone()),
        median(found.disk_ms.clone()),
        found.times_ms[found.times_ms.len() - 1],
        found.snapshots,
    );
    let figure = Figure::new(
        "control.decision_ms_p99",
        found.p99_ms(),
        "ms",
        Better::Lower,
    );
    figure.aim(DECISION_P99_AIM_MS).note(note)
}

/// The time of each turn, while more SmartNICs are overloaded than may be relieved at once.
pub(super) fn decide(servers: usize) -> Decisions {
    let mut scene = Overload::new(servers);
    let mut found = Decisions {
        overloaded: scene.overloaded.len(),
        ..Decisions::default()
    };
    while found.times_ms.len() < TURNS_MAX {
        scene.hear();
        let turn = scene.turn();
        if turn.decided == 0 {
            break;
        }
        found.times_ms.push(turn.ms);
        found.deciding_ms.push(turn.deciding_ms);
        found.disk_ms.push(turn.disk_ms);
        found.decided += turn.decided;
        found.moved += turn.moved.len();
        scene.finish(turn.moved);
    }
    found.snapshots = scene.controller.snapshots;
    found.times_ms.sort_by(f64::total_cmp);
    found
}

/// A cluster in which SmartNICs are overloaded until what keeps them busy has moved away.
struct Overload {
    controller: Logged,
    orchestrator: Orchestrator,
    now: Timestamp,
    servers: usize,
    /// By overloaded SmartNIC: the shard that keeps it busy.
    overloaded: BTreeMap<NodeId, ShardKey>,
    reports: u64,
    reported_at: Timestamp,
}

/// A turn of the orchestrator.
struct Turn {
    ms: f64,
    deciding_ms: f64,
    disk_ms: f64,
    decided: usize,
    /// Shards that move now, with the SmartNICs that they leave.
    moved: Vec<(NodeId, ShardKey)>,
}

impl Overload {
    fn new(servers: usize) -> Overload {
        let mut control = cluster(servers);
        let nics = control.topology.nodes();
        let nics = nics.filter(|n| n.node.kind == NodeKind::SmartNic);
        let nics: Vec<NodeId> = nics.step_by(OVERLOADED_ONE_IN).map(|n| n.id).collect();
        let keys = deploy(&mut control, &nics);
        let settings = OrchestratorSettings {
            starvation_heartbeats: 2,
            ..OrchestratorSettings::default()
        };
        let set = Command::SetOrchestrator { settings, at: AT };
        control.apply(&set).expect("valid settings");
        let mut scene = Overload {
            orchestrator: Orchestrator::new(&control),
            controller: Logged::new(control),
            now: AT,
            servers,
            overloaded: nics.into_iter().zip(keys).collect(),
            reports: 0,
            reported_at: Timestamp::ZERO,
        };
        // Two reports show the use of processor time, two heartbeats the fault.
        scene.report();
        scene.now += REPORT_INTERVAL;
        scene.hear();
        scene
    }

    /// Some time passes, in which every node sends a heartbeat and the overloaded ones may report.
    fn hear(&mut self) {
        self.now += SILENCE_CHECK_INTERVAL;
        if self.now.since(self.reported_at) >= REPORT_INTERVAL {
            self.report();
        }
        let starved = NodeLoad {
            queue_len: 500,
            busy_permille: 3_000,
            port_permille: 50,
        };
        for node in (0..self.servers * NODES_PER_SERVER).map(NodeId::of_index) {
            let load = match self.overloaded.contains_key(&node) {
                true => starved,
                false => NodeLoad::default(),
            };
            self.orchestrator
                .on_heartbeat(self.now, node, INCARNATION, load);
        }
    }

    fn report(&mut self) {
        self.reports += 1;
        self.reported_at = self.now;
        for (node, key) in &self.overloaded {
            let load = InstanceLoad {
                key: *key,
                handled: 1_000 * self.reports,
                busy: Nanos::from_millis(100 * self.reports),
                state_bytes: 0,
            };
            let (loads, datagrams) = (std::iter::once(load), 1_000 * self.reports);
            self.orchestrator
                .on_report(self.now, *node, INCARNATION, datagrams, loads);
        }
    }

    /// Decides and executes, as the controller program does.
    fn turn(&mut self) -> Turn {
        let start = Instant::now();
        let commands = self.orchestrator.decide(self.now, &self.controller.control);
        let deciding_ms = start.elapsed().as_secs_f64() * 1e3;
        let disk_ms = self.controller.disk_ms;
        let done = self.controller.execute_all(self.now, &commands);
        let is_done = |d: &Result<_, _>| d.is_ok();
        assert!(
            done.iter().all(is_done),
            "nothing has changed meanwhile: {done:?}"
        );
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let moved = commands.iter().filter_map(|command| match command {
            Command::Orchestrate(decided) => Some((decided.from, decided.to.and(decided.key)?)),
            _ => None,
        });
        Turn {
            ms,
            deciding_ms,
            disk_ms: self.controller.disk_ms - disk_ms,
            decided: commands.len(),
            moved: moved.collect(),
        }
    }

    /// The nodes finish moves, which relieves the SmartNICs.
    fn finish(&mut self, moved: Vec<(NodeId, ShardKey)>) {
        for (node, key) in moved {
            while let Some(event) = next_event(&self.controller.control, key) {
                let event = Command::Event(event);
                let done = self.controller.execute_all(self.now, &[event]);
                assert!(done[0].is_ok(), "events are not refused: {done:?}");
            }
            self.overloaded.remove(&node);
        }
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
