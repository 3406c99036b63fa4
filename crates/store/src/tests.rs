use super::*;
use crate::record::HEADER_LEN;
use std::collections::BTreeSet;
use std::fs::OpenOptions;

fn filled(dir: &Path) {
    let (mut store, recovered) = Store::open(dir).unwrap();
    assert_eq!(recovered, Recovered::default());
    for i in 0..5u8 {
        store.append(&vec![i; usize::from(i) * 10]).unwrap();
        store.sync().unwrap();
    }
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
fn records_that_were_not_durable_may_be_there_in_part() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("a");
    filled(&dir);
    let durable = std::fs::read(dir.join("log")).unwrap().len();
    let (mut store, _) = Store::open(&dir).unwrap();
    for len in [700, 1_300, 90] {
        store.append(&vec![b'x'; len]).unwrap();
    }
    drop(store);
    let log = std::fs::read(dir.join("log")).unwrap();
    let sectors = durable / 512..log.len().div_ceil(512);
    // The power was cut while the sectors were written: any of them may be missing.
    for missing in 1..1_u32 << sectors.len() {
        let mut torn = log.clone();
        for (bit, sector) in sectors.clone().enumerate() {
            if missing & 1 << bit != 0 {
                let end = torn.len().min((sector + 1) * 512);
                torn[durable.max(sector * 512)..end].fill(0);
            }
        }
        std::fs::write(dir.join("log"), &torn).unwrap();
        let found = entries(&dir).unwrap();
        assert!(
            found.starts_with(&[0, 10, 20, 30, 40]) && found.len() < 8,
            "missing {missing:b}: {found:?}"
        );
    }
    // Once they are durable, the same is damage.
    std::fs::write(dir.join("log"), &log).unwrap();
    let (mut store, _) = Store::open(&dir).unwrap();
    store.append(b"after").unwrap();
    drop(store);
    let mut bad = std::fs::read(dir.join("log")).unwrap();
    bad[durable..512 * (durable / 512 + 1)].fill(0);
    std::fs::write(dir.join("log"), &bad).unwrap();
    assert!(matches!(entries(&dir), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_torn_first_batch_is_dropped_unless_it_was_durable() {
    for has_snapshot in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a");
        let log = dir.join("log");
        let (mut store, _) = Store::open(&dir).unwrap();
        if has_snapshot {
            store.append(b"before").unwrap();
            store.sync().unwrap();
            store.snapshot(b"all").unwrap();
        }
        store.append(&[1; 600]).unwrap();
        store.append(&[2; 600]).unwrap();
        drop(store);
        let good = std::fs::read(&log).unwrap();
        // The first sector was not written; the second record is whole.
        let mut torn = good.clone();
        torn[..512].fill(0);
        std::fs::write(&log, &torn).unwrap();
        let (store, recovered) = Store::open(&dir).unwrap();
        assert_eq!(recovered.snapshot.is_some(), has_snapshot);
        assert_eq!(
            (recovered.entries.len(), recovered.torn_bytes),
            (0, torn.len() as u64)
        );
        drop(store);
        // A later batch says that the first one was durable.
        std::fs::write(&log, &good).unwrap();
        let (mut store, _) = Store::open(&dir).unwrap();
        store.append(b"later").unwrap();
        drop(store);
        let mut bad = std::fs::read(&log).unwrap();
        bad[..512].fill(0);
        std::fs::write(&log, &bad).unwrap();
        let found = entries(&dir);
        assert!(
            matches!(found, Err(StoreError::Corrupt { .. })),
            "{has_snapshot}: {found:?}"
        );
    }
}

#[test]
fn a_log_from_before_the_snapshot_may_be_torn() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("a");
    let (mut store, _) = Store::open(&dir).unwrap();
    for i in 0..3 {
        store.append(&[i; 600]).unwrap();
        store.sync().unwrap();
    }
    let mut old_log = std::fs::read(dir.join("log")).unwrap();
    store.snapshot(b"all").unwrap();
    drop(store);
    // The crash was right after the snapshot, and part of the log is gone.
    old_log[..512].fill(0);
    std::fs::write(dir.join("log"), &old_log).unwrap();
    let (mut store, recovered) = Store::open(&dir).unwrap();
    assert_eq!(
        (recovered.snapshot.is_some(), recovered.entries.len()),
        (true, 0)
    );
    store.append(b"after").unwrap();
    store.sync().unwrap();
    drop(store);
    assert_eq!(entries(&dir).unwrap(), [5]);
}

#[test]
fn flipped_bits_are_an_error_and_nothing_is_written_over() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("a");
    filled(&dir);
    let log = std::fs::read(dir.join("log")).unwrap();
    for at in 0..log.len() {
        let mut bad = log.clone();
        bad[at] ^= 0x40;
        std::fs::write(dir.join("log"), &bad).unwrap();
        let found = entries(&dir);
        assert!(
            matches!(found, Err(StoreError::Corrupt { .. })),
            "byte {at}: {found:?}"
        );
        assert_eq!(std::fs::read(dir.join("log")).unwrap(), bad, "byte {at}");
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
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let good = store.files.replace_log(full);
    assert!(store.append(&[9; 100_000]).is_err());
    store.files.replace_log(good);
    store.append(b"again").unwrap();
    store.probe().unwrap();
    drop(store);
    assert_eq!(entries(&dir).unwrap(), [0, 10, 20, 30, 40, 5]);
}

/// Files in memory, which refuse the next write or sync if told to. What a refused sync was to write is dropped.
#[derive(Debug, Default)]
struct Refusing {
    log: Vec<u8>,
    /// Bytes of the log that are not on the disk.
    dirty: BTreeSet<usize>,
    /// What a power cut leaves of the log.
    disk: Vec<u8>,
    refuses_write: bool,
    refuses_sync: bool,
}

fn refuse(refuses: &mut bool) -> io::Result<()> {
    match std::mem::take(refuses) {
        true => Err(io::Error::other("input/output error")),
        false => Ok(()),
    }
}

impl Files for Refusing {
    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }
    fn read_log(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.log.clone())
    }
    fn read_snapshot(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn write_log(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        refuse(&mut self.refuses_write)?;
        self.log.truncate(offset as usize);
        self.log.extend_from_slice(bytes);
        self.dirty.extend(offset as usize..self.log.len());
        Ok(())
    }
    fn truncate_log(&mut self, len: u64) -> io::Result<()> {
        self.log.truncate(len as usize);
        Ok(())
    }
    fn sync_log(&mut self) -> io::Result<()> {
        let dirty = std::mem::take(&mut self.dirty);
        refuse(&mut self.refuses_sync)?;
        self.disk.resize(self.log.len(), 0);
        for at in dirty.into_iter().take_while(|at| *at < self.log.len()) {
            self.disk[at] = self.log[at];
        }
        Ok(())
    }
    fn replace_snapshot(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn probe(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_sync_nothing_is_taken_until_the_store_is_opened_again() {
    for refuses_write in [false, true] {
        let (mut store, _) = Store::recover(Refusing::default()).unwrap();
        store.append(b"one").unwrap();
        store.sync().unwrap();
        store.files.refuses_write = refuses_write;
        store.files.refuses_sync = true;
        // A refused write is followed by a cut, whose sync fails.
        assert_eq!(store.append(b"two").is_err(), refuses_write);
        assert!(store.sync().is_err());
        for refused in [store.sync(), store.append(b"three"), store.snapshot(b"all")] {
            assert!(
                matches!(refused, Err(StoreError::InDoubt(_))),
                "{refused:?}"
            );
        }
        let (mut store, recovered) = Store::recover(store.files).unwrap();
        let found = recovered.entries.len();
        assert_eq!(found, if refuses_write { 1 } else { 2 });
        store.append(b"three").unwrap();
        store.sync().unwrap();
        // The second process has written again what the system had dropped.
        let log = store.files.disk;
        let cut = Refusing {
            log,
            ..Refusing::default()
        };
        let (_, recovered) = Store::recover(cut).unwrap();
        assert_eq!(recovered.entries.len(), found + 1);
    }
    // A refused write alone is put right by the cut.
    let (mut store, _) = Store::recover(Refusing::default()).unwrap();
    store.files.refuses_write = true;
    assert!(store.append(b"one").is_err());
    store.append(b"two").unwrap();
    store.sync().unwrap();
}
