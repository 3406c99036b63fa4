//! What the controller's process knows of a backup that is being taken, beside the decisions.

use e3_model::backup::BackupHead;
use e3_model::{AppId, Timestamp};

/// How far a backup is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Progress {
    /// Its cut has been made.
    pub(crate) is_cut: bool,
    /// Shards whose snapshot is here.
    pub(crate) copied: usize,
    /// Bytes of the others; all bytes after the cut.
    pub(crate) bytes: u64,
}

/// What this process knows of a backup.
pub(crate) struct Taking {
    pub(crate) app: AppId,
    pub(crate) number: u64,
    /// When its shards were told to stop.
    pub(crate) froze_at: Option<Timestamp>,
    /// When they were told to go on.
    pub(crate) cut_at: Option<Timestamp>,
    /// What the file is to hold: the application as it was at the cut. It may be updated before the file is
    /// fetched.
    pub(crate) head: Option<BackupHead>,
    /// When it came further last, and how far.
    pub(crate) moved: (Timestamp, Progress),
    /// When its owner asked for it last.
    pub(crate) used: Timestamp,
    /// Why the latest bytes of a part were refused, if they were.
    pub(crate) refused: Option<String>,
    /// Why the rest does not come.
    pub(crate) failed: Option<String>,
}

impl Taking {
    pub(crate) fn new(app: AppId, number: u64, now: Timestamp) -> Taking {
        Taking {
            app,
            number,
            froze_at: None,
            cut_at: None,
            head: None,
            moved: (now, Progress::default()),
            used: now,
            refused: None,
            failed: None,
        }
    }
}
