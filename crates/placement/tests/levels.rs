//! Placers to which the levels of the topology are invisible: everything else stays as it is.

use crate::common::paper::{APPS, app, profiles, topology as cluster};
use crate::common::{application, topology};
use e3_placement::{
    Cluster, Hcm, HcmLinear, Placement, Placer, Request, by_name, evaluate, with_possible_replicas,
};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

/// Instances by service, replica and node.
fn counts(placement: &Placement) -> BTreeMap<(u16, bool, u32), usize> {
    let mut counts = BTreeMap::new();
    for d in &placement.decisions {
        let key = (d.key.service.0, d.key.replica > 0, d.node.0);
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// No server has two replicas of a shard.
fn check_fault_domains(placement: &Placement, cluster: &Cluster, seed: u64) {
    for (at, one) in placement.decisions.iter().enumerate() {
        let is_sibling = |other: &&e3_placement::Decision| {
            (other.key.service, other.key.shard) == (one.key.service, one.key.shard)
        };
        for other in placement.decisions[at + 1..].iter().filter(is_sibling) {
            let server = |d: &e3_placement::Decision| cluster.node(d.node).server;
            assert_ne!(server(one), server(other), "seed {seed}: {:?}", one.key);
        }
    }
}

#[test]
fn only_distances_between_services_change() {
    let profiles = profiles();
    for name in ["hcm", "hcm-kind", "joules"] {
        let (mut seen, mut hidden) = (0.0, 0.0);
        for (app_name, _) in APPS {
            let topology = cluster("3x-type1");
            let app = with_possible_replicas(app(app_name), &topology);
            let request = Request::new(&app, &profiles);
            let place = |mut cluster: Cluster| {
                let placement = by_name(name)
                    .unwrap()
                    .place(&request, &mut cluster)
                    .unwrap();
                check_fault_domains(&placement, &cluster, 0);
                placement
            };
            let with = place(Cluster::new(&topology));
            let without = place(Cluster::new(&topology).without_levels());
            if name == "joules" {
                assert_eq!(counts(&with), counts(&without), "{app_name}");
            }
            let us = |placement| {
                let score = evaluate(&request, &topology, &profiles, placement);
                score.unwrap().communication_us
            };
            seen += us(&with);
            hidden += us(&without);
        }
        println!("{name}: {seen:.1} us with levels, {hidden:.1} us without");
        assert!(hidden >= seen, "{name}: {hidden} {seen}");
        if name == "hcm" {
            assert!(hidden > seen * 1.05, "{name}: {hidden} {seen}");
        }
    }
}

#[test]
fn both_searches_decide_alike_and_keep_replicas_apart() {
    let mut decisions = 0;
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let (topology, app) = (topology(&mut random), application(&mut random));
        let request = Request::new(&app, &BTreeMap::new());
        let cluster = Cluster::new(&topology).without_levels();
        let linear = HcmLinear.place(&request, &mut cluster.clone());
        let indexed = Hcm.place(&request, &mut cluster.clone());
        let (Ok(linear), Ok(indexed)) = (&linear, &indexed) else {
            assert_eq!(linear.err(), indexed.err(), "seed {seed}");
            continue;
        };
        check_fault_domains(indexed, &cluster, seed);
        for (l, i) in linear.decisions.iter().zip(&indexed.decisions) {
            assert_eq!(
                (l.key, l.node, l.rule),
                (i.key, i.node, i.rule),
                "seed {seed}"
            );
        }
        decisions += indexed.decisions.len();
    }
    assert!(decisions > 2_000, "{decisions}");
}
