//! A node as placement sees it.

use crate::limits::OUTSTANDING_PER_CORE_MAX;
use crate::request::{Demand, Reservation};
use e3_model::plan::Role;
use e3_model::{Accelerators, NodeKind};
use e3_power::PowerModel;

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
    /// Work that its cores do, in cores at full speed.
    pub cores: f64,
    /// Speed of its cores; less than 1 if it is emulated at a smaller scale.
    pub speed: f64,
    /// Memory.
    pub memory_bytes: u64,
    /// Bandwidth of its port.
    pub bandwidth_gbps: f64,
    /// Disk; the highest number if it is not limited.
    pub disk_bytes: u64,
    /// Accelerators that services find there.
    pub accelerators: Accelerators,
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
            speed: 1.0,
            memory_bytes: 0,
            bandwidth_gbps: 0.0,
            disk_bytes: 0,
            accelerators: Accelerators::NONE,
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

    /// Requests that may wait on it before it gets no more instances.
    pub(crate) fn outstanding_max(&self) -> u64 {
        (self.cores * OUTSTANDING_PER_CORE_MAX as f64).ceil() as u64
    }

    /// What it draws above idle with `busy` cores' worth of work, before scaling.
    pub(crate) fn watts(&self, power: &PowerModel, busy: f64) -> f64 {
        power.emulated_node_w(self.kind, self.cores, self.speed, busy)
    }

    /// Cores that are not reserved.
    pub fn cpu_left_cores(&self) -> f64 {
        self.cores - self.used.cpu_cores
    }

    /// Memory that is not reserved.
    pub fn memory_left_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.used.memory_bytes)
    }

    /// Disk that is not reserved.
    pub fn disk_left_bytes(&self) -> u64 {
        self.disk_bytes.saturating_sub(self.used.disk_bytes)
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
        used.disk_bytes = used.disk_bytes.saturating_add(demand.disk_bytes);
        if *role != Role::Primary {
            self.standby_cpu_cores += instance.full_cpu_cores - demand.cpu_cores;
        }
    }
}
