//! Nodes that cannot reach each other, while the controller hears all of them.

use crate::script::{KEY, Script};
use e3_model::NodeId;
use e3_testkit::{Random, seeds};
use std::collections::BTreeSet;

fn all_nodes() -> BTreeSet<NodeId> {
    (0..6).map(NodeId).collect()
}

#[test]
fn a_primary_that_reaches_nobody_is_replaced_by_a_backup_that_does() {
    // In any order of the reports.
    for first in [true, false] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let mut rest = all_nodes();
        rest.remove(&before.primary);
        if first {
            s.cut(before.primary, &rest);
        }
        for node in &rest {
            s.cut(*node, &BTreeSet::from([before.primary]));
        }
        if !first {
            s.cut(before.primary, &rest);
        }
        let after = s.shard(KEY);
        assert_eq!(after.primary, before.backups[0], "{first}");
        assert!(!after.fenced, "its leases may still run");
        s.settle();
        let after = s.shard(KEY);
        assert_eq!(after.backups.len(), 1);
        assert_ne!(after.backups[0], before.primary, "it reaches nobody");
        // What holds nothing any more takes no part, and comes back when the cut heals.
        let plan = s.control.plan_for(NodeId(0));
        let parts = plan.apps[0].shards.iter();
        assert!(parts.clone().all(|s| s.role(before.primary).is_none()));
        for node in all_nodes() {
            s.cut(node, &BTreeSet::new());
        }
        assert_eq!(s.shard(KEY).primary, after.primary, "no way back");
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

/// As many nodes miss the one as the other, so the count of cut ways does not decide.
#[test]
fn a_primary_whose_clock_is_wrong_is_replaced_by_its_backup() {
    for first in [true, false] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let (primary, backup) = (before.primary, before.backups[0]);
        let wrong = BTreeSet::from([primary, backup]);
        if first {
            s.cut(primary, &wrong);
        }
        s.cut(backup, &BTreeSet::from([primary]));
        if !first {
            s.cut(primary, &wrong);
        }
        assert_eq!(s.shard(KEY).primary, backup, "{first}");
        s.settle();
        assert_ne!(s.shard(KEY).backups, [primary], "it serves nobody");
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

/// A server lost its power: whom its last peer misses says nothing, and gets nothing.
#[test]
fn a_primary_that_misses_dead_nodes_keeps_its_shards() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let mut rest = all_nodes();
    rest.remove(&before.primary);
    s.cut(before.primary, &rest);
    assert_eq!(s.shard(KEY), before);
    for node in rest {
        s.lose(node);
    }
    assert_eq!(s.shard(KEY).primary, before.primary);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

/// Whoever is first to miss a primary that is dead, its backup remains, and takes over.
#[test]
fn a_dead_primary_keeps_its_backup_whatever_is_reported_first() {
    for first in 0..6 {
        for reports in 1..=5 {
            let mut s = Script::filled();
            let before = s.shard(KEY);
            let order = (0..6).map(|n| NodeId((n + first) % 6));
            let others = order.filter(|n| *n != before.primary);
            for node in others.take(reports) {
                s.cut(node, &BTreeSet::from([before.primary]));
            }
            s.lose(before.primary);
            assert_eq!(s.shard(KEY).primary, before.backups[0]);
            s.restart(before.primary);
            assert_eq!(s.state_lost(), 0, "{first} {reports}");
        }
    }
}

#[test]
fn a_single_cut_replaces_the_backup() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    s.cut(before.primary, &BTreeSet::from([before.backups[0]]));
    assert_eq!(s.shard(KEY), before, "the word of one end is not enough");
    s.cut(before.backups[0], &BTreeSet::from([before.primary]));
    s.leave();
    let after = s.shard(KEY);
    assert_eq!(after.primary, before.primary);
    assert_eq!(after.incarnation, before.incarnation, "nobody is disturbed");
    assert!(!after.backups.contains(&before.backups[0]));
    assert_eq!(after.joining.len(), 1);
    assert_ne!(after.joining, before.backups);
    s.settle();
    s.check();
}

#[test]
fn nothing_moves_when_nobody_reaches_anybody() {
    let mut s = Script::filled();
    for node in all_nodes() {
        let mut rest = all_nodes();
        rest.remove(&node);
        // In any order of the reports: the word of the first few must not be enough for what the
        // rest would undo.
        s.cut(node, &rest);
    }
    let before = s.shard(KEY);
    for node in all_nodes() {
        s.cut(node, &BTreeSet::new());
    }
    s.settle();
    assert_eq!(s.state_lost(), 0);
    assert_eq!(s.shard(KEY).primary, before.primary);
    s.check();
}

#[test]
fn cuts_in_any_order_lose_nothing() {
    for seed in seeds(100) {
        let mut random = Random::new(seed);
        let mut s = Script::filled();
        for step in 0..40 {
            println!("seed {seed}, step {step}");
            let node = NodeId(random.below(6) as u32);
            match random.below(4) {
                0 | 1 => {
                    let some = all_nodes().into_iter();
                    let some = some
                        .filter(|n| *n != node && random.below(3) == 0)
                        .collect();
                    s.cut(node, &some);
                }
                2 if s.control.is_up(node) => s.lose(node),
                2 => s.hear(node),
                _ => s.settle_reachable(),
            }
            assert_eq!(s.state_lost(), 0, "seed {seed}, step {step}");
        }
        for node in all_nodes() {
            s.hear_if_silent(node);
            s.cut(node, &BTreeSet::new());
        }
        s.settle();
        let app = &s.control.apps[&KEY.app];
        for shard in &app.plan.shards {
            assert_eq!(shard.backups.len(), 1, "seed {seed}: {shard:?}");
        }
        s.check();
    }
}
