//! Effects take place once: behind stateless services, after forgetting, with wrong clocks.

use crate::common::{Cluster, Handler, count_and_forward, key_of, shard};
use e3_invocation::HandlerError;
use e3_model::{Nanos, NodeId, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::rc::Rc;

/// A stateful service, a stateless one, a stateful one.
const LINE: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: line}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      replicas: 2
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

/// Two stateful services.
const PAIR: &str = "
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
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: back}
";

/// A stateless service that sends to two stateful ones.
const FORK: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: fork}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  ingress: front
  services:
    - name: front
      module: s.wasm
      resources: {cpu: 0.1, memory: 64Mi}
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

fn line() -> Cluster {
    Cluster::new(LINE, 4, |key| match key.service.0 {
        0 => vec![0, 1],
        service => vec![u32::from(service) + 1],
    })
}

/// Another process takes the place of the stateless service's.
fn replace_middle(c: &mut Cluster) {
    c.kill(2);
    c.start(2, 2);
    c.promote(shard(1, 0), 2);
}

/// Fails every message at a service, as long as it is asked to.
fn failing_at(service: u16, channels: u16) -> Handler {
    Box::new(move |at, invocation, state| {
        if at.0 == service {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(channels, invocation, state)
    })
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(15)
}

#[test]
fn a_copy_at_a_stateless_service_is_durable_when_its_outputs_are() {
    let mut c = line();
    c.cut.insert((2, 3));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 1);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 0, "on its way");
    // Another primary sends it to the same process once more.
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(2_500);
    // Then that process dies: all that is left of the message is at its sender.
    replace_middle(&mut c);
    c.cut.clear();
    c.publish();
    c.pass(2_000);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 1, "the effect is lost");
}

#[test]
fn a_request_is_answered_when_all_that_a_stateless_service_sent_is_durable() {
    let mut c = Cluster::new(FORK, 5, |key| vec![u32::from(key.service.0) + 1]);
    c.cut.insert((1, 3));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1, "the left one answers");
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 0);
    assert_eq!(c.outcomes(1), [], "the right one has nothing yet");
    // The front end dies with what it sent to the right one.
    c.kill(1);
    c.promote(shard(0, 0), 4);
    c.publish();
    c.pass(2_000);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 1, "the effect is lost");
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1);
}

/// What another service beside the ingress has sent for good says nothing of what the first one has.
#[test]
fn a_later_stateless_service_does_not_answer_for_the_first() {
    let relay =
        "    - {name: relay, module: s.wasm, resources: {cpu: 0.1, memory: 64Mi}}\n  channels:\n";
    let manifest = FORK.replace("  channels:\n", relay).replace(
        "from: front, to: left",
        "from: front, to: relay}\n    - {name: c, from: relay, to: left",
    );
    let mut c = Cluster::new(&manifest, 5, |key| match key.service.0 {
        3 => vec![0],
        service => vec![u32::from(service) + 1],
    });
    c.cut.insert((1, 3));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(500);
    assert_eq!(c.count(2, shard(1, 0), 1, 1), 1, "the left one answers");
    assert_eq!(c.outcomes(1), [], "the right one has nothing yet");
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 1);
}

#[test]
fn a_stateless_service_is_told_the_same_time_for_every_run() {
    let mut c = Cluster::new(FORK, 5, |key| vec![u32::from(key.service.0) + 1]);
    let told = Rc::new(RefCell::new(Vec::new()));
    let seen = told.clone();
    c.handler = Box::new(move |at, invocation, state| {
        seen.borrow_mut().push((at.0, invocation.now));
        count_and_forward(if at.0 == 0 { 2 } else { 0 }, invocation, state)
    });
    c.cut.extend([(1, 2), (1, 3)]);
    let (sent, deadline) = (c.now, soon(&c));
    let request = |c: &Cluster, attempt| Request {
        sent,
        ..c.request_of(1, attempt, b"k", deadline)
    };
    c.send_request(0, request(&c, 0));
    c.pass(100);
    // What the front end has sent is lost with it. The client retries at another node.
    c.kill(1);
    c.promote(shard(0, 0), 4);
    c.publish();
    c.pass(100);
    c.send_request(3, request(&c, 1));
    c.pass(1_000);
    assert_eq!(c.outcomes(1)[0], Outcome::Done);
    let at = |service| {
        let all = told.borrow();
        let there = all.iter().filter(|(at, _)| *at == service);
        there.map(|(_, now)| *now).collect::<Vec<_>>()
    };
    assert_eq!(at(0), [sent, sent]);
    assert!(at(1)[0] > sent, "a stateful service has a clock of its own");
    // Whatever the client says, it is within the application's deadline, and hardly in the future.
    let (now, deadline) = (c.now, soon(&c));
    let earliest = deadline - Nanos::from_secs(60);
    for (seq, sent, expected) in [
        (2, Timestamp::ZERO, Some(earliest)),
        (3, now + Nanos::from_secs(30), Some(deadline)),
        (4, now + Nanos::from_secs(70), None),
    ] {
        let before = at(0).len();
        let request = c.request_of(seq, 0, b"k", deadline);
        c.send_request(0, Request { sent, ..request });
        c.pass(100);
        assert_eq!(at(0)[before..], Vec::from_iter(expected));
    }
    assert_eq!(c.outcomes(4), [Outcome::Rejected]);
}

#[test]
fn what_may_have_been_forgotten_is_unknown_and_not_replayed() {
    let mut c = Cluster::new(PAIR, 3, |key| match key.service.0 {
        0 => vec![0, 1],
        _ => vec![2],
    });
    // The back end handles it; its sender never hears of that.
    c.cut.insert((2, 0));
    let deadline = c.now + Nanos::from_secs(2);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(1_000);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    // With the next message, much later, the back end forgets it.
    c.pass(20_000);
    let deadline = soon(&c);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(3_000);
    assert_eq!(c.count(2, shard(1, 0), 1, 2), 1);
    // A new primary sends it again.
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    let letters = c.read_letters(2, shard(1, 0)).letters;
    let outcomes: Vec<_> = letters.iter().map(|(_, l)| l.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unknown]);
    c.replay_first(2, shard(1, 0), 9);
    assert_eq!(c.outcomes(9), [Outcome::Rejected]);
    assert_eq!(c.count(2, shard(1, 0), 2, 9), 0, "a second effect");
}

#[test]
fn what_expired_for_certain_is_replayed() {
    let mut c = line();
    c.nodes.get_mut(&3).unwrap().held = true;
    c.cut.insert((2, 3));
    let deadline = c.now + Nanos::from_secs(2);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(3_000);
    c.cut.clear();
    c.nodes.get_mut(&3).unwrap().held = false;
    c.pass(3_000);
    let letters = c.read_letters(3, shard(2, 0)).letters;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].1.outcome, Outcome::Expired);
    c.replay_first(3, shard(2, 0), 9);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.count(3, shard(2, 0), 2, 9), 1);
}

#[test]
fn what_a_successor_cannot_handle_may_have_been_handled() {
    let mut c = line();
    c.cut.insert((3, 2));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.count(3, shard(2, 0), 1, 1), 1);
    c.handler = failing_at(1, 1);
    replace_middle(&mut c);
    c.cut.clear();
    c.publish();
    c.pass(2_000);
    let letters = c.read_letters(2, shard(1, 0)).letters;
    assert_eq!(letters[0].1.outcome, Outcome::Unknown);
    // Of a request that came later than that it is sure.
    c.pass(200_000);
    let deadline = soon(&c);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(1_000);
    let letters = c.read_letters(2, shard(1, 0)).letters;
    assert_eq!(letters[1].1.outcome, Outcome::Failed);
}

#[test]
fn a_clock_that_was_ahead_makes_no_shard_repeat_what_it_forgot() {
    let mut c = Cluster::new(LINE, 4, |key| match key.service.0 {
        0 => vec![0],
        service => vec![u32::from(service) + 1],
    });
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    // The time of the log is an hour ahead from here on.
    c.nodes.get_mut(&0).unwrap().ahead = Nanos::from_secs(3_600);
    let later = c.clock(0) + Nanos::from_secs(15);
    c.request(0, 2, 0, b"k", later);
    // Before it is noticed.
    c.pass(20);
    c.nodes.get_mut(&0).unwrap().ahead = Nanos::ZERO;
    c.request(1, 1, 1, b"k", deadline);
    c.pass(500);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 1, "a second effect");
    assert_eq!(c.outcomes(1), [Outcome::Done, Outcome::Unknown]);
}

#[test]
fn a_primary_with_a_wrong_clock_gets_no_lease() {
    for ahead_s in [5, 3_600] {
        let mut c = line();
        assert!(c.report(0, shard(0, 0)).serving);
        c.nodes.get_mut(&0).unwrap().ahead = Nanos::from_secs(ahead_s);
        c.pass(2_000);
        assert!(!c.report(0, shard(0, 0)).serving, "{ahead_s} s ahead");
    }
}

#[test]
fn a_wrong_clock_drops_no_message_for_good() {
    let mut c = line();
    // The front is hours ahead of the back.
    for node in [0, 1] {
        c.nodes.get_mut(&node).unwrap().ahead = Nanos::from_secs(3 * 3_600);
    }
    c.pass(2_000);
    let deadline = c.clock(0) + Nanos::from_secs(15);
    c.request(0, 1, 0, &key_of(0, 1), deadline);
    c.pass(2_000);
    let letters = c.read_letters(2, shard(1, 0)).letters;
    assert_eq!(letters.len(), 1, "it is nowhere");
    assert_eq!(c.shard(shard(0, 0)).primary, NodeId(0));
}

#[test]
fn a_node_whose_clock_is_wrong_serves_nothing_and_its_peers_serve_on() {
    for ahead_s in [3, 3_600] {
        // Every copy is alone, so that no lease stops it.
        let mut c = Cluster::new(LINE, 4, |key| vec![key.service.0.into()]);
        c.nodes.get_mut(&0).unwrap().ahead = Nanos::from_secs(ahead_s);
        c.pass(500);
        for (node, is_off) in [(0, true), (1, false), (2, false), (3, false)] {
            assert_eq!(c.nodes[&node].worker.is_clock_off(), is_off, "node {node}");
        }
        let report = c.report(0, shard(0, 0));
        assert!(report.clock_off && !report.serving);
        let deadline = c.clock(1) + Nanos::from_secs(15);
        for node in [0, 1] {
            let seq = u64::from(node) + 1;
            c.request(node, seq, 0, b"k", deadline);
            c.pass(500);
            assert_eq!(c.outcomes(seq), [], "at node {node}, {ahead_s} s ahead");
        }
        assert_eq!(c.count(0, shard(0, 0), 1, 2), 0);
        // Whoever sets the clock right restarts the process.
        c.kill(0);
        c.start(0, 2);
        c.publish();
        c.pass(500);
        c.request(0, 1, 1, b"k", deadline);
        c.pass(500);
        assert_eq!(c.outcomes(1), [Outcome::Done]);
    }
}
