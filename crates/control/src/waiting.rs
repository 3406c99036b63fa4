//! Copies that wait for room.
//!
//! After a loss a copy goes where it finds memory, disk and power, and accelerators that it requires: what lacks
//! these fails there, and takes what runs there with it. Where no node has them, the copy waits, and is
//! placed as soon as one has. A primary waits so only if no copy of its shard is left to take over. Cores,
//! bandwidth and the queue of a node may be exceeded, since that only makes requests slower, and a shard that is
//! not served or has one copy less is worse. Design: docs/design/005.

use e3_model::plan::Role;
use e3_model::{NodeId, ShardKey};
use e3_placement::Misfit;
use serde::{Deserialize, Serialize};

/// A copy of a shard that no node has room for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The shard.
    pub key: ShardKey,
    /// What it is to be.
    pub role: Role,
    /// The node that comes closest, and what lacks there; none if no node may hold it, whatever it has free.
    pub closest: Option<(NodeId, Misfit)>,
}
