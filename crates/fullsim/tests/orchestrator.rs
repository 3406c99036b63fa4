//! The product's orchestrator in the loop of both fidelities: in the full one, nodes of the product carry out its
//! moves.

#[path = "../../simcontrol/tests/common/pair.rs"]
mod pair;

use e3_fullsim::{Fidelity, simulator};
use e3_model::document::{parse_application, parse_topology};
use e3_model::event::EventKind;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{Input, Load, Options, Report, Run};
use e3_placement::{Cluster, Placement, Request, by_name};
use e3_simcontrol::Summary;
use std::collections::BTreeMap;

struct Scene {
    app: Application,
    topology: Topology,
    profiles: BTreeMap<String, Profile>,
    placement: Placement,
}

impl Scene {
    fn new() -> Scene {
        let app = parse_application("pair", pair::APP).unwrap();
        let text = include_str!("../../../topologies/3x-type1.yaml");
        let topology = parse_topology("3x-type1", text).unwrap();
        let profiles = pair::profiles();
        let request = Request::new(&app, &profiles);
        let placer = by_name("nicfirst").unwrap();
        let placement = placer
            .place(&request, &mut Cluster::new(&topology))
            .unwrap();
        Scene {
            placement,
            app,
            topology,
            profiles,
        }
    }

    fn run(&self, fidelity: Fidelity, seconds: u64, mode: OrchestratorMode) -> (Report, Summary) {
        let options = Options::default();
        let input = Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits: &[1.0, 1.0],
            request_bytes: 512,
            options: &options,
        };
        let run = Run {
            load: Load::Constant(2_400.0),
            duration: Nanos::from_secs(seconds),
            warm_up: Nanos(0),
            seed: 1,
            samples: false,
            spans: false,
        };
        let settings = OrchestratorSettings {
            mode,
            ..OrchestratorSettings::default()
        };
        let (simulator, mut controller) = simulator(fidelity, &input, run, settings).unwrap();
        let report = simulator.run(&mut controller);
        controller.control().validate();
        (report, controller.summary())
    }
}

/// What the orchestrator moved, and where to; and how many moves were completed.
fn moves(summary: &Summary) -> (Vec<[Option<String>; 3]>, usize) {
    let of = |kind| summary.events.iter().filter(move |e| e.event.kind == kind);
    let moves = of(EventKind::OrchestratorMove).map(|e| &e.event);
    let moves = moves.map(|e| [e.instance.clone(), e.node.clone(), e.to.clone()]);
    (moves.collect(), of(EventKind::MigrationDone).count())
}

#[test]
fn both_fidelities_relieve_the_same_smartnic() {
    let scene = Scene::new();
    let [fast, full] = [Fidelity::Fast, Fidelity::Full].map(|fidelity| {
        let (report, summary) = scene.run(fidelity, 20, OrchestratorMode::On);
        let (moved, done) = moves(&summary);
        assert!(!moved.is_empty() && done == moved.len(), "{summary:?}");
        assert_eq!(report.disruption.moves, done as u64);
        assert!(report.disruption.copied_bytes > 0);
        assert!(
            report.timeline.iter().all(|step| step.other == 0),
            "no request is lost"
        );
        let last = report.timeline.last().unwrap();
        assert!(last.in_flight < 100, "{fidelity:?}: {last:?}");
        (moved, report)
    });
    assert_eq!(fast.0, full.0);
    let watts = fast.1.watts_total / full.1.watts_total - 1.0;
    assert!(watts.abs() < 0.05, "{watts:+.3}");
}

#[test]
fn a_dry_run_moves_nothing() {
    let (report, summary) = Scene::new().run(Fidelity::Full, 4, OrchestratorMode::DryRun);
    let mut events = summary.events.iter();
    assert!(events.any(|e| e.event.kind == EventKind::OrchestratorDryRun));
    assert_eq!(report.disruption.moves, 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scene = Scene::new();
    let run = || format!("{:?}", scene.run(Fidelity::Full, 4, OrchestratorMode::On));
    assert_eq!(run(), run());
}
