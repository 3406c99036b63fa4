//! How good a placement is: one measure for all placers. All of it is modelled.

use crate::cluster::Cluster;
use crate::decision::{Level, Placement, level};
use crate::latency::{Apart, between_us};
use crate::limits::BACKUP_CPU_FRACTION;
use crate::request::Request;
use e3_model::application::Flow;
use e3_model::{Application, NodeId, Profile, ServiceId, Topology, Watts};
use e3_power::knee::knee;
use e3_power::{IdleServers, Instance, Knee, KneeInput, ModelError, PowerModel};
use serde::Serialize;
use std::collections::BTreeMap;

/// The marks of a placement.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// Requests per joule at the knee. Servers without an instance sleep.
    pub requests_per_joule: f64,
    /// Requests per second at the knee.
    pub rate_rps: f64,
    /// Power at the knee.
    pub watts: Watts,
    /// Servers with an instance.
    pub servers: usize,
    /// Time that the messages of a request spend between nodes, in microseconds; one direction.
    pub communication_us: f64,
    /// Time of the longest path through an idle cluster, in microseconds.
    pub latency_us: f64,
    /// Part of its node's cores that others use at the knee, as a message finds it on average.
    pub interference: f64,
    /// Conditions that it breaks, in words.
    pub violations: Vec<String>,
}

/// The application with at most one replica on each server of a cluster: where there is one server,
/// there is no second fault domain.
pub fn with_possible_replicas(mut app: Application, topology: &Topology) -> Application {
    let servers: usize = topology.spec.racks.iter().map(|r| r.servers.len()).sum();
    for service in &mut app.spec.services {
        service.replicas = service.replicas.min(servers as u16);
    }
    app
}

/// Judges a placement of an application on a cluster that runs nothing else.
pub fn evaluate(
    request: &Request<'_>,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placement: &Placement,
) -> Result<Score, ModelError> {
    let power = PowerModel::paper();
    let visits: Vec<f64> = request
        .services()
        .map(|s| request.visits_expected(s))
        .collect();
    let instances = instances(placement);
    let knee = knee(&KneeInput {
        app: request.app,
        profiles,
        topology,
        idle_servers: IdleServers::Asleep,
        instances: &instances,
        visits: &visits,
        request_bytes: request.request_bytes(),
        backup_cpu_fraction: BACKUP_CPU_FRACTION,
        power: &power,
        knee_utilisation: request.knee_utilisation(),
    })?;
    let cluster = Cluster::new(topology);
    let judged = Judged {
        request,
        cluster: &cluster,
        placement,
        knee: &knee,
    };
    Ok(Score {
        requests_per_joule: knee.requests_per_joule,
        rate_rps: knee.rate_rps,
        watts: knee.watts_total,
        servers: knee.servers.iter().filter(|s| s.watts.0 > 0.0).count(),
        communication_us: judged.communication_us(),
        latency_us: judged.latency_us(),
        interference: judged.interference(),
        violations: judged.violations(),
    })
}

fn instances(placement: &Placement) -> Vec<Instance> {
    let decisions = placement.decisions.iter();
    let instance = decisions.map(|d| Instance {
        service: d.key.service,
        shard: d.key.shard,
        role: d.key.role(),
        node: d.node,
    });
    instance.collect()
}

/// Time of a message from one node to another, in microseconds: half a round trip.
fn hop_us(cluster: &Cluster, from: NodeId, to: NodeId) -> f64 {
    let (one, other) = (cluster.node(from), cluster.node(to));
    let apart = match level((from, one), (to, other)) {
        Level::SameNode => return 0.0,
        Level::SameServer => Apart::Nodes,
        _ => Apart::Servers,
    };
    between_us(apart, one.kind, other.kind)
}

struct Judged<'a> {
    request: &'a Request<'a>,
    cluster: &'a Cluster,
    placement: &'a Placement,
    knee: &'a Knee,
}

impl Judged<'_> {
    fn primaries(&self, service: ServiceId) -> Vec<NodeId> {
        let of = self.placement.decisions.iter();
        let of = of.filter(|d| d.key.service == service && d.key.replica == 0);
        of.map(|d| d.node).collect()
    }

    /// Mean time of a message between two services whose messages spread evenly.
    fn mean_hop_us(&self, from: ServiceId, to: ServiceId) -> f64 {
        let (senders, receivers) = (self.primaries(from), self.primaries(to));
        let pairs = senders
            .iter()
            .flat_map(|s| receivers.iter().map(move |r| (*s, *r)));
        mean(pairs.map(|(s, r)| hop_us(self.cluster, s, r)))
    }

    fn communication_us(&self) -> f64 {
        let app = self.request.app;
        let parents = |to: ServiceId| {
            let of = app.flows().filter(move |f| f.to == to);
            of.map(|f| self.request.visits_expected(f.from))
                .sum::<f64>()
        };
        let cost = app.flows().map(|Flow { from, to, is_call }| {
            let all = parents(to);
            let share = if all > 0.0 {
                self.request.visits_expected(from) / all
            } else {
                0.0
            };
            let back = if is_call {
                self.mean_hop_us(to, from)
            } else {
                0.0
            };
            self.request.visits_expected(to) * share * (self.mean_hop_us(from, to) + back)
        });
        cost.sum()
    }

    fn mean_time_us(&self, service: ServiceId) -> f64 {
        let nodes = self.primaries(service);
        mean(nodes.iter().map(|id| {
            let node = self.cluster.node(*id);
            let time = self.request.cost(service, node.kind).time;
            time.map_or(0.0, |t| t.as_secs_f64() * 1e6 / node.speed)
        }))
    }

    fn latency_us(&self) -> f64 {
        let hop = |from, to| self.mean_hop_us(from, to);
        self.request.paths().longest(|s| self.mean_time_us(s), hop)
    }

    /// Cores that a primary of a service keeps busy on a node at the knee.
    fn busy_cores(&self, service: ServiceId, node: NodeId) -> f64 {
        let kind = self.cluster.node(node).kind;
        let time = self.request.cost(service, kind).time;
        let shards = f64::from(self.request.app.service(service).shards);
        let rate = self.knee.rate_rps * self.request.visits_expected(service) / shards;
        rate * time.map_or(0.0, |t| t.as_secs_f64())
    }

    fn interference(&self) -> f64 {
        let (mut met, mut messages) = (0.0, 0.0);
        for d in self
            .placement
            .decisions
            .iter()
            .filter(|d| d.key.replica == 0)
        {
            let shards = f64::from(self.request.app.service(d.key.service).shards);
            let of_shard = self.request.visits_expected(d.key.service) / shards;
            let found = self.knee.nodes.binary_search_by_key(&d.node, |n| n.node);
            let used = found.map_or(0.0, |at| self.knee.nodes[at].utilisation);
            let own = self.busy_cores(d.key.service, d.node) / self.cluster.node(d.node).cores;
            met += of_shard * (used - own).max(0.0);
            messages += of_shard;
        }
        if messages > 0.0 { met / messages } else { 0.0 }
    }

    fn violations(&self) -> Vec<String> {
        let app = self.request.app;
        let mut found = Vec::new();
        for d in &self.placement.decisions {
            let name = &app.service(d.key.service).name;
            let at = &self.cluster.node(d.node).name;
            let instance = format!("{name}/{} replica {} on {at}", d.key.shard, d.key.replica);
            if let Some(misfit) = &d.overcommitted {
                found.push(format!("{instance}: {misfit}"));
            }
            let replicas = self.placement.replicas(d.key.service, d.key.shard);
            let before = replicas.iter().take(usize::from(d.key.replica));
            let server = |id: &NodeId| self.cluster.node(*id).server;
            if before.map(server).any(|s| s == server(&d.node)) {
                found.push(format!("{instance}: another replica is on the same server"));
            }
        }
        let (latency, objective) = (self.latency_us(), app.spec.objective.latency.as_secs_f64());
        if latency > objective * 1e6 {
            found.push(format!(
                "the longest path takes {latency:.0} us, the objective is {:.0} us",
                objective * 1e6
            ));
        }
        found
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(s, c), v| (s + v, c + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
