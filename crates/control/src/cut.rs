//! What the controller has decided of the last backup of an application.

use e3_model::backup::Part;
use e3_model::{ServiceId, ShardId, ShardKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The last backup of an application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Its number, unique in the cluster.
    pub number: u64,
    /// The version of the application.
    pub(crate) code_version: u32,
    /// The shards with state, each with the view in which its primary took over.
    pub(crate) primaries: Vec<(ServiceId, ShardId, u32)>,
    /// Shards whose snapshot is whole.
    pub(crate) copied: BTreeSet<(ServiceId, ShardId)>,
    /// Shards whose position is fixed.
    pub cut: Vec<Part>,
    /// Whether it is over, and why it was cancelled if it was.
    pub outcome: Option<Result<(), String>>,
}

impl Backup {
    /// Shards with state.
    pub fn shards(&self) -> usize {
        self.primaries.len()
    }

    /// Shards with state whose snapshot is not whole.
    pub fn uncopied(&self) -> impl Iterator<Item = (ServiceId, ShardId)> {
        let all = self
            .primaries
            .iter()
            .map(|(service, shard, _)| (*service, *shard));
        all.filter(|id| !self.copied.contains(id))
    }

    pub(crate) fn is_of(&self, key: ShardKey, incarnation: u32) -> bool {
        let of = (key.service, key.shard, incarnation);
        self.outcome.is_none() && self.primaries.contains(&of)
    }
}
