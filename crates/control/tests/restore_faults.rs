//! Restoring into an emptied application, under its own name, while nodes fail: each shard begins with its state once, or
//! with it again; none serves before all its copies have it.

use crate::formats::BEFORE_WAITS_END;
use crate::script::{APP, Script};
use e3_control::{Applied, Command, CommandError};
use e3_model::backup::{Part, Restored};
use e3_model::document::parse_application;
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::{AppId, Format, Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

const NAME: &str = "two-services";
const NODES: u32 = 6;

/// The states of a backup of the application.
fn parts(s: &Script) -> Vec<Part> {
    let part = |shard: ShardPlan| Part {
        service: shard.service,
        shard: shard.shard,
        op: 5,
        len: 100,
        crc: 7,
    };
    s.shards().into_iter().map(part).collect()
}

fn delete(s: &mut Script) {
    s.ok(Command::Delete { app: NAME.into() });
}

fn restore(s: &mut Script, parts: Vec<Part>) -> Result<Applied, CommandError> {
    restore_as(s, APP, parts)
}

fn restore_as(s: &mut Script, text: &str, parts: Vec<Part>) -> Result<Applied, CommandError> {
    s.apply(Command::Deploy {
        app: Box::new(parse_application("a.yaml", text).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: true,
        restored: Some(Restored {
            number: 3,
            identity: AppId(1),
            shift: Nanos::from_secs(60),
            at: Timestamp(0),
            parts,
        }),
        placed: Vec::new(),
    })
}

/// The application was deleted, and is being restored under its name.
fn emptied() -> (Script, AppId) {
    emptied_as(Script::filled(), APP)
}

/// The same with state on disk, and a log of this format.
fn emptied_on_disk(format: Format) -> (Script, AppId) {
    let on_disk = APP.replace("stateful: true", "stateful: true\n      durability: disk");
    emptied_as(Script::filled_in(format), &on_disk)
}

fn emptied_as(mut s: Script, text: &str) -> (Script, AppId) {
    let parts = parts(&s);
    delete(&mut s);
    match restore_as(&mut s, text, parts) {
        Ok(Applied::Deployed(id)) => (s, id),
        other => panic!("{other:?}"),
    }
}

/// The shards that wait for their state. None of them serves.
fn waiting(s: &Script, id: AppId) -> Vec<ShardKey> {
    let app = &s.control.apps[&id];
    let keys = app.plan.shards.iter().map(|shard| app.plan.key(shard));
    let waiting: Vec<ShardKey> = keys.filter(|key| app.is_restoring(*key)).collect();
    for key in &waiting {
        let shard = s.shard(*key);
        assert!(shard.frozen || app.is_orphan(&shard), "{key} serves");
    }
    waiting
}

fn report(s: &mut Script, key: ShardKey, view: u32) -> Applied {
    s.ok(Command::Event(NodeEvent::Restored { key, view }))
}

/// The joining copies of a shard have its state; with `and_primary` also the primary says so.
fn advance(s: &mut Script, key: ShardKey, and_primary: bool) {
    loop {
        let shard = s.shard(key);
        let view = shard.view;
        let Some(backup) = shard.joining.first().copied() else {
            break;
        };
        s.ok(Command::Event(NodeEvent::Synced { key, view, backup }));
    }
    let view = s.shard(key).view;
    if and_primary {
        assert_eq!(report(s, key, view), Applied::Changed, "{key}");
    }
}

/// All nodes run, and every shard that waits gets its state.
fn complete(s: &mut Script, id: AppId) {
    for node in (0..NODES).map(NodeId) {
        s.restart_if_silent(node);
    }
    for key in waiting(s, id) {
        advance(s, key, true);
    }
    assert_eq!(waiting(s, id), []);
    s.settle();
    let app = s.control.apps[&id].clone();
    assert_eq!(app.state_lost, 0);
    for shard in &app.plan.shards {
        assert!(!shard.frozen && shard.filled, "{shard:?}");
        assert_eq!(shard.backups.len(), 1, "{shard:?}");
        let key = app.plan.key(shard);
        assert_eq!(report(s, key, shard.view), Applied::Nothing, "only once");
    }
    s.check();
}

type Fault = fn(&mut Script, NodeId);

const FAULTS: [(&str, Fault); 4] = [
    ("falls silent", |s, node| s.lose(node)),
    ("falls silent and is heard", |s, node| {
        s.lose(node);
        s.hear(node);
    }),
    ("ends", |s, node| {
        s.exit(node);
    }),
    ("ends and starts", |s, node| {
        s.exit(node);
        s.restart(node);
    }),
];

#[test]
fn whichever_node_fails_at_whichever_step_the_restore_completes_once() {
    let (s, id) = emptied();
    let count = waiting(&s, id).len();
    assert_eq!(count, 3);
    for node in (0..NODES).map(NodeId) {
        for (what, fault) in FAULTS {
            // So many shards have their state, and of the next one the copies may have it.
            for (done, is_copied) in (0..count).flat_map(|n| [(n, false), (n, true)]) {
                println!("node {node} {what}; {done} shards are restored, copies: {is_copied}");
                let (mut s, id) = emptied();
                let keys = waiting(&s, id);
                for key in &keys[..done] {
                    advance(&mut s, *key, true);
                }
                if is_copied {
                    advance(&mut s, keys[done], false);
                }
                let before: Vec<_> = keys[done..].iter().map(|key| s.shard(*key)).collect();
                fault(&mut s, node);
                let left = waiting(&s, id);
                assert_eq!(left, keys[done..], "a fault restores nothing");
                for (key, shard) in left.iter().zip(before) {
                    // What a former primary says late is not believed.
                    if s.shard(*key).view != shard.view {
                        assert_eq!(report(&mut s, *key, shard.view), Applied::Nothing);
                    }
                }
                waiting(&s, id);
                complete(&mut s, id);
            }
        }
    }
}

#[test]
fn all_nodes_may_fail_one_after_the_other_and_again() {
    let (mut s, id) = emptied();
    for _ in 0..3 {
        for node in (0..NODES).map(NodeId) {
            s.exit(node);
            waiting(&s, id);
        }
        for node in (0..NODES).map(NodeId) {
            s.restart(node);
            waiting(&s, id);
        }
    }
    complete(&mut s, id);
}

#[test]
fn a_shard_whose_process_ended_while_it_waited_for_its_state_begins_again_elsewhere() {
    for (format, is_elsewhere) in [(Format::WAITS_END, true), (BEFORE_WAITS_END, false)] {
        let (mut s, id) = emptied_on_disk(format);
        let key = waiting(&s, id)[0];
        let before = s.shard(key);
        s.exit(before.primary);
        println!("{format}: {before:?} -> {:?}", s.shard(key));
        assert_eq!(
            s.shard(key).primary != before.primary,
            is_elsewhere,
            "format {format}"
        );
        complete(&mut s, id);
    }
}

#[test]
fn a_second_restore_while_one_goes_on_is_refused_and_says_what_to_do() {
    let (mut s, id) = emptied();
    let parts = s.control.apps[&id].plan.restored.clone().unwrap().parts;
    let key = waiting(&s, id)[0];
    advance(&mut s, key, true);
    let refused = restore(&mut s, parts.clone()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "application \"two-services\" is being restored already: 2 of its shards wait for their state; see e3 describe \
         app two-services"
    );
    complete(&mut s, id);
    let refused = restore(&mut s, parts).unwrap_err();
    assert_eq!(refused, CommandError::Exists(NAME.into()));
}

#[test]
fn a_restore_that_is_given_up_leaves_nothing_and_can_be_begun_again() {
    let (mut s, id) = emptied();
    let parts = s.control.apps[&id].plan.restored.clone().unwrap().parts;
    let keys = waiting(&s, id);
    advance(&mut s, keys[0], true);
    let late = s.shard(keys[1]);
    s.exit(late.primary);
    delete(&mut s);
    assert!(s.control.apps.is_empty());
    let Ok(Applied::Deployed(again)) = restore(&mut s, parts.clone()) else {
        panic!("the name is free");
    };
    assert_eq!(waiting(&s, again).len(), parts.len());
    // A node that has not heard of it reports what it did for the first one.
    assert_eq!(report(&mut s, keys[1], late.view), Applied::Nothing);
    assert_eq!(waiting(&s, again).len(), parts.len());
    complete(&mut s, again);
}
