//! The parts of the search, against sums over all instances that share no code with it.

#[path = "../../tests/common/paper.rs"]
mod paper;

use super::state::State;
use super::{Cooling, anneal, start_temperature, walk};
use crate::cluster::Cluster;
use crate::decision::InstanceKey;
use crate::request::Request;
use e3_model::{Application, NodeId, Topology};
use e3_random::Random;
use paper::{app, profiles, topology};
use std::collections::BTreeMap;

/// Mean over cores, memory and bandwidth of the standard deviation of the nodes' use.
fn deviation(state: &State<'_>, topology: &Topology, cluster: &Cluster) -> f64 {
    let mut used: BTreeMap<NodeId, [f64; 3]> = topology.nodes().map(|n| (n.id, [0.0; 3])).collect();
    for (item, id) in state.at.iter().enumerate() {
        let (demand, node) = (state.demand(item, *id), cluster.node(*id));
        let of = used.get_mut(id).unwrap();
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

/// Applications with their clusters.
const CASES: [(&str, &str); 3] = [
    ("iot-ts", "4x-beefy"),
    ("nfv-fin", "2x-type2"),
    ("rta-shm", "4x-wimpy"),
];

fn case() -> (Application, Topology) {
    (app("iot-ts"), topology("4x-beefy"))
}

fn nowhere(_: InstanceKey) -> Option<NodeId> {
    None
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

#[test]
fn the_energy_is_the_deviation_times_the_cost_of_moves() {
    let (app, topology) = case();
    let profiles = profiles();
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let mut random = Random::new(3);
    let mut state = State::new(&request, &cluster, &nowhere, &mut random).unwrap();
    let without_moves = deviation(&state, &topology, &cluster) + 0.001;
    assert!(close(state.energy(), without_moves), "{}", state.energy());
    // A new instance moves nowhere.
    let other = |state: &State<'_>, item: usize| {
        let mut nodes = state.allowed[state.items[item].place].iter();
        *nodes.find(|id| **id != state.at[item]).unwrap()
    };
    let to = other(&state, 0);
    state.move_to(0, to);
    let without_moves = deviation(&state, &topology, &cluster) + 0.001;
    assert!(close(state.energy(), without_moves), "{}", state.energy());

    let running: BTreeMap<InstanceKey, NodeId> = (0..state.at.len())
        .map(|item| (state.items[item].key, state.at[item]))
        .collect();
    let current = |key: InstanceKey| running.get(&key).copied();
    let mut state = State::new(&request, &cluster, &current, &mut random).unwrap();
    let instances = running.len() as f64;
    assert_eq!(instances, 108.0);
    for moved in 0..=5 {
        let deviation = deviation(&state, &topology, &cluster) + 0.001;
        let expected = deviation * (1000.0 + instances + f64::from(moved)) / (1000.0 + instances);
        assert!(close(state.energy(), expected), "{moved} moved");
        let item = usize::try_from(moved).unwrap();
        let to = other(&state, item);
        state.move_to(item, to);
    }
    // What moves back has not moved.
    let back = running[&state.items[0].key];
    state.move_to(0, back);
    let expected = (deviation(&state, &topology, &cluster) + 0.001) * 1113.0 / 1108.0;
    assert!(close(state.energy(), expected));
}

#[test]
fn the_start_temperature_is_the_mean_change_of_fifty_random_moves() {
    let (app, topology) = case();
    let profiles = profiles();
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    for seed in 0..5 {
        let mut random = Random::new(seed);
        let mut state = State::new(&request, &cluster, &nowhere, &mut random).unwrap();
        walk(&mut state, &mut random, &mut || true);
        let mut replay = random.clone();
        let at = state.at.clone();
        let start = start_temperature(&mut state, &mut random);
        assert_eq!(state.at, at, "each move is taken back");
        let before = deviation(&state, &topology, &cluster);
        let mut sum = 0.0;
        for _ in 0..50 {
            let item = replay.index(at.len());
            let to = *replay.pick(&state.allowed[state.items[item].place]);
            state.at[item] = to;
            sum += (deviation(&state, &topology, &cluster) - before).abs();
            state.at[item] = at[item];
        }
        assert!(close(start, sum / 50.0), "seed {seed}: {start}");
        assert_eq!(random.next_u64(), replay.next_u64(), "no other moves");
        assert!(start > 0.0);
    }
}

#[test]
fn annealing_improves_on_the_random_walk() {
    let profiles = profiles();
    for (name, cluster) in CASES {
        let (app, topology) = (app(name), topology(cluster));
        let request = Request::new(&app, &profiles);
        let cluster = Cluster::new(&topology);
        for cooling in [Cooling::Fast, Cooling::Slow] {
            for seed in 0..5 {
                let mut random = Random::new(seed);
                let mut state = State::new(&request, &cluster, &nowhere, &mut random).unwrap();
                assert!(walk(&mut state, &mut random, &mut || true), "{name}");
                let walked = state.energy();
                anneal(&mut state, cooling, true, &mut random, &mut || true);
                let annealed = state.energy();
                println!("{name}: {cooling:?} {seed} {walked:.4} -> {annealed:.4}");
                assert!(
                    annealed < 0.8 * walked,
                    "{name}, seed {seed}: {walked} -> {annealed}"
                );
            }
        }
    }
}
