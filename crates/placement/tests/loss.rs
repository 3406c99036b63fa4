//! What is left when a server is lost: the backups on the others become primaries, and their nodes must
//! have the cores for the load of the manifest.

use crate::common::paper::{APPS, CLUSTERS, app, profiles, topology};
use e3_model::NodeId;
use e3_model::plan::Role;
use e3_placement::{Cluster, Placement, Request, by_name, with_possible_replicas};
use std::collections::BTreeMap;

/// The part of its cores that the busiest node reserves after the loss of whichever server is the worst.
fn worst_load(request: &Request<'_>, cluster: &Cluster, placement: &Placement) -> f64 {
    let server = |id: NodeId| cluster.node(id).server;
    let used: Vec<usize> = placement.decisions.iter().map(|d| server(d.node)).collect();
    let mut worst: f64 = 0.0;
    for lost in used {
        let mut cores: BTreeMap<NodeId, f64> = BTreeMap::new();
        for d in &placement.decisions {
            if server(d.node) == lost {
                continue;
            }
            let replicas = placement.replicas(d.key.service, d.key.shard);
            let takes_over = d.key.replica == 1 && server(replicas[0]) == lost;
            let role = match d.key.replica {
                0 => Role::Primary,
                _ if takes_over => Role::Primary,
                _ => Role::Backup,
            };
            let kind = cluster.node(d.node).kind;
            let demand = request.demand(d.key.service, role, kind);
            *cores.entry(d.node).or_default() += demand.cpu_cores;
        }
        for (node, cores) in cores {
            worst = worst.max(cores / cluster.node(node).cores);
        }
    }
    worst
}

#[test]
fn the_servers_that_are_left_carry_the_load_of_the_manifest() {
    let profiles = profiles();
    let clusters = CLUSTERS.iter().map(|(name, _)| *name).chain(["3x-type1"]);
    for name in clusters.filter(|name| *name != "1x-superbeefy") {
        let topology = topology(name);
        for (app_name, _) in APPS {
            let app = with_possible_replicas(app(app_name), &topology);
            let request = Request::new(&app, &profiles);
            let loads = ["hcm-kind", "joules"].map(|placer| {
                let mut cluster = Cluster::new(&topology);
                let placer = by_name(placer).unwrap();
                let placement = cluster.try_out(|c| placer.place(&request, c)).unwrap();
                worst_load(&request, &cluster, &placement)
            });
            let [hcm, joules] = loads;
            println!("{name:18} {app_name:9} hcm-kind {hcm:.2}, joules {joules:.2}");
            assert!(joules <= 1.0 + 1e-6, "{app_name} on {name}: {joules:.2}");
        }
    }
}
