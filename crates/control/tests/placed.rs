//! Where a new application's instances go is decided before the command is logged; the state machine only
//! checks it. So a log gives the same placement whatever placers become.

use crate::script::{APP, Script, deployment};
use e3_control::{Applied, Command, CommandError, Placed, explain};
use e3_model::document::parse_application;
use e3_model::{AppId, NodeId};
use e3_placement::{AdmitError, PLACERS, Request, admit, by_name};
use std::collections::BTreeMap;

/// What a placer decides for the sample on the script's cluster.
fn decided(s: &Script, placer: &str) -> Vec<Placed> {
    let app = parse_application("a.yaml", APP).unwrap();
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = s.control.resources();
    let placer = by_name(placer).unwrap();
    let placement = cluster
        .try_out(|c| admit(&*placer, &request, c, false))
        .unwrap();
    explain(&request, &mut cluster, &placement)
}

fn deploy(s: &mut Script, placed: Vec<Placed>) -> Result<Applied, CommandError> {
    s.apply(deployment(APP, placed))
}

#[test]
fn instances_go_where_it_was_decided_by_any_placer() {
    for placer in PLACERS {
        let mut s = Script::all();
        let placed = decided(&s, placer);
        assert_eq!(
            deploy(&mut s, placed.clone()).unwrap(),
            Applied::Deployed(AppId(1))
        );
        let app = &s.control.apps[&AppId(1)];
        for Placed { key, node, .. } in &placed {
            let shards = app.plan.shards.iter();
            let mut shard = shards.filter(|s| (s.service, s.shard) == (key.service, key.shard));
            let shard = shard.next().unwrap();
            let replicas: Vec<NodeId> = [shard.primary]
                .into_iter()
                .chain(shard.backups.clone())
                .collect();
            assert_eq!(replicas[usize::from(key.replica)], *node, "{placer}");
        }
        assert_eq!(
            app.placed[..],
            placed,
            "the reasons are those of the placer"
        );
        s.settle();
        s.check();
    }
}

#[test]
fn a_decision_that_was_overtaken_is_refused_and_changes_nothing() {
    let mut s = Script::all();
    let placed = decided(&s, "spread");
    s.lose(placed[0].node);
    let before = s.control.clone();
    let refused = deploy(&mut s, placed.clone()).unwrap_err();
    let CommandError::Placed { why, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(why, "the node is down or has not joined");
    assert!(refused.to_string().ends_with("; deploy again"), "{refused}");
    assert_eq!(s.control, before);
    s.check();
}

#[test]
fn wrong_decisions_are_refused_one_by_one() {
    let mut s = Script::all();
    let good = decided(&s, "joules");
    let wrong = |change: &dyn Fn(&mut Vec<Placed>)| {
        let mut placed = good.clone();
        change(&mut placed);
        placed
    };
    let backup = |p: &&mut Placed| p.key.replica == 1;
    let cases = [
        (wrong(&|p| drop(p.pop())), "it has no node"),
        (wrong(&|p| p[0].node = NodeId(99)), "it has no node"),
        (
            wrong(&|p| p.push(p[0].clone())),
            "there are more nodes than instances",
        ),
        (
            wrong(&|p| {
                let (primary, node) = (p[0].key, p[0].node);
                let same = |b: &&mut Placed| {
                    (b.key.service, b.key.shard) == (primary.service, primary.shard)
                };
                p.iter_mut().filter(backup).find(same).unwrap().node = node;
            }),
            "its server already holds a replica of this shard",
        ),
    ];
    for (placed, expected) in cases {
        let before = s.control.clone();
        let error = deploy(&mut s, placed).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(s.control, before);
    }
    let on_one: Vec<Placed> = good.clone();
    deploy(&mut s, on_one).unwrap();
    s.check();
}

#[test]
fn admission_counts_for_what_was_decided_before() {
    let mut s = Script::all();
    let text = APP.replace("memory: 64Mi", "memory: 3Gi");
    let app = parse_application("a.yaml", &text).unwrap();
    // All primaries on one SmartNIC, all backups on another.
    let placed = decided(&s, "spread").into_iter().map(|p| Placed {
        node: NodeId(if p.key.replica == 0 { 1 } else { 3 }),
        ..p
    });
    let refused = s.apply(Command::Deploy {
        app: Box::new(app),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: true,
        restored: None,
        placed: placed.collect(),
    });
    let Err(CommandError::Admit(AdmitError::NoRoom(_))) = &refused else {
        panic!("{refused:?}")
    };
    s.check();
}
