//! What is known of the load of nodes and instances, and when it is a fault. E3 (USENIX ATC 2019), 3.4.

use crate::limits::{
    AVERAGE_REPORTS, BUSY_PERCENT_FULL, DESTINATION_BUSY_PERCENT_MAX, EXECUTION_SAMPLES_MIN,
    LOAD_AGE_MAX, REPORT_AGE_MAX, REPORT_SPAN_MIN,
};
use crate::orchestration::{Act, CPU_PERMILLE, Decided, cooldown};
use crate::state::Control;
use e3_model::orchestrator::{Cause, OrchestratorSettings};
use e3_model::topology::Node;
use e3_model::{AppId, Nanos, NodeId, NodeKind, ShardKey, Timestamp};

/// Load of a node, from a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLoad {
    /// Requests that wait on it; on a SmartNIC that relays, at its traffic manager.
    pub queue_len: u32,
    /// Busy part of a core in thousandths, summed over cores.
    pub busy_permille: u16,
    /// Used part of its port in thousandths; 0 also if it does not measure that.
    pub port_permille: u16,
}

/// What a process has done as the primary of a shard, since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceLoad {
    /// The shard.
    pub key: ShardKey,
    /// Requests.
    pub handled: u64,
    /// Time in the handler.
    pub busy: Nanos,
    /// Memory of its state; 0 if it is not known.
    pub state_bytes: u64,
}

/// A node. It fills a cache line, so that a heartbeat reads one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct NodeWatch {
    pub(super) load: NodeLoad,
    pub(super) incarnation: u32,
    /// The last heartbeat.
    heard: Timestamp,
    /// No decision before that.
    pub(super) rests_until: Timestamp,
    /// The shortest queue since the last report.
    queue_min: u32,
    /// Heartbeats in a row that show starvation.
    pub(super) starved: u32,
    pub(super) server: u32,
    pub(super) cores: u16,
    /// Cores on which its handlers run: all that it emulates, and otherwise the one of its process.
    pub(super) workers: u16,
    /// Cool-downs that ended without a move, in a row.
    pub(super) repeats: u8,
    pub(super) is_smartnic: bool,
    /// Its port was in use once, so it measures it.
    measures_port: bool,
    /// Datagrams passed it between the last two reports.
    has_traffic: bool,
    /// It waits for a decision.
    pub(super) is_queued: bool,
}

impl NodeWatch {
    /// What the topology says of the node.
    pub(super) fn set_hardware(&mut self, node: &Node, server: usize) {
        self.server = server as u32;
        self.cores = node.cores;
        self.workers = if node.emulated { node.cores } else { 1 };
        self.is_smartnic = node.kind == NodeKind::SmartNic;
    }

    /// Takes a heartbeat; true if the node is starved.
    #[inline]
    pub(super) fn on_heartbeat(
        &mut self,
        now: Timestamp,
        incarnation: u32,
        load: NodeLoad,
        s: &OrchestratorSettings,
    ) -> bool {
        if self.incarnation != incarnation {
            if incarnation < self.incarnation {
                return false;
            }
            self.restart(incarnation);
        }
        self.heard = now;
        self.load = load;
        self.queue_min = self.queue_min.min(load.queue_len);
        self.measures_port |= load.port_permille > 0;
        let under_used = u32::from(load.port_permille) < 10 * s.starvation_port_percent;
        let evident = self.measures_port && (load.port_permille > 0 || self.has_traffic);
        if self.is_smartnic && evident && under_used && load.queue_len >= s.starvation_queue_min {
            self.starved = self.starved.saturating_add(1);
        } else {
            self.starved = 0;
        }
        self.starved >= s.starvation_heartbeats
    }

    /// Another process of the node: what the last one did says nothing of it.
    fn restart(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
        self.starved = 0;
        self.queue_min = 0;
        self.measures_port = false;
        self.has_traffic = false;
    }

    pub(super) fn on_report(&mut self, has_traffic: bool) {
        self.has_traffic = has_traffic;
        self.queue_min = self.load.queue_len;
    }

    /// Requests waited all the time since the last report, or all its cores are busy.
    pub(super) fn is_full(&self, s: &OrchestratorSettings) -> bool {
        self.queue_min >= s.overload_queue_min || !self.has_free_core()
    }

    /// Whether not all its cores are busy.
    pub(super) fn has_free_core(&self) -> bool {
        let full = u64::from(self.cores) * 10 * BUSY_PERCENT_FULL;
        u64::from(self.load.busy_permille) < full
    }

    pub(super) fn kind(&self) -> NodeKind {
        if self.is_smartnic {
            NodeKind::SmartNic
        } else {
            NodeKind::Host
        }
    }

    /// Whether its last heartbeat is recent.
    pub(super) fn is_known(&self, now: Timestamp) -> bool {
        now.since(self.heard) <= LOAD_AGE_MAX
    }

    /// Whether so many more thousandths of a core keep it below this part of its cores.
    pub(super) fn holds(&self, more_permille: u64, percent: u64) -> bool {
        let busy = u64::from(self.load.busy_permille).saturating_add(more_permille);
        busy <= u64::from(self.cores) * 10 * percent
    }

    /// Leaves the node alone for a while: longer each time that nothing was moved.
    pub(super) fn rest(&mut self, now: Timestamp, act: Act, s: &OrchestratorSettings) {
        let length = |repeats| cooldown(s.node_cooldown_s, repeats, s.cooldown_s_max);
        let last: Nanos = length(u32::from(self.repeats));
        let is_new = now.since(self.rests_until) > last;
        self.repeats = match act {
            Act::Away
            | Act::Back
            | Act::Follow
            | Act::Shed
            | Act::Split
            | Act::Merge
            | Act::Spread => 0,
            Act::DryRun | Act::Stuck if is_new => 0,
            Act::DryRun | Act::Stuck => self.repeats.saturating_add(1),
        };
        self.rests_until = now + length(u32::from(self.repeats));
        // What led to the decision does not count for the next one.
        self.starved = 0;
    }
}

/// The instances on a node, as its reports have them.
#[derive(Debug, Default)]
pub(super) struct Reports {
    incarnation: u32,
    at: Timestamp,
    /// Time since the report before, of the same process.
    span: Nanos,
    datagrams: u64,
    /// There were two of this process, so the use of processor time is known.
    is_measured: bool,
    /// Invariant: ordered by key.
    instances: Vec<InstanceWatch>,
}

/// An instance on a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceWatch {
    pub(super) key: ShardKey,
    handled: u64,
    busy: Nanos,
    /// Moving average of its execution time.
    pub(super) average_ns: u64,
    /// Execution times in the average, at most [`AVERAGE_REPORTS`].
    samples: u32,
    /// The last execution time.
    pub(super) execution_ns: u64,
    /// Thousandths of a core that it used.
    pub(super) cpu_permille: u64,
    /// Reports in a row that show overload.
    pub(super) overloaded: u32,
    /// Requests between the last two reports.
    lately: u64,
    /// Memory of its state; 0 if it is not known.
    pub(super) state_bytes: u64,
}

impl InstanceWatch {
    /// A decision is about this instance.
    pub(super) fn note_in(self, decided: &mut Decided) {
        decided.key = Some(self.key);
        decided.note(CPU_PERMILLE, self.cpu_permille);
    }

    fn new(load: &InstanceLoad) -> InstanceWatch {
        InstanceWatch {
            key: load.key,
            handled: load.handled,
            busy: load.busy,
            average_ns: 0,
            samples: 0,
            execution_ns: 0,
            cpu_permille: 0,
            overloaded: 0,
            lately: 0,
            state_bytes: load.state_bytes,
        }
    }

    /// The same after a further report. The average does not learn an execution time that exceeds it
    /// on a full node: it would take the overload for normal while it lasts.
    fn after(
        self,
        load: &InstanceLoad,
        span: Nanos,
        is_full: bool,
        s: &OrchestratorSettings,
    ) -> InstanceWatch {
        let (Some(handled), Some(busy)) = (
            load.handled.checked_sub(self.handled),
            load.busy.0.checked_sub(self.busy.0),
        ) else {
            return InstanceWatch::new(load);
        };
        let mut next = InstanceWatch {
            handled: load.handled,
            busy: load.busy,
            cpu_permille: busy.saturating_mul(1_000) / span.0.max(1),
            lately: handled,
            state_bytes: load.state_bytes,
            ..self
        };
        if handled < EXECUTION_SAMPLES_MIN {
            next.overloaded = 0;
            return next;
        }
        next.execution_ns = busy / handled;
        let limit = self.average_ns / 100 * (100 + u64::from(s.overload_percent));
        let is_known = self.samples >= AVERAGE_REPORTS;
        if is_known && is_full && next.execution_ns > limit {
            next.overloaded = self.overloaded.saturating_add(1);
        } else {
            next.overloaded = 0;
            next.learn();
        }
        next
    }

    /// The mean of the first execution times, then a moving average of the same weight.
    fn learn(&mut self) {
        self.samples = (self.samples + 1).min(AVERAGE_REPORTS);
        let (weight, sum) = (u64::from(self.samples), u64::from(self.samples - 1));
        let before = self.average_ns.saturating_mul(sum);
        self.average_ns = before.saturating_add(self.execution_ns) / weight;
    }

    /// Forgets the average: another version of the service runs.
    fn restart(&mut self) {
        self.samples = 0;
        self.overloaded = 0;
    }
}

impl Reports {
    /// Takes a report; true if an instance is overloaded.
    pub(super) fn on_report(
        &mut self,
        now: Timestamp,
        (incarnation, datagrams): (u32, u64),
        loads: impl Iterator<Item = InstanceLoad>,
        node: &mut NodeWatch,
        s: &OrchestratorSettings,
    ) -> bool {
        let is_same = self.incarnation == incarnation;
        let (span, is_full) = (now.since(self.at), node.is_full(s));
        if is_same && span < REPORT_SPAN_MIN {
            return self.overloaded(s).is_some();
        }
        let instances = loads.map(|load| match self.of(load.key).filter(|_| is_same) {
            Some(before) => before.after(&load, span, is_full, s),
            None => InstanceWatch::new(&load),
        });
        let mut instances: Vec<InstanceWatch> = instances.collect();
        instances.sort_by_key(|i| i.key);
        instances.dedup_by_key(|i| i.key);
        node.on_report(is_same && datagrams > self.datagrams);
        *self = Reports {
            incarnation,
            at: now,
            span: if is_same { span } else { Nanos(0) },
            datagrams,
            is_measured: is_same,
            instances,
        };
        self.overloaded(s).is_some()
    }

    /// An instance that is on this node, or was.
    pub(super) fn of(&self, key: ShardKey) -> Option<InstanceWatch> {
        let at = self.instances.binary_search_by_key(&key, |i| i.key).ok()?;
        Some(self.instances[at])
    }

    /// What each instance has handled between the last two reports, and the time between them, if the
    /// last one is of this time.
    pub(super) fn handled_at(
        &self,
        now: Timestamp,
    ) -> Option<(Nanos, impl Iterator<Item = (ShardKey, u64)>)> {
        let handled = self.instances.iter().map(|i| (i.key, i.lately));
        (self.at == now).then_some((self.span, handled))
    }

    /// The instance that is overloaded for the longest time.
    pub(super) fn overloaded(&self, s: &OrchestratorSettings) -> Option<InstanceWatch> {
        let over = self.instances.iter().copied();
        let over = over.filter(|i| i.overloaded >= s.overload_reports);
        over.max_by_key(|i| i.overloaded)
    }

    /// All of them, the busiest first.
    pub(super) fn busiest(&self) -> Vec<InstanceWatch> {
        let mut all = self.instances.clone();
        all.retain(|i| i.cpu_permille > 0);
        all.sort_by_key(|i| (std::cmp::Reverse(i.cpu_permille), i.key));
        all
    }

    /// Thousandths of a core that its instances keep busy.
    pub(super) fn busy_permille(&self) -> u64 {
        self.instances.iter().map(|i| i.cpu_permille).sum()
    }

    /// Cores that its instances keep busy.
    pub(super) fn busy_cores(&self) -> f64 {
        self.busy_permille() as f64 / 1e3
    }

    /// Whether the load of its instances is known.
    pub(super) fn is_known(&self, now: Timestamp) -> bool {
        self.is_measured && now.since(self.at) <= REPORT_AGE_MAX
    }

    pub(super) fn restart(&mut self, app: AppId) {
        let of_app = self.instances.iter_mut().filter(|i| i.key.app == app);
        of_app.for_each(InstanceWatch::restart);
    }
}

/// Whether a node reaches the one that an instance leaves, and has cores for it.
pub(super) fn has_room(
    now: Timestamp,
    control: &Control,
    nodes: &[NodeWatch],
    (from, to): (NodeId, NodeId),
    more_permille: u64,
) -> Result<(), String> {
    let misses = |a, b| {
        let member = control.members.get(&a);
        member.is_some_and(|m| m.unreachable.contains(&b))
    };
    if misses(from, to) || misses(to, from) {
        return Err("the network between the two nodes is cut".into());
    }
    let node = nodes.get(to.index()).filter(|n| n.is_known(now));
    let Some(node) = node else {
        return Err("its load is not known".into());
    };
    if node.is_queued || node.starved > 0 {
        return Err("it is overloaded itself".into());
    }
    if !node.holds(more_permille, DESTINATION_BUSY_PERCENT_MAX) {
        let busy = f64::from(node.load.busy_permille) / 1e3;
        let (cores, more) = (node.cores, more_permille as f64 / 1e3);
        return Err(format!(
            "needs {more:.2} cores, {busy:.2} of {cores} are busy, must be at most {DESTINATION_BUSY_PERCENT_MAX} %"
        ));
    }
    Ok(())
}

/// The fault that a node shows.
pub(super) fn fault(
    node: &NodeWatch,
    reports: &Reports,
    s: &OrchestratorSettings,
) -> Option<(Cause, Option<InstanceWatch>)> {
    if node.starved >= s.starvation_heartbeats {
        return Some((Cause::Starvation, None));
    }
    let over = reports.overloaded(s).filter(|_| node.is_smartnic)?;
    Some((Cause::Overload, Some(over)))
}
