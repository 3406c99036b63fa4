//! What nodes have left and what instances need.

use crate::limits::ROUNDING;
use crate::node_state::NodeState;
use crate::request::Demand;
use e3_model::{Accelerators, NodeKind};

/// What a node has left; the maxima of several.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Free {
    pub(crate) cpu_cores: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) bandwidth_gbps: f64,
    pub(crate) disk_bytes: u64,
    /// What it has; nothing of it is taken. Of several nodes what any of them has.
    pub(crate) accelerators: Accelerators,
}

impl Free {
    /// Of a node that takes nothing at all.
    pub(crate) const NOTHING: Free = Free {
        cpu_cores: f64::NEG_INFINITY,
        memory_bytes: 0,
        bandwidth_gbps: f64::NEG_INFINITY,
        disk_bytes: 0,
        accelerators: Accelerators::NONE,
    };

    /// What a node has for another instance.
    pub(crate) fn of(node: &NodeState) -> Free {
        let waiting_max = node.outstanding_max();
        if !node.member || node.drained || node.outstanding > waiting_max {
            return Free::NOTHING;
        }
        Free {
            cpu_cores: node.cpu_left_cores(),
            memory_bytes: node.memory_left_bytes(),
            bandwidth_gbps: node.bandwidth_left_gbps(),
            disk_bytes: node.disk_left_bytes(),
            accelerators: node.accelerators,
        }
    }

    /// Whether it is enough.
    pub(crate) fn holds(&self, need: &Demand) -> bool {
        need.cpu_cores <= self.cpu_cores + ROUNDING
            && need.memory_bytes <= self.memory_bytes
            && need.bandwidth_gbps <= self.bandwidth_gbps + ROUNDING
            && need.disk_bytes <= self.disk_bytes
            && self.accelerators.include(need.accelerators)
    }

    /// Component-wise maxima.
    pub(crate) fn max(self, other: Free) -> Free {
        Free {
            cpu_cores: self.cpu_cores.max(other.cpu_cores),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            bandwidth_gbps: self.bandwidth_gbps.max(other.bandwidth_gbps),
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
            accelerators: self.accelerators.or(other.accelerators),
        }
    }
}

/// What an instance needs of a node, by kind; None where that kind is not allowed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Need {
    pub(crate) host: Option<Demand>,
    pub(crate) smartnic: Option<Demand>,
}

impl Need {
    /// Of a node of that kind.
    pub(crate) fn of(&self, kind: NodeKind) -> Option<&Demand> {
        match kind {
            NodeKind::Host => self.host.as_ref(),
            NodeKind::SmartNic => self.smartnic.as_ref(),
        }
    }
}
