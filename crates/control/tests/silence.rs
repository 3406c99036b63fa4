//! Nodes fall silent, return, or are gone: whose reports count, and when state is given up.

use crate::script::{AT, KEY, NODES, Script, all_nodes};
use e3_control::{Applied, Command, CommandError};
use e3_model::plan::{NodeEvent, NodeHello};
use e3_model::{Address, AppId, NodeId, ShardKey};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

#[test]
fn the_only_copy_is_waited_for() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    s.lose_and_leave(before.backups[0]);
    let alone = s.shard(KEY);
    // Its new backup has no complete copy yet.
    assert_eq!((alone.backups.len(), alone.joining.len()), (0, 1));
    s.lose(before.primary);
    assert_eq!(s.waits_for(KEY), [before.primary]);
    assert_eq!(s.shard(KEY).incarnation, before.incarnation);
    let (from, to) = (before.primary, NodeId(before.primary.0 ^ 1));
    let refused = s.apply(Command::Migrate {
        key: KEY,
        from,
        to,
        cold: false,
    });
    assert!(matches!(refused, Err(CommandError::Waits { .. })));
    s.hear(before.primary);
    assert_eq!(s.waits_for(KEY), []);
    assert_eq!(s.shard(KEY).primary, before.primary);
    assert_eq!(s.shard(KEY).incarnation, before.incarnation, "it goes on");
    s.settle();
    assert_eq!(s.shard(KEY).backups.len(), 1);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn a_silent_node_is_a_peer_as_long_as_it_has_a_part_in_a_shard() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let is_peer = |s: &Script| {
        let plan = s.control.plan_for(before.primary);
        plan.peers.contains_key(&before.backups[0])
    };
    s.lose(before.backups[0]);
    assert!(is_peer(&s), "it leaves");
    s.settle();
    assert!(!is_peer(&s));
    s.hear(before.backups[0]);
    assert!(is_peer(&s));
    s.check();
}

#[test]
fn a_silent_node_comes_back_with_its_copies_as_a_backup() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    s.lose(before.primary);
    assert_eq!(s.shard(KEY).primary, before.backups[0]);
    s.hear(before.primary);
    assert_eq!(s.control.members[&before.primary].incarnation, 1);
    s.settle();
    assert_eq!(s.shard(KEY).primary, before.backups[0], "it stays there");
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn copies_that_fall_silent_together_both_count() {
    for first in [0, 1] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let copies = [before.primary, before.backups[0]];
        s.lose_all(&copies);
        assert_eq!(s.shard(KEY), before);
        assert_eq!(s.waits_for(KEY), copies);
        // One is gone for good; the other has a complete copy.
        s.restart(copies[first]);
        let other = copies[1 - first];
        assert_eq!(s.waits_for(KEY), [other]);
        s.hear(other);
        assert_eq!(s.shard(KEY).primary, other);
        s.settle();
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

#[test]
fn a_state_counts_as_lost_when_its_last_copy_is_certainly_gone() {
    let mut s = Script::filled();
    s.lose_all(&all_nodes());
    assert_eq!(s.state_lost(), 0);
    let shards = s.control.apps[&AppId(1)].plan.shards.clone();
    let mut gone = Vec::new();
    for node in all_nodes() {
        s.restart(node);
        gone.push(node);
        let copies = |s: &e3_model::plan::ShardPlan| [s.primary, s.backups[0]];
        let lost = shards
            .iter()
            .filter(|s| copies(s).iter().all(|n| gone.contains(n)));
        assert_eq!(s.state_lost(), lost.count() as u64, "after {node}");
    }
    assert_eq!(s.state_lost(), 3);
    let lost = s.control.apps[&AppId(1)].losses.clone();
    assert!(lost.iter().all(|l| l.at == AT));
    s.settle();
    assert!(s.shard(KEY).incarnation > 1, "channels to it begin again");
    s.check();
}

#[test]
fn state_is_given_up_by_the_operator_alone() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let forget = Command::Forget { key: KEY, at: AT };
    let refused = s.apply(forget.clone());
    assert!(matches!(refused, Err(CommandError::NotWaiting(_))));
    s.lose_all(&[before.primary, before.backups[0]]);
    s.ok(forget);
    let after = s.shard(KEY);
    assert!(s.control.is_up(after.primary) && after.incarnation > before.view);
    assert_eq!((s.state_lost(), after.filled), (1, false));
    assert!(after.era > before.view && after.era <= after.incarnation);
    // A process that returns gets no role in the shard by itself.
    s.hear(before.primary);
    assert_ne!(s.shard(KEY).primary, before.primary);
    s.settle();
    s.check();
}

#[test]
fn copies_of_before_a_shard_began_empty_are_of_an_earlier_era() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    assert_eq!(before.era, 1);
    // Nobody is left who could serve it: it waits for a node, and no copy has a part in it.
    s.lose_all(&all_nodes());
    s.ok(Command::Forget { key: KEY, at: AT });
    let orphan = s.shard(KEY);
    assert!(orphan.era > before.view);
    assert_eq!(orphan.role(before.primary), None);
    assert_eq!(orphan.role(before.backups[0]), None);
    // The old backup comes back first, and is chosen: it begins with nothing.
    s.hear(before.backups[0]);
    let after = s.shard(KEY);
    assert_eq!(after.primary, before.backups[0]);
    assert_eq!(after.era, orphan.era, "it began once");
    assert!(after.incarnation >= after.era);
    // A fail-over is no new beginning.
    for node in all_nodes() {
        s.hear_if_silent(node);
    }
    s.settle();
    s.lose(s.shard(KEY).primary);
    assert_eq!(s.shard(KEY).era, orphan.era);
    s.check();
}

#[test]
fn a_move_ends_when_its_shard_waits() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    s.lose(before.backups[0]);
    s.settle();
    let now = s.shard(KEY);
    let id = s.migrate(now.primary, NodeId(now.primary.0 ^ 1));
    let copies: Vec<NodeId> = now.backups.iter().copied().chain([now.primary]).collect();
    s.lose_all(&copies);
    assert!(s.outcome(id).is_some());
    assert!(!s.shard(KEY).frozen);
    for node in copies {
        s.hear(node);
    }
    s.settle();
    assert_eq!(s.state_lost(), 0);
    s.check();
}

/// Against a model that knows which processes live: state is lost exactly when the last process with
/// a complete copy is gone, whatever the controller believes about silence meanwhile.
#[test]
fn silence_in_any_order_loses_nothing() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let mut s = Script::filled();
        for step in 0..60 {
            let node = NodeId(random.below(6) as u32);
            match random.below(4) {
                0 => s.lose(node),
                1 => {
                    let nodes = all_nodes().into_iter();
                    let some: Vec<_> = nodes.filter(|_| random.below(2) == 0).collect();
                    lose_those_up(&mut s, &some);
                }
                2 => s.hear_if_silent(node),
                _ => s.settle_reachable(),
            }
            println!("seed {seed}, step {step}");
            assert_eq!(
                s.state_lost(),
                0,
                "seed {seed}, step {step}: no process died"
            );
        }
        for node in all_nodes() {
            s.hear_if_silent(node);
        }
        s.settle();
        let app = &s.control.apps[&AppId(1)];
        for shard in &app.plan.shards {
            assert_eq!(shard.backups.len(), 1, "seed {seed}: {shard:?}");
            assert!(s.waits_for(app.plan.key(shard)).is_empty(), "seed {seed}");
        }
        s.check();
    }
}

fn lose_those_up(s: &mut Script, nodes: &[NodeId]) {
    let members = s.control.members.clone();
    let up = nodes.iter().filter(|n| members[n].up);
    let nodes: BTreeMap<NodeId, u32> = up.map(|n| (*n, members[n].incarnation)).collect();
    if !nodes.is_empty() {
        s.ok(Command::Lose { nodes, at: AT });
    }
}

#[test]
fn the_names_are_those_of_the_topology() {
    let s = Script::all();
    for (node, name) in all_nodes().into_iter().zip(NODES) {
        assert_eq!(s.control.node_name(node), name);
    }
    let none = ShardKey {
        app: AppId(9),
        ..KEY
    };
    assert_eq!(s.control.shard_name(none), "of a deleted application");
}

/// Whoever started a process saw it end: nobody waits for it, and what it sent before does not bring
/// it back.
#[test]
fn a_process_that_has_ended_is_replaced_at_once() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let name = s.control.node_name(before.primary);
    let member = s.control.members[&before.primary].clone();
    assert_eq!(s.exit(before.primary), Applied::Changed);
    assert_eq!(s.shard(KEY).primary, before.backups[0]);
    assert_eq!(s.state_lost(), 0);
    // The new primary knows that it need not keep its promise.
    let plan = s.control.plan_for(before.backups[0]);
    assert_eq!(plan.exited, [(before.primary, member.incarnation)].into());
    assert_eq!(s.exit(before.primary), Applied::Nothing);
    s.hear(before.primary);
    assert!(!s.control.is_up(before.primary));
    let late = NodeHello {
        name: name.clone(),
        address: Address::default(),
        process: member.process,
        on_disk: None,
        ..NodeHello::default()
    };
    assert_eq!(
        s.apply(Command::Join {
            hello: late,
            at: AT
        }),
        Err(CommandError::Exited(name.clone()))
    );
    s.join(&name, member.process + 1);
    assert!(s.control.is_up(before.primary));
    let plan = s.control.plan_for(before.backups[0]);
    let peer = &plan.peers[&before.primary];
    assert!(peer.incarnation > plan.exited[&before.primary]);
    s.settle();
    s.check();
}

#[test]
fn a_shard_whose_only_copy_has_certainly_ended_begins_empty() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    s.lose_and_leave(before.backups[0]);
    s.lose_all(&all_nodes());
    assert_eq!(s.shard(KEY).primary, before.primary, "it waits");
    s.hear(before.backups[0]);
    assert_eq!(s.state_lost(), 0);
    s.exit(before.primary);
    assert!(s.state_lost() > 0);
    s.check();
}

/// Nobody acts without a silent copy before its primary is known to be in a view without it.
#[test]
fn a_silent_backup_takes_over_from_a_primary_that_dies_meanwhile() {
    for dies in [false, true] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let backup = before.backups[0];
        s.lose(backup);
        let view = s.shard(KEY).view;
        assert_eq!(s.shard(KEY).backups, [backup], "commits wait for it");
        s.lose(before.primary);
        assert_eq!(s.waits_for(KEY), [before.primary, backup]);
        if dies {
            s.restart(before.primary);
        }
        s.hear(backup);
        assert_eq!(s.shard(KEY).primary, backup);
        // What the primary said comes late.
        s.ok(Command::Event(NodeEvent::Installed { key: KEY, view }));
        assert_eq!(s.shard(KEY).primary, backup);
        s.settle();
        assert_eq!((s.shard(KEY).backups.len(), s.state_lost()), (1, 0));
        s.check();
    }
}

/// The same of a primary that falls silent: its successor may have died before.
#[test]
fn a_silent_primary_goes_on_if_its_successor_dies_first() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let (primary, backup) = (before.primary, before.backups[0]);
    s.lose(primary);
    assert_eq!((s.shard(KEY).primary, s.waits_for(KEY)), (backup, vec![]));
    s.lose(backup);
    assert_eq!(s.waits_for(KEY), [backup, primary]);
    s.hear(primary);
    let now = s.shard(KEY);
    assert_eq!((now.primary, now.fenced), (primary, false));
    s.restart(backup);
    s.settle();
    assert_eq!((s.shard(KEY).primary, s.state_lost()), (primary, 0));
    s.check();
}

/// A primary may die while what it says of itself is on its way: what has left is kept until it has
/// said so twice.
#[test]
fn a_copy_that_has_left_is_all_there_is_when_the_primary_dies() {
    for says_twice in [false, true] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let backup = before.backups[0];
        s.lose(backup);
        let installed = |s: &mut Script| {
            let view = s.shard(KEY).view;
            s.ok(Command::Event(NodeEvent::Installed { key: KEY, view }));
        };
        installed(&mut s);
        let now = s.shard(KEY);
        assert_eq!((now.backups, now.leaving), (vec![], vec![backup]));
        if says_twice {
            installed(&mut s);
            assert_eq!(s.shard(KEY).leaving, []);
        }
        // Alive, it may have acknowledged what the other does not have.
        s.lose(before.primary);
        s.hear(backup);
        assert_eq!(s.waits_for(KEY), [before.primary]);
        s.restart(before.primary);
        let now = s.shard(KEY);
        assert_eq!(now.primary == backup && now.era == 1, !says_twice);
        assert_eq!(now.filled, !says_twice);
        assert_eq!(s.state_lost(), 1, "nobody can tell");
        s.settle();
        s.check();
    }
}

#[test]
fn an_operator_gives_up_what_is_silent_but_not_a_copy_that_has_left() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let backup = before.backups[0];
    s.lose(backup);
    let view = s.shard(KEY).view;
    s.ok(Command::Event(NodeEvent::Installed { key: KEY, view }));
    s.lose(before.primary);
    s.hear(backup);
    s.ok(Command::Forget { key: KEY, at: AT });
    assert_eq!((s.shard(KEY).primary, s.state_lost()), (backup, 1));
    s.settle();
    s.check();
}

/// A backup moves within its server, falls silent and leaves; then the primary falls silent too, or ends.
#[test]
fn a_copy_that_was_leaving_takes_over_without_another_on_its_server() {
    for primary_goes in [
        Script::lose,
        |s: &mut Script, n| drop(s.exit(n)),
        Script::restart,
    ] {
        let mut s = Script::filled();
        let before = s.shard(KEY);
        let (from, to) = (before.backups[0], NodeId(before.backups[0].0 ^ 1));
        s.ok(Command::Migrate {
            key: KEY,
            from,
            to,
            cold: false,
        });
        s.lose(from);
        assert_eq!(s.shard(KEY).joining, [to]);
        s.hear(from);
        primary_goes(&mut s, before.primary);
        let after = s.shard(KEY);
        assert_eq!(after.primary, from);
        assert!(!after.joining.contains(&to), "{after:?}");
        s.check();
    }
}

/// The primary's plan names a joining node that has fallen silent with it: commits wait for what the
/// joining node may have told.
#[test]
fn a_joining_node_that_falls_silent_with_the_primary_keeps_its_part() {
    let mut s = Script::filled();
    let primary = s.shard(KEY).primary;
    s.lose_and_leave(s.shard(KEY).backups[0]);
    let joining = s.shard(KEY).joining[0];
    s.lose_all(&[primary, joining]);
    let waits = s.shard(KEY);
    assert_eq!((waits.primary, waits.joining), (primary, vec![joining]));
    assert!(s.control.plan_for(primary).peers.contains_key(&joining));
    s.check();
}
