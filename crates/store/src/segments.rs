//! The files of a journal in a directory, which one process uses at a time.

use crate::directory::{lock, sync_dir};
use crate::{StoreError, system};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files of a journal, as [`crate::Journal`] needs them: on a disk ([`SegmentDirectory`]), or in a
/// simulator. A file is named after the number of its first record.
pub trait SegmentFiles {
    /// What errors call all files together.
    fn dir(&self) -> PathBuf;
    /// What errors call a file.
    fn path(&self, first: u64) -> PathBuf;
    /// The files that are there, in order.
    fn list(&mut self) -> io::Result<Vec<u64>>;
    /// All bytes of a file.
    fn read(&mut self, first: u64) -> io::Result<Vec<u8>>;
    /// Opens the file that is written from now on. If it is not there, it is made, and its name is durable.
    fn open(&mut self, first: u64) -> io::Result<()>;
    /// Writes to the open file, behind this many bytes and in place of whatever is there. After an error
    /// any part of it may be there. What is there already and is the same stays durable if it was.
    fn write(&mut self, len: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything in the open file is durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, first: u64) -> io::Result<()>;
    /// Returns when removed files stay away.
    fn sync_names(&mut self) -> io::Result<()>;
}

const SUFFIX: &str = ".journal";

/// A directory with the files of a journal, and `lock`.
#[derive(Debug)]
pub struct SegmentDirectory {
    dir: PathBuf,
    _lock: File,
    /// The file that is written.
    file: Option<File>,
}

impl SegmentDirectory {
    /// Opens a directory, which is made if it is not there, and locks it.
    pub fn open(dir: &Path) -> Result<SegmentDirectory, StoreError> {
        std::fs::create_dir_all(dir).map_err(system(dir))?;
        Ok(SegmentDirectory {
            dir: dir.to_path_buf(),
            _lock: lock(dir)?,
            file: None,
        })
    }

    fn written(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or(io::ErrorKind::NotFound.into())
    }

    #[cfg(test)]
    pub(crate) fn replace_file(&mut self, file: File) -> Option<File> {
        self.file.replace(file)
    }
}

/// Moves a directory with a damaged journal away, to a name beside it that it returns.
pub fn set_aside(dir: &Path) -> Result<PathBuf, StoreError> {
    let name = |number: u32| {
        let mut name = dir.as_os_str().to_os_string();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let to = (1..).map(name).find(|path| !path.exists());
    let to = to.unwrap_or_else(|| name(u32::MAX));
    std::fs::rename(dir, &to).map_err(system(dir))?;
    if let Some(parent) = dir.parent().filter(|p| p.is_dir()) {
        sync_dir(parent).map_err(system(parent))?;
    }
    Ok(to)
}

impl SegmentFiles for SegmentDirectory {
    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    fn path(&self, first: u64) -> PathBuf {
        self.dir.join(format!("{first:020}{SUFFIX}"))
    }

    fn list(&mut self) -> io::Result<Vec<u64>> {
        let mut firsts = Vec::new();
        for file in std::fs::read_dir(&self.dir)? {
            let name = file?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(SUFFIX));
            firsts.extend(number.and_then(|n| n.parse::<u64>().ok()));
        }
        firsts.sort_unstable();
        Ok(firsts)
    }

    fn read(&mut self, first: u64) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(first))
    }

    fn open(&mut self, first: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let file = options.open(self.path(first))?;
        sync_dir(&self.dir)?;
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, len: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.written()?;
        file.write_all_at(bytes, len)?;
        let end = len + bytes.len() as u64;
        if file.metadata()?.len() != end {
            file.set_len(end)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.written()?.sync_data()
    }

    fn remove(&mut self, first: u64) -> io::Result<()> {
        std::fs::remove_file(self.path(first))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        sync_dir(&self.dir)
    }
}
