//! The report of a run, made at its end.

use crate::limits::{GROWTH_MAX, SATURATED_USE};
use crate::report::{Bottleneck, Disruption, Energy, NodeReport, Report, Resource, ServiceReport};
use crate::simulator::Simulator;
use crate::totals::Mark;
use e3_model::Latency;
use e3_model::profile::Provenance;

impl Simulator {
    pub(crate) fn report(mut self) -> Report {
        let energy = self.attributed();
        let begin = &self.totals.begin;
        let end = self.mark();
        let seconds = (end.at - begin.at).max(1) as f64 * 1e-9;
        let (arrived, done) = (end.arrived - begin.arrived, end.done - begin.done);
        let bottleneck = self.bottleneck(&end, seconds);
        let mut samples = std::mem::take(&mut self.samples);
        for sample in &mut samples {
            sample.joules *= energy.per_weight;
        }
        Report {
            provenance: Provenance::Modelled,
            seed: self.run.seed,
            duration_s: end.at as f64 * 1e-9,
            measured_s: seconds,
            offered_rps: arrived as f64 / seconds,
            achieved_rps: done as f64 / seconds,
            saturated: self.is_saturated(bottleneck.utilisation),
            in_flight: self.requests.len(),
            latency: self.latency(),
            longest_pause_ms: self.totals.pauses.longest(end.at, self.requests.len()) as f64 / 1e6,
            joules_per_request: (done > 0).then(|| energy.total / done as f64),
            requests_per_joule: done as f64 / energy.total,
            watts_total: energy.total / seconds,
            bottleneck,
            services: self.service_reports(&energy.services, arrived),
            nodes: self.node_reports(&end, &energy.nodes, seconds),
            disruption: Disruption {
                requests_late: self.totals.late,
                requests_failed: end.failed - begin.failed,
                messages_lost: self.totals.messages_lost,
                moves: self.totals.moves,
                copies: self.totals.copies,
                copied_bytes: self.totals.copied_bytes,
            },
            energy: Energy {
                total_j: energy.total,
                requests_j: energy.requests,
                in_flight_j: energy.in_flight,
            },
            timeline: std::mem::take(&mut self.totals.timeline),
            assumptions: std::mem::take(&mut self.model.assumptions),
            events: self.events,
            dropped: self.dropped,
            samples,
            spans: std::mem::take(&mut self.spans),
            pending_max: self.pending_max,
            memory_bytes: self.memory_bytes(),
        }
    }

    fn latency(&self) -> Option<Latency> {
        let of = &self.totals.latency;
        let at = |quantile| of.value_at_quantile(quantile) as f64 / 1e3;
        (!of.is_empty()).then(|| Latency {
            avg_us: self.totals.latency_sum / of.len() as f64 / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: of.max() as f64 / 1e3,
        })
    }

    /// Whether requests come faster than they are answered: a resource is full, or those in flight
    /// grow by more than chance explains.
    fn is_saturated(&self, utilisation: f64) -> bool {
        let grows = self.totals.middle.is_some_and(|(in_flight, arrived)| {
            let arrived = (self.totals.arrived - arrived) as f64;
            let growth = self.requests.len() as f64 - in_flight as f64;
            growth > GROWTH_MAX * arrived + 4.0 * arrived.sqrt()
        });
        self.overflowed || self.refused > 0 || grows || utilisation >= SATURATED_USE
    }

    fn bottleneck(&self, end: &Mark, seconds: f64) -> Bottleneck {
        let begin = &self.totals.begin;
        let ns = seconds * 1e9;
        let mut most = Bottleneck {
            what: Resource::Cores,
            node: String::new(),
            utilisation: 0.0,
        };
        let mut consider = |what, node: &str, time: u64, servers: f64| {
            let utilisation = time as f64 / ns / servers;
            if utilisation > most.utilisation {
                most = Bottleneck {
                    what,
                    node: node.to_string(),
                    utilisation,
                };
            }
        };
        for (at, node) in self.model.nodes.iter().enumerate() {
            let name = &node.name;
            let cores = f64::from(node.core_count);
            consider(Resource::Cores, name, end.work[at] - begin.work[at], cores);
            let busy = node.all_threads().map(|t| end.busy[t] - begin.busy[t]);
            consider(Resource::Thread, name, busy.max().unwrap_or(0), 1.0);
            let (tx, rx) = (
                end.ports[at].0 - begin.ports[at].0,
                end.ports[at].1 - begin.ports[at].1,
            );
            consider(Resource::Port, name, tx.max(rx), 1.0);
            let engines = e3_hardware::pcie::DMA_ENGINES as f64;
            consider(Resource::Pcie, name, end.dma[at] - begin.dma[at], engines);
        }
        consider(
            Resource::Uplink,
            "",
            end.uplink.saturating_sub(begin.uplink),
            1.0,
        );
        most
    }

    fn service_reports(&self, joules: &[f64], arrived: u64) -> Vec<ServiceReport> {
        let services = self.model.services.iter().enumerate();
        let report = |(i, service): (usize, &crate::model::Service)| {
            let handled = self.totals.handled[i];
            ServiceReport {
                name: service.name.clone(),
                handled,
                messages_per_request: handled as f64 / arrived.max(1) as f64,
                sojourn_us: self.totals.sojourn_ns[i] / handled.max(1) as f64 / 1e3,
                joules: joules[i],
            }
        };
        services.map(report).collect()
    }

    fn node_reports(&self, end: &Mark, joules: &[f64], seconds: f64) -> Vec<NodeReport> {
        let begin = &self.totals.begin;
        let nodes = self.model.nodes.iter().enumerate();
        let report = |(at, node): (usize, &crate::model::Node)| {
            let (tx, rx) = (
                end.ports[at].0 - begin.ports[at].0,
                end.ports[at].1 - begin.ports[at].1,
            );
            let work = (end.work[at] - begin.work[at]) as f64 * 1e-9;
            NodeReport {
                name: node.name.clone(),
                kind: node.kind,
                utilisation: work / seconds / f64::from(node.core_count),
                port_utilisation: tx.max(rx) as f64 * 1e-9 / seconds,
                watts: joules[at] / seconds,
                waiting: self.threads.waiting(at),
            }
        };
        nodes.map(report).collect()
    }
}
