//! A journal that ends with any of its records, since the process was killed while it wrote.

use crate::common::Cluster;
use crate::disk::{KEY, cluster, count_all, restart_primary};
use e3_model::{Formats, Nanos};
use e3_wire::journal::{Record, Step};

const REQUESTS: u64 = 60;

/// A request that soon need not be remembered, so that checkpoints are short.
fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_millis(100);
    c.request(0, seq, 0, b"k", deadline);
    c.pass(10);
}

/// How many requests the copy of a node has counted.
fn counted(c: &Cluster, node: u32) -> u64 {
    let state = c.nodes[&node].worker.state(KEY).unwrap();
    let all = state.borrow().counter_get(0, b"all");
    all.try_into().unwrap()
}

/// A shard that has handled requests, while one of its copies has made checkpoints.
fn with_checkpoints(replicas: u16, node: u32) -> Cluster {
    let mut c = cluster(replicas);
    c.journal_len_min = 3_000;
    c.handler = count_all(0);
    c.disks.get_mut(&node).unwrap().keeps_all = true;
    // A new process takes up the length.
    c.restart(node);
    if node == 0 {
        c.promote(KEY, 0);
    }
    c.publish();
    c.pass(600);
    (1..=REQUESTS).for_each(|seq| request(&mut c, seq));
    let steps = c.disks[&node].records.values();
    let mut steps = steps.map(|r| Record::decode(Formats::PROGRAM, r).unwrap().step);
    assert!(steps.any(|step| matches!(step, Step::Checkpoint(_))));
    c
}

/// All journals that a process may leave.
fn cut(replicas: u16, node: u32) -> impl Iterator<Item = (u64, Cluster)> {
    let whole = with_checkpoints(replicas, node).disks[&node]
        .records
        .clone();
    whole.into_keys().map(move |last| {
        let mut c = with_checkpoints(replicas, node);
        let disk = c.disks.get_mut(&node).unwrap();
        disk.records.retain(|number, _| *number <= last);
        (last, c)
    })
}

#[test]
fn whatever_record_is_the_last_a_primary_goes_on_from_it() {
    let mut before = 0;
    for (last, mut c) in cut(1, 0) {
        restart_primary(&mut c);
        let known = counted(&c, 0);
        assert!(known >= before, "record {last}: {known} after {before}");
        before = known;
        request(&mut c, REQUESTS + 1);
        // What the second process wrote follows what the first one left.
        restart_primary(&mut c);
        assert_eq!(counted(&c, 0), known + 1, "record {last}");
    }
    assert_eq!(before, REQUESTS);
}

#[test]
fn whatever_record_is_the_last_a_backup_goes_on_from_it() {
    for (last, mut c) in cut(2, 1) {
        c.restart(1);
        // A new primary may go on from what the backup has.
        restart_primary(&mut c);
        request(&mut c, REQUESTS + 1);
        c.restart(1);
        c.publish();
        c.pass(600);
        assert_eq!(counted(&c, 1), REQUESTS + 1, "record {last}");
    }
}
