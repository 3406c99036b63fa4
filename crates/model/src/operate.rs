//! The part of the controller's API that adds and removes nodes, takes them out of service, scales services, rolls versions
//! back and raises the cluster's format.

use crate::format::Format;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A replica that is still on a drained node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndrainedView {
    /// `app/service/shard`.
    pub instance: String,
    /// Whether it cannot leave until something else changes.
    pub blocked: bool,
    /// Why it is still there, in one line.
    pub why: String,
}

/// An earlier version of an application was deployed again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackView {
    /// The version that was left.
    pub from: u32,
    /// The version that was deployed again.
    pub to: u32,
    /// Its new number.
    pub code_version: u32,
    /// Why the controller did it by itself; none if an operator asked for it.
    #[serde(default)]
    pub why: Option<String>,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
}

/// `POST /v1/nodes`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddNodesRequest {
    /// Name of the file, for errors.
    pub file: String,
    /// A document of kind `Topology` with what is new: racks, servers of racks that exist, nodes of
    /// servers that exist.
    pub topology: String,
}

/// Answer to `POST /v1/nodes`. The nodes join when their processes start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddNodesResponse {
    /// The names of the new nodes.
    pub nodes: Vec<String>,
}

/// `POST /v1/resume`, `POST /v1/cordon` and `POST /v1/remove`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRequest {
    /// The node.
    pub node: String,
}

/// Answer to `POST /v1/cordon`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CordonResponse {
    /// The node.
    pub node: String,
    /// Whether it is drained, and so got no new instances before.
    pub drained: bool,
    /// False if it got no new instances before.
    pub changed: bool,
}

/// Answer to `POST /v1/remove`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveNodeResponse {
    /// The node. Its name and id stay used.
    pub node: String,
}

/// `POST /v1/drain`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainRequest {
    /// The node.
    pub node: String,
    /// Drain it although no other server may hold some replica, which stays there. By default that is
    /// a reason to refuse.
    #[serde(default)]
    pub best_effort: bool,
}

/// Answer to `POST /v1/drain` and `POST /v1/resume`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainResponse {
    /// The node.
    pub node: String,
    /// Whether it is drained now. Its replicas may still be there.
    pub drained: bool,
    /// False if it was so already.
    pub changed: bool,
}

/// `POST /v1/scale`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleRequest {
    /// `app/service`.
    pub service: String,
    /// Copies of each shard.
    pub replicas: u16,
}

/// Answer to `POST /v1/scale`. The copies are added and removed in the background.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleResponse {
    /// `app/service`.
    pub service: String,
    /// Copies of each shard from now on.
    pub replicas: u16,
    /// Copies of each shard before.
    pub replicas_before: u16,
    /// What the manifest says, which holds again from the next deployment on.
    pub replicas_in_manifest: u16,
}

/// `POST /v1/reshard`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReshardRequest {
    /// `app/service`.
    pub service: String,
    /// Shards: a multiple or a divisor of what the service has.
    pub shards: u16,
}

/// Answer to `POST /v1/reshard`. The shards change as soon as all copies are in place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReshardResponse {
    /// `app/service`.
    pub service: String,
    /// What was asked for.
    pub shards: u16,
    /// Shards before.
    pub shards_before: u16,
    /// False if the service has so many already.
    pub changed: bool,
}

/// `POST /v1/rollback`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackRequest {
    /// The application.
    pub app: String,
}

/// Answer to `POST /v1/rollback`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackResponse {
    /// The application.
    pub app: String,
    /// The version that was left.
    pub from: u32,
    /// The version that is deployed again.
    pub to: u32,
    /// Its new number.
    pub code_version: u32,
}

/// `POST /v1/format`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FormatRequest {
    /// The format that becomes the active one.
    pub format: Format,
}

/// Answer to [`FormatRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormatResponse {
    /// The active format.
    pub format: Format,
    /// The one before.
    pub format_before: Format,
    /// Release of the controller.
    pub release: String,
}
