//! Outcomes of moves and losses of state, and how they are reported.

use crate::script::{KEY, NODES, Script};
use e3_control::limits::MOVES_MAX;
use e3_control::{Applied, Cancelled, Command, CommandError, MoveOutcome};
use e3_model::plan::NodeEvent;
use e3_model::{AppId, NodeId};

#[test]
fn a_shard_loses_its_state_once_however_many_nodes_go() {
    let mut s = Script::all();
    s.deploy().unwrap();
    // Nothing was committed, so nothing can be lost.
    for node in 0..6 {
        s.lose(NodeId(node));
    }
    for (i, name) in NODES.iter().enumerate() {
        s.join(name, 500 + i as u64);
    }
    s.settle();
    assert_eq!(s.state_lost(), 0);
    // All nodes are lost one after another and return: one loss for each of three shards, although
    // some of them restarted on nodes that were lost next.
    s.fill();
    for node in 0..6 {
        s.lose(NodeId(node));
    }
    for (i, name) in NODES.iter().enumerate() {
        s.join(name, 600 + i as u64);
    }
    s.settle();
    assert_eq!(s.state_lost(), 3);
    // The shards have committed nothing since.
    for (i, name) in NODES.iter().enumerate() {
        s.join(name, 700 + i as u64);
    }
    s.settle();
    assert_eq!(s.state_lost(), 3);
    // An event of an older primary changes nothing.
    let stale = NodeEvent::Filled {
        key: KEY,
        incarnation: s.shard(KEY).incarnation - 1,
    };
    assert_eq!(s.ok(Command::Event(stale)), Applied::Nothing);
    s.fill();
    assert!(s.shard(KEY).filled);
    s.check();
}

#[test]
fn every_move_has_the_outcome_that_it_had() {
    let done = Some(MoveOutcome::Done);
    let off = |why| Some(MoveOutcome::Cancelled(why));
    let mut s = Script::all();
    s.deploy().unwrap();
    let from = s.shard(KEY).primary;
    let to = NodeId(from.0 ^ 1);

    // Cancelled, then done, then moved on: each keeps its own outcome.
    let first = s.migrate(from, to);
    assert_eq!(s.outcome(first), None);
    s.ok(Command::Cancel { key: KEY });
    let second = s.migrate(from, to);
    s.settle();
    assert_eq!(s.shard(KEY).primary, to);
    let third = s.migrate(to, from);
    s.settle();
    assert_eq!(s.shard(KEY).primary, from);
    assert_eq!(s.outcome(first), off(Cancelled::Stalled));
    assert_eq!((s.outcome(second), s.outcome(third)), (done, done));

    // A late cancellation has no effect.
    assert_eq!(s.ok(Command::Cancel { key: KEY }), Applied::Nothing);
    assert_eq!(s.outcome(third), done);

    // The target is lost, or the node that the replica leaves.
    let fourth = s.migrate(from, to);
    s.lose(to);
    assert_eq!(s.outcome(fourth), off(Cancelled::TargetLost));
    s.join(NODES[to.index()], 900);
    s.settle();
    let fifth = s.migrate(from, to);
    s.lose(from);
    assert_eq!(s.outcome(fifth), off(Cancelled::SourceLost));
    s.join(NODES[from.index()], 902);
    s.settle();

    // Its backup is where it goes, and takes over because the primary is lost: it is there.
    let (from, to) = (s.shard(KEY).primary, s.shard(KEY).backups[0]);
    let sixth = s.migrate(from, to);
    s.lose(from);
    assert_eq!(s.shard(KEY).primary, to);
    assert_eq!(s.outcome(sixth), done);

    // No more are kept than the bound says.
    s.join(NODES[from.index()], 901);
    s.settle();
    for _ in 0..MOVES_MAX {
        let from = s.shard(KEY).primary;
        s.migrate(from, NodeId(from.0 ^ 1));
        s.settle();
    }
    assert_eq!(s.control.apps[&AppId(1)].moved.len(), MOVES_MAX);
    assert_eq!(s.outcome(sixth), None);
    s.check();
}

#[test]
fn what_is_refused_is_named_as_users_name_it() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let shard = s.shard(KEY);
    let text = |refused: Result<Applied, CommandError>| refused.unwrap_err().to_string();
    let nowhere = (0..6)
        .map(NodeId)
        .find(|n| shard.role(*n).is_none())
        .unwrap();
    let migrate = |from, to| Command::Migrate {
        key: KEY,
        from,
        to,
        cold: false,
    };
    let errors = [
        text(s.apply(migrate(nowhere, shard.primary))),
        text(s.apply(migrate(shard.primary, shard.primary))),
        text(s.apply(migrate(shard.primary, NodeId(shard.backups[0].0 ^ 1)))),
    ];
    for error in errors {
        assert!(error.starts_with("two-services/back/0 "), "{error}");
        assert!(NODES.iter().any(|n| error.contains(n)), "{error}");
    }
}

#[test]
fn a_cold_move_stops_the_shard_before_its_state_is_copied() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let (from, to) = (before.primary, NodeId(before.primary.0 ^ 1));
    let cold = |from, to| Command::Migrate {
        key: KEY,
        from,
        to,
        cold: true,
    };
    let synced = |s: &Script| NodeEvent::Synced {
        key: KEY,
        view: s.shard(KEY).view,
        backup: to,
    };
    let frozen = |s: &Script| NodeEvent::Frozen {
        key: KEY,
        view: s.shard(KEY).view,
    };
    let Applied::Moving(id) = s.ok(cold(from, to)) else {
        panic!("it has begun")
    };
    assert!(s.shard(KEY).frozen);
    assert_eq!(s.shard(KEY).joining, [to]);
    // The primary is at rest at once, long before the new node has the state.
    let at_rest = frozen(&s);
    assert_eq!(s.ok(Command::Event(at_rest)), Applied::Nothing);
    assert_eq!(s.shard(KEY).primary, from);
    let has_all = synced(&s);
    s.ok(Command::Event(has_all));
    assert!(s.shard(KEY).frozen);
    let at_rest = frozen(&s);
    s.ok(Command::Event(at_rest));
    let after = s.shard(KEY);
    assert_eq!((after.primary, after.frozen), (to, false));
    assert_eq!(s.outcome(id), Some(MoveOutcome::Done));
    s.settle();

    // Cancelled, and the target lost: the shard serves where it was.
    let back = s.migrate_cold(to, from);
    s.ok(Command::Cancel { key: KEY });
    assert!(!s.shard(KEY).frozen);
    let stalled = MoveOutcome::Cancelled(Cancelled::Stalled);
    assert_eq!(s.outcome(back), Some(stalled));
    s.leave();
    let again = s.migrate_cold(to, from);
    s.lose(from);
    assert_eq!((s.shard(KEY).primary, s.shard(KEY).frozen), (to, false));
    let lost = MoveOutcome::Cancelled(Cancelled::TargetLost);
    assert_eq!(s.outcome(again), Some(lost));

    // A backup serves no requests.
    let backup = s.shard(KEY).backups[0];
    let refused = s.apply(cold(backup, NodeId(backup.0 ^ 1))).unwrap_err();
    let name = NODES[backup.index()];
    assert_eq!(
        refused.to_string(),
        format!(
            "the backup of two-services/back/0 on node {name} cannot migrate cold: only a primary can"
        )
    );
    s.check();
}

/// Where a primary went to may be dead by then.
#[test]
fn a_primary_that_has_moved_goes_on_if_its_successor_dies_first() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let (from, to) = (before.primary, before.backups[0]);
    s.migrate(from, to);
    let view = s.shard(KEY).view;
    s.ok(Command::Event(NodeEvent::Frozen { key: KEY, view }));
    let moved = s.shard(KEY);
    assert_eq!((moved.primary, moved.leaving), (to, vec![from]));
    // Back at once: it has everything.
    let back = s.migrate(to, from);
    assert!(s.shard(KEY).leaving.is_empty());
    s.ok(Command::Cancel { key: KEY });
    assert_eq!(
        s.outcome(back),
        Some(MoveOutcome::Cancelled(Cancelled::Stalled))
    );
    s.restart(to);
    assert_eq!((s.shard(KEY).primary, s.state_lost()), (from, 0));
    s.settle();
    s.check();
}
