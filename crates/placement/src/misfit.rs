//! Why a node cannot hold an instance, and which of these reasons no plan may break.

use crate::limits::OUTSTANDING_PER_CORE_MAX;
use e3_model::{Accelerator, Accelerators, Bytes, NodeId, NodeKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a node cannot hold an instance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Misfit {
    /// No such node.
    #[error("no node {0} in this cluster")]
    Unknown(NodeId),
    /// The node is down or has not joined.
    #[error("the node is down or has not joined")]
    NotMember,
    /// An operator has taken the node out of service.
    #[error("the node is out of service (drained or cordoned)")]
    Drained,
    /// The placer does not use this kind of node.
    #[error("{} nodes are not used by this placer", .0.name())]
    Excluded(NodeKind),
    /// The manifest pins the service elsewhere.
    #[error("the service is pinned to {0}")]
    Pin(String),
    /// Another replica of the shard is on the same server.
    #[error("its server already holds a replica of this shard, on {other}")]
    FaultDomain {
        /// Name of the node of the other replica.
        other: String,
    },
    /// Memory.
    #[error("needs {} of memory, {} free", Bytes(*.need_bytes), Bytes(*.left_bytes))]
    Memory {
        /// What the instance takes.
        need_bytes: u64,
        /// What is free.
        left_bytes: u64,
    },
    /// Disk.
    #[error("needs {} of disk, {} free", Bytes(*.need_bytes), Bytes(*.left_bytes))]
    Disk {
        /// What the instance takes.
        need_bytes: u64,
        /// What is free.
        left_bytes: u64,
    },
    /// The node lacks accelerators that the service requires.
    #[error("it lacks accelerators that the service requires: {}", names(*.missing))]
    Accelerators {
        /// Those that it lacks.
        missing: Accelerators,
    },
    /// Cores.
    #[error("needs {need:.2} cores, {left:.2} free")]
    Cpu {
        /// What the instance takes.
        need: f64,
        /// What is free.
        left: f64,
    },
    /// A shard of a stateful service runs on one core at a time.
    #[error("needs {need:.2} cores, but a stateful shard uses at most {bound:.2}")]
    OneCore {
        /// What the instance takes.
        need: f64,
        /// One core, or what the manifest asks for on a host if that is more.
        bound: f64,
    },
    /// Bandwidth.
    #[error("needs {need_gbps:.3} Gb/s, {left_gbps:.3} free")]
    Bandwidth {
        /// What the instance takes.
        need_gbps: f64,
        /// What is free.
        left_gbps: f64,
    },
    /// A power budget or a power cap.
    #[error(
        "its {what} would draw {need_w:.1} W more, {left_w:.1} W of its {bound} of {max_w:.0} W are left: {:.1} W are missing",
        need_w - left_w
    )]
    Power {
        /// `server NAME` or `rack NAME`.
        what: String,
        /// What bounds it.
        bound: PowerBound,
        /// The bound.
        max_w: f64,
        /// What the instance adds.
        need_w: f64,
        /// What is left.
        left_w: f64,
    },
    /// Too many requests wait there.
    #[error(
        "{outstanding} requests wait there, must be at most {bound} ({OUTSTANDING_PER_CORE_MAX} a core)"
    )]
    Outstanding {
        /// What waits.
        outstanding: u64,
        /// Bound.
        bound: u64,
    },
}

/// What bounds the power of a server or rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PowerBound {
    /// The power budget of the topology.
    Budget,
    /// The power cap of an operator.
    Cap,
}

impl fmt::Display for PowerBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PowerBound::Budget => "power budget",
            PowerBound::Cap => "power cap",
        })
    }
}

impl Misfit {
    /// Whether not even an overcommitted node may break this.
    pub fn is_hard(&self) -> bool {
        match self {
            Misfit::Unknown(_)
            | Misfit::NotMember
            | Misfit::Drained
            | Misfit::Excluded(_)
            | Misfit::Pin(_)
            | Misfit::Accelerators { .. }
            | Misfit::FaultDomain { .. } => true,
            Misfit::Memory { .. }
            | Misfit::Disk { .. }
            | Misfit::Cpu { .. }
            | Misfit::OneCore { .. }
            | Misfit::Bandwidth { .. }
            | Misfit::Power { .. }
            | Misfit::Outstanding { .. } => false,
        }
    }

    /// Whether no plan may break this, even where requests may be slower: what has no memory, disk or power
    /// fails, and what has too few cores, too little bandwidth or a long queue is slow.
    pub fn is_firm(&self) -> bool {
        let is_stock = matches!(
            self,
            Misfit::Memory { .. } | Misfit::Disk { .. } | Misfit::Power { .. }
        );
        is_stock || self.is_hard()
    }

    /// How much is missing of which resource, such as `54Mi of memory`; None if it is not an amount.
    pub fn missing(&self) -> Option<String> {
        Some(match self {
            Misfit::Memory {
                need_bytes,
                left_bytes,
            } => format!("{} of memory", missing_bytes(*need_bytes, *left_bytes)),
            Misfit::Disk {
                need_bytes,
                left_bytes,
            } => format!("{} of disk", missing_bytes(*need_bytes, *left_bytes)),
            Misfit::Power { need_w, left_w, .. } => format!("{:.1} W", need_w - left_w),
            Misfit::Cpu { need, left } => format!("{:.2} cores", need - left),
            Misfit::OneCore { need, bound } => format!("{:.2} cores", need - bound),
            Misfit::Bandwidth {
                need_gbps,
                left_gbps,
            } => format!("{:.3} Gb/s", need_gbps - left_gbps),
            Misfit::Accelerators { missing } => format!("accelerators: {}", names(*missing)),
            Misfit::Unknown(_)
            | Misfit::NotMember
            | Misfit::Drained
            | Misfit::Excluded(_)
            | Misfit::Pin(_)
            | Misfit::FaultDomain { .. }
            | Misfit::Outstanding { .. } => return None,
        })
    }
}

fn missing_bytes(need: u64, left: u64) -> Bytes {
    Bytes(need.saturating_sub(left))
}

/// The names of accelerators, with commas.
pub(crate) fn names(set: Accelerators) -> String {
    let names: Vec<&str> = set.iter().map(Accelerator::name).collect();
    names.join(", ")
}
