//! What a primary keeps until it is durable downstream, and what it repeats of that.

use crate::common::{Cluster, key_of, shard};
use e3_model::plan::NodeEvent;
use e3_model::{Nanos, NodeId, Timestamp};
use e3_wire::entry::Outcome;

/// A stateful service that sends to two others.
const FORK: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: fork}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: left
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: right
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: left}
    - {name: b, from: front, to: right}
";

/// A stateful service that sends to one of two shards.
const SPLIT: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: split}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      shards: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: back}
";

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

#[test]
fn a_retry_repeats_what_is_durable_and_not_what_is_on_its_way() {
    let mut c = Cluster::new(FORK, 5, |key| vec![key.service.0.into()]);
    // The left one handles it, and its answer is lost; the right one stands still.
    c.nodes.get_mut(&2).unwrap().held = true;
    c.cut.insert((1, 3));
    let deadline = soon(&c);
    c.request(3, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.count(1, shard(1, 0), 1, 1), 1);
    assert_eq!(c.outcomes(1), []);
    c.request(4, 1, 1, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.report(2, shard(2, 0)).queue, 1, "a copy waits behind it");
}

#[test]
fn a_retry_repeats_what_is_durable_while_an_earlier_message_is_on_its_way() {
    let mut c = Cluster::new(SPLIT, 5, |key| vec![(key.service.0 + key.shard.0).into()]);
    c.nodes.get_mut(&1).unwrap().held = true;
    c.cut.insert((2, 3));
    let deadline = soon(&c);
    for (seq, back) in [(1, 0), (2, 1)] {
        c.request(3, seq, 0, &key_of(back, 2), deadline);
        c.pass(100);
    }
    assert_eq!(c.count(2, shard(1, 1), 1, 2), 1);
    assert_eq!(c.outcomes(2), []);
    c.request(4, 2, 1, &key_of(1, 2), deadline);
    c.pass(100);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn a_primary_that_comes_back_keeps_what_was_not_durable() {
    let front = shard(0, 0);
    let mut c = Cluster::new(FORK, 5, |key| match key.service.0 {
        0 => vec![0, 1],
        service => vec![u32::from(service) + 1],
    });
    c.cut.insert((0, 3));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 0, "on its way");
    // Its successor dies before it acts.
    c.kill(1);
    c.promote(front, 1);
    c.promote(front, 0);
    let plan = c.shard(front);
    plan.backups.clear();
    plan.joining = vec![NodeId(4)];
    c.publish();
    c.pass(1_000);
    let events = c.nodes[&0].worker.events();
    assert!(events.iter().any(|e| matches!(e, NodeEvent::Synced { .. })));
    // Then it dies too, and what is left of the message is with its next backup.
    c.kill(0);
    c.promote(front, 4);
    c.shard(front).joining.clear();
    c.publish();
    c.pass(1_000);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 1, "the effect is lost");
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
}
