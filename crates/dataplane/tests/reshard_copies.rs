//! Which copies of shards become copies of the shards after a change of their number.

use crate::common::{Cluster, shard};
use crate::reshard::{
    SERVICE, ask_again, cluster, counts, freeze, manifest, request, switch, wait_until_stopped,
};
use e3_model::plan::{Role, ShardPlan};
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
