//! The files of a store in a directory, which one process uses at a time.

use crate::limits::PROBE_LEN;
use crate::{Files, StoreError, system};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A directory with the files `log`, `snapshot` and `lock`.
#[derive(Debug)]
pub struct Directory {
    dir: PathBuf,
    log: File,
    _lock: File,
}

/// Locks a directory for this process, as long as the file lives.
pub(crate) fn lock(dir: &Path) -> Result<File, StoreError> {
    let file = dir.join("lock");
    let lock = File::create(&file).map_err(system(&file))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(dir.to_path_buf())),
        Err(TryLockError::Error(e)) => Err(system(&file)(e)),
    }
}

/// Returns when the names of the files in a directory are durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir).and_then(|d| d.sync_all())
}

impl Directory {
    /// Opens a directory, which is made if it is not there, and locks it.
    pub fn open(dir: &Path) -> Result<Directory, StoreError> {
        std::fs::create_dir_all(dir).map_err(system(dir))?;
        let lock = lock(dir)?;
        let log_file = dir.join("log");
        let log = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&log_file)
            .map_err(system(&log_file))?;
        let directory = Directory {
            dir: dir.to_path_buf(),
            log,
            _lock: lock,
        };
        sync_dir(dir).map_err(system(dir))?;
        Ok(directory)
    }

    #[cfg(test)]
    pub(crate) fn replace_log(&mut self, log: File) -> File {
        std::mem::replace(&mut self.log, log)
    }
}

impl Files for Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read_log(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.log.seek(SeekFrom::Start(0))?;
        self.log.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_snapshot(&mut self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path("snapshot")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.log.seek(SeekFrom::Start(offset))?;
        self.log.write_all(bytes)
    }

    fn truncate_log(&mut self, len: u64) -> io::Result<()> {
        self.log.set_len(len)
    }

    fn sync_log(&mut self) -> io::Result<()> {
        self.log.sync_data()
    }

    fn replace_snapshot(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new = self.path("snapshot.new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, self.path("snapshot"))
        };
        if let Err(e) = write() {
            let _ = std::fs::remove_file(&new);
            return Err(e);
        }
        sync_dir(&self.dir)
    }

    fn probe(&self) -> io::Result<()> {
        let file = self.path("probe");
        let wrote = std::fs::write(&file, [0; PROBE_LEN]);
        let removed = std::fs::remove_file(&file);
        wrote.and(removed)
    }
}
