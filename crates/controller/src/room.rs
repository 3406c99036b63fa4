//! Room on the controller's disk. Some of it is for decisions only.

use crate::limits::{FREE_MIN, FREE_MIN_SHARE};
use rustix::fs::statvfs;
use std::io;
use std::path::Path;

/// Room on a disk, in bytes.
pub(crate) struct Room {
    pub(crate) free: u64,
    /// What is kept for decisions.
    pub(crate) kept: u64,
}

impl Room {
    /// Whether so many bytes leave what is kept for decisions.
    pub(crate) fn takes(&self, len: usize) -> bool {
        self.free >= self.kept + len as u64
    }
}

/// Room on the disk with this file or directory.
pub(crate) fn room_on(path: &Path) -> io::Result<Room> {
    let found = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Room {
        free: bytes(found.f_bavail),
        kept: FREE_MIN.min(bytes(found.f_blocks) / FREE_MIN_SHARE),
    })
}
