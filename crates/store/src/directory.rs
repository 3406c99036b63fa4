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

impl Directory {
    /// Opens a directory, which is made if it is not there, and locks it.
    pub fn open(dir: &Path) -> Result<Directory, StoreError> {
        std::fs::create_dir_all(dir).map_err(system(dir))?;
        let lock_file = dir.join("lock");
        let lock = File::create(&lock_file).map_err(system(&lock_file))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked(dir.to_path_buf())),
            Err(TryLockError::Error(e)) => return Err(system(&lock_file)(e)),
        }
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
        directory.sync_dir().map_err(system(dir))?;
        Ok(directory)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir).and_then(|d| d.sync_all())
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
        self.sync_dir()
    }

    fn probe(&self) -> io::Result<()> {
        let file = self.path("probe");
        let wrote = std::fs::write(&file, [0; PROBE_LEN]);
        let removed = std::fs::remove_file(&file);
        wrote.and(removed)
    }
}
