//! Services with `durability: disk`: the end of a process is not the end of its copies.

use crate::script::{APP, AT, CLUSTER, KEY, NODES, Script, all_nodes};
use e3_control::{Applied, Command, CommandError, LaterCopy};
use e3_model::document::parse_application;
use e3_model::plan::{CopyOnDisk, NodeEvent, NodeHello, OnDisk, Role};
use e3_model::{Address, NodeId, ServiceId, ShardId, ShardKey};
use std::collections::BTreeMap;

/// All nodes, and the sample on disk with state in every shard.
fn filled() -> Script {
    let mut s = Script::all();
    let text = APP.replace("stateful: true", "stateful: true\n      durability: disk");
    s.ok(Command::Deploy {
        app: Box::new(parse_application("a.yaml", &text).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: false,
        restored: None,
        placed: Vec::new(),
    });
    s.fill();
    s
}

/// What the disk of a node holds: a copy of every shard that it keeps.
fn disk(s: &Script, node: NodeId) -> Vec<CopyOnDisk> {
    let mut copies = Vec::new();
    for app in s.control.apps.values() {
        let kept = app.plan.shards.iter().filter(|shard| shard.keeps(node));
        copies.extend(kept.map(|shard| CopyOnDisk {
            key: app.plan.key(shard),
            era: shard.era,
            view: shard.view,
        }));
    }
    copies
}

fn hello_of(s: &Script, node: NodeId, cluster: u64, copies: Vec<CopyOnDisk>) -> NodeHello {
    NodeHello {
        name: NODES[node.index()].into(),
        address: Address::default(),
        process: 1_000 + s.log.len() as u64,
        on_disk: Some(OnDisk { cluster, copies }),
        ..NodeHello::default()
    }
}

fn hello(s: &Script, node: NodeId, cluster: u64, copies: Vec<CopyOnDisk>) -> Command {
    let hello = hello_of(s, node, cluster, copies);
    Command::Join { hello, at: AT }
}

/// A new process of a node joins, with these copies on its disk.
fn restart(s: &mut Script, node: NodeId, copies: Vec<CopyOnDisk>) {
    let join = hello(s, node, CLUSTER, copies);
    s.ok(join);
}

#[test]
fn a_power_cut_of_everything_loses_nothing() {
    let mut s = filled();
    let disks: Vec<_> = all_nodes().into_iter().map(|n| disk(&s, n)).collect();
    for node in all_nodes() {
        s.exit(node);
    }
    let shards = s.control.apps[&KEY.app].plan.shards.clone();
    for shard in &shards {
        let key = s.control.apps[&KEY.app].plan.key(shard);
        if !s.control.apps[&KEY.app]
            .plan
            .app
            .service(key.service)
            .stateful
        {
            continue;
        }
        assert!(s.waits_for(key).contains(&shard.primary), "{key}");
    }
    for (node, copies) in all_nodes().into_iter().zip(disks) {
        restart(&mut s, node, copies);
    }
    s.settle();
    assert_eq!(s.state_lost(), 0);
    assert_eq!(s.waits_for(KEY), []);
    assert!(s.control.is_up(s.shard(KEY).primary));
    s.check();
}

#[test]
fn a_primary_that_restarts_goes_on_in_a_new_incarnation() {
    let mut s = filled();
    let before = s.shard(KEY);
    let copies = disk(&s, before.primary);
    restart(&mut s, before.primary, copies);
    let after = s.shard(KEY);
    assert_eq!(after.primary, before.primary);
    assert!(after.incarnation > before.incarnation);
    assert_eq!(after.predecessor, Some(before.primary));
    assert!(
        !after.fenced,
        "leases that its process granted are not known"
    );
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn what_is_not_on_the_disk_is_lost() {
    let mut s = filled();
    let copies: Vec<_> = all_nodes().into_iter().map(|n| disk(&s, n)).collect();
    for node in all_nodes() {
        s.exit(node);
    }
    let earlier = |copies: &[CopyOnDisk]| {
        let copies = copies.iter().map(|c| CopyOnDisk {
            era: c.era - 1,
            ..*c
        });
        copies.collect::<Vec<_>>()
    };
    // Some come back with an empty disk, others with one of an earlier era.
    for (node, copies) in all_nodes().into_iter().zip(copies) {
        let copies = if node.0 % 2 == 0 {
            Vec::new()
        } else {
            earlier(&copies)
        };
        restart(&mut s, node, copies);
    }
    s.settle();
    assert_eq!(s.state_lost(), 3, "each shard once");
    s.check();
}

#[test]
fn a_backup_takes_over_while_the_process_is_away_and_its_disk_is_used_when_it_returns() {
    let mut s = filled();
    let before = s.shard(KEY);
    let Some(backup) = before.backups.first().copied() else {
        panic!("the sample has backups");
    };
    let copies = disk(&s, before.primary);
    s.exit(before.primary);
    assert_eq!(s.shard(KEY).primary, backup);
    s.settle();
    restart(&mut s, before.primary, copies);
    s.settle();
    assert_eq!(s.shard(KEY).primary, backup);
    assert_eq!(s.shard(KEY).backups.len(), before.backups.len());
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn a_move_ends_when_a_process_of_it_restarts() {
    for restarts_source in [true, false] {
        let mut s = filled();
        let from = s.shard(KEY).primary;
        let to = all_nodes()
            .into_iter()
            .find(|n| s.shard(KEY).role(*n).is_none())
            .unwrap();
        let id = s.migrate(from, to);
        let node = if restarts_source { from } else { to };
        let copies = disk(&s, node);
        restart(&mut s, node, copies);
        assert!(s.outcome(id).is_some());
        assert!(!s.shard(KEY).frozen);
        s.settle();
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

#[test]
fn a_log_without_the_views_of_copies_on_disk_is_noticed() {
    let mut s = filled();
    let (older, before) = (s.control.clone(), s.shard(KEY));
    s.exit(before.primary);
    s.settle();
    let after = s.shard(KEY);
    assert!(after.view > before.view);
    let of_key = |c: &CopyOnDisk| c.key == KEY;
    let copies: Vec<CopyOnDisk> = disk(&s, after.primary).into_iter().filter(of_key).collect();
    let hello = hello_of(&s, after.primary, CLUSTER, copies.clone());
    assert_eq!(s.control.later_copy(&hello), None);
    let later = LaterCopy {
        key: KEY,
        view: after.view,
        known: Some(before.view),
    };
    assert_eq!(older.later_copy(&hello), Some(later));
    let new = Script::all().control;
    assert_eq!(
        new.later_copy(&hello),
        Some(LaterCopy {
            known: None,
            ..later
        })
    );

    // Nobody speaks for another cluster, or for a node that there is not.
    let of_other = hello_of(&s, after.primary, CLUSTER + 1, copies);
    assert_eq!(older.later_copy(&of_other), None);
    let stranger = NodeHello {
        name: "s9-host".into(),
        ..hello.clone()
    };
    assert_eq!(older.later_copy(&stranger), None);
    let name = s.control.apps[&KEY.app].plan.app.name.clone();
    s.ok(Command::Delete { app: name });
    assert_eq!(s.control.later_copy(&hello), None, "it is deleted");
}

#[test]
fn a_copy_of_a_shard_that_was_merged_is_none_that_the_log_lacks() {
    let mut s = filled();
    let service = ServiceId(1);
    let shard = |shard| ShardKey {
        app: KEY.app,
        service,
        shard: ShardId(shard),
    };
    s.ok(Command::Reshard {
        app: KEY.app,
        service,
        shards: 1,
    });
    s.settle();
    assert!(s.control.apps[&KEY.app].shard(shard(1)).is_none());
    let merged = s.shard(shard(0)).view;
    let other = ShardKey {
        service: ServiceId(0),
        ..KEY
    };
    assert!(merged > s.shard(other).view + 1);
    let later = |view| {
        let copy = CopyOnDisk {
            key: shard(1),
            era: 1,
            view,
        };
        let hello = hello_of(&s, NodeId(0), CLUSTER, vec![copy]);
        s.control.later_copy(&hello).map(|later| later.known)
    };
    assert_eq!(later(merged - 1), None);
    assert_eq!(later(merged + 1), Some(Some(merged)));
}

/// A copy from before a merge does not show which confirmed writes its disk has lost.
#[test]
fn copies_from_before_a_merge_are_used_only_where_no_other_complete_copy_is_heard() {
    let service = ServiceId(1);
    for (shards, is_heard, is_used) in [(1, true, false), (1, false, true), (4, true, true)] {
        let mut s = filled();
        let disks: Vec<_> = all_nodes().into_iter().map(|n| disk(&s, n)).collect();
        s.ok(Command::Reshard {
            app: KEY.app,
            service,
            shards,
        });
        s.settle();
        let key = ShardKey { service, ..KEY };
        let before = s.shard(key);
        let (primary, backup) = (before.primary, before.backups[0]);
        if !is_heard {
            s.exit(backup);
        }
        let new = disk(&s, primary);
        let hello = |copies: &[CopyOnDisk]| hello_of(&s, primary, CLUSTER, copies.to_vec());
        assert_eq!(s.control.without_doubtful_copies(hello(&new)), hello(&new));
        let old = hello(&disks[primary.index()]);
        let doubted = s.control.without_doubtful_copies(old.clone());
        assert_eq!(doubted == old, is_used);
        s.ok(Command::Join {
            hello: doubted,
            at: AT,
        });
        let expected = if is_used { primary } else { backup };
        assert_eq!(s.shard(key).primary, expected, "{shards} shards");
        assert_eq!(s.shard(key).era, before.era, "it keeps its state");
    }
}

#[test]
fn a_disk_of_another_cluster_is_refused() {
    let mut s = filled();
    let join = hello(&s, NodeId(0), CLUSTER + 1, Vec::new());
    let error = s.apply(join).unwrap_err();
    assert!(
        matches!(error, CommandError::OtherCluster { .. }),
        "{error}"
    );
}

#[test]
fn what_was_reported_of_a_joining_process_does_not_count_for_the_next() {
    let mut s = filled();
    s.ok(Command::Scale {
        app: KEY.app,
        service: KEY.service,
        replicas: 3,
    });
    let before = s.shard(KEY);
    let joining = before.joining[0];
    let copies = disk(&s, joining);
    restart(&mut s, joining, copies);
    assert!(s.shard(KEY).joining.contains(&joining));
    // The primary told it of the process before; commits went on without the next.
    let late = Command::Event(NodeEvent::Synced {
        key: KEY,
        view: before.view,
        backup: joining,
    });
    assert_eq!(s.ok(late), Applied::Nothing);
    assert!(!s.shard(KEY).backups.contains(&joining));
    s.check();
}

/// A new process of a node finds its journal damaged.
fn damaged(s: &Script, node: NodeId) -> Command {
    let hello = NodeHello {
        name: NODES[node.index()].into(),
        address: Address::default(),
        process: 1_000 + s.log.len() as u64,
        damaged: Some("1.journal: byte 7: a record's content is damaged".into()),
        ..NodeHello::default()
    };
    Command::Join { hello, at: AT }
}

#[test]
fn a_damaged_journal_loses_nothing_that_other_nodes_have() {
    for role in [Role::Primary, Role::Backup] {
        let mut s = filled();
        let before = s.shard(KEY);
        let node = match role {
            Role::Primary => before.primary,
            _ => before.backups[0],
        };
        let join = damaged(&s, node);
        s.ok(join);
        assert_ne!(s.shard(KEY).primary, node);
        assert!(!s.shard(KEY).backups.contains(&node), "it has no copy");
        s.settle();
        assert_eq!(s.shard(KEY).backups.len(), before.backups.len());
        assert_eq!(s.state_lost(), 0);
        s.check();
    }
}

#[test]
fn a_shard_whose_last_copy_is_damaged_waits_until_it_is_given_up() {
    let mut s = filled();
    let last = s.shard(KEY).primary;
    for node in all_nodes().into_iter().filter(|n| *n != last) {
        s.exit(node);
        s.leave();
    }
    s.exit(last);
    let join = damaged(&s, last);
    let error = s.apply(join).unwrap_err();
    let text = error.to_string();
    let CommandError::Damaged { shards, .. } = error else {
        panic!("{text}")
    };
    let name = s.control.shard_name(KEY);
    assert!(text.contains("1.journal: byte 7"), "{text}");
    assert!(
        shards.contains(&name) && text.contains("e3 forget"),
        "{text}"
    );
    assert_eq!(s.waits_for(KEY), [last]);
    assert_eq!(s.state_lost(), 0);
    // The operator gives up all that it names.
    let apps = s.control.apps.values();
    let keys = apps.flat_map(|app| app.plan.shards.iter().map(|shard| app.plan.key(shard)));
    let keys: Vec<_> = keys.collect();
    for key in keys {
        if shards.contains(&s.control.shard_name(key)) {
            s.ok(Command::Forget { key, at: AT });
        }
    }
    assert_eq!(s.state_lost(), shards.len() as u64);
    let join = damaged(&s, last);
    s.ok(join);
    s.settle();
    assert_eq!(s.waits_for(KEY), []);
    s.check();
}

#[test]
fn a_disk_that_lacks_the_last_copy_of_a_shard_is_refused_and_names_it() {
    let mut s = filled();
    let last = s.shard(KEY).primary;
    let all = disk(&s, last);
    let without = |copies: &[CopyOnDisk]| -> Vec<CopyOnDisk> {
        let others = copies.iter().filter(|copy| copy.key != KEY);
        others.copied().collect()
    };
    // Other nodes have it.
    let empty = hello_of(&s, last, CLUSTER, Vec::new());
    assert_eq!(s.control.check_disk(&empty), Ok(()));
    for node in all_nodes().into_iter().filter(|n| *n != last) {
        s.exit(node);
        s.leave();
    }
    let all = [all, disk(&s, last)].concat();
    let there = hello_of(&s, last, CLUSTER, all.clone());
    assert_eq!(s.control.check_disk(&there), Ok(()));
    let other = hello_of(&s, last, CLUSTER + 1, Vec::new());
    assert_eq!(s.control.check_disk(&other), Ok(()), "it is refused anyway");
    let lacks = hello_of(&s, last, CLUSTER, without(&all));
    let refused = s.control.check_disk(&lacks).unwrap_err();
    let CommandError::NotOnDisk { shards, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(*shards, [s.control.shard_name(KEY)], "only what is missing");
    let end = s.control.end_before_refusal(&lacks, AT).unwrap();
    s.ok(end);
    assert_eq!(s.waits_for(KEY), [last]);
    s.ok(Command::Forget { key: KEY, at: AT });
    assert_eq!(s.control.check_disk(&lacks), Ok(()));
    // It has nothing to lose before its first entry.
    assert!(!s.shard(KEY).filled);
    s.check();
}

#[test]
fn what_waits_for_a_damaged_journal_can_be_given_up_though_nobody_saw_the_process_end() {
    let mut s = filled();
    let last = s.shard(KEY).primary;
    for node in all_nodes().into_iter().filter(|n| *n != last) {
        s.exit(node);
        s.leave();
    }
    let join = damaged(&s, last);
    let Command::Join { hello, .. } = &join else {
        unreachable!()
    };
    assert!(s.apply(join.clone()).is_err());
    assert_eq!(s.waits_for(KEY), [], "the process before counts as heard");
    let end = s.control.end_before_refusal(hello, AT).unwrap();
    s.ok(end);
    assert_eq!(s.waits_for(KEY), [last]);
    assert_eq!(s.control.end_before_refusal(hello, AT), None, "once");
    assert!(s.apply(join).is_err(), "no state is given up by itself");
    assert_eq!(s.state_lost(), 0);
    s.ok(Command::Forget { key: KEY, at: AT });
    assert_eq!(s.state_lost(), 1);
    s.check();
}

#[test]
fn a_process_that_is_not_refused_for_damage_ends_none_before_it_joins() {
    let s = filled();
    let node = s.shard(KEY).backups[0];
    let Command::Join { hello, .. } = damaged(&s, node) else {
        unreachable!()
    };
    assert_eq!(s.control.end_before_refusal(&hello, AT), None);
}

#[test]
fn a_backup_takes_over_that_has_more_than_the_disk_of_its_primary() {
    let mut s = filled();
    let before = s.shard(KEY);
    let (former, backup) = (before.primary, before.backups[0]);
    let ahead = |view| {
        let key = KEY;
        Command::Event(NodeEvent::Ahead { key, view, backup })
    };
    assert_eq!(
        s.ok(ahead(before.view)),
        Applied::Nothing,
        "its primary has not restarted"
    );
    let copies = disk(&s, former);
    restart(&mut s, former, copies);
    let view = s.shard(KEY).view;
    assert_eq!(s.ok(ahead(view - 1)), Applied::Nothing, "an older view");
    assert_eq!(s.ok(ahead(view)), Applied::Changed);
    let after = s.shard(KEY);
    assert_eq!((after.primary, after.predecessor), (backup, Some(former)));
    assert!(after.backups.contains(&former) && !after.fenced);
    assert_eq!(s.ok(ahead(after.view)), Applied::Nothing);
    s.settle();
    assert_eq!(s.state_lost(), 0);
    s.check();
}
