//! Totals since this controller started: sums over all node processes, so that no count falls when a
//! shard moves, a primary fails over or a node restarts.
//!
//! Nodes report totals of their process; the differences are added here. A node process that ran
//! before this controller is counted from its first report on. After a restart of the controller all
//! counts therefore begin at 0 together, like a counter reset in Prometheus.
//!
//! The energy here is modelled: joules of a service from the counts and its profile, watts of a node from the
//! power model and the part of its cores that the counts keep busy. What meters measure is in
//! [`crate::metering`].

use crate::limits::LATELY;
use crate::metering::{Metering, Used, UsedBy};
use e3_control::{AppState, Control};
use e3_model::plan::{IngressCounts, NodeReport, ShardCounts};
use e3_model::{AppId, NodeId, NodeKind, ServiceId, ShardId, ShardKey, Timestamp};
use e3_placement::Request;
use e3_power::PowerModel;
use std::collections::{BTreeMap, VecDeque};

/// Totals of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) handled: u64,
    /// Calls of other services that were answered.
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) expired: u64,
    pub(crate) busy_seconds: f64,
    /// Modelled joules above idle.
    pub(crate) joules: f64,
}

/// Totals of an application that belong to no shard.
#[derive(Debug, Default)]
pub(crate) struct AppTotals {
    pub(crate) admitted: u64,
    pub(crate) overloaded: u64,
    /// By second: requests dead-lettered, and those of them that had expired.
    lately: VecDeque<(u64, u64, u64)>,
}

/// Modelled energy of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NodeEnergy {
    pub(crate) idle_joules: f64,
    pub(crate) active_joules: f64,
    pub(crate) active_watts: f64,
}

/// The last report of a node process.
#[derive(Debug)]
struct Seen {
    incarnation: u32,
    at: Timestamp,
    shards: BTreeMap<ShardKey, ShardCounts>,
    ingress: BTreeMap<AppId, IngressCounts>,
}

/// By service and kind of node: seconds of service time and joules for each request.
type Costs = Vec<BTreeMap<NodeKind, (f64, Option<f64>)>>;

pub(crate) struct Counters {
    seen: BTreeMap<NodeId, Seen>,
    /// The version of the state whose applications are counted.
    version: u64,
    shards: BTreeMap<ShardKey, Totals>,
    apps: BTreeMap<AppId, AppTotals>,
    nodes: BTreeMap<NodeId, NodeEnergy>,
    costs: BTreeMap<AppId, Costs>,
    power: PowerModel,
    pub(crate) metering: Metering,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            seen: BTreeMap::new(),
            version: 0,
            shards: BTreeMap::new(),
            apps: BTreeMap::new(),
            nodes: BTreeMap::new(),
            costs: BTreeMap::new(),
            power: PowerModel::paper(),
            metering: Metering::default(),
        }
    }
}

/// The increase of a count; a count lower than before has restarted at 0.
fn increase(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Adds to a total. A node's report may be wrong, so this saturates.
pub(crate) fn add(total: &mut u64, more: u64) {
    *total = total.saturating_add(more);
}

/// What the profiles of an application say.
fn costs_of(app: &AppState) -> Costs {
    let request = Request::new(&app.plan.app, &app.profiles);
    let cost = |service| {
        let of = |kind| {
            let cost = request.cost(service, kind);
            let seconds = cost.time.map_or(0.0, |t| t.as_secs_f64());
            (kind, (seconds, cost.joules))
        };
        [NodeKind::Host, NodeKind::SmartNic].map(of).into()
    };
    request.services().map(cost).collect()
}

impl Counters {
    /// Notes that a new process of a node has joined: everything that it reports is new.
    pub(crate) fn on_join(&mut self, now: Timestamp, node: NodeId, incarnation: u32) {
        self.metering.on_join(node);
        let seen = Seen {
            incarnation,
            at: now,
            shards: BTreeMap::new(),
            ingress: BTreeMap::new(),
        };
        self.seen.insert(node, seen);
    }

    /// A node is removed from the topology.
    pub(crate) fn on_remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.metering.on_remove(node);
    }

    /// Adds what is new in a report.
    pub(crate) fn on_report(&mut self, now: Timestamp, report: &NodeReport, control: &Control) {
        if self.version != control.version {
            self.version = control.version;
            self.forget_deleted(control);
        }
        let counts = report.counts.iter();
        let next = Seen {
            incarnation: report.incarnation,
            at: now,
            shards: counts.map(|c| (c.key, c.clone())).collect(),
            ingress: report.stats.ingress.clone(),
        };
        let Some(before) = self.seen.insert(report.node, next) else {
            return;
        };
        if before.incarnation != report.incarnation {
            return;
        }
        let Some(node) = control.topology.node(report.node) else {
            return;
        };
        let mut busy_core_seconds = 0.0;
        let mut used = UsedBy::new();
        for c in report.counts.iter() {
            let Some(app) = control.apps.get(&c.key.app) else {
                continue;
            };
            let costs = self.costs.entry(c.key.app).or_insert_with(|| costs_of(app));
            let Some(costs) = costs.get(usize::from(c.key.service.0)) else {
                continue;
            };
            let (seconds, joules) = costs[&node.node.kind];
            let old = before.shards.get(&c.key);
            let by_service = used.entry((c.key.app, c.key.service)).or_default();
            let runs = self.add_shard(now, c, old, joules.unwrap_or(0.0), by_service);
            busy_core_seconds += runs as f64 * seconds;
        }
        self.add_ingress(report, &before, control);
        let is_emulated = node.node.emulated;
        self.metering
            .on_report(report.node, is_emulated, &report.stats, used);
        let span = now.since(before.at).as_secs_f64();
        self.add_energy(&node, busy_core_seconds, span);
    }

    /// Adds what is new of a shard; gives how many requests and calls it has handled since the report before.
    fn add_shard(
        &mut self,
        now: Timestamp,
        c: &ShardCounts,
        old: Option<&ShardCounts>,
        joules: f64,
        by_service: &mut Used,
    ) -> u64 {
        let since = |of: fn(&ShardCounts) -> u64| increase(of(c), old.map_or(0, of));
        let handled = since(|c| c.handled);
        let calls = since(|c| c.calls);
        let runs = handled.saturating_add(calls);
        let (dead, expired) = (since(|c| c.dead_lettered), since(|c| c.expired));
        let busy_seconds = since(|c| c.busy.0) as f64 / 1e9;
        let totals = self.shards.entry(c.key).or_default();
        add(&mut totals.handled, handled);
        add(&mut totals.calls, calls);
        add(&mut totals.failed, since(|c| c.failed));
        add(&mut totals.dead_lettered, dead);
        add(&mut totals.expired, expired);
        totals.busy_seconds += busy_seconds;
        totals.joules += runs as f64 * joules;
        by_service.busy_seconds += busy_seconds;
        add(&mut by_service.handled, runs);
        self.apps
            .entry(c.key.app)
            .or_default()
            .note(now, dead, expired);
        runs
    }

    /// Adds what is new of the requests that came from clients.
    fn add_ingress(&mut self, report: &NodeReport, before: &Seen, control: &Control) {
        for (app, latest) in &report.stats.ingress {
            if !control.apps.contains_key(app) {
                continue;
            }
            let old = before.ingress.get(app).cloned().unwrap_or_default();
            let totals = self.apps.entry(*app).or_default();
            add(
                &mut totals.admitted,
                increase(latest.admitted, old.admitted),
            );
            add(
                &mut totals.overloaded,
                increase(latest.overloaded, old.overloaded),
            );
        }
    }

    fn add_energy(
        &mut self,
        node: &e3_model::topology::NodeRef<'_>,
        busy_core_seconds: f64,
        span: f64,
    ) {
        let server = node.in_server;
        let at = server.nodes.iter().position(|n| n.name == node.node.name);
        let Some(at) = at.filter(|_| span > 0.0) else {
            return;
        };
        let mut busy = vec![0.0; server.nodes.len()];
        busy[at] = (busy_core_seconds / span).min(f64::from(node.node.cores));
        let Ok(power) = self.power.server(server, &busy) else {
            return;
        };
        let energy = self.nodes.entry(node.id).or_default();
        energy.active_watts = power.active[at].0;
        energy.active_joules += power.active[at].0 * span;
        if at == 0 {
            energy.idle_joules += power.idle.0 * span;
        }
    }

    fn forget_deleted(&mut self, control: &Control) {
        let runs = |app: &AppId| control.apps.contains_key(app);
        self.shards.retain(|key, _| runs(&key.app));
        self.apps.retain(|app, _| runs(app));
        self.costs.retain(|app, _| runs(app));
        self.metering.forget_deleted(runs);
    }

    /// Totals of a shard.
    pub(crate) fn shard(&self, key: ShardKey) -> Totals {
        self.shards.get(&key).copied().unwrap_or_default()
    }

    /// Totals of a service, with those of shards that have become others: they never fall.
    pub(crate) fn service(&self, app: AppId, service: ServiceId) -> Totals {
        let key = |shard| ShardKey {
            app,
            service,
            shard: ShardId(shard),
        };
        let mut all = Totals::default();
        for (_, shard) in self.shards.range(key(0)..=key(u16::MAX)) {
            add(&mut all.handled, shard.handled);
            add(&mut all.calls, shard.calls);
            add(&mut all.failed, shard.failed);
            add(&mut all.dead_lettered, shard.dead_lettered);
            add(&mut all.expired, shard.expired);
            all.busy_seconds += shard.busy_seconds;
            all.joules += shard.joules;
        }
        all
    }

    /// Requests of an application that were admitted, and that were answered "overloaded".
    pub(crate) fn ingress(&self, app: AppId) -> (u64, u64) {
        let totals = self.apps.get(&app);
        totals.map_or((0, 0), |t| (t.admitted, t.overloaded))
    }

    /// Requests of an application that were dead-lettered lately, and those of them that expired.
    pub(crate) fn dead_lettered_lately(&self, now: Timestamp, app: AppId) -> (u64, u64) {
        let totals = self.apps.get(&app);
        totals.map_or((0, 0), |t| t.lately(now))
    }

    /// Modelled energy of a node.
    pub(crate) fn node(&self, node: NodeId) -> Option<NodeEnergy> {
        self.nodes.get(&node).copied()
    }
}

impl AppTotals {
    fn note(&mut self, now: Timestamp, dead: u64, expired: u64) {
        let second = now.since(Timestamp::ZERO).as_secs();
        if dead > 0 {
            match self.lately.back_mut() {
                Some(last) if last.0 == second => {
                    add(&mut last.1, dead);
                    add(&mut last.2, expired);
                }
                _ => self.lately.push_back((second, dead, expired)),
            }
        }
        let first = second.saturating_sub(LATELY.as_secs());
        while self.lately.front().is_some_and(|(at, _, _)| *at < first) {
            self.lately.pop_front();
        }
    }

    fn lately(&self, now: Timestamp) -> (u64, u64) {
        let first = (now - LATELY).since(Timestamp::ZERO).as_secs();
        let recent = self.lately.iter().filter(|(at, _, _)| *at >= first);
        recent.fold((0, 0), |sum: (u64, u64), &(_, dead, expired)| {
            (sum.0.saturating_add(dead), sum.1.saturating_add(expired))
        })
    }
}
