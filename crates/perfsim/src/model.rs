//! An application on a cluster as the simulator sees it: tables of nodes, shards and channels.

use crate::arena::NONE;
use crate::check::check;
use crate::input::{HostPort, Input, ModelError, Options};
use crate::services::{assumptions, services};
use e3_hardware::cores::CoreModel;
use e3_hardware::network;
use e3_hardware::network::{Hop, between_racks_us};
use e3_hardware::power::{NodePower, ServerPower};
use e3_hardware::service_time::ServiceTime;
use e3_model::topology::NodeRef;
use e3_model::{NodeId, NodeKind, ServiceId, ShardId};
use e3_placement::InstanceKey;
use e3_power::PowerModel;

/// A node.
pub(crate) struct Node {
    pub name: String,
    pub kind: NodeKind,
    pub server: u32,
    pub rack: u16,
    pub threads_per_core: u32,
    pub first_thread: u32,
    pub core_count: u32,
    /// SmartNICs over whose ports it is reached; itself if it has a port.
    pub ports: Ports,
    /// Its port has a traffic manager: it is a SmartNIC of a server with a host.
    pub is_managed: bool,
    pub ns_per_byte: f64,
    pub power: NodePower,
    /// Since when it has an instance.
    pub used_from: Option<u64>,
}

/// The nodes whose ports a node uses; a server has four SmartNICs at most.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ports {
    nodes: [u32; 4],
    count: u8,
}

impl Ports {
    fn of(nodes: impl Iterator<Item = u32>) -> Ports {
        let mut ports = Ports::default();
        for (at, node) in ports.nodes.iter_mut().zip(nodes) {
            *at = node;
            ports.count += 1;
        }
        ports
    }

    /// All of them.
    pub fn all(&self) -> &[u32] {
        &self.nodes[..usize::from(self.count)]
    }

    /// The port of a flow.
    #[inline]
    pub fn port(&self, from: u32, to: u32) -> usize {
        let at = match self.count {
            1 => 0,
            count => network::ecmp(from, to, usize::from(count)),
        };
        self.nodes[at] as usize
    }
}

/// A server.
pub(crate) struct Server {
    pub idle_w: f64,
    /// Since when it has an instance.
    pub used_from: Option<u64>,
}

/// A channel: messages that a handled message sends on average.
pub(crate) struct Edge {
    pub to: u16,
    pub whole: u32,
    pub part: f64,
}

/// A service.
pub(crate) struct Service {
    pub name: String,
    pub first_shard: u32,
    pub shards: u16,
    pub edges: Vec<Edge>,
    /// Bytes of its log entries.
    pub entry_bytes: u32,
    pub is_stateful: bool,
    /// State of a shard.
    pub state_bytes: u64,
    pub time: [ServiceTime; 2],
}

/// Where a replica is: a node and, of a stateful service, a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub node: u32,
    pub thread: u32,
}

/// A shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    pub primary: Place,
    pub first_backup: u32,
    pub backups: u8,
}

/// The tables.
pub(crate) struct Model {
    pub nodes: Vec<Node>,
    /// By kind of node.
    pub cores: [CoreModel; 2],
    pub servers: Vec<Server>,
    pub racks: usize,
    pub services: Vec<Service>,
    pub shards: Vec<Shard>,
    /// Those of a shard are next to each other; those of earlier views stay behind.
    pub backups: Vec<Place>,
    /// By node: stateful replicas that have taken a thread so far.
    pinned: Vec<u32>,
    pub ingress: u16,
    pub request_bytes: u32,
    /// Latency that users accept.
    pub latency_max_ns: u64,
    /// What was assumed of services beyond their profiles.
    pub assumptions: Vec<String>,
    pub options: Options,
    /// Bandwidth of all ports of a rack in Gb/s, the widest rack.
    pub rack_gbps: f64,
    /// Latency of hops in microseconds, by kind of hop.
    hops_us: [f64; 5],
    pub between_racks_us: f64,
}

impl Model {
    pub fn new(input: &Input<'_>) -> Result<Model, ModelError> {
        check(input)?;
        let options = input.options.clone();
        let kinds = [NodeKind::Host, NodeKind::SmartNic];
        let cores = kinds.map(|k| match options.machine {
            Some(_) => CoreModel::PLAIN,
            None => CoreModel::new(k, &options.guesses, options.sleep),
        });
        let (mut nodes, mut servers) = nodes(input, &cores, &options.power)?;
        let services = services(input, &nodes)?;
        let assumptions = assumptions(input, &nodes);
        let replicas = shards(input, &services, &mut nodes)?;
        for node in nodes.iter().filter(|n| n.used_from.is_some()) {
            servers[node.server as usize].used_from = Some(0);
        }
        let racks = input.topology.spec.racks.len();
        let mut rack_gbps = vec![0.0; racks];
        for node in &nodes {
            rack_gbps[usize::from(node.rack)] += 8.0 / node.ns_per_byte;
        }
        let hops = [
            Hop::Local,
            Hop::Pcie,
            Hop::SmartNics,
            Hop::Mixed,
            Hop::Hosts,
        ];
        let ingress = input.app.service_named(&input.app.spec.ingress);
        let (ingress, _) = ingress.expect("checked when parsed");
        Ok(Model {
            nodes,
            cores,
            servers,
            racks,
            services,
            shards: replicas.shards,
            backups: replicas.backups,
            pinned: replicas.pinned,
            ingress: ingress.0,
            assumptions,
            latency_max_ns: input.app.spec.objective.latency.0,
            request_bytes: input.request_bytes,
            rack_gbps: rack_gbps.into_iter().fold(0.0, f64::max),
            hops_us: hops.map(|hop| match (&options.machine, hop) {
                (Some(_), Hop::Local) => 0.0,
                (Some(machine), _) => machine.hop_ns as f64 / 1e3,
                (None, hop) => {
                    let guesses = &options.guesses;
                    hop.latency_us(guesses) + options.stack.latency_us(hop.hosts(), guesses)
                }
            }),
            between_racks_us: between_racks_us(&options.guesses),
            options,
        })
    }

    /// The hop between two nodes, and its fixed latency in microseconds.
    #[inline]
    pub fn hop(&self, from: u32, to: u32) -> (Hop, f64) {
        let (a, b) = (&self.nodes[from as usize], &self.nodes[to as usize]);
        let hop = Hop::of(a.kind, b.kind, a.server == b.server, from == to);
        let racks = if a.rack == b.rack {
            0.0
        } else {
            self.between_racks_us
        };
        (hop, self.hops_us[hop as usize] + racks)
    }

    /// Latency of a hop between a client, which is a host in the node's rack, and a node.
    #[inline]
    pub fn client_ns(&self, node: u32) -> u64 {
        let kind = self.nodes[node as usize].kind;
        if let Some(machine) = &self.options.machine {
            return machine.client_ns(kind);
        }
        let hop = Hop::of(NodeKind::Host, kind, false, false);
        let own_us = self.options.stack.latency_us(1, &self.options.guesses);
        ((self.hops_us[hop as usize] - own_us) * 1e3) as u64
    }

    /// Length from which a turn of a measured node's loop ends.
    pub fn turn_max_ns(&self) -> u64 {
        let machine = self.options.machine.as_ref();
        machine.map_or(u64::MAX, |machine| machine.turn_max_ns)
    }

    /// Number of a shard among all, if there is such a shard.
    pub fn shard_at(&self, service: ServiceId, shard: ShardId) -> Option<u32> {
        let of = self.services.get(usize::from(service.0))?;
        (shard.0 < of.shards).then(|| of.first_shard + u32::from(shard.0))
    }

    /// The service of a shard.
    pub fn service_of(&self, shard: u32) -> u16 {
        let after = self.services.partition_point(|s| s.first_shard <= shard);
        (after - 1) as u16
    }

    /// The backups of a shard.
    pub fn backups_of(&self, shard: u32) -> impl Iterator<Item = &Place> {
        let shard = &self.shards[shard as usize];
        let first = shard.first_backup as usize;
        self.backups[first..first + usize::from(shard.backups)].iter()
    }

    /// Replaces the replicas of a shard. One that stays keeps its thread.
    pub fn set_replicas(&mut self, shard: u32, primary: u32, backups: &[NodeId], now: u64) {
        let before = self.shards[shard as usize];
        let known: Vec<Place> = self
            .backups_of(shard)
            .copied()
            .chain([before.primary])
            .collect();
        let is_stateful = self.services[usize::from(self.service_of(shard))].is_stateful;
        let mut place = |node: u32| {
            let of = &mut self.nodes[node as usize];
            of.used_from.get_or_insert(now);
            self.servers[of.server as usize]
                .used_from
                .get_or_insert(now);
            if let Some(place) = known.iter().find(|p| p.node == node) {
                return *place;
            }
            let thread = if is_stateful {
                of.thread(self.pinned[node as usize])
            } else {
                NONE
            };
            self.pinned[node as usize] += u32::from(is_stateful);
            Place { node, thread }
        };
        let primary = place(primary);
        let backups: Vec<Place> = backups.iter().map(|b| place(b.0)).collect();
        self.shards[shard as usize] = Shard {
            primary,
            first_backup: self.backups.len() as u32,
            backups: backups.len() as u8,
        };
        self.backups.extend(backups);
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
            + self.shards.len() * size_of::<Shard>()
            + self.backups.len() * size_of::<Place>()
    }

    /// Messages that a request causes, entries and acknowledgements included.
    pub fn events_per_request(&self, visits: &[f64]) -> f64 {
        let of = |(s, v): (&Service, &f64)| {
            let shard = self.shards[s.first_shard as usize];
            v * (3.0 + 5.0 * f64::from(shard.backups))
        };
        1.0 + self.services.iter().zip(visits).map(of).sum::<f64>()
    }
}

impl Node {
    pub fn threads(&self) -> u32 {
        self.core_count * self.threads_per_core
    }

    /// Its threads among all.
    pub fn all_threads(&self) -> std::ops::Range<usize> {
        let first = self.first_thread as usize;
        first..first + self.threads() as usize
    }

    /// The n-th thread: all cores before any core's second thread.
    #[inline]
    pub fn thread(&self, n: u32) -> u32 {
        let n = n % self.threads();
        self.first_thread + (n % self.core_count) * self.threads_per_core + n / self.core_count
    }
}

fn nodes(
    input: &Input<'_>,
    cores: &[CoreModel; 2],
    power: &PowerModel,
) -> Result<(Vec<Node>, Vec<Server>), ModelError> {
    let places: Vec<NodeRef<'_>> = input.topology.nodes().collect();
    let (mut nodes, mut servers) = (Vec::new(), Vec::new());
    let mut first_thread = 0;
    for place in places.chunk_by(|a, b| a.server == b.server) {
        let in_server = place[0].in_server;
        let watts = ServerPower::of(in_server, power, &input.options.guesses)?;
        servers.push(Server {
            idle_w: watts.idle_w,
            used_from: None,
        });
        let kinds = || place.iter().map(|p| p.node.kind);
        let has_host = kinds().any(|k| k == NodeKind::Host);
        let nics = kinds().filter(|k| *k == NodeKind::SmartNic).count();
        let shared = input.options.host_port == HostPort::Shared && has_host && nics > 0;
        let hosts_gbps = place.iter().filter(|p| p.node.kind == NodeKind::Host);
        let hosts_gbps: f64 = hosts_gbps.map(|p| p.node.bandwidth_gbps).sum();
        for (p, power) in place.iter().zip(watts.nodes) {
            let is_nic = p.node.kind == NodeKind::SmartNic;
            let more = if shared {
                hosts_gbps / nics as f64
            } else {
                0.0
            };
            let of_nics = place.iter().filter(|p| p.node.kind == NodeKind::SmartNic);
            let node = Node {
                name: p.node.name.clone(),
                kind: p.node.kind,
                server: p.server as u32,
                rack: p.rack as u16,
                threads_per_core: cores[p.node.kind as usize].threads,
                first_thread,
                core_count: u32::from(p.node.cores),
                ports: if shared && !is_nic {
                    Ports::of(of_nics.map(|p| p.id.0))
                } else {
                    Ports::of([p.id.0].into_iter())
                },
                is_managed: is_nic && has_host,
                ns_per_byte: 8.0 / (p.node.bandwidth_gbps + more),
                power,
                used_from: None,
            };
            first_thread += node.threads();
            nodes.push(node);
        }
    }
    Ok((nodes, servers))
}

/// All shards, their backups, and by node how many stateful replicas have taken a thread.
struct Replicas {
    shards: Vec<Shard>,
    backups: Vec<Place>,
    pinned: Vec<u32>,
}

/// The shards and their backups. A stateful shard gets a thread of its node, cores in turn.
fn shards(
    input: &Input<'_>,
    services: &[Service],
    nodes: &mut [Node],
) -> Result<Replicas, ModelError> {
    let count: u32 = services.iter().map(|s| u32::from(s.shards)).sum();
    let mut replicas: Vec<(InstanceKey, NodeId)> = Vec::new();
    replicas.extend(input.placement.decisions.iter().map(|d| (d.key, d.node)));
    // Primaries take the cores first.
    replicas.sort_unstable_by_key(|(key, _)| (key.replica > 0, *key));
    let mut pinned = vec![0; nodes.len()];
    let mut shards: Vec<Option<Shard>> = vec![None; count as usize];
    let mut backups = Vec::new();
    for (key, id) in replicas {
        let node = nodes.get_mut(id.index()).ok_or_else(|| ModelError::Node {
            node: id,
            topology: input.topology.name.clone(),
        })?;
        node.used_from = Some(0);
        let at =
            (services[usize::from(key.service.0)].first_shard + u32::from(key.shard.0)) as usize;
        let mut place = Place {
            node: id.0,
            thread: NONE,
        };
        if input.app.service(key.service).stateful {
            place.thread = node.thread(pinned[id.index()]);
            pinned[id.index()] += 1;
        }
        match (key.replica, &mut shards[at]) {
            (0, shard) => {
                *shard = Some(Shard {
                    primary: place,
                    first_backup: 0,
                    backups: 0,
                });
            }
            (_, Some(shard)) => {
                if shard.backups == 0 {
                    shard.first_backup = backups.len() as u32;
                }
                shard.backups += 1;
                backups.push(place);
            }
            (_, None) => {}
        }
    }
    let unplaced = shards.iter().position(Option::is_none);
    if let Some(at) = unplaced {
        let of = services.partition_point(|s| s.first_shard as usize <= at) - 1;
        return Err(ModelError::Unplaced {
            service: services[of].name.clone(),
            shard: at as u32 - services[of].first_shard,
        });
    }
    Ok(Replicas {
        shards: shards.into_iter().flatten().collect(),
        backups,
        pinned,
    })
}

/// Bytes on the wire of a message.
pub(crate) fn wire(bytes: u32) -> u32 {
    network::wire_bytes(bytes)
}
