//! The cluster as placement sees it: what each node has, what is reserved on it, and the soft state
//! that the caller knows (membership, outstanding requests).

use crate::limits::ROUNDING;
use crate::request::{Demand, Request};
use e3_model::application::Pin;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ServiceId, Topology};
use serde::{Deserialize, Serialize};

/// A node with what is reserved on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeState {
    /// Name in the topology.
    pub name: String,
    /// Host or SmartNIC.
    pub kind: NodeKind,
    /// Index of its rack.
    pub rack: usize,
    /// Index of its server: its fault domain.
    pub server: usize,
    /// Cores.
    pub cores: f64,
    /// Memory.
    pub memory_bytes: u64,
    /// Bandwidth of its port.
    pub bandwidth_gbps: f64,
    /// Takes part in the cluster now.
    pub member: bool,
    /// An operator has taken it out of service: it gets no instance.
    #[serde(default)]
    pub drained: bool,
    /// Requests that wait on it, from its reports.
    pub outstanding: u64,
    /// Reserved by the instances on it.
    pub used: Demand,
    /// Cores that its backups would need on top if all of them took over.
    pub standby_cpu_cores: f64,
}

/// All nodes, by id, with their reservations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    nodes: Vec<NodeState>,
    /// By server: its nodes.
    servers: Vec<Vec<NodeId>>,
    /// By rack: its nodes.
    racks: Vec<Vec<NodeId>>,
    /// Order of first fit: servers as in the topology, SmartNICs before the host.
    order: Vec<NodeId>,
}

impl NodeState {
    /// Cores that are not reserved.
    pub fn cpu_left_cores(&self) -> f64 {
        self.cores - self.used.cpu_cores
    }

    /// Memory that is not reserved.
    pub fn memory_left_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.used.memory_bytes)
    }

    /// Bandwidth that is not reserved.
    pub fn bandwidth_left_gbps(&self) -> f64 {
        self.bandwidth_gbps - self.used.bandwidth_gbps
    }
}

impl Cluster {
    /// An empty cluster in which every node is a member.
    pub fn new(topology: &Topology) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            servers: Vec::new(),
            racks: vec![Vec::new(); topology.spec.racks.len()],
            order: Vec::new(),
        };
        for n in topology.nodes() {
            if n.server == cluster.servers.len() {
                cluster.servers.push(Vec::new());
            }
            cluster.servers[n.server].push(n.id);
            cluster.racks[n.rack].push(n.id);
            cluster.nodes.push(NodeState {
                name: n.node.name.clone(),
                kind: n.node.kind,
                rack: n.rack,
                server: n.server,
                cores: f64::from(n.node.cores),
                memory_bytes: n.node.memory.0,
                bandwidth_gbps: n.node.bandwidth_gbps,
                member: true,
                drained: false,
                outstanding: 0,
                used: Demand::default(),
                standby_cpu_cores: 0.0,
            });
        }
        for server in &cluster.servers {
            let of = |kind| {
                let nodes = &cluster.nodes;
                let is = move |n: &&NodeId| nodes[usize::from(n.0)].kind == kind;
                server.iter().filter(is).copied()
            };
            cluster.order.extend(of(NodeKind::SmartNic));
            cluster.order.extend(of(NodeKind::Host));
        }
        cluster
    }

    /// The node of that id. Panics on an id of another topology; see [`Cluster::get`].
    pub fn node(&self, id: NodeId) -> &NodeState {
        &self.nodes[usize::from(id.0)]
    }

    /// The node of that id, if there is one.
    pub fn get(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.get(usize::from(id.0))
    }

    /// All nodes in the order of their ids.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        let ids = (0..).map(NodeId);
        ids.zip(&self.nodes)
    }

    /// Says whether a node takes part; nodes that do not get nothing.
    pub fn set_member(&mut self, id: NodeId, member: bool) {
        if let Some(node) = self.nodes.get_mut(usize::from(id.0)) {
            node.member = member;
        }
    }

    /// Says whether an operator has taken a node out of service; such a node gets nothing.
    pub fn set_drained(&mut self, id: NodeId, drained: bool) {
        if let Some(node) = self.nodes.get_mut(usize::from(id.0)) {
            node.drained = drained;
        }
    }

    /// Records how many requests wait on a node.
    pub fn set_outstanding(&mut self, id: NodeId, outstanding: u64) {
        if let Some(node) = self.nodes.get_mut(usize::from(id.0)) {
            node.outstanding = outstanding;
        }
    }

    /// Reserves what an instance needs on a node. Panics on an id of another topology.
    pub fn add(&mut self, request: &Request<'_>, service: ServiceId, role: Role, id: NodeId) {
        let node = &mut self.nodes[usize::from(id.0)];
        let demand = request.demand(service, role, node.kind);
        node.used.cpu_cores += demand.cpu_cores;
        node.used.memory_bytes = node.used.memory_bytes.saturating_add(demand.memory_bytes);
        node.used.bandwidth_gbps += demand.bandwidth_gbps;
        if role != Role::Primary {
            let full = request.demand(service, Role::Primary, node.kind);
            node.standby_cpu_cores += full.cpu_cores - demand.cpu_cores;
        }
    }

    /// Gives back what [`Cluster::add`] reserved.
    pub fn remove(&mut self, request: &Request<'_>, service: ServiceId, role: Role, id: NodeId) {
        let node = &mut self.nodes[usize::from(id.0)];
        let demand = request.demand(service, role, node.kind);
        node.used.cpu_cores = (node.used.cpu_cores - demand.cpu_cores).max(0.0);
        node.used.memory_bytes = node.used.memory_bytes.saturating_sub(demand.memory_bytes);
        node.used.bandwidth_gbps = (node.used.bandwidth_gbps - demand.bandwidth_gbps).max(0.0);
        if role != Role::Primary {
            let full = request.demand(service, Role::Primary, node.kind);
            let standby = full.cpu_cores - demand.cpu_cores;
            node.standby_cpu_cores = (node.standby_cpu_cores - standby).max(0.0);
        }
    }

    /// Fault domains with a member in service on which the pin allows an instance.
    pub fn fault_domains(&self, pin: Option<&Pin>) -> usize {
        let usable = |id: &NodeId| {
            let node = self.node(*id);
            node.member
                && !node.drained
                && match pin {
                    None => true,
                    Some(Pin::Kind(kind)) => node.kind == *kind,
                    Some(Pin::Node(name)) => node.name == *name,
                }
        };
        let servers = self.servers.iter();
        servers.filter(|s| s.iter().any(usable)).count()
    }

    /// Whether every reservation is within its node.
    pub fn within_capacity(&self) -> bool {
        self.nodes.iter().all(|n| {
            n.used.memory_bytes <= n.memory_bytes
                && n.used.cpu_cores <= n.cores + ROUNDING
                && n.used.bandwidth_gbps <= n.bandwidth_gbps + ROUNDING
        })
    }

    pub(crate) fn server_of(&self, id: NodeId) -> &[NodeId] {
        &self.servers[self.node(id).server]
    }

    pub(crate) fn rack_of(&self, id: NodeId) -> &[NodeId] {
        &self.racks[self.node(id).rack]
    }

    pub(crate) fn first_fit_order(&self) -> &[NodeId] {
        &self.order
    }

    pub(crate) fn racks(&self) -> usize {
        self.racks.len()
    }
}
