//! A node as placement sees it.

use crate::request::{Demand, Reservation};
use e3_model::NodeKind;
use e3_model::plan::Role;

/// A node with what is reserved on it. The default stands in tables for an id that no node has.
#[derive(Clone, PartialEq, Debug)]
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
    pub drained: bool,
    /// Requests that wait on it, from its reports.
    pub outstanding: u64,
    /// Reserved by the instances on it.
    pub used: Demand,
    /// Cores that its backups would need on top if all of them took over.
    pub standby_cpu_cores: f64,
}

impl Default for NodeState {
    fn default() -> NodeState {
        NodeState {
            name: String::new(),
            kind: NodeKind::Host,
            rack: 0,
            server: 0,
            cores: 0.0,
            memory_bytes: 0,
            bandwidth_gbps: 0.0,
            member: false,
            drained: false,
            outstanding: 0,
            used: Demand::default(),
            standby_cpu_cores: 0.0,
        }
    }
}

impl NodeState {
    /// Whether a node has this id. Every node has a core or more.
    pub(crate) fn exists(&self) -> bool {
        self.cores > 0.0
    }

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

    /// Reserves what an instance takes.
    pub(crate) fn add(&mut self, instance: &Reservation) {
        let Reservation { role, demand, .. } = instance;
        let used = &mut self.used;
        used.cpu_cores += demand.cpu_cores;
        used.memory_bytes = used.memory_bytes.saturating_add(demand.memory_bytes);
        used.bandwidth_gbps += demand.bandwidth_gbps;
        if *role != Role::Primary {
            self.standby_cpu_cores += instance.full_cpu_cores - demand.cpu_cores;
        }
    }
}
