//! A cluster under load, in virtual time: heartbeats and reports for the orchestrator, whose decisions
//! are carried out and checked.

use crate::script::{AT, KEY, NODES, Script};
use e3_control::{Act, Applied, Command, InstanceLoad, MeterReading, NodeLoad, Orchestrator};
use e3_model::event::{Event, EventKind};
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::plan::NodeHello;
use e3_model::{AppId, Format, Formats, Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

const STEP: Nanos = Nanos::from_millis(20);
const STEPS_PER_REPORT: u64 = 50;
pub const NIC: NodeId = NodeId(1);
pub const HOST: NodeId = NodeId(0);

/// What an instance does each second.
#[derive(Clone, Copy)]
pub struct Work {
    pub requests: u64,
    pub execution_us: u64,
}

pub struct Cluster {
    pub script: Script,
    pub orchestrator: Orchestrator,
    pub now: Timestamp,
    /// By node; others are idle.
    pub nodes: BTreeMap<NodeId, NodeLoad>,
    /// By shard, wherever its primary is; others do nothing.
    pub work: BTreeMap<ShardKey, Work>,
    /// Requests of clients each second, by application; the first node takes all of them.
    pub clients: BTreeMap<AppId, u64>,
    /// By shard: memory of its state; that of the manifest for others.
    pub state_bytes: BTreeMap<ShardKey, u64>,
    /// What meters of nodes show.
    pub meters: BTreeMap<NodeId, MeterReading>,
    /// Nodes that send nothing.
    pub silent: Vec<NodeId>,
    /// Moves make no progress.
    pub stuck: bool,
    done: BTreeMap<(NodeId, ShardKey), (u64, u64)>,
    asked: BTreeMap<AppId, u64>,
    steps: u64,
    /// By instance: when the orchestrator moved it.
    pub moved: BTreeMap<ShardKey, Vec<Timestamp>>,
}

/// All nodes up, the cluster's format raised, the sample deployed with state, its shard [`KEY`] on a
/// SmartNIC.
pub fn cluster() -> Cluster {
    cluster_of(Script::filled())
}

/// The same of such a cluster.
pub fn cluster_of(mut script: Script) -> Cluster {
    for (i, name) in NODES.iter().enumerate() {
        let hello = NodeHello {
            name: (*name).into(),
            process: 500 + i as u64,
            formats: Formats::PROGRAM,
            ..NodeHello::default()
        };
        script.ok(Command::Join { hello, at: AT });
        script.settle();
    }
    script.ok(Command::RaiseFormat {
        to: Format::NEWEST,
        release: String::new(),
    });
    let mut c = Cluster {
        orchestrator: Orchestrator::new(&script.control),
        script,
        now: AT,
        nodes: BTreeMap::new(),
        work: BTreeMap::new(),
        clients: BTreeMap::new(),
        state_bytes: BTreeMap::new(),
        meters: BTreeMap::new(),
        silent: Vec::new(),
        stuck: false,
        done: BTreeMap::new(),
        asked: BTreeMap::new(),
        steps: 0,
        moved: BTreeMap::new(),
    };
    c.bring(KEY, NIC);
    c
}

/// A SmartNIC whose traffic manager has a standing queue.
pub fn starved() -> NodeLoad {
    NodeLoad {
        queue_len: 300,
        busy_permille: 2_000,
        port_permille: 100,
    }
}

/// A SmartNIC without a free core.
pub fn full() -> NodeLoad {
    NodeLoad {
        queue_len: 40,
        busy_permille: 11_900,
        port_permille: 900,
    }
}

impl Cluster {
    /// Moves a shard by hand, if it is not there.
    pub fn bring(&mut self, key: ShardKey, to: NodeId) {
        let shard = self.script.shard(key);
        if shard.primary == to {
            return;
        }
        let server = |n: NodeId| n.0 / 2;
        for backup in shard
            .backups
            .into_iter()
            .filter(|b| server(*b) == server(to))
        {
            let taken: Vec<u32> = self.copies(key).map(server).collect();
            let free = (0..6).map(NodeId).find(|n| !taken.contains(&server(*n)));
            self.migrate(key, backup, free.expect("three servers, two copies"));
        }
        self.migrate(key, self.primary(key), to);
    }

    fn migrate(&mut self, key: ShardKey, from: NodeId, to: NodeId) {
        let cold = false;
        self.script.ok(Command::Migrate {
            key,
            from,
            to,
            cold,
        });
        self.script.settle();
    }

    fn copies(&self, key: ShardKey) -> impl Iterator<Item = NodeId> {
        let shard = self.script.shard(key);
        [shard.primary].into_iter().chain(shard.backups)
    }

    pub fn primary(&self, key: ShardKey) -> NodeId {
        self.script.shard(key).primary
    }

    pub fn set(&mut self, change: impl Fn(&mut OrchestratorSettings)) {
        let mut settings = self.script.control.orchestration.settings;
        change(&mut settings);
        let at = self.now;
        self.script.ok(Command::SetOrchestrator { settings, at });
    }

    pub fn mode(&mut self, mode: OrchestratorMode) {
        self.set(|s| s.mode = mode);
    }

    /// So much time passes.
    pub fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * STEPS_PER_REPORT {
            self.run_step();
        }
    }

    pub fn run_step(&mut self) {
        self.now += STEP;
        self.steps += 1;
        for node in (0..6).map(NodeId).filter(|n| !self.silent.contains(n)) {
            let load = self.nodes.get(&node).copied().unwrap_or_default();
            let incarnation = self.script.control.members[&node].incarnation;
            let o = &mut self.orchestrator;
            o.on_heartbeat(self.now, node, incarnation, load);
        }
        if self.steps.is_multiple_of(STEPS_PER_REPORT) {
            self.report();
        }
        let before: u32 = self.in_flight();
        let commands = self.orchestrator.decide(self.now, &self.script.control);
        for command in commands {
            self.carry_out(&command);
        }
        let max = self.script.control.orchestration.settings.moves_max;
        assert!(
            self.in_flight() <= max.max(before),
            "too many moves at once"
        );
        if !self.stuck {
            self.script.settle();
        }
    }

    pub fn in_flight(&self) -> u32 {
        let apps = self.script.control.apps.values();
        apps.map(|app| app.migrations.len() as u32).sum()
    }

    fn carry_out(&mut self, command: &Command) {
        let Command::Orchestrate(decided) = command else {
            panic!("{command:?}");
        };
        let applied = self.script.ok(command.clone());
        // A split gives the shards other names.
        let rests = !matches!(
            decided.act,
            Act::Follow | Act::Spread | Act::Split | Act::Merge
        );
        if !rests {
            return;
        }
        if let (Applied::Moving(_), Some(key)) = (applied, decided.key) {
            let times = self.moved.entry(key).or_default();
            let cooldown = self
                .script
                .control
                .orchestration
                .settings
                .instance_cooldown_s;
            let rest = Nanos::from_secs(cooldown.into());
            let rests = |last: &Timestamp| self.now.since(*last) < rest;
            assert!(!times.last().is_some_and(rests), "{key} does not rest");
            times.push(self.now);
        }
    }

    fn report(&mut self) {
        for (app, requests) in &self.clients {
            *self.asked.entry(*app).or_default() += requests;
        }
        for (key, work) in &self.work {
            let app = &self.script.control.apps[&key.app];
            // Shards that were merged do nothing more.
            let Some(primary) = app.shard(*key).map(|s| s.primary) else {
                continue;
            };
            let done = self.done.entry((primary, *key)).or_default();
            done.0 += work.requests;
            done.1 += work.requests * work.execution_us * 1_000;
        }
        for node in (0..6).map(NodeId).filter(|n| !self.silent.contains(n)) {
            let there = self.done.iter().filter(|((n, _), _)| *n == node);
            let loads = there.map(|((_, key), (handled, busy))| InstanceLoad {
                key: *key,
                handled: *handled,
                busy: Nanos(*busy),
                state_bytes: self.state_bytes.get(key).copied().unwrap_or(0),
            });
            let incarnation = self.script.control.members[&node].incarnation;
            let (now, datagrams) = (self.now, self.steps);
            let o = &mut self.orchestrator;
            o.on_report(now, node, incarnation, datagrams, loads);
            o.on_meter(now, node, self.meters.get(&node).copied());
            let asked = self.asked.iter().filter(|_| node == HOST);
            o.on_ingress(
                now,
                node,
                incarnation,
                asked.map(|(app, count)| (*app, *count)),
            );
        }
    }

    /// The decisions so far.
    pub fn decisions(&self) -> Vec<Event> {
        let all = self.script.control.events.since(0);
        all.filter(|e| e.kind.is_decision()).cloned().collect()
    }

    /// How many decisions of a kind there were.
    pub fn count(&self, kind: EventKind) -> usize {
        self.decisions().iter().filter(|e| e.kind == kind).count()
    }
}
