//! The disks of the nodes: what is durable survives the process, what is not may. The journal on them
//! is the product's.

use super::{Cluster, Event};
use crate::scenario::SLOWEST_WRITE;
use crate::segments::SimSegments;
use e3_dataplane::Recovery;
use e3_model::plan::OnDisk;
use e3_model::{Formats, Nanos};
use e3_random::Random;
use e3_store::{Journal, StoreError};
use std::collections::VecDeque;

/// How long a disk needs to make records durable: of one node this, of another that.
const SYNC_TIMES: [Nanos; 3] = [
    Nanos::from_micros(200),
    Nanos::from_millis(2),
    SLOWEST_WRITE,
];
/// Bytes of a file of the journal; only whole files are deleted.
const SEGMENT_LEN: u64 = 8_000;
/// As `DISK_RETRY_INTERVAL` of the node.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(100);

/// The disk of a node.
#[derive(Debug)]
pub(super) struct Disk {
    journal: Process,
    /// Appended, and not given to the journal, whose last batch is being written.
    queue: VecDeque<(u64, Vec<u8>)>,
    /// Whether the disk is at work.
    is_syncing: bool,
    sync_time: Nanos,
    /// A fault: it takes that long.
    slow: Option<Nanos>,
    /// A process has found damage in the journal.
    was_damaged: bool,
}

/// The journal, as the process of the node has it.
#[derive(Debug)]
enum Process {
    /// There is none.
    Down(SimSegments),
    /// It has read the journal, and has not joined.
    Starting(Journal<SimSegments>, Box<Recovery>),
    /// It has found damage.
    Damaged(SimSegments, String),
    /// It writes.
    Running(Journal<SimSegments>),
    /// While it changes.
    Between,
}

/// What a process finds on its disk when it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The copies of shards.
    pub on_disk: Option<OnDisk>,
    /// Why the journal cannot be read.
    pub damaged: Option<String>,
}

impl Disk {
    fn new(random: &mut Random) -> Disk {
        Disk {
            journal: Process::Down(SimSegments::default()),
            queue: VecDeque::new(),
            is_syncing: false,
            sync_time: *random.pick(&SYNC_TIMES),
            slow: None,
            was_damaged: false,
        }
    }

    fn files(&mut self) -> &mut SimSegments {
        match &mut self.journal {
            Process::Down(files) | Process::Damaged(files, _) => files,
            Process::Starting(journal, _) | Process::Running(journal) => journal.files_mut(),
            Process::Between => unreachable!("it changes in one step"),
        }
    }

    pub(super) fn trim(&mut self, before: u64) {
        if let Process::Running(journal) = &mut self.journal {
            journal.trim(before).expect("the disk removes files");
        }
    }

    /// The process is gone, during the write that it was at.
    fn crash(&mut self, is_power_cut: bool, random: &mut Random) {
        if let Process::Running(journal) = &mut self.journal
            && self.is_syncing
        {
            let choice = if is_power_cut {
                u64::MAX
            } else {
                random.next_u64()
            };
            let files = journal.files_mut();
            files.stops_write = (!files.fails_sync).then_some(choice);
            // It ends there.
            let _ = journal.sync();
            journal.files_mut().stops_write = None;
        }
        self.files().fails_sync = false;
        self.queue.clear();
        self.is_syncing = false;
        self.journal = match std::mem::replace(&mut self.journal, Process::Between) {
            Process::Starting(journal, _) | Process::Running(journal) => {
                Process::Down(journal.into_files())
            }
            Process::Damaged(files, _) => Process::Down(files),
            other => other,
        };
        if is_power_cut {
            self.files().cut_power(random);
        }
    }

    /// The process reads the journal, unless it has; false if it could not.
    fn read(&mut self, formats: Formats) -> bool {
        let Process::Down(files) = &mut self.journal else {
            return true;
        };
        let files = std::mem::take(files);
        let mut recovery = Box::new(Recovery::new(formats));
        let kept = files.clone();
        let journal = Journal::recover(files, SEGMENT_LEN, |number, record| {
            recovery.take(number, &record).expect("as it was written");
        });
        let (next, is_read) = match journal {
            Ok(journal) => {
                recovery.continue_at(journal.next());
                (Process::Starting(journal, recovery), true)
            }
            Err(e @ StoreError::Corrupt { .. }) => (Process::Damaged(kept, e.to_string()), true),
            Err(_) => (Process::Down(kept), false),
        };
        self.was_damaged |= matches!(next, Process::Damaged(..));
        self.journal = next;
        is_read
    }

    fn found(&self) -> Found {
        let on_disk = match &self.journal {
            Process::Starting(_, recovery) => recovery.cluster().map(|cluster| OnDisk {
                cluster,
                copies: recovery.copies().collect(),
            }),
            _ => None,
        };
        let damaged = match &self.journal {
            Process::Damaged(_, what) => Some(what.clone()),
            _ => None,
        };
        Found { on_disk, damaged }
    }

    /// The process has joined: what it goes on from. A damaged journal is moved away.
    pub(super) fn begin(&mut self, formats: Formats) -> Option<Recovery> {
        if let Process::Damaged(files, _) = &mut self.journal {
            files.clear();
            self.journal = Process::Down(std::mem::take(files));
        }
        // A process that has joined has its files open.
        let is_full = std::mem::take(&mut self.files().is_full);
        self.read(formats);
        self.files().is_full = is_full;
        match std::mem::replace(&mut self.journal, Process::Between) {
            Process::Starting(journal, recovery) => {
                self.journal = Process::Running(journal);
                Some(*recovery)
            }
            other => unreachable!("a journal is read by one process: {other:?}"),
        }
    }
}

impl Cluster {
    /// What a node's process finds on its disk when it starts; none if it cannot start.
    pub fn read_disk(&mut self, node: u32, formats: Formats) -> Option<Found> {
        let none = Found {
            on_disk: None,
            damaged: None,
        };
        let Some(disk) = self.disks.get_mut(&node) else {
            return Some(none);
        };
        disk.read(formats).then(|| disk.found())
    }

    /// Sets how long a node's disk takes to make records durable; none as it was.
    pub fn slow_disk(&mut self, node: u32, sync_time: Option<Nanos>) {
        self.disk(node).slow = sync_time;
    }

    /// Sets whether a node's disk refuses writes.
    pub fn fill_disk(&mut self, node: u32, is_full: bool) {
        self.disk(node).files().is_full = is_full;
    }

    /// Sets whether a node's disk confirms what the next power cut loses.
    pub fn let_disk_lie(&mut self, node: u32, lies: bool) {
        self.disk(node).files().lies = lies;
    }

    /// The write that a node's disk is at is not made durable, and its process ends.
    pub fn fail_sync(&mut self, node: u32) {
        self.disk(node).files().fails_sync = true;
    }

    /// Makes everything durable that a node's disk confirmed.
    pub fn settle_disk(&mut self, node: u32) {
        self.disk(node).files().settle();
    }

    /// Flips a bit in the journal of a node without a process; false if it is empty.
    pub fn rot_disk(&mut self, node: u32) -> bool {
        let random = &mut self.random;
        let disk = self.disks.get_mut(&node);
        let disk = disk.filter(|disk| matches!(disk.journal, Process::Down(_)));
        disk.is_some_and(|disk| disk.files().rot(random))
    }

    /// The nodes whose processes have found damaged journals.
    pub fn found_damaged(&self) -> impl Iterator<Item = u32> {
        let disks = self.disks.iter();
        disks.filter(|(_, d)| d.was_damaged).map(|(node, _)| *node)
    }

    /// Whether a node's disk is at work.
    pub fn is_writing(&self, node: u32) -> bool {
        self.disks.get(&node).is_some_and(|disk| disk.is_syncing)
    }

    /// Ends a node's process: what is not durable on its disk may be gone.
    pub(super) fn crash_disk(&mut self, node: u32, is_power_cut: bool) {
        if let Some(disk) = self.disks.get_mut(&node) {
            disk.crash(is_power_cut, &mut self.random);
        }
    }

    pub(super) fn disk(&mut self, node: u32) -> &mut Disk {
        let random = &mut self.random;
        self.disks.entry(node).or_insert_with(|| Disk::new(random))
    }

    pub(super) fn append(&mut self, node: u32, number: u64, record: Vec<u8>) {
        self.disk(node).queue.push_back((number, record));
        self.sync(node);
    }

    /// Begins to make what is there durable, unless the disk is at work.
    fn sync(&mut self, node: u32) {
        let disk = self.disk(node);
        if disk.queue.is_empty() || disk.is_syncing {
            return;
        }
        if matches!(disk.journal, Process::Down(_)) {
            // The first record of this node.
            disk.begin(Formats::PROGRAM);
        }
        let Process::Running(journal) = &mut disk.journal else {
            return;
        };
        for (number, record) in disk.queue.drain(..) {
            let at = journal.append(&record).expect("a record of a worker");
            assert_eq!(at, number, "records are appended in order");
        }
        disk.is_syncing = true;
        let span = disk.slow.unwrap_or(disk.sync_time);
        self.sync_after(node, span);
    }

    fn sync_after(&mut self, node: u32, span: Nanos) {
        let incarnation = self.incarnation(node).unwrap_or_default();
        let event = Event::Synced { node, incarnation };
        self.push(self.now + span, event);
    }

    /// The disk has done its work.
    pub(super) fn on_synced(&mut self, node: u32) {
        let disk = self.disk(node);
        let Process::Running(journal) = &mut disk.journal else {
            return;
        };
        let number = match journal.sync() {
            Ok(number) => number,
            // It is full: tried again.
            Err(_) => return self.sync_after(node, RETRY_INTERVAL),
        };
        disk.is_syncing = false;
        let now = self.now;
        if let Some(n) = self.nodes.get_mut(&node) {
            n.worker.handle_journaled(n.clock.shown(now), number);
        }
        self.sync(node);
    }
}
