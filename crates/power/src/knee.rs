//! How fast an application can go on given nodes, and what that costs: operational analysis
//! (Denning and Buzen 1978). Everything here is modelled.
//!
//! The load is taken to spread evenly over the shards of a service. A node is busy for the service
//! times of the messages that its primaries handle, plus a small part for those that its backups
//! apply. The application is at its knee when the first resource is at [`KNEE_UTILISATION`]: a node's
//! cores, the one core that a shard of a stateful service has, or a node's port in either direction.
//! Messages from another server cross the ports; a channel's messages are taken to spread evenly over
//! the sender's shards. Energy efficiency is that of the paper: rate over the power of all servers,
//! idle included, at the knee.

#[cfg(doc)]
use crate::limits::KNEE_UTILISATION;
use crate::limits::WIRE_OVERHEAD_BYTES;
use crate::power::{PowerModel, UnknownSystem};
use e3_model::application::Flow;
use e3_model::plan::Role;
use e3_model::profile::Provenance;
use e3_model::topology::NodeRef;
use e3_model::{Application, NodeId, NodeKind, Profile, ServiceId, ShardId, Topology, Watts};
use serde::Serialize;
use std::collections::BTreeMap;

/// An instance and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// Primary or backup.
    pub role: Role,
    /// Node.
    pub node: NodeId,
}

/// What a server without an instance does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleServers {
    /// It draws its idle power, as in the paper's experiments.
    On,
    /// It sleeps and draws nothing.
    Asleep,
}

/// What the model needs.
#[derive(Clone, Copy)]
pub struct KneeInput<'a> {
    /// The application.
    pub app: &'a Application,
    /// Profiles by name.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// The cluster.
    pub topology: &'a Topology,
    /// What its servers without an instance do.
    pub idle_servers: IdleServers,
    /// All instances.
    pub instances: &'a [Instance],
    /// Handled messages per client request, by service: measured, or from
    /// [`e3_model::visits::visits`].
    pub visits: &'a [f64],
    /// Size of a message.
    pub request_bytes: u32,
    /// Part of a handler's time that it takes a backup to apply its writes.
    pub backup_cpu_fraction: f64,
    /// Power model.
    pub power: &'a PowerModel,
    /// Use of the first resource at the knee: [`KNEE_UTILISATION`], unless it is varied.
    pub knee_utilisation: f64,
}

/// What the model cannot do without.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ModelError {
    /// The server's system is unknown.
    #[error(transparent)]
    System(#[from] UnknownSystem),
    /// No service time.
    #[error("service {service:?}: profile {profile:?} gives no service time on a {}", .kind.name())]
    Profile {
        /// Service.
        service: String,
        /// Its profile.
        profile: String,
        /// Kind of node.
        kind: NodeKind,
    },
    /// An instance is on a node that the topology does not have.
    #[error("{node} is not in topology {topology:?}")]
    Node {
        /// Node.
        node: NodeId,
        /// Topology.
        topology: String,
    },
    /// Lengths differ.
    #[error("{visits} visit ratios for {services} services")]
    Visits {
        /// Given.
        visits: usize,
        /// Needed.
        services: usize,
    },
    /// No resource is used, so no rate is the highest.
    #[error("application {0:?}: no instance handles anything")]
    NoLoad(String),
}

/// What bounds the rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bottleneck {
    /// Cores of a node.
    Cores {
        /// Node.
        node: NodeId,
    },
    /// The one core of a stateful shard.
    Shard {
        /// Node.
        node: NodeId,
        /// Service.
        service: ServiceId,
        /// Shard.
        shard: ShardId,
    },
    /// Port of a node.
    Port {
        /// Node.
        node: NodeId,
    },
}

/// Use of a node.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUse {
    /// Node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Use of its cores, 0 to 1.
    pub utilisation: f64,
    /// Use of its port, 0 to 1.
    pub port_utilisation: f64,
    /// Its part of the server's power above idle.
    pub watts: Watts,
}

/// Power of a server.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerUse {
    /// Its name.
    pub name: String,
    /// Idle power.
    pub idle_w: Watts,
    /// All of it.
    pub watts: Watts,
}

/// The cluster at a rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Knee {
    /// Always modelled.
    pub provenance: Provenance,
    /// Client requests per second.
    pub rate_rps: f64,
    /// Power of all servers.
    pub watts_total: Watts,
    /// Requests per joule, idle power included.
    pub requests_per_joule: f64,
    /// What is used most.
    pub bottleneck: Bottleneck,
    /// Use of that, 0 to 1.
    pub bottleneck_utilisation: f64,
    /// Nodes, by id.
    pub nodes: Vec<NodeUse>,
    /// Servers.
    pub servers: Vec<ServerUse>,
}

/// What one client request takes of a node.
#[derive(Clone, Copy, Default)]
struct PerRequest {
    core_seconds: f64,
    bytes_in: f64,
    bytes_out: f64,
}

/// The cluster's linear use of resources.
struct Costs {
    nodes: Vec<PerRequest>,
    /// What is used most at any rate, and how much of it per request a second.
    bottleneck: Bottleneck,
    worst: f64,
}

/// The knee: the highest rate at which no resource is used more than `knee_utilisation`.
pub fn knee(input: &KneeInput<'_>) -> Result<Knee, ModelError> {
    let costs = costs(input)?;
    at(input, &costs, input.knee_utilisation / costs.worst)
}

/// The cluster at a rate. Beyond what it can carry, the use is more than 1 and the power that of full
/// nodes.
pub fn power_at(input: &KneeInput<'_>, rate_rps: f64) -> Result<Knee, ModelError> {
    at(input, &costs(input)?, rate_rps)
}

fn at(input: &KneeInput<'_>, costs: &Costs, rate_rps: f64) -> Result<Knee, ModelError> {
    let mut nodes = Vec::new();
    let mut servers = Vec::new();
    let mut used = vec![false; costs.nodes.len()];
    for instance in input.instances {
        used[instance.node.index()] = true;
    }
    let all = input.topology.spec.racks.iter().flat_map(|r| &r.servers);
    // Within a server, the ids ascend.
    let mut ids: Vec<Vec<NodeId>> = vec![Vec::new(); all.clone().count()];
    for place in input.topology.nodes() {
        ids[place.server].push(place.id);
    }
    for (server, ids) in all.zip(&ids) {
        let per: Vec<PerRequest> = ids.iter().map(|id| costs.nodes[id.index()]).collect();
        let busy: Vec<f64> = per.iter().map(|p| p.core_seconds * rate_rps).collect();
        let mut power = input.power.server(server, &busy)?;
        let is_used = ids.iter().any(|id| used[id.index()]);
        if input.idle_servers == IdleServers::Asleep && !is_used {
            power.idle = Watts(0.0);
        }
        for (i, n) in server.nodes.iter().enumerate() {
            nodes.push(NodeUse {
                node: ids[i],
                name: n.name.clone(),
                utilisation: busy[i] / f64::from(n.cores),
                port_utilisation: rate_rps * per[i].port(n.port_capacity_gbps()),
                watts: power.active[i],
            });
        }
        servers.push(ServerUse {
            name: server.name.clone(),
            idle_w: power.idle,
            watts: power.total(),
        });
    }
    nodes.sort_unstable_by_key(|n| n.node);
    let watts_total: f64 = servers.iter().map(|s| s.watts.0).sum();
    Ok(Knee {
        provenance: Provenance::Modelled,
        rate_rps,
        watts_total: Watts(watts_total),
        requests_per_joule: rate_rps / watts_total,
        bottleneck: costs.bottleneck.clone(),
        bottleneck_utilisation: costs.worst * rate_rps,
        nodes,
        servers,
    })
}

impl PerRequest {
    /// Part of a port that one request a second uses in the busier direction.
    fn port(&self, gbps: f64) -> f64 {
        self.bytes_in.max(self.bytes_out) * 8.0 / (gbps * 1e9)
    }
}

fn costs(input: &KneeInput<'_>) -> Result<Costs, ModelError> {
    let app = input.app;
    if input.visits.len() != app.spec.services.len() {
        return Err(ModelError::Visits {
            visits: input.visits.len(),
            services: app.spec.services.len(),
        });
    }
    let places = input.topology.nodes().map(|place| (place.id, place));
    let places: BTreeMap<NodeId, NodeRef<'_>> = places.collect();
    let mut nodes = vec![PerRequest::default(); input.topology.table_len()];
    let mut most: Option<(f64, Bottleneck)> = None;
    let mut consider = |used: f64, what: Bottleneck| {
        if used > 0.0 && most.as_ref().is_none_or(|(m, _)| used > *m) {
            most = Some((used, what));
        }
    };
    for instance in input.instances {
        let at = instance.node.index();
        let place = places.get(&instance.node).ok_or_else(|| ModelError::Node {
            node: instance.node,
            topology: input.topology.name.clone(),
        })?;
        let service = app.service(instance.service);
        let profile = input.profiles.get(service.profile());
        let time = profile.and_then(|p| p.service_time(place.node.kind, input.request_bytes));
        let time = time.ok_or_else(|| ModelError::Profile {
            service: service.name.clone(),
            profile: service.profile().to_string(),
            kind: place.node.kind,
        })?;
        let messages = messages(input, instance.service);
        let part = match instance.role {
            Role::Primary => 1.0,
            Role::Backup | Role::Joining => input.backup_cpu_fraction,
        };
        // What a core of the node is occupied for.
        let core_seconds = messages * time.as_secs_f64() * part / place.node.speed();
        nodes[at].core_seconds += core_seconds;
        if service.stateful {
            let what = Bottleneck::Shard {
                node: instance.node,
                service: instance.service,
                shard: instance.shard,
            };
            consider(core_seconds, what);
        }
    }
    traffic(input, &places, &mut nodes);
    for (id, place) in &places {
        let (node, per) = (*id, &nodes[id.index()]);
        let cores = per.core_seconds / f64::from(place.node.cores);
        consider(cores, Bottleneck::Cores { node });
        consider(
            per.port(place.node.port_capacity_gbps()),
            Bottleneck::Port { node },
        );
    }
    let (worst, bottleneck) = most.ok_or_else(|| ModelError::NoLoad(app.name.clone()))?;
    Ok(Costs {
        nodes,
        bottleneck,
        worst,
    })
}

/// Messages that one shard of a service handles per client request.
fn messages(input: &KneeInput<'_>, service: ServiceId) -> f64 {
    input.visits[usize::from(service.0)] / f64::from(input.app.service(service).shards)
}

/// Adds what crosses the ports: requests from clients, channels' messages between servers, and
/// entries to backups.
fn traffic(
    input: &KneeInput<'_>,
    places: &BTreeMap<NodeId, NodeRef<'_>>,
    nodes: &mut [PerRequest],
) {
    let app = input.app;
    let wire = f64::from(input.request_bytes + WIRE_OVERHEAD_BYTES);
    let primaries = |service| {
        let of = move |i: &&Instance| i.service == service && i.role == Role::Primary;
        input.instances.iter().filter(of)
    };
    if let Some((source, _)) = app.service_named(&app.spec.ingress) {
        for instance in primaries(source) {
            // The request and its answer.
            let bytes = messages(input, source) * wire;
            nodes[instance.node.index()].bytes_in += bytes;
            nodes[instance.node.index()].bytes_out += bytes;
        }
    }
    let server = |node: NodeId| places[&node].server;
    let visits = |service: ServiceId| input.visits[usize::from(service.0)];
    for Flow { from, to, is_call } in app.flows() {
        // A service with several parents gets from each in proportion to the parents' visits.
        let parents = app.flows().filter(|f| f.to == to);
        let all: f64 = parents.map(|f| visits(f.from)).sum();
        if all == 0.0 {
            continue;
        }
        let share = visits(from) / all;
        let senders = f64::from(app.service(from).shards);
        for receiver in primaries(to) {
            let per_sender = messages(input, to) * share / senders * wire;
            let here = server(receiver.node);
            for sender in primaries(from).filter(|s| server(s.node) != here) {
                nodes[sender.node.index()].bytes_out += per_sender;
                nodes[receiver.node.index()].bytes_in += per_sender;
                if is_call {
                    nodes[receiver.node.index()].bytes_out += per_sender;
                    nodes[sender.node.index()].bytes_in += per_sender;
                }
            }
        }
    }
    for backup in input.instances.iter().filter(|i| i.role != Role::Primary) {
        let profile = input.profiles.get(app.service(backup.service).profile());
        let written = profile.map_or(0, |p| p.spec.write_bytes) as f64;
        let entry = written + f64::from(WIRE_OVERHEAD_BYTES);
        let bytes = messages(input, backup.service) * entry;
        nodes[backup.node.index()].bytes_in += bytes;
        if let Some(p) = primaries(backup.service).find(|p| p.shard == backup.shard) {
            nodes[p.node.index()].bytes_out += bytes;
        }
    }
}
