//! Write-ahead log and snapshots on disk.
//!
//! A directory holds `log` (records of length, checksum, number, bytes), `snapshot` (the same, one
//! record) and `lock`. A record is durable when [`Store::sync`] returns. A record that was cut short
//! by a crash is dropped at the next start, since it was never reported as durable. Anything else
//! that cannot be read is an error, and is not overwritten.

pub mod limits;
mod record;

use limits::{PROBE_LEN, RECORD_LEN_MAX};
use record::{HEADER_LEN, Scan, encode, scan};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A log with its snapshot.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    log: File,
    /// End of the last whole record.
    end: u64,
    /// Number of the next record.
    next: u64,
    /// There may be more in the log than the records that count.
    dirty: bool,
    _lock: File,
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

fn read(file: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match File::open(file) {
        Ok(mut f) => {
            let mut bytes = Vec::new();
            f.read_to_end(&mut bytes).map_err(system(file))?;
            Ok(Some(bytes))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(system(file)(e)),
    }
}

impl Store {
    /// Opens a directory, which is made if it is not there, and reads what it holds.
    pub fn open(dir: &Path) -> Result<(Store, Recovered), StoreError> {
        std::fs::create_dir_all(dir).map_err(system(dir))?;
        let lock_file = dir.join("lock");
        let lock = File::create(&lock_file).map_err(system(&lock_file))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked(dir.to_path_buf())),
            Err(TryLockError::Error(e)) => return Err(system(&lock_file)(e)),
        }
        let corrupt = |file: &Path, offset, what| StoreError::Corrupt {
            file: file.to_path_buf(),
            offset,
            what,
        };
        let mut recovered = Recovered::default();
        let mut next = 1;
        let snapshot_file = dir.join("snapshot");
        if let Some(bytes) = read(&snapshot_file)? {
            let mut records = Scan::default();
            scan(&bytes, &mut records).map_err(|(o, w)| corrupt(&snapshot_file, o, w))?;
            // It is renamed into place when it is whole, so a short one was not cut by a crash.
            let whole = records.end == bytes.len() as u64 && records.records.len() == 1;
            let (number, content) = match records.records.pop() {
                Some(record) if whole => record,
                _ => {
                    return Err(corrupt(
                        &snapshot_file,
                        records.end,
                        "snapshot is cut short",
                    ));
                }
            };
            next = number + 1;
            recovered.snapshot = Some(content);
        }
        let log_file = dir.join("log");
        let bytes = read(&log_file)?.unwrap_or_default();
        let mut records = Scan::default();
        scan(&bytes, &mut records).map_err(|(o, w)| corrupt(&log_file, o, w))?;
        recovered.torn_bytes = bytes.len() as u64 - records.end;
        let mut expected = None;
        for (number, content) in records.records {
            if expected.is_some_and(|e| e != number) {
                return Err(corrupt(&log_file, 0, "a record is missing"));
            }
            expected = Some(number + 1);
            // Records that the snapshot holds are left over from a crash right after it.
            if number >= next {
                if number > next {
                    return Err(corrupt(
                        &log_file,
                        0,
                        "records after the snapshot are missing",
                    ));
                }
                recovered.entries.push(content);
                next = number + 1;
            }
        }
        let log = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&log_file)
            .map_err(system(&log_file))?;
        let mut store = Store {
            dir: dir.to_path_buf(),
            log,
            end: records.end,
            next,
            dirty: true,
            _lock: lock,
        };
        store.cut()?;
        store.sync_dir()?;
        Ok((store, recovered))
    }

    /// Appends a record. On an error the log is as it was before.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > RECORD_LEN_MAX {
            return Err(StoreError::TooLong(bytes.len()));
        }
        if self.dirty {
            self.cut()?;
        }
        let record = encode(self.next, bytes);
        if let Err(e) = self.log.write_all(&record) {
            // What is left of it must not stand before the next record.
            self.dirty = true;
            let _ = self.cut();
            return Err(system(&self.dir.join("log"))(e));
        }
        self.end += record.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Returns when all records are durable. An error leaves in doubt which are: stop, and open
    /// the store again to see.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync_data().map_err(system(&self.dir.join("log")))
    }

    /// Replaces all records so far by a snapshot of what they led to.
    pub fn snapshot(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > RECORD_LEN_MAX {
            return Err(StoreError::TooLong(bytes.len()));
        }
        let (new, file) = (self.dir.join("snapshot.new"), self.dir.join("snapshot"));
        let write = || -> io::Result<()> {
            let mut f = File::create(&new)?;
            f.write_all(&encode(self.next - 1, bytes))?;
            f.sync_all()?;
            std::fs::rename(&new, &file)
        };
        if let Err(e) = write() {
            let _ = std::fs::remove_file(&new);
            return Err(system(&file)(e));
        }
        self.sync_dir()?;
        self.end = 0;
        self.dirty = true;
        self.cut()
    }

    /// Whether the disk takes writes: tries one that leaves nothing behind.
    pub fn probe(&self) -> Result<(), StoreError> {
        let file = self.dir.join("probe");
        let wrote = std::fs::write(&file, [0; PROBE_LEN]);
        let removed = std::fs::remove_file(&file);
        wrote.and(removed).map_err(system(&file))
    }

    /// Records in the log since the last snapshot, in bytes.
    pub fn log_len(&self) -> u64 {
        self.end
    }

    /// Cuts the log after the last whole record.
    fn cut(&mut self) -> Result<(), StoreError> {
        let file = self.dir.join("log");
        self.log.set_len(self.end).map_err(system(&file))?;
        self.log
            .seek(SeekFrom::Start(self.end))
            .map_err(system(&file))?;
        self.sync()?;
        self.dirty = false;
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), StoreError> {
        File::open(&self.dir)
            .and_then(|d| d.sync_all())
            .map_err(system(&self.dir))
    }
}

const _: () = assert!(HEADER_LEN == 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dir: &Path) {
        let (mut store, recovered) = Store::open(dir).unwrap();
        assert_eq!(recovered, Recovered::default());
        for i in 0..5u8 {
            store.append(&vec![i; usize::from(i) * 10]).unwrap();
        }
        store.sync().unwrap();
    }

    fn entries(dir: &Path) -> Result<Vec<usize>, StoreError> {
        Store::open(dir).map(|(_, r)| r.entries.iter().map(Vec::len).collect())
    }

    #[test]
    fn what_was_synced_is_there_after_any_cut_of_the_tail() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        filled(&dir);
        let log = std::fs::read(dir.join("log")).unwrap();
        let last = log.len() - (HEADER_LEN + 40);
        for cut in last..log.len() {
            std::fs::write(dir.join("log"), &log[..cut]).unwrap();
            assert_eq!(entries(&dir).unwrap(), [0, 10, 20, 30], "cut at {cut}");
        }
    }

    #[test]
    fn zeros_that_a_power_cut_left_at_the_end_are_dropped() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        filled(&dir);
        let mut log = std::fs::read(dir.join("log")).unwrap();
        log.extend_from_slice(&[0; 100]);
        std::fs::write(dir.join("log"), &log).unwrap();
        assert_eq!(entries(&dir).unwrap(), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn flipped_bits_are_an_error_and_nothing_is_written_over() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        filled(&dir);
        let log = std::fs::read(dir.join("log")).unwrap();
        let last = log.len() - (HEADER_LEN + 40);
        for at in 0..log.len() {
            let mut bad = log.clone();
            bad[at] ^= 0x40;
            std::fs::write(dir.join("log"), &bad).unwrap();
            match entries(&dir) {
                Err(StoreError::Corrupt { .. }) => {
                    assert_eq!(std::fs::read(dir.join("log")).unwrap(), bad, "byte {at}");
                }
                // A length that points beyond the end looks like a record cut short; only the
                // last record may look like that.
                Ok(e) => assert!(at >= last && e == [0, 10, 20, 30], "byte {at}: {e:?}"),
                Err(e) => panic!("byte {at}: {e}"),
            }
        }
    }

    #[test]
    fn a_snapshot_replaces_the_log() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        filled(&dir);
        let old_log = std::fs::read(dir.join("log")).unwrap();
        let (mut store, _) = Store::open(&dir).unwrap();
        store.snapshot(b"all").unwrap();
        store.append(b"after").unwrap();
        assert!(matches!(Store::open(&dir), Err(StoreError::Locked(_))));
        drop(store);
        let (store, recovered) = Store::open(&dir).unwrap();
        assert_eq!(recovered.snapshot.as_deref(), Some(&b"all"[..]));
        assert_eq!(recovered.entries, [b"after"]);
        drop(store);
        // A crash between the snapshot and the cut leaves the old log there.
        std::fs::write(dir.join("log"), &old_log).unwrap();
        let (store, recovered) = Store::open(&dir).unwrap();
        assert_eq!(
            (recovered.snapshot.is_some(), recovered.entries.len()),
            (true, 0)
        );
        drop(store);
        let snapshot = std::fs::read(dir.join("snapshot")).unwrap();
        for cut in 0..snapshot.len() {
            std::fs::write(dir.join("snapshot"), &snapshot[..cut]).unwrap();
            let error = Store::open(&dir).unwrap_err();
            assert!(
                matches!(error, StoreError::Corrupt { .. }),
                "cut at {cut}: {error}"
            );
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_log_stays_good() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        filled(&dir);
        let (mut store, _) = Store::open(&dir).unwrap();
        let good = std::mem::replace(
            &mut store.log,
            OpenOptions::new().write(true).open("/dev/full").unwrap(),
        );
        assert!(store.append(&[9; 100_000]).is_err());
        store.log = good;
        store.append(b"again").unwrap();
        store.probe().unwrap();
        drop(store);
        assert_eq!(entries(&dir).unwrap(), [0, 10, 20, 30, 40, 5]);
    }
}
