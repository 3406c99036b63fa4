//! Versions go back, when an operator asks and by themselves.

use crate::script::{APP, AT, Script};
use e3_control::limits::RELEASES_MAX;
use e3_control::{AppState, Applied, Command, CommandError, Probation, Seen};
use e3_model::AppId;
use e3_model::document::parse_application;
use std::collections::BTreeMap;

const ID: AppId = AppId(1);

fn app(s: &Script) -> &AppState {
    &s.control.apps[&ID]
}

fn version(s: &Script) -> u32 {
    app(s).plan.code_version
}

fn module(s: &Script) -> &str {
    &app(s).plan.modules[0]
}

fn deploy(s: &mut Script, module: &str) {
    s.ok(Command::Deploy {
        app: Box::new(parse_application("a.yaml", APP).unwrap()),
        modules: vec![module.into(), "m".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: false,
        restored: None,
        placed: Vec::new(),
    });
}

fn started(s: &mut Script) {
    let code_version = version(s);
    s.ok(Command::Started {
        app: ID,
        code_version,
    });
}

fn deploy_and_start(s: &mut Script, module: &str) {
    deploy(s, module);
    started(s);
}

fn rollback(s: &mut Script) -> Result<Applied, CommandError> {
    let code_version = version(s);
    s.apply(Command::Rollback {
        app: ID,
        code_version,
        why: None,
        at: AT,
    })
}

#[test]
fn rollbacks_go_back_one_version_after_another() {
    let mut s = Script::all();
    deploy(&mut s, "a");
    let none = Err(CommandError::NoEarlier("two-services".into()));
    assert_eq!(rollback(&mut s), none, "nothing has run yet");
    started(&mut s);
    assert_eq!(rollback(&mut s), none, "nothing ran before it");
    for module in ["b", "c", "d", "e"] {
        deploy_and_start(&mut s, module);
    }
    assert_eq!(app(&s).history.len(), RELEASES_MAX);
    for (before, version_now) in [("d", 6), ("c", 7), ("b", 8)] {
        assert_eq!(rollback(&mut s), Ok(Applied::Changed));
        assert_eq!((module(&s), version(&s)), (before, version_now));
        started(&mut s);
    }
    assert_eq!(rollback(&mut s), none, "no more are kept");
    assert_eq!(app(&s).rollbacks.len(), 3);
    // A command that another version has overtaken changes nothing.
    let late = Command::Rollback {
        app: ID,
        code_version: 5,
        why: None,
        at: AT,
    };
    assert_eq!(s.ok(late), Applied::Nothing);
    s.check();
}

#[test]
fn a_version_that_never_ran_is_no_aim_of_a_rollback() {
    let mut s = Script::all();
    deploy_and_start(&mut s, "a");
    deploy(&mut s, "b");
    deploy(&mut s, "c");
    assert_eq!(rollback(&mut s), Ok(Applied::Changed));
    assert_eq!((module(&s), version(&s)), ("a", 4));
    // New primaries start in the version that ran, until this one has.
    assert_eq!(app(&s).plan.initial().code_version, 1);
    started(&mut s);
    assert!(app(&s).history.is_empty() && app(&s).plan.proven.is_none());
    // Where a rollback does not start either, the one that ran last is there.
    deploy_and_start(&mut s, "d");
    rollback(&mut s).unwrap();
    assert_eq!(module(&s), "a");
    rollback(&mut s).unwrap();
    assert_eq!(module(&s), "d");
    s.check();
}

/// Looks once a second for so long; applies what is due, and returns the reason.
fn watch(
    s: &mut Script,
    p: &mut Probation,
    seconds: u64,
    seen: &mut Seen,
    each: (u64, u64),
) -> Option<String> {
    for _ in 0..seconds {
        let now = s.next_second();
        seen.succeeded += each.0;
        seen.failed += each.1;
        let due = p.look(now, &s.control, |_| seen.clone());
        if let Some(command) = due.into_iter().next() {
            let Command::Rollback { why, .. } = &command else {
                panic!("{command:?}");
            };
            let why = why.clone();
            s.ok(command);
            return why;
        }
    }
    None
}

#[test]
fn a_version_that_does_not_start_goes_back_by_itself() {
    let mut s = Script::all();
    let (mut p, mut seen) = (Probation::default(), Seen::default());
    // The first version has none to go back to.
    deploy(&mut s, "a");
    seen.error = Some("it is broken".into());
    assert_eq!(watch(&mut s, &mut p, 300, &mut seen, (0, 0)), None);
    seen.error = None;
    started(&mut s);
    watch(&mut s, &mut p, 2, &mut seen, (0, 0));
    deploy(&mut s, "b");
    // An error that passes is none.
    for _ in 0..5 {
        seen.error = Some("it is broken".into());
        assert_eq!(watch(&mut s, &mut p, 8, &mut seen, (0, 0)), None);
        seen.error = None;
        assert_eq!(watch(&mut s, &mut p, 1, &mut seen, (0, 0)), None);
    }
    seen.error = Some("it is broken".into());
    let why = watch(&mut s, &mut p, 12, &mut seen, (0, 0));
    assert_eq!(why.as_deref(), Some("it is broken"));
    assert_eq!((module(&s), version(&s)), ("a", 3));
    let noted = app(&s).rollbacks.back().unwrap();
    assert_eq!((noted.from, noted.to, noted.code_version), (2, 1, 3));
    // What it went back to is not left again.
    assert_eq!(watch(&mut s, &mut p, 300, &mut seen, (0, 0)), None);
    seen.error = None;
    started(&mut s);
    // A version that says nothing and never starts.
    deploy(&mut s, "c");
    let why = watch(&mut s, &mut p, 200, &mut seen, (5, 0)).unwrap();
    assert_eq!(why, "it has not started at every primary within 180 s");
    assert_eq!(module(&s), "a");
    s.check();
}

#[test]
fn a_version_that_fails_where_the_one_before_did_not_goes_back_by_itself() {
    let mut s = Script::all();
    let (mut p, mut seen) = (Probation::default(), Seen::default());
    deploy_and_start(&mut s, "a");
    assert_eq!(watch(&mut s, &mut p, 100, &mut seen, (10, 0)), None);
    // Few requests say nothing, and half of them is not most.
    deploy_and_start(&mut s, "b");
    assert_eq!(watch(&mut s, &mut p, 10, &mut seen, (0, 1)), None);
    assert_eq!(watch(&mut s, &mut p, 1, &mut seen, (10, 0)), None);
    assert_eq!(watch(&mut s, &mut p, 100, &mut seen, (5, 5)), None);
    // The version before failed too.
    deploy_and_start(&mut s, "c");
    assert_eq!(watch(&mut s, &mut p, 100, &mut seen, (0, 10)), None);
    // One that works, then one that does not.
    deploy_and_start(&mut s, "d");
    assert_eq!(watch(&mut s, &mut p, 100, &mut seen, (10, 0)), None);
    deploy_and_start(&mut s, "e");
    let why = watch(&mut s, &mut p, 30, &mut seen, (1, 9)).unwrap();
    assert!(why.contains("attempts failed since it started"), "{why}");
    assert_eq!(module(&s), "d");
    // Long after its start, failures are not the version's.
    started(&mut s);
    watch(&mut s, &mut p, 100, &mut seen, (10, 0));
    deploy_and_start(&mut s, "f");
    assert_eq!(watch(&mut s, &mut p, 70, &mut seen, (10, 0)), None);
    assert_eq!(watch(&mut s, &mut p, 300, &mut seen, (0, 10)), None);
    // A controller that has just started does not know how the version before did.
    deploy_and_start(&mut s, "g");
    let mut fresh = Probation::default();
    assert_eq!(watch(&mut s, &mut fresh, 50, &mut seen, (0, 10)), None);
    s.check();
}
