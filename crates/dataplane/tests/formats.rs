//! Nodes of two releases: what each writes and takes while the cluster's format is the older one, when
//! it is raised, and what a journal holds afterwards.

use crate::common::manifests::ONE;
use crate::common::{Cluster, address, shard};
use e3_dataplane::{Output, Recovery};
use e3_model::plan::NodePlan;
use e3_model::{DropReason, Format, Formats, Nanos, NodeId};
use e3_wire::datagram::{Header, Kind, open, seal};
use e3_wire::entry::Outcome;
use e3_wire::frame::Frame;
use std::collections::BTreeSet;
use std::sync::Arc;

const OLDER: Format = Format::NEWEST;
const NEWER: Format = Format(Format::NEWEST.0 + 1);

fn only(format: Format) -> Formats {
    Formats::new(format, format).unwrap()
}

fn both() -> Formats {
    Formats::new(OLDER, NEWER).unwrap()
}

/// A shard with its state on the disks of nodes 0 and 1.
fn cluster() -> Cluster {
    let manifest = ONE.replace("replicas: 2", "replicas: 2\n      durability: disk");
    assert_ne!(manifest, ONE);
    Cluster::new(&manifest, 2, |_| vec![0, 1])
}

/// All nodes are restarted one after another as processes with these formats.
fn upgrade(c: &mut Cluster, formats: Formats) {
    c.formats = formats;
    for node in [0, 1] {
        c.restart(node);
        if node == 0 {
            c.promote(shard(0, 0), 0);
        }
        c.publish();
        c.pass(600);
    }
}

fn raise(c: &mut Cluster) {
    c.format = NEWER;
    c.publish();
    c.pass(600);
}

#[track_caller]
fn ask(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(10);
    c.request(0, seq, 0, b"k", deadline);
    c.pass(200);
    assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
}

/// The formats of the records that a node's disk holds.
fn on_disk(c: &Cluster, node: u32) -> BTreeSet<u8> {
    let records = c.disks[&node].records.values();
    records.map(|record| record[0]).collect()
}

/// A peer asks node 0 whether it is there, in this format; the format of the answer.
fn probe(c: &mut Cluster, format: Format) -> Option<Format> {
    let now = c.now;
    let plan = c.nodes[&0].worker.plan();
    let mut bytes = Vec::new();
    let header = Header {
        kind: Kind::Peer,
        from: NodeId(1),
        cluster: plan.cluster,
        incarnation: plan.peers[&NodeId(1)].incarnation,
        to_incarnation: plan.peers[&NodeId(0)].incarnation,
    };
    header.encode(&mut bytes);
    Frame::Probe { sent: now }.encode(&mut bytes);
    seal(format, &mut bytes);
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_datagram(now, address(1), &bytes);
    worker.handle_tick(now);
    let outputs = std::iter::from_fn(|| worker.poll_output());
    let sent = outputs.filter_map(|output| match output {
        Output::Send { bytes, .. } => Some(Format(bytes[2])),
        _ => None,
    });
    sent.last()
}

fn dropped(c: &Cluster) -> u64 {
    let stats = c.nodes[&0].worker.report().stats;
    stats.dropped.get(&DropReason::Format).copied().unwrap_or(0)
}

#[test]
fn a_format_that_a_process_does_not_have_is_dropped_and_counted() {
    let mut c = cluster();
    assert_eq!(probe(&mut c, NEWER), None);
    assert_eq!(dropped(&c), 1);
    assert_eq!(probe(&mut c, OLDER), Some(OLDER));
    upgrade(&mut c, both());
    // It reads the newer one, and still writes the one of the cluster.
    assert_eq!(probe(&mut c, NEWER), Some(OLDER));
    assert_eq!(dropped(&c), 0);
}

#[test]
fn nodes_of_two_releases_work_together_and_either_may_go_back() {
    let mut c = cluster();
    ask(&mut c, 1);
    c.formats = both();
    c.restart(0);
    c.promote(shard(0, 0), 0);
    c.publish();
    c.pass(600);
    ask(&mut c, 2);
    upgrade(&mut c, both());
    ask(&mut c, 3);
    upgrade(&mut c, only(OLDER));
    ask(&mut c, 4);
    for node in [0, 1] {
        assert_eq!(on_disk(&c, node), BTreeSet::from([OLDER.0]), "node {node}");
        for seq in 1..=4 {
            assert_eq!(c.count(node, shard(0, 0), 1, seq), 1, "request {seq}");
        }
    }
}

#[test]
fn a_plan_raises_the_format_of_datagrams_and_records() {
    let mut c = cluster();
    upgrade(&mut c, both());
    ask(&mut c, 1);
    raise(&mut c);
    ask(&mut c, 2);
    assert_eq!(probe(&mut c, OLDER), Some(NEWER), "a plan that is late");
    for node in [0, 1] {
        assert_eq!(
            on_disk(&c, node),
            BTreeSet::from([OLDER.0, NEWER.0]),
            "node {node}"
        );
    }
    // A journal with records of both is read.
    upgrade(&mut c, both());
    ask(&mut c, 3);
    for seq in 1..=3 {
        assert_eq!(c.count(0, shard(0, 0), 1, seq), 1, "request {seq}");
    }
    // And refused by the older release.
    let mut recovery = Recovery::new(only(OLDER));
    let mut records = c.disks[&0].records.iter();
    let error = records.find_map(|(number, record)| recovery.take(*number, record).err());
    let error = error.unwrap().to_string();
    let why = format!(
        "format is {NEWER}, this process reads {OLDER} to {OLDER}; start a newer release of the program"
    );
    assert!(error.ends_with(&why), "{error}");
}

#[test]
fn clients_are_answered_in_the_oldest_format_of_the_node() {
    let mut c = cluster();
    upgrade(&mut c, both());
    raise(&mut c);
    c.unread = Some(Vec::new());
    let deadline = c.now + Nanos::from_secs(10);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(200);
    let answers = c.unread.take().unwrap();
    assert!(!answers.is_empty());
    for bytes in &answers {
        assert!(open(only(OLDER), bytes).is_ok());
    }
}

#[test]
fn a_plan_in_a_format_that_the_process_does_not_have_changes_nothing() {
    let mut c = cluster();
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    let before = worker.plan().clone();
    let next = NodePlan {
        version: before.version + 1,
        format: NEWER,
        apps: Vec::new(),
        ..before.as_ref().clone()
    };
    worker.handle_plan(c.now, Arc::new(next));
    assert_eq!(*worker.plan(), before);
    assert_eq!(worker.report().stats.dropped[&DropReason::Plan], 1);
}
