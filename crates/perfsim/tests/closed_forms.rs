//! The simulator against queues whose mean times are known in closed form (Kleinrock, "Queueing
//! Systems", 1975), within 2 %.

mod common;

use common::{at, chain};
use e3_perfsim::Steering;

/// Mean service time in seconds.
const S: f64 = 1e-3;

#[track_caller]
fn near(found_us: f64, expected_s: f64, what: &str) {
    let off = found_us / (expected_s * 1e6) - 1.0;
    assert!(
        off.abs() < 0.02,
        "{what}: {found_us} us, {:+.2} %",
        off * 100.0
    );
}

#[test]
fn a_single_server_with_exponential_times_is_m_m_1() {
    for load in [0.3, 0.6, 0.8] {
        let report = chain(1, 1, 1.0).run(at(load / S, 3000.0));
        near(report.services[0].sojourn_us, S / (1.0 - load), "M/M/1");
        assert!((report.nodes[0].utilisation - load).abs() < 0.01);
    }
}

#[test]
fn a_single_server_with_constant_times_is_m_d_1() {
    for load in [0.3, 0.6, 0.8] {
        let mut scene = chain(1, 1, 0.0);
        scene.options.guesses.service_variation = 0.0;
        let report = scene.run(at(load / S, 2000.0));
        let expected = S * (1.0 + load / (2.0 * (1.0 - load)));
        near(report.services[0].sojourn_us, expected, "M/D/1");
    }
}

/// Probability that a message has to wait.
fn erlang_c(servers: u32, load: f64) -> f64 {
    let c = f64::from(servers);
    let offered = c * load;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..servers {
        term *= offered / f64::from(k);
        sum += term;
    }
    let last = term * offered / c / (1.0 - load);
    last / (sum + last)
}

#[test]
fn several_servers_with_one_queue_are_m_m_c() {
    for (servers, load) in [(2, 0.7), (4, 0.8), (12, 0.785)] {
        let mut scene = chain(1, servers, 1.0);
        scene.options.steering = Steering::Shared;
        let c = f64::from(servers);
        let report = scene.run(at(c * load / S, 4000.0 / c));
        let wait = erlang_c(u32::from(servers), load) * S / (c * (1.0 - load));
        near(report.services[0].sojourn_us, S + wait, "M/M/c");
    }
}

#[test]
fn round_robin_to_own_queues_waits_longer_than_one_queue() {
    let mut scene = chain(1, 4, 1.0);
    let own = scene.run(at(3000.0, 300.0)).services[0].sojourn_us;
    scene.options.steering = Steering::Shared;
    let shared = scene.run(at(3000.0, 300.0)).services[0].sojourn_us;
    assert!(own > 1.1 * shared, "{own} us, {shared} us");
}

#[test]
fn queues_in_tandem_are_m_m_1_each() {
    let load = 0.7;
    let report = chain(3, 1, 1.0).run(at(load / S, 3000.0));
    for service in &report.services {
        near(service.sojourn_us, S / (1.0 - load), "tandem");
    }
    let in_queues: f64 = report.services.iter().map(|s| s.sojourn_us).sum();
    let hops = report.latency_us_avg() - in_queues;
    assert!(
        (0.0..50.0).contains(&hops),
        "the rest is the network: {hops} us"
    );
}
