//! States of shards on the controller's disk: those of backups, until they are fetched, and those that
//! restored applications begin with.

use crate::room::room_on;
use axum::body::Bytes;
use e3_http::Refusal;
use e3_model::backup::Part;
use e3_wire::part::checksum;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use e3_store::StoreError;

/// A directory with a folder for each number, and a file for each shard in it.
pub(crate) struct Parts {
    dir: PathBuf,
    /// Numbers of the folders.
    numbers: BTreeSet<u64>,
    /// What came since this process started.
    written: BTreeMap<(u64, String), Written>,
}

/// What came of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Written {
    /// Bytes.
    pub(crate) len: u64,
    /// Their checksum.
    pub(crate) crc: u32,
}

impl Parts {
    /// Opens the directory. What is not kept is removed, and so is what is no folder of a number.
    pub(crate) fn open(dir: PathBuf, keeps: bool) -> Result<Parts, StoreError> {
        let mut numbers = BTreeSet::new();
        let mut read = || -> io::Result<()> {
            fs::create_dir_all(&dir)?;
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                let name = entry.file_name();
                let number = name.to_str().and_then(|name| name.parse().ok());
                let is_dir = entry.file_type()?.is_dir();
                match number.filter(|_| keeps && is_dir) {
                    Some(number) => drop(numbers.insert(number)),
                    None if is_dir => fs::remove_dir_all(entry.path())?,
                    None => fs::remove_file(entry.path())?,
                }
            }
            Ok(())
        };
        read().map_err(|source| StoreError::System {
            file: dir.clone(),
            source,
        })?;
        Ok(Parts {
            dir,
            numbers,
            written: BTreeMap::new(),
        })
    }

    /// The numbers that are there.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().copied()
    }

    /// Whether it takes parts of this number.
    pub(crate) fn takes(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// Makes room for parts.
    pub(crate) fn create(&mut self, number: u64) -> Result<(), Refusal> {
        let dir = self.dir.join(number.to_string());
        fs::create_dir_all(&dir).map_err(|e| not_written(&dir, &e))?;
        self.numbers.insert(number);
        Ok(())
    }

    /// Removes all parts of a number.
    pub(crate) fn remove(&mut self, number: u64) {
        if !self.numbers.remove(&number) {
            return;
        }
        self.written.retain(|(n, _), _| *n != number);
        // They only take space.
        if let Err(e) = fs::remove_dir_all(self.dir.join(number.to_string())) {
            tracing::warn!(error = %e, number, "states of shards cannot be removed");
        }
    }

    /// What came of a part.
    pub(crate) fn written(&self, number: u64, file: &str) -> Written {
        let written = self.written.get(&(number, file.to_string()));
        written.copied().unwrap_or_default()
    }

    /// Bytes that came of all parts of a number.
    pub(crate) fn bytes(&self, number: u64) -> u64 {
        let all = self.written.iter().filter(|((n, _), _)| *n == number);
        all.map(|(_, written)| written.len).sum()
    }

    /// Begins to append a chunk; none if it came before.
    pub(crate) fn begin_append(
        &self,
        (number, name): (u64, &str),
        offset: u64,
        bytes: Bytes,
    ) -> Result<Option<Append>, Refusal> {
        let before = self.written(number, name);
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= before.len {
            return Ok(None);
        }
        if offset != before.len {
            let error = format!(
                "chunk of part {name} begins at byte {offset}, must begin at {}",
                before.len
            );
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        Ok(Some(Append {
            path: self.file(number, name),
            before,
            bytes,
        }))
    }

    /// Notes that a chunk was appended, unless the part has been removed meanwhile.
    pub(crate) fn end_append(&mut self, number: u64, name: String, written: Written) {
        if self.takes(number) {
            self.written.insert((number, name), written);
        }
    }

    /// What sees that parts survive a power cut, those that are there. For parts that were just written it takes
    /// long.
    pub(crate) fn syncing(
        &self,
        number: u64,
        parts: &[Part],
    ) -> impl FnOnce() -> Result<(), Refusal> + Send + use<> {
        let files = parts.iter().map(|part| self.file(number, &part.file()));
        let dirs = [self.dir.join(number.to_string()), self.dir.clone()];
        let paths: Vec<PathBuf> = files.chain(dirs).collect();
        let sync = |path: &Path| match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened?.sync_all(),
        };
        move || {
            let mut paths = paths.iter();
            paths.try_for_each(|path| sync(path).map_err(|e| not_written(path, &e)))
        }
    }

    /// The file of a part. `name` is a name that this process made.
    pub(crate) fn file(&self, number: u64, name: &str) -> PathBuf {
        self.dir.join(number.to_string()).join(name)
    }
}

/// A chunk that is to be appended to a part.
pub(crate) struct Append {
    path: PathBuf,
    before: Written,
    bytes: Bytes,
}

impl Append {
    /// Writes it. Refuses what would leave the decisions too little room on the disk.
    pub(crate) fn write(&self) -> Result<Written, Refusal> {
        let (path, bytes) = (&self.path, &self.bytes);
        let dir = path.parent().unwrap_or(path);
        let room = room_on(dir).map_err(|e| not_written(path, &e))?;
        if !room.takes(bytes.len()) {
            let error = format!(
                "{} cannot be written: its disk has {} bytes free, of which {} are kept",
                path.display(),
                room.free,
                room.kept
            );
            return Err(Refusal::new(StatusCode::INSUFFICIENT_STORAGE, error)
                .hint("make room on the controller's disk, then try again"));
        }
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(false).write(true).mode(0o600);
            let mut f = options.open(path)?;
            // A chunk that was cut off before is written over.
            f.set_len(self.before.len)?;
            f.seek(SeekFrom::Start(self.before.len))?;
            f.write_all(bytes)
        };
        write().map_err(|e| not_written(path, &e))?;
        Ok(Written {
            len: self.before.len + bytes.len() as u64,
            crc: checksum(self.before.crc, bytes),
        })
    }
}

/// Bytes of a file from an offset on, at most `len_max`; none if there is no such file. Any other error may
/// pass, so it must not look like a file that is gone.
pub(crate) fn read_from(
    path: &Path,
    offset: u64,
    len_max: u64,
) -> Result<Option<Vec<u8>>, Refusal> {
    let read = || -> io::Result<Vec<u8>> {
        let mut f = File::open(path)?;
        f.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        f.take(len_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            let error = format!("{} cannot be read: {e}", path.display());
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error)
                .hint("check the controller's disk, then try again"))
        }
    }
}

fn not_written(path: &Path, e: &io::Error) -> Refusal {
    let error = format!("{} cannot be written: {e}", path.display());
    Refusal::new(StatusCode::INSUFFICIENT_STORAGE, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    #[test]
    fn only_a_part_that_is_not_there_is_missing() {
        let tmp = tempfile::tempdir().unwrap();
        let mut parts = Parts::open(tmp.path().join("parts"), true).unwrap();
        parts.create(7).unwrap();
        let begun = parts.begin_append((7, "0-0"), 0, Bytes::from_static(b"state"));
        let written = begun.unwrap().unwrap().write().unwrap();
        assert_eq!(written.len, 5);
        let read =
            |number, name, offset, len_max| read_from(&parts.file(number, name), offset, len_max);
        assert_eq!(read(7, "0-0", 2, 2).unwrap().unwrap(), b"at");
        assert_eq!(read(7, "0-1", 0, 9).unwrap(), None);
        assert_eq!(read(8, "0-0", 0, 9).unwrap(), None);
        // What cannot be read is there all the same.
        fs::create_dir(parts.file(7, "0-2")).unwrap();
        let refusal = read(7, "0-2", 0, 9).unwrap_err().into_response();
        assert_eq!(refusal.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
