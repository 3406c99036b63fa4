//! Small clusters and applications.

#![allow(dead_code, reason = "each test uses a part")]

use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::visits::visits;
use e3_model::{Application, Nanos, Profile, Topology, dag::Dag};
use e3_perfsim::{Input, Load, ModelError, NoController, Options, Report, Run, Simulator};
use e3_placement::{Cluster, Placement, Request, by_name};
use std::collections::BTreeMap;

/// An application on a cluster.
pub struct Scene {
    pub app: Application,
    pub topology: Topology,
    pub profiles: BTreeMap<String, Profile>,
    pub placement: Placement,
    pub visits: Vec<f64>,
    pub bytes: u32,
    pub options: Options,
}

/// A chain of services that take 1 ms on average, each on a node of its own with so many cores that
/// neither sleep nor contend.
pub fn chain(services: usize, cores: u16, variation: f64) -> Scene {
    let mut app = "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {name: chain}\nspec:\n  objective: {latency: 5s}\n  ingress: s0\n  services:\n".to_string();
    let mut topology =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: nodes}\nspec:\n  racks:\n    - name: r\n      servers:\n"
            .to_string();
    let mut channels = String::new();
    let mut profiles = BTreeMap::new();
    for i in 0..services {
        app += &format!(
            "    - {{name: s{i}, module: m, resources: {{cpu: 0.1, memory: 1Mi}}, pin: {{node: n{i}}}}}\n"
        );
        topology += &format!(
            "        - name: server{i}\n          system: Wimpy\n          nodes:\n            - {{name: n{i}, kind: smartnic, cores: {cores}, memory: 1Gi}}\n"
        );
        if i > 0 {
            channels += &format!("    - {{from: s{}, to: s{i}}}\n", i - 1);
        }
        let profile = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: s{i}}}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    smartnic:\n      serviceTime: [{{bytes: 512, time: 1ms}}]\n      variation: {variation}\n      activePowerW: 20\n      activeCores: {cores}\n"
        );
        profiles.insert(format!("s{i}"), parse_profile("profile", &profile).unwrap());
    }
    if !channels.is_empty() {
        app += &format!("  channels:\n{channels}");
    }
    let app = parse_application("app", &app).unwrap();
    let topology = parse_topology("topology", &topology).unwrap();
    let mut scene = scene(app, topology, profiles, "hcm");
    let guesses = &mut scene.options.guesses;
    guesses.service_variation = variation;
    guesses.context_switch_us = 0.0;
    guesses.smartnic_contention = 0.0;
    scene
}

/// A cluster of nodes by rack, each a server of its own: name, kind, cores, Gb/s.
pub fn racks(racks: &[&[(&str, &str, u16, f64)]]) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: racks}\nspec:\n  racks:\n"
            .to_string();
    for (at, rack) in racks.iter().enumerate() {
        text += &format!("    - name: r{at}\n      servers:\n");
        for (name, kind, cores, gbps) in *rack {
            let system = if *kind == "host" { "Beefy" } else { "Wimpy" };
            text += &format!(
                "        - name: of-{name}\n          system: {system}\n          nodes:\n            - {{name: {name}, kind: {kind}, cores: {cores}, memory: 64Gi, bandwidthGbps: {gbps}}}\n"
            );
        }
    }
    parse_topology("racks", &text).unwrap()
}

/// A chain of services on nodes, each with its constant time in nanoseconds on any node. Nothing else takes time.
pub fn fixed(topology: Topology, services: &[(&str, &str, u64)]) -> Scene {
    let mut app = "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {name: fixed}\nspec:\n  objective: {latency: 5s}\n  ingress: SERVICE\n  services:\n".replace("SERVICE", services[0].0);
    let mut profiles = BTreeMap::new();
    for (name, node, ns) in services {
        app += &format!(
            "    - {{name: {name}, module: m, resources: {{cpu: 0.1, memory: 1Mi}}, pin: {{node: {node}}}}}\n"
        );
        let cost = format!(
            "{{serviceTime: [{{bytes: 512, time: {ns}ns}}], activePowerW: 20, activeCores: 12}}"
        );
        let profile = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: {name}}}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    host: {cost}\n    smartnic: {cost}\n"
        );
        profiles.insert(
            name.to_string(),
            parse_profile("profile", &profile).unwrap(),
        );
    }
    if services.len() > 1 {
        app += "  channels:\n";
    }
    for pair in services.windows(2) {
        app += &format!("    - {{from: {}, to: {}}}\n", pair[0].0, pair[1].0);
    }
    let app = parse_application("fixed", &app).unwrap();
    let mut scene = scene(app, topology, profiles, "hcm");
    let guesses = &mut scene.options.guesses;
    guesses.service_variation = 0.0;
    guesses.context_switch_us = 0.0;
    guesses.smartnic_contention = 0.0;
    scene
}

/// Everything else as it is by default.
pub fn scene(
    app: Application,
    topology: Topology,
    profiles: BTreeMap<String, Profile>,
    placer: &str,
) -> Scene {
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology);
    let placement = by_name(placer)
        .unwrap()
        .place(&request, &mut cluster)
        .unwrap();
    let ratio = visits(&app, &Dag::new(&app).unwrap(), |_| 1.0);
    Scene {
        placement,
        visits: ratio,
        bytes: 512,
        options: Options::default(),
        app,
        topology,
        profiles,
    }
}

/// The thermostat application on a topology of the repository, with the paper's profiles.
pub fn iot_ts(topology: &str, placer: &str) -> Scene {
    let app = include_str!("../../../../apps/iot-ts.yaml");
    let topology = match topology {
        "3x-type1" => include_str!("../../../../topologies/3x-type1.yaml"),
        _ => include_str!("../../../../topologies/3x-beefy.yaml"),
    };
    let texts = [
        include_str!("../../../../profiles/paper/apigw.yaml"),
        include_str!("../../../../profiles/paper/sql.yaml"),
        include_str!("../../../../profiles/paper/ema.yaml"),
        include_str!("../../../../profiles/paper/spike.yaml"),
        include_str!("../../../../profiles/paper/recommend.yaml"),
    ];
    let profiles = texts.iter().map(|t| parse_profile("paper", t).unwrap());
    let profiles = profiles.map(|p| (p.name.clone(), p)).collect();
    let mut scene = scene(
        parse_application("iot-ts", app).unwrap(),
        parse_topology("topology", topology).unwrap(),
        profiles,
        placer,
    );
    scene.visits = vec![1.0, 0.99, 0.61, 0.99, 0.07];
    scene
}

/// A run at a rate.
pub fn at(rate_rps: f64, seconds: f64) -> Run {
    let duration = (seconds * 1e9) as u64;
    Run {
        load: Load::Constant(rate_rps),
        duration: Nanos(duration),
        warm_up: Nanos(duration / 10),
        seed: 1,
        samples: false,
        spans: false,
    }
}

impl Scene {
    pub fn input(&self) -> Input<'_> {
        Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits: &self.visits,
            request_bytes: self.bytes,
            options: &self.options,
        }
    }

    pub fn try_run(&self, run: Run) -> Result<Report, ModelError> {
        Ok(Simulator::new(&self.input(), run)?.run(&mut NoController))
    }

    pub fn run(&self, run: Run) -> Report {
        self.try_run(run).unwrap()
    }
}
