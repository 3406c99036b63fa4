//! A simulated disk for the journal of a node. After a power cut, any sectors of what was written and
//! not synced may be missing. A disk that lies confirms writes that it loses.

use e3_random::Random;
use e3_store::SegmentFiles;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// What a disk writes whole or not at all.
const SECTOR_LEN: usize = 512;

/// A file: only its end is ever written.
#[derive(Clone, Debug, Default)]
struct Segment {
    /// What reads show.
    bytes: Vec<u8>,
    /// How much of it a power cut leaves there.
    durable: usize,
    /// Whether a power cut leaves the file there at all.
    is_named: bool,
    /// What reads show, although its sync failed: no later sync makes it durable, unless it is written again.
    dropped: Option<Range<usize>>,
}

/// The files of a journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimSegments {
    files: BTreeMap<u64, Segment>,
    /// Removed while the disk lied: a power cut brings them back.
    removed: BTreeMap<u64, Segment>,
    /// The file that is written.
    open: u64,
    /// It refuses writes.
    pub(crate) is_full: bool,
    /// It confirms what the next power cut loses.
    pub(crate) lies: bool,
    /// The next sync fails.
    pub(crate) fails_sync: bool,
    /// The process ends during the next write; the number chooses after how many bytes.
    pub(crate) stops_write: Option<u64>,
}

impl SimSegments {
    /// Cuts the power. Any sectors of what was not durable may be missing, and the end at any byte.
    pub(crate) fn cut_power(&mut self, random: &mut Random) {
        self.files.append(&mut self.removed);
        self.files.retain(|_, file| file.is_named);
        for file in self.files.values_mut() {
            if let Some(dropped) = file.dropped.take() {
                file.bytes[dropped].fill(0);
            }
            let from = file.durable;
            let written = (file.bytes.len() - from) as u64;
            let kept = if self.lies {
                0
            } else {
                random.below(written + 1) as usize
            };
            file.bytes.truncate(from + kept);
            let mut at = from;
            while at < from + kept {
                let end = (from + kept).min((at / SECTOR_LEN + 1) * SECTOR_LEN);
                if random.one_in(2) {
                    file.bytes[at..end].fill(0);
                }
                at = end;
            }
            file.durable = file.bytes.len();
        }
    }

    /// Makes everything durable: what was a lie becomes true.
    pub(crate) fn settle(&mut self) {
        self.removed.clear();
        for file in self.files.values_mut() {
            (file.durable, file.is_named) = (file.bytes.len(), true);
        }
    }

    /// Flips a bit of what is durable; false if nothing is.
    pub(crate) fn rot(&mut self, random: &mut Random) -> bool {
        let len: usize = self.files.values().map(|f| f.durable).sum();
        if len == 0 {
            return false;
        }
        let mut at = random.index(len);
        for file in self.files.values_mut() {
            if at < file.durable {
                file.bytes[at] ^= 1 << random.below(8);
                return true;
            }
            at -= file.durable;
        }
        false
    }

    /// Moves all files away.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.removed.clear();
    }
}

impl SegmentFiles for SimSegments {
    fn dir(&self) -> PathBuf {
        "journal".into()
    }

    fn path(&self, first: u64) -> PathBuf {
        format!("{first}.journal").into()
    }

    fn list(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.files.keys().copied().collect())
    }

    fn read(&mut self, first: u64) -> io::Result<Vec<u8>> {
        let file = self.files.get(&first).ok_or(io::ErrorKind::NotFound)?;
        Ok(file.bytes.clone())
    }

    fn open(&mut self, first: u64) -> io::Result<()> {
        if self.is_full && !self.files.contains_key(&first) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = self.files.entry(first).or_default();
        file.is_named |= !self.lies;
        self.open = first;
        Ok(())
    }

    fn write(&mut self, len: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.files.entry(self.open).or_default();
        let from = len as usize;
        let there = file.bytes.split_off(from);
        let taken = match self.stops_write {
            Some(choice) => (choice % (bytes.len() as u64 + 1)) as usize,
            // A full disk takes what is in place of other bytes, and the first part of the rest.
            None if self.is_full => {
                bytes.len() - bytes.len().saturating_sub(there.len()).div_ceil(2)
            }
            None => bytes.len(),
        };
        let same = there
            .iter()
            .zip(&bytes[..taken])
            .take_while(|(a, b)| a == b);
        let same = same.count();
        if same < taken {
            file.durable = file.durable.min(from + same);
        }
        file.bytes.extend_from_slice(&bytes[..taken]);
        // It is cut off behind what was written, but not after an error.
        if taken < bytes.len() {
            file.bytes.extend(there.into_iter().skip(taken));
        }
        file.durable = file.durable.min(file.bytes.len());
        if let Some(dropped) = &mut file.dropped {
            dropped.end = dropped.end.min(from);
        }
        file.dropped.take_if(|dropped| dropped.start >= dropped.end);
        match self.stops_write {
            Some(_) => Err(io::ErrorKind::Interrupted.into()),
            None if taken < bytes.len() => Err(io::ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let fails = std::mem::take(&mut self.fails_sync);
        if let Some(file) = self.files.get_mut(&self.open).filter(|_| !self.lies) {
            if fails {
                file.dropped = Some(file.durable..file.bytes.len());
                return Err(io::Error::other("the disk fails"));
            }
            file.durable = file.bytes.len();
        }
        Ok(())
    }

    fn remove(&mut self, first: u64) -> io::Result<()> {
        let file = self.files.remove(&first).ok_or(io::ErrorKind::NotFound)?;
        if self.lies {
            self.removed.insert(first, file);
        }
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_store::{Journal, StoreError};

    const SEGMENT_LEN: u64 = 2_000;

    fn read(files: SimSegments) -> Result<(u64, Journal<SimSegments>), StoreError> {
        let mut records = 0;
        let journal = Journal::recover(files, SEGMENT_LEN, |_, _| records += 1)?;
        Ok((records, journal))
    }

    /// A journal with this many records that are durable.
    fn filled(records: u64, random: &mut Random) -> Journal<SimSegments> {
        let (_, mut journal) = read(SimSegments::default()).unwrap();
        for _ in 0..records {
            let content = vec![7; random.index(900)];
            journal.append(&content).unwrap();
            journal.sync().unwrap();
        }
        journal
    }

    #[test]
    fn a_power_cut_during_a_write_leaves_what_was_durable() {
        for seed in 0..300 {
            let random = &mut Random::new(seed);
            let mut journal = filled(9, random);
            // Small ones behind a large one: some are whole when it is not, also at a file's beginning.
            for len in [600, 20, 20, 700, 1_500] {
                journal.append(&vec![7; len]).unwrap();
            }
            journal.files_mut().stops_write = Some(u64::MAX);
            assert!(journal.sync().is_err());
            let mut files = journal.into_files();
            files.stops_write = None;
            files.cut_power(random);
            let (records, mut journal) = read(files).unwrap();
            assert!((9..=14).contains(&records), "seed {seed}: {records}");
            journal.append(b"next").unwrap();
            assert_eq!(journal.sync().unwrap(), records + 1);
            assert_eq!(read(journal.into_files()).unwrap().0, records + 1);
        }
    }

    #[test]
    fn what_a_failed_sync_dropped_is_written_again_before_it_counts() {
        for seed in 0..300 {
            let random = &mut Random::new(seed);
            let mut journal = filled(9, random);
            for len in [600, 20, 700] {
                journal.append(&vec![7; len]).unwrap();
            }
            journal.files_mut().fails_sync = true;
            assert!(journal.sync().is_err());
            // The next process reads them, and goes on from them.
            let (records, mut journal) = read(journal.into_files()).unwrap();
            assert_eq!(records, 12, "seed {seed}");
            if random.one_in(2) {
                journal.append(b"next").unwrap();
                assert_eq!(journal.sync().unwrap(), 13);
            }
            let last = journal.next() - 1;
            let mut files = journal.into_files();
            files.cut_power(random);
            assert_eq!(read(files).unwrap().0, last, "seed {seed}");
        }
    }

    #[test]
    fn a_flipped_bit_of_what_was_durable_is_found() {
        for seed in 0..300 {
            let random = &mut Random::new(seed);
            let mut files = filled(9, random).into_files();
            assert!(files.rot(random));
            let found = read(files).map(drop);
            assert!(
                matches!(found, Err(StoreError::Corrupt { .. })),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_disk_that_lies_loses_what_it_confirmed() {
        let random = &mut Random::new(1);
        let mut journal = filled(5, random);
        journal.files_mut().lies = true;
        for number in 6..=20 {
            journal.append(&[7; 500]).unwrap();
            assert_eq!(journal.sync().unwrap(), number);
        }
        journal.trim(9).unwrap();
        let mut files = journal.into_files();
        assert_eq!(read(files.clone()).unwrap().1.next(), 21);
        files.cut_power(random);
        assert_eq!(read(files).unwrap().1.next(), 6);
    }
}
