//! Requests that change the cluster, and their answers: deploy, migrate, forget, delete, and the exit of a process.

use crate::backup::RestoreRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `POST /v1/apps`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeployRequest {
    /// Name of the manifest's file, for error messages.
    pub file: String,
    /// The manifest.
    pub manifest: String,
    /// Modules by the path that the manifest names, in Base64.
    pub modules: BTreeMap<String, String>,
    /// Assets by name, compiled where the manifest says so, in Base64.
    #[serde(default)]
    pub assets: BTreeMap<String, String>,
    /// Documents of kind `Profile`.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Accept cores, bandwidth and waiting requests beyond what nodes have free: some requests take
    /// longer. Memory is never overcommitted.
    #[serde(default)]
    pub overcommit: bool,
    /// The algorithm that places a new application; the controller's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placer: Option<String>,
    /// How long the algorithm may search, in milliseconds, if it is `annealing` or `ilp`; its own time by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The state that it begins with, of a backup. Then the application must be new.
    #[serde(default)]
    pub restore: Option<RestoreRequest>,
}

/// Answer to `POST /v1/apps`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployResponse {
    /// Name of the application.
    pub app: String,
    /// False if nothing changed.
    pub changed: bool,
    /// Version of its manifest and code: 1 when it is new, one more with each change.
    pub code_version: u32,
    /// Nothing was deployed: this is what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// `POST /v1/migrations`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigrateRequest {
    /// `app/service/shard`, and `/primary` (default) or `/backup`.
    pub instance: String,
    /// Name of the node that it goes to.
    pub to: String,
    /// The primary stops first and the state is copied then, instead of serving meanwhile.
    #[serde(default)]
    pub cold: bool,
}

/// Answer to `POST /v1/migrations`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrateResponse {
    /// Number of the move, under which the application lists it.
    pub id: u64,
}

/// `POST /v1/forget`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForgetRequest {
    /// `app/service/shard`.
    pub shard: String,
}

/// Answer to `POST /v1/forget`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgetResponse {
    /// The shard, which begins empty.
    pub shard: String,
}

/// `POST /v1/nodes/exited`: whoever started a node's process tells that it has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExitedRequest {
    /// The node.
    pub node: String,
    /// Id of its process in the operating system.
    pub pid: u32,
}

/// Answer to `POST /v1/nodes/exited`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitedResponse {
    /// The incarnation that has ended; none if the process was no member any more.
    pub incarnation: Option<u32>,
}

/// Answer to `DELETE /v1/apps/{name}`: an empty object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeleteResponse {}
