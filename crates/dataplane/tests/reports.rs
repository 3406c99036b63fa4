//! What a node says of itself.

use crate::common::{APP, Cluster, count_and_forward, shard};
use e3_dataplane::{Health, Kept};
use e3_invocation::HandlerError;
use e3_model::plan::{ChannelReport, IngressCounts, Role, ShardCounts};
use e3_model::{AppId, DropReason, Nanos, NodeId, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;
use std::sync::Arc;

/// A service with a backup, and one behind it.
const PAIR: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: pair}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  admittedMax: 600
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

/// The front end on node 0, its backup on node 1, the back end on node 2.
fn pair() -> Cluster {
    Cluster::new(PAIR, 3, |key| match key.service.0 {
        0 => vec![0, 1],
        _ => vec![2],
    })
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

fn hold(c: &mut Cluster, node: u32, held: bool) {
    c.nodes.get_mut(&node).unwrap().held = held;
}

/// The front end fails each request with this key.
const BAD: &[u8] = b"bad";

fn fail_bad_ones(c: &mut Cluster) {
    c.handler = Box::new(|at, invocation, state| {
        if invocation.key == BAD {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(1 - at.0, invocation, state)
    });
}

/// What a node did for the front end.
fn counts(c: &Cluster, node: u32) -> Option<ShardCounts> {
    let counts = c.nodes[&node].worker.report().counts;
    counts.into_iter().find(|c| c.key == shard(0, 0))
}

/// A request that is done, one that fails, one that expires.
fn three_outcomes(c: &mut Cluster) {
    fail_bad_ones(c);
    let deadline = soon(c);
    c.request(0, 1, 0, b"k", deadline);
    c.request(0, 2, 0, BAD, deadline);
    c.pass(100);
    hold(c, 0, true);
    // As many as the executor takes, and one that waits.
    let deadline = c.now + Nanos::from_secs(1);
    for seq in 3..=35 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(2_000);
    hold(c, 0, false);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.outcomes(2), [Outcome::Failed]);
    assert_eq!(c.outcomes(35), [Outcome::Expired]);
}

#[test]
fn a_node_reports_its_replicas() {
    let mut c = pair();
    three_outcomes(&mut c);
    let report = c.nodes[&0].worker.report();
    assert_eq!(report.node, NodeId(0));
    assert_eq!(report.incarnation, 1);
    assert_eq!(report.plan_version, c.version);
    assert_eq!(report.instances.len(), 1);
    assert_eq!(report.counts.len(), 1);
    let front = &report.instances[0];
    assert_eq!(front.key, shard(0, 0));
    assert_eq!((front.role, front.view), (Role::Primary, 1));
    assert_eq!((front.op, front.commit, front.queue), (35, 35, 0));
    assert_eq!(front.dead_letters, 2);
    assert!(front.serving && !front.clock_off);
    assert_eq!(front.stalled, Nanos::ZERO);
    assert!(front.memory_bytes > 0);
    assert_eq!(front.error, None);
    assert!(front.last_failure.is_some());
    let backup = &front.backups[..];
    assert_eq!(backup.len(), 1);
    assert_eq!((backup[0].node, backup[0].acked), (NodeId(1), 35));
    assert!(backup[0].synced && backup[0].required && backup[0].leased);
    let backup = c.report(1, shard(0, 0));
    assert_eq!((backup.role, backup.op), (Role::Backup, 35));
    assert_eq!(backup.backups, []);
}

#[test]
fn the_counts_of_a_shard_never_fall() {
    let mut c = pair();
    three_outcomes(&mut c);
    let first = counts(&c, 0).unwrap();
    let expected = ShardCounts {
        key: shard(0, 0),
        handled: 35,
        failed: 3,
        dead_lettered: 2,
        expired: 1,
        calls: 0,
        // 33 that were done and three attempts at one.
        busy: Nanos::from_micros(36),
    };
    assert_eq!(first, expected);
    // The shard moves away,
    c.promote(shard(0, 0), 1);
    c.publish();
    assert!(c.nodes[&0].worker.state(shard(0, 0)).is_none());
    assert_eq!(counts(&c, 0), Some(expected.clone()));
    assert_eq!(counts(&c, 1).unwrap().handled, 0);
    // and comes back.
    c.shard(shard(0, 0)).joining = vec![NodeId(0)];
    c.publish();
    assert_eq!(counts(&c, 0), Some(expected));
    let report = c.report(0, shard(0, 0));
    assert_eq!(report.last_failure, None, "it was another replica's");
}

#[test]
fn the_counts_of_an_application_end_with_it() {
    let mut c = pair();
    let other = AppId(2);
    let mut plan = c.nodes[&0].worker.plan().as_ref().clone();
    let mut copy = plan.apps[0].clone();
    copy.id = other;
    plan.apps.push(copy);
    for shard in plan.apps.iter_mut().flat_map(|a| &mut a.shards) {
        shard.primary = NodeId(0);
        shard.backups.clear();
    }
    apply(&mut c, &mut plan);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    let request = c.request_of(2, 0, b"k", deadline);
    c.send_request(
        0,
        Request {
            app: other,
            ..request
        },
    );
    c.pass(100);
    let counted = |c: &Cluster| -> Vec<AppId> {
        let counts = c.nodes[&0].worker.report().counts;
        let front = counts.iter().filter(|c| c.key.service.0 == 0);
        front.map(|c| c.key.app).collect()
    };
    // All moves to node 2.
    for shard in plan.apps.iter_mut().flat_map(|a| &mut a.shards) {
        shard.primary = NodeId(2);
    }
    apply(&mut c, &mut plan);
    assert_eq!(counted(&c), [APP, other]);
    plan.apps.pop();
    apply(&mut c, &mut plan);
    assert_eq!(counted(&c), [APP]);
}

/// Gives node 0 the next plan.
fn apply(c: &mut Cluster, plan: &mut e3_model::plan::NodePlan) {
    plan.version += 1;
    let now = c.now;
    let node = c.nodes.get_mut(&0).unwrap();
    node.worker.handle_plan(now, Arc::new(plan.clone()));
    c.drain(0);
}

#[test]
fn a_node_reports_what_it_admits_and_what_waits() {
    let mut c = pair();
    let deadline = soon(&c);
    for seq in 1..=200 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(100);
    assert_eq!(c.nodes[&0].worker.in_flight(), 0);
    c.cut.insert((0, 2));
    for seq in 201..=500 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(20);
    hold(&mut c, 0, true);
    // There is room for 600 at a time; 300 of them wait for the back end.
    for seq in 501..=900 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(100);
    let worker = &c.nodes[&0].worker;
    assert_eq!((worker.in_flight(), worker.queue_len()), (600, 300));
    let stats = worker.report().stats;
    assert_eq!((stats.admitted, stats.overloaded), (800, 100));
    let ingress = IngressCounts {
        admitted: 800,
        overloaded: 100,
    };
    assert_eq!(stats.ingress, [(APP, ingress)].into());
    let report = |name: &str, from: &str, to: &str, (sent, durable, waiting)| ChannelReport {
        app: APP,
        name: name.into(),
        from: from.into(),
        to: to.into(),
        sent,
        durable,
        waiting,
    };
    // One window is on its way to the back end; the rest waits for credit.
    let mut channels = stats.channels;
    let replication = channels.pop().unwrap();
    assert_eq!(
        channels,
        [
            report("ingress", "n0", "front/0", (800, 500, 0)),
            report("a", "front/0", "back/0", (456, 200, 44)),
        ]
    );
    let (sent, durable) = (replication.sent, replication.durable);
    assert!(sent >= 500, "every entry");
    assert_eq!(
        replication,
        report("replication", "front/0", "n1", (sent, durable, 0))
    );
    assert!(stats.retransmitted > 0, "nothing comes back from node 2");
    assert_eq!(c.nodes[&1].worker.report().stats.retransmitted, 0);
}

#[test]
fn all_that_is_kept_because_of_requests_is_counted() {
    let mut c = pair();
    let kept = |c: &Cluster| c.nodes[&0].worker.kept();
    assert_eq!(kept(&c), Kept::default());
    c.cut.insert((0, 2));
    let deadline = soon(&c);
    for seq in 1..=5 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(100);
    hold(&mut c, 0, true);
    for seq in 6..=8 {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.pass(100);
    // Five outputs in outbox and channel, three messages in queue and channel.
    let expected = Kept {
        open: 2 * 5 + 2 * 3,
        publishing: 0,
        remembered: 5,
        sessions: 8,
    };
    assert_eq!(kept(&c), expected);
    hold(&mut c, 0, false);
    c.cut.clear();
    c.pass(3_000);
    assert_eq!((kept(&c).open, kept(&c).remembered), (0, 8));
}

#[test]
fn a_peer_that_cannot_be_reached_is_reported_until_it_can() {
    let mut c = pair();
    let unreachable = |c: &Cluster, node: u32| c.nodes[&node].worker.report().unreachable;
    assert_eq!(unreachable(&c, 0), []);
    c.cut.extend([(0, 2), (2, 0)]);
    c.pass(1_000);
    assert_eq!(unreachable(&c, 0), [NodeId(2)]);
    assert_eq!(unreachable(&c, 1), []);
    assert_eq!(unreachable(&c, 2), [NodeId(0)]);
    c.cut.clear();
    c.pass(5_000);
    assert_eq!(unreachable(&c, 0), []);
}

#[test]
fn the_health_of_a_shard_changes_when_it_stops_serving_and_when_it_stalls() {
    let mut c = pair();
    let health = |c: &Cluster| -> Vec<Health> { c.nodes[&0].worker.health() };
    let well = health(&c);
    assert_eq!(well.len(), 1);
    c.cut.extend([(0, 1), (1, 0)]);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(600);
    let alone = health(&c);
    assert_ne!(alone, well);
    c.pass(1_000);
    let stalled = health(&c);
    assert_ne!(stalled, alone);
    assert!(c.report(0, shard(0, 0)).stalled >= Nanos::from_secs(1));
    c.pass(100);
    assert_eq!(health(&c), stalled);
    c.cut.clear();
    c.pass(3_000);
    assert_eq!(health(&c), well);
}

#[test]
fn what_a_backup_refuses_is_counted() {
    let mut c = pair();
    // Between two leases its clock is hours behind for a while: what comes is of the future.
    c.pass(10);
    c.nodes.get_mut(&1).unwrap().behind = Nanos::from_secs(7_200);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(30);
    let dropped = c.nodes[&1].worker.report().stats.dropped;
    assert!(dropped[&DropReason::Replication] > 0);
}
