//! Snapshots of a log that holds much beside its collections: outputs that are not durable, handled
//! messages, dead letters.

use crate::common::{Cluster, count_and_forward, shard};
use e3_dataplane::limits::{JOIN_AHEAD_LEN, PIECE_ENTRIES_MAX, PIECE_LEN};
use e3_invocation::HandlerError;
use e3_model::plan::NodeEvent;
use e3_model::{DropReason, Nanos, NodeId, RequestId, ShardKey};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;

/// The service whose snapshots are looked at sends what it gets to another one.
const PAIR: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: pair}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  attempts: 1
  admittedMax: 20000
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
const FRONT: u32 = 0;
const JOINER: u32 = 1;
const BACK: u32 = 2;
/// Longer than a piece.
const LONG: usize = 20_000;
const FAIL: &[u8] = b"fail";

fn front() -> ShardKey {
    shard(0, 0)
}

fn back() -> ShardKey {
    shard(1, 0)
}

/// The back end does nothing for now, so that the front end keeps all outputs.
fn pair() -> Cluster {
    let mut c = Cluster::new(PAIR, 3, |key| match key.service.0 {
        0 => vec![FRONT],
        _ => vec![BACK],
    });
    c.handler = Box::new(|service, invocation, state| {
        if service.0 == 0 && invocation.key == FAIL {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(1 - service.0, invocation, state)
    });
    c.nodes.get_mut(&BACK).unwrap().held = true;
    c
}

fn request(c: &Cluster, client: u64, seq: u64, attempt: u16, key: &[u8], len: usize) -> Request {
    Request {
        id: RequestId { client, seq },
        payload: vec![7; len],
        ..c.request_of(seq, attempt, key, c.now + Nanos::from_secs(20))
    }
}

/// So many long requests of client 2, from number 1 on, of which each third one fails if it is asked
/// to.
fn load(c: &mut Cluster, count: u64, third_fails: bool) {
    for seq in 1..=count {
        let fails = third_fails && seq % 3 == 0;
        let key = if fails { FAIL } else { b"k" };
        let request = request(c, 2, seq, 0, key, LONG);
        c.send_request(FRONT, request);
        c.pass(1);
    }
    c.pass(100);
    assert_eq!(c.report(FRONT, front()).op, count);
}

fn join(c: &mut Cluster) {
    let plan = c.shard(front());
    plan.view += 1;
    plan.joining = vec![NodeId(JOINER)];
    c.publish();
}

fn until_synced(c: &mut Cluster) {
    let is_synced = |c: &Cluster| {
        let events = c.nodes[&FRONT].worker.events();
        events.iter().any(|e| matches!(e, NodeEvent::Synced { .. }))
    };
    let begin = c.now;
    while !is_synced(c) {
        c.pass(1);
        let report = c.report(FRONT, front());
        assert!(begin.until(c.now) < Nanos::from_secs(5), "{report:?}");
    }
}

/// The joiner replaces the primary.
fn take_over(c: &mut Cluster) {
    let report = c.nodes[&JOINER].worker.report();
    let dropped = report.stats.dropped.get(&DropReason::Replication);
    assert_eq!(dropped, None, "the first snapshot did not do");
    c.kill(FRONT);
    c.promote(front(), JOINER);
    c.shard(front()).joining.clear();
    c.publish();
    c.pass(1_000);
}

/// A request that was handled is known to be, and its output arrives once.
fn is_done_once(c: &mut Cluster, client: u64, seq: u64) {
    let again = request(c, client, seq, 1, b"k", LONG);
    c.send_request(JOINER, again);
    c.pass(20);
    let count = (
        c.count(JOINER, front(), client, seq),
        c.count(BACK, back(), client, seq),
    );
    assert_eq!(count, (1, 1), "request {seq} of client {client}");
}

#[test]
fn a_joiner_takes_over_all_of_a_log_and_no_turn_sends_much_of_it() {
    let mut c = pair();
    load(&mut c, 90, true);
    c.most_sent = 0;
    join(&mut c);
    until_synced(&mut c);
    let turn_max = JOIN_AHEAD_LEN + 4 * PIECE_LEN;
    assert!(c.most_sent < turn_max, "{} bytes", c.most_sent);
    assert_eq!(c.report(JOINER, front()).op, 90);
    take_over(&mut c);
    let letters = c.read_letters(JOINER, front());
    assert_eq!(letters.total, 30);
    let (first, letter) = &letters.letters[0];
    assert_eq!(first.request.seq, 3);
    assert_eq!((&letter.key[..], letter.payload.len()), (FAIL, LONG));
    c.nodes.get_mut(&BACK).unwrap().held = false;
    c.pass(100);
    for seq in [1, 2, 4, 88, 89] {
        is_done_once(&mut c, 2, seq);
    }
}

#[test]
fn a_joiner_knows_old_messages_that_come_behind_many_new_ones() {
    let mut c = pair();
    load(&mut c, 200, false);
    // Before much of the snapshot is on its way, another client sends more than a part looks at.
    c.cut.extend([(FRONT, JOINER), (JOINER, FRONT)]);
    join(&mut c);
    let new = PIECE_ENTRIES_MAX as u64 + 200;
    for seq in 1..=new {
        let request = request(&c, 1, seq, 0, b"k", 0);
        c.send_request(FRONT, request);
        if seq % 100 == 0 {
            c.pass(1);
        }
    }
    c.pass(100);
    assert_eq!(c.report(FRONT, front()).op, 200 + new);
    c.cut.clear();
    until_synced(&mut c);
    take_over(&mut c);
    c.nodes.get_mut(&BACK).unwrap().held = false;
    c.pass(2_000);
    for (client, seq) in [(2, 1), (2, 100), (2, 200), (1, 1), (1, new)] {
        is_done_once(&mut c, client, seq);
    }
}

#[test]
fn outputs_become_durable_while_the_snapshot_that_holds_them_is_on_its_way() {
    let mut c = pair();
    load(&mut c, 100, false);
    c.narrow = Some((JOINER, LONG));
    join(&mut c);
    c.pass(20);
    c.nodes.get_mut(&BACK).unwrap().held = false;
    c.pass(60);
    assert_eq!(c.count(BACK, back(), 2, 100), 1);
    assert_eq!(c.report(JOINER, front()).op, 0, "it is still on its way");
    until_synced(&mut c);
    take_over(&mut c);
    for seq in [1, 50, 100] {
        is_done_once(&mut c, 2, seq);
    }
    let letters = c.read_letters(JOINER, front());
    assert_eq!(letters.total, 0);
    assert_eq!(c.outcomes(1)[0], Outcome::Done);
}
