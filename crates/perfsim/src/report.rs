//! What a run predicts. All of it is modelled.

use e3_model::profile::Provenance;
use e3_model::{Latency, NodeId, NodeKind};
use serde::Serialize;

/// The result of a run. What `e3 load` reports too has the same names and units; a test compares them. The simulator's
/// steps also have power and requests in flight.
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
    /// Requests in flight at the end.
    pub in_flight: usize,
    /// Latency of the requests that were answered; None if there are none.
    pub latency: Option<Latency>,
    /// Longest time without an outcome while requests were in flight.
    pub longest_pause_ms: f64,
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
    /// What faults and moves did to requests.
    pub disruption: Disruption,
    /// Energy and to whom it is attributed.
    pub energy: Energy,
    /// The run in a hundred steps.
    pub timeline: Vec<Step>,
    /// What was assumed beyond the profiles, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// Events that were simulated.
    pub events: u64,
    /// What samples and spans lack.
    pub dropped: Dropped,
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

impl Report {
    /// Mean latency in microseconds; not a number if no request was answered.
    pub fn latency_us_avg(&self) -> f64 {
        self.latency.map_or(f64::NAN, |l| l.avg_us)
    }

    /// Latency in microseconds that 99 of 100 requests did not exceed; not a number if no request was answered.
    pub fn latency_us_p99(&self) -> f64 {
        self.latency.map_or(f64::NAN, |l| l.p99_us)
    }
}

/// Samples and spans that were asked for and not kept, since there were more than
/// [`SAMPLES_MAX`](crate::limits::SAMPLES_MAX) and [`SPANS_MAX`](crate::limits::SPANS_MAX). The first ones are
/// kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Dropped {
    /// Samples.
    pub samples: u64,
    /// Spans.
    pub spans: u64,
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

/// What faults and moves did to requests, since the measurement began. A message that is lost is sent
/// again, so its request is late or fails; none is dropped silently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Disruption {
    /// Requests that were answered later than the application's objective for the latency.
    pub requests_late: u64,
    /// Requests whose clients gave up.
    pub requests_failed: u64,
    /// Messages that were lost at nodes and links that had failed.
    pub messages_lost: u64,
    /// Primaries that moved to another node, fail-overs included.
    pub moves: u64,
    /// Copies of shards that began.
    pub copies: u64,
    /// Bytes of state that were copied.
    pub copied_bytes: u64,
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

/// A hundredth of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Step {
    /// Its start, since the run began.
    pub at_ms: f64,
    /// Requests that arrived.
    pub sent: u64,
    /// Requests that were answered.
    pub done: u64,
    /// Other outcomes: requests that were refused.
    pub other: u64,
    /// Longest latency of the requests answered.
    pub latency_us_max: f64,
    /// Longest time without an outcome that ended in it, while requests were in flight.
    pub pause_ms_max: f64,
    /// Power of all servers.
    pub watts: f64,
    /// Requests in flight at its end.
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
    pub node: u32,
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
