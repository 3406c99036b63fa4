//! What a primary hands to its executor, what it says of itself, and when it acts at all.

use crate::common::{Cluster, address, count_and_forward, shard};
use e3_dataplane::{Config, Output, Worker};
use e3_invocation::HandlerError;
use e3_model::plan::{NodeEvent, NodePlan, ShardCounts};
use e3_model::{Format, Formats, Nanos, NodeId, NodeKind, RequestId, ShardKey, Slot, Timestamp};
use e3_wire::client::{ClientFrame, Replay, Request};
use e3_wire::entry::Outcome;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

const ONE: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: one}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  attempts: 3
  ingress: only
  services:
    - name: only
      module: only.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

fn key() -> ShardKey {
    shard(0, 0)
}

/// A shard on node 0 alone, of several nodes.
fn single(nodes: u32) -> Cluster {
    Cluster::new(ONE, nodes, |_| vec![0])
}

/// A shard on nodes 0 and 1, of several, after its first request.
fn pair(nodes: u32) -> Cluster {
    let mut c = Cluster::new(ONE, nodes, |_| vec![0, 1]);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    c
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(30)
}

/// A request with an idempotency key; the client stands for the key.
fn keyed(c: &Cluster, client: u64, seq: u64, deadline: Timestamp) -> Request {
    Request {
        id: RequestId { client, seq },
        oldest_seq: 0,
        ..c.request_of(seq, 0, b"k", deadline)
    }
}

fn hold(c: &mut Cluster, node: u32, is_held: bool) {
    c.nodes.get_mut(&node).unwrap().held = is_held;
}

/// Requests that a node's executor has, by client and number.
fn running(c: &Cluster, node: u32) -> Vec<(u64, u64)> {
    let waiting = c.nodes[&node].waiting.iter();
    let ids = waiting.map(|(_, i)| (i.id.request.client, i.id.request.seq));
    ids.collect()
}

/// Whether handlers fail from now on.
fn failures(c: &mut Cluster) -> Rc<Cell<bool>> {
    let fails = Rc::new(Cell::new(false));
    let asked = fails.clone();
    c.handler = Box::new(move |_, invocation, state| {
        if asked.get() {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(0, invocation, state)
    });
    fails
}

/// A client asks node 0 to replay the only dead letter.
fn replay(c: &mut Cluster, seq: u64, attempt: u16) {
    let letter = c.read_letters(0, key()).letters[0].0;
    let frame = ClientFrame::Replay(Replay {
        shard: key(),
        letter,
        slot: Slot::of(b"k"),
        id: RequestId { client: 2, seq },
        attempt,
        deadline: soon(c),
    });
    c.send_raw(address(0), frame.to_datagram(Format::NEWEST));
    c.pass(5);
}

#[test]
fn messages_that_have_nothing_in_common_run_at_a_time() {
    let mut c = single(1);
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    for seq in 1..=3 {
        c.request(0, seq, 0, b"k", deadline);
    }
    for client in [1, 2] {
        let request = keyed(&c, client, 10 + client, deadline);
        c.send_request(0, request);
    }
    c.pass(5);
    let expected = [(1, 1), (1, 2), (1, 3), (1, 11), (2, 12)];
    assert_eq!(running(&c, 0), expected);
    let waiting = c.nodes[&0].waiting.iter();
    let tokens: BTreeSet<u64> = waiting.map(|(_, i)| i.token).collect();
    assert_eq!(tokens.len(), expected.len(), "each run has its own name");
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.replies.len(), expected.len());
    assert!(c.replies.iter().all(|(.., r)| r.outcome == Outcome::Done));
}

#[test]
fn an_idempotency_key_stands_for_one_request() {
    let mut c = single(1);
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    for seq in [1, 2] {
        let request = keyed(&c, 5, seq, deadline);
        c.send_request(0, request);
    }
    c.pass(5);
    // What becomes of the first decides about the second.
    assert_eq!(running(&c, 0), [(5, 1)]);
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.outcomes(2), [Outcome::Conflict]);
    // A client's number is no key.
    let mut request = keyed(&c, 5, 3, deadline);
    request.oldest_seq = 1;
    c.send_request(0, request);
    c.pass(20);
    assert_eq!(c.outcomes(3), [Outcome::Done]);
}

#[test]
fn a_copy_waits_while_the_request_runs() {
    let mut c = single(2);
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    for node in [0u16, 1] {
        c.request(node.into(), 1, node, b"k", deadline);
    }
    c.pass(20);
    assert_eq!(running(&c, 0), [(1, 1)]);
    assert_eq!(c.report(0, key()).queue, 2);
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done, Outcome::Done]);
    assert_eq!(c.count(0, key(), 1, 1), 1);
}

#[test]
fn a_dead_letter_is_replayed_once() {
    let mut c = single(1);
    let fails = failures(&mut c);
    fails.set(true);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    fails.set(false);
    hold(&mut c, 0, true);
    c.request(0, 2, 0, b"k", deadline);
    // Twice by the same client, which does not hear of it, and once by another.
    replay(&mut c, 9, 0);
    replay(&mut c, 9, 1);
    replay(&mut c, 10, 0);
    assert_eq!(running(&c, 0), [(1, 2), (2, 9)]);
    assert_eq!(c.report(0, key()).queue, 3);
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.outcomes(10), [Outcome::Rejected]);
    let count = |seq| c.count(0, key(), 2, seq);
    assert_eq!((count(9), count(10)), (1, 0));
}

#[test]
fn an_expired_request_is_not_handled_while_its_letter_is_replayed() {
    let mut c = single(1);
    let late = keyed(&c, 5, 1, c.now - Nanos::from_millis(100));
    c.send_request(0, late);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Expired]);
    hold(&mut c, 0, true);
    replay(&mut c, 9, 0);
    let mut again = keyed(&c, 5, 1, soon(&c));
    again.attempt = 1;
    c.send_request(0, again);
    c.pass(5);
    assert_eq!(running(&c, 0), [(2, 9)]);
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.count(0, key(), 2, 9), 1);
    assert_eq!(c.count(0, key(), 5, 1), 0, "a second effect");
}

#[test]
fn a_repeat_takes_the_place_of_a_dead_letter_that_outlived_its_request() {
    let mut c = single(1);
    let late = keyed(&c, 5, 1, c.now - Nanos::from_millis(100));
    c.send_request(0, late);
    c.pass(20);
    assert_eq!(c.report(0, key()).dead_letters, 1);
    // It is forgotten when another one comes.
    c.pass_coarsely(320);
    let deadline = soon(&c);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(20);
    let again = keyed(&c, 5, 1, soon(&c));
    c.send_request(0, again);
    c.pass(20);
    assert_eq!(c.count(0, key(), 5, 1), 1);
    assert_eq!(
        c.report(0, key()).dead_letters,
        0,
        "a replay would repeat it"
    );
}

#[test]
fn a_retry_elsewhere_is_answered_there_when_the_first_attempt_is_durable() {
    let mut c = pair(4);
    c.cut.insert((1, 0));
    let deadline = soon(&c);
    c.request(2, 2, 0, b"k", deadline);
    c.pass(5);
    c.request(3, 2, 1, b"k", deadline);
    c.pass(20);
    assert_eq!(c.count(0, key(), 1, 2), 1);
    assert_eq!(c.outcomes(2), [], "the backup has not confirmed it");
    c.cut.clear();
    c.pass(500);
    assert_eq!(c.outcomes(2), [Outcome::Done, Outcome::Done]);
}

#[test]
fn what_a_primary_did_is_counted() {
    let mut c = single(1);
    let fails = failures(&mut c);
    let runs = |c: &Cluster| {
        let counts = c.nodes[&0].worker.report().counts;
        (counts[0].clone(), c.report(0, key()).last_failure)
    };
    let counts = |handled, failed, dead_lettered, expired, busy| ShardCounts {
        key: key(),
        handled,
        failed,
        dead_lettered,
        expired,
        calls: 0,
        busy: Nanos::from_micros(busy),
    };
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    let late = c.now - Nanos::from_millis(100);
    c.request(0, 2, 0, b"k", late);
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Expired]);
    assert_eq!(runs(&c), (counts(2, 0, 1, 1, 1), None));
    // Three attempts at one request.
    fails.set(true);
    c.request(0, 3, 0, b"k", deadline);
    c.pass(20);
    let code = HandlerError::Code(1).to_string();
    assert_eq!(c.outcomes(3), [Outcome::Failed]);
    assert_eq!(runs(&c), (counts(3, 3, 2, 1, 4), Some(code)));
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_start_failed(key(), "no such import".into());
    c.request(0, 4, 0, b"k", deadline);
    c.pass(20);
    let reason = Some("no such import".to_string());
    assert_eq!(c.outcomes(4), [Outcome::Failed]);
    assert_eq!(runs(&c), (counts(4, 4, 3, 1, 4), reason));
}

/// Gives node 0 the application's next version; how often that starts an instance.
fn next_version(c: &mut Cluster) -> usize {
    c.version += 1;
    c.plan.code_version += 1;
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    let plan = NodePlan {
        version: c.version,
        apps: vec![c.plan.clone()],
        ..(**worker.plan()).clone()
    };
    worker.handle_plan(c.now, Arc::new(plan));
    let outputs = std::iter::from_fn(|| worker.poll_output());
    outputs
        .filter(|o| matches!(o, Output::Start { .. }))
        .count()
}

#[test]
fn a_service_that_did_not_start_starts_again_in_the_next_version() {
    let mut c = single(1);
    assert_eq!(next_version(&mut c), 0, "it runs");
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_start_failed(key(), "no such import".into());
    let error = |c: &Cluster| c.report(0, key()).error;
    assert_eq!(error(&c).as_deref(), Some("no such import"));
    assert_eq!(next_version(&mut c), 1);
    assert_eq!(error(&c), None);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
}

#[test]
fn a_shard_that_is_to_have_backups_refuses_to_serve_alone_if_it_is_told_to() {
    for (replicas, nodes, serves) in [(2, 1, false), (2, 2, true), (1, 1, true)] {
        let fields = format!("replicas: {replicas}\n      whenAlone: refuse");
        let manifest = ONE.replace("replicas: 2", &fields);
        let c = Cluster::new(&manifest, nodes, |_| (0..nodes).collect());
        let serving = c.report(0, key()).serving;
        assert_eq!(serving, serves, "{replicas} replicas on {nodes} nodes");
    }
}

fn is_frozen(c: &Cluster) -> bool {
    let events = c.nodes[&0].worker.events();
    events.iter().any(|e| matches!(e, NodeEvent::Frozen { .. }))
}

#[test]
fn a_frozen_primary_finishes_what_it_began_and_waits_for_every_backup() {
    let mut c = pair(3);
    assert!(!is_frozen(&c), "nobody asked for it");
    let deadline = soon(&c);
    hold(&mut c, 0, true);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(5);
    let plan = c.shard(key());
    plan.view += 1;
    plan.frozen = true;
    c.publish();
    c.request(0, 3, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(running(&c, 0), [(1, 2)], "it takes nothing new");
    assert!(!is_frozen(&c), "a handler runs");
    c.cut.extend([(0, 1), (1, 0), (0, 2), (2, 0)]);
    let plan = c.shard(key());
    plan.view += 1;
    plan.joining = vec![NodeId(2)];
    c.publish();
    hold(&mut c, 0, false);
    c.pass(50);
    assert_eq!(c.outcomes(2), []);
    assert!(!is_frozen(&c), "the backup does not have it");
    c.cut.retain(|(from, to)| from.max(to) == &2);
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert!(is_frozen(&c), "one that joins goes on with the successor");
    assert_eq!(c.outcomes(3), []);
    c.cut.clear();
    c.pass(2_000);
    assert_eq!(c.report(2, key()).op, 2);
}

#[test]
fn the_controller_hears_once_that_a_shard_holds_something() {
    let mut c = single(1);
    assert_eq!(c.nodes[&0].worker.events(), []);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    let filled = NodeEvent::Filled {
        key: key(),
        incarnation: 1,
    };
    assert_eq!(c.nodes[&0].worker.events(), [filled]);
    c.shard(key()).filled = true;
    c.publish();
    assert_eq!(c.nodes[&0].worker.events(), []);
}

#[test]
fn entries_that_wait_for_a_second_without_any_commit_are_reported() {
    let mut c = pair(2);
    let stalled = |c: &Cluster| c.report(0, key()).stalled;
    c.pass(5_000);
    assert_eq!(stalled(&c), Nanos::ZERO, "nothing waits");
    c.cut.insert((1, 0));
    let deadline = soon(&c);
    c.request(0, 2, 0, b"k", deadline);
    while c.report(0, key()).op == 1 {
        c.pass(1);
    }
    c.pass(999);
    assert_eq!(stalled(&c), Nanos::ZERO);
    c.pass(1);
    assert_eq!(stalled(&c), Nanos::from_secs(1));
    c.cut.clear();
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert_eq!(stalled(&c), Nanos::ZERO);
}

#[test]
fn nothing_leaves_a_primary_whose_lease_has_run_out() {
    let mut c = pair(2);
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(5);
    // The backup takes what comes, and grants nothing to a clock so far from its own.
    c.nodes.get_mut(&1).unwrap().ahead = Nanos::from_secs(5);
    c.pass(500);
    hold(&mut c, 0, false);
    c.pass(50);
    let report = c.report(0, key());
    assert!(!report.serving);
    assert_eq!((report.op, report.backups[0].acked), (2, 2));
    assert_eq!(c.outcomes(2), [], "another primary may serve by now");
    c.nodes.get_mut(&1).unwrap().ahead = Nanos::ZERO;
    c.pass(6_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn a_new_primary_waits_for_what_it_promised_to_the_one_before() {
    let mut c = Cluster::new(ONE, 2, |_| vec![1, 0]);
    // The primary does not hear that it was replaced.
    c.promote(key(), 0);
    c.version += 1;
    c.publish_to(0);
    let serving = |c: &Cluster, node| c.report(node, key()).serving;
    assert!(serving(&c, 1));
    for _ in 0..400 {
        assert!(!serving(&c, 0) || !serving(&c, 1), "both serve");
        c.pass(1);
    }
    assert!(serving(&c, 0));
}

/// When two requests are answered that node 0 gets now, in milliseconds.
fn answered_after(slowdown: f64) -> Vec<u64> {
    let mut c = single(1);
    let cluster = c.nodes[&0].worker.plan().cluster;
    c.start(0, 2);
    let config = Config {
        node: NodeId(0),
        incarnation: 2,
        cluster,
        formats: Formats::PROGRAM,
        kind: NodeKind::Host,
        journal_len_min: u64::MAX,
        slowed: true,
        emulated: None,
    };
    c.nodes.get_mut(&0).unwrap().worker = Worker::new(config);
    c.plan.slowdown = vec![BTreeMap::from([(NodeKind::Host, slowdown)])];
    c.publish();
    c.pass(100);
    let deadline = soon(&c);
    for seq in [1, 2] {
        c.request(0, seq, 0, b"k", deadline);
    }
    let mut after = Vec::new();
    for ms in 1..=50 {
        c.pass(1);
        after.resize(c.replies.len(), ms);
    }
    after
}

#[test]
fn an_emulated_core_is_busy_as_many_times_longer_as_it_is_slower() {
    let [first, second] = answered_after(1.0)[..] else {
        panic!("both are answered");
    };
    // A handler takes a microsecond, and here ten milliseconds more.
    let slow = answered_after(10_001.0);
    assert_eq!(slow, [first + 10, second + 20]);
}
