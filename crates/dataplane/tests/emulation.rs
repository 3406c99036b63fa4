//! Emulated cores, and the traffic manager in front of them.

use crate::common::manifests::{ONE, STATELESS};
use crate::common::{Cluster, address, shard};
use e3_dataplane::EmulatedCores;
use e3_dataplane::limits::TRAFFIC_LEN_MAX;
use e3_model::{DropReason, Nanos};
use std::collections::BTreeMap;

/// A handler takes a microsecond, and occupies a core for ten milliseconds.
const SPEED: f64 = 1e-4;

/// An application on node 0, which has so many emulated cores.
fn on_cores(manifest: &str, nodes: u32, cores: u16) -> Cluster {
    let mut c = Cluster::new(manifest, nodes, |_| (0..nodes).collect());
    let speed = SPEED;
    c.emulated.insert(0, EmulatedCores { cores, speed });
    c.start(0, 2);
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
    }
    c.publish();
    c.pass(500);
    c
}

/// Sends so many requests at once.
fn request(c: &mut Cluster, count: u64) {
    let deadline = c.now + Nanos::from_secs(2);
    for seq in 1..=count {
        c.request(0, seq, 0, &seq.to_le_bytes(), deadline);
    }
}

/// Milliseconds after which each of so many requests was answered, from the first of them.
fn answered(c: &mut Cluster, count: u64) -> Vec<u64> {
    request(c, count);
    let mut after = Vec::new();
    for ms in 0..200 {
        c.pass(1);
        after.resize(c.replies.len(), ms);
    }
    let first = after.first().copied().unwrap_or_default();
    after.iter().map(|ms| ms - first).collect()
}

#[test]
fn as_many_handlers_run_at_once_as_there_are_cores() {
    let mut c = on_cores(STATELESS, 1, 2);
    assert_eq!(answered(&mut c, 6), [0, 0, 10, 10, 20, 20]);
    let mut c = on_cores(STATELESS, 1, 6);
    assert_eq!(answered(&mut c, 6), [0; 6]);
}

#[test]
fn a_long_run_holds_up_no_run_on_another_core() {
    let mut c = on_cores(STATELESS, 1, 2);
    c.busy = Box::new(|id| Nanos::from_micros(if id.seq == 1 { 10 } else { 1 }));
    // The first request occupies one core for 100 ms; the others follow each other on the other one.
    assert_eq!(answered(&mut c, 4), [0, 10, 20, 90]);
}

#[test]
fn a_shard_of_a_stateful_service_has_one_core() {
    let mut c = on_cores(ONE, 2, 12);
    assert_eq!(answered(&mut c, 3), [0, 10, 20]);
}

#[test]
fn cores_are_reported_as_busy_for_as_long_as_they_were_occupied() {
    let mut c = on_cores(STATELESS, 1, 2);
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.take_work(Nanos::from_secs(1));
    assert_eq!(answered(&mut c, 4).len(), 4);
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    let busy = worker.report().counts[0].busy;
    assert_eq!(busy, Nanos::from_millis(40));
    // Two cores are occupied for no more than twice the time.
    let work = worker.take_work(Nanos::from_millis(15));
    assert_eq!((work.handled, work.busy), (4, Nanos::from_millis(40)));
    assert_eq!(work.occupied, Nanos::from_millis(30));
    let work = worker.take_work(Nanos::from_millis(15));
    assert_eq!((work.handled, work.occupied), (0, Nanos::from_millis(10)));
}

/// Has node 0 relay a datagram to node 9.
fn relay(c: &mut Cluster, bytes: &[u8]) {
    let now = c.clock(0);
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_relayed(now, address(8), address(9), bytes);
    c.drain(0);
}

#[test]
fn what_is_relayed_waits_behind_requests_that_occupy_all_cores() {
    let mut c = on_cores(STATELESS, 1, 2);
    relay(&mut c, b"first");
    assert_eq!(c.relayed, [(address(9), b"first".to_vec())], "all are free");
    request(&mut c, 6);
    c.pass(1);
    relay(&mut c, b"second");
    let queue_len = |c: &Cluster| c.nodes[&0].worker.queue_len();
    assert_eq!(queue_len(&c), 4 + 1, "four requests wait, and a datagram");
    let mut passed = Vec::new();
    for ms in 1..100 {
        c.pass(1);
        passed.resize(c.relayed.len() - 1, ms);
    }
    // Two requests occupy the cores, two are before it; when these begin, it still waits, and passes
    // when the last two have begun and one of them is done.
    assert_eq!(passed, [30]);
    assert_eq!(queue_len(&c), 0);
    let mut free = Cluster::new(STATELESS, 1, |_| vec![0]);
    request(&mut free, 6);
    free.pass(1);
    relay(&mut free, b"at once");
    assert_eq!(free.relayed.len(), 1, "cores that are not emulated");
}

#[test]
fn a_full_traffic_manager_loses_what_comes_and_says_so() {
    let mut c = on_cores(STATELESS, 1, 1);
    request(&mut c, 2);
    c.pass(1);
    let big = vec![7; 60_000];
    let count = TRAFFIC_LEN_MAX / big.len() + 3;
    for _ in 0..count {
        relay(&mut c, &big);
    }
    let dropped: BTreeMap<DropReason, u64> = c.nodes[&0].worker.report().stats.dropped;
    let lost = dropped.get(&DropReason::Port).copied().unwrap_or_default();
    assert!((3..=4).contains(&lost), "{dropped:?}");
    c.pass(100);
    assert_eq!(c.relayed.len() as u64, count as u64 - lost);
}

#[test]
fn a_standing_queue_stops_no_leases_and_no_probes() {
    let mut c = on_cores(ONE, 2, 1);
    // 100 requests of 10 ms each stand for a second, several times as long as a lease.
    request(&mut c, 100);
    for _ in 0..1_000 {
        c.pass(1);
        assert!(c.report(0, shard(0, 0)).serving);
        assert!(c.nodes[&1].worker.unreachable().is_empty());
    }
    c.pass(100);
    assert_eq!(c.replies.len(), 100);
}
