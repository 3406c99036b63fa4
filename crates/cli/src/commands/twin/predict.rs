//! The simulator's side of the twin: profiles of services alone, and a machine as bare services show it.

use super::alone::{Alone, Flow};
use super::bare::Bares;
use crate::ui::failure::{Exit, Failure};
use e3_bench::twin::Point;
use e3_hardware::measured::Measured;
use e3_model::limits::SLOTS;
use e3_model::profile::{NodeCost, ProfileSpec, Provenance, ServiceTime};
use e3_model::{
    Application, Bytes, Nanos, NodeId, NodeKind, Profile, ServiceId, ShardId, Slot, Topology, Watts,
};
use e3_node::TURN_MAX;
use e3_perfsim::{
    HostPort, Input, Load, NoController, Options, Report, Run, Simulator, Sweep, sweep,
};
use e3_placement::{Decision, InstanceKey, Placement, Preference, Rule};
use serde::Serialize;
use std::collections::BTreeMap;

/// A variation of 0 means that it is not known.
const VARIATION_MIN: f64 = 0.001;
/// Requests of a run.
const REQUESTS: f64 = 50_000.0;

/// What is simulated.
pub struct Prediction<'a> {
    pub app: Application,
    pub topology: &'a Topology,
    pub placement: Placement,
    pub profiles: BTreeMap<String, Profile>,
    pub visits: Vec<f64>,
    pub request_bytes: u32,
    pub options: Options,
}

/// How a service takes part, for the report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    pub name: String,
    /// Messages with which it was measured, alone.
    pub messages: u64,
    /// Runs that do not count, since this machine preempted them.
    pub preempted: u64,
    pub handler_us: f64,
    pub variation: f64,
    pub messages_per_request: f64,
    /// Time of a message on each kind of node, the node's own part included.
    pub message_us: BTreeMap<NodeKind, f64>,
}

/// What the prediction is made from.
pub struct Known<'a> {
    pub app: &'a Application,
    pub topology: &'a Topology,
    pub placement: Placement,
    pub alone: &'a BTreeMap<String, Alone>,
    pub flow: &'a Flow,
    pub bares: &'a Bares,
    /// Profiles with which the application is deployed: how much slower a kind of node is emulated.
    pub deployed: &'a BTreeMap<String, Profile>,
}

/// Where an instance is: a primary's service, shard and node.
pub fn decision(service: u16, shard: u16, node: NodeId) -> Decision {
    Decision {
        key: InstanceKey {
            service: ServiceId(service),
            shard: ShardId(shard),
            replica: 0,
        },
        node,
        near: None,
        level: None,
        rule: Rule::Given,
        preference: Preference::None,
        rejected: Vec::new(),
        rejected_more: 0,
        considered: Vec::new(),
        overcommitted: None,
    }
}

impl Known<'_> {
    /// What is simulated, and how each service takes part.
    pub fn prediction(&self) -> (Prediction<'_>, Vec<ServiceView>) {
        let mut app = self.app.clone();
        let (mut profiles, mut views) = (BTreeMap::new(), Vec::new());
        for (i, service) in app.spec.services.iter_mut().enumerate() {
            // Two services may share a profile; here each has its own.
            service.profile = None;
            let id = ServiceId(i as u16);
            let alone = &self.alone[&service.name];
            let kinds = self.bares.nodes.keys();
            let times: BTreeMap<NodeKind, f64> = kinds
                .map(|kind| (*kind, self.message_ns(id, *kind)))
                .collect();
            views.push(ServiceView {
                name: service.name.clone(),
                messages: alone.messages,
                preempted: alone.preempted,
                handler_us: alone.mean_ns / 1e3,
                variation: alone.variation,
                messages_per_request: self.flow.visits[i],
                message_us: times.iter().map(|(k, ns)| (*k, ns / 1e3)).collect(),
            });
            profiles.insert(
                service.name.clone(),
                self.profile(&service.name, alone, &times),
            );
        }
        let options = Options {
            host_port: HostPort::Dedicated,
            machine: Some(self.machine()),
            answered_by: Some(self.flow.answered_by),
            ..Options::default()
        };
        let prediction = Prediction {
            app,
            topology: self.topology,
            placement: self.placement.clone(),
            profiles,
            visits: self.flow.visits.clone(),
            request_bytes: self.flow.request_bytes.max(1),
            options,
        };
        (prediction, views)
    }

    fn profile(&self, name: &str, alone: &Alone, times: &BTreeMap<NodeKind, f64>) -> Profile {
        let cost = |(kind, ns): (&NodeKind, &f64)| {
            // The handler varies, the node's part does not.
            let deviation = alone.variation * alone.mean_ns * self.factor(name, *kind);
            let cost = NodeCost {
                service_time: vec![ServiceTime {
                    bytes: self.flow.request_bytes.max(1),
                    time: Nanos(ns.round().max(1.0) as u64),
                    instructions: None,
                }],
                variation: (deviation / ns.max(1.0)).max(VARIATION_MIN),
                active_power_w: Watts(1.0),
                active_cores: 1.0,
                lower_bound: false,
            };
            (*kind, cost)
        };
        Profile {
            name: name.into(),
            spec: ProfileSpec {
                provenance: Provenance::Measured,
                source: "e3 twin: the service alone, and bare services on its node".into(),
                nodes: times.iter().map(cost).collect(),
                outputs: BTreeMap::new(),
                keys: 0,
                write_bytes: 0,
                memory: Bytes(0),
            },
        }
    }

    /// How many times longer than its handler a message occupies a core of this kind.
    fn factor(&self, service: &str, kind: NodeKind) -> f64 {
        let mut nodes = self.topology.nodes();
        if !self.topology.nodes().any(|n| n.node.emulated) {
            return 1.0;
        }
        let load = self.app.spec.load.as_ref();
        let bytes = load.map_or(512, |l| l.request_bytes);
        let named = self.app.service_named(service);
        let profile = named.and_then(|(_, s)| self.deployed.get(s.profile()));
        let speed = nodes.find(|n| n.node.kind == kind);
        let speed = speed
            .filter(|n| n.node.emulated)
            .map_or(1.0, |n| n.node.speed());
        profile.map_or(1.0, |p| p.slowdown(kind, bytes)) / speed
    }

    /// Time that a message of a service takes on a kind of node.
    fn message_ns(&self, service: ServiceId, kind: NodeKind) -> f64 {
        let name = &self.app.service(service).name;
        let node = &self.bares.nodes[&kind];
        let own = if *name == self.app.spec.ingress {
            node.request_ns
        } else {
            let remote = self.remote_in(service);
            let receive = self.bares.hop.map_or(0.0, |h| h.receive_ns);
            node.message_ns * (1.0 - remote) + receive * remote
        };
        let send = self.bares.hop.map_or(0.0, |h| h.send_ns);
        let own = own + send * self.remote_out(service);
        self.occupied_ns(name, kind, self.alone[name].mean_ns, own)
    }

    /// Where a handler is emulated slower, its core idles meanwhile, and the process does its own work in that time.
    fn occupied_ns(&self, name: &str, kind: NodeKind, handler_ns: f64, own_ns: f64) -> f64 {
        (handler_ns * self.factor(name, kind)).max(handler_ns + own_ns)
    }

    fn node(&self, service: ServiceId, slot: u16) -> Option<NodeId> {
        let shard = Slot(slot).shard(self.app.service(service).shards);
        let mut all = self.placement.decisions.iter();
        let of = |d: &&Decision| d.key.service == service && d.key.shard == shard;
        all.find(of).map(|d| d.node)
    }

    /// Part of a channel's slots whose two ends are on different nodes.
    fn crossing(&self, from: ServiceId, to: ServiceId) -> f64 {
        let slots = (0..SLOTS).step_by(usize::from(SLOTS / 256).max(1));
        let crossing: Vec<bool> = slots
            .map(|slot| self.node(from, slot) != self.node(to, slot))
            .collect();
        crossing.iter().filter(|c| **c).count() as f64 / crossing.len() as f64
    }

    /// Part of a service's messages that come from another node.
    fn remote_in(&self, service: ServiceId) -> f64 {
        let name = &self.app.service(service).name;
        let parents = self.app.spec.channels.iter().filter(|c| c.to == *name);
        let (mut all, mut remote) = (0.0, 0.0);
        for channel in parents {
            if let Some((from, _)) = self.app.service_named(&channel.from) {
                let visits = self.flow.visits[usize::from(from.0)];
                all += visits;
                remote += visits * self.crossing(from, service);
            }
        }
        if all > 0.0 { remote / all } else { 0.0 }
    }

    /// Messages to other nodes that a message of a service causes.
    fn remote_out(&self, service: ServiceId) -> f64 {
        let visits = self.flow.visits[usize::from(service.0)].max(f64::MIN_POSITIVE);
        let to = self.app.channels_from(service);
        let each = to.map(|(_, to, _)| {
            let outputs = (self.flow.visits[usize::from(to.0)] / visits).min(1.0);
            outputs * self.crossing(service, to)
        });
        each.sum()
    }

    /// Latencies: what round trips of bare services take beyond the processor time.
    fn machine(&self) -> Measured {
        let bares = self.bares;
        let client = |kind: NodeKind| {
            let Some(node) = bares.nodes.get(&kind) else {
                return 0;
            };
            let busy = bares.echo.mean_ns + node.request_ns + node.wake_ns;
            ((node.round_trip_ns - busy).max(0.0) / 2.0) as u64
        };
        let wake = |kind: NodeKind| bares.nodes.get(&kind).map_or(0, |n| n.wake_ns as u64);
        let hop = bares.hop.map_or(0.0, |hop| {
            let host = &bares.nodes[&NodeKind::Host];
            let more = hop.round_trip_ns - host.round_trip_ns;
            // The message wakes the SmartNIC. That its answer wakes the host remains part of the hop.
            let woken = wake(NodeKind::SmartNic) as f64;
            let busy = hop.send_ns + hop.receive_ns + bares.chain.mean_ns + woken;
            (more - busy).max(0.0) / 2.0
        });
        Measured {
            client_ns: [client(NodeKind::Host), client(NodeKind::SmartNic)],
            hop_ns: hop as u64,
            tail: bares.tail,
            wake_ns: [NodeKind::Host, NodeKind::SmartNic].map(wake),
            turn_max_ns: TURN_MAX.as_nanos() as u64,
        }
    }
}

impl Prediction<'_> {
    fn input(&self) -> Input<'_> {
        Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: self.topology,
            placement: &self.placement,
            visits: &self.visits,
            request_bytes: self.request_bytes,
            options: &self.options,
        }
    }

    fn run(&self, rate_rps: f64, seed: u64) -> Run {
        let duration = Nanos((REQUESTS / rate_rps * 1e9) as u64);
        Run {
            load: Load::Constant(rate_rps),
            warm_up: Nanos(duration.0 / 10),
            duration,
            seed,
            samples: false,
            spans: false,
        }
    }

    /// A load.
    pub fn at(&self, rate_rps: f64, seed: u64) -> Result<Report, Failure> {
        let simulator = Simulator::new(&self.input(), self.run(rate_rps, seed));
        let simulator = simulator.map_err(|e| Failure::new(Exit::Input, e))?;
        Ok(simulator.run(&mut NoController))
    }

    /// The whole curve.
    pub fn sweep(&self, seed: u64) -> Result<Sweep, Failure> {
        let mut run = self.run(1.0, seed);
        run.duration = Nanos::from_secs(60);
        run.warm_up = Nanos::from_secs(6);
        sweep(&self.input(), &run).map_err(|e| Failure::new(Exit::Input, e))
    }
}

/// A prediction as a point of a curve.
pub fn point(report: &Report) -> Point {
    Point {
        offered_rps: report.offered_rps,
        achieved_rps: report.achieved_rps,
        avg_us: report.latency_us_avg(),
        p50_us: report.latency.map_or(f64::NAN, |l| l.p50_us),
        p99_us: report.latency_us_p99(),
    }
}
