//! A simulated disk for the log of a process. After a power cut, any sectors of what was written and
//! not synced may be missing. A disk that lies confirms writes that it loses.

use e3_random::Random;
use e3_store::Files;
use std::io;
use std::path::PathBuf;

/// What a disk writes whole or not at all.
const SECTOR_LEN: usize = 512;

/// What is in the files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Image {
    log: Vec<u8>,
    snapshot: Option<Vec<u8>>,
}

/// A disk with a log and a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk {
    /// What reads show.
    shown: Image,
    /// What is left after a power cut.
    durable: Image,
    /// It refuses writes.
    pub(crate) is_full: bool,
    /// It confirms writes that it loses at the next power cut.
    pub(crate) lies: bool,
}

impl SimDisk {
    /// Cuts the power. Any sectors of what was not durable may be missing, or none.
    pub(crate) fn cut_power(&mut self, random: &mut Random) {
        if self.shown.log != self.durable.log {
            let (old, new) = (&self.durable.log, &self.shown.log);
            let grown = new.len().saturating_sub(old.len()) as u64;
            let is_whole = random.one_in(4);
            let len = if is_whole {
                new.len()
            } else {
                old.len() + random.below(grown + 1) as usize
            };
            let mut log = old.clone();
            log.resize(len, 0);
            for at in (0..len.min(new.len())).step_by(SECTOR_LEN) {
                let end = len.min(new.len()).min(at + SECTOR_LEN);
                if !self.lies && (is_whole || random.one_in(2)) {
                    log[at..end].copy_from_slice(&new[at..end]);
                }
            }
            if self.lies {
                log.truncate(old.len());
            }
            self.durable.log = log;
        }
        self.shown = self.durable.clone();
    }

    /// Puts back the files of a copy, durably; what is wrong with this disk stays, but for lies.
    pub(crate) fn restore(&mut self, copy: SimDisk) {
        self.durable = copy.shown.clone();
        self.shown = copy.shown;
        self.lies = false;
    }

    /// Flips a bit in one of the files; false if they are empty.
    pub(crate) fn rot(&mut self, random: &mut Random) -> bool {
        let file = match &mut self.shown.snapshot {
            Some(snapshot) if random.one_in(2) => snapshot,
            _ => &mut self.shown.log,
        };
        if file.is_empty() {
            return false;
        }
        let at = random.index(file.len());
        file[at] ^= 1 << random.below(8);
        true
    }
}

impl Files for SimDisk {
    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }

    fn read_log(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.shown.log.clone())
    }

    fn read_snapshot(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.shown.snapshot.clone())
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes what is in place of other bytes, and the first part of the rest.
        let in_place = self.shown.log.len().saturating_sub(offset as usize);
        let grows = bytes.len().saturating_sub(in_place);
        let taken = match self.is_full {
            true => bytes.len() - grows.div_ceil(2),
            false => bytes.len(),
        };
        let end = offset as usize + taken;
        if self.shown.log.len() < end {
            self.shown.log.resize(end, 0);
        }
        self.shown.log[offset as usize..end].copy_from_slice(&bytes[..taken]);
        match grows {
            0 => Ok(()),
            _ => self.probe(),
        }
    }

    fn truncate_log(&mut self, len: u64) -> io::Result<()> {
        self.shown.log.resize(len as usize, 0);
        Ok(())
    }

    fn sync_log(&mut self) -> io::Result<()> {
        if !self.lies {
            self.durable.log.clone_from(&self.shown.log);
        }
        Ok(())
    }

    fn replace_snapshot(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.probe()?;
        self.shown.snapshot = Some(bytes.to_vec());
        if !self.lies {
            self.durable.snapshot.clone_from(&self.shown.snapshot);
        }
        Ok(())
    }

    fn probe(&self) -> io::Result<()> {
        if self.is_full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_store::Store;

    #[test]
    fn what_an_operator_puts_back_outlives_the_next_power_cut() {
        let random = &mut Random::new(1);
        let disk = SimDisk {
            lies: true,
            ..SimDisk::default()
        };
        let (mut store, _) = Store::recover(disk).unwrap();
        store.append(b"first").unwrap();
        store.snapshot(b"state").unwrap();
        store.append(b"second").unwrap();
        store.sync().unwrap();
        let copy = store.files_mut().clone();
        let disk = store.files_mut();
        disk.cut_power(random);
        disk.restore(copy);
        let (_, put_back) = Store::recover(disk.clone()).unwrap();
        assert_eq!(put_back.snapshot.as_deref(), Some(&b"state"[..]));
        disk.cut_power(random);
        let (_, kept) = Store::recover(disk.clone()).unwrap();
        assert_eq!(kept, put_back);
    }
}
