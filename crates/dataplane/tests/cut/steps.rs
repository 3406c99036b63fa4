//! The application that is backed up, and the steps of a backup and of a restore.

use crate::common::{APP, Cluster, count_and_forward, outbound, shard};
use e3_invocation::HandlerError;
use e3_model::backup::{BackupOrder, Part, Restored};
use e3_model::plan::{NodeEvent, Role};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ServiceId, ShardKey, Via};
use e3_wire::entry::Outcome;
use std::collections::BTreeMap;

pub(super) const FRONT: ServiceId = ServiceId(0);
/// A request of this number fails.
pub(super) const FAILS: u64 = 7;
/// A request of this number sets a timer.
pub(super) const SETS: u64 = 8;
/// A request of this number asks the other service, which does not answer.
pub(super) const ASKS: u64 = 100_000;

pub(super) fn manifest(durability: &str) -> String {
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
pub(super) fn cluster(durability: &str) -> Cluster {
    cluster_on(durability, [[0, 1], [1, 0]])
}

/// The same, on these nodes: of `front`, and of `back`.
pub(super) fn cluster_on(durability: &str, nodes: [[u32; 2]; 2]) -> Cluster {
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

pub(super) fn all() -> [ShardKey; 3] {
    [shard(0, 0), shard(0, 1), shard(1, 0)]
}

pub(super) fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(60);
    c.request(2, seq, 0, &seq.to_le_bytes(), deadline);
}

/// Sends a request in each of so many milliseconds.
pub(super) fn load(c: &mut Cluster, from: u64, ms: u64) -> u64 {
    for seq in from..from + ms {
        request(c, seq);
        c.pass(1);
    }
    from + ms
}

/// What primaries have to say, of all nodes.
pub(super) fn events(c: &Cluster) -> Vec<NodeEvent> {
    let nodes = c.nodes.values();
    nodes.flat_map(|n| n.worker.report().events).collect()
}

pub(super) fn copied(c: &Cluster) -> usize {
    let is_copied = |e: &&NodeEvent| matches!(e, NodeEvent::Copied { .. });
    events(c).iter().filter(is_copied).count()
}

pub(super) fn cut(c: &Cluster) -> Vec<Part> {
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

/// The order to take a backup, or to stop for it.
pub(super) fn order(is_freezing: bool) -> Option<BackupOrder> {
    Some(BackupOrder {
        number: 1,
        is_freezing,
    })
}

/// Takes a backup while clients send requests from this number on. Nodes hear of each step one after
/// the other. Returns the parts, and the next number.
pub(super) fn back_up(c: &mut Cluster, mut seq: u64) -> (Vec<Part>, u64) {
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

/// A cluster with twenty requests before a backup: the first after these, and the parts.
pub(super) fn backed_up(durability: &str) -> (Cluster, u64, Vec<Part>) {
    let mut c = cluster(durability);
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    c.pass(100);
    (c, before, parts)
}

/// Each request up to this one has taken effect once at copies of this role, but for the one that fails.
#[track_caller]
pub(super) fn each_once(c: &Cluster, before: u64, at: Role) {
    for (seq, counts) in counts(c, before, at) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
}

/// All shards begin again, with the state of the backup, this long after it was taken.
pub(super) fn begin_with(c: &mut Cluster, parts: &[Part], later: Nanos) {
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
pub(super) fn wait_until_restored(c: &mut Cluster) {
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

pub(super) fn go_on(c: &mut Cluster) {
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.frozen = false;
    }
    if let Some(restored) = &mut c.plan.restored {
        restored.parts.clear();
    }
    c.publish();
}

pub(super) fn is_done(c: &Cluster, seq: u64) -> bool {
    c.outcomes(seq).contains(&Outcome::Done)
}

/// By request: how often it was counted at `front` and at `back`, at primaries or backups.
pub(super) fn counts(c: &Cluster, requests: u64, at: Role) -> BTreeMap<u64, (i64, i64)> {
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

pub(super) fn letters_and_timers(c: &Cluster) -> (u64, u64) {
    let reports = all().map(|key| {
        let shard = c.plan.shards.iter().find(|s| c.plan.key(s) == key);
        c.report(shard.expect("it is in the plan").primary.0, key)
    });
    let letters = reports.iter().map(|r| r.dead_letters).sum();
    (letters, reports.iter().map(|r| r.timers).sum())
}
