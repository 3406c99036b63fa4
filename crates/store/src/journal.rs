//! An append-only sequence of records that is cut off at the front: the journal of a node.
//!
//! It consists of segments, one file each, named after their first record. Records are appended to a
//! buffer; [`Journal::sync`] writes all of them and returns when they are durable, so that many share one
//! wait for the disk. Records that are not needed any more go with their segment.
//!
//! What a power cut left unfinished at the end of the last segment is dropped, since it was never
//! reported as durable. Anything else that cannot be read is an error that names file and byte.

use crate::deliberate::{self, Fault};
use crate::limits::{RECORD_LEN_MAX, SEGMENT_LEN};
use crate::record::{Scan, encode, scan};
use crate::segments::{SegmentDirectory, SegmentFiles};
use crate::{StoreError, system};
use std::collections::VecDeque;
use std::path::Path;

/// Linux's errors of a system that is short of something: ENOMEM, ENFILE and EMFILE.
const SHORT: [i32; 3] = [12, 23, 24];

/// A journal, in a directory unless other files are given.
#[derive(Debug)]
pub struct Journal<F = SegmentDirectory> {
    files: F,
    /// Bytes after which another segment begins.
    segment_len: u64,
    segments: VecDeque<Segment>,
    /// Records that are not written, and their number.
    buffer: Vec<u8>,
    buffered: u64,
    /// Number of the next record.
    next: u64,
}

/// A file of the journal.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Number of its first record.
    first: u64,
    /// Bytes of it that are durable.
    len: u64,
}

impl Journal {
    /// Opens a directory, which is made if it is not there, and gives `take` number and content of every
    /// record in order.
    pub fn open(dir: &Path, take: impl FnMut(u64, Vec<u8>)) -> Result<Journal, StoreError> {
        Journal::recover(SegmentDirectory::open(dir)?, SEGMENT_LEN, take)
    }
}

impl<F: SegmentFiles> Journal<F> {
    /// Reads what the files hold, and gives `take` number and content of every record in order.
    pub fn recover(
        mut files: F,
        segment_len: u64,
        mut take: impl FnMut(u64, Vec<u8>),
    ) -> Result<Journal<F>, StoreError> {
        let firsts = files.list().map_err(system(&files.dir()))?;
        let (mut segments, mut tail) = (VecDeque::new(), Vec::new());
        let mut next = firsts.first().copied().unwrap_or(1);
        for (at, first) in firsts.iter().copied().enumerate() {
            let path = files.path(first);
            let corrupt = |offset, what| StoreError::Corrupt {
                file: path.clone(),
                offset,
                what,
            };
            if first != next {
                return Err(corrupt(0, "records before this file are missing"));
            }
            let bytes = files.read(first).map_err(system(&path))?;
            let mut found = Scan::default();
            let mut is_last = at + 1 == firsts.len();
            match scan(&bytes, first, &mut found) {
                Err(_) if deliberate::is(Fault::DamageDropped) => is_last = true,
                scanned => scanned.map_err(|(offset, what)| corrupt(offset, what))?,
            }
            if !is_last && found.end != bytes.len() as u64 {
                return Err(corrupt(found.end, "the file is cut short"));
            }
            let mut len = found.end;
            if is_last && !deliberate::is(Fault::TailTrusted) {
                len = found.unproved();
                tail = bytes[len as usize..found.end as usize].to_vec();
            }
            segments.push_back(Segment { first, len });
            for record in found.records {
                if record.number != next {
                    return Err(corrupt(0, "a record is missing"));
                }
                next += 1;
                take(record.number, record.content);
            }
            if is_last {
                for later in &firsts[at + 1..] {
                    files.remove(*later).map_err(system(&path))?;
                }
                break;
            }
        }
        if segments.is_empty() {
            segments.push_back(Segment {
                first: next,
                len: 0,
            });
        }
        let last = segments[segments.len() - 1].first;
        files.open(last).map_err(system(&files.path(last)))?;
        let mut journal = Journal {
            files,
            segment_len,
            segments,
            buffer: tail,
            buffered: 0,
            next,
        };
        // What was dropped at the end must not stand before the next record.
        journal.write_buffer()?;
        Ok(journal)
    }

    /// Appends a record, to be written with the next [`Journal::sync`]; gives its number.
    pub fn append(&mut self, content: &[u8]) -> Result<u64, StoreError> {
        if content.len() > RECORD_LEN_MAX {
            return Err(StoreError::TooLong(content.len()));
        }
        let number = self.next + self.buffered;
        let record = encode(number, self.next - 1, content);
        self.buffer.extend_from_slice(&record);
        self.buffered += 1;
        Ok(number)
    }

    /// Returns when all records are durable, with the number of the last one. After
    /// [`StoreError::Full`] and [`StoreError::Short`] it can be called again; after any other error the
    /// journal must be opened again.
    pub fn sync(&mut self) -> Result<u64, StoreError> {
        if self.buffered == 0 {
            return Ok(self.next - 1);
        }
        if self.segments[self.segments.len() - 1].len >= self.segment_len {
            self.begin_segment()?;
        }
        self.write_buffer()?;
        self.next += std::mem::take(&mut self.buffered);
        Ok(self.next - 1)
    }

    /// Deletes segments in which all records are before this one.
    pub fn trim(&mut self, before: u64) -> Result<(), StoreError> {
        let mut removed = false;
        while let [first, second, ..] = self.segments.make_contiguous()
            && second.first <= before
        {
            let path = self.files.path(first.first);
            self.files.remove(first.first).map_err(system(&path))?;
            self.segments.pop_front();
            removed = true;
        }
        if removed {
            let synced = self.files.sync_names();
            synced.map_err(system(&self.files.dir()))?;
        }
        Ok(())
    }

    /// Number of the next record.
    pub fn next(&self) -> u64 {
        self.next + self.buffered
    }

    /// Bytes of all segments.
    pub fn len_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.len).sum()
    }

    /// The files.
    pub fn files_mut(&mut self) -> &mut F {
        &mut self.files
    }

    /// The files, which are not written any more.
    pub fn into_files(self) -> F {
        self.files
    }

    fn begin_segment(&mut self) -> Result<(), StoreError> {
        let first = self.next;
        self.files.open(first).map_err(|e| {
            let file = self.files.path(first);
            // Nothing was written yet, so it is no reason to give the journal up.
            if e.raw_os_error().is_some_and(|code| SHORT.contains(&code)) {
                StoreError::Short { file, source: e }
            } else {
                system(&file)(e)
            }
        })?;
        self.segments.push_back(Segment { first, len: 0 });
        Ok(())
    }

    /// Writes the buffer behind what is durable, in place of whatever is there, and empties it.
    fn write_buffer(&mut self) -> Result<(), StoreError> {
        let end = self.segments.len() - 1;
        let last = &mut self.segments[end];
        let written = self.files.write(last.len, &self.buffer);
        let synced = written.and_then(|()| self.files.sync());
        synced.map_err(system(&self.files.path(last.first)))?;
        last.len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io;
    use std::path::PathBuf;

    fn read(dir: &Path) -> Result<Vec<(u64, usize)>, StoreError> {
        let mut found = Vec::new();
        Journal::open(dir, |number, content| found.push((number, content.len())))?;
        Ok(found)
    }

    fn files(dir: &Path) -> Vec<PathBuf> {
        let all = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
        let mut files: Vec<PathBuf> = all.filter(|f| f.extension().is_some()).collect();
        files.sort();
        files
    }

    /// Three segments of three records each.
    fn filled(dir: &Path) {
        let mut journal = Journal::open(dir, |_, _| panic!("it is new")).unwrap();
        for number in 1..=9u64 {
            let content = vec![number as u8; SEGMENT_LEN as usize / 3 + 1];
            assert_eq!(journal.append(&content).unwrap(), number);
            assert_eq!(journal.sync().unwrap(), number);
        }
    }

    #[test]
    fn records_are_there_in_order_over_all_segments() {
        let tmp = tempfile::tempdir().unwrap();
        filled(tmp.path());
        assert_eq!(files(tmp.path()).len(), 3);
        let found = read(tmp.path()).unwrap();
        assert!(found.iter().map(|(number, _)| *number).eq(1..=9));
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        assert_eq!(journal.next(), 10);
        assert!(matches!(read(tmp.path()), Err(StoreError::Locked(_))));
        for before in 1..=3 {
            journal.trim(before).unwrap();
            assert_eq!(files(tmp.path()).len(), 3, "record 3 is needed");
        }
        journal.trim(8).unwrap();
        assert_eq!(files(tmp.path()).len(), 1);
        drop(journal);
        assert!(read(tmp.path()).unwrap().iter().map(|r| r.0).eq(7..=9));
    }

    #[test]
    fn many_records_share_one_wait_and_none_counts_before_it() {
        let tmp = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        for _ in 0..5 {
            journal.append(b"a").unwrap();
        }
        let file = &files(tmp.path())[0];
        assert_eq!(std::fs::metadata(file).unwrap().len(), 0);
        assert_eq!(journal.sync().unwrap(), 5);
        assert_eq!(journal.sync().unwrap(), 5);
        drop(journal);
        assert_eq!(read(tmp.path()).unwrap().len(), 5);
    }

    #[test]
    fn a_tail_that_was_not_durable_is_dropped() {
        let tmp = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        journal.append(b"one").unwrap();
        journal.sync().unwrap();
        let durable = journal.len_bytes() as usize;
        for _ in 0..3 {
            journal.append(&[7; 600]).unwrap();
        }
        journal.sync().unwrap();
        drop(journal);
        let file = files(tmp.path()).remove(0);
        let whole = std::fs::read(&file).unwrap();
        for len in (durable..whole.len()).step_by(13) {
            std::fs::write(&file, &whole[..len]).unwrap();
            let found = read(tmp.path()).unwrap();
            assert_eq!(found[0], (1, 3), "cut at {len}");
            assert_eq!(std::fs::read(&file).unwrap()[..durable], whole[..durable]);
            // What follows stands right behind what was kept.
            let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
            journal.append(b"next").unwrap();
            journal.sync().unwrap();
            drop(journal);
            assert_eq!(read(tmp.path()).unwrap().len(), found.len() + 1);
        }
    }

    #[test]
    fn a_torn_first_batch_of_a_segment_is_dropped_unless_it_was_durable() {
        let tmp = tempfile::tempdir().unwrap();
        filled(tmp.path());
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        journal.append(&[10; 600]).unwrap();
        journal.append(&[11; 600]).unwrap();
        journal.sync().unwrap();
        drop(journal);
        let files = files(tmp.path());
        let good = std::fs::read(&files[3]).unwrap();
        // The first sector was not written; the second record is whole.
        let mut torn = good.clone();
        torn[..512].fill(0);
        std::fs::write(&files[3], &torn).unwrap();
        assert!(read(tmp.path()).unwrap().iter().map(|r| r.0).eq(1..=9));
        assert_eq!(std::fs::metadata(&files[3]).unwrap().len(), 0);
        // A later batch says that the first one was durable.
        std::fs::write(&files[3], &good).unwrap();
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        journal.append(b"later").unwrap();
        journal.sync().unwrap();
        drop(journal);
        let mut bad = std::fs::read(&files[3]).unwrap();
        bad[..512].fill(0);
        std::fs::write(&files[3], &bad).unwrap();
        let found = read(tmp.path());
        assert!(
            matches!(&found, Err(StoreError::Corrupt { file, .. }) if *file == files[3]),
            "{found:?}"
        );
    }

    #[test]
    fn damage_is_named_and_nothing_is_written_over() {
        let tmp = tempfile::tempdir().unwrap();
        filled(tmp.path());
        let files = files(tmp.path());
        for file in &files {
            let good = std::fs::read(file).unwrap();
            for at in [0, 30, good.len() / 2, good.len() - 1] {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                std::fs::write(file, &bad).unwrap();
                let found = read(tmp.path()).map(|_| ());
                assert!(
                    matches!(&found, Err(StoreError::Corrupt { file: f, .. }) if f == file),
                    "{} byte {at}: {found:?}",
                    file.display()
                );
                assert!(std::fs::read(file).unwrap() == bad);
            }
            std::fs::write(file, &good).unwrap();
        }
        // A file in the middle is gone, or cut short.
        let good = std::fs::read(&files[1]).unwrap();
        std::fs::write(&files[1], &good[..good.len() - 10]).unwrap();
        assert!(matches!(read(tmp.path()), Err(StoreError::Corrupt { .. })));
        std::fs::remove_file(&files[1]).unwrap();
        let error = read(tmp.path()).unwrap_err().to_string();
        assert!(
            error.contains("records before this file are missing"),
            "{error}"
        );
    }

    /// Files of which none can be opened for now.
    #[derive(Debug)]
    struct Short {
        files: SegmentDirectory,
        code: Option<i32>,
    }

    impl SegmentFiles for Short {
        fn dir(&self) -> PathBuf {
            self.files.dir()
        }

        fn path(&self, first: u64) -> PathBuf {
            self.files.path(first)
        }

        fn list(&mut self) -> io::Result<Vec<u64>> {
            self.files.list()
        }

        fn read(&mut self, first: u64) -> io::Result<Vec<u8>> {
            self.files.read(first)
        }

        fn open(&mut self, first: u64) -> io::Result<()> {
            match self.code {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => self.files.open(first),
            }
        }

        fn write(&mut self, len: u64, bytes: &[u8]) -> io::Result<()> {
            self.files.write(len, bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            self.files.sync()
        }

        fn remove(&mut self, first: u64) -> io::Result<()> {
            self.files.remove(first)
        }

        fn sync_names(&mut self) -> io::Result<()> {
            self.files.sync_names()
        }
    }

    #[test]
    fn a_segment_that_cannot_be_opened_for_now_is_tried_again() {
        let tmp = tempfile::tempdir().unwrap();
        let short = Short {
            files: SegmentDirectory::open(tmp.path()).unwrap(),
            code: None,
        };
        let mut journal = Journal::recover(short, 1, |_, _| ()).unwrap();
        journal.append(b"one").unwrap();
        journal.sync().unwrap();
        journal.append(b"two").unwrap();
        for code in SHORT {
            journal.files.code = Some(code);
            let error = journal.sync().unwrap_err();
            assert!(matches!(error, StoreError::Short { .. }), "{error}");
        }
        // EACCES does not pass by itself.
        journal.files.code = Some(13);
        let error = journal.sync().unwrap_err();
        assert!(matches!(error, StoreError::System { .. }), "{error}");
        journal.files.code = None;
        journal.append(b"three").unwrap();
        assert_eq!(journal.sync().unwrap(), 3);
        drop(journal);
        assert_eq!(read(tmp.path()).unwrap(), [(1, 3), (2, 3), (3, 5)]);
        assert_eq!(files(tmp.path()).len(), 2);
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_same_records_can_be_written_later() {
        let tmp = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(tmp.path(), |_, _| ()).unwrap();
        journal.append(b"one").unwrap();
        journal.sync().unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = journal.files.replace_file(full).unwrap();
        journal.append(b"two").unwrap();
        assert!(journal.sync().is_err());
        journal.files.replace_file(good);
        journal.append(b"three").unwrap();
        assert_eq!(journal.sync().unwrap(), 3);
        drop(journal);
        assert_eq!(read(tmp.path()).unwrap(), [(1, 3), (2, 3), (3, 5)]);
    }
}
