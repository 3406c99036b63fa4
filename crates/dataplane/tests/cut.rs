//! Backups of an application: a cut over all its shards, and shards that begin with it.

use crate::common::{APP, Cluster, count_and_forward, outbound, shard};
use e3_invocation::HandlerError;
use e3_model::backup::{BackupOrder, Part, Restored};
use e3_model::plan::{NodeEvent, Role};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardKey, Via};
use e3_wire::entry::Outcome;
use std::collections::{BTreeMap, BTreeSet};

const FRONT: ServiceId = ServiceId(0);
/// A request of this number fails.
const FAILS: u64 = 7;
/// A request of this number sets a timer.
const SETS: u64 = 8;
/// A request of this number asks the other service, which does not answer.
const ASKS: u64 = 100_000;

fn manifest(durability: &str) -> String {
    format!(
        "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: chain}}
spec:
  objective: {{latency: 50ms}}
  deadline: 60s
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      shards: 2
      replicas: 2
      durability: {durability}
      resources: {{cpu: 0.1, memory: 64Mi}}
      collections: [{{name: requests, kind: counter}}]
    - name: back
      module: s.wasm
      stateful: true
      replicas: 2
      durability: {durability}
      resources: {{cpu: 0.1, memory: 64Mi}}
      collections: [{{name: requests, kind: counter}}]
  channels:
    - {{from: front, to: back}}
"
    )
}

/// Every request is counted at a shard of `front` and then at `back`. One fails, and one sets a timer.
fn cluster(durability: &str) -> Cluster {
    cluster_on(durability, [[0, 1], [1, 0]])
}

/// The same, on these nodes: of `front`, and of `back`.
fn cluster_on(durability: &str, nodes: [[u32; 2]; 2]) -> Cluster {
    let mut c = Cluster::new(&manifest(durability), 3, |key| {
        nodes[usize::from(key.service.0)].to_vec()
    });
    c.handler = Box::new(|service, invocation, state| {
        let seq = invocation.id.request.seq;
        if service == FRONT && seq == FAILS {
            return Err(HandlerError::Trap("it always fails".into()));
        }
        if service != FRONT && invocation.key == b"asked" {
            return Ok(outbound::count(invocation, state, b"asked"));
        }
        let channels = u16::from(service == FRONT && invocation.id.via != Via::Timer);
        let mut effects = count_and_forward(channels, invocation, state)?;
        if service == FRONT && seq == ASKS {
            let deadline = invocation.now + Nanos::from_secs(50);
            let mut ask = outbound::ask("open", outbound::to("back"), deadline, b"");
            ask.key = invocation.key.to_vec();
            effects.timers = vec![ask];
        }
        if service == FRONT && seq == SETS {
            let when = When::At(invocation.now + Nanos::from_secs(3_600));
            effects.timers = vec![TimerChange {
                name: "later".into(),
                key: invocation.key.to_vec(),
                set: Some(TimerSet {
                    when,
                    payload: b"x".to_vec(),
                }),
            }];
        }
        Ok(effects)
    });
    c
}

fn all() -> [ShardKey; 3] {
    [shard(0, 0), shard(0, 1), shard(1, 0)]
}

fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(60);
    c.request(2, seq, 0, &seq.to_le_bytes(), deadline);
}

/// Sends a request in each of so many milliseconds.
fn load(c: &mut Cluster, from: u64, ms: u64) -> u64 {
    for seq in from..from + ms {
        request(c, seq);
        c.pass(1);
    }
    from + ms
}

/// What primaries have to say, of all nodes.
fn events(c: &Cluster) -> Vec<NodeEvent> {
    let nodes = c.nodes.values();
    nodes.flat_map(|n| n.worker.report().events).collect()
}

fn copied(c: &Cluster) -> usize {
    let is_copied = |e: &&NodeEvent| matches!(e, NodeEvent::Copied { .. });
    events(c).iter().filter(is_copied).count()
}

fn cut(c: &Cluster) -> Vec<Part> {
    let part = |event| match event {
        NodeEvent::Cut {
            key, op, len, crc, ..
        } => Some(Part {
            service: key.service,
            shard: key.shard,
            op,
            len,
            crc,
        }),
        _ => None,
    };
    let mut parts: Vec<Part> = events(c).into_iter().filter_map(part).collect();
    parts.sort_by_key(Part::id);
    parts
}

/// Takes a backup while clients send requests from this number on. Nodes hear of each step one after
/// the other. Returns the parts, and the next number.
fn back_up(c: &mut Cluster, mut seq: u64) -> (Vec<Part>, u64) {
    let order = |is_freezing| {
        Some(BackupOrder {
            number: 1,
            is_freezing,
        })
    };
    for (backup, is_done) in [
        (order(false), (|c| copied(c) == 3) as fn(&Cluster) -> bool),
        (order(true), |c| cut(c).len() == 3),
    ] {
        c.plan.backup = backup;
        c.version += 1;
        for node in [1, 2, 0] {
            c.publish_to(node);
            seq = load(c, seq, 3);
        }
        while !is_done(c) {
            seq = load(c, seq, 1);
            assert!(seq < 10_000, "{:?}", events(c));
        }
    }
    let parts = cut(c);
    c.plan.backup = None;
    c.publish();
    (parts, seq)
}

/// All shards begin again, with the state of the backup, this long after it was taken.
fn begin_with(c: &mut Cluster, parts: &[Part], later: Nanos) {
    let number = 2;
    c.parts = all().map(|key| (key, c.exports[&(1, key)].clone())).into();
    c.now += later;
    for shard in &mut c.plan.shards {
        shard.view += 1;
        (shard.incarnation, shard.era) = (shard.view, shard.view);
        shard.predecessor = None;
        shard.joining = std::mem::take(&mut shard.backups);
        (shard.fenced, shard.frozen) = (true, true);
    }
    c.plan.restored = Some(Restored {
        number,
        identity: APP,
        shift: later,
        at: c.now,
        parts: parts.to_vec(),
    });
    c.publish();
}

/// Does what a controller does until all shards have their state, and stand still.
fn wait_until_restored(c: &mut Cluster) {
    for _ in 0..2_000 {
        c.pass(1);
        let events = events(c);
        let is_of = |e: &&NodeEvent| matches!(e, NodeEvent::Restored { .. });
        for event in &events {
            if let NodeEvent::Synced { key, backup, view } = event {
                let shard = c.shard(*key);
                if shard.view == *view && shard.joining.contains(backup) {
                    shard.view += 1;
                    shard.joining.retain(|n| n != backup);
                    shard.backups.push(*backup);
                }
            }
        }
        if c.plan.shards.iter().all(|s| s.joining.is_empty())
            && events.iter().filter(is_of).count() == 3
        {
            return;
        }
        c.publish();
    }
    panic!("{:?}", events(c));
}

fn go_on(c: &mut Cluster) {
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.frozen = false;
    }
    if let Some(restored) = &mut c.plan.restored {
        restored.parts.clear();
    }
    c.publish();
}

fn is_done(c: &Cluster, seq: u64) -> bool {
    c.outcomes(seq).contains(&Outcome::Done)
}

/// By request: how often it was counted at `front` and at `back`, at primaries or backups.
fn counts(c: &Cluster, requests: u64, at: Role) -> BTreeMap<u64, (i64, i64)> {
    let count = |key: ShardKey, seq| {
        let plan = c.plan.shards.iter().find(|s| c.plan.key(s) == key);
        let plan = plan.expect("it is in the plan");
        let node = match at {
            Role::Primary => plan.primary,
            _ => plan.backups[0],
        };
        c.count(node.0, key, 1, seq)
    };
    let of = |seq| {
        let front = count(shard(0, 0), seq) + count(shard(0, 1), seq);
        (seq, (front, count(shard(1, 0), seq)))
    };
    (1..requests).map(of).collect()
}

fn letters_and_timers(c: &Cluster) -> (u64, u64) {
    let reports = all().map(|key| {
        let shard = c.plan.shards.iter().find(|s| c.plan.key(s) == key);
        c.report(shard.expect("it is in the plan").primary.0, key)
    });
    let letters = reports.iter().map(|r| r.dead_letters).sum();
    (letters, reports.iter().map(|r| r.timers).sum())
}

#[test]
fn what_a_cut_under_load_has_of_a_message_its_sender_has_sent() {
    for durability in ["memory", "disk"] {
        let mut c = cluster(durability);
        c.loss_permille = 50;
        let before = load(&mut c, 1, 200);
        c.pass(500);
        let acked: BTreeSet<u64> = (1..before).filter(|seq| is_done(&c, *seq)).collect();
        assert!(acked.len() > 100, "{durability}: {}", acked.len());
        let (parts, next) = back_up(&mut c, before);
        let end = load(&mut c, next, 50);
        c.pass(2_000);
        c.loss_permille = 0;
        begin_with(&mut c, &parts, Nanos::from_secs(3_600 * 24));
        wait_until_restored(&mut c);
        for (seq, (front, back)) in counts(&c, end, Role::Primary) {
            assert!(
                front <= 1 && back <= front,
                "{durability}: request {seq}: {front} {back}"
            );
            assert!(
                !acked.contains(&seq) || (front, back) == (1, 1),
                "{durability}: request {seq}"
            );
            assert!(
                seq < next || front == 0,
                "{durability}: request {seq} came later"
            );
        }
        assert_eq!(letters_and_timers(&c), (1, 1), "{durability}");
        go_on(&mut c);
        c.pass(2_000);
        for at in [Role::Primary, Role::Backup] {
            for (seq, (front, back)) in counts(&c, end, at) {
                assert_eq!(
                    front, back,
                    "{durability}: what was in flight arrived: request {seq}"
                );
            }
        }
        assert_eq!(letters_and_timers(&c).0, 1, "{durability}: nothing expired");
    }
}

#[test]
fn a_retry_after_a_restore_is_answered_as_before_and_does_nothing() {
    let mut c = cluster("memory");
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    c.pass(100);
    begin_with(&mut c, &parts, Nanos::from_secs(3_600));
    wait_until_restored(&mut c);
    let restored = counts(&c, before, Role::Primary);
    assert!(
        restored
            .iter()
            .all(|(seq, n)| *seq == FAILS || *n == (1, 1))
    );
    go_on(&mut c);
    c.pass(100);
    c.replies.clear();
    for seq in 1..before {
        let deadline = c.now + Nanos::from_secs(60);
        c.request(2, seq, 1, &seq.to_le_bytes(), deadline);
    }
    c.pass(500);
    let counts = counts(&c, before, Role::Primary);
    for seq in (1..before).filter(|seq| *seq != FAILS) {
        assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        assert_eq!(counts[&seq], (1, 1), "request {seq}");
    }
    assert_eq!(c.outcomes(FAILS), [Outcome::Failed]);
}

#[test]
fn what_was_asked_before_a_backup_is_asked_again_under_the_identity_of_then() {
    // The second restore makes identities in the name of another application, and shows that they count.
    for (identity, effects) in [(APP, 1), (AppId(77), 2)] {
        let mut c = cluster_on("memory", [[0, 2], [1, 2]]);
        // The answer does not arrive before the backup.
        c.cut.insert((1, 0));
        request(&mut c, ASKS);
        c.pass(500);
        let asked = |c: &Cluster| outbound::counted(c, 1, shard(1, 0), b"asked");
        assert_eq!(asked(&c), 1);
        let (parts, _) = back_up(&mut c, ASKS + 1);
        begin_with(&mut c, &parts, Nanos::from_secs(3_600));
        if let Some(restored) = &mut c.plan.restored {
            restored.identity = identity;
        }
        c.publish();
        wait_until_restored(&mut c);
        go_on(&mut c);
        c.pass(5_000);
        assert_eq!(asked(&c), effects, "{identity}");
        let timers = |c: &Cluster| letters_and_timers(c).1;
        assert_eq!(timers(&c), 1, "its deadline has moved");
        c.cut.clear();
        c.pass(5_000);
        assert_eq!(timers(&c), 0, "it is answered");
        assert_eq!(asked(&c), effects, "{identity}");
    }
}

#[test]
fn a_copy_that_takes_over_during_a_restore_does_not_wait_for_the_state_that_it_has() {
    let mut c = cluster("memory");
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    c.pass(100);
    begin_with(&mut c, &parts, Nanos::from_secs(60));
    let key = shard(1, 0);
    let of_key = |c: &Cluster, is: fn(&NodeEvent) -> Option<ShardKey>| {
        events(c).iter().any(|e| is(e) == Some(key))
    };
    while !of_key(&c, |e| match e {
        NodeEvent::Synced { key, .. } => Some(*key),
        _ => None,
    }) {
        c.pass(1);
    }
    // The plan in which the copy is a backup does not reach its node.
    let shard = c.shard(key);
    let (former, heir) = (shard.primary, shard.joining.remove(0));
    shard.view += 3;
    (shard.incarnation, shard.predecessor) = (shard.view, Some(former));
    (shard.primary, shard.backups) = (heir, vec![former]);
    c.publish();
    c.pass(2_000);
    let is_restored = of_key(&c, |e| match e {
        NodeEvent::Restored { key, .. } => Some(*key),
        _ => None,
    });
    assert!(is_restored, "{:?}", events(&c));
    wait_until_restored(&mut c);
    go_on(&mut c);
    c.pass(500);
    for (seq, counts) in counts(&c, before, Role::Primary) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
}

#[test]
fn shards_go_on_after_a_cut_that_is_cancelled() {
    let mut c = cluster("memory");
    c.plan.backup = Some(BackupOrder {
        number: 1,
        is_freezing: true,
    });
    c.publish();
    let end = load(&mut c, 1, 20);
    c.pass(50);
    assert_eq!(cut(&c).len(), 3);
    c.plan.backup = None;
    c.publish();
    c.pass(500);
    assert_eq!(
        events(&c)
            .iter()
            .filter(|e| matches!(e, NodeEvent::Cut { .. }))
            .count(),
        0
    );
    for (seq, counts) in counts(&c, end, Role::Primary) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
}

#[test]
fn a_process_that_ends_before_its_state_is_durable_fetches_it_again() {
    let mut c = cluster("disk");
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    c.pass(100);
    c.disks.values_mut().for_each(|disk| disk.held = true);
    begin_with(&mut c, &parts, Nanos::from_secs(60));
    c.pass(200);
    let is_restored = |e: &NodeEvent| matches!(e, NodeEvent::Restored { .. });
    assert!(!events(&c).iter().any(is_restored), "nothing is durable");
    c.disks.values_mut().for_each(|disk| disk.held = false);
    for node in [0, 1] {
        c.start(node, 2);
    }
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
    }
    c.publish();
    wait_until_restored(&mut c);
    go_on(&mut c);
    c.pass(500);
    for at in [Role::Primary, Role::Backup] {
        for (seq, counts) in counts(&c, before, at) {
            let times = i64::from(seq != FAILS);
            assert_eq!(counts, (times, times), "request {seq}");
        }
    }
    // What is on disk is the state now.
    for node in [0, 1] {
        c.start(node, 3);
    }
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
    }
    c.parts.clear();
    c.publish();
    c.pass(1_000);
    for (seq, counts) in counts(&c, before, Role::Primary) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
}

#[test]
fn damaged_state_is_refused_and_never_served() {
    let mut c = cluster("memory");
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    let of = shard(1, 0);
    let whole = c.exports[&(1, of)].clone();
    for at in (0..whole.len()).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        c.exports.insert((1, of), damaged);
        begin_with(&mut c, &parts, Nanos::from_secs(60));
        c.pass(20);
        let primary: NodeId = c.shard(of).primary;
        let report = c.report(primary.0, of);
        let error = report.error.unwrap_or_default();
        assert!(
            error.contains("state in the backup cannot be used"),
            "byte {at}: {error}"
        );
        assert_eq!(report.role, Role::Joining, "byte {at}");
        c.shard(of).backups = c.shard(of).joining.clone();
        for shard in &mut c.plan.shards {
            shard.backups = std::mem::take(&mut shard.joining);
        }
    }
}
