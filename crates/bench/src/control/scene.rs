//! A large cluster that is nearly full.

use e3_model::application::Application;
use e3_model::document::parse_application;
use e3_model::limits::NODES_MAX;
use e3_model::plan::Role;
use e3_model::topology::{Node, Rack, Server, TopologySpec};
use e3_model::{Bytes, NodeId, NodeKind, ServiceId, Topology};
use e3_placement::{Cluster, PlaceError, Placement, Placer, Request};
use e3_random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A host and four SmartNICs.
pub(super) const NODES_PER_SERVER: usize = 5;
/// The largest cluster: as many nodes as a topology may have.
pub(super) const SERVERS_MAX: usize = NODES_MAX / NODES_PER_SERVER;
const SERVERS_PER_RACK: usize = 40;
/// Part of the cores that is reserved.
const FULL: f64 = 0.9;
const GI: u64 = 1 << 30;

/// The cluster and the applications that come and go.
pub(super) struct Scene {
    cluster: Cluster,
    random: Random,
    /// Oldest first.
    running: VecDeque<(Application, Placement)>,
}

/// Times of a measurement.
pub(super) struct Times {
    /// By application: its time over its instances.
    pub(super) us: Vec<f64>,
    pub(super) instances: usize,
    total_us: f64,
}

impl Times {
    pub(super) fn mean_us(&self) -> f64 {
        self.total_us / self.instances as f64
    }

    pub(super) fn p99_us(&self) -> f64 {
        let mut sorted = self.us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * 99 / 100]
    }
}

impl Scene {
    /// A cluster of so many servers, nine tenths of it reserved.
    pub(super) fn new(servers: usize, seed: u64) -> Scene {
        let mut scene = Scene {
            cluster: Cluster::new(&topology(servers)),
            random: Random::new(seed),
            running: VecDeque::new(),
        };
        scene.fill();
        scene
    }

    /// Instances come at random nodes and some go again, which leaves holes of all sizes.
    fn fill(&mut self) {
        let nodes = self.cluster.nodes().count();
        let fillers: Vec<Application> = (0..16).map(|_| filler(&mut self.random)).collect();
        let requests = fillers
            .iter()
            .map(|app| Request::new(app, &BTreeMap::new()));
        let requests: Vec<_> = requests.collect();
        for at in 0..nodes {
            let id = NodeId::of_index(at);
            // Nodes are between three quarters and wholly full.
            let goal = 0.8 + 0.2 * self.random.unit();
            let mut put = Vec::new();
            loop {
                let node = self.cluster.node(id);
                let used = 1.0 - node.cpu_left_cores() / node.cores;
                let request = self.random.pick(&requests);
                let need = request.demand(ServiceId(0), Role::Primary, node.kind);
                if used >= goal
                    || need.cpu_cores > node.cpu_left_cores()
                    || need.memory_bytes > node.memory_left_bytes()
                {
                    break;
                }
                self.cluster.add(request, ServiceId(0), Role::Primary, id);
                put.push(request);
            }
            if self.random.one_in(8) && put.len() > 1 {
                let gone = put[self.random.index(put.len())];
                self.cluster.remove(gone, ServiceId(0), Role::Primary, id);
            }
        }
    }

    /// Part of the cores that is reserved.
    pub(super) fn used(&self) -> f64 {
        let (used, all) = self
            .cluster
            .nodes()
            .fold((0.0, 0.0), |(used, all), (_, n)| {
                (used + n.used.cpu_cores, all + n.cores)
            });
        used / all
    }

    /// Mean time of a decision in microseconds, over applications that are placed for so long and
    /// removed again; one at least.
    pub(super) fn time_for(
        &mut self,
        length: Duration,
        place: &mut dyn FnMut(&Request<'_>, &mut Cluster) -> Result<Placement, PlaceError>,
    ) -> Result<f64, String> {
        let (mut total, mut instances) = (Duration::ZERO, 0);
        while total < length {
            let app = application(&mut self.random);
            let request = Request::new(&app, &BTreeMap::new());
            let placed = self.cluster.try_out(|cluster| {
                let start = Instant::now();
                let placed = place(&request, cluster);
                total += start.elapsed();
                placed
            });
            instances += placed.map_err(|e| e.to_string())?.decisions.len();
        }
        Ok(total.as_secs_f64() * 1e6 / instances as f64)
    }

    /// Places applications of so many instances in all; the oldest ones go as others come.
    pub(super) fn time(&mut self, placer: &dyn Placer, instances: usize) -> Times {
        let mut times = Times {
            us: Vec::new(),
            instances: 0,
            total_us: 0.0,
        };
        while times.instances < instances {
            if self.used() > FULL || self.running.len() > 64 {
                self.remove_oldest();
            }
            let app = application(&mut self.random);
            let request = Request::new(&app, &BTreeMap::new());
            let start = Instant::now();
            let placed = placer.place(&request, &mut self.cluster);
            let us = start.elapsed().as_secs_f64() * 1e6;
            let placement = placed.expect("every node is a member");
            let count = placement.decisions.len();
            times.instances += count;
            times.total_us += us;
            times.us.push(us / count as f64);
            self.running.push_back((app, placement));
        }
        times
    }

    fn remove_oldest(&mut self) {
        let Some((app, placement)) = self.running.pop_front() else {
            return;
        };
        let request = Request::new(&app, &BTreeMap::new());
        for d in &placement.decisions {
            self.cluster
                .remove(&request, d.key.service, d.key.role(), d.node);
        }
    }
}

/// Racks of Type2 servers.
pub(super) fn topology(servers: usize) -> Topology {
    let node = |name: String, kind, cores, memory| Node {
        name,
        kind,
        cores,
        memory: Bytes(memory),
        disk: None,
        emulated: true,
        emulation: None,
        relay: false,
        link_latency: None,
        bandwidth_gbps: 8.0,
        accelerators: Default::default(),
    };
    let server = |number: usize| {
        let host = node(format!("s{number}-host"), NodeKind::Host, 16, 128 * GI);
        let smartnic = |i| node(format!("s{number}-nic{i}"), NodeKind::SmartNic, 12, 4 * GI);
        Server {
            name: format!("s{number}"),
            system: "Type2-SmartNIC".into(),
            power_budget_w: None,
            nodes: std::iter::once(host).chain((0..4).map(smartnic)).collect(),
        }
    };
    let racks = (0..servers.div_ceil(SERVERS_PER_RACK)).map(|rack| {
        let first = rack * SERVERS_PER_RACK;
        let last = (first + SERVERS_PER_RACK).min(servers);
        Rack {
            name: format!("r{rack}"),
            power_budget_w: None,
            servers: (first..last).map(server).collect(),
        }
    });
    let racks = racks.collect();
    Topology::new(format!("{servers}x-type2"), TopologySpec { racks })
}

/// One service with a shard that takes up to two cores and 256 MiB.
fn filler(random: &mut Random) -> Application {
    let cpu = 0.05 + random.unit() * random.unit() * 2.0;
    let memory = 16 + random.below(240);
    let service = service("s0", cpu, memory, 1, 1);
    parse("any", &format!("{service}  channels: []\n"))
}

/// A chain of 2 to 12 services, each with up to 8 shards and two replicas.
fn application(random: &mut Random) -> Application {
    let services = 2 + random.below(11);
    let mut text = String::new();
    for s in 0..services {
        let cpu = 0.01 + random.unit() * random.unit() * 0.8;
        let memory = 8 + random.below(120);
        let (shards, replicas) = (1 + random.below(8), 1 + random.below(2));
        text += &service(&format!("s{s}"), cpu, memory, shards, replicas);
    }
    text += "  channels:\n";
    for to in 1..services {
        writeln!(text, "    - {{from: s{}, to: s{to}}}", random.below(to)).expect("into memory");
    }
    parse("any", &text)
}

pub(super) fn service(name: &str, cpu: f64, memory: u64, shards: u64, replicas: u64) -> String {
    format!(
        "    - {{name: {name}, module: m, stateful: true, shards: {shards}, replicas: {replicas}, \
         resources: {{cpu: {cpu:.3}, memory: {memory}Mi}}}}\n"
    )
}

pub(super) fn parse(name: &str, rest: &str) -> Application {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec:\n  \
         objective: {{latency: 5ms}}\n  ingress: s0\n  services:\n{rest}"
    );
    parse_application("any", &text).expect("made to be valid")
}
