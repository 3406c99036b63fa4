//! What is read off a simulated cluster as it runs: marks of its counters, and the loads of its nodes.

use crate::model::Server;
use crate::report::{NodeLoad, Step};
use crate::simulator::Simulator;
use crate::totals::{Mark, Totals};
use e3_power::IdleServers;

impl Simulator {
    pub(crate) fn mark(&self) -> Mark {
        let (model, now) = (&self.model, self.now);
        let nodes = 0..model.nodes.len();
        let busy = |n: usize| self.threads.busy(model, &self.messages, n, now);
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
            failed: self.totals.failed,
        }
    }

    /// From here on it is measured.
    pub(crate) fn begin_measurement(&mut self) {
        let services = self.model.services.len();
        let fresh = Totals::new(&self.model);
        let (arrived, done, failed) = (self.totals.arrived, self.totals.done, self.totals.failed);
        self.totals = Totals {
            arrived,
            done,
            failed,
            handled: vec![0; services],
            pauses: self.totals.pauses.fresh(),
            ..fresh
        };
        self.requests.for_each(|r| r.weight_nj = 0.0);
        self.samples.clear();
        self.dropped.samples = 0;
        self.totals.begin = self.mark();
        self.totals.tick = self.totals.begin.clone();
    }

    /// Idle energy of a server in a time that ends now, in joules; nothing as long as it sleeps.
    pub(crate) fn idle_j(&self, server: &Server, from: u64) -> f64 {
        let from = match (self.model.options.idle_servers, server.used_from) {
            (IdleServers::On, _) => from,
            (IdleServers::Asleep, Some(used_from)) => from.max(used_from),
            (IdleServers::Asleep, None) => return 0.0,
        };
        server.idle_w * (self.now - from) as f64 * 1e-9
    }

    /// Loads since the last tick; a new interval begins.
    pub(crate) fn node_loads(&mut self) -> Vec<NodeLoad> {
        let mark = self.mark();
        let last = std::mem::replace(&mut self.totals.tick, mark);
        let (mark, model) = (&self.totals.tick, &self.model);
        let time = (mark.at - last.at).max(1) as f64;
        let before = |all: &[f64], at: usize| all.get(at).copied().unwrap_or(0.0);
        let load = |at: usize| NodeLoad {
            node: e3_model::NodeId::of_index(at),
            utilisation: (mark.work[at] - last.work.get(at).copied().unwrap_or(0)) as f64
                / time
                / f64::from(model.nodes[at].core_count),
            waiting: self.threads.waiting(at),
            held: self.paths.held(at),
            active_w: (mark.joules[at] - before(&last.joules, at)) / time * 1e9,
        };
        let loads: Vec<NodeLoad> = (0..model.nodes.len()).map(load).collect();
        let idle_j: f64 = model.servers.iter().map(|s| self.idle_j(s, last.at)).sum();
        let idle_w = idle_j / time * 1e9;
        let outcomes = self.totals.pauses.take_step();
        let step = Step {
            at_ms: last.at as f64 / 1e6,
            sent: mark.arrived - last.arrived,
            done: mark.done - last.done,
            other: outcomes.other,
            latency_us_max: outcomes.latency_max as f64 / 1e3,
            pause_ms_max: outcomes.pause_max as f64 / 1e6,
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
