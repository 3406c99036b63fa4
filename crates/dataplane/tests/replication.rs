//! Primaries and their backups: what restarts, and what is promised to whom.

use crate::common::manifests::ONE;
use crate::common::{Cluster, shard};
use crate::disk;
use e3_model::plan::NodeEvent;
use e3_model::timing::LEASE;
use e3_model::{Nanos, NodeId};
use e3_wire::entry::Outcome;

/// A service with one shard on nodes 0 and 1, after its first request.
fn pair() -> Cluster {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    c
}

/// The controller lost the backup's process and takes in the one that replaced it at once.
fn restart_backup(c: &mut Cluster) {
    c.start(1, 2);
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.backups.clear();
    plan.joining = vec![NodeId(1)];
}

#[test]
fn a_backup_that_restarts_at_once_gets_everything_again() {
    let mut c = pair();
    restart_backup(&mut c);
    c.publish();
    // The dead process's copy is not the new one's.
    let synced = c.nodes[&0].worker.events();
    let synced = synced.iter().any(|e| matches!(e, NodeEvent::Synced { .. }));
    assert!(!synced, "nothing has reached the new process");
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(200);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    let synced = c.nodes[&0].worker.events();
    assert!(synced.iter().any(|e| matches!(e, NodeEvent::Synced { .. })));
    for seq in [1, 2] {
        assert_eq!(c.count(1, shard(0, 0), 1, seq), 1, "request {seq}");
    }
}

#[test]
fn a_backup_of_the_view_that_is_no_member_is_waited_for() {
    let mut c = pair();
    c.kill(1);
    c.publish();
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [], "acknowledged without its copy");
    c.start(1, 2);
    c.publish();
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert_eq!(c.count(1, shard(0, 0), 1, 1), 1);
}

#[test]
fn a_joining_copy_that_is_complete_is_waited_for_though_the_plan_does_not_name_its_node() {
    let mut c = pair();
    c.start(2, 1);
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.joining = vec![NodeId(2)];
    c.publish();
    c.pass(500);
    let events = c.nodes[&0].worker.events();
    let is_synced =
        |e: &NodeEvent| matches!(e, NodeEvent::Synced { backup, .. } if *backup == NodeId(2));
    assert!(events.iter().any(is_synced), "{events:?}");
    // The controller may have been told of it, so it may take over.
    c.kill(2);
    c.publish();
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [], "acknowledged without its copy");
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.joining.clear();
    c.publish();
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn what_a_dead_process_promised_does_not_bind_its_successor() {
    let mut c = pair();
    assert!(c.report(0, shard(0, 0)).serving);
    // The new process can say nothing yet.
    c.cut.extend([(1, 0)]);
    c.start(1, 2);
    c.shard(shard(0, 0)).view += 1;
    c.publish();
    let report = c.report(0, shard(0, 0));
    assert!(!report.backups[0].leased, "by a process that is gone");
    assert!(!report.serving);
}

#[test]
fn a_backup_that_refused_an_entry_gets_everything_again() {
    let mut c = pair();
    // Between two leases its clock is hours behind for a while: what comes is of the future.
    c.pass(10);
    c.nodes.get_mut(&1).unwrap().behind = Nanos::from_secs(7_200);
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(300);
    assert_eq!(c.outcomes(2), [], "the backup does not have it");
    c.nodes.get_mut(&1).unwrap().behind = Nanos::ZERO;
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert_eq!(c.count(1, shard(0, 0), 1, 2), 1);
    assert_eq!(c.report(1, shard(0, 0)).error, None);
}

#[test]
fn a_node_with_a_wrong_clock_does_not_join() {
    let mut c = pair();
    c.start(2, 1);
    c.nodes.get_mut(&2).unwrap().ahead = Nanos::from_secs(5);
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.joining = vec![NodeId(2)];
    c.publish();
    c.pass(2_000);
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(50);
    assert_eq!(c.outcomes(2), [Outcome::Done], "the shard waits for it");
    assert_eq!(c.nodes[&0].worker.events().len(), 1, "filled, not synced");
    // Its process starts again, with the right time.
    c.nodes.get_mut(&2).unwrap().ahead = Nanos::ZERO;
    c.start(2, 2);
    c.publish();
    c.pass(2_000);
    let synced = c.nodes[&0].worker.events();
    assert!(synced.iter().any(|e| matches!(e, NodeEvent::Synced { .. })));
    assert_eq!(c.count(2, shard(0, 0), 1, 2), 1);
}

/// The primary may still serve when its successor knows that it was replaced. Until its leases have run
/// out, a node that promised it nothing must not take over from the successor.
#[test]
fn a_successor_that_does_not_serve_yet_confirms_no_new_copy_and_no_stop() {
    for is_frozen in [false, true] {
        let mut c = pair();
        let key = shard(0, 0);
        c.start(2, 1);
        c.publish();
        c.pass(100);
        c.cut.extend([(0, 1), (1, 0)]);
        c.promote(key, 1);
        let plan = c.shard(key);
        (plan.joining, plan.frozen) = (vec![NodeId(2)], is_frozen);
        c.version += 1;
        for node in [1, 2] {
            c.publish_to(node);
        }
        let view = c.shard(key).view;
        let wanted = if is_frozen {
            NodeEvent::Frozen { key, view }
        } else {
            let backup = NodeId(2);
            NodeEvent::Synced { key, view, backup }
        };
        let is_confirmed = |c: &Cluster| c.nodes[&1].worker.events().contains(&wanted);
        let mut both = 0;
        for _ in 0..LEASE.as_millis() {
            assert!(!c.report(0, key).serving || !is_confirmed(&c), "{wanted:?}");
            both += u32::from(c.report(0, key).serving && c.report(1, key).backups[0].synced);
            c.pass(1);
        }
        assert!(
            both > 0,
            "the copy was complete while the former primary served"
        );
        c.pass(5);
        assert!(is_confirmed(&c), "{:?}", c.nodes[&1].worker.events());
    }
}

/// The state of the shard was given up, and no node has room for it yet.
fn give_up(c: &mut Cluster) {
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.era = plan.view;
    plan.backups.clear();
}

/// A node has room, and the shard begins empty there.
fn begin_empty(c: &mut Cluster, node: u32) {
    c.promote(shard(0, 0), node);
}

#[test]
fn a_copy_that_was_no_backup_waits_for_leases_that_nobody_remembers() {
    for begins_empty in [false, true] {
        let (mut c, key) = (pair(), shard(0, 0));
        c.start(2, 1);
        c.cut.extend([(0, 2), (2, 0)]);
        let plan = c.shard(key);
        plan.view += 1;
        plan.joining = vec![NodeId(2)];
        c.publish();
        c.pass(600);
        // The primary is cut off and counts as gone, and the process that gave it its lease is.
        c.kill(1);
        c.shard(key).joining.clear();
        if begins_empty {
            give_up(&mut c);
            begin_empty(&mut c, 2);
        } else {
            c.promote(key, 2);
            c.shard(key).backups.clear();
        }
        c.version += 1;
        c.publish_to(2);
        let mut both = 0;
        for _ in 0..LEASE.as_millis() {
            let serves = [0, 2].map(|node| c.report(node, key).serving);
            assert_ne!(serves, [true; 2], "begins empty: {begins_empty}");
            both += u32::from(serves[0]);
            c.pass(1);
        }
        assert!(both > 100, "the former primary served for {both} ms");
        c.pass(1);
        assert!(c.report(2, key).serving);
    }
}

#[test]
fn an_old_backup_that_comes_back_as_the_primary_begins_empty() {
    let mut c = pair();
    assert_eq!(c.count(1, shard(0, 0), 1, 1), 1);
    // Its process lives, and hears of all that at once.
    give_up(&mut c);
    begin_empty(&mut c, 1);
    c.publish();
    c.pass(100);
    assert_eq!(c.count(1, shard(0, 0), 1, 1), 0, "state that was given up");
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(500);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert_eq!(c.report(1, shard(0, 0)).op, 1);
}

/// When it takes over, it must not deny what it does not know. Its process is there from the beginning of the shard, or
/// has restarted since.
#[test]
fn a_backup_knows_as_little_as_its_primary_of_requests_from_before_their_shard_began_empty() {
    for restarts in [false, true] {
        let (mut c, key) = (pair(), shard(0, 0));
        c.start(2, 1);
        c.publish();
        c.pass(100);
        give_up(&mut c);
        begin_empty(&mut c, 2);
        c.shard(key).backups = vec![NodeId(1)];
        c.publish();
        let deadline = c.now + Nanos::from_secs(30);
        if restarts {
            c.request(2, 2, 0, b"k", deadline);
            c.pass(600);
            assert_eq!(c.outcomes(2), [Outcome::Done]);
            c.start(1, 2);
            c.publish();
        }
        c.pass(2_000);
        c.kill(2);
        c.promote(key, 1);
        c.publish();
        c.pass(600);
        let late = c.now - Nanos::from_millis(1);
        c.request(1, 3, 0, b"k", late);
        c.pass(20);
        assert_eq!(c.outcomes(3), [Outcome::Unknown], "restarts: {restarts}");
    }
}

#[test]
fn an_old_backup_that_joins_again_has_the_new_state_only() {
    let mut c = pair();
    c.start(2, 1);
    c.publish();
    c.pass(100);
    give_up(&mut c);
    begin_empty(&mut c, 2);
    c.shard(shard(0, 0)).joining = vec![NodeId(1)];
    // The old backup hears of it last.
    c.version += 1;
    c.publish_to(2);
    c.publish_to(0);
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(500);
    c.publish_to(1);
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    for node in [1, 2] {
        assert_eq!(c.count(node, shard(0, 0), 1, 1), 0, "node {node}");
        assert_eq!(c.count(node, shard(0, 0), 1, 2), 1, "node {node}");
    }
}

#[test]
fn nobody_serves_a_shard_that_has_not_begun_again() {
    let mut c = pair();
    give_up(&mut c);
    c.publish();
    // The node that the plan still names has lost its part, and so has a new process of it.
    let has_copy = |c: &Cluster, node: u32| c.nodes[&node].worker.state(shard(0, 0)).is_some();
    assert!(!has_copy(&c, 0) && !has_copy(&c, 1));
    c.start(0, 2);
    c.publish();
    let deadline = c.now + Nanos::from_secs(30);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(1_000);
    assert!(!has_copy(&c, 0));
    assert_eq!(c.outcomes(2), []);
    begin_empty(&mut c, 0);
    c.publish();
    c.pass(1_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

/// Another node was to take over and died before it did, so the former primary goes on. It may have
/// seen the plan in between or not.
#[test]
fn a_primary_that_was_replaced_goes_on_if_its_successor_never_acted() {
    for has_seen in [false, true] {
        let mut c = pair();
        let key = shard(0, 0);
        c.kill(1);
        c.promote(key, 1);
        let plan = c.shard(key);
        plan.backups = vec![NodeId(0)];
        plan.leaving = vec![NodeId(0)];
        if has_seen {
            c.publish();
            assert_eq!(c.count(0, key, 1, 1), 1);
            // It has left, as far as the controller can tell.
            let plan = c.shard(key);
            plan.view += 1;
            plan.backups.clear();
            c.publish();
            assert_eq!(c.count(0, key, 1, 1), 1);
            assert_eq!(c.nodes[&0].worker.events(), []);
        }
        c.promote(key, 0);
        let plan = c.shard(key);
        plan.backups.clear();
        plan.leaving.clear();
        c.publish();
        let deadline = c.now + Nanos::from_secs(30);
        c.request(0, 2, 0, b"k", deadline);
        c.pass(2_000);
        assert_eq!(c.outcomes(2), [Outcome::Done], "has seen {has_seen}");
        for seq in [1, 2] {
            assert_eq!(c.count(0, key, 1, seq), 1, "request {seq}");
        }
    }
}

#[test]
fn a_primary_confirms_the_view_that_a_backup_is_to_leave() {
    let mut c = pair();
    let key = shard(0, 0);
    c.cut.extend([(0, 1), (1, 0)]);
    let plan = c.shard(key);
    plan.view += 1;
    plan.leaving = vec![NodeId(1)];
    c.publish();
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [], "acknowledged without its copy");
    let installed = NodeEvent::Installed { key, view: 2 };
    assert!(c.nodes[&0].worker.events().contains(&installed));
    let plan = c.shard(key);
    plan.view += 1;
    plan.backups.clear();
    c.publish();
    c.pass(2_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

/// Only a primary that restarted may have lost what a backup has.
#[test]
fn a_backup_on_disk_with_more_than_the_successor_of_its_primary_follows_it() {
    let (mut c, key) = (
        Cluster::new(&disk::manifest(3), 3, |_| vec![0, 1, 2]),
        shard(0, 0),
    );
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    c.cut.insert((0, 1));
    c.request(0, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!([0, 1, 2].map(|node| c.report(node, key).op), [2, 1, 2]);
    c.cut.clear();
    c.kill(0);
    c.promote(key, 1);
    c.publish();
    for _ in 0..2_000 {
        c.pass(1);
        assert_eq!(c.nodes[&2].worker.events(), [], "it has nothing to report");
    }
    c.request(1, 3, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(3), [Outcome::Done]);
    for node in [1, 2] {
        let counts = [1, 2, 3].map(|seq| c.count(node, key, 1, seq));
        assert_eq!(counts, [1, 0, 1], "node {node}");
    }
}

/// It would say if it had more than the disk of the primary. If it does not say so, nobody waits for it longer than
/// for leases.
#[test]
fn a_copy_that_leaves_and_is_silent_does_not_hold_up_a_primary_that_restarted() {
    // Node 2 tells the new process the time.
    let (mut c, key) = (
        Cluster::new(&disk::manifest(2), 3, |_| vec![0, 1]),
        shard(0, 0),
    );
    let deadline = c.now + Nanos::from_secs(30);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    c.cut.extend([(0, 1), (1, 0)]);
    c.restart(0);
    c.promote(key, 0);
    c.shard(key).leaving = vec![NodeId(1)];
    c.publish();
    c.pass(LEASE.as_millis() + 1);
    let installed = NodeEvent::Installed {
        key,
        view: c.shard(key).view,
    };
    let events = c.nodes[&0].worker.events();
    assert!(events.contains(&installed), "{events:?}");
    // So the controller lets it go.
    let plan = c.shard(key);
    plan.view += 1;
    plan.backups.clear();
    c.publish();
    c.request(0, 2, 0, b"k", deadline);
    c.pass(1_000);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}
