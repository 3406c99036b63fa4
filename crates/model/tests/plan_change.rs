//! A plan and what changed since lead to the plan after the change; the seed of a failure is printed.

use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, NodePlan, Peer, ShardPlan};
use e3_model::plan_change::{AppChange, PlanChange};
use e3_model::{Address, AppId, NodeId, ServiceId, ShardId};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;
use std::sync::Arc;

const APP: &str = include_str!("two-services.yaml");

fn shard(random: &mut Random, service: u16, number: u16) -> ShardPlan {
    ShardPlan {
        service: ServiceId(service),
        shard: ShardId(number),
        view: random.below(3) as u32,
        incarnation: 1,
        primary: NodeId::of_index(random.index(5)),
        backups: vec![NodeId::of_index(random.index(5))],
        joining: Vec::new(),
        leaving: Vec::new(),
        predecessor: None,
        fenced: random.one_in(2),
        frozen: false,
        quiet: false,
        era: 1,
        filled: random.one_in(2),
    }
}

fn app(random: &mut Random, id: u16) -> AppPlan {
    let shards = (0..2).flat_map(|service| (0..4).map(move |shard| (service, shard)));
    let there: Vec<_> = shards.filter(|_| !random.one_in(4)).collect();
    AppPlan {
        id: AppId(id),
        code_version: random.below(3) as u32,
        app: Arc::new(parse_application("a.yaml", APP).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        proven: None,
        slowdown: Vec::new(),
        shards: there
            .into_iter()
            .map(|(s, n)| shard(random, s, n))
            .collect(),
        resharded: Vec::new(),
        backup: None,
        restored: None,
        secrets: BTreeMap::new(),
    }
}

fn plan(random: &mut Random, version: u64) -> NodePlan {
    let peer = |random: &mut Random| Peer {
        name: "n".into(),
        server: 0,
        incarnation: random.below(3) as u32,
        address: Address::default(),
    };
    let peers = (0..6).map(NodeId::of_index).filter(|_| !random.one_in(3));
    let peers: Vec<NodeId> = peers.collect();
    let apps = (1..5).filter(|_| !random.one_in(3)).collect::<Vec<_>>();
    let apps: Vec<AppPlan> = apps.into_iter().map(|id| app(random, id)).collect();
    let listed = apps.iter().filter(|_| !random.one_in(4));
    let directory = listed.map(|app| (app.id, app.listed())).collect();
    NodePlan {
        version,
        cluster: 9,
        node: NodeId(2),
        peers: peers.into_iter().map(|n| (n, peer(random))).collect(),
        apps,
        directory,
        ..NodePlan::default()
    }
}

fn between(old: &NodePlan, new: &NodePlan) -> PlanChange {
    let of = |plan: &NodePlan, id| plan.apps.iter().find(|a| a.id == id).cloned();
    let nodes = old.peers.keys().chain(new.peers.keys());
    let changed = nodes.filter(|n| old.peers.get(n) != new.peers.get(n));
    let gone = old.apps.iter().map(|a| a.id);
    let apps = new.apps.iter().filter_map(|app| {
        let change = AppChange::between(of(old, app.id).as_ref(), app)?;
        Some((app.id, change))
    });
    let listed = old.directory.keys().chain(new.directory.keys());
    let listed = listed.filter(|id| old.directory.get(id) != new.directory.get(id));
    PlanChange {
        base: old.version,
        version: new.version,
        cluster: new.cluster,
        format: new.format,
        peers: changed.map(|n| (*n, new.peers.get(n).cloned())).collect(),
        exited: BTreeMap::new(),
        directory: listed
            .map(|id| (*id, new.directory.get(id).cloned()))
            .collect(),
        gone: gone.filter(|id| of(new, *id).is_none()).collect(),
        apps: apps.collect(),
    }
}

#[test]
fn a_plan_and_what_changed_lead_to_the_plan_after_the_change() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let (old, new) = (plan(&mut random, 3), plan(&mut random, 8));
        let change = between(&old, &new);
        let text = serde_json::to_string(&change).unwrap();
        let change: PlanChange = serde_json::from_str(&text).unwrap();
        assert_eq!(
            old.changed(change.clone()),
            Some(new.clone()),
            "seed {seed}"
        );
        let again = PlanChange { base: 8, ..change };
        assert_eq!(new.changed(again), Some(new.clone()), "seed {seed}: twice");
        let nothing = between(&new, &new);
        assert!(nothing.apps.is_empty() && nothing.peers.is_empty());
    }
}

#[test]
fn a_change_of_another_plan_is_refused() {
    let mut random = Random::new(1);
    let (old, new) = (plan(&mut random, 3), plan(&mut random, 4));
    let change = between(&old, &new);
    let changed = |change: PlanChange| old.changed(change);
    let other_base = PlanChange {
        base: 2,
        ..change.clone()
    };
    let other_cluster = PlanChange {
        cluster: 8,
        ..change.clone()
    };
    assert_eq!((changed(other_base), changed(other_cluster)), (None, None));
    let unknown = AppChange {
        app: None,
        ..AppChange::between(None, &app(&mut random, 7)).unwrap()
    };
    let apps = BTreeMap::from([(AppId(7), unknown)]);
    assert_eq!(
        changed(PlanChange { apps, ..change }),
        None,
        "it lacks the application"
    );
}
