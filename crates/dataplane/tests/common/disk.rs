//! The disk of a node: what is durable survives the process.

use super::Cluster;
use e3_dataplane::Recovery;
use e3_model::Formats;
use std::collections::BTreeMap;

/// A journal.
#[derive(Default)]
pub struct Disk {
    /// Durable records, by number.
    pub records: BTreeMap<u64, Vec<u8>>,
    /// Number of the last durable record, also if it is deleted.
    last: u64,
    /// Those that are not durable yet.
    pending: Vec<(u64, Vec<u8>)>,
    /// Nothing becomes durable.
    pub held: bool,
    /// Nothing is deleted, as in a file that is not full yet.
    pub keeps_all: bool,
}

impl Disk {
    pub fn append(&mut self, number: u64, record: Vec<u8>) {
        let last = self.pending.last();
        let last = last.map_or(self.last, |(number, _)| *number);
        assert_eq!(number, last + 1, "records are appended in order");
        self.pending.push((number, record));
    }

    /// Everything before this record is needed no more. Whole files are deleted, so some stays.
    pub fn trim(&mut self, before: u64) {
        if self.keeps_all {
            return;
        }
        let keep = before - before % 7;
        self.records.retain(|number, _| *number >= keep);
    }

    /// What a new process reads.
    pub fn recover(&mut self, formats: Formats) -> Recovery {
        self.pending.clear();
        let mut recovery = Recovery::new(formats);
        for (number, record) in &self.records {
            recovery.take(*number, record).unwrap();
            // A test may have taken some away.
            self.last = *number;
        }
        recovery.continue_at(self.last + 1);
        recovery
    }

    /// Bytes of all records.
    pub fn len(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }
}

impl Cluster {
    /// What a node has written becomes durable.
    pub fn sync_disk(&mut self, id: u32) {
        let now = self.clock(id);
        let disk = self.disks.entry(id).or_default();
        let Some((last, _)) = disk.pending.last() else {
            return;
        };
        if disk.held {
            return;
        }
        let last = *last;
        disk.last = last;
        disk.records.extend(std::mem::take(&mut disk.pending));
        let node = self.nodes.get_mut(&id).expect("it runs");
        node.worker.handle_journaled(now, last);
    }

    /// The process of a node is killed, and another one starts from its disk.
    pub fn restart(&mut self, node: u32) {
        let incarnation = self.nodes[&node].incarnation + 1;
        self.start(node, incarnation);
    }
}
