//! Reads the file of a backup: first all of it, to check it, then what is needed.

use crate::ui::failure::{Exit, Failure};
use e3_model::backup::BackupHead;
use e3_wire::archive::{
    ArchiveError, FRAME_HEAD_LEN, FRAME_OVERHEAD_LEN, FrameKind, HEADER_LEN, check_frame,
    check_header, decode_frame_head,
};
use e3_wire::part::checksum;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A file that was checked.
pub struct Archive {
    path: PathBuf,
    /// What it says of itself.
    pub head: BackupHead,
    /// By file of the head, then by part: offset of its first frame.
    begins: Vec<u64>,
}

/// A place in a file.
struct Frames<'a> {
    path: &'a Path,
    file: BufReader<File>,
    offset: u64,
}

impl Archive {
    /// Opens a file, and checks all of it.
    pub fn open(path: &Path) -> Result<Archive, Failure> {
        let mut frames = Frames::open(path)?;
        let mut header = [0; HEADER_LEN];
        frames.fill(&mut header, 0)?;
        check_header(&header).map_err(|e| {
            let at = if e == ArchiveError::Magic { 0 } else { 8 };
            frames.wrong(at, &e)
        })?;
        let (at, kind, content) = frames.next()?;
        if kind != FrameKind::Head {
            return Err(frames.wrong(at, &ArchiveError::Kind(2)));
        }
        let head: BackupHead = serde_json::from_slice(&content)
            .map_err(|e| frames.at(at, &format!("the head: {e}")))?;
        let mut begins = Vec::new();
        let mut count = 1;
        for (len, crc) in contents(&head) {
            begins.push(frames.offset);
            let (mut found, mut sum) = (0, 0);
            while found < len {
                let (at, kind, content) = frames.next()?;
                let next = found + content.len() as u64;
                if kind != FrameKind::Data || next > len || content.is_empty() {
                    return Err(frames.at(at, "the contents are not those that the head says"));
                }
                (found, sum, count) = (next, checksum(sum, &content), count + 1);
            }
            if crc.is_some_and(|crc| crc != sum) {
                let begin = begins.last().copied().unwrap_or_default();
                return Err(frames.at(begin, "the state of a shard is not that of the head"));
            }
        }
        let (at, kind, content) = frames.next()?;
        let stated = content.try_into().map(u64::from_le_bytes);
        match (kind, stated) {
            (FrameKind::End, Ok(stated)) if stated == count => {}
            (FrameKind::End, Ok(stated)) => {
                let found = count;
                return Err(frames.wrong(at, &ArchiveError::Frames { stated, found }));
            }
            _ => return Err(frames.at(at, "the contents are not those that the head says")),
        }
        let end = frames.offset;
        if frames.read(&mut [0])? > 0 {
            return Err(frames.wrong(end, &ArchiveError::Trailing));
        }
        let path = path.to_path_buf();
        Ok(Archive { path, head, begins })
    }

    /// Gives the bytes of a file of the head, or of a part, which come behind them, in chunks.
    pub fn read(
        &self,
        index: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut frames = Frames::open(&self.path)?;
        frames.seek(self.begins[index])?;
        let (mut left, _) = contents(&self.head).nth(index).unwrap_or_default();
        while left > 0 {
            let (at, _, content) = frames.next()?;
            let rest = left.checked_sub(content.len() as u64);
            left = rest.ok_or_else(|| frames.at(at, "the file changed meanwhile"))?;
            take(&content)?;
        }
        Ok(())
    }

    /// All bytes of a file of the head.
    pub fn content(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        self.read(index, |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }
}

/// Length and checksum of each content, in the order of the file.
fn contents(head: &BackupHead) -> impl Iterator<Item = (u64, Option<u32>)> {
    let files = head.files.iter().map(|f| (f.len, None));
    files.chain(head.parts.iter().map(|p| (p.len, Some(p.crc))))
}

impl<'a> Frames<'a> {
    fn open(path: &'a Path) -> Result<Frames<'a>, Failure> {
        let file = File::open(path).map_err(|e| Failure::file("read", path, &e))?;
        Ok(Frames {
            path,
            file: BufReader::new(file),
            offset: 0,
        })
    }

    fn seek(&mut self, offset: u64) -> Result<(), Failure> {
        self.offset = offset;
        let sought = self.file.seek(SeekFrom::Start(offset));
        sought.map_err(|e| Failure::file("read", self.path, &e))?;
        Ok(())
    }

    /// The next frame, checked, with its offset.
    fn next(&mut self) -> Result<(u64, FrameKind, Vec<u8>), Failure> {
        let at = self.offset;
        let mut head = [0; FRAME_HEAD_LEN];
        self.fill(&mut head, at)?;
        let (kind, len) = decode_frame_head(&head).map_err(|e| self.wrong(at, &e))?;
        let mut content = vec![0; len];
        self.fill(&mut content, at)?;
        let mut stated = [0; FRAME_OVERHEAD_LEN - FRAME_HEAD_LEN];
        self.fill(&mut stated, at)?;
        check_frame(at, &head, &content, stated).map_err(|e| self.wrong(at, &e))?;
        Ok((at, kind, content))
    }

    fn fill(&mut self, bytes: &mut [u8], at: u64) -> Result<(), Failure> {
        match self.file.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                Err(self.wrong(at, &ArchiveError::Short))
            }
            Err(e) => Err(Failure::file("read", self.path, &e)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Failure> {
        let read = self.file.read(bytes);
        read.map_err(|e| Failure::file("read", self.path, &e))
    }

    fn wrong(&self, offset: u64, error: &ArchiveError) -> Failure {
        self.at(offset, &error.to_string())
    }

    fn at(&self, offset: u64, what: &str) -> Failure {
        let message = format!("{}: byte {offset}: {what}", self.path.display());
        Failure::new(Exit::Input, message).hint("nothing was changed; use another copy of the file")
    }
}
