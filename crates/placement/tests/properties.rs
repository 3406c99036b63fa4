//! Rules that hold on any cluster for any application; the seed of a failure is printed.

use crate::common::{application, topology};
use e3_model::NodeKind;
use e3_model::application::Pin;
use e3_placement::{Cluster, PlaceError, Request, Rule, by_name};
use e3_testkit::{Random, seeds};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn rules_hold_for_any_cluster_and_application() {
    let mut placed = 0;
    let mut flagged = 0;
    let mut pinned = 0;
    for seed in seeds(500) {
        let mut random = Random::new(seed);
        let (topology, app) = (topology(&mut random), application(&mut random));
        let request = Request::new(&app, &BTreeMap::new());
        let empty = Cluster::new(&topology);
        for name in e3_placement::PLACERS {
            // It takes as long as all others together.
            if name == "annealing" && seed % 5 != 0 {
                continue;
            }
            let placer = by_name(name).unwrap();
            let result = placer.place(&request, &mut empty.clone());
            assert_eq!(
                result,
                placer.place(&request, &mut empty.clone()),
                "seed {seed}"
            );
            let placement = match result {
                Ok(placement) => placement,
                // Only if the hard rules leave no node.
                Err(PlaceError::FaultDomains {
                    replicas, domains, ..
                }) if name != "hosts-only" => {
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
                if name.starts_with("hcm") || name == "hosts-only" {
                    assert_eq!(d.overcommitted.is_some(), d.rule == Rule::Closest, "{at:?}");
                }
                assert!(
                    !matches!(&d.overcommitted, Some(m) if m.is_hard()),
                    "{at:?}"
                );
                assert!(cluster.within_capacity() || exceeded, "{at:?}");
                let full = cluster.node(d.node);
                let is_within = full.used.memory_bytes <= full.memory_bytes
                    && full.used.disk_bytes <= full.disk_bytes;
                assert!(is_within || exceeded, "{at:?}");
                let required = app.service(d.key.service).accelerators_required();
                assert!(full.accelerators.include(required), "{at:?}");
                match &app.service(d.key.service).pin {
                    // As if there were no SmartNICs: pins to them do not count.
                    _ if name == "hosts-only" => assert_eq!(full.kind, NodeKind::Host, "{at:?}"),
                    Some(Pin::Kind(kind)) => assert_eq!(full.kind, *kind, "{at:?}"),
                    Some(Pin::Node(name)) => assert_eq!(full.name, *name, "{at:?}"),
                    None => {}
                }
                pinned += usize::from(app.service(d.key.service).pin.is_some());
                let replicas = placement.replicas(d.key.service, d.key.shard);
                let servers: BTreeSet<_> = replicas.iter().map(|n| empty.node(*n).server).collect();
                assert_eq!(servers.len(), replicas.len(), "{at:?}");
            }
            flagged += usize::from(exceeded);
        }
    }
    assert!(
        placed > 300 && flagged > 20 && pinned > 1000,
        "{placed} placed, {flagged} flagged, {pinned} pinned: too few to tell"
    );
}
