//! Write-ahead log and snapshots on disk.
//!
//! A directory holds `log` (records), `snapshot` (one record) and `lock`. A record is durable when
//! [`Store::sync`] returns. What a power cut left unfinished is dropped at the next start, since it
//! was never reported as durable. Anything else that cannot be read is an error, and is not
//! overwritten.

pub mod deliberate;
pub mod limits;

mod directory;
mod journal;
mod record;
mod segments;

pub use directory::Directory;
pub use journal::Journal;
pub use segments::{SegmentDirectory, SegmentFiles, set_aside};

use limits::RECORD_LEN_MAX;
use record::{Scan, encode, scan};
use std::io;
use std::path::{Path, PathBuf};

/// The files of a store, as [`Store`] needs them: on a disk ([`Directory`]), or in a simulator.
pub trait Files {
    /// What errors call a file.
    fn path(&self, name: &str) -> PathBuf;
    /// The whole log; empty if there is none.
    fn read_log(&mut self) -> io::Result<Vec<u8>>;
    /// The whole snapshot; None if there is none.
    fn read_snapshot(&mut self) -> io::Result<Option<Vec<u8>>>;
    /// Writes to the log from this offset on. After an error any part of it may be there.
    fn write_log(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the log off at this length.
    fn truncate_log(&mut self, len: u64) -> io::Result<()>;
    /// Returns when everything in the log is durable.
    fn sync_log(&mut self) -> io::Result<()>;
    /// Returns when the new snapshot is durable. After an error the old one is intact.
    fn replace_snapshot(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Tries a write that leaves nothing behind.
    fn probe(&self) -> io::Result<()>;
}

/// A log with its snapshot.
#[derive(Debug)]
pub struct Store<F = Directory> {
    files: F,
    /// End of the last whole record.
    end: u64,
    /// Number of the next record.
    next: u64,
    /// Number of the last record that is durable.
    durable: u64,
    /// There may be more in the log than the records that count.
    dirty: bool,
    /// A sync failed: what is on disk is in doubt, and a later sync that succeeds would not say so.
    failed: bool,
}

/// What was on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The snapshot, if there is one.
    pub snapshot: Option<Vec<u8>>,
    /// Records after the snapshot, in order.
    pub entries: Vec<Vec<u8>>,
    /// Bytes of a record that was cut short, and dropped.
    pub torn_bytes: u64,
}

/// Why the store cannot be used, or a write was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the directory.
    #[error("{0}: in use by another process")]
    Locked(PathBuf),
    /// A file does not hold what was written to it.
    #[error(
        "{file}: byte {offset}: {what}; restore the file from a copy, or move the directory away to start with an empty one"
    )]
    Corrupt {
        /// Which file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The disk is full. Earlier content is intact.
    #[error("{0}: no space left on the disk")]
    Full(PathBuf),
    /// The system has no file descriptors or no memory left. Earlier content is intact.
    #[error("{file}: {source}")]
    Short {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An earlier sync failed.
    #[error("{0}: an earlier write may not be on the disk; restart the process to see what is")]
    InDoubt(PathBuf),
    /// A record over its bound.
    #[error("record of {0} bytes, must be at most {RECORD_LEN_MAX}")]
    TooLong(usize),
    /// Anything else that the system reports.
    #[error("{file}: {source}")]
    System {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

fn system(file: &Path) -> impl Fn(io::Error) -> StoreError + '_ {
    |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full(file.to_path_buf())
        }
        _ => StoreError::System {
            file: file.to_path_buf(),
            source,
        },
    }
}

impl Store {
    /// Opens a directory, which is made if it is not there, and reads what it holds.
    pub fn open(dir: &Path) -> Result<(Store, Recovered), StoreError> {
        Store::recover(Directory::open(dir)?)
    }
}

impl<F: Files> Store<F> {
    /// Reads what the files hold, and drops a record that was cut short.
    pub fn recover(mut files: F) -> Result<(Store<F>, Recovered), StoreError> {
        let (log_file, snapshot_file) = (files.path("log"), files.path("snapshot"));
        let corrupt = |file: &Path, offset, what| StoreError::Corrupt {
            file: file.to_path_buf(),
            offset,
            what,
        };
        let mut recovered = Recovered::default();
        let mut next = 1;
        if let Some(bytes) = files.read_snapshot().map_err(system(&snapshot_file))? {
            let mut records = Scan::default();
            scan(&bytes, 0, &mut records).map_err(|(o, w)| corrupt(&snapshot_file, o, w))?;
            // It is renamed into place when it is whole, so a short one was not cut by a crash.
            let whole = records.end == bytes.len() as u64 && records.records.len() == 1;
            let record = match records.records.pop() {
                Some(record) if whole => record,
                _ => {
                    let what = "snapshot is cut short";
                    return Err(corrupt(&snapshot_file, records.end, what));
                }
            };
            next = record.number + 1;
            recovered.snapshot = Some(record.content);
        }
        let bytes = files.read_log().map_err(system(&log_file))?;
        let mut records = Scan::default();
        // No record of a log left over from before the snapshot says that `next` was durable.
        scan(&bytes, next, &mut records).map_err(|(o, w)| corrupt(&log_file, o, w))?;
        recovered.torn_bytes = bytes.len() as u64 - records.end;
        let unproved = records.unproved();
        let tail = &bytes[unproved as usize..records.end as usize];
        let mut expected = None;
        for record in records.records {
            let number = record.number;
            if expected.is_some_and(|e| e != number) {
                return Err(corrupt(&log_file, 0, "a record is missing"));
            }
            expected = Some(number + 1);
            // Records that the snapshot holds are left over from a crash right after it.
            if number >= next {
                if number > next {
                    let what = "records after the snapshot are missing";
                    return Err(corrupt(&log_file, 0, what));
                }
                recovered.entries.push(record.content);
                next = number + 1;
            }
        }
        let mut store = Store {
            files,
            end: records.end,
            next,
            durable: 0,
            dirty: true,
            failed: false,
        };
        let written = store.files.write_log(unproved, tail);
        written.map_err(system(&log_file))?;
        store.cut()?;
        Ok((store, recovered))
    }

    /// Appends a record. On an error the log is as it was before. After a failed sync it takes nothing
    /// until it is opened again.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_sound()?;
        if bytes.len() > RECORD_LEN_MAX {
            return Err(StoreError::TooLong(bytes.len()));
        }
        if self.dirty {
            self.cut()?;
        }
        let record = encode(self.next, self.durable, bytes);
        if let Err(e) = self.files.write_log(self.end, &record) {
            // What is left of it must not stand before the next record.
            self.dirty = true;
            // It is tried again before the next record, unless its sync failed.
            let _ = self.cut();
            return Err(system(&self.files.path("log"))(e));
        }
        self.end += record.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Returns when all records are durable. An error leaves in doubt which are: stop, and open
    /// the store again to see.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.check_sound()?;
        let synced = self.files.sync_log();
        self.failed = synced.is_err();
        synced.map_err(system(&self.files.path("log")))?;
        self.durable = self.next - 1;
        Ok(())
    }

    /// Replaces all records so far by a snapshot of what they led to.
    pub fn snapshot(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_sound()?;
        if bytes.len() > RECORD_LEN_MAX {
            return Err(StoreError::TooLong(bytes.len()));
        }
        let last = self.next - 1;
        let replaced = self.files.replace_snapshot(&encode(last, last, bytes));
        replaced.map_err(system(&self.files.path("snapshot")))?;
        self.end = 0;
        self.dirty = true;
        self.cut()
    }

    /// Whether the store takes records: tries a write that leaves nothing behind.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.check_sound()?;
        self.files
            .probe()
            .map_err(system(&self.files.path("probe")))
    }

    /// Whether an earlier sync failed. Nothing is taken then, until the store is opened again.
    pub fn is_in_doubt(&self) -> bool {
        self.failed
    }

    /// Records in the log since the last snapshot, in bytes.
    pub fn log_len(&self) -> u64 {
        self.end
    }

    /// The files.
    pub fn files_mut(&mut self) -> &mut F {
        &mut self.files
    }

    /// After a failed sync the system may have dropped what it could not write.
    fn check_sound(&self) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::InDoubt(self.files.path("log")));
        }
        Ok(())
    }

    /// Cuts the log after the last whole record.
    fn cut(&mut self) -> Result<(), StoreError> {
        let cut = self.files.truncate_log(self.end);
        cut.map_err(system(&self.files.path("log")))?;
        self.sync()?;
        self.dirty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
