//! The audit log: who gave which command, and what came of it. A record is on disk before its answer
//! leaves. There are two files, and the older one is dropped when the newer one is full, so its length
//! is bounded.

use crate::limits::{AUDIT_FILE_LEN_MAX, AUDIT_TEXT_LEN_MAX};
use e3_model::api::AuditView;
use e3_store::StoreError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What came of a command, for its record: an extension of its answer.
#[derive(Clone)]
pub(crate) struct Subject(pub(crate) String);

/// The files of the audit log.
pub(crate) struct AuditLog {
    dir: PathBuf,
    file: File,
    len: u64,
    len_max: u64,
    next: u64,
    /// Whether the last record may be there in part.
    is_torn: bool,
}

fn system(file: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    |source| StoreError::System {
        file: file.to_path_buf(),
        source,
    }
}

/// The records of a file's text. A line that is none is skipped: the last one may be torn.
fn records(text: &[u8]) -> impl Iterator<Item = AuditView> {
    let lines = text.split(|b| *b == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

impl AuditLog {
    /// Opens the log in a directory, which is created if it is missing.
    pub(crate) fn open(dir: PathBuf) -> Result<AuditLog, StoreError> {
        AuditLog::open_with(dir, AUDIT_FILE_LEN_MAX)
    }

    fn open_with(dir: PathBuf, len_max: u64) -> Result<AuditLog, StoreError> {
        fs::create_dir_all(&dir).map_err(system(&dir))?;
        let mut next = 1;
        for file in [older(&dir), newer(&dir)] {
            match fs::read(&file) {
                Ok(text) => {
                    let last = records(&text).last();
                    next = last.map_or(next, |record| next.max(record.number + 1));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => next += set_aside(&file, &e).map_err(system(&file))?,
            }
        }
        let (file, len) = open_file(&newer(&dir)).map_err(system(&dir))?;
        Ok(AuditLog {
            dir,
            file,
            len,
            len_max,
            next,
            is_torn: len > 0,
        })
    }

    /// Appends a record, whose number it sets.
    pub(crate) fn append(&mut self, mut record: AuditView) -> io::Result<()> {
        record.number = self.next;
        for text in [&mut record.path, &mut record.detail, &mut record.error] {
            cut(text, AUDIT_TEXT_LEN_MAX);
        }
        let mut line = serde_json::to_vec(&record).expect("records have text keys only");
        line.push(b'\n');
        if self.len > 0 && self.len + line.len() as u64 > self.len_max {
            // It may be renamed already, if the new one could not be opened then.
            match fs::rename(newer(&self.dir), older(&self.dir)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            (self.file, self.len) = open_file(&newer(&self.dir))?;
            File::open(&self.dir)?.sync_all()?;
        }
        if std::mem::replace(&mut self.is_torn, true) {
            line.insert(0, b'\n');
        }
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.is_torn = false;
        self.len += line.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// The last records, at most `count_max`, of those with greater numbers that are not older.
    pub(crate) fn read(
        &self,
        after: u64,
        since_ms: u64,
        count_max: usize,
    ) -> io::Result<Vec<AuditView>> {
        let mut found = Vec::new();
        for file in [older(&self.dir), newer(&self.dir)] {
            let text = match fs::read(&file) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            let wanted = |r: &AuditView| r.number > after && r.at_unix_ms >= since_ms;
            found.extend(records(&text).filter(wanted));
        }
        let dropped = found.len().saturating_sub(count_max);
        found.drain(..dropped);
        Ok(found)
    }
}

/// Moves a file away that cannot be read: no decision depends on it. Returns how many records it had at most.
fn set_aside(file: &Path, why: &io::Error) -> io::Result<u64> {
    let to = file.with_extension("unreadable");
    let len = fs::metadata(file)?.len();
    fs::rename(file, &to)?;
    let (file, to) = (file.display(), to.display());
    tracing::error!("{file} cannot be read: {why}; it is {to} now, and its records are not listed");
    Ok(len)
}

fn newer(dir: &Path) -> PathBuf {
    dir.join("log.jsonl")
}

fn older(dir: &Path) -> PathBuf {
    dir.join("log.1.jsonl")
}

fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    let len = file.metadata()?.len();
    Ok((file, len))
}

/// Shortens a text to at most this many bytes.
pub(crate) fn cut(text: &mut String, len_max: usize) {
    if text.len() > len_max {
        let end = (0..=len_max).rev().find(|i| text.is_char_boundary(*i));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(who: &str, at_unix_ms: u64) -> AuditView {
        AuditView {
            number: 0,
            at_unix_ms,
            who: who.into(),
            operation: "deployApp".into(),
            path: "/v1/apps".into(),
            detail: String::new(),
            status: 200,
            error: String::new(),
        }
    }

    fn numbers(records: &[AuditView]) -> Vec<u64> {
        records.iter().map(|r| r.number).collect()
    }

    #[test]
    fn records_are_numbered_across_restarts_and_a_torn_one_is_skipped() {
        let tmp = tempfile::tempdir().unwrap();
        let open = || AuditLog::open(tmp.path().join("audit")).unwrap();
        let mut log = open();
        for i in 1..=3 {
            log.append(record("ci", i * 10)).unwrap();
        }
        drop(log);
        let file = tmp.path().join("audit/log.jsonl");
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 5]).unwrap();
        let mut log = open();
        log.append(record("owner", 40)).unwrap();
        let all = log.read(0, 0, 100).unwrap();
        assert_eq!(numbers(&all), [1, 2, 3]);
        assert_eq!(all[2].who, "owner");
        assert_eq!(numbers(&log.read(1, 0, 100).unwrap()), [2, 3]);
        assert_eq!(numbers(&log.read(0, 20, 100).unwrap()), [2, 3]);
        assert_eq!(numbers(&log.read(0, 0, 2).unwrap()), [2, 3]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_moved_away_and_numbers_go_on() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().to_path_buf();
        let mut log = AuditLog::open(dir.clone()).unwrap();
        (1..=3).for_each(|i| log.append(record("ci", i)).unwrap());
        drop(log);
        fs::create_dir(older(&dir)).unwrap();
        let mut log = AuditLog::open(dir.clone()).unwrap();
        assert!(dir.join("log.1.unreadable").is_dir());
        log.append(record("ci", 4)).unwrap();
        drop(log);
        let next = AuditLog::open(dir.clone()).unwrap().next;
        // The records of the newer one are gone, and their numbers are not given again.
        fs::rename(newer(&dir), dir.join("kept")).unwrap();
        fs::create_dir(newer(&dir)).unwrap();
        let len = fs::metadata(newer(&dir)).unwrap().len();
        let log = AuditLog::open(dir.clone()).unwrap();
        assert_eq!((log.next, log.read(0, 0, 9).unwrap().len()), (1 + len, 0));
        assert!(next > 4 && dir.join("log.unreadable").is_dir());
    }

    #[test]
    fn the_files_are_bounded_and_the_newest_records_are_kept() {
        let tmp = tempfile::tempdir().unwrap();
        let mut log = AuditLog::open_with(tmp.path().to_path_buf(), 1_000).unwrap();
        for i in 0..100 {
            let mut long = record("ci", i);
            long.detail = "ü".repeat(10 * AUDIT_TEXT_LEN_MAX);
            log.append(if i % 10 == 0 { long } else { record("ci", i) })
                .unwrap();
            let len: u64 = fs::read_dir(tmp.path())
                .unwrap()
                .map(|e| e.unwrap().metadata().unwrap().len())
                .sum();
            assert!(len < 2 * (1_000 + AUDIT_TEXT_LEN_MAX as u64 + 200), "{len}");
        }
        let kept = log.read(0, 0, 1_000).unwrap();
        assert_eq!(kept.last().unwrap().number, 100);
        assert!(kept.len() >= 2 && kept.windows(2).all(|w| w[1].number == w[0].number + 1));
    }
}
