//! Counters of a run, and the energy that follows from them.
//!
//! Energy is attributed such that the sums over services and over requests are the cluster's energy.
//! A message weighs what its work would draw on one core (for a SmartNIC, its share of the constant
//! power). A node's energy above idle is divided among the services in proportion to the weights on it, a
//! server's idle energy to the weights on the server, and the energy of servers without work to all
//! weights. A request gets the part of the cluster's energy that its weight has in all weights. What
//! is still in flight at the end keeps its part.

use crate::model::Model;
use crate::report::{NodeLoad, Step};
use crate::simulator::Simulator;
use e3_power::IdleServers;
use hdrhistogram::Histogram;

const SIGNIFICANT_DIGITS: u8 = 3;

/// What was counted when.
#[derive(Clone, Default)]
pub(crate) struct Mark {
    pub at: u64,
    pub joules: Vec<f64>,
    pub work: Vec<u64>,
    pub ports: Vec<(u64, u64)>,
    pub dma: Vec<u64>,
    /// By thread.
    pub busy: Vec<u64>,
    pub uplink: u64,
    pub arrived: u64,
    pub done: u64,
}

/// The counters.
pub(crate) struct Totals {
    pub arrived: u64,
    pub done: u64,
    pub latency: Histogram<u64>,
    pub latency_sum: f64,
    /// By node and service.
    pub weight_nj: Vec<f64>,
    /// Of requests that arrived and were answered while it was measured.
    pub request_weight_nj: f64,
    /// Of requests that had arrived before.
    pub other_weight_nj: f64,
    /// By service.
    pub handled: Vec<u64>,
    pub sojourn_ns: Vec<f64>,
    /// Where the measurement begins.
    pub begin: Mark,
    /// At the last tick.
    pub tick: Mark,
    /// In flight and arrived in the middle of the measurement.
    pub middle: Option<(usize, u64)>,
    pub timeline: Vec<Step>,
}

impl Totals {
    pub fn new(model: &Model) -> Totals {
        let services = model.services.len();
        Totals {
            arrived: 0,
            done: 0,
            latency: Histogram::new_with_bounds(
                1,
                crate::limits::DURATION_MAX.0,
                SIGNIFICANT_DIGITS,
            )
            .expect("a valid precision"),
            latency_sum: 0.0,
            weight_nj: vec![0.0; model.nodes.len() * services],
            request_weight_nj: 0.0,
            other_weight_nj: 0.0,
            handled: vec![0; services],
            sojourn_ns: vec![0.0; services],
            begin: Mark::default(),
            tick: Mark::default(),
            middle: None,
            timeline: Vec::new(),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.weight_nj.len() * size_of::<f64>()
            + self.latency.distinct_values() * size_of::<u64>()
            + self.timeline.len() * size_of::<Step>()
    }
}

/// Where the energy went, in joules.
pub(crate) struct Attributed {
    pub total: f64,
    pub nodes: Vec<f64>,
    pub services: Vec<f64>,
    pub requests: f64,
    pub in_flight: f64,
    /// Energy of a nanojoule of weight.
    pub per_weight: f64,
}

impl Simulator {
    pub(crate) fn mark(&self) -> Mark {
        let (model, now) = (&self.model, self.now);
        let nodes = 0..model.nodes.len();
        let busy = |n: usize| self.threads.busy(model, n, now);
        Mark {
            at: now,
            joules: nodes
                .clone()
                .map(|n| self.threads.joules(model, n, now))
                .collect(),
            work: nodes.clone().map(|n| self.threads.work(n)).collect(),
            ports: nodes
                .clone()
                .map(|n| self.paths.port_busy(n, now))
                .collect(),
            dma: nodes.clone().map(|n| self.paths.dma_busy(n, now)).collect(),
            busy: nodes.flat_map(busy).collect(),
            uplink: self.paths.uplink_busy(now),
            arrived: self.totals.arrived,
            done: self.totals.done,
        }
    }

    /// From here on it is measured.
    pub(crate) fn begin_measurement(&mut self) {
        let services = self.model.services.len();
        let fresh = Totals::new(&self.model);
        let (arrived, done) = (self.totals.arrived, self.totals.done);
        self.totals = Totals {
            arrived,
            done,
            handled: vec![0; services],
            ..fresh
        };
        self.requests.for_each(|r| r.weight_nj = 0.0);
        self.totals.begin = self.mark();
        self.totals.tick = self.totals.begin.clone();
    }

    /// Idle power of a server; nothing if it sleeps.
    fn idle_w(&self, server: &crate::model::Server) -> f64 {
        let asleep = self.model.options.idle_servers == IdleServers::Asleep;
        if asleep && !server.is_used {
            0.0
        } else {
            server.idle_w
        }
    }

    /// The energy since the measurement began.
    pub(crate) fn attributed(&self) -> Attributed {
        let (model, begin, end) = (&self.model, &self.totals.begin, self.mark());
        let services = model.services.len();
        let seconds = (end.at - begin.at) as f64 * 1e-9;
        let nodes: Vec<f64> = end
            .joules
            .iter()
            .zip(&begin.joules)
            .map(|(e, b)| e - b)
            .collect();
        let idle = model.servers.iter().map(|s| self.idle_w(s) * seconds);
        let mut servers: Vec<f64> = idle.collect();
        let mut of_services = vec![0.0; services];
        // A node without work leaves its energy to its server, a server to the cluster.
        let mut of_server = vec![0.0; servers.len() * services];
        let mut shared = servers.clone();
        for (at, node) in model.nodes.iter().enumerate() {
            let server = node.server as usize;
            servers[server] += nodes[at];
            let weights = &self.totals.weight_nj[at * services..(at + 1) * services];
            for (sum, w) in of_server[server * services..].iter_mut().zip(weights) {
                *sum += w;
            }
            shared[server] += divide(nodes[at], weights, &mut of_services);
        }
        let mut rest = 0.0;
        for (at, joules) in shared.iter().enumerate() {
            let weights = &of_server[at * services..(at + 1) * services];
            rest += divide(*joules, weights, &mut of_services);
        }
        let mut all = vec![0.0; services];
        for weights in self.totals.weight_nj.chunks(services) {
            all.iter_mut().zip(weights).for_each(|(sum, w)| *sum += w);
        }
        divide(rest, &all, &mut of_services);
        let total: f64 = servers.iter().sum();
        let weight: f64 = all.iter().sum();
        let per_weight = if weight > 0.0 { total / weight } else { 0.0 };
        Attributed {
            total,
            nodes,
            services: of_services,
            requests: self.totals.request_weight_nj * per_weight,
            in_flight: (self.open_weight() + self.totals.other_weight_nj) * per_weight,
            per_weight,
        }
    }

    /// Weight of the requests that are under way.
    fn open_weight(&self) -> f64 {
        self.requests.live().map(|r| r.weight_nj).sum()
    }

    /// Loads since the last tick, which begins anew.
    pub(crate) fn node_loads(&mut self) -> Vec<NodeLoad> {
        let mark = self.mark();
        let last = std::mem::replace(&mut self.totals.tick, mark);
        let (mark, model) = (&self.totals.tick, &self.model);
        let time = (mark.at - last.at).max(1) as f64;
        let before = |all: &[f64], at: usize| all.get(at).copied().unwrap_or(0.0);
        let load = |at: usize| NodeLoad {
            node: e3_model::NodeId(at as u16),
            utilisation: (mark.work[at] - last.work.get(at).copied().unwrap_or(0)) as f64
                / time
                / f64::from(model.nodes[at].core_count),
            waiting: self.threads.waiting(at),
            held: self.paths.held(at),
            active_w: (mark.joules[at] - before(&last.joules, at)) / time * 1e9,
        };
        let loads: Vec<NodeLoad> = (0..model.nodes.len()).map(load).collect();
        let idle_w: f64 = model.servers.iter().map(|s| self.idle_w(s)).sum();
        let step = Step {
            at_s: last.at as f64 * 1e-9,
            offered_rps: (mark.arrived - last.arrived) as f64 / time * 1e9,
            achieved_rps: (mark.done - last.done) as f64 / time * 1e9,
            watts: idle_w + loads.iter().map(|l| l.active_w).sum::<f64>(),
            in_flight: self.requests.len(),
        };
        if self.now > self.totals.begin.at {
            self.totals.timeline.push(step);
        }
        let half = self.totals.begin.at + (self.run.duration.0 - self.totals.begin.at) / 2;
        if self.now >= half && self.totals.middle.is_none() {
            self.totals.middle = Some((self.requests.len(), self.totals.arrived));
        }
        loads
    }
}

/// Divides an amount in proportion to weights; the result is what could not be divided.
fn divide(amount: f64, weights: &[f64], parts: &mut [f64]) -> f64 {
    let all: f64 = weights.iter().sum();
    if all <= 0.0 {
        return amount;
    }
    for (part, weight) in parts.iter_mut().zip(weights) {
        *part += amount * weight / all;
    }
    0.0
}
