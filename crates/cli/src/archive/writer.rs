//! Writes the file of a backup.

use crate::cluster::durable::dir_of;
use crate::ui::failure::{Exit, Failure};
use e3_model::backup::BackupHead;
use e3_wire::archive::{DATA_LEN_MAX, FrameKind, HEAD_LEN_MAX, encode_frame, header};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that is being written. Unless it is finished, nothing of it stays.
pub struct Writer {
    path: PathBuf,
    /// Whether it may replace what has its name.
    replaces: bool,
    temporary: PathBuf,
    file: File,
    offset: u64,
    frames: u64,
    is_finished: bool,
}

impl Writer {
    /// Creates a file, which has no name of its own yet.
    pub fn create(path: &Path, replaces: bool) -> Result<Writer, Failure> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".");
        // State may be confidential.
        let file = tempfile::Builder::new()
            .prefix(&name)
            .suffix(".new")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(dir_of(path))
            .and_then(|file| file.keep().map_err(|e| e.error));
        let (file, temporary) = file.map_err(|e| Failure::file("write", path, &e))?;
        Ok(Writer {
            path: path.to_path_buf(),
            replaces,
            temporary,
            file,
            offset: 0,
            frames: 0,
            is_finished: false,
        })
    }

    /// Writes what the file begins with. It is called once, before any data is added.
    pub fn begin(&mut self, head: &BackupHead) -> Result<(), Failure> {
        self.write(&header())?;
        let head = serde_json::to_vec(head).expect("heads have text keys only");
        if head.len() > HEAD_LEN_MAX {
            let len = head.len();
            let message =
                format!("the head of the backup has {len} bytes, must have at most {HEAD_LEN_MAX}");
            return Err(Failure::new(Exit::Input, message));
        }
        self.frame(FrameKind::Head, &head)
    }

    /// Adds bytes of the files that the head names, in its order. Each call is of one file.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        for chunk in bytes.chunks(DATA_LEN_MAX) {
            self.frame(FrameKind::Data, chunk)?;
        }
        Ok(())
    }

    /// Ends the file and gives it its name. Returns its length.
    pub fn finish(mut self) -> Result<u64, Failure> {
        self.frame(FrameKind::End, &self.frames.to_le_bytes())?;
        let named = self.file.sync_all().and_then(|()| {
            if self.replaces {
                fs::rename(&self.temporary, &self.path)?;
            } else {
                name_new(&self.temporary, &self.path)?;
            }
            File::open(dir_of(&self.path))?.sync_all()
        });
        named.map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => {
                let path = self.path.display();
                let message =
                    format!("{path} appeared while the backup was written; it is not replaced");
                Failure::new(Exit::Conflict, message).hint("replace it with --force")
            }
            _ => Failure::file("write", &self.path, &e),
        })?;
        self.is_finished = true;
        Ok(self.offset)
    }

    fn frame(&mut self, kind: FrameKind, content: &[u8]) -> Result<(), Failure> {
        let frame = encode_frame(self.offset, kind, content);
        self.frames += 1;
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.offset += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        written.map_err(|e| Failure::file("write", &self.temporary, &e))
    }
}

/// Gives a file its name, unless something has that name by now.
fn name_new(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Ok(()) => fs::remove_file(temporary),
        // Some file systems have no links.
        Err(e) if e.kind() != ErrorKind::AlreadyExists && path.symlink_metadata().is_err() => {
            fs::rename(temporary, path)
        }
        Err(e) => Err(e),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_writer_that_may_replace_a_file_does() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("a.e3b");
        for (replaces, exit) in [(false, Some(Exit::Conflict)), (true, None)] {
            let writer = Writer::create(&path, replaces).unwrap();
            // It appears meanwhile.
            fs::write(&path, "other").unwrap();
            assert_eq!(writer.finish().err().map(|e| e.exit), exit);
            let is_other = fs::read(&path).unwrap() == b"other";
            assert_eq!(is_other, !replaces);
        }
        fs::remove_file(&path).unwrap();
        Writer::create(&path, false).unwrap().finish().unwrap();
        drop(Writer::create(&path, false).unwrap());
        // No temporary file is left.
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
    }
}
