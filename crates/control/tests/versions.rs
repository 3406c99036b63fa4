//! Versions: of the log, of processes and of code. What is old changes nothing, and what is missing
//! is noticed.

use crate::script::{APP, AT, KEY, Script};
use e3_control::{Applied, Command};
use e3_model::document::{parse_application, parse_profile};
use e3_model::{NodeId, NodeKind};
use std::collections::BTreeMap;

#[test]
fn a_log_that_lacks_decisions_is_noticed() {
    let mut control = Script::all().control;
    let version = control.version;
    let missing = |applied: u64| control.missing_version(applied as u32);
    assert_eq!(missing(version), None);
    assert_eq!(missing(version - 1), None);
    assert_eq!(missing(version + 1), Some(version + 1));
    assert_eq!(missing(version + 1_000), Some(version + 1_000));
    // Nodes tell the low half.
    let turn = 1 << 32;
    control.version = turn - 1;
    assert_eq!(control.missing_version(u32::MAX), None);
    assert_eq!(control.missing_version(2), Some(turn + 2));
    control.version = turn + 2;
    assert_eq!(control.missing_version(u32::MAX), None);
    assert_eq!(control.missing_version(5), Some(turn + 5));
}

#[test]
fn news_of_a_process_before_changes_nothing() {
    let node = NodeId(2);
    let mut s = Script::filled();
    s.restart(node);
    s.settle();
    let at = AT;
    let hear = |incarnation| Command::Hear {
        node,
        incarnation,
        at,
    };
    let lose = |incarnation| Command::Lose {
        nodes: BTreeMap::from([(node, incarnation)]),
        at,
    };
    let exit = |incarnation| Command::Exit {
        node,
        incarnation,
        at,
    };
    for late in [lose(1), hear(1), exit(1), hear(2), lose(3)] {
        let before = s.control.clone();
        assert_eq!(s.ok(late), Applied::Nothing);
        assert_eq!(s.control, before);
    }
    assert_eq!(s.ok(lose(2)), Applied::Changed);
    for late in [lose(1), lose(2), hear(1), exit(1)] {
        assert_eq!(s.ok(late), Applied::Nothing);
        assert!(!s.control.is_up(node));
    }
    assert_eq!(s.ok(hear(2)), Applied::Changed);
    assert!(s.control.is_up(node));
    s.check();
}

#[test]
fn a_version_runs_everywhere_when_every_primary_runs_it() {
    let mut s = Script::filled();
    let runs_everywhere = |s: &Script, there: Option<u32>, elsewhere: Option<u32>| {
        let app = &s.control.apps[&KEY.app];
        app.runs_everywhere(|key, node| {
            assert_eq!(app.shard(key).map(|s| s.primary), Some(node));
            if key == KEY { there } else { elsewhere }
        })
    };
    assert!(runs_everywhere(&s, Some(1), Some(1)));
    for (there, elsewhere) in [(Some(2), Some(1)), (None, Some(1)), (Some(1), None)] {
        assert!(!runs_everywhere(&s, there, elsewhere));
    }
    assert!(!runs_everywhere(&s, Some(2), Some(2)));
    // A shard that nobody serves runs nothing.
    let all: Vec<NodeId> = (0..6).map(NodeId).collect();
    s.lose_all(&all);
    assert!(runs_everywhere(&s, Some(1), Some(1)));
    s.ok(Command::Forget { key: KEY, at: AT });
    assert!(!runs_everywhere(&s, Some(1), Some(1)));
}

#[test]
fn a_plan_says_how_much_slower_each_kind_of_node_is() {
    let profile = "
apiVersion: e3.dev/v1alpha1
kind: Profile
metadata: {name: back}
spec:
  provenance: measured
  source: a test
  nodes:
    host:
      serviceTime: [{bytes: 64, time: 10us}]
      activePowerW: 10
      activeCores: 1
    smartnic:
      serviceTime: [{bytes: 64, time: 25us}]
      activePowerW: 10
      activeCores: 1
";
    let profile = parse_profile("p.yaml", profile).unwrap();
    let mut s = Script::all();
    s.ok(Command::Deploy {
        app: Box::new(parse_application("a.yaml", APP).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::from([("back".into(), profile)]),
        overcommit: false,
        restored: None,
        placed: Vec::new(),
    });
    let factors =
        |smartnic| BTreeMap::from([(NodeKind::Host, 1.0), (NodeKind::SmartNic, smartnic)]);
    let slowdown = &s.control.apps[&KEY.app].plan.slowdown;
    assert_eq!(*slowdown, [factors(1.0), factors(2.5)]);
    s.check();
}
