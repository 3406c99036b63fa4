//! Calls: a handler asks another service and waits. What it hears was written and committed before, and
//! comes from the one primary, whatever is lost, killed or cut off meanwhile.

use crate::common::calls::call;
use crate::common::manifests::{SHOP, STATELESS};
use crate::common::{Cluster, key_of, shard};
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_collections::{State, Txn};
use e3_invocation::{CallAnswer, CallError, Effects, HandlerError, Invocation, Output, Reply};
use e3_model::backup::BackupOrder;
use e3_model::plan::NodeEvent;
use e3_model::{DropReason, Nanos, NodeId, RequestId, ServiceId, ShardKey};
use e3_wire::entry::Outcome;

/// Requests from this number on make the shop call the stock; earlier ones pass through it.
const ASKS: u64 = 1_000;
const STOCK: ServiceId = ServiceId(1);

fn reply(payload: Vec<u8>) -> Option<Reply> {
    Some(Reply { status: 0, payload })
}

/// Counts a message of the stock; the count goes to the client.
fn count(invocation: &Invocation, state: &mut State) -> Result<Effects, HandlerError> {
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    state.advance(invocation.now);
    let before = txn.counter_add(state, 0, b"total", 1).expect("a counter");
    let mut writes = txn.finish();
    state.commit(&mut writes, invocation.slot.0, u64::MAX, EXPIRED_LEN_MAX)?;
    Ok(Effects {
        writes,
        reply: reply((before + 1).to_le_bytes().to_vec()),
        ..Effects::default()
    })
}

/// The shop's replicas are on nodes 0 and 3, the stock's on nodes 1 and 2.
fn shop() -> Cluster {
    let mut c = Cluster::new(SHOP, 4, |key| match key.service {
        STOCK => vec![1, 2],
        _ => vec![0, 3],
    });
    behave(&mut c);
    c
}

fn behave(c: &mut Cluster) {
    c.handler = Box::new(|service, invocation, state| {
        let asks = invocation.id.request.seq >= ASKS;
        match service {
            STOCK if invocation.is_call && invocation.payload == b"fail" => {
                Err(HandlerError::CallEffect("a write"))
            }
            STOCK if invocation.is_call => Ok(Effects {
                reply: reply(state.counter_get(0, b"total").to_le_bytes().to_vec()),
                ..Effects::default()
            }),
            STOCK => count(invocation, state),
            _ if asks => Ok(Effects {
                reply: reply(b"asked".to_vec()),
                ..Effects::default()
            }),
            _ => Ok(Effects {
                outputs: vec![Output {
                    channel: 0,
                    key: invocation.key.clone(),
                    payload: Vec::new(),
                }],
                ..Effects::default()
            }),
        }
    });
    c.caller = Box::new(|service, invocation| {
        let asks = service != STOCK && invocation.id.request.seq >= ASKS;
        asks.then(|| call(invocation, "stock", b""))
    });
}

fn send(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(20);
    c.request(0, seq, 0, b"k", deadline);
}

/// What the call of a request brought, if anything yet.
fn heard(c: &Cluster, seq: u64) -> Option<CallAnswer> {
    let request = RequestId { client: 1, seq };
    c.called.borrow().get(&request).cloned()
}

#[track_caller]
fn heard_count(c: &Cluster, seq: u64) -> Option<i64> {
    heard(c, seq).map(|answer| {
        let payload = answer.expect("a reply").payload;
        i64::from_le_bytes(payload.try_into().unwrap())
    })
}

/// Calls that a node has handled.
fn calls(c: &Cluster, node: u32) -> u64 {
    let counts = c.nodes[&node].worker.report().counts;
    counts.iter().map(|counts| counts.calls).sum()
}

fn dropped(c: &Cluster, node: u32, reason: DropReason) -> u64 {
    let stats = c.nodes[&node].worker.report().stats;
    stats.dropped.get(&reason).copied().unwrap_or(0)
}

#[test]
fn a_call_reads_what_was_answered_before_it() {
    let mut c = shop();
    for seq in 1..=5 {
        send(&mut c, seq);
    }
    c.pass(100);
    assert_eq!((1..=5).flat_map(|seq| c.outcomes(seq)).count(), 5);
    send(&mut c, ASKS);
    c.pass(50);
    assert_eq!(heard_count(&c, ASKS), Some(5));
    assert_eq!(c.outcomes(ASKS), [Outcome::Done]);
    assert_eq!(calls(&c, 1), 1);
    // It is none of the messages, and nothing of it is logged.
    let report = c.report(1, shard(1, 0));
    assert_eq!((report.op, report.commit), (5, 5));
    c.pass(300);
    let kept = c.nodes.values().map(|n| n.worker.kept().open);
    assert_eq!(kept.sum::<usize>(), 0);
}

#[test]
fn a_call_on_the_same_node_and_of_a_stateless_service_is_answered() {
    let mut c = Cluster::new(SHOP, 2, |_| vec![0, 1]);
    behave(&mut c);
    send(&mut c, ASKS);
    c.pass(20);
    assert_eq!(heard_count(&c, ASKS), Some(0));

    let asked = "    - {name: stock, module: s.wasm, resources: {cpu: 0.1, memory: 64Mi}}\n";
    let manifest = STATELESS.replace("module: s.wasm\n", "module: s.wasm\n      calls: [stock]\n");
    let mut c = Cluster::new(&(manifest + asked), 2, |key| vec![key.service.0.into()]);
    behave(&mut c);
    c.handler = Box::new(|_, invocation, _| {
        Ok(Effects {
            reply: reply(invocation.now.0.to_le_bytes().to_vec()),
            ..Effects::default()
        })
    });
    let sent = c.now;
    send(&mut c, ASKS);
    c.pass(20);
    let clock = heard_count(&c, ASKS).map(|now| now as u64);
    assert_eq!(clock, Some(sent.0), "the clock of the caller");
}

#[test]
fn what_is_lost_is_asked_again() {
    let mut c = shop();
    c.loss_permille = 300;
    for seq in ASKS..ASKS + 20 {
        for _ in 0..8 {
            send(&mut c, seq);
        }
    }
    c.pass(4_000);
    for seq in ASKS..ASKS + 20 {
        assert_eq!(heard_count(&c, seq), Some(0), "{seq}");
    }
}

#[test]
fn a_successor_answers_what_its_predecessor_did_not() {
    let mut c = shop();
    send(&mut c, 1);
    c.pass(100);
    c.nodes.get_mut(&1).unwrap().held = true;
    send(&mut c, ASKS);
    c.pass(100);
    assert_eq!((heard(&c, ASKS), c.outcomes(1).len()), (None, 1));
    c.kill(1);
    c.promote(shard(1, 0), 2);
    c.publish();
    c.pass(600);
    assert_eq!(heard_count(&c, ASKS), Some(1));
    assert_eq!(c.outcomes(ASKS), [Outcome::Done]);
}

#[test]
fn a_call_outlives_neither_its_handler_nor_the_view_of_its_caller() {
    let mut c = shop();
    c.nodes.get_mut(&1).unwrap().held = true;
    send(&mut c, ASKS);
    c.pass(50);
    assert_eq!(c.nodes[&0].calling.waiting(), 1);
    // The other replica of the shop takes over and handles the request again.
    c.promote(shard(0, 0), 3);
    c.publish();
    c.nodes.get_mut(&1).unwrap().held = false;
    c.pass(800);
    assert_eq!(c.outcomes(ASKS), [Outcome::Done]);
    assert_eq!(c.nodes[&0].calling.waiting(), 0);
    let kept = c.nodes.values().map(|n| n.worker.kept().open);
    assert_eq!(kept.sum::<usize>(), 0);
}

#[test]
fn a_primary_without_its_leases_does_not_answer() {
    let mut c = shop();
    // The stock's primary hears the shop, and not its backup.
    for node in [2, 3] {
        c.cut.insert((1, node));
        c.cut.insert((node, 1));
    }
    c.pass(500);
    send(&mut c, ASKS);
    c.pass(500);
    assert_eq!((heard(&c, ASKS), calls(&c, 1)), (None, 0));
    // The successor counts a request; the call, which has waited all the time, hears of it.
    c.promote(shard(1, 0), 2);
    c.version += 1;
    for node in [2, 3] {
        c.publish_to(node);
    }
    c.pass(500);
    let request = c.request_of(1, 0, b"k", c.now + Nanos::from_secs(20));
    c.publish_to(0);
    c.send_request(0, request);
    c.pass(600);
    assert!(heard(&c, ASKS).is_some());
    assert_eq!(calls(&c, 1), 0, "nobody told it that it was replaced");
    send(&mut c, ASKS + 1);
    c.pass(100);
    assert_eq!(heard_count(&c, ASKS + 1), Some(1));
}

#[test]
fn an_answer_leaves_when_what_it_read_is_committed() {
    let mut c = shop();
    // Entries of the stock do not reach its backup; its lease holds for a while.
    c.cut.insert((1, 2));
    send(&mut c, 1);
    c.pass(20);
    send(&mut c, ASKS);
    c.pass(40);
    let report = c.report(1, shard(1, 0));
    assert_eq!((report.op, report.commit, report.serving), (1, 0, true));
    assert_eq!(calls(&c, 1), 1, "the handler has run");
    assert_eq!(heard(&c, ASKS), None, "and read what may yet be lost");
    c.cut.clear();
    c.pass(400);
    assert_eq!(heard_count(&c, ASKS), Some(1));
}

#[test]
fn a_primary_that_is_frozen_answers_nothing_and_waits_for_no_call() {
    let mut c = shop();
    c.shard(shard(1, 0)).frozen = true;
    c.publish();
    send(&mut c, ASKS);
    c.pass(200);
    assert_eq!(heard(&c, ASKS), None);
    c.shard(shard(1, 0)).frozen = false;
    c.publish();
    c.pass(50);
    assert_eq!(heard_count(&c, ASKS), Some(0));
}

#[test]
fn a_call_without_an_answer_ends_after_five_seconds_or_at_the_deadline() {
    let mut c = shop();
    c.nodes.get_mut(&1).unwrap().held = true;
    send(&mut c, ASKS);
    c.request(0, ASKS + 1, 0, b"k", c.now + Nanos::from_secs(2));
    c.pass(1_900);
    assert_eq!((heard(&c, ASKS), heard(&c, ASKS + 1)), (None, None));
    c.pass(200);
    assert_eq!(heard(&c, ASKS + 1), Some(Err(CallError::TimedOut)));
    c.pass(2_700);
    assert_eq!(heard(&c, ASKS), None);
    c.pass(300);
    assert_eq!(heard(&c, ASKS), Some(Err(CallError::TimedOut)));
    // The repeats were known, and what comes now is late.
    c.nodes.get_mut(&1).unwrap().held = false;
    c.pass(100);
    assert_eq!(calls(&c, 1), 2);
    assert_eq!(c.outcomes(ASKS), [Outcome::Done]);
}

#[test]
fn a_shard_whose_node_is_gone_is_unavailable() {
    let mut c = shop();
    c.kill(1);
    c.publish();
    send(&mut c, ASKS);
    c.pass(5_500);
    assert_eq!(heard(&c, ASKS), Some(Err(CallError::Unavailable)));
}

#[test]
fn a_called_handler_that_fails_is_not_repeated_and_its_reason_is_told() {
    let mut c = shop();
    c.caller = Box::new(|service, invocation| {
        (service != STOCK).then(|| call(invocation, "stock", b"fail"))
    });
    send(&mut c, ASKS);
    c.pass(100);
    let reason = HandlerError::CallEffect("a write").to_string();
    assert_eq!(heard(&c, ASKS), Some(Err(CallError::Failed(reason))));
    assert_eq!(calls(&c, 1), 1);
    assert_eq!(c.report(1, shard(1, 0)).dead_letters, 0);
}

#[test]
fn many_callers_are_bounded_and_all_are_answered_in_the_end() {
    const SHARDS: u16 = 64;
    let manifest = SHOP.replace("calls:", &format!("shards: {SHARDS}\n      calls:"));
    let mut c = Cluster::new(&manifest, 4, |key| match key.service {
        STOCK => vec![1, 2],
        _ => vec![0, 3],
    });
    behave(&mut c);
    c.nodes.get_mut(&1).unwrap().held = true;
    let mut seq = ASKS;
    for at in 0..SHARDS {
        let key = key_of(at, SHARDS);
        for _ in 0..32 {
            c.request(0, seq, 0, &key, c.now + Nanos::from_secs(20));
            seq += 1;
        }
    }
    c.pass(300);
    assert_eq!(c.nodes[&0].calling.waiting(), 32 * usize::from(SHARDS));
    assert!(dropped(&c, 1, DropReason::Call) > 0);
    assert_eq!(c.nodes[&1].worker.queue_len(), 1_024);
    c.nodes.get_mut(&1).unwrap().held = false;
    c.pass(2_000);
    for seq in ASKS..seq {
        assert_eq!(heard_count(&c, seq), Some(0), "{seq}");
    }
}

#[test]
fn calls_and_messages_take_turns() {
    const SHARDS: u16 = 8;
    let manifest = SHOP.replace("calls:", &format!("shards: {SHARDS}\n      calls:"));
    let mut c = Cluster::new(&manifest, 4, |key| match key.service {
        STOCK => vec![1, 2],
        _ => vec![0, 3],
    });
    behave(&mut c);
    c.nodes.get_mut(&1).unwrap().per_ms = 4;
    let deadline = c.now + Nanos::from_secs(20);
    for n in 0..32 {
        for at in 0..SHARDS {
            let (key, seq) = (key_of(at, SHARDS), n * u64::from(SHARDS) + u64::from(at));
            c.request(0, 1 + seq, 0, &key, deadline);
            c.request(0, ASKS + seq, 0, &key, deadline);
        }
    }
    c.pass(70);
    let (handled, called) = (c.report(1, shard(1, 0)).op, calls(&c, 1));
    assert!(handled > 40 && called > 40, "{handled} {called}");
    assert_eq!(c.plan.shards[0].primary, NodeId(0));
}

#[test]
fn a_shard_that_stands_still_for_a_backup_answers_calls() {
    let mut c = shop();
    let mut backup = BackupOrder {
        number: 1,
        is_freezing: false,
    };
    c.plan.backup = Some(backup);
    c.publish();
    c.pass(50);
    // The call is on its way when both shards stop.
    c.cut.insert((0, 1));
    send(&mut c, ASKS);
    c.pass(20);
    backup.is_freezing = true;
    c.plan.backup = Some(backup);
    c.publish();
    c.pass(20);
    assert_eq!(cuts(&c), [shard(1, 0)], "the shop waits for its handler");
    c.cut.clear();
    c.pass(400);
    assert_eq!(heard_count(&c, ASKS), Some(0));
    assert_eq!(cuts(&c), [shard(0, 0), shard(1, 0)]);
    send(&mut c, ASKS + 1);
    c.pass(100);
    assert_eq!(heard(&c, ASKS + 1), None, "no message is handled");
    c.plan.backup = None;
    c.publish();
    c.pass(100);
    assert_eq!(heard_count(&c, ASKS + 1), Some(0));
}

/// The shards whose part of a backup is complete.
fn cuts(c: &Cluster) -> Vec<ShardKey> {
    let nodes = c.nodes.values();
    let events = nodes.flat_map(|n| n.worker.report().events);
    let cuts = events.filter_map(|event| match event {
        NodeEvent::Cut { key, .. } => Some(key),
        _ => None,
    });
    cuts.collect()
}
