//! The fast fidelity against the full one: the same cluster, load and seed.

use e3_fullsim::{Fidelity, simulate};
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{Input, Load, NoController, Options, Report, Run};
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
    let placement = placer.place(&request, &mut Cluster::new(&topology)).unwrap();
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

impl Scene {
    fn run(&self, fidelity: Fidelity, rate_rps: f64, requests: f64) -> Report {
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
            seed: 1,
            samples: false,
            spans: false,
        };
        simulate(fidelity, &input, run, &mut NoController).unwrap()
    }
}

#[test]
fn look() {
    for (name, scene, top) in [
        ("chain beefy", chain(BEEFY), 88_000.0),
        ("chain type1", chain(TYPE1), 78_000.0),
        ("iot-ts", thermostats(), 74_000.0),
    ] {
        for part in [0.1, 0.3, 0.5, 0.65, 0.8] {
            let rate = top * part;
            for fidelity in [Fidelity::Fast, Fidelity::Full] {
                let r = scene.run(fidelity, rate, 20_000.0);
                println!("{name} {part} {fidelity:?}: {:.0}/s avg {:.1} p50 {:.1} p99 {:.1} uJ {:.1} sat {}", r.achieved_rps, r.latency.avg_us, r.latency.p50_us, r.latency.p99_us, r.joules_per_request.unwrap_or(0.0)*1e6, r.saturated);
            }
        }
    }
}
