//! What a run predicts. All of it is modelled.

use crate::limits::{GROWTH_MAX, SATURATED_USE};
use crate::simulator::Simulator;
use crate::totals::Mark;
use e3_model::profile::Provenance;
use e3_model::{NodeId, NodeKind};
use serde::Serialize;

/// The result of a run. Fields that `e3 load` reports too have the same names.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Always modelled.
    pub provenance: Provenance,
    /// Seed; the same seed gives the same report.
    pub seed: u64,
    /// Length of the run in simulated time.
    pub duration_s: f64,
    /// Length of what was measured, after the warm-up.
    pub measured_s: f64,
    /// Requests that arrived per second.
    pub offered_rps: f64,
    /// Requests that were answered per second.
    pub achieved_rps: f64,
    /// The cluster cannot carry the load: latencies depend on the length of the run.
    pub saturated: bool,
    /// Requests under way at the end.
    pub in_flight: usize,
    /// Latency of the requests that were answered.
    pub latency: Latency,
    /// Energy of all servers over the requests answered; None if there are none.
    pub joules_per_request: Option<f64>,
    /// The inverse.
    pub requests_per_joule: f64,
    /// Mean power of all servers.
    pub watts_total: f64,
    /// What is used most.
    pub bottleneck: Bottleneck,
    /// Services.
    pub services: Vec<ServiceReport>,
    /// Nodes.
    pub nodes: Vec<NodeReport>,
    /// Energy and to whom it is attributed.
    pub energy: Energy,
    /// The run in a hundred steps.
    pub timeline: Vec<Step>,
    /// Events that were simulated.
    pub events: u64,
    /// Samples, if they were asked for.
    #[serde(skip)]
    pub samples: Vec<Sample>,
    /// Spans, if they were asked for.
    #[serde(skip)]
    pub spans: Vec<Span>,
    /// Highest number of pending events.
    #[serde(skip)]
    pub pending_max: usize,
    /// Memory of the simulation at its end, samples and spans excluded.
    #[serde(skip)]
    pub memory_bytes: usize,
}

/// Latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Average.
    pub avg_us: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What is used most.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bottleneck {
    /// What it is.
    pub what: Resource,
    /// Node; of links between racks, empty.
    pub node: String,
    /// Part of the time that it was used.
    pub utilisation: f64,
}

/// A resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Cores of a node.
    Cores,
    /// One hardware thread, such as that of a stateful shard.
    Thread,
    /// Port of a node.
    Port,
    /// DMA engines of a SmartNIC.
    Pcie,
    /// A link between racks.
    Uplink,
}

impl Resource {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Resource::Cores => "cores",
            Resource::Thread => "one hardware thread",
            Resource::Port => "network port",
            Resource::Pcie => "DMA engines",
            Resource::Uplink => "a link between racks",
        }
    }
}

/// A service.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServiceReport {
    /// Name.
    pub name: String,
    /// Messages that it handled.
    pub handled: u64,
    /// Those of a request.
    pub messages_per_request: f64,
    /// Mean time of a message at its node, waiting included.
    pub sojourn_us: f64,
    /// Its part of the cluster's energy.
    pub joules: f64,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeReport {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: NodeKind,
    /// Part of its cores' capacity that work took.
    pub utilisation: f64,
    /// Use of its port in the busier direction.
    pub port_utilisation: f64,
    /// Mean power above its server's idle power.
    pub watts: f64,
    /// Messages that wait at the end.
    pub waiting: u32,
}

/// Energy in joules.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// Of all servers.
    pub total_j: f64,
    /// Attributed to requests that were answered.
    pub requests_j: f64,
    /// Attributed to those in flight at the beginning or the end.
    pub in_flight_j: f64,
}

/// A part of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Step {
    /// Its start.
    pub at_s: f64,
    /// Requests that arrived per second.
    pub offered_rps: f64,
    /// Requests that were answered per second.
    pub achieved_rps: f64,
    /// Power of all servers.
    pub watts: f64,
    /// Requests under way at its end.
    pub in_flight: usize,
}

/// The load of a node, as a controller sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeLoad {
    /// Node.
    pub node: NodeId,
    /// Part of its cores' capacity that work took.
    pub utilisation: f64,
    /// Messages that wait for its threads.
    pub waiting: u32,
    /// Messages that its traffic manager holds.
    pub held: u32,
    /// Mean power above its server's idle power.
    pub active_w: f64,
}

/// A request that was answered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// When it was sent.
    pub start_ns: u64,
    /// Latency.
    pub latency_ns: u64,
    /// Energy that is attributed to it.
    pub joules: f64,
}

/// When a message ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Node.
    pub node: u16,
    /// Hardware thread of the node.
    pub thread: u32,
    /// Service.
    pub service: u16,
    /// It was a log entry.
    pub is_backup: bool,
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

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
            joules_per_request: (done > 0).then(|| energy.total / done as f64),
            requests_per_joule: done as f64 / energy.total,
            watts_total: energy.total / seconds,
            bottleneck,
            services: self.service_reports(&energy.services, arrived),
            nodes: self.node_reports(&end, &energy.nodes, seconds),
            energy: Energy {
                total_j: energy.total,
                requests_j: energy.requests,
                in_flight_j: energy.in_flight,
            },
            timeline: std::mem::take(&mut self.totals.timeline),
            events: self.events,
            samples,
            spans: std::mem::take(&mut self.spans),
            pending_max: self.pending_max,
            memory_bytes: self.memory_bytes(),
        }
    }

    fn latency(&self) -> Latency {
        let of = &self.totals.latency;
        if of.is_empty() {
            return Latency::default();
        }
        let at = |quantile| of.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            avg_us: self.totals.latency_sum / of.len() as f64 / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: of.max() as f64 / 1e3,
        }
    }

    /// Whether requests come faster than they are answered: a resource is full, or those in flight
    /// grow by more than chance explains.
    fn is_saturated(&self, utilisation: f64) -> bool {
        let grows = self.totals.middle.is_some_and(|(in_flight, arrived)| {
            let arrived = (self.totals.arrived - arrived) as f64;
            let growth = self.requests.len() as f64 - in_flight as f64;
            growth > GROWTH_MAX * arrived + 4.0 * arrived.sqrt()
        });
        self.overflowed || grows || utilisation >= SATURATED_USE
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
            let threads = node.first_thread as usize..(node.first_thread + node.threads()) as usize;
            let busy = threads.map(|t| end.busy[t] - begin.busy[t]);
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
