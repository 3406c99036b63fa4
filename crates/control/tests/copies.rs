//! Shards with several copies: who takes over, who is replaced, and what that means for moves.

use crate::script::{APP, AT, KEY, Script};
use e3_control::{Applied, Cancelled, Command, MoveOutcome};
use e3_model::plan::NodeEvent;
use e3_model::{NodeId, ShardKey};

/// Three copies of each shard.
fn three_copies() -> Script {
    let mut s = Script::all();
    let text = APP.replace("replicas: 2", "replicas: 3");
    s.deploy_manifest(&text).unwrap();
    s.fill();
    s
}

/// The other node of its server.
fn beside(node: NodeId) -> NodeId {
    NodeId(node.0 ^ 1)
}

#[test]
fn the_backup_that_is_heard_takes_over() {
    let mut s = three_copies();
    let before = s.shard(KEY);
    let (silent, heard) = (before.backups[0], before.backups[1]);
    s.lose_all(&[before.primary, silent]);
    let after = s.shard(KEY);
    assert_eq!(after.primary, heard);
    // The others may be alive: commits wait for them until the new primary is there.
    assert_eq!(after.backups, [silent, before.primary]);
    assert_eq!(after.leaving, after.backups);
    s.settle();
    assert_eq!(s.shard(KEY).backups.len(), 2);
    s.check();
}

#[test]
fn the_backup_that_reaches_most_takes_over_and_the_other_stays() {
    let mut s = three_copies();
    let before = s.shard(KEY);
    let (primary, worse, best) = (before.primary, before.backups[0], before.backups[1]);
    // The primary is the last to report: by then both backups are known to be cut off from it.
    s.cut(worse, &[primary, beside(primary)].into());
    s.cut(best, &[primary].into());
    assert_eq!(s.shard(KEY), before);
    s.cut(primary, &[worse, best, beside(best)].into());
    let after = s.shard(KEY);
    assert_eq!(after.primary, best);
    assert_eq!(after.backups, [worse, primary]);
    assert_eq!(after.leaving, [primary]);
    s.settle();
    assert_eq!((s.shard(KEY).backups.len(), s.state_lost()), (2, 0));
    s.check();
}

#[test]
fn a_shard_that_nobody_left_keeps_its_view() {
    for node in (0..6).map(NodeId) {
        let mut s = Script::filled();
        let before = s.shards();
        s.restart(node);
        for (old, new) in before.iter().zip(s.shards()) {
            assert_eq!(*old == new, !old.keeps(node), "{node}: {old:?} {new:?}");
        }
    }
}

#[test]
fn a_copy_leaves_when_its_primary_is_in_the_view_without_it() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let installed = |s: &mut Script, view| {
        let event = NodeEvent::Installed { key: KEY, view };
        s.ok(Command::Event(event))
    };
    assert_eq!(installed(&mut s, before.view), Applied::Nothing);
    assert_eq!(s.shard(KEY), before, "nothing leaves");
    s.lose(before.backups[0]);
    let leaving = s.shard(KEY);
    for view in [before.view, leaving.view + 1] {
        assert_eq!(installed(&mut s, view), Applied::Nothing);
        assert_eq!(s.shard(KEY), leaving, "another view");
    }
    assert_eq!(installed(&mut s, leaving.view), Applied::Changed);
    assert_eq!(s.shard(KEY).backups, []);
    s.settle();
    s.check();
}

#[test]
fn a_new_backup_goes_to_a_node_that_the_primary_reaches() {
    let before = Script::filled().shard(KEY);
    let (primary, backup) = (before.primary, before.backups[0]);
    let own = [primary, beside(primary), backup];
    for other in (0..6).map(NodeId).filter(|n| !own.contains(n)) {
        let mut s = Script::filled();
        // The backup misses as many as the primary, so it is the one to go.
        s.cut_ways(&[
            (primary, backup),
            (primary, other),
            (backup, beside(primary)),
        ]);
        s.leave();
        let after = s.shard(KEY);
        assert_eq!((after.primary, after.joining.len()), (primary, 1));
        assert!(![backup, other].contains(&after.joining[0]), "{after:?}");
        s.check();
    }
}

#[test]
fn a_new_backup_goes_to_a_node_that_reaches_most_others() {
    let before = Script::filled().shard(KEY);
    let (primary, backup) = (before.primary, before.backups[0]);
    let own = [primary, beside(primary), backup];
    for isolated in (0..6).map(NodeId).filter(|n| !own.contains(n)) {
        let mut s = Script::filled();
        let others = (0..6).map(NodeId);
        let missed = others.filter(|n| ![primary, backup, isolated].contains(n));
        let ways: Vec<_> = missed.map(|n| (isolated, n)).collect();
        s.cut_ways(&ways);
        s.exit(backup);
        let after = s.shard(KEY);
        assert_eq!((after.primary, after.joining.len()), (primary, 1));
        assert_ne!(after.joining, [isolated]);
        s.check();
    }
}

#[test]
fn a_shard_that_waits_gets_no_backup() {
    // No third server: nobody can replace the backup.
    let mut s = Script::up(&["s1-host", "s2-host"]);
    s.deploy().unwrap();
    s.fill();
    let before = s.shard(KEY);
    s.exit(before.backups[0]);
    s.lose(before.primary);
    let alone = s.shard(KEY);
    assert_eq!(s.waits_for(KEY), [before.primary]);
    s.join("s3-host", 7);
    assert_eq!(s.shard(KEY), alone);
    s.hear(before.primary);
    let after = s.shard(KEY);
    assert_eq!((after.primary, after.joining.len()), (before.primary, 1));
    assert_eq!(after.view, alone.view + 1);
    s.settle();
    s.check();
}

#[test]
fn nothing_joins_a_shard_that_moves() {
    let mut s = three_copies();
    let before = s.shard(KEY);
    let to = beside(before.primary);
    let id = s.migrate(before.primary, to);
    s.lose_all(&before.backups);
    s.leave();
    let moving = s.shard(KEY);
    assert_eq!((moving.backups, moving.joining), (vec![], vec![to]));
    s.settle();
    assert_eq!(s.outcome(id), Some(MoveOutcome::Done));
    let after = s.shard(KEY);
    assert_eq!((after.primary, after.backups.len()), (to, 2));
    s.check();
}

#[test]
fn the_move_of_one_shard_holds_up_no_other() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let to = beside(before.primary);
    s.migrate(before.primary, to);
    let ends = [before.primary, to];
    let mut others = s.shards().into_iter().filter(|o| o.shard != KEY.shard);
    let other = others.find(|o| !ends.contains(&o.backups[0])).unwrap();
    let key = ShardKey {
        app: KEY.app,
        service: other.service,
        shard: other.shard,
    };
    s.exit(other.backups[0]);
    assert_eq!(s.control.apps[&KEY.app].migrations.len(), 1);
    assert_eq!(s.shard(key).joining.len(), 1);
    s.settle();
    s.check();
}

#[test]
fn the_copy_of_a_move_stays_if_it_is_needed() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let from = before.backups[0];
    let taken = [before.primary, beside(before.primary), from, beside(from)];
    let mut nodes = (0..6).map(NodeId);
    let to = nodes.find(|n| !taken.contains(n)).unwrap();
    let id = s.migrate(from, to);
    s.lose(from);
    let lost = MoveOutcome::Cancelled(Cancelled::SourceLost);
    assert_eq!(s.outcome(id), Some(lost));
    // It would be the next backup in any case, and has much of the state already.
    assert_eq!(s.shard(KEY).joining, [to]);
    s.settle();
    assert_eq!(s.shard(KEY).backups, [to]);
    s.check();
}

#[test]
fn a_move_ends_with_the_nodes_that_it_needs() {
    let before = Script::filled().shard(KEY);
    let (primary, backup) = (before.primary, before.backups[0]);
    let off = |why| Some(MoveOutcome::Cancelled(why));
    let done = Some(MoveOutcome::Done);
    let silent_all = [primary, backup];
    for (from, gone, outcome) in [
        (primary, vec![primary], off(Cancelled::SourceLost)),
        (primary, vec![beside(primary)], off(Cancelled::TargetLost)),
        (primary, vec![backup], done),
        (primary, silent_all.to_vec(), off(Cancelled::SourceLost)),
        (backup, vec![primary], off(Cancelled::PrimaryLost)),
        (backup, vec![backup], off(Cancelled::SourceLost)),
        (backup, vec![beside(backup)], off(Cancelled::TargetLost)),
        (backup, vec![beside(primary)], done),
    ] {
        for exits in [false, true] {
            let mut s = Script::filled();
            let id = s.migrate(from, beside(from));
            if exits {
                s.exit(gone[0]);
            } else {
                s.lose_all(&gone);
            }
            let ended = outcome.filter(|o| *o != MoveOutcome::Done);
            assert_eq!(s.outcome(id), ended, "{from}, {gone:?}, {exits}");
            for node in &gone {
                s.restart_if_silent(*node);
            }
            s.settle();
            assert_eq!(s.outcome(id), outcome);
            s.check();
        }
    }
}

#[test]
fn moves_are_numbered_from_one() {
    let mut s = Script::filled();
    let primary = s.shard(KEY).primary;
    for id in 1..=3 {
        assert_eq!(s.migrate(primary, beside(primary)), id);
        s.ok(Command::Cancel { key: KEY });
    }
}

#[test]
fn what_instances_take_is_taken_from_their_nodes() {
    const COPY_BYTES: u64 = 64 << 20;
    let mut s = Script::filled();
    let taken = |s: &Script| {
        let cluster = s.control.resources();
        let nodes = cluster.nodes().map(|(_, n)| n.used);
        let (cores, bytes): (Vec<f64>, Vec<u64>) =
            nodes.map(|d| (d.cpu_cores, d.memory_bytes)).unzip();
        let centicores = (cores.iter().sum::<f64>() * 100.0).round() as u64;
        (centicores, bytes.iter().sum::<u64>() / COPY_BYTES)
    };
    // Half a core for each primary, a tenth of that for each backup.
    assert_eq!(taken(&s), (3 * 50 + 3 * 5, 6));
    // What nobody serves takes nothing.
    let all: Vec<NodeId> = (0..6).map(NodeId).collect();
    s.lose_all(&all);
    s.ok(Command::Forget { key: KEY, at: AT });
    assert_eq!(taken(&s), (2 * 50 + 2 * 5, 4));
}
