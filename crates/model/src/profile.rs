//! What a service costs on a kind of node. Placement, simulator and energy model share it.

use crate::topology::NodeKind;
use crate::units::{Bytes, Nanos, Watts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a figure comes from. No number without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Derived from a paper's table.
    Paper,
    /// Measured on the node.
    Measured,
    /// From a model.
    Modelled,
    /// Measured on hardware that stands in for the node.
    Emulated,
}

impl Provenance {
    /// As written in documents.
    pub fn name(self) -> &'static str {
        match self {
            Provenance::Paper => "paper",
            Provenance::Measured => "measured",
            Provenance::Modelled => "modelled",
            Provenance::Emulated => "emulated",
        }
    }
}

/// `spec` of a document of kind `Profile`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileSpec {
    /// Where the figures come from.
    pub provenance: Provenance,
    /// The source in words: table, machine, command.
    pub source: String,
    /// Costs by kind of node.
    pub nodes: BTreeMap<NodeKind, NodeCost>,
    /// Messages sent per handled message, by channel name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, f64>,
    /// Distinct keys that its requests use.
    #[serde(default)]
    pub keys: u64,
    /// Bytes written to collections per handled message.
    #[serde(default)]
    pub write_bytes: u64,
    /// Memory of one instance under that many keys.
    #[serde(default)]
    pub memory: Bytes,
}

/// Cost on one kind of node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeCost {
    /// Time of one request on one core, by request size in ascending order.
    pub service_time: Vec<ServiceTime>,
    /// Coefficient of variation of the service time.
    #[serde(default)]
    pub variation: f64,
    /// Active power (above idle) of the whole node at its peak with this service.
    pub active_power_w: Watts,
    /// Cores that were active at the peak.
    pub active_cores: f64,
    /// The figure is bounded by the network port, not by the cores: the true service time is at
    /// most this.
    #[serde(default)]
    pub lower_bound: bool,
}

/// One point of a service-time curve.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceTime {
    /// Request size in bytes.
    pub bytes: u32,
    /// Mean service time.
    pub time: Nanos,
    /// WebAssembly instructions of a request, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
}

/// A checked profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Name: that of the service.
    pub name: String,
    /// Its content.
    pub spec: ProfileSpec,
}

impl Profile {
    /// Service time on a kind of node for a request of `bytes`: linear between the points, flat
    /// beyond them. None if the profile does not know the kind.
    pub fn service_time(&self, kind: NodeKind, bytes: u32) -> Option<Nanos> {
        let points = &self.spec.nodes.get(&kind)?.service_time;
        let (first, last) = (points.first()?, points.last()?);
        if bytes <= first.bytes {
            return Some(first.time);
        }
        if bytes >= last.bytes {
            return Some(last.time);
        }
        let after = points.iter().position(|p| p.bytes >= bytes)?;
        let (a, b) = (&points[after - 1], &points[after]);
        let part = f64::from(bytes - a.bytes) / f64::from(b.bytes - a.bytes);
        let time = a.time.0 as f64 + part * (b.time.0 as f64 - a.time.0 as f64);
        Some(Nanos(time.round() as u64))
    }

    /// How many times longer a request takes on `kind` than on the fastest kind; 1 if unknown.
    pub fn slowdown(&self, kind: NodeKind, bytes: u32) -> f64 {
        let fastest = self
            .spec
            .nodes
            .keys()
            .filter_map(|k| self.service_time(*k, bytes))
            .min();
        match (self.service_time(kind, bytes), fastest) {
            (Some(t), Some(f)) if f.0 > 0 => t.0 as f64 / f.0 as f64,
            _ => 1.0,
        }
    }
}
