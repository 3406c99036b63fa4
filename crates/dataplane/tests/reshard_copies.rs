//! Which copies of shards become copies of the shards after a change of their number.

use crate::common::{Cluster, shard};
use crate::reshard::{
    SERVICE, ask_again, cluster, counts, freeze, key_of, manifest, request, switch,
    wait_until_stopped,
};
use e3_model::plan::{Role, ShardPlan};
use e3_model::timing::LEASE;
use e3_model::{NodeId, ShardKey};

/// The process of a node ends for good; a node that has its state takes over its shards.
fn lose(c: &mut Cluster, node: u32, heir: u32) {
    c.kill(node);
    let keys: Vec<ShardKey> = c.plan.shards.iter().map(|s| c.plan.key(s)).collect();
    for key in keys {
        if c.shard(key).primary == NodeId(node) {
            c.promote(key, heir);
        } else {
            c.shard(key).backups.clear();
        }
    }
    c.publish();
    c.pass(600);
}

#[test]
fn a_backup_takes_over_a_shard_that_was_made_of_others() {
    let mut c = cluster("memory");
    for seq in 1..=40 {
        request(&mut c, seq);
    }
    c.pass(200);
    // Its node hears of the change only when it is to take over.
    freeze(&mut c);
    wait_until_stopped(&mut c);
    switch(&mut c, 4);
    c.version += 1;
    c.publish_to(1);
    lose(&mut c, 1, 0);
    ask_again(&mut c, 40);
    for seq in 41..=60 {
        request(&mut c, seq);
    }
    c.pass(300);
    let wrong = counts(&c, 60, false).into_iter().filter(|(_, n)| *n != 1);
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

/// A backup that has joined hears nothing of that, nor of the change, before it is to take over, or to leave.
#[test]
fn a_copy_that_joined_unawares_takes_over_a_shard_that_was_made_of_it() {
    for (durability, leaves) in [
        ("memory", false),
        ("memory", true),
        ("disk", false),
        ("disk", true),
    ] {
        let mut c = Cluster::new(&manifest(durability), 3, |key| match key.service {
            SERVICE => vec![1],
            _ => vec![0, 1],
        });
        for seq in 1..=40 {
            request(&mut c, seq);
        }
        c.pass(200);
        let of_service = |s: &&mut ShardPlan| s.service == SERVICE;
        for shard in c.plan.shards.iter_mut().filter(of_service) {
            shard.view += 1;
            shard.joining = vec![NodeId(0)];
        }
        c.publish();
        c.pass(200);
        for shard in c.plan.shards.iter_mut().filter(of_service) {
            shard.view += 1;
            shard.backups = std::mem::take(&mut shard.joining);
            (shard.frozen, shard.quiet) = (true, true);
        }
        c.version += 1;
        c.publish_to(1);
        wait_until_stopped(&mut c);
        assert_eq!(c.report(0, shard(SERVICE.0, 0)).role, Role::Joining);
        switch(&mut c, 4);
        c.version += 1;
        c.publish_to(1);
        if leaves {
            for shard in c.plan.shards.iter_mut().filter(of_service) {
                shard.view += 1;
                shard.leaving = std::mem::take(&mut shard.backups);
            }
            c.publish();
        }
        lose(&mut c, 1, 0);
        ask_again(&mut c, 40);
        c.pass(300);
        let wrong = counts(&c, 40, false).into_iter().filter(|(_, n)| *n != 1);
        assert_eq!(
            wrong.collect::<Vec<_>>(),
            [],
            "{durability}, leaves: {leaves}"
        );
    }
}

/// A node began a copy of the second shard and heard nothing more until there were four shards. Their second
/// is one of those that its copy of the first becomes.
#[test]
fn a_shard_that_is_made_of_another_takes_the_place_of_an_earlier_one() {
    let mut c = Cluster::new(&manifest("disk"), 3, |key| {
        match (key.service, key.shard.0) {
            (SERVICE, 0) => vec![0, 1],
            (SERVICE, _) => vec![2, 0],
            _ => vec![2, 0],
        }
    });
    for seq in 1..=40 {
        request(&mut c, seq);
    }
    c.pass(200);
    let second = shard(SERVICE.0, 1);
    c.shard(second).joining = vec![NodeId(1)];
    c.cut.extend([(2, 1)]);
    c.publish();
    c.pass(50);
    assert_eq!(c.report(1, second).role, Role::Joining);
    c.cut.clear();
    c.shard(second).joining.clear();
    switch(&mut c, 4);
    c.publish();
    c.pass(50);
    // The node has only its disk left, and takes over.
    c.restart(1);
    lose(&mut c, 0, 1);
    ask_again(&mut c, 40);
    c.pass(500);
    let wrong = counts(&c, 40, false).into_iter().filter(|(_, n)| *n != 1);
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

/// The shards of the service.
fn keys(c: &Cluster) -> Vec<ShardKey> {
    let of_service = c.plan.shards.iter().filter(|s| s.service == SERVICE);
    of_service.map(|s| c.plan.key(s)).collect()
}

/// A node takes over all shards of the service, and has to wait for leases.
fn promote(c: &mut Cluster, node: u32) {
    for key in keys(c) {
        c.promote(key, node);
        c.shard(key).fenced = false;
    }
}

fn serves(c: &Cluster, node: u32) -> bool {
    let mut keys = keys(c).into_iter();
    keys.all(|key| c.report(node, key).serving)
}

#[test]
fn a_copy_of_shards_before_waits_for_an_unheard_primary_of_the_shards_after() {
    let mut c = Cluster::new(&manifest("memory"), 5, |key| match key.service {
        SERVICE => vec![1, 0, 2, 3],
        _ => vec![4],
    });
    freeze(&mut c);
    wait_until_stopped(&mut c);
    // Node 0 hears of nothing that follows, before it is to take over.
    switch(&mut c, 4);
    c.version += 1;
    for node in 1..5 {
        c.publish_to(node);
    }
    c.kill(1);
    promote(&mut c, 2);
    c.version += 1;
    for node in 2..5 {
        c.publish_to(node);
    }
    c.pass(2 * LEASE.as_millis());
    assert!(serves(&c, 2), "the others grant their leases");
    promote(&mut c, 3);
    promote(&mut c, 0);
    c.version += 2;
    c.publish_to(0);
    for _ in 0..=LEASE.as_millis() {
        assert!(!serves(&c, 2) || !serves(&c, 0), "both serve");
        c.pass(1);
    }
    assert!(serves(&c, 0));
}

/// It has heard of every view, only later than the other node.
#[test]
fn a_copy_of_shards_after_does_not_wait_for_a_node_that_heard_of_the_change_first() {
    let mut c = Cluster::new(&manifest("memory"), 4, |key| match key.service {
        SERVICE => vec![1, 0],
        _ => vec![3, 0],
    });
    freeze(&mut c);
    wait_until_stopped(&mut c);
    switch(&mut c, 4);
    c.version += 1;
    c.publish_to(3);
    c.pass(100);
    for node in 0..3 {
        c.publish_to(node);
    }
    c.kill(1);
    c.pass(LEASE.as_millis() + 1);
    promote(&mut c, 0);
    c.version += 1;
    c.publish_to(0);
    assert!(
        c.report(3, shard(0, 0)).serving,
        "it has the lease of node 0"
    );
    assert!(serves(&c, 0));
}

/// The copy is to leave. Its node does not hear that the state was given up, nor of the shards that began empty,
/// before these are split.
#[test]
fn a_copy_of_a_state_that_was_given_up_is_no_copy_of_the_shards_after() {
    let mut c = cluster("memory");
    for seq in 1..=40 {
        request(&mut c, seq);
    }
    c.pass(200);
    let of_backup = |c: &Cluster| -> i64 {
        let count = |seq| c.count(0, key_of(c, seq), 1, seq);
        (1..=40).map(count).sum()
    };
    assert_eq!(of_backup(&c), 40);
    c.kill(1);
    for key in keys(&c) {
        let shard = c.shard(key);
        shard.view += 1;
        shard.era = shard.view;
        shard.leaving = std::mem::take(&mut shard.backups);
        c.promote(key, 2);
    }
    c.version += 1;
    c.publish_to(2);
    switch(&mut c, 4);
    c.publish();
    assert_eq!(of_backup(&c), 0);
    for key in keys(&c) {
        assert_eq!(c.report(0, key).op, 0, "{key}");
    }
}
