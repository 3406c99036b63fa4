//! A new primary that has not heard of all views before its own: for whose leases it waits, and for whose not.

use crate::common::{Cluster, shard};
use crate::plans::TWO;
use e3_model::ShardKey;
use e3_model::timing::LEASE;

fn first() -> ShardKey {
    shard(0, 0)
}

fn serves(c: &Cluster, node: u32) -> bool {
    c.report(node, first()).serving
}

/// A plan older than that of the primary in between comes just before the one in which this node takes over.
#[test]
fn a_node_that_catches_up_plan_by_plan_waits_for_a_primary_whose_plans_were_newer() {
    let mut c = Cluster::new(TWO, 4, |_| vec![0, 1, 2, 3]);
    let before = c.plan.clone();
    c.kill(0);
    for n in 0..2 {
        c.promote(shard(0, n), 1);
    }
    c.version += 2;
    c.publish_to(1);
    c.publish_to(2);
    c.pass(2 * LEASE.as_millis());
    assert!(serves(&c, 1), "the others grant their leases");
    let present = std::mem::replace(&mut c.plan, before);
    c.version -= 1;
    c.publish_to(3);
    c.plan = present;
    // Two fail-overs follow of which node 1 does not hear.
    c.promote(first(), 2);
    c.promote(first(), 3);
    c.version += 3;
    c.publish_to(3);
    for _ in 0..=LEASE.as_millis() {
        assert!(!serves(&c, 1) || !serves(&c, 3), "both serve");
        c.pass(1);
    }
    assert!(serves(&c, 3));
}

/// The first shard is on nodes 0 to 2, the second on nodes 3 and 1. Node 3 hears of a plan first.
fn with_one_ahead() -> Cluster {
    let mut c = Cluster::new(TWO, 4, |key| match key.shard.0 {
        0 => vec![0, 1, 2],
        _ => vec![3, 1],
    });
    c.version += 1;
    c.publish_to(3);
    c.pass(100);
    c
}

/// The primary's process ends, and what it was promised runs out. Then these nodes take over one after the other, and
/// only the last one hears of it. It is alone, so that it needs no lease.
fn fail_over(c: &mut Cluster, heirs: &[u32]) {
    c.kill(0);
    c.pass(LEASE.as_millis() + 1);
    for heir in heirs {
        c.promote(first(), *heir);
    }
    c.shard(first()).backups.clear();
    c.version += 1;
    c.publish_to(heirs[heirs.len() - 1]);
    assert!(
        c.report(3, shard(0, 1)).serving,
        "it has the lease of node 1"
    );
}

#[test]
fn a_successor_does_not_wait_for_a_node_with_newer_plans_if_it_has_heard_of_every_view() {
    let mut c = with_one_ahead();
    fail_over(&mut c, &[1]);
    assert!(serves(&c, 1));
}

#[test]
fn a_successor_does_not_wait_for_a_node_that_had_newer_plans_once() {
    let mut c = with_one_ahead();
    for node in 0..3 {
        c.publish_to(node);
    }
    c.pass(100);
    fail_over(&mut c, &[2, 1]);
    assert!(serves(&c, 1));
}
