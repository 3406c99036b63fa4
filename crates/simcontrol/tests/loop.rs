//! The product's controller moves services and fails over in simulated clusters.

#[path = "common/pair.rs"]
mod pair;

use e3_model::document::{parse_application, parse_topology};
use e3_model::event::EventKind;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::timing::HEARTBEAT_TIMEOUT;
use e3_model::{Application, Nanos, NodeId, Profile, Topology};
use e3_perfsim::{Failing, Fault, Input, Load, Options, Report, Run, Simulator, Steering};
use e3_placement::{Cluster, Placement, Request, by_name};
use e3_power::IdleServers;
use e3_random::Random;
use e3_simcontrol::{ProductController, Setup, Summary};
use std::collections::BTreeMap;

struct Scene {
    app: Application,
    topology: Topology,
    profiles: BTreeMap<String, Profile>,
    placement: Placement,
    options: Options,
}

impl Scene {
    fn new(placer: &str) -> Scene {
        let app = parse_application("pair", pair::APP).unwrap();
        let text = include_str!("../../../topologies/3x-type1.yaml");
        let topology = parse_topology("3x-type1", text).unwrap();
        let profiles = pair::profiles();
        let request = Request::new(&app, &profiles);
        let mut cluster = Cluster::new(&topology);
        let placement = by_name(placer).unwrap();
        let placement = placement.place(&request, &mut cluster).unwrap();
        Scene {
            placement,
            app,
            topology,
            profiles,
            options: Options::default(),
        }
    }

    fn run(&self, rate: f64, seconds: u64, mode: OrchestratorMode) -> (Report, Summary) {
        let mut controller = ProductController::new(&Setup {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            settings: OrchestratorSettings {
                mode,
                ..OrchestratorSettings::default()
            },
        })
        .unwrap();
        let input = Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits: &[1.0, 1.0],
            request_bytes: 512,
            options: &self.options,
        };
        let run = Run {
            load: Load::Constant(rate),
            duration: Nanos::from_secs(seconds),
            warm_up: Nanos(0),
            seed: 1,
            samples: true,
            spans: false,
        };
        let report = Simulator::new(&input, run).unwrap().run(&mut controller);
        controller.control().validate();
        (report, controller.summary())
    }

    fn fail(mut self, what: Failing, from_ms: u64, until_ms: Option<u64>) -> Scene {
        self.options.faults.push(Fault {
            what,
            from: Nanos::from_millis(from_ms),
            until: until_ms.map(Nanos::from_millis),
        });
        self
    }

    /// Where the primaries of a service are.
    fn primaries(&self, service: usize) -> Vec<NodeId> {
        let shards = 0..self.app.spec.services[service].shards;
        let of = |shard| {
            let service = e3_model::ServiceId(service as u16);
            self.placement.replicas(service, e3_model::ShardId(shard))[0]
        };
        shards.map(of).collect()
    }
}

fn count(summary: &Summary, kind: EventKind) -> usize {
    summary
        .events
        .iter()
        .filter(|e| e.event.kind == kind)
        .count()
}

#[track_caller]
fn adds_up(report: &Report) {
    let same = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} {b}");
    let energy = report.energy;
    same(
        report.services.iter().map(|s| s.joules).sum(),
        energy.total_j,
    );
    same(energy.requests_j + energy.in_flight_j, energy.total_j);
    same(report.watts_total * report.measured_s, energy.total_j);
    let seconds = report.measured_s;
    let arrived = (report.offered_rps * seconds).round();
    let done = (report.achieved_rps * seconds).round();
    let failed = report.disruption.requests_failed as f64;
    assert_eq!(arrived, done + failed + report.in_flight as f64);
}

#[test]
fn the_orchestrator_relieves_a_smartnic_that_nicfirst_has_overloaded() {
    let scene = Scene::new("nicfirst");
    let (off, summary) = scene.run(2_400.0, 30, OrchestratorMode::Off);
    assert_eq!(count(&summary, EventKind::OrchestratorMove), 0);
    assert!(off.saturated, "{:?}", off.bottleneck);
    let (on, summary) = scene.run(2_400.0, 30, OrchestratorMode::On);
    assert!(
        count(&summary, EventKind::OrchestratorMove) >= 1,
        "{summary:?}"
    );
    assert!(
        count(&summary, EventKind::MigrationDone) >= 1,
        "{summary:?}"
    );
    assert!(on.disruption.moves >= 1 && on.disruption.copied_bytes >= 4 << 20);
    assert!(on.achieved_rps > 1.1 * off.achieved_rps);
    let last = on.timeline.last().unwrap();
    assert!(last.in_flight < 100, "{last:?}");
    adds_up(&off);
    adds_up(&on);
}

#[test]
fn a_dry_run_records_decisions_and_moves_nothing() {
    let (report, summary) = Scene::new("nicfirst").run(2_400.0, 5, OrchestratorMode::DryRun);
    assert!(
        count(&summary, EventKind::OrchestratorDryRun) >= 1,
        "{summary:?}"
    );
    assert_eq!(report.disruption.moves, 0);
}

#[test]
fn the_same_seed_gives_the_same_moves() {
    let run = || {
        format!(
            "{:?}",
            Scene::new("nicfirst").run(2_400.0, 6, OrchestratorMode::On)
        )
    };
    assert_eq!(run(), run());
}

#[test]
fn services_of_a_node_that_fails_continue_at_their_backups() {
    let scene = Scene::new("hcm");
    let node = scene.primaries(1)[0];
    let (report, summary) =
        scene
            .fail(Failing::Node(node), 2_000, None)
            .run(500.0, 8, OrchestratorMode::Off);
    let lost = summary
        .events
        .iter()
        .find(|e| e.event.kind == EventKind::NodeLost);
    let lost = lost.unwrap().at_s;
    let noticed = 2.0 + HEARTBEAT_TIMEOUT.0 as f64 / 1e9;
    assert!(
        (noticed - 0.02..noticed + 0.1).contains(&lost),
        "noticed at {lost} s"
    );
    assert_eq!(summary.state_lost, 0);
    let d = report.disruption;
    assert!(
        d.moves >= 1 && d.messages_lost > 0 && d.requests_late > 0,
        "{d:?}"
    );
    assert_eq!(
        d.requests_failed, 0,
        "clients wait for longer than a fail-over takes"
    );
    assert!(d.copies >= 1, "another copy is made: {d:?}");
    assert!(report.in_flight < 20, "{}", report.in_flight);
    adds_up(&report);
}

#[test]
fn a_node_that_comes_back_joins_as_a_new_process() {
    let scene = Scene::new("hcm");
    let node = scene.primaries(1)[0];
    let (report, summary) =
        scene
            .fail(Failing::Node(node), 1_000, Some(3_000))
            .run(500.0, 6, OrchestratorMode::Off);
    assert!(count(&summary, EventKind::NodeLost) >= 1, "{summary:?}");
    assert_eq!(count(&summary, EventKind::NodeJoined), 1, "{summary:?}");
    assert!(report.in_flight < 20, "{}", report.in_flight);
    adds_up(&report);
}

#[test]
fn a_link_that_fails_for_a_moment_makes_requests_late_and_none_fail() {
    let scene = Scene::new("hcm");
    let node = scene.primaries(0)[0];
    let (report, summary) =
        scene
            .fail(Failing::Link(node), 1_000, Some(1_100))
            .run(500.0, 4, OrchestratorMode::Off);
    assert_eq!(count(&summary, EventKind::NodeLost), 0, "{summary:?}");
    let d = report.disruption;
    assert!(
        d.messages_lost > 0 && d.requests_late > 0 && d.moves == 0,
        "{d:?}"
    );
    assert_eq!(d.requests_failed, 0);
    adds_up(&report);
}

#[test]
fn requests_of_a_service_that_nobody_can_take_over_fail_and_are_counted() {
    let scene = Scene::new("hcm");
    let nodes: Vec<NodeId> = scene.topology.nodes().map(|n| n.id).collect();
    let scene = nodes.iter().fold(scene, |scene, node| {
        scene.fail(Failing::Node(*node), 1_000, Some(12_500))
    });
    let (report, _) = scene.run(100.0, 20, OrchestratorMode::Off);
    let d = report.disruption;
    assert!(d.requests_failed > 50, "{d:?}");
    assert!(report.achieved_rps > 20.0, "it serves before and after");
    adds_up(&report);
}

/// Every run also checks Little's law on all queues, and panics if it does not hold.
#[test]
fn whatever_fails_requests_and_energy_add_up() {
    for seed in 1..=24 {
        let mut random = Random::new(seed);
        let mut scene = Scene::new(["hcm", "nicfirst", "spread"][random.index(3)]);
        for _ in 0..1 + random.index(4) {
            let node = NodeId(random.below(6) as u32);
            let what = match random.index(2) {
                0 => Failing::Node(node),
                _ => Failing::Link(node),
            };
            let from = random.below(3_000);
            let until = (random.index(3) > 0).then(|| from + 1 + random.below(1_500));
            scene = scene.fail(what, from, until);
        }
        if random.index(2) == 0 {
            scene.options.steering = Steering::Shared;
        }
        scene.options.sleep = random.index(2) == 0;
        if random.index(2) == 0 {
            scene.options.idle_servers = IdleServers::Asleep;
        }
        let (report, _) = scene.run(1_500.0, 5, OrchestratorMode::On);
        adds_up(&report);
    }
}
