//! Measured energy: what a node's meter says, and what the API shows of it.

use crate::profile::Provenance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a meter's figure contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MeterScope {
    /// Processor packages, and their memory where the processor counts it. No disks, fans or cards.
    Processor,
    /// The node: all of a board with its own system, such as a SmartNIC.
    #[default]
    Node,
    /// The server at its power supplies: SmartNICs, fans and losses included.
    Server,
}

impl MeterScope {
    /// As written in documents.
    pub fn name(self) -> &'static str {
        match self {
            MeterScope::Processor => "processor",
            MeterScope::Node => "node",
            MeterScope::Server => "server",
        }
    }
}

/// What a node's meter has measured since the node's process started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MeteredEnergy {
    /// The meter, such as `rapl`.
    pub meter: String,
    /// What the figure contains.
    pub scope: MeterScope,
    /// Joules in the metered time. Never falls.
    pub joules: f64,
    /// Seconds that the joules cover.
    pub metered_seconds: f64,
    /// Seconds without readings, or with readings that make no sense. They are in no figure.
    pub unmetered_seconds: f64,
    /// Watts in the last metered interval.
    pub watts: f64,
    /// Processors of the machine that the meter measures.
    pub cores: u32,
    /// Which machine that is: processes on one machine give the same name. Empty if unknown.
    pub machine: String,
    /// Why the last reading failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Measured energy of a node since the controller started. Services, platform and idle add up to the
/// node's joules.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMeterView {
    /// `measured`, or `emulated` if the measured machine only stands in for the node, or for several.
    pub provenance: Provenance,
    /// The meter.
    pub meter: String,
    /// What the figure contains.
    pub scope: MeterScope,
    /// Joules of the node. If emulated, only the part of its process: other nodes share the machine.
    pub joules: f64,
    /// Of these, joules of the time in services' handlers.
    pub service_joules: f64,
    /// Of these, joules of the other processor time of E3's process.
    pub platform_joules: f64,
    /// The rest: idle processors, and other programs of the machine.
    pub idle_joules: f64,
    /// Watts of the machine in the last metered interval.
    pub watts: f64,
    /// Seconds that the joules cover.
    pub metered_seconds: f64,
    /// Seconds without usable readings, which are in no figure.
    pub unmetered_seconds: f64,
    /// Why the last reading failed, if it did.
    #[serde(default)]
    pub error: Option<String>,
}

/// Measured energy of a service since the controller started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMeterView {
    /// `measured`, or `emulated` if a part of it was measured on a machine that only stands in for a
    /// node.
    pub provenance: Provenance,
    /// Joules of its nodes' meters, by the processor time in its handlers.
    pub joules: f64,
    /// The same for each request handled on a node with a meter.
    pub joules_per_request: Option<f64>,
    /// Requests handled on nodes with a meter.
    pub handled: u64,
}
