//! Backups and restores: when all shards stop and go on, what cancels a backup, and what becomes of
//! shards that wait for their state.

use crate::script::{APP, Script};
use e3_control::{Applied, Backup, Command, CommandError};
use e3_model::backup::{Part, Restored};
use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, NodeEvent, ShardPlan};
use e3_model::{AppId, Format, Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

const ID: AppId = AppId(1);

fn plan(s: &Script) -> AppPlan {
    s.control.apps[&ID].plan.clone()
}

fn stateful(s: &Script) -> Vec<(ShardKey, ShardPlan)> {
    let plan = plan(s);
    let shards = plan.shards.iter();
    let shards = shards.filter(|shard| plan.app.service(shard.service).stateful);
    shards
        .map(|shard| (plan.key(shard), shard.clone()))
        .collect()
}

fn begin(s: &mut Script) -> u64 {
    match s.ok(Command::Backup { app: ID }) {
        Applied::BackingUp(number) => number,
        other => panic!("{other:?}"),
    }
}

fn last(s: &Script) -> Backup {
    s.control.apps[&ID].backup.clone().expect("one was begun")
}

/// All primaries have sent a snapshot.
fn copy_all(s: &mut Script, number: u64) {
    for (key, shard) in stateful(s) {
        copied(s, key, shard.incarnation, number);
    }
}

fn copied(s: &mut Script, key: ShardKey, incarnation: u32, number: u64) {
    s.ok(Command::Event(NodeEvent::Copied {
        key,
        incarnation,
        number,
    }));
}

fn cut(s: &mut Script, key: ShardKey, incarnation: u32, number: u64) -> Applied {
    s.ok(Command::Event(NodeEvent::Cut {
        key,
        incarnation,
        number,
        op: 5,
        len: 100,
        crc: 7,
    }))
}

fn is_freezing(s: &Script) -> bool {
    plan(s).backup.is_some_and(|order| order.is_freezing)
}

#[test]
fn all_shards_stop_when_all_are_copied_and_go_on_when_all_are_cut() {
    let mut s = Script::filled();
    let number = begin(&mut s);
    assert!(plan(&s).backup.is_some() && !is_freezing(&s));
    let shards = stateful(&s);
    // Nobody fixes a position before all are told to stop.
    assert_eq!(
        cut(&mut s, shards[0].0, shards[0].1.incarnation, number),
        Applied::Nothing
    );
    let uncopied = |s: &Script| last(s).uncopied().collect::<Vec<_>>();
    for (n, (key, shard)) in shards.iter().enumerate() {
        let left = shards[n..].iter();
        let left: Vec<_> = left.map(|(key, _)| (key.service, key.shard)).collect();
        assert_eq!((uncopied(&s), is_freezing(&s)), (left, false));
        copied(&mut s, *key, shard.incarnation, number);
    }
    assert!(is_freezing(&s) && uncopied(&s).is_empty());
    for (n, (key, shard)) in shards.iter().enumerate() {
        assert!(is_freezing(&s), "{n} of {} are cut", shards.len());
        assert_eq!(
            cut(&mut s, *key, shard.incarnation + 1, number),
            Applied::Nothing
        );
        assert_eq!(
            cut(&mut s, *key, shard.incarnation, number + 1),
            Applied::Nothing
        );
        cut(&mut s, *key, shard.incarnation, number);
    }
    assert_eq!(plan(&s).backup, None);
    let backup = last(&s);
    assert_eq!(backup.outcome, Some(Ok(())));
    assert_eq!(backup.cut.len(), shards.len());
    assert!(begin(&mut s) > number, "another one may be taken");
    s.check();
}

#[test]
fn a_lost_primary_a_new_version_and_a_move_cancel_a_backup() {
    type Change = fn(&mut Script, NodeId);
    let changes: [(&str, Change); 3] = [
        ("primary", |s, primary| s.lose(primary)),
        ("version", |s, _| {
            let text = APP.replacen("latency: 5ms", "latency: 6ms", 1);
            assert_ne!(text, APP);
            s.deploy_manifest(&text).unwrap();
        }),
        ("primary", |s, primary| {
            s.exit(primary);
        }),
    ];
    for (says, change) in changes {
        for freezes in [false, true] {
            let mut s = Script::filled();
            let number = begin(&mut s);
            if freezes {
                copy_all(&mut s, number);
            }
            assert_eq!(is_freezing(&s), freezes);
            let primary = stateful(&s)[0].1.primary;
            change(&mut s, primary);
            let backup = last(&s);
            let why = backup.outcome.expect("it is over").unwrap_err();
            assert!(why.contains(says), "{why}");
            assert_eq!(plan(&s).backup, None, "nothing stays frozen");
            s.check();
        }
    }
}

#[test]
fn a_backup_is_cancelled_once_and_refused_while_one_is_taken() {
    let mut s = Script::filled();
    let number = begin(&mut s);
    let again = s.apply(Command::Backup { app: ID }).unwrap_err();
    assert!(again.to_string().contains("is busy"), "{again}");
    let cancel = |number| Command::CancelBackup {
        app: ID,
        number,
        why: "too slow".into(),
    };
    assert_eq!(s.ok(cancel(number + 1)), Applied::Nothing);
    assert_eq!(s.ok(cancel(number)), Applied::Changed);
    assert_eq!(s.ok(cancel(number)), Applied::Nothing);
    assert_eq!(last(&s).outcome, Some(Err("too slow".into())));
    let none = Command::Backup { app: AppId(9) };
    assert!(matches!(s.apply(none), Err(CommandError::NoApp(_))));
    s.check();
}

fn parts(s: &Script) -> Vec<Part> {
    let of = |(key, _): (ShardKey, ShardPlan)| Part {
        service: key.service,
        shard: key.shard,
        op: 5,
        len: 100,
        crc: 7,
    };
    stateful(s).into_iter().map(of).collect()
}

/// Deploys the sample with the state of a backup.
fn restore(s: &mut Script, name: &str, parts: Vec<Part>) -> Result<Applied, CommandError> {
    let text = APP.replacen("name: two-services", &format!("name: {name}"), 1);
    restore_manifest(s, &text, parts)
}

fn restore_manifest(s: &mut Script, text: &str, parts: Vec<Part>) -> Result<Applied, CommandError> {
    s.apply(Command::Deploy {
        app: Box::new(parse_application("a.yaml", text).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: true,
        restored: Some(Restored {
            number: 3,
            identity: ID,
            shift: Nanos::from_secs(60),
            at: Timestamp(0),
            parts,
        }),
        placed: Vec::new(),
    })
}

/// The sample, whose shards wait for their state.
fn restoring() -> Script {
    let mut s = Script::filled();
    let parts = parts(&s);
    s.ok(Command::Delete {
        app: "two-services".into(),
    });
    let applied = restore(&mut s, "two-services", parts).unwrap();
    assert_eq!(applied, Applied::Deployed(AppId(2)));
    s
}

fn waiting(s: &Script) -> Vec<(ShardKey, ShardPlan)> {
    let app = &s.control.apps[&AppId(2)];
    let shards = app.plan.shards.iter().map(|s| (app.plan.key(s), s.clone()));
    shards.filter(|(key, _)| app.is_restoring(*key)).collect()
}

/// Joining backups have everything, and then the primary says that its shard is restored.
fn restored(s: &mut Script, key: ShardKey) {
    loop {
        let shard = s.shard(key);
        let view = shard.view;
        let Some(backup) = shard.joining.first().copied() else {
            s.ok(Command::Event(NodeEvent::Restored { key, view }));
            return;
        };
        let early = s.ok(Command::Event(NodeEvent::Restored { key, view }));
        assert_eq!(early, Applied::Nothing, "a copy has not got it");
        s.ok(Command::Event(NodeEvent::Synced { key, view, backup }));
    }
}

#[test]
fn a_shard_serves_when_all_its_copies_have_the_state() {
    let mut s = restoring();
    let shards = waiting(&s);
    assert!(!shards.is_empty());
    for (key, shard) in &shards {
        assert!(
            shard.frozen && shard.backups.is_empty() && !shard.joining.is_empty(),
            "{key}"
        );
        restored(&mut s, *key);
        let now = s.shard(*key);
        assert!(!now.frozen && now.filled && now.joining.is_empty());
        assert_eq!(now.backups, shard.joining);
    }
    assert_eq!(waiting(&s).len(), 0);
    assert_eq!(s.control.apps[&AppId(2)].state_lost, 0);
    s.check();
}

#[test]
fn a_shard_that_loses_its_primary_before_begins_with_its_state_again() {
    let mut s = restoring();
    let (key, shard) = waiting(&s).remove(0);
    // Its process knows of no state of the shard.
    s.exit(shard.primary);
    s.restart(shard.primary);
    let now = s.shard(key);
    assert!(now.era > shard.era && now.frozen, "{now:?}");
    assert_eq!(waiting(&s).len(), parts_of_two(&s));
    restored(&mut s, key);
    assert_eq!(s.control.apps[&AppId(2)].state_lost, 0);
    // From here on it is state like any other.
    let now = s.shard(key);
    s.lose(now.primary);
    assert_ne!(s.shard(key).primary, now.primary);
    s.check();
}

#[test]
fn a_shard_does_not_wait_for_a_node_that_is_lost_before() {
    for (durability, exits) in [("memory", false), ("disk", false), ("disk", true)] {
        let mut s = Script::filled_in(Format::WAITS_END);
        let parts = parts(&s);
        s.ok(Command::Delete {
            app: "two-services".into(),
        });
        let of_service = format!("stateful: true\n      durability: {durability}");
        let text = APP.replace("stateful: true", &of_service);
        restore_manifest(&mut s, &text, parts).unwrap();
        let (key, shard) = waiting(&s).remove(0);
        if exits {
            s.exit(shard.primary);
        } else {
            s.lose(shard.primary);
        }
        let now = s.shard(key);
        assert_ne!(now.primary, shard.primary, "{durability}, exits: {exits}");
        assert!(now.era > shard.era && now.frozen, "{now:?}");
        restored(&mut s, key);
        assert!(!s.shard(key).frozen);
        assert_eq!(s.control.apps[&AppId(2)].state_lost, 0);
        s.check();
    }
}

#[test]
fn a_shard_without_any_node_begins_with_its_state_as_soon_as_one_has_room() {
    let mut s = restoring();
    let (key, shard) = waiting(&s).remove(0);
    for node in (0..6).map(NodeId) {
        s.exit(node);
        s.check();
    }
    let now = s.shard(key);
    assert!(
        s.control.apps[&AppId(2)].is_orphan(&now) && !now.frozen,
        "{now:?}"
    );
    for node in (0..6).map(NodeId) {
        s.restart(node);
        s.check();
    }
    let now = s.shard(key);
    assert!(now.era > shard.era && now.frozen, "{now:?}");
    restored(&mut s, key);
    assert!(!s.shard(key).frozen);
    s.check();
}

fn parts_of_two(s: &Script) -> usize {
    let restored = s.control.apps[&AppId(2)].plan.restored.as_ref();
    restored.map_or(0, |r| r.parts.len())
}

#[test]
fn a_backup_that_does_not_fit_the_cluster_or_the_manifest_is_refused() {
    let mut s = Script::filled();
    let all = parts(&s);
    let exists = restore(&mut s, "two-services", all.clone()).unwrap_err();
    assert_eq!(exists, CommandError::Exists("two-services".into()));
    let fewer = restore(&mut s, "copy", all[1..].to_vec()).unwrap_err();
    assert!(matches!(fewer, CommandError::Parts { .. }), "{fewer}");
    restore(&mut s, "copy", all).unwrap();
    let (key, shard) = waiting(&s).remove(0);
    let from = shard.primary;
    for to in (0..6).map(NodeId).filter(|to| *to != from) {
        let moves = Command::Migrate {
            key,
            from,
            to,
            cold: false,
        };
        let busy = s.apply(moves).unwrap_err();
        assert!(matches!(busy, CommandError::Busy { .. }), "{busy}");
    }
    let app = AppId(2);
    let reshard = Command::Reshard {
        app,
        service: key.service,
        shards: 8,
    };
    assert!(matches!(s.apply(reshard), Err(CommandError::Busy { .. })));
    assert!(matches!(
        s.apply(Command::Backup { app }),
        Err(CommandError::Busy { .. })
    ));
    s.check();
}
