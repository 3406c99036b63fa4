//! The cluster as placement sees it: what each node has, what is reserved on it, and the soft state
//! that the caller knows (membership, outstanding requests).

use crate::budget::Budgets;
use crate::decision::{Level, level};
use crate::index::Index;
use crate::limits::ROUNDING;
use crate::misfit::Misfit;
use crate::node_state::NodeState;
use crate::request::{Demand, Request, Reservation};
use e3_model::application::Pin;
use e3_model::plan::Role;
use e3_model::{Accelerators, NodeId, NodeKind, PowerCaps, ServiceId, Topology};
use e3_power::{PowerModel, Scale};
use std::collections::BTreeMap;
use std::ops::Range;

/// All nodes, by id, with their reservations.
#[derive(Clone, Debug)]
pub struct Cluster {
    nodes: Vec<NodeState>,
    /// By server: its nodes.
    servers: Vec<Vec<NodeId>>,
    /// By rack: its part of `order`.
    racks: Vec<Range<usize>>,
    /// Order of first fit: servers as in the topology, SmartNICs before the host.
    order: Vec<NodeId>,
    names: BTreeMap<String, NodeId>,
    /// By server: idle power and scale.
    power: Vec<Scale>,
    model: PowerModel,
    budgets: Option<Budgets>,
    index: Index,
    /// Whether placers see how far nodes are from each other.
    shows_levels: bool,
    /// Whether a node whose power would be exceeded counts as further from fitting than others.
    pub(crate) ranks_power: bool,
    /// Nodes as they were before each change, while an attempt is made.
    undo: Option<Vec<Before>>,
}

/// How to take back what was changed about a cluster: [`Cluster::record`].
#[derive(Debug, Default)]
pub struct Changes(Vec<Before>);

/// A node before a change.
#[derive(Clone, Copy, Debug)]
struct Before {
    node: NodeId,
    member: bool,
    used: Demand,
    standby_cpu_cores: f64,
}

impl Cluster {
    /// An empty cluster in which every node is a member.
    pub fn new(topology: &Topology) -> Cluster {
        Cluster::with_power(topology, PowerModel::paper())
    }

    /// As [`Cluster::new`], with a power model that knows other systems too.
    pub fn with_power(topology: &Topology, model: PowerModel) -> Cluster {
        let mut nodes = vec![NodeState::default(); topology.table_len()];
        let racks_of_servers = topology.spec.racks.iter().enumerate();
        let rack_of_server: Vec<usize> = racks_of_servers
            .flat_map(|(at, rack)| rack.servers.iter().map(move |_| at))
            .collect();
        let mut servers: Vec<Vec<NodeId>> = vec![Vec::new(); rack_of_server.len()];
        for n in topology.nodes() {
            servers[n.server].push(n.id);
            nodes[n.id.index()] = NodeState {
                name: n.node.name.clone(),
                kind: n.node.kind,
                rack: n.rack,
                server: n.server,
                cores: n.node.core_capacity(),
                speed: n.node.speed(),
                memory_bytes: n.node.memory.0,
                bandwidth_gbps: n.node.port_capacity_gbps(),
                disk_bytes: n.node.disk.map_or(u64::MAX, |disk| disk.0),
                accelerators: n.node.accelerators,
                member: true,
                ..NodeState::default()
            };
        }
        let mut order = Vec::new();
        let mut racks = vec![0..0; topology.spec.racks.len()];
        for (server, rack) in servers.iter().zip(rack_of_server) {
            let of = |kind| {
                let nodes = &nodes;
                let is = move |id: &&NodeId| nodes[id.index()].kind == kind;
                server.iter().filter(is).copied()
            };
            if racks[rack].is_empty() {
                racks[rack] = order.len()..order.len();
            }
            order.extend(of(NodeKind::SmartNic));
            order.extend(of(NodeKind::Host));
            racks[rack].end = order.len();
        }
        let names = order
            .iter()
            .map(|id: &NodeId| (nodes[id.index()].name.clone(), *id));
        let all = topology.spec.racks.iter().flat_map(|rack| &rack.servers);
        let power = all.map(|server| {
            let parts = server.nodes.iter().map(|n| (n.kind, f64::from(n.cores)));
            model.scale(&server.system, parts)
        });
        Cluster {
            power: power.collect(),
            model,
            budgets: Budgets::new(topology, &PowerCaps::default()),
            names: names.collect(),
            index: Index::new(&nodes, &order),
            nodes,
            servers,
            racks,
            order,
            shows_levels: true,
            ranks_power: true,
            undo: None,
        }
    }

    /// The same cluster, in which placers do not see the levels of the topology: all nodes of a kind are at
    /// the same distance from each node, itself included, and there are no racks. Servers stay fault domains, and
    /// power budgets stay those of racks.
    pub fn without_levels(mut self) -> Cluster {
        self.shows_levels = false;
        self
    }

    /// The same cluster for logs in which power did not count when no node fitted.
    pub fn without_ranked_power(mut self) -> Cluster {
        self.ranks_power = false;
        self
    }

    /// Distance between two nodes, as placers see it.
    pub(crate) fn level(&self, from: NodeId, to: NodeId) -> Level {
        let (one, other) = (self.node(from), self.node(to));
        match (self.shows_levels, other.kind) {
            (true, _) => level((from, one), (to, other)),
            (false, NodeKind::SmartNic) => Level::RackSmartNic,
            (false, NodeKind::Host) => Level::RackHost,
        }
    }

    /// From now on these caps bound servers and racks, beside the budgets of the topology. The lower one
    /// counts.
    pub fn set_power_caps(&mut self, topology: &Topology, caps: &PowerCaps) {
        self.budgets = Budgets::new(topology, caps);
        let Some(budgets) = &mut self.budgets else {
            return;
        };
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.exists()) {
            let scale = self.power[node.server];
            budgets.update(NodeId::of_index(at), node, &self.model, scale);
        }
    }

    /// What the server of a node draws when idle (modelled).
    pub fn idle_w(&self, id: NodeId) -> f64 {
        self.power[self.node(id).server].idle_w
    }

    /// What a node adds to that with so many of its cores busy (modelled).
    pub fn active_w(&self, id: NodeId, busy_cores: f64) -> f64 {
        let node = self.node(id);
        node.watts(&self.model, busy_cores * node.speed) * self.power[node.server].factor
    }

    /// The node of that id. Panics on an id of another topology; see [`Cluster::get`].
    pub fn node(&self, id: NodeId) -> &NodeState {
        &self.nodes[id.index()]
    }

    /// The node of that id, if there is one.
    pub fn get(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.get(id.index()).filter(|n| n.exists())
    }

    /// All nodes in the order of their ids, which may have gaps.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        let all = self.nodes.iter().enumerate();
        let existing = all.filter(|(_, node)| node.exists());
        existing.map(|(at, node)| (NodeId::of_index(at), node))
    }

    /// The length of a table that has a place for every id.
    pub(crate) fn table_len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of that name.
    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Says whether a node takes part; nodes that do not get nothing.
    pub fn set_member(&mut self, id: NodeId, member: bool) {
        self.remember(id);
        self.change(id, |node| node.member = member);
    }

    /// Says whether an operator has taken a node out of service; such a node gets nothing.
    pub fn set_drained(&mut self, id: NodeId, drained: bool) {
        self.change(id, |node| node.drained = drained);
    }

    /// Records how many requests wait on a node.
    pub fn set_outstanding(&mut self, id: NodeId, outstanding: u64) {
        self.change(id, |node| node.outstanding = outstanding);
    }

    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut NodeState)) {
        let found = self.nodes.get_mut(id.index());
        if let Some(node) = found.filter(|n| n.exists()) {
            change(node);
            self.index.update(id, node);
            if let Some(budgets) = &mut self.budgets {
                budgets.update(id, node, &self.model, self.power[node.server]);
            }
        }
    }

    /// Reserves what an instance needs on a node. Panics on an id of another topology.
    pub fn add(&mut self, request: &Request<'_>, service: ServiceId, role: Role, id: NodeId) {
        self.remember(id);
        let reservation = request.reservation(service, role, self.node(id).kind);
        self.change(id, |node| node.add(&reservation));
    }

    /// Sets what is reserved on a node to that of its instances. Sums of fractions depend on their
    /// order, so that this gives to the last bit what [`Cluster::add`] gives in the same order.
    pub fn set_instances(&mut self, id: NodeId, instances: impl IntoIterator<Item = Reservation>) {
        self.remember(id);
        self.change(id, |node| {
            (node.used, node.standby_cpu_cores) = (Demand::default(), 0.0);
            for instance in instances {
                node.add(&instance);
            }
        });
    }

    /// Gives back what [`Cluster::add`] reserved.
    pub fn remove(&mut self, request: &Request<'_>, service: ServiceId, role: Role, id: NodeId) {
        self.remember(id);
        let kind = self.node(id).kind;
        let demand = request.demand(service, role, kind);
        let full = request.demand(service, Role::Primary, kind);
        self.change(id, |node| {
            let used = &mut node.used;
            used.cpu_cores = (used.cpu_cores - demand.cpu_cores).max(0.0);
            used.memory_bytes = used.memory_bytes.saturating_sub(demand.memory_bytes);
            used.bandwidth_gbps = (used.bandwidth_gbps - demand.bandwidth_gbps).max(0.0);
            used.disk_bytes = used.disk_bytes.saturating_sub(demand.disk_bytes);
            if role != Role::Primary {
                let standby = full.cpu_cores - demand.cpu_cores;
                node.standby_cpu_cores = (node.standby_cpu_cores - standby).max(0.0);
            }
        });
    }

    /// Does something to reservations and members; takes it back if it fails.
    pub fn attempt<T, E>(
        &mut self,
        work: impl FnOnce(&mut Cluster) -> Result<T, E>,
    ) -> Result<T, E> {
        let (result, changes) = self.recorded(work);
        match (&result, &mut self.undo) {
            (Err(_), _) => self.take_back(changes),
            (Ok(_), Some(outer)) => outer.extend(changes),
            (Ok(_), None) => {}
        }
        result
    }

    /// Does something to reservations and members, and takes it back.
    pub fn try_out<T>(&mut self, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let (result, changes) = self.recorded(work);
        self.take_back(changes);
        result
    }

    /// Does something to reservations and members that [`Cluster::undo`] will take back later, with
    /// what the changes have already.
    pub fn record<T>(&mut self, changes: &mut Changes, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let (result, new) = self.recorded(work);
        changes.0.extend(new);
        result
    }

    /// Takes back what was recorded. Nothing else may have changed reservations or members meanwhile.
    pub fn undo(&mut self, changes: Changes) {
        self.take_back(changes.0);
    }

    fn recorded<T>(&mut self, work: impl FnOnce(&mut Cluster) -> T) -> (T, Vec<Before>) {
        let outer = self.undo.replace(Vec::new());
        let result = work(self);
        let changes = std::mem::replace(&mut self.undo, outer);
        (result, changes.unwrap_or_default())
    }

    fn take_back(&mut self, changes: Vec<Before>) {
        for before in changes.into_iter().rev() {
            self.change(before.node, |node| {
                node.member = before.member;
                node.used = before.used;
                node.standby_cpu_cores = before.standby_cpu_cores;
            });
        }
    }

    fn remember(&mut self, id: NodeId) {
        if let (Some(undo), Some(node)) = (&mut self.undo, self.nodes.get(id.index())) {
            undo.push(Before {
                node: id,
                member: node.member,
                used: node.used,
                standby_cpu_cores: node.standby_cpu_cores,
            });
        }
    }

    /// Fault domains with a member in service on which the pin allows an instance, and which has the
    /// accelerators that are required.
    pub fn fault_domains(&self, pin: Option<&Pin>, required: Accelerators) -> usize {
        let usable = |id: &NodeId| {
            let node = self.node(*id);
            node.member
                && !node.drained
                && node.accelerators.include(required)
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
                && n.used.disk_bytes <= n.disk_bytes
                && n.used.cpu_cores <= n.cores + ROUNDING
                && n.used.bandwidth_gbps <= n.bandwidth_gbps + ROUNDING
        })
    }

    /// The power budget that a demand at a node would exceed.
    pub(crate) fn power_misfit(&self, id: NodeId, need: &Demand) -> Option<Misfit> {
        let (budgets, node) = (self.budgets.as_ref()?, self.node(id));
        budgets.misfit(id, node, need, &self.model, self.power[node.server])
    }

    /// The bounds of what servers and racks draw, if there are any.
    pub(crate) fn budgets(&self) -> Option<&Budgets> {
        self.budgets.as_ref()
    }

    /// Whether a power cap counts a server as awake in any case.
    pub(crate) fn is_capped(&self, server: usize) -> bool {
        self.budgets.as_ref().is_some_and(|b| b.is_capped(server))
    }

    /// Watts that a server and its rack may draw beyond what is reserved; None if nothing is bounded.
    pub(crate) fn power_left_w(&self, server: usize) -> Option<(f64, f64)> {
        let rack = self.node(self.servers[server][0]).rack;
        Some(self.budgets.as_ref()?.left_w(server, rack))
    }

    /// The nodes of each server.
    pub(crate) fn servers(&self) -> &[Vec<NodeId>] {
        &self.servers
    }

    /// Idle power and scale of a server.
    pub(crate) fn scale(&self, server: usize) -> Scale {
        self.power[server]
    }

    /// The power model.
    pub(crate) fn power(&self) -> &PowerModel {
        &self.model
    }

    /// The nodes of the server that a node is part of, the node included.
    pub fn server_of(&self, id: NodeId) -> &[NodeId] {
        &self.servers[self.node(id).server]
    }

    /// The part of the order of first fit that is the rack of a node, as placers see it.
    pub(crate) fn rack_of(&self, id: NodeId) -> Range<usize> {
        if !self.shows_levels {
            return 0..self.order.len();
        }
        self.racks[self.node(id).rack].clone()
    }

    /// Whether placers see how far nodes are from each other.
    pub(crate) fn shows_levels(&self) -> bool {
        self.shows_levels
    }

    pub(crate) fn first_fit_order(&self) -> &[NodeId] {
        &self.order
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Racks, as placers see them.
    pub(crate) fn racks(&self) -> usize {
        if self.shows_levels {
            self.racks.len()
        } else {
            1
        }
    }
}
