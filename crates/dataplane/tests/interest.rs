//! Requests at a node that has no routes of the application: they wait until it has, or are refused so
//! that the client asks another node, and each takes effect once.

use crate::common::{APP, Cluster, key_of, shard};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::Outcome;
use std::collections::BTreeSet;

/// One service of two shards.
const TWO: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: two}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: only
  services:
    - name: only
      module: s.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

/// The node that hosts nothing.
const STRANGER: u32 = 2;
/// As `INTEREST_KEPT`.
const INTEREST_KEPT_S: u64 = 600;

/// Both shards on node 0, with backups on node 1. The third node knows that the application runs.
fn cluster() -> Cluster {
    let mut c = Cluster::new(TWO, 3, |_| vec![0, 1]);
    c.lists_apps = true;
    send_routes(&mut c, false);
    c.publish();
    c.pass(10);
    c
}

/// Gives the third node the routes, or takes them away.
fn send_routes(c: &mut Cluster, has: bool) {
    c.strangers = if has {
        BTreeSet::new()
    } else {
        BTreeSet::from([STRANGER])
    };
    c.revision += 1;
    c.publish_to(STRANGER);
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

fn wants(c: &Cluster) -> bool {
    c.nodes[&STRANGER].worker.interest().contains(&APP)
}

/// How often each of these requests took effect.
fn counts(c: &Cluster, requests: std::ops::RangeInclusive<u64>) -> Vec<i64> {
    let count = |seq| (0..2).map(|n| c.count(0, shard(0, n), 1, seq)).sum();
    requests.map(count).collect()
}

#[test]
fn a_request_waits_for_the_routes_of_its_application() {
    let mut c = cluster();
    assert!(!wants(&c));
    let deadline = soon(&c);
    c.request(STRANGER, 1, 0, &key_of(0, 2), deadline);
    c.pass(10);
    // Its client retries meanwhile.
    c.request(STRANGER, 1, 1, &key_of(0, 2), deadline);
    c.pass(10);
    assert!(wants(&c) && c.outcomes(1).is_empty());
    send_routes(&mut c, true);
    c.pass(20);
    assert_eq!(
        (c.outcomes(1), counts(&c, 1..=1)),
        (vec![Outcome::Done], vec![1])
    );
    c.request(STRANGER, 2, 0, &key_of(1, 2), deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Done], "without waiting");
}

#[test]
fn a_request_whose_routes_do_not_come_is_refused_and_its_copies_too() {
    let mut c = cluster();
    let deadline = soon(&c);
    c.request(STRANGER, 1, 0, &key_of(0, 2), deadline);
    c.pass(1_100);
    assert_eq!(c.outcomes(1), [Outcome::Overloaded]);
    send_routes(&mut c, true);
    // A copy of the attempt that the network delivers late.
    c.request(STRANGER, 1, 0, &key_of(0, 2), deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Overloaded; 2]);
    assert_eq!(counts(&c, 1..=1), [0]);
    c.request(STRANGER, 1, 1, &key_of(0, 2), deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1)[2..], [Outcome::Done], "another attempt");
    assert_eq!(counts(&c, 1..=1), [1]);
}

#[test]
fn a_request_for_an_application_that_does_not_exist_is_rejected_at_once() {
    let mut c = cluster();
    c.lists_apps = false;
    send_routes(&mut c, false);
    let deadline = soon(&c);
    c.request(STRANGER, 1, 0, &key_of(0, 2), deadline);
    c.pass(5);
    assert_eq!(c.outcomes(1), [Outcome::Rejected]);
    assert!(!wants(&c));
}

#[test]
fn no_more_than_a_bound_of_requests_wait() {
    let mut c = cluster();
    let deadline = soon(&c);
    for seq in 1..=1_100 {
        c.request(STRANGER, seq, 0, &key_of((seq % 2) as u16, 2), deadline);
    }
    c.pass(10);
    let refused: usize = (1..=1_100).map(|seq| c.outcomes(seq).len()).sum();
    assert_eq!(refused, 1_100 - 1_024, "the others may ask another node");
    send_routes(&mut c, true);
    c.pass(300);
    let done = counts(&c, 1..=1_100);
    assert_eq!(done.iter().sum::<i64>(), 1_024);
    assert!(done.iter().all(|count| *count <= 1));
}

#[test]
fn interest_ends_and_returns_and_no_request_is_taken_for_an_earlier_one() {
    let mut c = cluster();
    for round in 0..3 {
        let deadline = soon(&c);
        let first = 1 + round * 40;
        for seq in first..first + 40 {
            c.request(STRANGER, seq, 0, &key_of((seq % 2) as u16, 2), deadline);
        }
        c.pass(10);
        send_routes(&mut c, true);
        c.pass(100);
        for seq in first..first + 40 {
            assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        }
        assert_eq!(counts(&c, first..=first + 39), [1; 40]);
        // The plan may be without it before: the node keeps what it is asked for.
        send_routes(&mut c, false);
        assert!(wants(&c));
        let deadline = soon(&c);
        c.request(STRANGER, 1_000 + round, 0, &key_of(0, 2), deadline);
        c.pass(20);
        assert_eq!(c.outcomes(1_000 + round), [Outcome::Done]);
        c.pass_coarsely(INTEREST_KEPT_S + 10);
        assert!(!wants(&c));
    }
}
