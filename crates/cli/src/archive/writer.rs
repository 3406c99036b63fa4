//! Writes the file of a backup.

use crate::ui::failure::{Exit, Failure};
use e3_model::backup::BackupHead;
use e3_wire::archive::{DATA_LEN_MAX, FrameKind, HEAD_LEN_MAX, encode_frame, header};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is being written. Unless it is finished, nothing of it stays.
pub struct Writer {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    offset: u64,
    frames: u64,
    is_finished: bool,
}

impl Writer {
    /// Begins a file, which has no name of its own yet.
    pub fn create(path: &Path, head: &BackupHead) -> Result<Writer, Failure> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = OpenOptions::new();
        // State may be confidential.
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&temporary);
        let file = file.map_err(|e| Failure::file("write", &temporary, &e))?;
        let mut writer = Writer {
            path: path.to_path_buf(),
            temporary,
            file,
            offset: 0,
            frames: 0,
            is_finished: false,
        };
        writer.write(&header())?;
        let head = serde_json::to_vec(head).expect("heads have text keys only");
        if head.len() > HEAD_LEN_MAX {
            let len = head.len();
            let message =
                format!("the head of the backup has {len} bytes, must have at most {HEAD_LEN_MAX}");
            return Err(Failure::new(Exit::Input, message));
        }
        writer.frame(FrameKind::Head, &head)?;
        Ok(writer)
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
            fs::rename(&self.temporary, &self.path)?;
            match self.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                Some(dir) => File::open(dir)?.sync_all(),
                None => Ok(()),
            }
        });
        named.map_err(|e| Failure::file("write", &self.path, &e))?;
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

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
