//! Simulated annealing spreads load, and moves of running instances cost.

use crate::common::paper::{APPS, CLUSTERS, app, profiles, topology};
use e3_model::document::{parse_application, parse_topology};
use e3_model::{Application, NodeId, ServiceId, ShardId, Topology};
use e3_placement::{
    Annealing, Cluster, InstanceKey, Placement, Request, by_name, with_possible_replicas,
};
use std::collections::BTreeMap;

type At = BTreeMap<InstanceKey, NodeId>;

/// Mean over cores, memory and bandwidth of the standard deviation of the nodes' use.
fn deviation(request: &Request<'_>, empty: &Cluster, placement: &Placement) -> f64 {
    let mut used: BTreeMap<NodeId, [f64; 3]> =
        empty.nodes().map(|(id, _)| (id, [0.0; 3])).collect();
    for d in &placement.decisions {
        let node = empty.node(d.node);
        let demand = request.demand(d.key.service, d.key.role(), node.kind);
        let of = used.get_mut(&d.node).unwrap();
        of[0] += demand.cpu_cores / node.cores;
        of[1] += demand.memory_bytes as f64 / node.memory_bytes as f64;
        of[2] += demand.bandwidth_gbps / node.bandwidth_gbps;
    }
    let nodes = used.len() as f64;
    let of_resource = |r: usize| {
        let mean = used.values().map(|u| u[r]).sum::<f64>() / nodes;
        let squares = used.values().map(|u| (u[r] - mean).powi(2));
        (squares.sum::<f64>() / nodes).sqrt()
    };
    (0..3).map(of_resource).sum::<f64>() / 3.0
}

fn at(placement: &Placement) -> At {
    placement
        .decisions
        .iter()
        .map(|d| (d.key, d.node))
        .collect()
}

fn moves(from: &At, to: &At) -> usize {
    from.iter().filter(|(key, node)| to[key] != **node).count()
}

#[test]
fn annealing_spreads_load_more_evenly_than_the_start_and_than_hcm() {
    let profiles = profiles();
    let mut feasible = 0;
    // A cluster of one node spreads nothing.
    let clusters = CLUSTERS.iter().map(|(cluster, _)| *cluster);
    for cluster in clusters.filter(|cluster| *cluster != "1x-superbeefy") {
        let topology = topology(cluster);
        for (name, _) in APPS {
            let app = with_possible_replicas(app(name), &topology);
            let request = Request::new(&app, &profiles);
            let empty = Cluster::new(&topology);
            let hcm = by_name("hcm").unwrap().place(&request, &mut empty.clone());
            let placer = Annealing::default();
            let start = placer.place_within(&request, &mut empty.clone(), &mut || false);
            let whole = placer.place_within(&request, &mut empty.clone(), &mut || true);
            let [hcm, start, whole] = [hcm, start, whole].map(Result::unwrap);
            let of = |p: &Placement| deviation(&request, &empty, p);
            println!(
                "{cluster:18} {name:9} hcm {:.4}, start {:.4}, annealed {:.4}",
                of(&hcm),
                of(&start),
                of(&whole)
            );
            assert!(of(&whole) < of(&hcm), "{name} on {cluster}");
            // A random start may be more even because it breaks constraints.
            if start.overcommitted().count() == 0 {
                feasible += 1;
                assert!(of(&whole) < of(&start), "{name} on {cluster}");
            }
        }
    }
    assert!(feasible >= 20, "{feasible} feasible starts");
}

#[test]
fn more_time_never_gives_more_deviation() {
    let (app, profiles, topology) = (app("iot-ts"), profiles(), topology("4x-beefy"));
    let request = Request::new(&app, &profiles);
    let empty = Cluster::new(&topology);
    let mut last = f64::INFINITY;
    for steps in (1..40).map(|step| step * 500) {
        let mut left = steps;
        let mut more = || {
            left -= 1;
            left > 0
        };
        let placer = Annealing::default();
        let placed = placer.place_within(&request, &mut empty.clone(), &mut more);
        let deviation = deviation(&request, &empty, &placed.unwrap());
        assert!(
            deviation <= last + 1e-9,
            "{steps} steps: {deviation} after {last}"
        );
        last = deviation;
    }
}

#[test]
fn it_cools_fast_for_a_new_application_and_slowly_for_one_that_runs() {
    let (app, profiles, topology) = (app("iot-ts"), profiles(), topology("4x-beefy"));
    let request = Request::new(&app, &profiles);
    let empty = Cluster::new(&topology);
    let mut steps = 0;
    let mut more = || {
        steps += 1;
        true
    };
    let placer = Annealing::default();
    let placed = placer
        .place_within(&request, &mut empty.clone(), &mut more)
        .unwrap();
    // A round is 8 moves for each instance. 0.8^31 is the first power below a thousandth, 0.98^342 too.
    let round = 8 * 108;
    let first = steps;
    assert!((31 * round..32 * round).contains(&first), "{first} steps");
    steps = 0;
    let mut more = || {
        steps += 1;
        true
    };
    let running = at(&placed);
    let current = |key| running.get(&key).copied();
    placer
        .balance_within(&request, &mut empty.clone(), &current, &mut more)
        .unwrap();
    assert_eq!(steps, 342 * round);
}

#[test]
fn balancing_starts_from_where_the_instances_run_and_evens_the_load() {
    let profiles = profiles();
    for cluster in ["4x-beefy", "2x-type2", "4x-wimpy"] {
        let topology = topology(cluster);
        for name in ["iot-ts", "nfv-fin", "rta-shm"] {
            let app = app(name);
            let request = Request::new(&app, &profiles);
            let empty = Cluster::new(&topology);
            let joules = by_name("joules").unwrap();
            let running = joules.place(&request, &mut empty.clone()).unwrap();
            let current = at(&running);
            let balanced = |more: &mut dyn FnMut() -> bool| {
                let node_of = |key| current.get(&key).copied();
                let placer = Annealing::default();
                let placed = placer.balance_within(&request, &mut empty.clone(), &node_of, more);
                placed.unwrap()
            };
            // Without time there is one try.
            assert!(moves(&current, &at(&balanced(&mut || false))) <= 1);
            let balanced = balanced(&mut || true);
            assert_eq!(balanced.overcommitted().count(), 0);
            let of = |p: &Placement| deviation(&request, &empty, p);
            println!(
                "{cluster:10} {name:8}: {:.4} -> {:.4} with {} moves of {}",
                of(&running),
                of(&balanced),
                moves(&current, &at(&balanced)),
                current.len()
            );
            assert!(of(&balanced) < of(&running));
        }
    }
}

/// Four equal servers, and a service with eight equal shards.
fn equal() -> (Topology, Application) {
    let head = "apiVersion: e3.dev/v1alpha1\nkind:";
    let server = |n| {
        format!(
            "        - {{name: s{n}, system: any, nodes: [{{name: h{n}, kind: host, cores: 8, memory: 8Gi}}]}}\n"
        )
    };
    let servers: String = (0..4).map(server).collect();
    let topology = format!(
        "{head} Topology\nmetadata: {{name: t}}\nspec:\n  racks:\n    - name: r\n      servers:\n{servers}"
    );
    let app = format!(
        "{head} Application\nmetadata: {{name: a}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: s\n  services:\n    - {{name: s, module: m, shards: 8, resources: {{cpu: 1, memory: 512Mi}}}}\n"
    );
    (
        parse_topology("t", &topology).unwrap(),
        parse_application("a", &app).unwrap(),
    )
}

#[test]
fn no_more_instances_move_than_evening_the_load_takes() {
    let (topology, app) = equal();
    let request = Request::new(&app, &BTreeMap::new());
    let empty = Cluster::new(&topology);
    // Where the eight shards run, and how many must move until each server has two.
    let starts = [
        ([0, 0, 1, 1, 2, 2, 3, 3], 0),
        ([0, 0, 0, 1, 2, 2, 3, 3], 1),
        ([0, 0, 0, 0, 1, 1, 2, 2], 2),
        ([0, 0, 0, 0, 0, 0, 0, 0], 6),
    ];
    let (mut moved_all, mut from_nothing) = (0, 0);
    for (start, needed) in starts {
        for seed in 0..20 {
            let placer = Annealing { seed };
            let current: At = (0..8)
                .map(|shard| {
                    let key = InstanceKey {
                        service: ServiceId(0),
                        shard: ShardId(shard),
                        replica: 0,
                    };
                    (key, NodeId(start[usize::from(shard)]))
                })
                .collect();
            let node_of = |key| current.get(&key).copied();
            let more = &mut || true;
            let balanced = placer.balance_within(&request, &mut empty.clone(), &node_of, more);
            let balanced = balanced.unwrap();
            assert!(deviation(&request, &empty, &balanced) < 1e-9);
            let moved = moves(&current, &at(&balanced));
            assert!(moved >= needed && (needed > 0 || moved == 0), "seed {seed}");
            moved_all += moved;
            let placed = placer.place_within(&request, &mut empty.clone(), more);
            from_nothing += moves(&current, &at(&placed.unwrap()));
        }
    }
    println!("{moved_all} moves, {from_nothing} if nothing ran before");
    assert!(2 * moved_all < from_nothing);
}

#[test]
fn an_instance_without_a_place_to_stay_gets_one_and_the_others_keep_theirs() {
    let (app, profiles, topology) = (app("iot-ts"), profiles(), topology("4x-beefy"));
    let request = Request::new(&app, &profiles);
    let mut empty = Cluster::new(&topology);
    let hcm = by_name("hcm").unwrap();
    let running = at(&hcm.place(&request, &mut empty.clone()).unwrap());
    let lost = *running.values().next().unwrap();
    empty.set_member(lost, false);
    let node_of = |key| running.get(&key).copied();
    let placer = Annealing::default();
    let mut more = || false;
    let placed = placer.balance_within(&request, &mut empty, &node_of, &mut more);
    let placed = at(&placed.unwrap());
    assert!(placed.values().all(|node| *node != lost));
    let stayed = running.iter().filter(|(key, node)| placed[*key] == **node);
    let could = running.values().filter(|node| **node != lost).count();
    assert!(stayed.count() + 2 >= could);
}
