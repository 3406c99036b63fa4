//! The number of shards of a service changes: when it may, and what becomes of views and copies.

use crate::formats::BEFORE_WAITS_END;
use crate::script::{APP, KEY, Script};
use crate::waiting;
use e3_control::limits::GATHER_MOVES_MAX;
use e3_control::{Applied, Command, CommandError};
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::{AppId, Format, NodeId, ServiceId, ShardKey};
use std::collections::BTreeSet;

/// The service with two shards.
const BACK: ServiceId = ServiceId(1);

fn reshard(s: &mut Script, shards: u16) -> Result<Applied, CommandError> {
    s.apply(Command::Reshard {
        app: AppId(1),
        service: BACK,
        shards,
    })
}

fn shards(s: &Script) -> Vec<ShardPlan> {
    let all = s.shards().into_iter();
    all.filter(|shard| shard.service == BACK).collect()
}

fn key(s: &Script, shard: &ShardPlan) -> ShardKey {
    s.control.apps[&AppId(1)].plan.key(shard)
}

/// A primary confirms that it has stopped in its present view.
fn stop(s: &mut Script, shard: &ShardPlan) {
    let (key, view) = (key(s, shard), shard.view);
    s.ok(Command::Event(NodeEvent::Frozen { key, view }));
}

fn stop_all(s: &mut Script) {
    for shard in shards(s) {
        stop(s, &shard);
    }
}

fn are_frozen(s: &Script) -> bool {
    let shards = shards(s);
    let frozen = shards.iter().filter(|s| s.frozen && s.quiet).count();
    assert!(frozen == 0 || frozen == shards.len(), "all or none");
    frozen > 0
}

/// Why the replicas of each shard are where they are: the shard, and the replica of the deployment.
fn reasons(s: &Script) -> Vec<(ServiceId, u16, NodeId)> {
    let placed = s.control.apps[&AppId(1)].placed.iter();
    let reasons = placed.map(|p| (p.key.service, p.key.shard.0, p.node));
    reasons.collect()
}

#[test]
fn shards_are_split_where_they_are_and_merged_again() {
    let mut s = Script::filled();
    let before = shards(&s);
    let reasons_before = reasons(&s);
    reshard(&mut s, 6).unwrap();
    assert!(are_frozen(&s));
    assert_eq!(shards(&s).len(), 2, "none has stopped");
    stop_all(&mut s);
    let split = shards(&s);
    assert_eq!(split.len(), 6);
    for (n, shard) in split.iter().enumerate() {
        let parent = &before[n / 3];
        assert_eq!(
            (shard.primary, &shard.backups),
            (parent.primary, &parent.backups)
        );
        let newest = before.iter().map(|p| p.view).max().unwrap();
        assert!(shard.view > newest && shard.view == shard.incarnation && shard.view == shard.era);
        assert!(shard.fenced && shard.filled && !shard.frozen && !shard.quiet);
    }
    let of = |service| move |r: &&(ServiceId, u16, NodeId)| r.0 == service;
    let now = reasons(&s);
    let front = |of_all: &[_]| {
        of_all
            .iter()
            .filter(of(ServiceId(0)))
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(front(&now), front(&reasons_before));
    for shard in 0..6 {
        let nodes = |of_all: &[(ServiceId, u16, NodeId)], shard| {
            let all = of_all.iter().filter(of(BACK)).filter(|r| r.1 == shard);
            all.map(|r| r.2).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&now, shard), nodes(&reasons_before, shard / 3));
        assert_eq!(nodes(&now, shard).len(), 2);
    }
    let plan = &s.control.apps[&AppId(1)].plan;
    let made_of = plan.made_of(&split[4]).unwrap();
    assert_eq!(made_of, [(plan.key_of(BACK, 1), before[1].era)]);
    reshard(&mut s, 2).unwrap();
    stop_all(&mut s);
    assert_eq!(shards(&s).len(), 2);
    assert!(shards(&s)[0].era > split[0].era);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn what_cannot_be_is_refused() {
    let mut s = Script::filled();
    for wanted in [0, 3, 5, 4097] {
        let error = reshard(&mut s, wanted).unwrap_err();
        assert!(matches!(error, CommandError::Shards { .. }), "{error}");
        assert!(
            error.to_string().contains("two-services/back has 2 shards"),
            "{error}"
        );
    }
    assert_eq!(reshard(&mut s, 2), Ok(Applied::Nothing));
    // Each node's share of a thousand more does not fit.
    let error = reshard(&mut s, 4096).unwrap_err();
    assert!(matches!(error, CommandError::Misfit { .. }), "{error}");
    reshard(&mut s, 4).unwrap();
    let error = reshard(&mut s, 8).unwrap_err();
    assert!(
        matches!(error, CommandError::Resharding { shards: 4, .. }),
        "{error}"
    );
    s.check();
}

/// Moves a replica of the second shard, and waits until it is there.
fn move_other(s: &mut Script, from: NodeId, to: NodeId) {
    let key = key(s, &shards(s)[1]);
    s.ok(Command::Migrate {
        key,
        from,
        to,
        cold: false,
    });
    s.settle();
}

fn places(shard: &ShardPlan) -> (NodeId, BTreeSet<NodeId>) {
    (shard.primary, shard.backups.iter().copied().collect())
}

#[test]
fn shards_on_different_nodes_come_together_and_are_merged() {
    // Host and SmartNIC of a server are numbered one after the other.
    for (primary, backup) in [(0, 2), (0, 4), (1, 2), (2, 0), (3, 4), (4, 2), (5, 3)] {
        let mut s = Script::filled();
        let first = shards(&s)[0].clone();
        for (from, to) in [
            (shards(&s)[1].backups[0], NodeId(backup)),
            (shards(&s)[1].primary, NodeId(primary)),
            (shards(&s)[1].backups[0], NodeId(backup)),
        ] {
            let key = key(&s, &shards(&s)[1]);
            let moves = Command::Migrate {
                key,
                from,
                to,
                cold: false,
            };
            if s.apply(moves).is_ok() {
                s.settle();
            }
        }
        let lost = s.state_lost();
        let other = shards(&s)[1].clone();
        println!("{:?} and {:?}", places(&first), places(&other));
        reshard(&mut s, 1).unwrap();
        assert_eq!(are_frozen(&s), places(&first) == places(&other));
        s.settle();
        let merged = shards(&s);
        assert_eq!(merged.len(), 1, "{:?}", places(&other));
        assert_eq!(places(&merged[0]), places(&first));
        assert_eq!(s.state_lost(), lost);
        s.check();
    }
}

#[test]
fn shards_that_a_fail_over_takes_apart_are_not_merged_there() {
    let mut s = Script::filled();
    let first = shards(&s)[0].clone();
    let node = shards(&s)[1].primary;
    if node != first.primary {
        move_other(&mut s, node, first.primary);
    }
    reshard(&mut s, 1).unwrap();
    let there = shards(&s)[1].clone();
    s.lose(there.primary);
    assert!(shards(&s).iter().all(|shard| !shard.frozen));
    s.settle_reachable();
    // Both have gone on elsewhere; whenever they stop, they are on the same nodes.
    for _ in 0..10 {
        if are_frozen(&s) {
            let [one, other] = [shards(&s)[0].clone(), shards(&s)[1].clone()];
            assert_eq!(places(&one), places(&other));
        }
        s.settle_reachable();
    }
    s.check();
}

#[test]
fn shards_come_together_as_soon_as_an_application_is_deleted_whose_moves_were_in_the_way() {
    for (format, is_at_once) in [(Format::WAITS_END, true), (BEFORE_WAITS_END, false)] {
        let mut s = Script::filled_in(format);
        let [first, other] = [shards(&s)[0].clone(), shards(&s)[1].clone()];
        if places(&first) == places(&other) {
            // To the other node of the server.
            let backup = other.backups[0];
            move_other(&mut s, backup, NodeId(backup.0 ^ 1));
        }
        let text = APP.replace("two-services", "other");
        let Ok(Applied::Deployed(app)) = s.deploy_manifest(&text) else {
            panic!("there is room");
        };
        s.fill_all();
        let moves = |s: &Script, app: AppId| s.control.apps[&app].migrations.len();
        let plan = s.control.apps[&app].plan.clone();
        for shard in plan.shards.iter().take(GATHER_MOVES_MAX) {
            s.ok(Command::Migrate {
                key: plan.key(shard),
                from: shard.primary,
                to: NodeId(shard.primary.0 ^ 1),
                cold: false,
            });
        }
        reshard(&mut s, 1).unwrap();
        assert_eq!((moves(&s, AppId(1)), moves(&s, app)), (0, GATHER_MOVES_MAX));
        let app = "other".into();
        s.ok(Command::Delete { app });
        assert_eq!(moves(&s, AppId(1)) > 0, is_at_once, "format {format}");
        s.settle();
        assert_eq!(shards(&s).len() == 1, is_at_once);
        s.check();
    }
}

#[test]
fn a_merge_takes_no_copy_off_a_node_that_gets_no_new_ones() {
    for (format, keeps) in [
        (Format::MERGES_KEEP_COPIES, true),
        (BEFORE_WAITS_END, false),
    ] {
        let mut s = Script::founded(format);
        s.join_all(&["s1-host", "s2-host"]);
        s.deploy().unwrap();
        s.fill();
        let [first, other] = [shards(&s)[0].clone(), shards(&s)[1].clone()];
        if other.primary == first.primary {
            move_other(&mut s, other.primary, other.backups[0]);
        }
        let other = shards(&s)[1].clone();
        assert_eq!(
            (other.primary, other.backups[0]),
            (first.backups[0], first.primary)
        );
        let node = other.primary;
        s.ok(Command::Cordon { node });
        let refused = reshard(&mut s, 1).is_err();
        s.settle();
        assert_eq!(
            (refused, shards(&s)[1] == other),
            (keeps, keeps),
            "format {format}"
        );
        s.ok(Command::Resume { node });
        if keeps {
            reshard(&mut s, 1).unwrap();
        }
        s.settle();
        assert_eq!(shards(&s).len(), 1);
        s.check();
    }
}

#[test]
fn shards_come_together_where_no_copy_has_another_server_to_go_to() {
    // Two servers, each with one copy of each shard.
    let mut s = Script::up(&["s1-host", "s1-nic0", "s2-host", "s2-nic0"]);
    s.deploy().unwrap();
    s.fill();
    let first = shards(&s)[0].clone();
    let beside = |n: NodeId| NodeId(n.0 ^ 1);
    let other = shards(&s)[1].clone();
    assert_eq!(other.primary, first.primary);
    move_other(&mut s, other.primary, other.backups[0]);
    let backup = shards(&s)[1].backups[0];
    if backup == first.primary {
        move_other(&mut s, backup, beside(backup));
    }
    let swapped = (other.backups[0], [beside(first.primary)].into());
    assert_eq!(places(&shards(&s)[1]), swapped);
    reshard(&mut s, 1).unwrap();
    for _ in 0..4 {
        s.settle();
    }
    let merged = shards(&s);
    assert_eq!(merged.len(), 1);
    assert_eq!(places(&merged[0]), places(&first));
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn shards_that_no_node_has_memory_for_together_are_not_merged() {
    let mut s = waiting::cluster(Format::NEWEST, waiting::SPACE);
    let service = "stateful: true, durability: memory, replicas: 1, shards: 2, resources: {cpu: 0.5, memory: 200Mi}";
    s.deploy_manifest(&waiting::app("big", service)).unwrap();
    s.fill_all();
    let before = s.shards();
    assert_ne!(before[0].primary, before[1].primary);
    let error = s.apply(Command::Reshard {
        app: AppId(1),
        service: ServiceId(0),
        shards: 1,
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "big/big/0 and big/big/1 cannot be merged: they are on different nodes (h1, and h2, primary first), and no copy of big/big/1 can move to those of big/big/0; make room there, or move replicas with e3 migrate"
    );
    assert_eq!(s.shards(), before);
    s.check();
}

#[test]
fn a_view_that_changes_meanwhile_makes_it_begin_again() {
    let mut s = Script::filled();
    reshard(&mut s, 4).unwrap();
    let first = shards(&s)[0].clone();
    stop(&mut s, &first);
    // The primary of the shard that has stopped falls silent: both serve on.
    s.lose(first.primary);
    assert!(!are_frozen(&s));
    assert_eq!(shards(&s).len(), 2);
    s.hear(first.primary);
    for _ in 0..4 {
        s.settle_reachable();
    }
    assert!(are_frozen(&s), "all copies are in place again");
    // What was confirmed of an earlier view counts for nothing.
    let (key, view) = (key(&s, &first), first.view);
    assert_eq!(
        s.ok(Command::Event(NodeEvent::Frozen { key, view })),
        Applied::Nothing
    );
    stop_all(&mut s);
    assert_eq!(shards(&s).len(), 4);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn a_change_that_waits_for_copies_is_withdrawn() {
    let mut s = Script::filled();
    // A copy that is not filled yet.
    s.ok(Command::Scale {
        app: AppId(1),
        service: KEY.service,
        replicas: 3,
    });
    reshard(&mut s, 4).unwrap();
    let waits = |s: &Script| s.control.apps[&AppId(1)].resharding.is_some();
    assert!(waits(&s) && !are_frozen(&s));
    s.ok(Command::Cancel { key: KEY });
    assert!(!waits(&s));
    s.settle();
    assert_eq!((shards(&s).len(), are_frozen(&s)), (2, false));
    reshard(&mut s, 4).unwrap();
    assert!(waits(&s));
    s.check();
}

#[test]
fn a_change_that_makes_no_progress_is_cancelled() {
    let mut s = Script::filled();
    reshard(&mut s, 4).unwrap();
    let first = shards(&s)[0].clone();
    stop(&mut s, &first);
    let key = key(&s, &first);
    s.ok(Command::Cancel { key });
    assert!(!are_frozen(&s));
    assert_eq!(s.control.apps[&AppId(1)].resharding, None);
    assert_eq!(shards(&s).len(), 2);
    s.check();
}
