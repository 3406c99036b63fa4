//! A node as placement sees it.

use crate::limits::OUTSTANDING_PER_CORE_MAX;
use crate::request::Demand;
use e3_model::NodeKind;
use e3_power::PowerModel;

/// A node with what is reserved on it.
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

impl NodeState {
    /// Requests that may wait on it before it gets no more instances.
    pub(crate) fn outstanding_max(&self) -> u64 {
        (self.cores * OUTSTANDING_PER_CORE_MAX as f64).ceil() as u64
    }

    /// What it draws above idle with `busy` cores' worth of work, before scaling.
    pub(crate) fn watts(&self, power: &PowerModel, busy: f64) -> f64 {
        power.node_w(self.kind, self.cores / self.speed, busy / self.speed)
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
}
