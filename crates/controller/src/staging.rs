//! Modules and assets on their way to the disk. They are written without the controller's lock, to a directory
//! that nothing reads, and get their names with the decision that names them.

use crate::blobs::{Blobs, system, write_whole};
use crate::room::room_on;
use e3_store::StoreError;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Blobs that are on the disk but have no name there yet. Dropping it removes what is left of them.
pub(crate) struct Staged {
    dir: PathBuf,
    /// Where they go.
    blobs: PathBuf,
}

impl Staged {
    /// Makes a place for the blobs of a deployment.
    pub(crate) fn new(blobs: &Blobs) -> Result<Staged, StoreError> {
        let number = blobs.staged.fetch_add(1, Ordering::Relaxed);
        let dir = blobs.staging.join(number.to_string());
        fs::create_dir_all(&dir).map_err(|e| system(&dir, e))?;
        let blobs = blobs.blobs.clone();
        Ok(Staged { dir, blobs })
    }

    /// Adds a blob with this SHA-256 in hexadecimal.
    pub(crate) fn add(&self, digest: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (there, staged) = (self.blobs.join(digest), self.dir.join(digest));
        if staged.exists() {
            return Ok(());
        }
        // A link keeps the file even if its last application is deleted meanwhile.
        let is_linked = match fs::hard_link(&there, &staged) {
            Ok(()) => fs::read(&staged).is_ok_and(|linked| linked == bytes),
            Err(_) => false,
        };
        if is_linked {
            return Ok(());
        }
        let room = room_on(&self.dir).map_err(|e| system(&staged, e))?;
        if !room.takes(bytes.len()) {
            return Err(StoreError::Full(staged));
        }
        write_whole(&staged, bytes)
    }

    /// Gives the blobs their names. A file there that holds anything else is replaced.
    pub(crate) fn name(&self) -> Result<(), StoreError> {
        let name = || -> io::Result<()> {
            for entry in fs::read_dir(&self.dir)? {
                let entry = entry?;
                fs::rename(entry.path(), self.blobs.join(entry.file_name()))?;
            }
            fs::File::open(&self.blobs)?.sync_all()
        };
        name().map_err(|e| system(&self.blobs, e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What stays goes when the controller starts.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
