//! A client repeats a request with an idempotency key until long after its first deadline: the log says so,
//! and every repeat is answered where it came from. What is answered is not repeated by the ingress.

use crate::common::manifests::{ONE, PAIR, STATELESS};
use crate::common::{Cluster, count_and_forward, shard};
use e3_invocation::HandlerError;
use e3_model::{Nanos, RequestId};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const CLIENT: u64 = 5;
const SEQ: u64 = 1;

/// The first service is on node 0, the second on node 1. Clients use others.
fn pair() -> Cluster {
    Cluster::new(PAIR, 4, |key| vec![key.service.0.into()])
}

/// The client sends its request to a node.
fn request(c: &mut Cluster, node: u32, deadline_ms: u64) {
    let deadline = c.now + Nanos::from_millis(deadline_ms);
    let request = Request {
        id: RequestId {
            client: CLIENT,
            seq: SEQ,
        },
        oldest_seq: 0,
        ..c.request_of(SEQ, 0, b"k", deadline)
    };
    c.send_request(node, request);
}

/// The client sends its request at a node, and gets so many answers by then.
#[track_caller]
fn send(c: &mut Cluster, node: u32, answers: usize) {
    request(c, node, 20_000);
    c.pass(50);
    assert_eq!(c.outcomes(SEQ), vec![Outcome::Done; answers]);
}

/// Entries of both services.
fn entries(c: &Cluster) -> [u64; 2] {
    [0, 1].map(|service| c.report(service, shard(service as u16, 0)).op)
}

#[test]
fn a_repeat_is_answered_where_it_came_from_and_remembered_anew() {
    let mut c = pair();
    send(&mut c, 2, 1);
    assert_eq!(entries(&c), [1, 1]);
    // It is remembered for long enough.
    c.pass_coarsely(10);
    send(&mut c, 3, 2);
    assert_eq!(entries(&c), [1, 1]);
    for (repeat, node) in [(1, 3), (2, 2), (3, 2), (4, 3)] {
        c.pass_coarsely(160);
        // The process that was asked first is gone.
        c.start(2, 1 + repeat as u32);
        c.publish();
        c.pass(500);
        send(&mut c, node, 2 + repeat);
        assert_eq!(entries(&c), [1 + repeat as u64; 2], "repeat {repeat}");
    }
    for service in [0, 1] {
        assert_eq!(c.count(service, shard(service as u16, 0), CLIENT, SEQ), 1);
    }
}

/// The shard that gave it may be out of reach now.
#[test]
fn a_node_that_has_the_answer_gives_it_itself() {
    let mut c = pair();
    send(&mut c, 2, 1);
    c.cut.insert((2, 0));
    send(&mut c, 2, 2);
    c.pass_coarsely(10);
    send(&mut c, 2, 3);
}

#[test]
fn a_client_that_numbers_its_requests_repeats_none_for_so_long() {
    let mut c = pair();
    let deadline = c.now + Nanos::from_secs(20);
    c.request(2, SEQ, 0, b"k", deadline);
    c.pass(50);
    let deadline = deadline + Nanos::from_secs(5);
    c.request(3, SEQ, 1, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(SEQ), [Outcome::Done; 2]);
    assert_eq!(entries(&c), [1, 1]);
}

/// Its first copy has failed once, and has no time left for another attempt, but the second one has.
#[test]
fn a_copy_with_a_later_deadline_takes_the_place_of_one_that_expires_before_it() {
    let mut c = Cluster::new(ONE, 3, |_| vec![0]);
    let fails = Cell::new(true);
    c.handler = Box::new(move |_, invocation, state| match fails.replace(false) {
        true => Err(HandlerError::Code(1)),
        false => count_and_forward(0, invocation, state),
    });
    let hold = |c: &mut Cluster, held| c.nodes.get_mut(&0).unwrap().held = held;
    hold(&mut c, true);
    for (node, deadline_ms) in [(0, 100), (1, 400), (2, 300)] {
        let deadline = c.now + Nanos::from_millis(deadline_ms);
        let request = Request {
            oldest_seq: 0,
            ..c.request_of(SEQ, 0, b"k", deadline)
        };
        c.send_request(node, request);
        c.pass(5);
    }
    c.pass(335);
    hold(&mut c, false);
    c.pass(20);
    assert_eq!(c.outcomes(SEQ), [Outcome::Done; 3]);
    let report = c.report(0, shard(0, 0));
    assert_eq!((report.op, report.dead_letters), (1, 0));
}

/// Its second attempt is that of the same message: it has the same clock.
#[test]
fn no_copy_takes_the_place_of_a_message_that_has_time_left() {
    let mut c = Cluster::new(STATELESS, 2, |_| vec![0]);
    let told = Rc::new(RefCell::new(Vec::new()));
    let seen = told.clone();
    c.handler = Box::new(move |_, invocation, state| {
        seen.borrow_mut().push(invocation.now);
        match seen.borrow().len() {
            1 => Err(HandlerError::Code(1)),
            _ => count_and_forward(0, invocation, state),
        }
    });
    let hold = |c: &mut Cluster, held| c.nodes.get_mut(&0).unwrap().held = held;
    hold(&mut c, true);
    let sent = c.now;
    for node in [0, 1] {
        request(&mut c, node, 10_000);
        c.pass(5);
    }
    hold(&mut c, false);
    c.pass(20);
    assert_eq!(*told.borrow(), [sent; 2]);
    assert_eq!(c.outcomes(SEQ), [Outcome::Done; 2]);
}

const FORK: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: fork}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  ingress: front
  services:
    - {name: front, module: s.wasm, resources: {cpu: 0.1, memory: 64Mi}}
    - {name: pass, module: s.wasm, resources: {cpu: 0.1, memory: 64Mi}}
    - name: answers
      module: s.wasm
      stateful: true
      replicas: 1
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: requests, kind: counter}]
    - name: aside
      module: s.wasm
      stateful: true
      replicas: 1
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: requests, kind: counter}]
  channels:
    - {from: front, to: pass}
    - {from: front, to: aside}
    - {from: pass, to: answers}
";

/// Service n runs on node n. The client gets the answer of `answers` only when `aside` has its message, even
/// if `pass` handles a message that had expired.
#[test]
fn a_message_that_is_handled_late_brings_no_answer_forward() {
    let mut c = Cluster::new(FORK, 5, |key| vec![key.service.0.into()]);
    c.cut.extend([(0, 1), (0, 3)]);
    request(&mut c, 4, 300);
    c.pass(700);
    c.cut.remove(&(0, 1));
    c.pass(3_000);
    assert_eq!(c.outcomes(SEQ), [Outcome::Expired]);
    request(&mut c, 1, 20_000);
    c.pass(500);
    assert_eq!(c.count(2, shard(2, 0), CLIENT, SEQ), 1);
    assert_eq!(c.outcomes(SEQ), [Outcome::Expired], "aside has nothing");
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(SEQ), [Outcome::Expired, Outcome::Done]);
    assert_eq!(c.count(3, shard(3, 0), CLIENT, SEQ), 1);
}

/// A channel keeps a request until its receiver says that it is durable, which comes after the answer.
#[test]
fn a_shard_that_begins_empty_handles_no_request_that_was_answered() {
    let (mut c, key) = (Cluster::new(ONE, 2, |_| vec![0]), shard(0, 0));
    let deadline = c.now + Nanos::from_secs(20);
    c.request(1, 1, 0, b"k", deadline);
    while c.outcomes(1).is_empty() {
        c.pass(1);
    }
    // Its process ends, and with it the only copy of the state. The next request has no answer then.
    c.start(0, 2);
    c.request(1, 2, 0, b"k", deadline);
    let plan = c.shard(key);
    plan.view += 1;
    plan.era = plan.view;
    c.promote(key, 0);
    c.publish();
    c.pass(1_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert_eq!([1, 2].map(|seq| c.count(0, key, 1, seq)), [0, 1]);
}

/// A former process of a stateless service may have handled it: what followed from that is known downstream.
#[test]
fn a_stateless_service_handles_a_repeat_of_what_expired_after_it_moved() {
    // The request never came there, or its answer was lost, or one of two branches was.
    for cut in [(4, 0), (2, 4), (0, 3)] {
        let mut c = Cluster::new(FORK, 5, |key| vec![key.service.0.into()]);
        c.cut.extend([cut, (0, 4)]);
        request(&mut c, 4, 300);
        c.pass(700);
        c.start(0, 2);
        c.promote(shard(0, 0), 0);
        c.cut.clear();
        c.publish();
        c.pass(1_000);
        let first = c.outcomes(SEQ);
        assert!(!first.contains(&Outcome::Expired), "{cut:?}: {first:?}");
        request(&mut c, 4, 20_000);
        request(&mut c, 1, 20_000);
        c.pass(3_000);
        let last = c.outcomes(SEQ);
        assert_eq!(last.last(), Some(&Outcome::Done), "{cut:?}: {last:?}");
        for service in [2, 3] {
            let count = c.count(service, shard(service as u16, 0), CLIENT, SEQ);
            assert_eq!(count, 1, "{cut:?}: service {service}");
        }
        let front = c.report(0, shard(0, 0));
        assert_eq!(front.dead_letters, 0, "{cut:?}");
    }
}
