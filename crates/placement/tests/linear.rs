//! The index answers as a walk over all nodes does, decision by decision.

use crate::common::{application, topology};
use e3_model::plan::Role;
use e3_model::{Application, NodeId, ServiceId};
use e3_placement::{Cluster, Decision, Hcm, HcmLinear, Placer, Request, Rule};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

/// An application with its instances.
type Running = (Application, Vec<(ServiceId, Role, NodeId)>);

/// What the two must agree on. Which unfit nodes a search has seen is its own affair.
fn outcome(d: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    (d.key, d.node, d.level, d.rule, d.overcommitted.clone())
}

fn role(d: &Decision) -> Role {
    match d.key.replica {
        0 => Role::Primary,
        _ => Role::Backup,
    }
}

/// Nodes go and come back, are drained, and get too many waiting requests.
fn disturb(random: &mut Random, cluster: &mut Cluster) {
    let nodes = cluster.nodes().count();
    for id in (0..nodes).map(NodeId::of_index) {
        cluster.set_member(id, !random.one_in(12));
        cluster.set_drained(id, random.one_in(12));
        cluster.set_outstanding(id, if random.one_in(12) { 100_000 } else { 0 });
    }
}

#[test]
fn indexed_and_linear_searches_decide_alike() {
    let (mut decisions, mut far, mut closest, mut refused) = (0, 0, 0, 0);
    for seed in seeds(400) {
        let mut random = Random::new(seed);
        let mut cluster = Cluster::new(&topology(&mut random));
        let mut running: Vec<Running> = Vec::new();
        for _ in 0..8 {
            if random.one_in(3) {
                disturb(&mut random, &mut cluster);
            }
            if random.one_in(4) && !running.is_empty() {
                let (app, instances) = running.swap_remove(random.index(running.len()));
                let request = Request::new(&app, &BTreeMap::new());
                for (service, role, node) in instances {
                    cluster.remove(&request, service, role, node);
                }
            }
            let app = application(&mut random);
            let request = Request::new(&app, &BTreeMap::new());
            let linear = cluster.try_out(|cluster| HcmLinear.place(&request, cluster));
            let indexed = Hcm.place(&request, &mut cluster);
            let (Ok(linear), Ok(indexed)) = (&linear, &indexed) else {
                assert_eq!(linear.err(), indexed.err(), "seed {seed}");
                refused += 1;
                continue;
            };
            for (l, i) in linear.decisions.iter().zip(&indexed.decisions) {
                assert_eq!(outcome(l), outcome(i), "seed {seed}");
                closest += usize::from(l.rule == Rule::Closest);
                far += usize::from(l.level.is_some_and(|level| level.number() > 4));
            }
            assert_eq!(
                linear.decisions.len(),
                indexed.decisions.len(),
                "seed {seed}"
            );
            decisions += linear.decisions.len();
            let placed = indexed.decisions.iter();
            let placed = placed.map(|d| (d.key.service, role(d), d.node)).collect();
            running.push((app, placed));
        }
    }
    println!(
        "{decisions} decisions, {far} of them far, {closest} where nothing fits, {refused} applications refused"
    );
    assert!(decisions > 10_000 && far > 500 && closest > 500 && refused > 20);
}
