//! Quota and time to live of collections: what a request may write, and when its memory is freed.

use crate::common::{Cluster, shard};
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_collections::{State, Txn};
use e3_invocation::{Effects, Invocation, Reply};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ShardKey};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::rc::Rc;

const QUOTA: u64 = 8 << 10;
const TTL_S: u64 = 2;

fn key() -> ShardKey {
    shard(0, 0)
}

/// A store on nodes 0.., whose keys live for two seconds. The handler answers how many keys live.
fn store(replicas: u16, durability: &str) -> Cluster {
    let manifest = format!(
        "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: store}}
spec:
  objective: {{latency: 50ms}}
  deadline: 60s
  ingress: store
  services:
    - name: store
      module: store.wasm
      stateful: true
      replicas: {replicas}
      durability: {durability}
      resources: {{cpu: 0.1, memory: 64Mi, state: 8Ki}}
      collections: [{{name: keys, kind: ordered-map, ttl: {TTL_S}s}}]
"
    );
    let mut c = Cluster::new(&manifest, replicas.into(), |_| {
        (0..replicas.into()).collect()
    });
    c.handler = Box::new(|_, invocation, state| {
        let mut effects = Effects::default();
        state.advance(invocation.now);
        let mut txn = Txn::new();
        txn.begin(invocation.slot.0);
        handle(&mut txn, invocation, state);
        let mut living = 0u32;
        let count = |_: &[u8], _: &[u8]| {
            living += 1;
            true
        };
        txn.scan(state, 0, b"", b"", false, count).unwrap();
        effects.writes = txn.finish();
        let (slot, max) = (invocation.slot.0, invocation.state_bytes_max);
        state.commit(&mut effects.writes, slot, max, EXPIRED_LEN_MAX)?;
        effects.reply = Some(Reply {
            status: 0,
            payload: living.to_le_bytes().to_vec(),
        });
        Ok(effects)
    });
    c
}

/// `put KEY`, `delete KEY`, or nothing.
fn handle(txn: &mut Txn, invocation: &Invocation, state: &State) {
    if let Some(key) = invocation.key.strip_prefix(b"put ") {
        txn.put(state, 0, key, &[7; 1000]).unwrap();
    }
    if let Some(key) = invocation.key.strip_prefix(b"delete ") {
        txn.delete(state, 0, key).unwrap();
    }
}

/// What comes of a request: its outcome, and the keys that live or the reason.
fn ask(c: &mut Cluster, node: u32, seq: u64, key: &str) -> (Outcome, Result<u32, String>) {
    let deadline = c.now + Nanos::from_secs(30);
    c.request(node, seq, 0, key.as_bytes(), deadline);
    c.pass(40);
    let (.., reply) = c.replies.iter().rfind(|(id, ..)| id.seq == seq).unwrap();
    let shown = match reply.payload.as_slice().try_into() {
        Ok(living) if reply.outcome == Outcome::Done => Ok(u32::from_le_bytes(living)),
        _ => Err(String::from_utf8(reply.payload.clone()).unwrap()),
    };
    (reply.outcome, shown)
}

fn put(c: &mut Cluster, node: u32, seq: u64, request: &str) {
    assert_eq!(ask(c, node, seq, request).0, Outcome::Done, "{request}");
}

fn living(c: &mut Cluster, node: u32, seq: u64) -> u32 {
    ask(c, node, seq, "count").1.unwrap()
}

fn memory(c: &Cluster, node: u32) -> u64 {
    c.report(node, key()).memory_bytes
}

/// Both copies hold the same.
fn assert_equal(c: &Cluster, nodes: [u32; 2]) {
    let digest = |node: u32| {
        let state = c.nodes[&node].worker.state(key()).unwrap();
        state.borrow().digest()
    };
    assert_eq!(digest(nodes[0]), digest(nodes[1]));
}

#[test]
fn a_write_beyond_the_quota_fails_and_names_it_and_frees_go_through() {
    let mut c = store(2, "memory");
    let mut seq = 0;
    let refused = loop {
        seq += 1;
        match ask(&mut c, 0, seq, &format!("put {seq}")) {
            (Outcome::Done, _) => assert!(seq < 10),
            (outcome, reason) => break (outcome, reason.unwrap_err()),
        }
    };
    let used = memory(&c, 0);
    assert!(used <= QUOTA);
    let reason = format!(
        "service \"store\": its collections in shard 0 hold {used} bytes and the request adds 1170, which exceeds the quota of 8Ki (resources.state)"
    );
    assert_eq!(refused, (Outcome::Failed, reason));
    assert_eq!(ask(&mut c, 0, 20, "put 1").0, Outcome::Done, "an overwrite");
    assert_eq!(ask(&mut c, 0, 21, "put x").0, Outcome::Failed);
    assert_eq!(ask(&mut c, 0, 22, "delete 1").0, Outcome::Done);
    assert_eq!(ask(&mut c, 0, 23, "put x").0, Outcome::Done);
    assert_eq!(c.outcomes(21), [Outcome::Failed], "answered once");
    assert_equal(&c, [0, 1]);
}

#[test]
fn a_key_is_absent_at_once_and_its_memory_is_freed_everywhere() {
    let mut c = store(2, "memory");
    put(&mut c, 0, 1, "put a");
    c.pass(1_000);
    assert_eq!(ask(&mut c, 0, 2, "put b").1, Ok(2));
    c.pass(TTL_S * 1_000 - 1_000 - 85);
    assert_eq!(living(&mut c, 0, 3), 2);
    assert_eq!(living(&mut c, 0, 4), 1, "only b");
    // No request comes: the primary frees the memory by itself.
    c.pass(1_500);
    assert_eq!((memory(&c, 0), memory(&c, 1)), (0, 0));
    assert_equal(&c, [0, 1]);
    // Then it is at rest.
    let op = c.report(0, key()).op;
    c.pass(5_000);
    assert_eq!(c.report(0, key()).op, op);
    let counts = c.nodes[&0].worker.report().counts;
    assert_eq!(counts[0].handled, 4, "removals are no requests");
}

#[test]
fn an_overwrite_resets_the_time() {
    let mut c = store(1, "memory");
    put(&mut c, 0, 1, "put a");
    c.pass(1_500);
    put(&mut c, 0, 2, "put a");
    c.pass(1_500);
    assert_eq!(living(&mut c, 0, 3), 1);
    c.pass(1_500);
    assert_eq!(living(&mut c, 0, 4), 0);
}

#[test]
fn a_backup_that_takes_over_keeps_the_times() {
    let mut c = store(2, "memory");
    put(&mut c, 0, 1, "put a");
    c.pass(1_000);
    c.kill(0);
    c.promote(key(), 1);
    c.publish();
    c.pass(400);
    assert_eq!(ask(&mut c, 1, 2, "put b").1, Ok(2));
    c.pass(600);
    assert_eq!(living(&mut c, 1, 3), 1, "a has expired");
    c.pass(3_000);
    assert_eq!(memory(&c, 1), 0);
}

#[test]
fn what_expired_while_nobody_served_is_freed_by_the_next_primary() {
    let mut c = store(2, "memory");
    put(&mut c, 0, 1, "put a");
    c.kill(0);
    c.pass(10_000);
    assert!(memory(&c, 1) > 0, "a backup removes nothing by itself");
    c.promote(key(), 1);
    c.publish();
    c.pass(1_000);
    assert_eq!(memory(&c, 1), 0);
}

#[test]
fn a_snapshot_keeps_the_times() {
    let mut c = store(2, "memory");
    c.kill(1);
    c.shard(key()).backups.clear();
    c.shard(key()).view += 1;
    c.publish();
    c.pass(400);
    put(&mut c, 0, 1, "put a");
    c.pass(500);
    put(&mut c, 0, 2, "put b");
    c.start(1, 2);
    c.shard(key()).joining.push(e3_model::NodeId(1));
    c.publish();
    c.pass(400);
    assert_equal(&c, [0, 1]);
    c.shard(key()).joining.clear();
    c.shard(key()).backups.push(e3_model::NodeId(1));
    c.shard(key()).view += 1;
    c.publish();
    c.pass(100);
    c.kill(0);
    c.promote(key(), 1);
    c.publish();
    c.pass(600);
    assert_eq!(living(&mut c, 1, 3), 2);
    c.pass(400);
    assert_eq!(living(&mut c, 1, 4), 1);
    c.pass(1_000);
    assert_eq!(memory(&c, 1), 0);
}

#[test]
fn a_disk_keeps_the_times() {
    let mut c = store(1, "disk");
    put(&mut c, 0, 1, "put a");
    c.pass(900);
    put(&mut c, 0, 2, "put b");
    c.restart(0);
    c.promote(key(), 0);
    c.publish();
    c.pass(600);
    assert_eq!(living(&mut c, 0, 3), 2);
    c.pass(500);
    assert_eq!(living(&mut c, 0, 4), 1);
    // The removals are on disk too.
    c.pass(3_000);
    assert_eq!(memory(&c, 0), 0);
    c.restart(0);
    c.promote(key(), 0);
    c.publish();
    c.pass(600);
    assert_eq!(memory(&c, 0), 0);
}

#[test]
fn a_request_gets_the_room_that_expired_keys_still_hold() {
    let mut c = store(1, "memory");
    let deadline = c.now + Nanos::from_secs(30);
    for seq in 1..=6 {
        c.request(0, seq, 0, format!("put {seq}").as_bytes(), deadline);
    }
    // All have just expired; nothing has removed them yet.
    c.pass(TTL_S * 1_000 + 20);
    let held = memory(&c, 0);
    assert!(held > QUOTA / 2 && held + held > QUOTA);
    for seq in 11..=16 {
        c.request(0, seq, 0, format!("put {seq}").as_bytes(), deadline);
    }
    c.pass(20);
    for seq in 11..=16 {
        assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
    }
}

#[test]
fn a_timer_that_waits_for_room_fires_once() {
    let mut c = store(1, "memory");
    let (deadline, due) = (
        c.now + Nanos::from_secs(30),
        c.now + Nanos::from_millis(TTL_S * 1_000 + 20),
    );
    let mut serve = std::mem::replace(&mut c.handler, Box::new(|_, _, _| Ok(Effects::default())));
    let runs = Rc::new(RefCell::new((0, 0)));
    let noted = runs.clone();
    c.handler = Box::new(move |service, invocation, state| {
        if invocation.timer.is_some() {
            noted.borrow_mut().0 += 1;
            let put = Invocation {
                key: b"put late".to_vec(),
                ..invocation.clone()
            };
            let effects = serve(service, &put, state)?;
            noted.borrow_mut().1 += 1;
            return Ok(effects);
        }
        let mut effects = serve(service, invocation, state)?;
        if invocation.key == b"set" {
            effects.timers.push(TimerChange {
                name: "t".into(),
                key: invocation.key.clone(),
                set: Some(TimerSet {
                    when: When::At(due),
                    payload: Vec::new(),
                }),
            });
        }
        Ok(effects)
    });
    c.request(0, 1, 0, b"set", deadline);
    for seq in 2..=7 {
        c.request(0, seq, 0, format!("put {seq}").as_bytes(), deadline);
    }
    c.pass(TTL_S * 1_000 + 500);
    assert_eq!(*runs.borrow(), (2, 1), "it finds no room, and then some");
    assert_eq!(c.report(0, key()).dead_letters, 0);
}
