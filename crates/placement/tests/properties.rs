//! Rules that hold on any cluster for any application; the seed of a failure is printed.

use e3_model::document::{parse_application, parse_topology};
use e3_model::{Application, Topology};
use e3_placement::{Cluster, Misfit, PlaceError, Request, Rule, by_name};
use e3_testkit::{Random, seeds};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

fn topology(random: &mut Random) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: any}\nspec:\n  racks:\n"
            .to_string();
    for rack in 0..=random.below(3) {
        writeln!(text, "    - name: r{rack}\n      servers:").unwrap();
        for server in 0..=random.below(4) {
            let name = format!("r{rack}s{server}");
            writeln!(
                text,
                "        - name: {name}\n          system: any\n          nodes:"
            )
            .unwrap();
            let memory = 128 << random.below(4);
            writeln!(
                text,
                "            - {{name: {name}h, kind: host, cores: 8, memory: {memory}Mi}}"
            )
            .unwrap();
            for nic in 0..random.below(3) {
                let memory = 64 << random.below(3);
                writeln!(text, "            - {{name: {name}n{nic}, kind: smartnic, cores: 4, memory: {memory}Mi}}").unwrap();
            }
        }
    }
    parse_topology("any", &text).unwrap()
}

fn application(random: &mut Random) -> Application {
    let mut text = "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {name: any}\nspec:\n  objective: {latency: 5ms}\n  ingress: s0\n  services:\n".to_string();
    let services = 1 + random.below(5);
    for s in 0..services {
        let (shards, replicas) = (1 + random.below(8), 1 + random.below(3));
        let (cpu, memory) = (1 + random.below(20), 8 << random.below(4));
        let pin = match random.below(6) {
            0 => ", pin: {kind: host}",
            1 => ", pin: {kind: smartnic}",
            _ => "",
        };
        writeln!(text, "    - {{name: s{s}, module: m, stateful: true, shards: {shards}, replicas: {replicas}, resources: {{cpu: 0.{cpu}, memory: {memory}Mi}}{pin}}}").unwrap();
    }
    text.push_str("  channels:");
    text.push_str(if services == 1 { " []\n" } else { "\n" });
    for to in 1..services {
        writeln!(text, "    - {{from: s{}, to: s{to}}}", random.below(to)).unwrap();
    }
    parse_application("any", &text).unwrap()
}

#[test]
fn rules_hold_for_any_cluster_and_application() {
    let mut placed = 0;
    let mut flagged = 0;
    for seed in seeds(500) {
        let mut random = Random::new(seed);
        let (topology, app) = (topology(&mut random), application(&mut random));
        let request = Request::new(&app, &BTreeMap::new());
        let empty = Cluster::new(&topology);
        for name in e3_placement::PLACERS {
            let placer = by_name(name).unwrap();
            let result = placer.place(&request, &empty);
            assert_eq!(result, placer.place(&request, &empty), "seed {seed}");
            let placement = match result {
                Ok(placement) => placement,
                // Only if the hard rules leave no node.
                Err(PlaceError::FaultDomains {
                    replicas, domains, ..
                }) if name == "hcm" => {
                    assert!(domains < usize::from(replicas), "seed {seed}");
                    continue;
                }
                Err(_) => continue,
            };
            placed += 1;
            assert_eq!(
                placement.decisions.len() as u32,
                app.instances(),
                "seed {seed}"
            );
            let mut cluster = empty.clone();
            let mut exceeded = false;
            for d in &placement.decisions {
                let at = (name, seed, d.explain(&request, &empty).to_string());
                let role = match d.key.replica {
                    0 => e3_model::plan::Role::Primary,
                    _ => e3_model::plan::Role::Backup,
                };
                cluster.add(&request, d.key.service, role, d.node);
                exceeded |= d.overcommitted.is_some();
                assert_eq!(d.overcommitted.is_some(), d.rule == Rule::Closest, "{at:?}");
                assert!(
                    !matches!(&d.overcommitted, Some(m) if m.is_hard()),
                    "{at:?}"
                );
                assert!(cluster.within_capacity() || exceeded, "{at:?}");
                let of_memory = matches!(d.overcommitted, Some(Misfit::Memory { .. }));
                let full = cluster.node(d.node);
                assert!(
                    of_memory || full.used.memory_bytes <= full.memory_bytes || exceeded,
                    "{at:?}"
                );
                let replicas = placement.replicas(d.key.service, d.key.shard);
                let servers: BTreeSet<_> = replicas.iter().map(|n| empty.node(*n).server).collect();
                assert_eq!(servers.len(), replicas.len(), "{at:?}");
            }
            flagged += usize::from(exceeded);
        }
    }
    assert!(
        placed > 300 && flagged > 20,
        "{placed} placed, {flagged} flagged: too few to tell"
    );
}
