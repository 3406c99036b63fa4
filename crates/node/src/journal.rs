//! The node's journal: a thread that writes records and waits for the disk, so that the loop does not.
//!
//! All records that came while the disk was at work share the next wait (group commit).

use crate::config::NodeError;
use crate::essential;
use crate::limits::DISK_RETRY_INTERVAL;
use e3_dataplane::{Recovery, RecoveryError};
use e3_model::Formats;
use e3_model::plan::{JournalCounts, OnDisk};
use e3_net::Doorbell;
use e3_store::{Journal, SegmentFiles, StoreError};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// The journal as the loop sees it.
pub(crate) struct JournalWriter {
    orders: Option<Sender<Order>>,
    shared: Arc<Shared>,
    /// What the loop knows to be durable.
    seen: u64,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Append { number: u64, record: Vec<u8> },
    Trim { before: u64 },
}

#[derive(Default)]
struct Shared {
    /// Number of the last record that is durable.
    durable: AtomicU64,
    records: AtomicU64,
    /// Waits for the disk.
    syncs: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
    /// The loop has gone: nobody waits for records any more.
    stop: AtomicBool,
}

/// Why records do not become durable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The disk is full. It is tried again.
    #[error("the node's disk is full, and entries wait until there is room: {0}")]
    Full(String),
    /// The system has no file descriptors or no memory left. It is tried again.
    #[error(
        "the node's system is short of files or memory, and entries wait until it has some: {0}"
    )]
    Short(String),
    /// Nothing is known of what was written: the process must start again.
    #[error("the node's disk failed: {0}")]
    Failed(String),
}

/// What a process finds in its journal when it starts.
pub(crate) struct Found {
    /// None if it is damaged.
    journal: Option<Journal>,
    recovery: Recovery,
    /// What a hello says of the copies in it.
    pub(crate) on_disk: Option<OnDisk>,
    /// What is wrong with it, and where.
    pub(crate) damaged: Option<String>,
}

/// Reads the journal in a directory.
pub(crate) fn read(dir: &Path, formats: Formats) -> Result<Found, NodeError> {
    let mut recovery = Recovery::new(formats);
    let mut wrong: Option<RecoveryError> = None;
    let journal = Journal::open(dir, |number, record| {
        if wrong.is_none() {
            wrong = recovery.take(number, &record).err();
        }
    });
    let journal = match journal {
        Ok(journal) => journal,
        Err(e) => {
            let Some(damaged) = damage(&e) else {
                return Err(e.into());
            };
            tracing::error!("the journal is damaged: {damaged}");
            return Ok(Found {
                journal: None,
                recovery: Recovery::new(formats),
                on_disk: None,
                damaged: Some(damaged),
            });
        }
    };
    if let Some(source) = wrong {
        let dir = dir.to_path_buf();
        return Err(NodeError::Recovery { dir, source });
    }
    recovery.continue_at(journal.next());
    let on_disk = recovery.cluster().map(|cluster| OnDisk {
        cluster,
        copies: recovery.copies().collect(),
    });
    Ok(Found {
        journal: Some(journal),
        recovery,
        on_disk,
        damaged: None,
    })
}

/// What is wrong in which file, if the journal is damaged.
fn damage(e: &StoreError) -> Option<String> {
    match e {
        StoreError::Corrupt { file, offset, what } => {
            Some(format!("{}: byte {offset}: {what}", file.display()))
        }
        // So a disk says that it has lost something.
        StoreError::System { file, source }
            if source.raw_os_error() == Some(Errno::IO.raw_os_error()) =>
        {
            Some(format!("{}: {source}", file.display()))
        }
        _ => None,
    }
}

impl Found {
    /// The node has joined: the journal to write, and what it holds. A damaged one is moved away, since
    /// other nodes have all that was in it.
    pub(crate) fn begin(self, dir: &Path) -> Result<(Journal, Recovery), NodeError> {
        if let Some(journal) = self.journal {
            return Ok((journal, self.recovery));
        }
        let moved = e3_store::set_aside(dir)?;
        tracing::warn!(to = %moved.display(), "the damaged journal is moved away; its shards are copied from other nodes");
        Ok((Journal::open(dir, |_, _| ())?, self.recovery))
    }
}

impl JournalWriter {
    /// Starts the thread, which rings the bell when records are durable.
    pub(crate) fn start<F: SegmentFiles + Send + 'static>(
        journal: Journal<F>,
        bell: Doorbell,
    ) -> Result<JournalWriter, NodeError> {
        let (orders, taken) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let work = move || write(journal, &taken, &of_thread, &bell);
        let thread = essential::spawn("e3-journal", work)?;
        Ok(JournalWriter {
            orders: Some(orders),
            shared,
            seen: 0,
            thread: Some(thread),
        })
    }

    pub(crate) fn append(&self, number: u64, record: Vec<u8>) {
        self.order(Order::Append { number, record });
    }

    pub(crate) fn trim(&self, before: u64) {
        self.order(Order::Trim { before });
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends only after it has noted that it failed.
            let _ = orders.send(order);
        }
    }

    /// The last record that is durable, if there are more than at the last call.
    pub(crate) fn poll(&mut self) -> Option<u64> {
        let durable = self.shared.durable.load(Ordering::Acquire);
        let is_new = durable > self.seen;
        self.seen = durable;
        is_new.then_some(durable)
    }

    /// What was written.
    pub(crate) fn counts(&self) -> JournalCounts {
        JournalCounts {
            records: self.shared.records.load(Ordering::Relaxed),
            syncs: self.shared.syncs.load(Ordering::Relaxed),
        }
    }

    /// Why records do not become durable, if they do not.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.shared.trouble.lock().ok()?.clone()
    }
}

impl Drop for JournalWriter {
    /// Waits until the files are closed, so that they can be opened again.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread: takes what is there, writes it, waits for the disk.
fn write<F: SegmentFiles>(
    mut journal: Journal<F>,
    orders: &Receiver<Order>,
    shared: &Shared,
    bell: &Doorbell,
) {
    let set = |trouble| {
        if let Ok(mut slot) = shared.trouble.lock() {
            *slot = trouble;
        }
    };
    while let Ok(first) = orders.recv() {
        // Where other threads want the core, they run first: what they append shares this wait.
        thread::yield_now();
        let (mut first, mut trim, mut records) = (Some(first), None, 0);
        let durable = loop {
            for order in first.take().into_iter().chain(orders.try_iter()) {
                match order {
                    Order::Append { number, record } => {
                        let appended = journal.append(&record);
                        if !matches!(appended, Ok(at) if at == number) {
                            let text = format!("record {number} of the journal: {appended:?}");
                            set(Some(Trouble::Failed(text)));
                            return bell.ring();
                        }
                        records += 1;
                    }
                    Order::Trim { before } => trim = Some(before),
                }
            }
            match journal.sync() {
                Ok(durable) => break durable,
                Err(e @ (StoreError::Full(_) | StoreError::Short { .. })) => {
                    // Nothing that waits was acknowledged.
                    if shared.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let text = e.to_string();
                    set(Some(match e {
                        StoreError::Full(_) => Trouble::Full(text),
                        _ => Trouble::Short(text),
                    }));
                    // It may be what makes room.
                    shorten(&mut journal, trim.take());
                    thread::sleep(DISK_RETRY_INTERVAL);
                }
                Err(e) => {
                    set(Some(Trouble::Failed(e.to_string())));
                    return bell.ring();
                }
            }
        };
        set(None);
        shared.records.fetch_add(records, Ordering::Relaxed);
        shared
            .syncs
            .fetch_add(u64::from(records > 0), Ordering::Relaxed);
        shared.durable.store(durable, Ordering::Release);
        bell.ring();
        shorten(&mut journal, trim);
    }
}

/// Deletes the segments that nobody needs, if that was ordered.
fn shorten<F: SegmentFiles>(journal: &mut Journal<F>, before: Option<u64>) {
    if let Some(before) = before
        && let Err(e) = journal.trim(before)
    {
        tracing::warn!(error = %e, "the journal cannot be made shorter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::Format;
    use std::collections::BTreeMap;
    use std::io;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    #[test]
    fn records_become_durable_and_are_read_again() {
        let tmp = tempfile::tempdir().unwrap();
        let found = read(tmp.path(), Formats::PROGRAM).unwrap();
        assert_eq!(found.on_disk, None);
        let (journal, _) = found.begin(tmp.path()).unwrap();
        let bell = Doorbell::new().unwrap();
        let mut writer = JournalWriter::start(journal, bell).unwrap();
        let record = e3_wire::journal::Record {
            key: e3_model::ShardKey {
                app: e3_model::AppId(1),
                service: e3_model::ServiceId(0),
                shard: e3_model::ShardId(0),
            },
            step: e3_wire::journal::Step::Drop,
        };
        for number in 1..=100 {
            let mut bytes = record.encode();
            e3_wire::journal::seal(Format::NEWEST, &mut bytes);
            writer.append(number, bytes);
        }
        let mut waited = 0;
        while writer.poll() != Some(100) {
            thread::sleep(Duration::from_millis(1));
            waited += 1;
            assert!(waited < 10_000, "{:?}", writer.trouble());
        }
        assert_eq!(writer.poll(), None);
        let counts = writer.counts();
        assert_eq!(counts.records, 100);
        assert!((1..=100).contains(&counts.syncs), "{counts:?}");
        drop(writer);
        let found = read(tmp.path(), Formats::PROGRAM).unwrap();
        let (mut journal, _) = found.begin(tmp.path()).unwrap();
        assert_eq!(journal.next(), 101);
        // A record that makes no sense is named.
        journal.append(b"?").unwrap();
        journal.sync().unwrap();
        drop(journal);
        let error = read(tmp.path(), Formats::PROGRAM)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("record 101 of the journal"), "{error}");
    }

    /// Files on a disk that has room for so many bytes.
    struct Small {
        room: usize,
        /// By the number of the first record: bytes in it.
        files: BTreeMap<u64, usize>,
        open: u64,
    }

    impl Small {
        fn with_room(room: usize) -> Small {
            Small {
                room,
                files: BTreeMap::new(),
                open: 0,
            }
        }
    }

    impl SegmentFiles for Small {
        fn dir(&self) -> PathBuf {
            PathBuf::from("small")
        }

        fn path(&self, first: u64) -> PathBuf {
            self.dir().join(first.to_string())
        }

        fn list(&mut self) -> io::Result<Vec<u64>> {
            Ok(Vec::new())
        }

        fn read(&mut self, _: u64) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }

        fn open(&mut self, first: u64) -> io::Result<()> {
            self.files.entry(first).or_default();
            self.open = first;
            Ok(())
        }

        fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            let others = self.files.iter().filter(|(first, _)| **first != self.open);
            let used: usize = others.map(|(_, len)| len).sum();
            let len = at as usize + bytes.len();
            if used + len > self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.files.insert(self.open, len);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn remove(&mut self, first: u64) -> io::Result<()> {
            self.files.remove(&first);
            Ok(())
        }

        fn sync_names(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Waits until this is so.
    fn until(writer: &mut JournalWriter, is_so: impl Fn(&mut JournalWriter) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_so(writer) {
            assert!(Instant::now() < deadline, "{:?}", writer.trouble());
            thread::yield_now();
        }
    }

    fn is_full(writer: &mut JournalWriter) -> bool {
        matches!(writer.trouble(), Some(Trouble::Full(_)))
    }

    #[test]
    fn a_node_whose_disk_is_full_can_stop() {
        let journal = Journal::recover(Small::with_room(0), 1 << 20, |_, _| ()).unwrap();
        let mut writer = JournalWriter::start(journal, Doorbell::new().unwrap()).unwrap();
        writer.append(1, b"one".to_vec());
        let (dropped, is_dropped) = mpsc::channel();
        until(&mut writer, is_full);
        assert_eq!(writer.poll(), None);
        thread::spawn(move || {
            drop(writer);
            dropped.send(())
        });
        is_dropped.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn what_nobody_needs_makes_room_on_a_full_disk() {
        // A segment for each record, and room for two.
        let len = 100;
        let journal = Journal::recover(Small::with_room(3 * len), 1, |_, _| ()).unwrap();
        let mut writer = JournalWriter::start(journal, Doorbell::new().unwrap()).unwrap();
        for number in 1..=2 {
            writer.append(number, vec![0; len]);
            until(&mut writer, |writer| writer.poll() == Some(number));
        }
        writer.append(3, vec![0; len]);
        until(&mut writer, is_full);
        assert_eq!(writer.poll(), None);
        // What comes meanwhile waits with it.
        writer.append(4, vec![0; 1]);
        writer.trim(3);
        until(&mut writer, |writer| writer.poll() == Some(4));
        assert_eq!(writer.trouble(), None);
    }

    #[test]
    fn a_damaged_journal_is_named_and_moved_away_when_the_node_has_joined() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("journal");
        let mut journal = Journal::open(&dir, |_, _| ()).unwrap();
        journal.append(b"one").unwrap();
        journal.sync().unwrap();
        drop(journal);
        let files = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path());
        let mut files = files.filter(|f| f.extension().is_some());
        let file = files.next().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[29] ^= 4;
        std::fs::write(&file, &bytes).unwrap();
        for _ in 0..2 {
            // Until then it stays as it is.
            let found = read(&dir, Formats::PROGRAM).unwrap();
            let damaged = found.damaged.unwrap();
            let name = file.display().to_string();
            assert!(damaged.starts_with(&name), "{damaged}");
            assert!(damaged.contains("byte 0: a record's content"), "{damaged}");
        }
        let found = read(&dir, Formats::PROGRAM).unwrap();
        let (journal, _) = found.begin(&dir).unwrap();
        assert_eq!(journal.next(), 1);
        let kept = tmp.path().join("journal.damaged-1");
        let kept = kept.join(file.file_name().unwrap());
        assert_eq!(std::fs::read(kept).unwrap(), bytes);
    }
}
