//! The fast fidelity against the full one: the same cluster, load and seed.

use e3_fullsim::{Fidelity, simulate};
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{Input, Load, Options, Report, Run};
use e3_placement::{Cluster, Placement, Request, by_name};
use std::collections::BTreeMap;

struct Scene {
    app: Application,
    topology: Topology,
    profiles: BTreeMap<String, Profile>,
    placement: Placement,
    visits: Vec<f64>,
    options: Options,
}

const CHAIN: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: chain}
spec:
  objective: {latency: 5s}
  ingress: a
  load: {rateRps: 1000, requestBytes: 512}
  services:
    - {name: a, module: m, profile: a, shards: 3, resources: {cpu: 0.1, memory: 1Mi}}
    - {name: b, module: m, profile: b, stateful: true, shards: 6, replicas: 2, resources: {cpu: 0.1, memory: 1Mi}, collections: [{name: c, kind: hash-map}]}
    - {name: c, module: m, profile: c, stateful: true, shards: 6, replicas: 2, resources: {cpu: 0.1, memory: 1Mi}, collections: [{name: c, kind: counter}]}
  channels:
    - {from: a, to: b}
    - {from: b, to: c}
";

/// Fan-out and fan-in: a stateless and a stateful service between two others. The last one gets a message from each.
const DIAMOND: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: diamond}
spec:
  objective: {latency: 5s}
  ingress: a
  load: {rateRps: 1000, requestBytes: 512}
  services:
    - {name: a, module: m, profile: a, stateful: true, shards: 4, replicas: 2, resources: {cpu: 0.1, memory: 1Mi}, collections: [{name: c, kind: counter}]}
    - {name: b, module: m, profile: b, shards: 4, resources: {cpu: 0.1, memory: 1Mi}}
    - {name: c, module: m, profile: c, stateful: true, shards: 8, replicas: 2, resources: {cpu: 0.1, memory: 1Mi}, collections: [{name: c, kind: hash-map}]}
    - {name: d, module: m, profile: a, stateful: true, shards: 8, replicas: 2, resources: {cpu: 0.1, memory: 1Mi}, collections: [{name: c, kind: hash-map}]}
  channels:
    - {from: a, to: b}
    - {from: a, to: c}
    - {from: b, to: d}
    - {from: c, to: d}
";

fn profile(name: &str, us: f64) -> (String, Profile) {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: {name}}}\nspec:\n  provenance: modelled\n  source: test\n  writeBytes: 64\n  nodes:\n    host: {{serviceTime: [{{bytes: 512, time: {us}us}}], variation: 0.5, activePowerW: 20, activeCores: 1}}\n    smartnic: {{serviceTime: [{{bytes: 512, time: {}us}}], variation: 0.5, activePowerW: 20, activeCores: 1}}\n",
        us * 2.0
    );
    (name.into(), parse_profile("profile", &text).unwrap())
}

fn scene(app: &str, topology: &str, profiles: BTreeMap<String, Profile>, visits: &[f64]) -> Scene {
    let app = parse_application("app", app).unwrap();
    let topology = parse_topology("topology", topology).unwrap();
    let request = Request::new(&app, &profiles);
    let placer = by_name("spread").unwrap();
    let placement = placer
        .place(&request, &mut Cluster::new(&topology))
        .unwrap();
    Scene {
        placement,
        visits: visits.to_vec(),
        options: Options::default(),
        app,
        topology,
        profiles,
    }
}

fn chain(topology: &str) -> Scene {
    let profiles = [profile("a", 20.0), profile("b", 50.0), profile("c", 30.0)];
    scene(CHAIN, topology, profiles.into(), &[1.0, 1.0, 1.0])
}

fn diamond(topology: &str) -> Scene {
    let profiles = [profile("a", 20.0), profile("b", 50.0), profile("c", 30.0)];
    scene(DIAMOND, topology, profiles.into(), &[1.0, 1.0, 1.0, 2.0])
}

fn thermostats() -> Scene {
    let texts = [
        include_str!("../../../profiles/paper/apigw.yaml"),
        include_str!("../../../profiles/paper/sql.yaml"),
        include_str!("../../../profiles/paper/ema.yaml"),
        include_str!("../../../profiles/paper/spike.yaml"),
        include_str!("../../../profiles/paper/recommend.yaml"),
    ];
    let profiles = texts.map(|t| parse_profile("paper", t).unwrap());
    let profiles = profiles.map(|p| (p.name.clone(), p));
    scene(
        include_str!("../../../apps/iot-ts.yaml"),
        TYPE1,
        profiles.into(),
        &[1.0, 0.99, 0.61, 0.99, 0.07],
    )
}

const BEEFY: &str = include_str!("../../../topologies/3x-beefy.yaml");
const TYPE1: &str = include_str!("../../../topologies/3x-type1.yaml");
/// Two servers with four SmartNICs each: ECMP over ports, and SmartNICs of one server.
const TYPE2: &str = include_str!("../../../topologies/2x-type2.yaml");

impl Scene {
    fn run(&self, fidelity: Fidelity, rate_rps: f64, requests: f64) -> Report {
        self.run_seeded(fidelity, rate_rps, requests, 1)
    }

    fn run_seeded(&self, fidelity: Fidelity, rate_rps: f64, requests: f64, seed: u64) -> Report {
        let input = Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits: &self.visits,
            request_bytes: 512,
            options: &self.options,
        };
        let duration = Nanos((requests / rate_rps * 1e9) as u64);
        let run = Run {
            load: Load::Constant(rate_rps),
            duration,
            warm_up: Nanos(duration.0 / 10),
            seed,
            samples: false,
            spans: false,
        };
        simulate(fidelity, &input, run).unwrap()
    }
}

/// Part by which two figures may differ.
const NEAR: f64 = 0.05;

#[track_caller]
fn near(what: &str, fast: f64, full: f64) {
    let part = fast / full - 1.0;
    assert!(
        part.abs() < NEAR,
        "{what}: fast {fast}, full {full}: {part:+.3}"
    );
}

/// The rate with the highest throughput over mean latency: that of the least-squares parabola through the points, on
/// logarithmic scales. Each rate is `factor` times the one before, the highest below the capacity.
fn knee(scene: &Scene, fidelity: Fidelity, middle_rps: f64, factor: f64) -> f64 {
    let steps = [-2.0, -1.0, 0.0, 1.0, 2.0];
    let (mut linear, mut square) = (0.0, 0.0);
    for step in steps {
        let rate = middle_rps * f64::powf(factor, step);
        let power = |seed| {
            let report = scene.run_seeded(fidelity, rate, 10_000.0, seed);
            (report.achieved_rps / report.latency_us_avg()).ln()
        };
        let power = (1..=SEEDS).map(power).sum::<f64>() / SEEDS as f64;
        // Orthogonal polynomials on five points.
        linear += power * step / 10.0;
        square += power * (step * step - 2.0) / 14.0;
    }
    assert!(square < 0.0, "throughput over latency has a maximum");
    middle_rps * f64::powf(factor, -linear / (2.0 * square))
}

/// Seeds whose mean is compared: above half of the capacity the tail of one run differs by several percent from seed to
/// seed in either fidelity.
const SEEDS: u64 = 3;

/// Median, 99th percentile and joules of both fidelities at a rate, as means over the seeds.
#[track_caller]
fn agree(name: &str, scene: &Scene, rate_rps: f64, requests: f64) {
    let means = |fidelity: Fidelity| {
        let mut sums = [0.0; 3];
        for seed in 1..=SEEDS {
            let report = scene.run_seeded(fidelity, rate_rps, requests, seed);
            assert!(!report.saturated, "{name} at {rate_rps}/s, seed {seed}");
            let latency = report.latency.unwrap();
            let of = [
                latency.p50_us,
                latency.p99_us,
                report.joules_per_request.unwrap(),
            ];
            sums.iter_mut()
                .zip(of)
                .for_each(|(sum, value)| *sum += value);
        }
        sums.map(|sum| sum / SEEDS as f64)
    };
    let (fast, full) = (means(Fidelity::Fast), means(Fidelity::Full));
    let figures = ["p50", "p99", "joules"].iter().zip(fast.iter().zip(full));
    for (figure, (fast, full)) in figures {
        println!(
            "{name} at {rate_rps}/s, {figure}: {:+.1} %",
            (fast / full - 1.0) * 100.0
        );
        near(&format!("{name} at {rate_rps}/s, {figure}"), *fast, full);
    }
}

#[test]
fn both_fidelities_agree_on_a_chain_on_hosts() {
    for rate in [8_000.0, 24_000.0, 50_000.0] {
        agree("chain on hosts", &chain(BEEFY), rate, 40_000.0);
    }
}

#[test]
fn both_fidelities_agree_on_a_chain_on_hosts_and_smartnics() {
    for rate in [8_000.0, 24_000.0, 32_000.0] {
        agree("chain on 3x-type1", &chain(TYPE1), rate, 40_000.0);
    }
}

#[test]
fn both_fidelities_agree_on_a_diamond() {
    agree("diamond on hosts", &diamond(BEEFY), 24_000.0, 40_000.0);
    agree("diamond on 3x-type1", &diamond(TYPE1), 24_000.0, 40_000.0);
    agree("diamond on 2x-type2", &diamond(TYPE2), 8_000.0, 40_000.0);
}

#[test]
fn both_fidelities_find_the_same_knee() {
    for (topology, name, middle_rps, factor) in [
        (BEEFY, "hosts", 65_000.0, 1.12),
        (TYPE1, "3x-type1", 45_000.0, 1.08),
    ] {
        let scene = chain(topology);
        let of = |fidelity| knee(&scene, fidelity, middle_rps, factor);
        near(
            &format!("knee on {name}"),
            of(Fidelity::Fast),
            of(Fidelity::Full),
        );
    }
}

#[test]
fn both_fidelities_agree_on_the_thermostats() {
    let scene = thermostats();
    for rate in [10_000.0, 20_000.0] {
        agree("iot-ts on 3x-type1", &scene, rate, 60_000.0);
    }
    let run = |fidelity| scene.run(fidelity, 20_000.0, 10_000.0);
    let (fast, full) = (run(Fidelity::Fast), run(Fidelity::Full));
    let handled = |r: &Report| {
        r.services
            .iter()
            .map(|s| s.messages_per_request)
            .sum::<f64>()
    };
    near("messages", handled(&fast), handled(&full));
}

/// In both fidelities the energy of nodes and idle servers is that of the services, and that of the requests.
#[test]
fn energy_of_nodes_services_and_requests_is_that_of_the_cluster() {
    #[track_caller]
    fn same(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} and {b}");
    }
    // Idle power of a server: Table 4.
    for (scene, idle_w) in [(chain(BEEFY), 83.0), (diamond(TYPE1), 98.0)] {
        for fidelity in [Fidelity::Fast, Fidelity::Full] {
            let report = scene.run(fidelity, 8_000.0, 4_000.0);
            let energy = report.energy;
            let of_nodes: f64 = report.nodes.iter().map(|n| n.watts).sum();
            same(
                (of_nodes + 3.0 * idle_w) * report.measured_s,
                energy.total_j,
            );
            same(
                report.services.iter().map(|s| s.joules).sum(),
                energy.total_j,
            );
            same(energy.requests_j + energy.in_flight_j, energy.total_j);
            assert!(energy.requests_j > 0.9 * energy.total_j, "{energy:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let scene = chain(TYPE1);
    let run = || scene.run(Fidelity::Full, 20_000.0, 1_000.0);
    assert_eq!(run(), run());
}

#[test]
fn a_load_beyond_the_capacity_is_saturated_in_both() {
    let scene = chain(BEEFY);
    for fidelity in [Fidelity::Fast, Fidelity::Full] {
        let report = scene.run(fidelity, 200_000.0, 5_000.0);
        assert!(
            report.saturated && report.achieved_rps < 120_000.0,
            "{fidelity:?}"
        );
    }
}

#[test]
fn a_stateful_service_may_answer_before_the_last_message() {
    let mut scene = chain(BEEFY);
    let p50 = |scene: &Scene, fidelity| {
        scene
            .run(fidelity, 8_000.0, 5_000.0)
            .latency
            .unwrap()
            .p50_us
    };
    let last = p50(&scene, Fidelity::Full);
    scene.options.answered_by = Some(e3_model::ServiceId(1));
    let (fast, full) = (p50(&scene, Fidelity::Fast), p50(&scene, Fidelity::Full));
    near("p50", fast, full);
    assert!(full < last * 0.8, "{full} {last}");
}
