//! Backups of an application: what plans say of one that is taken, of one that is restored, and what a
//! file says of itself. docs/design/017.

use crate::ids::{AppId, ServiceId, ShardId};
use crate::time::Timestamp;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backup that is being taken: every stateful primary sends its shard's state to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupOrder {
    /// Its number, unique in the cluster.
    pub number: u64,
    /// All primaries have stopped, or are to stop, and fix their positions.
    pub is_freezing: bool,
}

/// Where the state of an application came from that was restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// Number of the parts at the controller.
    pub number: u64,
    /// The application in whose name the identities of requests with an idempotency key are made: the one
    /// that was backed up.
    pub identity: AppId,
    /// The time between the backup and the restore, by which deadlines move: nothing expired meanwhile.
    pub shift: Nanos,
    /// When it was restored. What was published earlier counts as confirmed by it when the application that
    /// was backed up has confirmed it.
    #[serde(default)]
    pub at: Timestamp,
    /// The parts of shards that do not have their state yet.
    pub parts: Vec<Part>,
}

/// The state of one shard in a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// Last entry of its log.
    pub op: u64,
    /// Bytes.
    pub len: u64,
    /// CRC-32C of the bytes.
    pub crc: u32,
}

impl Part {
    /// Which of its application's shards it is of.
    pub fn id(&self) -> (ServiceId, ShardId) {
        (self.service, self.shard)
    }

    /// Name of its file at the controller.
    pub fn file(&self) -> String {
        part_file(self.service, self.shard)
    }
}

/// Name of a part's file at the controller.
pub fn part_file(service: ServiceId, shard: ShardId) -> String {
    format!("{}-{}", service.0, shard.0)
}

impl Restored {
    /// The part of a shard that does not have its state yet.
    pub fn part(&self, service: ServiceId, shard: ShardId) -> Option<&Part> {
        self.parts.iter().find(|p| p.id() == (service, shard))
    }
}

/// What the head of a backup file says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHead {
    /// Name of the application.
    pub app: String,
    /// See [`Restored::identity`].
    pub identity: AppId,
    /// The moment of the cut, by the controller's clock, in milliseconds since the Unix epoch.
    pub cut_at_unix_ms: u64,
    /// The manifest, in JSON, which is YAML.
    pub manifest: String,
    /// Documents of kind `Profile`.
    pub profiles: Vec<String>,
    /// The modules and assets.
    pub files: Vec<BackupFile>,
    /// The states of the shards.
    pub parts: Vec<Part>,
}

/// A module or an asset in a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupFile {
    /// It is an asset; otherwise it is a module.
    pub is_asset: bool,
    /// The asset's name, or the path of the module, as the manifest names it.
    pub name: String,
    /// SHA-256, in hexadecimal: its name at the controller.
    pub digest: String,
    /// Bytes.
    pub len: u64,
}

/// `POST /v1/backups`: take a backup of an application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupRequest {
    /// The application.
    pub app: String,
}

/// Answer to `POST /v1/backups` and `GET /v1/backups/{backup}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupView {
    /// Its number.
    pub backup: u64,
    /// The application.
    pub app: String,
    /// How far it is.
    pub phase: BackupPhase,
    /// Why it was cancelled, if it was.
    pub why: Option<String>,
    /// Bytes of state that have arrived.
    pub bytes: u64,
    /// Shards whose state is being copied.
    pub shards: u32,
    /// How long the shards stood still, in milliseconds.
    pub pause_ms: f64,
    /// What the file is to hold, when all has arrived.
    pub head: Option<BackupHead>,
}

/// How far a backup is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupPhase {
    /// The state is copied while the application serves.
    Copying,
    /// The shards stand still.
    Freezing,
    /// The application serves on; the rest arrives.
    Finishing,
    /// All has arrived.
    Complete,
    /// It was given up.
    Cancelled,
}

/// Answer to `POST /v1/restores`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreResponse {
    /// Where the parts go.
    pub restore: u64,
}

/// The state that an application is deployed with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreRequest {
    /// Where the parts are, see [`RestoreResponse`]. Zero for a dry run without parts.
    pub restore: u64,
    /// See [`Restored::identity`].
    pub identity: AppId,
    /// See [`BackupHead::cut_at_unix_ms`].
    pub cut_at_unix_ms: u64,
    /// One for each shard with state.
    pub parts: Vec<Part>,
    /// Make generated secrets again that have no value here.
    #[serde(default)]
    pub new_secrets: bool,
}

/// Answer to a chunk of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChunkResponse {
    /// Bytes of the part that are there.
    pub len: u64,
}
