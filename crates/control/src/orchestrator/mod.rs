//! The data-plane orchestrator: finds SmartNICs that are overloaded, and moves the service with the
//! highest CPU use away. E3 (USENIX ATC 2019), 3.4. Soft state: heartbeats and reports go in, commands
//! come out; only these are logged.
//!
//! A heartbeat is folded into one entry of a table by node, which takes tens of nanoseconds: a cluster
//! of 50,000 servers sends millions a second. Only nodes with a fault are looked at to decide. Nothing
//! flaps: nodes and instances rest after each decision, and rest longer if it did not help.
//! Design: docs/design/022.

mod budget;
mod cap;
mod cap_returns;
mod cap_search;
mod following;
mod moving;
mod power;
mod power_view;
mod rates;
mod relief;
mod returns;
mod round;
mod scaling;
mod spreading;
mod watch;

pub use power::MeterReading;
pub use watch::{InstanceLoad, NodeLoad};

use crate::command::Command;
use crate::limits::{CANDIDATES_MAX, RETURN_LOOK_INTERVAL, WAITING_MIN};
use crate::migration::Migration;
use crate::orchestration::{Act, Decided, cooldown};
use crate::state::Control;
use budget::Budget;
use cap::Capping;
use e3_model::orchestrator::{Cause, OrchestratorMode, OrchestratorSettings};
use e3_model::{AppId, NodeId, ShardKey, Timestamp, Topology};
use following::{Following, Seen};
use moving::{Moving, by_node};
use round::Round;
use scaling::Scaling;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use watch::{InstanceWatch, NodeWatch, Reports, fault};

/// What is known of the load of the cluster.
#[derive(Debug, Default)]
pub struct Orchestrator {
    settings: OrchestratorSettings,
    /// The topology that the tables agree with.
    topology: Option<Arc<Topology>>,
    /// By node.
    nodes: Vec<NodeWatch>,
    /// By node.
    reports: Vec<Reports>,
    /// By node on which so many requests wait that one of any size may be overloaded: how many.
    waiting: BTreeMap<NodeId, u32>,
    /// Nodes with a fault that wait for a decision, the oldest first.
    queue: VecDeque<NodeId>,
    /// By application: the version whose execution times are known.
    versions: BTreeMap<AppId, u32>,
    /// Version of the state that the tables agree with.
    synced: Option<u64>,
    returns_looked_at: Timestamp,
    /// By instance that was moved: when, and the most that it used since, in thousandths of a core of
    /// its SmartNIC. A load that had only begun to rise when it was moved says nothing.
    peaks: BTreeMap<ShardKey, (Timestamp, u64)>,
    following: Following,
    capping: Capping,
    scaling: Scaling,
}

/// Not for heartbeats of a cluster that keeps up.
#[cold]
fn note_waiting(waiting: &mut BTreeMap<NodeId, u32>, node: NodeId, queue_len: u32) {
    if queue_len > WAITING_MIN {
        waiting.insert(node, queue_len);
    } else {
        waiting.remove(&node);
    }
}

/// What becomes of a node with a fault.
enum Outcome {
    Decided(Decided),
    /// There is nothing to decide.
    Dropped,
    /// What could move rests. It is looked at again after a cool-down.
    Rests,
    /// Migrations on its server must end first.
    Waits,
}

/// Which instance leaves a node.
enum Pick {
    /// This one, to that node.
    Move(InstanceWatch, NodeId),
    /// The busiest one cannot: why not, by node.
    Nowhere(InstanceWatch, Vec<(NodeId, String)>),
    /// Migrations on the servers must end first.
    Waits,
    /// Those that could were moved lately, or one is on its way.
    Rests,
    /// There is none that could.
    None,
}

impl Orchestrator {
    /// Nothing is known yet.
    pub fn new(control: &Control) -> Orchestrator {
        let mut orchestrator = Orchestrator::default();
        orchestrator.sync(control);
        orchestrator
    }

    /// Takes a heartbeat.
    #[inline]
    pub fn on_heartbeat(&mut self, now: Timestamp, node: NodeId, incarnation: u32, load: NodeLoad) {
        let Some(watch) = self.nodes.get_mut(node.index()) else {
            return;
        };
        let waited = watch.load.queue_len;
        let is_starved = watch.on_heartbeat(now, incarnation, load, &self.settings);
        if waited.max(watch.load.queue_len) > WAITING_MIN {
            note_waiting(&mut self.waiting, node, watch.load.queue_len);
        }
        if is_starved && !watch.is_queued && now >= watch.rests_until {
            watch.is_queued = true;
            self.queue.push_back(node);
        }
    }

    /// How many requests wait on nodes that may be overloaded.
    pub fn waiting(&self) -> &BTreeMap<NodeId, u32> {
        &self.waiting
    }

    /// The load that the last heartbeat of a node said.
    pub(crate) fn load(&self, node: NodeId) -> Option<NodeLoad> {
        self.nodes.get(node.index()).map(|watch| watch.load)
    }

    /// Takes a report: datagrams that the node has sent and received, and what its instances have done,
    /// both since its process started.
    pub fn on_report(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: u32,
        datagrams: u64,
        loads: impl Iterator<Item = InstanceLoad>,
    ) {
        let Some(watch) = self.nodes.get_mut(node.index()) else {
            return;
        };
        let reports = &mut self.reports[node.index()];
        let of = (incarnation, datagrams);
        let is_overloaded = reports.on_report(now, of, loads, watch, &self.settings);
        if self.settings.follow_interval_s > 0
            && let Some((span, handled)) = reports.handled_at(now)
        {
            self.following.rates.on_handled(node, span, handled);
        }
        let is_due = is_overloaded && watch.is_smartnic && now >= watch.rests_until;
        if is_due && !watch.is_queued {
            watch.is_queued = true;
            self.queue.push_back(node);
        }
    }

    /// Takes from a report what clients have asked of a node since its process started, by application.
    pub fn on_ingress(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: u32,
        counts: impl Iterator<Item = (AppId, u64)>,
    ) {
        if self.settings.follow_interval_s > 0 {
            let rates = &mut self.following.rates;
            rates.on_ingress(now, node, incarnation, counts.collect());
        }
    }

    /// Takes what the meter of a node shows; none if it has none that measures its own hardware.
    pub fn on_meter(&mut self, now: Timestamp, node: NodeId, reading: Option<MeterReading>) {
        self.capping.on_reading(now, node, reading);
    }

    /// The decisions that are due. They are to be executed before the next call.
    pub fn decide(&mut self, now: Timestamp, control: &Control) -> Vec<Command> {
        self.sync(control);
        if !control.is_orchestrated() {
            for node in std::mem::take(&mut self.queue) {
                self.nodes[node.index()].is_queued = false;
            }
            self.following = Following::default();
            self.scaling = Scaling::default();
            return Vec::new();
        }
        let looks_for_returns = !control.orchestration.displaced.is_empty()
            && now.since(self.returns_looked_at) >= RETURN_LOOK_INTERVAL;
        let follows = self.following.is_due(now, &self.settings);
        let looks_at_power = self.capping.is_due(now, control);
        let scales = self.scaling.is_due(now, &self.settings);
        let is_due = looks_for_returns || follows || looks_at_power || scales;
        if self.queue.is_empty() && !is_due {
            return Vec::new();
        }
        let mut budget = self.budget(control);
        let mut round = Round::new(control);
        let mut due = self.decide_faults(now, control, &mut budget, &mut round);
        if looks_for_returns {
            self.returns_looked_at = now;
            due.extend(self.decide_returns(now, control, &mut budget, &mut round));
        }
        let seen = Seen {
            nodes: &self.nodes,
            reports: &self.reports,
            settings: &self.settings,
        };
        if looks_at_power {
            let decided = self
                .capping
                .decide(now, control, &seen, &mut budget, &mut round);
            due.extend(decided);
        }
        if follows {
            due.extend(self.following.decide(now, control, &seen, &mut budget));
        }
        // A move that was decided now is in the way of a split that the state does not show yet.
        if scales && due.is_empty() {
            let mut scaling = std::mem::take(&mut self.scaling);
            due.extend(scaling.decide(now, control, self, &mut budget, &mut round));
            self.scaling = scaling;
        }
        let command = |decided| Command::Orchestrate(Box::new(decided));
        due.into_iter().map(command).collect()
    }

    /// Takes over what has changed in the state: nodes, settings, versions of services.
    fn sync(&mut self, control: &Control) {
        if self.synced == Some(control.version) {
            return;
        }
        self.synced = Some(control.version);
        self.settings = control.orchestration.settings;
        for (id, app) in &control.apps {
            let version = app.plan.code_version;
            let before = self.versions.insert(*id, version);
            if before.is_some_and(|before| before != version) {
                self.reports.iter_mut().for_each(|r| r.restart(*id));
            }
        }
        self.versions.retain(|id, _| control.apps.contains_key(id));
        self.sync_nodes(&control.topology);
        self.capping.sync(control);
    }

    /// Takes over nodes that have been added, and the servers of all.
    fn sync_nodes(&mut self, topology: &Arc<Topology>) {
        let is_same = |known: &Arc<Topology>| Arc::ptr_eq(known, topology);
        if self.topology.as_ref().is_some_and(is_same) {
            return;
        }
        self.topology = Some(topology.clone());
        let len = topology.table_len().max(self.nodes.len());
        self.nodes.resize_with(len, NodeWatch::default);
        self.reports.resize_with(len, Reports::default);
        for node in topology.nodes() {
            let watch = &mut self.nodes[node.id.index()];
            watch.set_hardware(node.node, node.server);
        }
    }

    fn budget(&self, control: &Control) -> Budget {
        let mut budget = Budget {
            left: self.settings.moves_max,
            per_server: self.settings.moves_per_server_max,
            by_server: BTreeMap::new(),
        };
        for m in control.apps.values().flat_map(|app| &app.migrations) {
            budget.take(self.servers(&[m.from, m.to]));
        }
        for app in control.apps.values() {
            if let Some(r) = &app.resharding {
                let shards = app.plan.shards.iter().filter(|s| s.service == r.service);
                let nodes = shards.flat_map(|s| s.backups.iter().chain([&s.primary]));
                budget.take(self.servers(&nodes.copied().collect::<Vec<_>>()));
            }
        }
        budget
    }

    fn servers(&self, nodes: &[NodeId]) -> Vec<u32> {
        let of = |n: &NodeId| self.nodes.get(n.index()).map(|w| w.server);
        nodes.iter().filter_map(of).collect()
    }

    fn decide_faults(
        &mut self,
        now: Timestamp,
        control: &Control,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Vec<Decided> {
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        while budget.left > 0 {
            let Some(node) = self.queue.pop_front() else {
                break;
            };
            match self.decide_fault(now, control, node, budget, round) {
                Outcome::Waits => waiting.push(node),
                Outcome::Dropped => self.nodes[node.index()].is_queued = false,
                Outcome::Rests => {
                    let length = cooldown(self.settings.node_cooldown_s, 0, u32::MAX);
                    let watch = &mut self.nodes[node.index()];
                    watch.is_queued = false;
                    watch.rests_until = now + length;
                }
                Outcome::Decided(decided) => {
                    let watch = &mut self.nodes[node.index()];
                    watch.is_queued = false;
                    watch.rest(now, decided.act, &self.settings);
                    budget.left = budget.left.saturating_sub(1);
                    due.push(decided);
                }
            }
        }
        self.queue.extend(waiting);
        due
    }

    fn decide_fault(
        &self,
        now: Timestamp,
        control: &Control,
        node: NodeId,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Outcome {
        let watch = &self.nodes[node.index()];
        let reports = &self.reports[node.index()];
        let member = control.members.get(&node).filter(|m| m.up);
        let is_here = member.is_some_and(|m| m.incarnation == watch.incarnation);
        let is_known = watch.is_known(now) && reports.is_known(now);
        if !is_here || control.drained.contains(&node) || !is_known {
            return Outcome::Dropped;
        }
        let Some((cause, over)) = fault(watch, reports, &self.settings) else {
            return Outcome::Dropped;
        };
        let mut decided = Decided {
            at: now,
            cause,
            act: Act::Stuck,
            key: None,
            from: node,
            to: None,
            shards: None,
            why: String::new(),
            figures: self.figures(cause, watch, over),
        };
        let what = self.reason(control, cause, watch, over);
        match self.pick(now, control, node, budget, round) {
            Pick::Waits => return Outcome::Waits,
            Pick::Rests => return Outcome::Rests,
            Pick::None => decided.why = format!("{what}; no instance there can move now"),
            Pick::Move(instance, to) => {
                decided.act = self.act(Act::Away);
                instance.note_in(&mut decided);
                decided.to = Some(to);
                decided.why = what;
            }
            Pick::Nowhere(instance, why) => {
                let why = by_node(control, &why, "; ");
                instance.note_in(&mut decided);
                decided.why = format!("{what}; no node can take it ({why})");
            }
        }
        Outcome::Decided(decided)
    }

    /// The busiest instance on a node that has a destination.
    fn pick(
        &self,
        now: Timestamp,
        control: &Control,
        node: NodeId,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Pick {
        let mut pick = Pick::None;
        let leaves = |m: &Migration| m.from == node;
        if control
            .apps
            .values()
            .any(|app| app.migrations.iter().any(leaves))
        {
            pick = Pick::Rests;
        }
        let busiest = self.reports[node.index()].busiest();
        for instance in busiest.into_iter().take(CANDIDATES_MAX) {
            let (key, cpu_permille) = (instance.key, instance.cpu_permille);
            let orchestration = &control.orchestration;
            let moved = orchestration.of(key);
            if moved.is_some_and(|moved| now < orchestration.rests_until(moved)) {
                if matches!(pick, Pick::None) {
                    pick = Pick::Rests;
                }
                continue;
            }
            let Some(moving) = Moving::new(control, key, node, cpu_permille) else {
                continue;
            };
            let found =
                round.with(|cluster| self.destination(now, control, cluster, &moving, node));
            match found {
                Ok(to) => {
                    let servers = self.servers(&[node, to]);
                    if budget.allows(&servers) {
                        budget.note(servers);
                        return Pick::Move(instance, to);
                    }
                    // It would be decided otherwise when it is looked at again.
                    round.move_primary(&moving, to, node);
                    return Pick::Waits;
                }
                Err(_) if matches!(pick, Pick::Nowhere(..)) => {}
                Err(why) => pick = Pick::Nowhere(instance, why),
            }
        }
        pick
    }

    fn act(&self, act: Act) -> Act {
        match self.settings.mode {
            OrchestratorMode::DryRun => Act::DryRun,
            _ => act,
        }
    }

    fn figures(
        &self,
        cause: Cause,
        node: &NodeWatch,
        over: Option<InstanceWatch>,
    ) -> BTreeMap<String, u64> {
        let mut figures = BTreeMap::from([
            ("queueLen".to_string(), node.load.queue_len.into()),
            ("busyPermille".to_string(), node.load.busy_permille.into()),
        ]);
        let mut put = |name: &str, value: u64| figures.insert(name.to_string(), value);
        if cause == Cause::Starvation {
            put("portPermille", node.load.port_permille.into());
            put("heartbeats", node.starved.into());
        }
        if let Some(over) = over {
            put("executionNs", over.execution_ns);
            put("averageNs", over.average_ns);
            put("reports", over.overloaded.into());
        }
        figures
    }

    /// The fault, in one line.
    fn reason(
        &self,
        control: &Control,
        cause: Cause,
        node: &NodeWatch,
        over: Option<InstanceWatch>,
    ) -> String {
        let queue = node.load.queue_len;
        match (cause, over) {
            (Cause::Overload, Some(over)) => {
                let name = control.shard_name(over.key);
                let (now_us, average_us) = (over.execution_ns / 1_000, over.average_ns / 1_000);
                let reports = over.overloaded;
                format!(
                    "overload: {name} takes {now_us} us for a request, {average_us} us on average, for {reports} reports"
                )
            }
            _ => {
                let port = f64::from(node.load.port_permille) / 10.0;
                let heartbeats = node.starved;
                format!(
                    "starvation: {queue} requests wait and {port:.1} % of the port are used, for {heartbeats} heartbeats"
                )
            }
        }
    }
}
