//! What clients and operators notice of an ingress: answers, their time, and its figures.

use crate::common::{APP, Cluster, count_and_forward, shard};
use e3_dataplane::{Config, Kept, Worker};
use e3_invocation::HandlerError;
use e3_model::plan::IngressCounts;
use e3_model::{Formats, Nanos, NodeId, NodeKind, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;

/// A stateful service, a stateless one, a stateful one.
pub(crate) const LINE: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: line}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  admittedMax: 2
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: middle
      module: s.wasm
      resources: {cpu: 0.1, memory: 64Mi}
    - name: back
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: middle}
    - {name: b, from: middle, to: back}
";

/// A stateless service and a stateful one.
const STATELESS_FRONT: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: pair}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  ingress: front
  services:
    - name: front
      module: s.wasm
      resources: {cpu: 0.1, memory: 64Mi}
    - name: back
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: back}
";

/// The front on node 0, the middle on node 1, the back on node 2; node 3 has none of them.
fn line() -> Cluster {
    Cluster::new(LINE, 4, |key| vec![key.service.0.into()])
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(15)
}

#[test]
fn a_node_reports_what_it_admitted_and_what_it_refused() {
    let mut c = line();
    c.nodes.get_mut(&0).unwrap().held = true;
    let deadline = soon(&c);
    for seq in 1..=5 {
        c.request(3, seq, 0, b"k", deadline);
    }
    c.pass(10);
    let expected = IngressCounts {
        admitted: 2,
        overloaded: 3,
    };
    let stats = c.nodes[&3].worker.report().stats;
    assert_eq!((stats.admitted, stats.overloaded), (2, 3));
    assert_eq!(stats.ingress[&APP], expected);
    assert_eq!(c.nodes[&3].worker.in_flight(), 2);
}

#[test]
fn a_node_knows_what_it_keeps_because_of_requests() {
    let mut c = line();
    let deadline = soon(&c);
    for seq in 1..=5 {
        c.request(3, seq, 0, b"k", deadline);
        c.pass(100);
    }
    let kept = |node: u32| c.nodes[&node].worker.kept();
    let expected = |remembered, sessions| Kept {
        open: 0,
        publishing: 0,
        remembered,
        sessions,
    };
    assert_eq!(kept(0), expected(5, 0));
    assert_eq!(kept(3), expected(0, 5));
}

#[test]
fn a_request_that_a_node_knows_is_answered_again_after_its_deadline() {
    let mut c = line();
    let deadline = c.now + Nanos::from_secs(1);
    c.request(3, 1, 0, b"k", deadline);
    c.pass(4_000);
    c.request(3, 1, 1, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done, Outcome::Done]);
    // Another node cannot tell whether it was handled and forgotten.
    c.request(1, 1, 2, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1)[2..], [Outcome::Rejected]);
}

#[test]
fn the_only_answer_waits_for_no_acknowledgement() {
    // Also if a service was stateless that it came by: it forwards one message only.
    for manifest in [LINE, STATELESS_FRONT] {
        let mut c = Cluster::new(manifest, 4, |key| vec![key.service.0.into()]);
        c.cut.insert((0, 3));
        let deadline = soon(&c);
        c.request(3, 1, 0, b"k", deadline);
        c.pass(50);
        assert_eq!(c.outcomes(1), [Outcome::Done]);
    }
}

/// What the second one says would contradict what the client was told.
#[test]
fn the_first_of_two_answers_is_the_outcome_of_a_request() {
    let manifest = LINE.replace("from: middle, to: back", "from: front, to: back");
    for (outcome, last) in [(Outcome::Done, 2), (Outcome::Failed, 1)] {
        let mut c = Cluster::new(&manifest, 4, |key| vec![key.service.0.into()]);
        c.handler = Box::new(|service, invocation, state| match service.0 {
            0 => count_and_forward(2, invocation, state),
            1 => count_and_forward(0, invocation, state),
            _ => Err(HandlerError::Code(1)),
        });
        let deadline = soon(&c);
        c.nodes.get_mut(&last).unwrap().held = true;
        c.request(3, 1, 0, b"k", deadline);
        c.pass(20);
        assert_eq!(c.outcomes(1), [outcome]);
        c.nodes.get_mut(&last).unwrap().held = false;
        c.pass(20);
        let entries = |service: u16| c.report(service.into(), shard(service, 0)).op;
        assert_eq!([entries(1), entries(2)], [1, 1]);
        c.request(3, 1, 1, b"k", deadline);
        c.pass(20);
        assert_eq!(c.outcomes(1), [outcome; 2]);
    }
}

#[test]
fn a_retry_with_an_earlier_deadline_does_not_make_the_first_one_expire() {
    let mut c = line();
    let keyed = |c: &Cluster, deadline| Request {
        oldest_seq: 0,
        ..c.request_of(1, 0, b"k", deadline)
    };
    // The answer is lost.
    c.cut.insert((2, 3));
    let first = keyed(&c, soon(&c));
    c.send_request(3, first);
    c.pass(100);
    assert_eq!(c.count(2, shard(2, 0), 1, 1), 1);
    assert_eq!(c.outcomes(1), []);
    // Another process handles the message in the middle, and may do so in time.
    c.kill(1);
    c.start(1, 2);
    c.promote(shard(1, 0), 1);
    c.publish();
    c.pass(500);
    let retry = keyed(&c, c.now);
    c.send_request(2, retry);
    c.pass(500);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.count(2, shard(2, 0), 1, 1), 1);
}

#[test]
fn an_emulated_node_is_as_slow_as_the_plan_says() {
    let mut c = line();
    let config = Config {
        node: NodeId(2),
        incarnation: 2,
        cluster: c.nodes[&2].worker.plan().cluster,
        formats: Formats::PROGRAM,
        kind: NodeKind::SmartNic,
        journal_len_min: u64::MAX,
        slowed: true,
        emulated: None,
    };
    // The back end's handlers take a microsecond each.
    let times = |smart_nic| [(NodeKind::Host, 1.0), (NodeKind::SmartNic, smart_nic)].into();
    c.plan.slowdown = vec![times(1.0), times(1.0), times(1_000_001.0)];
    c.start(2, 2);
    c.nodes.get_mut(&2).unwrap().worker = Worker::new(config);
    c.publish();
    c.pass(500);
    let deadline = soon(&c);
    for seq in [1, 2] {
        c.request(3, seq, 0, b"k", deadline);
    }
    for (done, ms) in [(0, 990), (1, 1_000), (2, 1_000)] {
        c.pass(ms);
        assert_eq!(c.replies.len(), done);
    }
}
