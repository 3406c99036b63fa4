//! A snapshot whose primary is gone, or out of reach, on a node with other shards on its disk.

use crate::common::{Cluster, key_of, shard};
use crate::disk::{count_all, manifest};
use e3_model::plan::NodeEvent;
use e3_model::{Formats, Nanos, NodeId, ShardId, ShardKey};
use e3_wire::journal::{Record, Step};
use e3_wire::replicated::Replicated;

const SHARDS: u16 = 3;

/// The shard of node 0 is large, that of node 1 is not. Another one has its copies on both.
struct Run {
    c: Cluster,
    sent: u64,
    /// Number of the last record on the disk of node 1 when nothing came any more.
    before: u64,
}

fn large() -> ShardKey {
    shard(0, 0)
}

fn small() -> ShardKey {
    shard(0, 1)
}

impl Run {
    /// Part of a snapshot of the large shard is at node 1, which has an older copy, or none.
    fn new(has_copy: bool) -> Run {
        let shards = format!("stateful: true\n      shards: {SHARDS}");
        let manifest = manifest(2).replace("stateful: true", &shards);
        let mut c = Cluster::new(&manifest, 2, |key| match key.shard.0 {
            0 if has_copy => vec![0, 1],
            2 => vec![0, 1],
            shard => vec![shard.into()],
        });
        let (mut many, mut few) = (count_all(12), count_all(0));
        c.handler = Box::new(move |service, invocation, state| {
            let handler = match invocation.slot.shard(SHARDS) {
                ShardId(0) => &mut many,
                _ => &mut few,
            };
            handler(service, invocation, state)
        });
        c.journal_len_min = 20_000;
        let mut run = Run {
            c,
            sent: 0,
            before: 0,
        };
        run.restart_backup();
        run.load(0, 60);
        run.c.pass(100);
        let c = &mut run.c;
        c.narrow = Some((1, 4 << 10));
        c.restart(0);
        c.promote(large(), 0);
        c.promote(shard(0, 2), 0);
        let plan = c.shard(large());
        plan.backups.clear();
        plan.joining = vec![NodeId(1)];
        c.publish();
        c.pass(20);
        let begun = c.disks[&1].records.values().any(|record| {
            let step = Record::decode(Formats::PROGRAM, record).unwrap().step;
            matches!(step, Step::Item(item) if Replicated::begins_snapshot(&item))
        });
        assert!(begun, "the snapshot is on its way");
        run.before = *run.c.disks[&1].records.keys().next_back().unwrap();
        run
    }

    /// Node 1 goes on from its disk, as the primary of the small shard.
    fn restart_backup(&mut self) {
        self.c.restart(1);
        self.c.promote(small(), 1);
        self.c.publish();
        self.c.pass(600);
    }

    /// Fifty requests a second, to the shard of a node.
    fn load(&mut self, node: u32, requests: u64) {
        for _ in 0..requests {
            self.sent += 1;
            let deadline = self.c.now + Nanos::from_secs(1);
            let key = key_of(node as u16, SHARDS);
            self.c.request(node, self.sent, 0, &key, deadline);
            self.c.now += Nanos::from_millis(19);
            self.c.pass(1);
        }
    }

    /// The node's journal becomes short although nothing comes.
    fn wait(&mut self) {
        self.load(1, 2_000);
        assert!(self.first_record() < self.before, "the rest may come");
        self.load(1, 4_000);
        let (first, before) = (self.first_record(), self.before);
        assert!(first > before, "{before} records, the first is {first}");
    }

    fn first_record(&self) -> u64 {
        *self.c.disks[&1].records.keys().next().unwrap()
    }

    /// Requests of the large shard that a node has.
    fn counted(&self, node: u32) -> i64 {
        let state = self.c.nodes[&node].worker.state(large()).unwrap();
        state.borrow().counter_get(0, b"all")
    }

    fn is_synced(&mut self) -> bool {
        let (key, view, backup) = (large(), self.c.shard(large()).view, NodeId(1));
        let events = self.c.nodes[&0].worker.events();
        events.contains(&NodeEvent::Synced { key, view, backup })
    }
}

#[test]
fn a_snapshot_whose_primary_is_gone_does_not_keep_the_journal_long() {
    for has_copy in [false, true] {
        let mut run = Run::new(has_copy);
        run.c.kill(0);
        run.c.publish();
        run.c.narrow = None;
        run.wait();
        // The copy is what it was, on disk too.
        let known = if has_copy { 60 } else { 0 };
        assert_eq!(run.counted(1), known);
        run.restart_backup();
        assert_eq!(run.counted(1), known);
        run.c.start(0, 3);
        run.c.promote(large(), 0);
        run.c.publish();
        run.c.pass(2_000);
        assert!(run.is_synced());
        assert_eq!((run.counted(0), run.counted(1)), (60, 60));
    }
}

#[test]
fn a_primary_that_was_out_of_reach_begins_its_snapshot_again() {
    for has_copy in [false, true] {
        let mut run = Run::new(has_copy);
        run.c.cut.extend([(0, 1), (1, 0)]);
        run.c.narrow = None;
        run.wait();
        run.load(0, 10);
        assert_eq!((run.counted(0), run.is_synced()), (70, false));
        run.c.cut.clear();
        run.load(0, 200);
        assert!(run.is_synced());
        run.c.pass(500);
        assert_eq!((run.counted(0), run.counted(1)), (270, 270));
        // So it is on its disk.
        run.restart_backup();
        assert_eq!(run.counted(1), 270);
    }
}
