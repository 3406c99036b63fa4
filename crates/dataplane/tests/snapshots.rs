//! Replicas that join while the primary serves: snapshots in parts, under writes, faults and with
//! joiners that are slow or gone.

use crate::common::{Cluster, key_of, shard};
use e3_collections::{State, Txn};
use e3_dataplane::limits::{
    JOIN_AHEAD_LEN, JOIN_ITEMS_MAX, JOIN_LEN_MAX, PIECE_LEN, TURN_PIECES_MAX,
};
use e3_invocation::{Effects, Reply};
use e3_model::plan::NodeEvent;
use e3_model::{Nanos, NodeId, ShardKey};
use e3_wire::entry::Outcome;
use std::cell::Cell;
use std::rc::Rc;

const APP: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: store}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  ingress: store
  services:
    - name: store
      module: s.wasm
      stateful: true
      replicas: 3
      resources: {cpu: 0.1, memory: 512Mi}
      collections:
        - {name: count, kind: counter}
        - {name: map, kind: hash-map}
        - {name: sorted, kind: ordered-map}
        - {name: list, kind: array}
";
const VALUE_LEN: usize = 1000;

fn key() -> ShardKey {
    shard(0, 0)
}

/// What a request writes: its count, and values at keys that other requests share.
fn write(n: u64, client: u64, seq: u64, slot: u16, len: usize, state: &mut State) -> Effects {
    let mut txn = Txn::new();
    txn.begin(slot);
    let id = [client.to_le_bytes(), seq.to_le_bytes()].concat();
    txn.counter_add(state, 0, &id, 1).unwrap();
    let shared = (n * 7919 % 40_000).to_be_bytes();
    let value = vec![n as u8; len];
    txn.put(state, 1, &shared, &value).unwrap();
    txn.put(state, 2, &shared, &value).unwrap();
    let list = [n as u8 % 3];
    txn.array_push(state, 3, &list, &shared).unwrap();
    if n.is_multiple_of(2) {
        txn.array_pop_front(state, 3, &list).unwrap();
        let gone = (n * 104_729 % 40_000).to_be_bytes();
        txn.delete(state, 1, &gone).unwrap();
        txn.delete(state, 2, &gone).unwrap();
    }
    let writes = txn.finish();
    state.apply(&writes).unwrap();
    let reply = Some(Reply {
        status: 0,
        payload: b"ok".to_vec(),
    });
    Effects {
        timers: Vec::new(),
        writes,
        outputs: Vec::new(),
        reply,
    }
}

struct Run {
    c: Cluster,
    sent: u64,
    /// Bytes of what requests write, about.
    value_len: Rc<Cell<usize>>,
}

impl Run {
    /// So many nodes; the first ones are primary and backups of a shard with so many large values.
    fn new(nodes: u32, members: u32, values: u32) -> Run {
        let mut c = Cluster::new(APP, nodes, |_| (0..members).collect());
        let value_len = Rc::new(Cell::new(VALUE_LEN));
        let mut n = 0;
        let about = value_len.clone();
        c.handler = Box::new(move |_, invocation, state| {
            n += 1;
            let id = invocation.id.request;
            let len = about.get() + (n as usize % 50);
            Ok(write(n, id.client, id.seq, invocation.slot.0, len, state))
        });
        // As if it had been written long ago.
        for node in 0..members {
            let state = c.nodes[&node].worker.state(key()).unwrap();
            let mut txn = Txn::new();
            for n in 0..values {
                txn.begin(0);
                let (at, value) = (n.to_be_bytes(), [n as u8; VALUE_LEN]);
                let mut state = state.borrow_mut();
                txn.put(&state, 1 + n as u16 % 2, &at, &value).unwrap();
                txn.array_push(&state, 3, &[n as u8 % 3], &at).unwrap();
                let batch = txn.finish();
                state.apply(&batch).unwrap();
            }
        }
        Run {
            c,
            sent: 0,
            value_len,
        }
    }

    /// Lets time pass, with so many requests each millisecond.
    fn load(&mut self, to: u32, ms: u64, each: u64) {
        for _ in 0..ms {
            for _ in 0..each {
                self.sent += 1;
                let deadline = self.c.now + Nanos::from_secs(10);
                self.c.request(to, self.sent, 0, &key_of(0, 1), deadline);
            }
            self.c.pass(1);
        }
    }

    fn join(&mut self, node: u32) {
        let shard = self.c.shard(key());
        shard.view += 1;
        shard.joining.push(NodeId(node));
        self.c.publish();
    }

    fn is_synced(&self, primary: u32, node: u32) -> bool {
        let events = self.c.nodes[&primary].worker.events();
        let synced =
            |e: &NodeEvent| matches!(e, NodeEvent::Synced { backup, .. } if backup.0 == node);
        events.iter().any(synced)
    }

    /// Runs until the joiner has everything; makes it a backup.
    fn until_synced(&mut self, primary: u32, node: u32, each: u64) {
        let begin = self.c.now;
        while !self.is_synced(primary, node) {
            self.load(primary, 1, each);
            let for_ms = begin.until(self.c.now).as_millis();
            assert!(for_ms < 20_000, "{:?}", self.c.report(primary, key()));
        }
        let shard = self.c.shard(key());
        shard.view += 1;
        shard.joining.retain(|n| n.0 != node);
        shard.backups.push(NodeId(node));
        self.c.publish();
    }

    fn digest(&self, node: u32) -> u64 {
        let state = self.c.nodes[&node].worker.state(key()).unwrap();
        let state: Rc<_> = state;
        state.borrow().digest()
    }

    /// Every request was answered once it is quiet, and all have the same.
    fn check(&mut self, replicas: &[u32]) {
        self.c.pass(1_500);
        for seq in 1..=self.sent {
            let outcomes = self.c.outcomes(seq);
            assert!(!outcomes.is_empty(), "{seq} has no answer");
            let done = outcomes.contains(&Outcome::Done);
            assert!(done || outcomes == [Outcome::Overloaded], "{outcomes:?}");
            for node in replicas {
                let count = self.c.count(*node, key(), 1, seq);
                assert_eq!(count, i64::from(done), "{seq} on {node}");
            }
        }
        for node in replicas {
            assert_eq!(self.digest(*node), self.digest(replicas[0]), "{node}");
        }
    }
}

#[test]
fn a_replica_joins_under_writes_and_takes_over() {
    let mut r = Run::new(2, 1, 20_000);
    r.load(0, 100, 3);
    r.c.most_sent = 0;
    r.join(1);
    r.load(0, 20, 3);
    assert!(!r.is_synced(0, 1), "the state is large");
    // The bound of one turn, not of the whole state.
    let entries_len = 64 << 10;
    let turn_max = JOIN_AHEAD_LEN + TURN_PIECES_MAX / 2 * PIECE_LEN + entries_len;
    assert!(r.c.most_sent < turn_max, "{} bytes", r.c.most_sent);
    r.until_synced(0, 1, 3);
    assert!(r.c.most_sent < turn_max, "{} bytes", r.c.most_sent);
    r.load(0, 50, 3);
    r.check(&[0, 1]);
    r.c.kill(0);
    r.c.promote(key(), 1);
    r.c.publish();
    r.c.pass(2_000);
    r.load(1, 50, 3);
    r.check(&[1]);
}

#[test]
fn a_joiner_that_restarts_is_sent_everything_again() {
    let mut r = Run::new(2, 1, 5_000);
    r.join(1);
    for incarnation in 2..4 {
        r.load(0, 15, 3);
        assert!(!r.is_synced(0, 1));
        r.c.start(1, incarnation);
        r.c.publish();
    }
    r.until_synced(0, 1, 3);
    r.check(&[0, 1]);
}

#[test]
fn another_primary_goes_on_with_a_joiner() {
    let mut r = Run::new(3, 2, 5_000);
    r.join(2);
    r.load(0, 15, 3);
    assert!(!r.is_synced(0, 2));
    r.c.pass(20);
    r.c.kill(0);
    r.c.promote(key(), 1);
    r.c.publish();
    r.c.pass(2_000);
    r.until_synced(1, 2, 3);
    r.check(&[1, 2]);
}

#[test]
fn a_silent_joiner_holds_nobody_up_and_is_sent_everything_in_the_end() {
    let mut r = Run::new(2, 1, 2_000);
    r.join(1);
    r.load(0, 3, 3);
    r.c.cut.insert((1, 0));
    for _ in 0..20 {
        let before = r.sent;
        r.load(0, 10, 20);
        r.c.pass(JOIN_WAIT_MS);
        for seq in before + 1..=r.sent {
            assert!(!r.c.outcomes(seq).is_empty(), "{seq} waits");
        }
        let report = r.c.nodes[&0].worker.report();
        let waiting = report.stats.channels.iter().map(|ch| ch.waiting).max();
        assert!(waiting.is_some_and(|w| (w as usize) < JOIN_ITEMS_MAX + 100));
    }
    assert!(r.sent * 2 * VALUE_LEN as u64 > JOIN_LEN_MAX as u64);
    r.c.cut.clear();
    r.until_synced(0, 1, 3);
    r.check(&[0, 1]);
}

/// A few milliseconds.
const JOIN_WAIT_MS: u64 = 8;

#[test]
fn a_joiner_that_takes_less_than_is_written_slows_the_writes_and_joins() {
    let mut r = Run::new(2, 1, 2_000);
    r.c.narrow = Some((1, 24 << 10));
    r.join(1);
    // About 80 KB of entries each millisecond are asked for.
    r.value_len.set(10_000);
    r.until_synced(0, 1, 4);
    assert!(r.sent * 20_000 > 2 * JOIN_LEN_MAX as u64, "{}", r.sent);
    r.c.narrow = None;
    r.c.pass(5_000);
    r.check(&[0, 1]);
}

/// Loses the primary of three replicas; what the next one sent to the other backup meanwhile.
fn lose_primary(r: &mut Run) -> usize {
    r.c.kill(0);
    r.c.promote(key(), 1);
    let before = r.c.sent_to(2);
    r.c.publish();
    r.c.pass(2_000);
    for seq in 1..=r.sent {
        if r.c.outcomes(seq).is_empty() {
            let deadline = r.c.now + Nanos::from_secs(10);
            r.c.request(1, seq, 1, &key_of(0, 1), deadline);
        }
    }
    r.load(1, 20, 3);
    r.check(&[1, 2]);
    r.c.sent_to(2) - before
}

#[test]
fn a_backup_that_has_the_log_needs_no_snapshot_of_the_next_primary() {
    let mut r = Run::new(3, 3, 2_000);
    r.load(0, 50, 3);
    // The next primary has more than the other backup.
    r.c.cut.insert((0, 2));
    r.load(0, 5, 3);
    let sent = lose_primary(&mut r);
    assert!(sent < 2_000 * VALUE_LEN / 2, "{sent} bytes");
}

#[test]
fn a_backup_that_has_more_than_the_next_primary_is_sent_a_snapshot() {
    let mut r = Run::new(3, 3, 2_000);
    r.load(0, 50, 3);
    r.c.cut.insert((0, 1));
    r.load(0, 5, 3);
    let sent = lose_primary(&mut r);
    assert!(sent > 2_000 * VALUE_LEN, "{sent} bytes");
}
