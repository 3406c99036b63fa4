//! Energy adds up over nodes, services and requests, and power is what is computed by hand.

mod common;

use common::{at, chain, fixed, iot_ts, racks};
use e3_model::Nanos;
use e3_perfsim::{Load, Run};
use e3_power::IdleServers;

#[track_caller]
fn same(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} and {b}");
}

#[test]
fn energy_of_nodes_services_and_requests_is_that_of_the_cluster() {
    // Idle power of a server: Table 4.
    for (topology, rate, idle_w) in [
        ("3x-type1", 20_000.0, 98.0),
        ("3x-type1", 5.0, 98.0),
        ("3x-beefy", 20_000.0, 83.0),
    ] {
        let scene = iot_ts(topology, "hcm-kind");
        let run = Run {
            samples: true,
            ..at(rate, 2.0)
        };
        let report = scene.run(run);
        let energy = report.energy;
        let of_nodes: f64 = report.nodes.iter().map(|n| n.watts).sum();
        let watts = of_nodes + 3.0 * idle_w;
        same(watts, report.watts_total);
        same(watts * report.measured_s, energy.total_j);
        let of_services = report.services.iter().map(|s| s.joules);
        same(of_services.sum(), energy.total_j);
        same(energy.requests_j + energy.in_flight_j, energy.total_j);
        let of_requests = report.samples.iter().map(|s| s.joules);
        same(of_requests.sum(), energy.requests_j);
    }
}

/// Table 4: a Wimpy server draws 79 W when idle and 95 W at its peak, which its SmartNIC draws from its first message on.
#[test]
fn a_server_of_smartnics_draws_what_table_4_says() {
    let mut scene = chain(1, 4, 1.0);
    let text = racks(&[&[("n0", "smartnic", 4, 10.0), ("unused", "smartnic", 4, 10.0)]]);
    scene.topology = text;
    let watts = |scene: &common::Scene, rate: f64| scene.run(at(rate, 10.0)).watts_total;
    for rate in [50.0, 2_000.0] {
        same(watts(&scene, rate), 95.0 + 79.0);
    }
    scene.options.idle_servers = IdleServers::Asleep;
    same(watts(&scene, 2_000.0), 95.0);
}

/// A Beefy server, 83 W when idle and 201 W at its peak. One request each millisecond keeps a core awake for 155 us: 10 us
/// to wake up, 100 us on a thread alone times 1.25, and 20 us until it sleeps again. By the fit of Table 1 a host draws
/// 20.1 W as long as any core is awake and 7.53 W for each, 110.5 W with all twelve.
#[test]
fn a_host_that_sleeps_between_requests_draws_power_while_it_is_awake() {
    let scene = fixed(racks(&[&[("h", "host", 12, 20.0)]]), &[("a", "h", 100_000)]);
    let times = (0..2_000).map(|n| n * 1_000_000);
    let report = scene.run(Run {
        load: Load::Arrivals(times.collect()),
        warm_up: Nanos::from_secs(1),
        ..at(1.0, 2.0)
    });
    let awake_w = (20.1 + 7.53) * (201.0 - 83.0) / 110.5;
    let expected_w = 83.0 + 0.155 * awake_w;
    let off_w = report.watts_total - expected_w;
    assert!(off_w.abs() < 0.05, "{} W", report.watts_total);
    // 87.57 W for a thousand requests a second.
    let joules = report.joules_per_request.unwrap();
    assert!((joules / 0.0876 - 1.0).abs() < 0.01, "{joules} J");
}
