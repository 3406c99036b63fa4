//! Times of the control plane on clusters of any size, for the experiments of the paper.

use super::scene::{NODES_PER_SERVER, Scene};
use super::{heartbeats, orchestrator};
use e3_placement::{Annealing, by_name};
use e3_solver::Ilp;
use std::time::{Duration, Instant};

/// Seed of the clusters and applications.
const SEED: u64 = 3;

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Each time.
    pub measured: Duration,
    /// Placement of one application, after which annealing gives its best so far.
    pub limit: Duration,
}

/// Milliseconds for one instance by each placer, on a cluster of so many servers that is nearly full; why there is
/// none, if the placer cannot place there.
pub fn placement_ms(
    placers: &[&str],
    ilp: &Ilp,
    servers: usize,
    lengths: Lengths,
) -> Vec<Result<f64, String>> {
    let mut scene = Scene::new(servers, SEED);
    let time = |placer: &&str| {
        let us = scene.time_for(lengths.measured, &mut |request, cluster| match *placer {
            "annealing" => {
                let end = Instant::now() + lengths.limit;
                Annealing::default().place_within(request, cluster, &mut || Instant::now() < end)
            }
            e3_solver::NAME => Ok(ilp.solve(request, cluster)?.placement),
            name => by_name(name).expect("a placer").place(request, cluster),
        })?;
        Ok(us / 1e3)
    };
    placers.iter().map(time).collect()
}

/// Milliseconds of one turn of decisions, carried out and logged, while one SmartNIC in ten is overloaded: median
/// and 99th percentile.
pub fn decision_ms(servers: usize) -> (f64, f64) {
    let found = orchestrator::decide(servers);
    (found.median_ms(), found.p99_ms())
}

/// Milliseconds in which one core takes a heartbeat of each node, verifies its checksum, and looks for silence and for
/// decisions.
pub fn heartbeats_ms(servers: usize, lengths: Lengths) -> f64 {
    let nodes = (servers * NODES_PER_SERVER) as f64;
    nodes / heartbeats::verified_per_s(servers, lengths.measured) * 1e3
}
