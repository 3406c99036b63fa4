//! Turns of a measured node's loop, by hand.

mod common;

use common::{Scene, at, chain};
use e3_hardware::measured::{Measured, Tail};
use e3_perfsim::{HostPort, Load};

/// Times of ports and rounding.
const TOLERANCE_NS: u64 = 5_000;

fn measured(mut scene: Scene, turn_max_ns: u64) -> Scene {
    scene.options.host_port = HostPort::Dedicated;
    scene.options.machine = Some(Measured {
        client_ns: [0, 0],
        hop_ns: 0,
        tail: Tail::default(),
        wake_ns: [0, 100_000],
        turn_max_ns,
    });
    scene
}

/// Latencies in nanoseconds of requests that arrive at these times, one after the other.
#[track_caller]
fn check(scene: &Scene, arrivals: &[u64], expected: &[u64]) {
    let mut run = at(1.0, 1.0);
    run.warm_up.0 = 0;
    run.load = Load::Arrivals(arrivals.to_vec());
    run.samples = true;
    let mut samples = scene.run(run).samples;
    samples.sort_by_key(|s| s.start_ns);
    let found: Vec<u64> = samples.iter().map(|s| s.latency_ns).collect();
    let near = |(found, expected): (&u64, &u64)| found.abs_diff(*expected) < TOLERANCE_NS;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(near),
        "{found:?}, not {expected:?}"
    );
}

const MS: u64 = 1_000_000;

#[test]
fn what_arrives_in_a_turn_is_answered_together_at_the_end_of_the_next() {
    let scene = measured(chain(1, 1, 0.0), u64::MAX);
    // The first wakes the node.
    let together = MS / 10 + 3 * MS;
    let expected = [MS / 10 + MS, together - 10_000, together - 20_000];
    check(&scene, &[0, 10_000, 20_000], &expected);
    // A node that has slept again wakes again.
    check(&scene, &[0, 10 * MS], &[MS / 10 + MS; 2]);
}

#[test]
fn a_long_turn_ends_before_all_has_run() {
    let scene = measured(chain(1, 1, 0.0), MS);
    let second = MS / 10 + 2 * MS;
    let expected = [MS / 10 + MS, second - 10_000, second + MS - 20_000];
    check(&scene, &[0, 10_000, 20_000], &expected);
}

#[test]
fn a_message_to_the_same_node_runs_before_what_has_arrived_meanwhile() {
    let mut scene = chain(2, 1, 0.0);
    scene.placement.decisions[1].node = scene.placement.decisions[0].node;
    let scene = measured(scene, u64::MAX);
    let first = MS / 10 + 2 * MS;
    check(&scene, &[0, 10_000], &[first, first + 2 * MS - 10_000]);
}
