//! Who waits for what: channels that share a shard, retries, shards without memory.

use crate::common::manifests::PAIR;
use crate::common::{APP, Cluster, DELETE, address, shard};
use e3_client_core::{Call, Event, Requests, Routes};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::Outcome;

const SMALL: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: small}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: only
  services:
    - name: only
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Ki}
      collections: [{name: count, kind: counter}]
";

/// The front end on node 0, the back end on the last one.
fn pair(nodes: u32) -> Cluster {
    Cluster::new(PAIR, nodes, |key| match key.service.0 {
        0 => vec![0],
        _ => vec![nodes - 1],
    })
}

/// One request at a time.
fn narrow() -> Cluster {
    let manifest = PAIR.replace("admittedMax: 20000", "admittedMax: 1");
    Cluster::new(&manifest, 3, |key| match key.service.0 {
        0 => vec![0],
        _ => vec![2],
    })
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

#[test]
fn a_busy_channel_does_not_starve_another_one() {
    let mut c = pair(3);
    c.nodes.get_mut(&0).unwrap().per_ms = 32;
    let deadline = soon(&c);
    for seq in 1..=6_000 {
        c.request(1, seq, 0, b"k", deadline);
    }
    c.pass(45);
    c.request(2, 9_999, 0, b"k", deadline);
    // What waits at the shard is before it, not what waits on the other channel.
    c.pass(60);
    assert_eq!(c.outcomes(9_999), [Outcome::Done]);
    assert_eq!(c.outcomes(6_000), []);
}

#[test]
fn retries_put_no_copies_behind_the_request() {
    let mut c = pair(3);
    c.nodes.get_mut(&0).unwrap().held = true;
    let deadline = soon(&c);
    for attempt in 0..5 {
        c.request(1, 1, attempt, b"k", deadline);
        c.pass(500);
    }
    assert_eq!(c.report(0, shard(0, 0)).queue, 1);
    c.nodes.get_mut(&0).unwrap().held = false;
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
}

#[test]
fn retries_at_other_nodes_put_no_copies_behind_an_output() {
    let mut c = pair(3);
    c.nodes.get_mut(&2).unwrap().held = true;
    let deadline = soon(&c);
    for attempt in 0..6 {
        c.request((attempt % 3).into(), 1, attempt, b"k", deadline);
        c.pass(500);
    }
    assert_eq!(c.report(2, shard(1, 0)).queue, 1);
    c.nodes.get_mut(&2).unwrap().held = false;
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    let mut c = pair(3);
    let deadline = soon(&c);
    c.cut.insert((2, 1));
    c.request(1, 1, 0, b"k", deadline);
    c.pass(500);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
    assert_eq!(c.outcomes(1), []);
    c.cut.clear();
    c.request(1, 1, 1, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
}

#[test]
fn the_answer_goes_elsewhere_when_the_first_ingress_is_gone() {
    let mut c = pair(4);
    c.nodes.get_mut(&3).unwrap().held = true;
    let deadline = soon(&c);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(100);
    c.kill(1);
    c.publish();
    c.request(2, 1, 1, b"k", deadline);
    c.pass(100);
    c.nodes.get_mut(&3).unwrap().held = false;
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.count(3, shard(1, 0), 1, 1), 1);
}

#[test]
fn a_shard_without_memory_still_deletes() {
    let mut c = Cluster::new(SMALL, 1, |_| vec![0]);
    let deadline = soon(&c);
    for seq in 1..=1_000 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(100);
    let done = c.replies.iter().filter(|r| r.2.outcome == Outcome::Done);
    let done = done.count() as u64;
    assert!((100..1_000).contains(&done), "{done} fit");
    assert_eq!(c.outcomes(1_000), [Outcome::Failed]);
    let id = |seq: u64| [1u64.to_le_bytes(), seq.to_le_bytes()].concat();
    for seq in 1..=done {
        let key = [DELETE, &id(seq)].concat();
        c.request(0, 2_000 + seq, 0, &key, deadline);
    }
    c.pass(100);
    for seq in 2_001..=2_000 + done {
        assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
    }
    c.request(0, 3_000, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(3_000), [Outcome::Done], "it has memory again");
}

#[test]
fn a_deadline_is_bounded_by_that_of_the_application() {
    let mut c = pair(3);
    for (seq, ahead_s, expected) in [(1, 100, Outcome::Done), (2, 1_000, Outcome::Rejected)] {
        let deadline = c.now + Nanos::from_secs(ahead_s);
        c.request(1, seq, 0, b"k", deadline);
        c.pass(100);
        assert_eq!(c.outcomes(seq), [expected], "{ahead_s} s ahead");
    }
}

#[test]
fn every_request_has_an_outcome_on_a_network_that_loses_a_fifth() {
    for seed in 1..=3 {
        let mut c = pair(3);
        c.random = e3_random::Random::new(seed);
        c.loss_permille = 200;
        c.unread = Some(Vec::new());
        let routes = Routes {
            app: APP,
            nodes: (0..3).map(address).collect(),
            ..Routes::default()
        };
        let mut client = Requests::new(77, routes);
        let mut outcomes = Vec::new();
        for ms in 0..8_000 {
            if ms < 2_000 && ms % 5 == 0 {
                let call = Call {
                    tag: 0,
                    key: b"k".to_vec(),
                    payload: Vec::new(),
                };
                client.submit(c.now, c.now, c.now + Nanos::from_secs(4), call);
            }
            client.on_timer(c.now);
            while let Some((to, bytes)) = client.poll_transmit() {
                c.send_raw(to, bytes);
            }
            c.pass(1);
            for bytes in c.unread.replace(Vec::new()).unwrap_or_default() {
                client.on_datagram(c.now, &bytes);
            }
            while let Some(event) = client.poll_event() {
                if let Event::Completed(completed) = event {
                    outcomes.push(completed.reply.map(|r| r.outcome));
                }
            }
        }
        let unknown = outcomes.iter().filter(|o| o.is_none()).count();
        assert_eq!((outcomes.len(), unknown), (400, 0), "seed {seed}");
        for seq in 1..=400 {
            let count = c.count(2, shard(1, 0), 77, seq);
            assert!(count <= 1, "seed {seed}: request {seq}: {count} effects");
        }
    }
}

#[test]
fn a_refusal_is_final_for_copies_that_the_network_delivers_later() {
    let mut c = narrow();
    let deadline = soon(&c);
    c.nodes.get_mut(&0).unwrap().held = true;
    c.request(1, 1, 0, b"k", deadline);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(5);
    assert_eq!(c.outcomes(2), [Outcome::Overloaded]);
    c.nodes.get_mut(&0).unwrap().held = false;
    c.pass(50);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(2), [Outcome::Overloaded, Outcome::Overloaded]);
    assert_eq!(c.count(0, shard(0, 0), 1, 2), 0, "it was refused");
    // The client tries again.
    c.request(1, 2, 1, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(2)[2..], [Outcome::Done]);
    // Also of a request that its client has done with.
    c.nodes.get_mut(&0).unwrap().held = true;
    c.request(1, 3, 0, b"k", deadline);
    c.request(1, 4, 0, b"k", deadline);
    c.pass(5);
    c.nodes.get_mut(&0).unwrap().held = false;
    c.pass(50);
    let mut later = c.request_of(5, 0, b"k", deadline);
    later.oldest_seq = 5;
    c.send_request(1, later);
    c.pass(50);
    assert_eq!(c.outcomes(5), [Outcome::Done]);
    c.request(1, 4, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.count(0, shard(0, 0), 1, 4), 0, "it was refused");
}

#[test]
fn a_refusal_for_want_of_the_application_is_final_too() {
    let mut c = narrow();
    let deadline = soon(&c);
    let plan = c.plan.clone();
    c.plan.id = e3_model::AppId(2);
    c.publish();
    c.request(1, 1, 0, b"k", deadline);
    c.pass(5);
    assert_eq!(c.outcomes(1), [Outcome::Rejected]);
    c.plan = plan;
    c.publish();
    c.request(1, 1, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(1), [Outcome::Rejected, Outcome::Rejected]);
    c.request(1, 1, 1, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(1)[2..], [Outcome::Done]);
}

#[test]
fn a_request_whose_answer_is_lost_gives_back_its_place() {
    let mut c = narrow();
    let deadline = soon(&c);
    c.cut.insert((2, 1));
    c.request(1, 1, 0, b"k", deadline);
    c.pass(500);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
    // Its client has the answer from another node, and never asks this one again.
    c.request(0, 1, 1, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    c.cut.clear();
    c.pass(6_000);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}
