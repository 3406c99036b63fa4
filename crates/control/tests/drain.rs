//! Nodes are taken out of service and come back.

use crate::formats::BEFORE_WAITS_END;
use crate::script::{APP, KEY, Script};
use e3_control::limits::RETURN_MOVES_MAX;
use e3_control::{Applied, Cancelled, Command, CommandError, MoveOutcome, Stays};
use e3_model::plan::ShardPlan;
use e3_model::{AppId, Format, NodeId, ServiceId};
use e3_placement::Misfit;

fn drain(s: &mut Script, node: NodeId) -> Applied {
    s.ok(Command::Drain { node })
}

fn resume(s: &mut Script, node: NodeId) -> Applied {
    s.ok(Command::Resume { node })
}

fn is_empty(s: &Script, node: NodeId) -> bool {
    s.shards().iter().all(|shard| !shard.keeps(node))
}

fn moves(s: &Script) -> usize {
    s.control.apps[&AppId(1)].migrations.len()
}

/// Every shard has its primary and one complete backup, and nothing is in flight.
fn is_whole(s: &Script) -> bool {
    let whole =
        |p: &ShardPlan| p.backups.len() == 1 && p.joining.is_empty() && p.leaving.is_empty();
    s.shards().iter().all(whole)
}

#[test]
fn a_drained_node_loses_its_replicas_and_gets_none() {
    let mut s = Script::filled();
    let node = s.shard(KEY).primary;
    assert_eq!(drain(&mut s, node), Applied::Changed);
    assert_eq!(drain(&mut s, node), Applied::Nothing);
    // At most two at a time; the others say that they wait for their turn.
    assert!((1..=2).contains(&moves(&s)));
    for left in s.control.undrained(node) {
        assert!(matches!(
            left.stays,
            Stays::Moving { .. } | Stays::Queued | Stays::Settling
        ));
    }
    // No shard has fewer copies meanwhile.
    for _ in 0..20 {
        assert!(s.shards().iter().all(|p| !p.backups.is_empty()));
        s.settle_reachable();
    }
    s.settle();
    assert!(is_empty(&s, node) && is_whole(&s));
    assert!(s.control.undrained(node).is_empty());
    assert!(s.control.is_up(node), "it stays a member");

    // Its process restarts: it is drained still, also after a fail-over and a deployment.
    s.restart(node);
    let other = s.shard(KEY).primary;
    s.lose_and_leave(other);
    s.deploy_manifest(&APP.replace("two-services", "others"))
        .unwrap();
    s.settle();
    let apps = s.control.apps.values();
    let mut shards = apps.flat_map(|app| &app.plan.shards);
    assert!(shards.all(|shard| !shard.keeps(node)));
    let refused = s.apply(Command::Migrate {
        key: KEY,
        from: s.shard(KEY).primary,
        to: node,
        cold: false,
    });
    let Err(CommandError::Misfit { misfit, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(misfit, Misfit::Drained);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn what_cannot_move_stays_and_says_why() {
    let mut s = Script::up(&["s1-host", "s2-host"]);
    s.deploy().unwrap();
    s.fill();
    let before = s.shards();
    let node = NodeId(0);
    drain(&mut s, node);
    assert_eq!(s.shards(), before, "nothing changes");
    let left = s.control.undrained(node);
    assert_eq!(left.len(), 3);
    for replica in &left {
        let Stays::NoRoom(misfits) = &replica.stays else {
            panic!("{left:?}");
        };
        let why = |node| misfits.iter().find(|(n, _)| *n == NodeId(node)).unwrap();
        assert!(
            matches!(why(2).1, Misfit::FaultDomain { .. }),
            "{misfits:?}"
        );
        assert_eq!(why(4).1, Misfit::NotMember);
    }
    // As soon as there is room, they move.
    s.join("s3-nic0", 7);
    s.settle();
    assert!(is_empty(&s, node) && is_whole(&s));
    s.check();
}

#[test]
fn moves_to_a_drained_node_end_and_its_silence_changes_nothing() {
    let mut s = Script::filled();
    let from = s.shard(KEY).primary;
    let to = NodeId(from.0 ^ 1);
    let id = s.migrate(from, to);
    drain(&mut s, to);
    let cancelled = MoveOutcome::Cancelled(Cancelled::Drained);
    assert_eq!(s.outcome(id), Some(cancelled));
    s.settle();
    assert!(is_empty(&s, to));
    // A primary moves off while its node falls silent and comes back.
    drain(&mut s, from);
    s.lose(from);
    s.settle_reachable();
    s.hear(from);
    s.settle();
    assert!(is_empty(&s, from) && is_empty(&s, to) && is_whole(&s));
    assert_eq!(s.state_lost(), 0);
    s.check();
}

/// What keeps the shard on a drained node.
fn stays(s: &Script, node: NodeId) -> Option<Stays> {
    let left = s.control.undrained(node);
    left.into_iter().find(|l| l.key == KEY).map(|l| l.stays)
}

/// A node is drained, with a log of this format, and the move of a primary that it had stalled.
fn stalled(format: Format) -> (Script, NodeId) {
    let mut s = Script::filled_in(format);
    let node = s.shard(KEY).primary;
    drain(&mut s, node);
    let moves = |s: &Script| {
        let app = &s.control.apps[&AppId(1)];
        app.migrations.iter().any(|m| m.key == KEY)
    };
    while !moves(&s) {
        s.settle_reachable();
    }
    s.ok(Command::Cancel { key: KEY });
    assert_eq!(stays(&s, node), Some(Stays::Stalled));
    (s, node)
}

#[test]
fn a_shard_whose_move_stalled_is_moved_again_when_nodes_change() {
    let (mut s, node) = stalled(Format::default());
    s.settle();
    assert_eq!(s.shard(KEY).primary, node, "not frozen again and again");
    s.lose(NodeId(node.0 ^ 1));
    s.hear(NodeId(node.0 ^ 1));
    s.settle();
    assert!(is_empty(&s, node));
    s.check();
}

#[test]
fn an_operator_who_drains_again_has_stalled_moves_tried_again() {
    let (mut s, node) = stalled(Format::WAITS_END);
    s.settle();
    assert_eq!(s.shard(KEY).primary, node);
    assert_eq!(drain(&mut s, node), Applied::Changed);
    s.settle();
    assert!(is_empty(&s, node));
    assert_eq!(drain(&mut s, node), Applied::Nothing);
    s.check();
    // An older log has nothing to say so.
    let (mut s, node) = stalled(BEFORE_WAITS_END);
    assert_eq!(drain(&mut s, node), Applied::Nothing);
    assert_eq!(stays(&s, node), Some(Stays::Stalled));
    s.check();
}

#[test]
fn a_shard_whose_move_stalled_is_moved_again_when_its_backup_is_replaced() {
    for (format, is_moved) in [(Format::WAITS_END, true), (BEFORE_WAITS_END, false)] {
        let (mut s, node) = stalled(format);
        let backup = s.shard(KEY).backups[0];
        s.lose(backup);
        for _ in 0..20 {
            s.settle_reachable();
        }
        s.settle();
        assert_eq!(s.shard(KEY).primary != node, is_moved, "format {format}");
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

#[test]
fn a_stalled_move_is_not_tried_again_because_another_application_is_deleted() {
    let (mut s, node) = stalled(Format::WAITS_END);
    let text = APP.replace("two-services", "other");
    s.deploy_manifest(&text).unwrap();
    let app = "other".into();
    s.ok(Command::Delete { app });
    assert_eq!(stays(&s, node), Some(Stays::Stalled));
    // With its own it ends.
    let app = "two-services".into();
    s.ok(Command::Delete { app });
    assert_eq!(s.control.undrained(node), []);
    s.check();
}

#[test]
fn placement_comes_back_to_a_node_that_returned_and_comes_to_rest() {
    // The second service stands on the SmartNIC beside the first.
    let pinned = APP
        .replacen("replicas: 2\n", "replicas: 2\n      pin: {kind: host}\n", 1)
        .replacen("shards: 2\n", "shards: 2\n      pin: {kind: smartnic}\n", 1);
    let mut s = Script::all();
    s.deploy_manifest(&pinned).unwrap();
    s.fill();
    let before = s.shards();
    let node = s.shard(KEY).primary;
    let here = before.iter().filter(|p| p.primary == node).count();
    drain(&mut s, node);
    s.settle();
    assert!(is_empty(&s, node));
    resume(&mut s, node);
    assert!(moves(&s) <= 1, "one at a time");
    s.settle();
    // It has work again.
    assert!(here > 0 && !is_empty(&s, node), "{:?}", s.shards());
    assert!(is_whole(&s));
    // What is at rest stays so, whatever else happens.
    let at_rest = s.shards();
    for other in (0..6)
        .map(NodeId)
        .filter(|n| at_rest.iter().all(|p| !p.keeps(*n)))
    {
        s.lose(other);
        s.hear(other);
        s.settle();
    }
    let primaries = |of: &[ShardPlan]| -> Vec<NodeId> { of.iter().map(|p| p.primary).collect() };
    assert_eq!(primaries(&s.shards()), primaries(&at_rest));
    s.check();
}

#[test]
fn returning_nodes_never_set_off_endless_moves() {
    let mut s = Script::filled();
    for round in 0..30u32 {
        let node = NodeId(round * 5 % 6);
        match round % 3 {
            0 => {
                drain(&mut s, node);
                s.settle();
                resume(&mut s, node);
            }
            1 => {
                s.lose(node);
                s.settle();
                s.hear_if_silent(node);
            }
            _ => s.restart(node),
        }
        // `settle` panics if it does not come to an end.
        s.settle();
        assert!(is_whole(&s) && moves(&s) == 0, "round {round}");
    }
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn the_last_node_in_service_keeps_what_it_has() {
    let mut s = Script::filled();
    for node in (0..6).map(NodeId) {
        drain(&mut s, node);
        s.settle();
    }
    assert!(is_whole(&s), "{:?}", s.shards());
    assert!(s.apply(Command::Drain { node: NodeId(6) }).is_err());
    for node in (0..6).map(NodeId) {
        resume(&mut s, node);
        assert_eq!(resume(&mut s, node), Applied::Nothing);
        s.settle();
    }
    assert!(is_whole(&s));
    assert_eq!(s.state_lost(), 0);
    s.check();
}

/// More shards than return at once are on the SmartNIC beside the service that sends to them.
#[test]
fn so_many_replicas_return_and_no_more() {
    let mut s = Script::up(&["s1-host", "s1-nic0", "s2-nic0"]);
    s.deploy_manifest(MANY).unwrap();
    s.fill();
    let at = |s: &Script, node| {
        let shards = s.shards().into_iter();
        let many = shards.filter(|p| p.service == ServiceId(1));
        many.filter(|p| p.primary == node).count()
    };
    let home = NodeId(1);
    assert_eq!(at(&s, home), 80);
    drain(&mut s, home);
    s.settle_within(200);
    assert_eq!(at(&s, home), 0);
    resume(&mut s, home);
    s.settle_within(400);
    assert_eq!(at(&s, home), usize::from(RETURN_MOVES_MAX));
    s.check();
}

const MANY: &str = "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: many}
spec:
  objective: {latency: 5ms}
  ingress: front
  services:
    - {name: front, module: m, pin: {kind: host}, resources: {cpu: 0.1, memory: 1Mi}}
    - name: many
      module: m
      stateful: true
      durability: memory
      shards: 80
      pin: {kind: smartnic}
      resources: {cpu: 0.01, memory: 1Mi}
  channels: [{from: front, to: many}]
";
