//! What a reader may rely on: the same seed gives the same report, the paper's table
//! comes out again, and what cannot be predicted is refused.

mod common;

use common::{Scene, at, chain, iot_ts, scene};
use e3_hardware::network::{ROUND_TRIP_PCIE, ROUND_TRIP_SMARTNICS};
use e3_model::Nanos;
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_perfsim::{
    Controller, HostPort, Load, NoController, NodeLoad, Resource, Run, Simulator, sweep,
};
use e3_placement::limits as placement;
use e3_power::knee::power_at;
use e3_power::paper::table1;
use e3_power::{IdleServers, Instance, KneeInput, PowerModel};
use std::collections::BTreeMap;

#[track_caller]
fn same(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} and {b}");
}

#[test]
fn a_run_that_breaks_off_while_it_warms_up_is_saturated() {
    let scene = iot_ts("3x-type1", "joules");
    let mut run = at(50_000_000.0, 8.0);
    run.warm_up = Nanos(run.duration.0 / 4 * 3);
    let report = scene.run(run);
    assert!(report.saturated);
    assert!(report.duration_s < 6.0, "{} s", report.duration_s);
    assert!(report.offered_rps > 1_000_000.0, "{}", report.offered_rps);
    assert!(
        report.latency.is_some_and(|l| l.p50_us > 0.0),
        "{:?}",
        report.latency
    );
    assert!(report.joules_per_request.is_some_and(|j| j > 0.0));
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_one_does_not() {
    let scene = iot_ts("3x-type1", "joules");
    let run = |seed| {
        format!(
            "{:?}",
            scene.run(Run {
                seed,
                ..at(10_000.0, 0.5)
            })
        )
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A service of Table 1 alone on one node.
fn alone(service: &str, profile: &str, kind: &str) -> Scene {
    let app = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: alone}}\nspec:\n  objective: {{latency: 5s}}\n  ingress: {service}\n  services:\n    - {{name: {service}, module: m, shards: 1, resources: {{cpu: 0.1, memory: 1Mi}}, pin: {{kind: {kind}}}}}\n"
    );
    let topology = include_str!("../../../topologies/1x-type1.yaml");
    let profile = parse_profile("paper", profile).unwrap();
    let profiles = BTreeMap::from([(service.to_string(), profile)]);
    scene(
        parse_application("alone", &app).unwrap(),
        parse_topology("1x-type1", topology).unwrap(),
        profiles,
        "hcm",
    )
}

/// What calibrates the model comes out of it.
#[test]
fn a_service_alone_reaches_the_rate_of_table_1() {
    let knn = include_str!("../../../profiles/paper/knn.yaml");
    let bm25 = include_str!("../../../profiles/paper/bm25.yaml");
    for (service, profile) in [("knn", knn), ("bm25", bm25)] {
        let row = table1().into_iter().find(|r| r.service == service).unwrap();
        for (kind, rate) in [
            ("host", row.host.rate_rps),
            ("smartnic", row.smartnic.rate_rps),
        ] {
            let report = alone(service, profile, kind).run(at(rate * 1.2, 1.0));
            assert!(report.saturated, "{service} on a {kind}");
            let off = report.achieved_rps / rate - 1.0;
            assert!(off.abs() < 0.02, "{service} on a {kind}: {off}");
            let report = alone(service, profile, kind).run(at(rate * 0.7, 1.0));
            assert!(!report.saturated, "{service} on a {kind}");
        }
    }
}

/// At a moderate load the simulator uses what operational analysis says.
#[test]
fn use_and_power_agree_with_the_closed_form() {
    let mut scene = iot_ts("3x-type1", "hcm-kind");
    scene.options.host_port = HostPort::Dedicated;
    scene.options.guesses.context_switch_us = 0.0;
    scene.options.guesses.smartnic_contention = 0.0;
    // The closed form has no time between the last request and sleep.
    scene.options.guesses.host_linger_us = 0.0;
    let rate = 20_000.0;
    let report = scene.run(at(rate, 2.0));
    let decisions = scene.placement.decisions.iter();
    let instances: Vec<Instance> = decisions
        .map(|d| Instance {
            service: d.key.service,
            shard: d.key.shard,
            role: d.key.role(),
            node: d.node,
        })
        .collect();
    let closed = power_at(
        &KneeInput {
            app: &scene.app,
            profiles: &scene.profiles,
            topology: &scene.topology,
            idle_servers: IdleServers::On,
            instances: &instances,
            visits: &scene.visits,
            request_bytes: 512,
            backup_cpu_fraction: placement::BACKUP_CPU_FRACTION,
            power: &PowerModel::paper(),
            knee_utilisation: e3_power::limits::KNEE_UTILISATION,
        },
        rate,
    )
    .unwrap();
    for (found, expected) in report.nodes.iter().zip(&closed.nodes) {
        let off = found.utilisation - expected.utilisation;
        assert!(off.abs() < 0.01, "{found:?} {expected:?}");
    }
    let off = report.watts_total / closed.watts_total.0 - 1.0;
    assert!(
        off.abs() < 0.1,
        "{} W, {:?}",
        report.watts_total,
        closed.watts_total
    );
}

#[test]
fn both_crates_have_the_ratios_of_fig_3() {
    assert_eq!(ROUND_TRIP_PCIE, placement::ROUND_TRIP_PCIE);
    assert_eq!(ROUND_TRIP_SMARTNICS, placement::ROUND_TRIP_SMARTNICS);
    let guesses = e3_hardware::Guesses::default();
    assert_eq!(guesses.round_trip_hosts_us, placement::ROUND_TRIP_HOSTS_US);
    assert_eq!(guesses.backup_cpu_fraction, placement::BACKUP_CPU_FRACTION);
}

#[test]
fn a_load_beyond_the_capacity_is_reported_as_saturated() {
    let scene = chain(1, 2, 1.0);
    let over = scene.run(at(3_000.0, 20.0));
    assert!(over.saturated && over.in_flight > 5_000, "{over:?}");
    assert_eq!(over.bottleneck.node, "n0");
    assert!((over.achieved_rps / 2_000.0 - 1.0).abs() < 0.02);
    let under = scene.run(at(1_000.0, 20.0));
    assert!(!under.saturated, "{:?}", under.bottleneck);
}

#[test]
fn a_sleeping_host_saves_power_and_costs_latency() {
    let mut scene = iot_ts("3x-beefy", "hcm-kind");
    let asleep = scene.run(at(500.0, 2.0));
    scene.options.sleep = false;
    let awake = scene.run(at(500.0, 2.0));
    assert!(asleep.watts_total < 0.8 * awake.watts_total);
    assert!(
        asleep.latency.unwrap().p50_us > awake.latency.unwrap().p50_us + 20.0,
        "{:?} {:?}",
        asleep.latency,
        awake.latency
    );
    // All of three hosts, at Table 4's peak.
    let on: usize = awake.nodes.iter().filter(|n| n.watts > 0.0).count();
    let peak = 3.0 * 83.0 + 118.0 * on as f64;
    assert!(
        (awake.watts_total - peak).abs() < 1.0,
        "{} W",
        awake.watts_total
    );
}

/// E3, section 3.4: services that overload a SmartNIC starve the host behind it.
#[test]
fn an_overloaded_smartnic_holds_the_traffic_of_its_host() {
    let app = "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {name: two}\nspec:\n  objective: {latency: 5s}\n  ingress: a\n  services:\n    - {name: a, module: m, resources: {cpu: 0.1, memory: 1Mi}, pin: {node: s2-nic0}}\n    - {name: slow, module: m, resources: {cpu: 0.1, memory: 1Mi}, pin: {node: s1-nic0}}\n    - {name: b, module: m, resources: {cpu: 0.1, memory: 1Mi}, pin: {node: s1-host}}\n  channels:\n    - {from: a, to: slow}\n    - {from: a, to: b}\n";
    let profile = |name: &str, us: u32| {
        let text = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: {name}}}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    host:\n      serviceTime: [{{bytes: 512, time: 1us}}]\n      activePowerW: 20\n      activeCores: 12\n    smartnic:\n      serviceTime: [{{bytes: 512, time: {us}us}}]\n      activePowerW: 20\n      activeCores: 12\n"
        );
        (name.to_string(), parse_profile("profile", &text).unwrap())
    };
    let profiles = BTreeMap::from([profile("a", 1), profile("slow", 1000), profile("b", 1)]);
    let mut scene = scene(
        parse_application("two", app).unwrap(),
        parse_topology(
            "3x-type1",
            include_str!("../../../topologies/3x-type1.yaml"),
        )
        .unwrap(),
        profiles,
        "hcm",
    );
    let b = |scene: &Scene| scene.run(at(20_000.0, 1.0)).services[2].handled as f64 / 0.9;
    let shared = b(&scene);
    scene.options.host_port = HostPort::Dedicated;
    let dedicated = b(&scene);
    assert!(shared < 14_000.0, "the host gets {shared} messages/s");
    assert!(dedicated > 19_500.0, "the host gets {dedicated} messages/s");
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let refused = |change: &dyn Fn(&mut Scene), run: Run| {
        let mut scene = chain(1, 1, 1.0);
        change(&mut scene);
        scene.try_run(run).unwrap_err().to_string()
    };
    let run = || at(1.0, 1.0);
    let error = refused(&|s| s.bytes = 1024, run());
    assert_eq!(
        error,
        "service \"s0\": profile \"s0\" gives service times on a smartnic for requests of 512..=512 bytes, not of 1024; they are not extrapolated"
    );
    let error = refused(&|s| s.profiles.clear(), run());
    assert_eq!(error, "service \"s0\": there is no profile \"s0\"");
    let error = refused(&|s| s.visits = vec![-1.0], run());
    assert_eq!(
        error,
        "service \"s0\": -1 messages a request, must be 0 or more"
    );
    let error = refused(&|s| s.visits.clear(), run());
    assert_eq!(error, "visits of 0 services, the application has 1");
    let error = refused(&|s| s.placement.decisions.clear(), run());
    assert_eq!(
        error,
        "shard 0 of service \"s0\" has no primary in the placement"
    );
    let error = refused(&|s| s.app.spec.services[0].calls = vec!["s0".into()], run());
    assert!(error.contains("calls other services, which the simulator does not model"));
    let error = refused(&|_| {}, at(-5.0, 1.0));
    assert_eq!(
        error,
        "rate -5 requests/s: must be a finite number, 0 or more"
    );
    let error = refused(&|_| {}, at(1.0, 0.0));
    assert_eq!(error, "duration is 0 ns, must be above 0 and at most 48 h");
}

#[test]
fn the_knee_is_where_throughput_over_latency_is_highest() {
    let scene = chain(1, 1, 1.0);
    let sweep = sweep(&scene.input(), &at(1.0, 300.0)).unwrap();
    // For M/M/1 that is at half of the capacity.
    let knee = sweep.knee.offered_rps;
    assert!((400.0..620.0).contains(&knee), "{knee}");
    assert!(
        (850.0..1_100.0).contains(&sweep.saturates_rps),
        "{}",
        sweep.saturates_rps
    );
    assert_eq!(sweep.knee.bottleneck.what, Resource::Cores);
    let rates = sweep.points.windows(2);
    assert!(
        rates
            .into_iter()
            .all(|w| w[0].offered_rps <= w[1].offered_rps)
    );
}

#[test]
fn a_controller_sees_the_loads_of_the_nodes() {
    struct Watch(Vec<(u64, f64)>);
    impl Controller for Watch {
        fn on_loads(&mut self, now: e3_model::Nanos, loads: &[NodeLoad]) {
            self.0.push((now.0, loads[0].utilisation));
        }
    }
    let scene = chain(1, 1, 0.0);
    let mut watch = Watch(Vec::new());
    let run = Run {
        load: Load::Steps(vec![(0.0, 200.0), (50.0, 800.0)]),
        ..at(1.0, 100.0)
    };
    let simulator = Simulator::new(&scene.input(), run).unwrap();
    let report = simulator.run(&mut watch);
    let mean = |of: &[(u64, f64)]| of.iter().map(|l| l.1).sum::<f64>() / of.len() as f64;
    assert_eq!((watch.0.len(), watch.0[0].0), (100, 1_000_000_000));
    assert!((mean(&watch.0[..50]) - 0.2).abs() < 0.02);
    assert!((mean(&watch.0[51..]) - 0.8).abs() < 0.04);
    assert!(report.timeline.len() >= 90);
}

/// Samples and spans that are not kept are counted, so that a file that ends early says so.
#[test]
fn what_is_not_kept_is_counted() {
    let scene = iot_ts("3x-type1", "joules");
    let run = Run {
        samples: true,
        spans: true,
        ..at(10_000.0, 0.2)
    };
    let all = scene.run(run.clone());
    assert_eq!((all.dropped.samples, all.dropped.spans), (0, 0));
    let simulator = Simulator::new(&scene.input(), run).unwrap();
    let some = simulator.keep_at_most(100, 1_000).run(&mut NoController);
    assert_eq!((some.samples.len(), some.spans.len()), (100, 1_000));
    assert_eq!(some.samples[..], all.samples[..100]);
    assert_eq!(some.dropped.samples, all.samples.len() as u64 - 100);
    assert_eq!(some.dropped.spans, all.spans.len() as u64 - 1_000);
    assert_eq!(some.latency, all.latency);
}

/// A SmartNIC whose power follows its load draws less at a low load, and as much at the full one.
#[test]
fn a_smartnic_saves_at_low_load_what_the_guess_says() {
    let watts = |part: f64, rate: f64| {
        let knn = include_str!("../../../profiles/paper/knn.yaml");
        let mut scene = alone("knn", knn, "smartnic");
        scene
            .options
            .guesses
            .set("smartnic_power_by_load", part)
            .unwrap();
        let report = scene.run(at(rate, 0.5));
        same(
            report.energy.requests_j + report.energy.in_flight_j,
            report.energy.total_j,
        );
        let nic = report
            .nodes
            .iter()
            .find(|n| n.kind == e3_model::NodeKind::SmartNic);
        nic.map(|n| (n.watts, n.utilisation)).unwrap()
    };
    let rate = table1()
        .into_iter()
        .find(|r| r.service == "knn")
        .unwrap()
        .smartnic
        .rate_rps;
    let ((constant, _), (by_load, low)) = (watts(0.0, rate * 0.1), watts(0.5, rate * 0.1));
    assert!((by_load / (constant * (0.5 + 0.5 * low)) - 1.0).abs() < 0.01);
    let ((full, _), (full_by_load, _)) = (watts(0.0, rate * 1.2), watts(0.5, rate * 1.2));
    assert!(
        (full_by_load / full - 1.0).abs() < 0.02,
        "{full_by_load} {full}"
    );
}
