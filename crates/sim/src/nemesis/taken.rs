//! Backups of a scenario: those that are being taken, and what they hold.

use e3_model::backup::Part;
use e3_model::{AppId, Application, ServiceId, ShardId, Timestamp};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub(super) type PartId = (ServiceId, ShardId);

/// All backups of a scenario.
#[derive(Default)]
pub(super) struct Backups {
    pub(super) taking: Vec<Taking>,
    /// By application: the last complete one, and whether it was restored.
    pub(super) taken: BTreeMap<usize, (Rc<Taken>, bool)>,
    /// By number of its parts: what an application was restored from, or was to be.
    pub(super) restored: BTreeMap<u64, Rc<Taken>>,
    pub(super) next_try: Timestamp,
    /// Backups that became complete.
    pub(super) complete: u64,
    /// Backups that were given up.
    pub(super) cancelled: u64,
    /// Applications that began with a backup, and were what they must be.
    pub(super) checked: u64,
}

/// A backup that is being taken.
pub(super) struct Taking {
    pub(super) app: usize,
    pub(super) number: u64,
    /// The process of the controller that takes it.
    pub(super) process: u64,
    pub(super) froze_at: Option<Timestamp>,
    pub(super) cut: Option<Cut>,
    /// When bytes came last.
    pub(super) moved_at: Timestamp,
    pub(super) parts: BTreeMap<PartId, Vec<u8>>,
}

/// The moment at which all shards had fixed their positions.
pub(super) struct Cut {
    pub(super) at: Timestamp,
    pub(super) manifest: Arc<Application>,
    pub(super) identity: AppId,
}

/// A complete backup.
pub(super) struct Taken {
    /// Index of the application.
    pub(super) app: usize,
    /// When its shards were told to stop. What was answered before is in it.
    pub(super) froze_at: Timestamp,
    /// When they were told to go on. Nothing that was sent later is in it.
    pub(super) cut_at: Timestamp,
    pub(super) identity: AppId,
    pub(super) manifest: Arc<Application>,
    pub(super) parts: Vec<Part>,
    pub(super) bytes: BTreeMap<PartId, Vec<u8>>,
}
