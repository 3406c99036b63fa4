//! A cluster larger than any in the paper's tables: the memory of the fast fidelity depends on its size, not on the
//! length of the run.

mod common;

use common::{at, iot_ts, scene};
use e3_model::topology::{Rack, Server, TopologySpec};
use e3_model::{Nanos, Topology};
use e3_perfsim::{Report, Run};

const SERVERS: usize = 5_000;
const SERVERS_PER_RACK: usize = 40;
/// Of each service: the most that slots allow, about.
const SHARDS: u16 = 4_000;
const RATE_RPS: f64 = 2.5e6;
/// The aim of `sim.bytes_per_instance`.
const BYTES_MAX: f64 = 20_000.0;

/// Racks of copies of a server.
fn topology(of: &Server) -> Topology {
    let copy = |at: usize| {
        let mut server = of.clone();
        server.name = format!("server{at}");
        for node in &mut server.nodes {
            node.name = format!("{}-{:?}", server.name, node.kind).to_lowercase();
        }
        server
    };
    let all: Vec<usize> = (0..SERVERS).collect();
    let racks = all.chunks(SERVERS_PER_RACK).enumerate();
    let rack = |(at, own): (usize, &[usize])| Rack {
        name: format!("r{at}"),
        servers: own.iter().map(|at| copy(*at)).collect(),
        power_budget_w: None,
    };
    let racks = racks.map(rack).collect();
    Topology::new(format!("{SERVERS}x-type1"), TopologySpec { racks })
}

#[test]
fn five_thousand_servers_run_in_bounded_memory() {
    let small = iot_ts("3x-type1", "spread");
    let mut app = small.app.clone();
    for service in &mut app.spec.services {
        service.shards = SHARDS;
    }
    let mut large = scene(
        app,
        topology(&small.topology.spec.racks[0].servers[0]),
        small.profiles,
        "spread",
    );
    large.visits = small.visits;
    let instances = large.placement.decisions.len() as f64;
    let run = |milliseconds: u64| -> Report {
        large.run(Run {
            duration: Nanos::from_millis(milliseconds),
            warm_up: Nanos(0),
            ..at(RATE_RPS, 1.0)
        })
    };
    let (short, long) = (run(10), run(20));
    for report in [&short, &long] {
        let arrived = (report.offered_rps * report.measured_s).round();
        let done = (report.achieved_rps * report.measured_s).round();
        assert_eq!(arrived, done + report.in_flight as f64);
        assert!(
            report.bottleneck.utilisation < 0.9,
            "{:?}",
            report.bottleneck
        );
        let each = report.memory_bytes as f64 / instances;
        assert!(each < BYTES_MAX, "{each} bytes an instance");
    }
    println!(
        "{instances} instances, {} events, {} MB",
        long.events,
        long.memory_bytes / 1_000_000
    );
    assert!(long.events > 1_000_000, "{} events", long.events);
    assert!(long.memory_bytes as f64 <= 1.2 * short.memory_bytes as f64);
    assert!(
        long.latency
            .is_some_and(|l| l.p50_us > 10.0 && l.p50_us < 5_000.0),
        "{:?}",
        long.latency
    );
}
