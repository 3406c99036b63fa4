//! What a node makes of a plan: which one counts, what a shard that leaves takes with it, what it
//! leaves alone.

use crate::common::manifests::STATELESS;
use crate::common::{APP, Cluster, count_and_forward, key_of, shard};
use e3_invocation::{Completion, Invocation, Outcome as Run};
use e3_model::backup::Restored;
use e3_model::document::parse_application;
use e3_model::plan::NodePlan;
use e3_model::timing::LEASE;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::entry::Outcome;
use std::sync::Arc;

/// Two services of two shards each.
const GRID: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: grid}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  admittedMax: 20000
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      shards: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      shards: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: back}
";

/// One service of two shards.
pub(crate) const TWO: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: two}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: only
  services:
    - name: only
      module: s.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

/// Both shards on node 0, with backups on node 1.
fn two() -> Cluster {
    Cluster::new(TWO, 2, |_| vec![0, 1])
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

fn hold(c: &mut Cluster, node: u32, held: bool) {
    c.nodes.get_mut(&node).unwrap().held = held;
}

/// One request to each shard, which is done.
fn fill(c: &mut Cluster) {
    let deadline = soon(c);
    for n in 0..2 {
        c.request(0, 1 + u64::from(n), 0, &key_of(n, 2), deadline);
    }
    c.pass(10);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

/// Gives a plan to one node, so that the others still follow the one before.
fn publish_first_to(c: &mut Cluster, node: u32) {
    c.version += 1;
    c.publish_to(node);
}

/// Runs the handler of what the executor was given first.
fn run_first(c: &mut Cluster) {
    let now = c.now;
    let node = c.nodes.get_mut(&0).unwrap();
    let (key, invocation) = node.waiting.remove(0);
    let state = node.worker.state(key).unwrap();
    let effects = count_and_forward(0, &invocation, &mut state.borrow_mut());
    let done = Completion {
        token: invocation.token,
        outcome: Run::Completed(effects.unwrap()),
        busy: Nanos::ZERO,
    };
    node.worker.handle_completion(now, key, done);
}

#[test]
fn plans_of_other_clusters_and_nodes_and_older_ones_are_ignored() {
    let mut c = two();
    fill(&mut c);
    let (now, plan) = (c.now, c.nodes[&0].worker.plan().clone());
    assert_eq!((plan.version, plan.node), (c.version, NodeId(0)));
    assert_eq!(plan.apps, [c.plan.clone()]);
    let next = NodePlan {
        version: plan.version + 1,
        apps: Vec::new(),
        ..plan.as_ref().clone()
    };
    let has_shard = |c: &Cluster| c.nodes[&0].worker.state(shard(0, 0)).is_some();
    let changes: [fn(&mut NodePlan); 4] = [
        |p| p.cluster += 1,
        |p| p.node = NodeId(1),
        |p| p.version -= 1,
        |p| p.version -= 2,
    ];
    for change in changes {
        let mut wrong = next.clone();
        change(&mut wrong);
        let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
        worker.handle_plan(now, Arc::new(wrong));
        c.drain(0);
        assert!(has_shard(&c));
        assert_eq!(c.nodes[&0].worker.plan(), &plan);
    }
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_plan(now, Arc::new(next.clone()));
    c.drain(0);
    assert!(!has_shard(&c));
    assert_eq!(c.nodes[&0].worker.plan_version(), next.version);
}

#[test]
fn a_shard_that_leaves_takes_its_own_channels_with_it_and_no_others() {
    for service in [0, 1] {
        let home = |key: ShardKey| u32::from(key.service.0 != service);
        let mut c = Cluster::new(GRID, 3, |key| vec![home(key)]);
        hold(&mut c, 0, true);
        // More than a queue takes: the rest waits in the channels.
        let deadline = soon(&c);
        let (leaving, staying) = (1..=1_250, 1_251..=2_450);
        for seq in leaving.clone() {
            c.request(1, seq, 0, &key_of(0, 2), deadline);
        }
        for seq in staying.clone() {
            c.request(1, seq, 0, &key_of(1, 2), deadline);
        }
        c.pass(200);
        let open = |c: &Cluster| c.nodes[&0].worker.kept().open as u64;
        assert_eq!(open(&c), 2_450, "service {service}");
        c.promote(shard(service, 0), 2);
        publish_first_to(&mut c, 0);
        assert_eq!(open(&c), 1_200, "service {service}");
        for node in [1, 2] {
            c.publish_to(node);
        }
        hold(&mut c, 0, false);
        c.pass(2_000);
        for seq in leaving.chain(staying) {
            assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        }
    }
}

/// The first shard of node 0 goes to node 1. Its copy stays as a backup, or it does not.
fn move_first(c: &mut Cluster, stays: bool) {
    c.promote(shard(0, 0), 1);
    let backups = stays.then_some(NodeId(0));
    c.shard(shard(0, 0)).backups = backups.into_iter().collect();
    c.publish();
}

#[test]
fn a_shard_that_was_about_to_go_on_does_when_another_leaves_its_node() {
    for stays in [false, true] {
        let mut c = two();
        hold(&mut c, 0, true);
        let deadline = soon(&c);
        for seq in 1..=40 {
            c.request(0, seq, 0, &key_of(1, 2), deadline);
        }
        c.pass(20);
        // The executor has room for one more, and the plan comes in the same turn.
        run_first(&mut c);
        move_first(&mut c, stays);
        hold(&mut c, 0, false);
        c.pass(200);
        for seq in 1..=40 {
            assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        }
    }
}

#[test]
fn backups_hear_of_what_was_released_together_and_also_when_another_shard_leaves() {
    for stays in [false, true] {
        let mut c = two();
        fill(&mut c);
        let commits = |c: &Cluster| [0, 1].map(|node| c.report(node, shard(0, 1)).commit);
        assert_eq!(commits(&c), [1, 0], "told with the next ones");
        move_first(&mut c, stays);
        c.pass(100);
        assert_eq!(commits(&c), [1, 1]);
    }
}

#[test]
fn a_replaced_primary_keeps_its_copy_if_it_is_needed_and_only_then() {
    for part in ["backup", "leaving", "joining", "none"] {
        let mut c = two();
        fill(&mut c);
        c.promote(shard(0, 0), 1);
        let shard_plan = c.shard(shard(0, 0));
        match part {
            "backup" => shard_plan.backups = vec![NodeId(0)],
            "leaving" => shard_plan.leaving = vec![NodeId(0)],
            "joining" => shard_plan.joining = vec![NodeId(0)],
            _ => {}
        }
        publish_first_to(&mut c, 0);
        let kept = c.count(0, shard(0, 0), 1, 1) == 1;
        assert_eq!(kept, ["backup", "leaving"].contains(&part), "{part}");
        assert_eq!(c.count(0, shard(0, 1), 1, 2), 1, "the other shard");
    }
}

#[test]
fn a_stateless_shard_that_was_elsewhere_begins_empty() {
    let mut c = Cluster::new(STATELESS, 1, |_| vec![0]);
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.report(0, shard(0, 0)).op, 1);
    // Another node has served it since, by a plan that never came here.
    c.promote(shard(0, 0), 0);
    c.shard(shard(0, 0)).predecessor = Some(NodeId(1));
    c.publish();
    assert_eq!(c.report(0, shard(0, 0)).op, 0);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn a_stateless_shard_of_a_restored_application_does_not_know_what_was_handled_before() {
    for is_restored in [false, true] {
        let mut c = Cluster::new(STATELESS, 1, |_| vec![0]);
        for shard in &mut c.plan.shards {
            shard.view += 1;
            (shard.incarnation, shard.era) = (shard.view, shard.view);
        }
        c.plan.restored = is_restored.then(|| Restored {
            number: 2,
            identity: APP,
            shift: Nanos::from_secs(1),
            at: c.now,
            parts: Vec::new(),
        });
        c.publish();
        let late = c.now - Nanos::from_millis(1);
        c.request(0, 1, 0, b"k", late);
        c.pass(20);
        let outcome = if is_restored {
            Outcome::Unknown
        } else {
            Outcome::Expired
        };
        assert_eq!(c.outcomes(1), [outcome], "restored: {is_restored}");
    }
}

#[test]
fn shards_that_the_application_no_longer_has_are_gone() {
    let mut c = two();
    fill(&mut c);
    let manifest = TWO.replace("shards: 2", "shards: 1");
    let app = parse_application("test.yaml", &manifest).unwrap();
    c.plan.app = app.into();
    c.plan.code_version = 2;
    c.plan.shards.pop();
    c.publish();
    for node in [0, 1] {
        let instances = c.nodes[&node].worker.report().instances;
        let keys: Vec<ShardKey> = instances.iter().map(|i| i.key).collect();
        assert_eq!(keys, [shard(0, 0)], "node {node}");
    }
    let deadline = soon(&c);
    c.request(0, 3, 0, &key_of(1, 2), deadline);
    c.pass(20);
    assert_eq!(c.outcomes(3), [Outcome::Done]);
}

#[test]
fn a_successor_waits_until_its_promise_to_the_primary_has_run_out() {
    let mut c = two();
    c.cut.extend([(0, 1), (1, 0)]);
    c.promote(shard(0, 0), 1);
    publish_first_to(&mut c, 1);
    let serves = |c: &Cluster| c.report(1, shard(0, 0)).serving;
    assert!(!serves(&c));
    assert!(c.report(0, shard(0, 0)).serving, "it knows of nothing");
    c.pass(LEASE.as_millis() + 1);
    assert!(serves(&c));
    assert!(!c.report(0, shard(0, 0)).serving);
}

#[test]
fn a_successor_of_a_primary_that_heard_nothing_for_long_serves_at_once() {
    let mut c = two();
    // Requests for leases come, and no grant would arrive.
    c.cut.insert((1, 0));
    c.pass(1_000);
    c.promote(shard(0, 0), 1);
    publish_first_to(&mut c, 1);
    assert!(c.report(1, shard(0, 0)).serving);
    assert!(!c.report(0, shard(0, 0)).serving);
}

#[test]
fn a_successor_waits_for_its_promise_to_a_primary_of_which_it_has_not_heard() {
    let mut c = Cluster::new(TWO, 4, |_| vec![0, 1, 2, 3]);
    let key = shard(0, 0);
    c.kill(0);
    c.promote(key, 1);
    c.promote(shard(0, 1), 1);
    c.version += 1;
    c.publish_to(1);
    c.publish_to(2);
    c.pass(2 * LEASE.as_millis());
    let serves = |c: &Cluster, node: u32| c.report(node, key).serving;
    assert!(serves(&c, 1), "the others grant their leases");
    // Two fail-overs follow of which node 1 does not hear, and of the first nobody.
    c.promote(key, 2);
    c.promote(key, 3);
    c.version += 2;
    c.publish_to(3);
    assert!(serves(&c, 1) && !serves(&c, 3));
    for _ in 0..=LEASE.as_millis() {
        c.pass(1);
        assert!(!serves(&c, 1) || !serves(&c, 3));
    }
    assert!(serves(&c, 3));
}

/// The only message that a node's executor has.
fn given(c: &Cluster, node: u32) -> Invocation {
    let waiting = &c.nodes[&node].waiting;
    assert_eq!(waiting.len(), 1);
    waiting[0].1.clone()
}

#[test]
fn what_was_begun_for_a_primary_is_stopped_and_counts_for_no_later_one() {
    let mut c = two();
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    c.request(0, 1, 0, &key_of(0, 2), deadline);
    c.pass(20);
    let before = given(&c, 0);
    // Another was to take over, and never did.
    c.promote(shard(0, 0), 1);
    c.shard(shard(0, 0)).backups = vec![NodeId(0)];
    publish_first_to(&mut c, 0);
    assert_eq!(c.nodes[&0].waiting, []);
    c.promote(shard(0, 0), 0);
    c.shard(shard(0, 0)).fenced = true;
    publish_first_to(&mut c, 0);
    c.pass(500);
    assert_eq!(given(&c, 0).id, before.id, "the same message");
    let late = Completion {
        token: before.token,
        outcome: Run::Completed(Default::default()),
        busy: Nanos::ZERO,
    };
    let now = c.now;
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_completion(now, shard(0, 0), late);
    assert_eq!(c.report(0, shard(0, 0)).op, 0);
    hold(&mut c, 0, false);
    c.pass(20);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 1);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
}

#[test]
fn what_a_primary_was_doing_is_stopped_when_its_shard_moves_away() {
    let mut c = two();
    hold(&mut c, 0, true);
    let deadline = soon(&c);
    c.request(0, 1, 0, &key_of(0, 2), deadline);
    c.pass(20);
    given(&c, 0);
    move_first(&mut c, false);
    assert_eq!(c.nodes[&0].waiting, []);
}

#[test]
fn what_did_not_start_starts_in_the_next_version_only() {
    let mut c = two();
    let key = shard(0, 0);
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_start_failed(key, "no main".into());
    let error = |c: &Cluster| c.report(0, key).error;
    let deadline = soon(&c);
    let outcome = |c: &mut Cluster, seq| {
        c.request(0, seq, 0, &key_of(0, 2), deadline);
        c.pass(20);
        c.outcomes(seq)
    };
    assert_eq!(error(&c).as_deref(), Some("no main"));
    assert_eq!(outcome(&mut c, 1), [Outcome::Failed]);
    c.publish();
    assert_eq!(error(&c).as_deref(), Some("no main"));
    assert_eq!(outcome(&mut c, 2), [Outcome::Failed]);
    c.plan.code_version += 1;
    c.publish();
    assert_eq!(error(&c), None);
    assert_eq!(outcome(&mut c, 3), [Outcome::Done]);
}

#[test]
fn messages_wait_until_what_their_service_needs_is_here() {
    let mut c = two();
    let key = shard(0, 0);
    let now = c.now;
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_startable(now, key, false);
    let deadline = soon(&c);
    c.request(0, 1, 0, &key_of(0, 2), deadline);
    c.request(0, 2, 0, &key_of(1, 2), deadline);
    c.pass(1_000);
    assert_eq!(c.outcomes(1), []);
    assert_eq!(c.outcomes(2), [Outcome::Done], "the other shard");
    let now = c.now;
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.handle_startable(now, key, true);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
}
