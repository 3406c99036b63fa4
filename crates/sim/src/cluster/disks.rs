//! The disks of the nodes: what is durable survives the process, what is not may.

use super::{Cluster, Event};
use e3_dataplane::Recovery;
use e3_model::plan::{CopyOnDisk, OnDisk};
use e3_model::{Formats, Nanos};
use e3_random::Random;
use std::collections::VecDeque;

/// How long a disk needs to make records durable: of one node this, of another that.
const SYNC_TIMES: [Nanos; 3] = [
    Nanos::from_micros(200),
    Nanos::from_millis(2),
    Nanos::from_millis(10),
];
/// Records of a file of the journal; only whole files are deleted.
const FILE_RECORDS: u64 = 64;

/// The journal of a node, record by record.
#[derive(Debug)]
pub(super) struct Disk {
    durable: VecDeque<(u64, Vec<u8>)>,
    /// Appended, and not durable.
    open: VecDeque<(u64, Vec<u8>)>,
    /// Whether the disk is at work.
    is_syncing: bool,
    sync_time: Nanos,
    /// A fault: it takes that long.
    slow: Option<Nanos>,
}

impl Disk {
    fn new(random: &mut Random) -> Disk {
        Disk {
            durable: VecDeque::new(),
            open: VecDeque::new(),
            is_syncing: false,
            sync_time: *random.pick(&SYNC_TIMES),
            slow: None,
        }
    }

    pub(super) fn trim(&mut self, before: u64) {
        let first = before - before % FILE_RECORDS;
        while self
            .durable
            .front()
            .is_some_and(|(number, _)| *number < first)
        {
            self.durable.pop_front();
        }
    }

    /// The process is gone. Of what was not durable any part from the front may be there.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let kept = random.index(self.open.len() + 1);
        self.durable.extend(self.open.drain(..kept));
        self.open.clear();
        self.is_syncing = false;
    }

    /// What a process that starts reads.
    pub(super) fn recover(&self, formats: Formats) -> Recovery {
        let mut recovery = Recovery::new(formats);
        for (number, record) in &self.durable {
            recovery.take(*number, record).expect("as it was written");
        }
        recovery
    }
}

impl Cluster {
    /// What a node's process says of its disk when it joins.
    pub fn on_disk(&self, node: u16, formats: Formats) -> Option<OnDisk> {
        let recovery = self.disks.get(&node)?.recover(formats);
        let copies = recovery.copies().map(|(key, era)| CopyOnDisk { key, era });
        Some(OnDisk {
            cluster: recovery.cluster()?,
            copies: copies.collect(),
        })
    }

    /// Sets how long a node's disk takes to make records durable; none as it was.
    pub fn slow_disk(&mut self, node: u16, sync_time: Option<Nanos>) {
        self.disk(node).slow = sync_time;
    }

    pub(super) fn disk(&mut self, node: u16) -> &mut Disk {
        let random = &mut self.random;
        self.disks.entry(node).or_insert_with(|| Disk::new(random))
    }

    pub(super) fn append(&mut self, node: u16, number: u64, record: Vec<u8>) {
        self.disk(node).open.push_back((number, record));
        self.sync(node);
    }

    /// Begins to make what is there durable, unless the disk is at work.
    fn sync(&mut self, node: u16) {
        let disk = self.disk(node);
        let (Some((number, _)), false) = (disk.open.back(), disk.is_syncing) else {
            return;
        };
        disk.is_syncing = true;
        let number = *number;
        let span = disk.slow.unwrap_or(disk.sync_time);
        let at = self.now + span;
        let incarnation = self.incarnation(node).unwrap_or_default();
        let event = Event::Synced {
            node,
            incarnation,
            number,
        };
        self.push(at, event);
    }

    /// Records up to this one are durable.
    pub(super) fn on_synced(&mut self, node: u16, number: u64) {
        let disk = self.disk(node);
        disk.is_syncing = false;
        while let Some(record) = disk.open.pop_front_if(|(n, _)| *n <= number) {
            disk.durable.push_back(record);
        }
        let now = self.now;
        if let Some(n) = self.nodes.get_mut(&node) {
            n.worker.handle_journaled(n.clock.shown(now), number);
        }
        self.sync(node);
    }
}
