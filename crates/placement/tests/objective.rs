//! `joules` under the latency objective: of the whole path, at services and between nodes.

use crate::common::paper::{APPS, CLUSTERS, app, profiles, topology};
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Application, Nanos, Profile, Topology};
use e3_placement::{Cluster, Request, Score, by_name, evaluate, with_possible_replicas};
use std::collections::BTreeMap;

/// A host and a SmartNIC.
const TOPOLOGY: &str = include_str!("../../../topologies/1x-type1.yaml");

fn judged(
    placer: &str,
    app: &Application,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
) -> Option<Score> {
    let request = Request::new(app, profiles);
    let mut cluster = Cluster::new(topology);
    let placed = by_name(placer).unwrap().place(&request, &mut cluster);
    evaluate(&request, topology, profiles, &placed.ok()?).ok()
}

/// Three services one after the other, each of which needs fewer joules on a SmartNIC and more time.
fn chain(objective_us: u64) -> Score {
    let manifest = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: chain}}\nspec:\n  objective: {{latency: {objective_us}us}}\n  ingress: a\n  services:\n    - {{name: a, module: m, profile: p, resources: {{cpu: 0.1, memory: 16Mi}}}}\n    - {{name: b, module: m, profile: p, resources: {{cpu: 0.1, memory: 16Mi}}}}\n    - {{name: c, module: m, profile: p, resources: {{cpu: 0.1, memory: 16Mi}}}}\n  channels:\n    - {{from: a, to: b}}\n    - {{from: b, to: c}}\n"
    );
    let profile = "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {name: p}\nspec:\n  provenance: measured\n  source: test\n  nodes:\n    host: {serviceTime: [{bytes: 512, time: 400us}], activePowerW: 60, activeCores: 12}\n    smartnic: {serviceTime: [{bytes: 512, time: 450us}], activePowerW: 12, activeCores: 12}\n";
    let app = parse_application("a", &manifest).unwrap();
    let topology = parse_topology("t", TOPOLOGY).unwrap();
    let profile = parse_profile("p", profile).unwrap();
    judged("joules", &app, &topology, &[("p".into(), profile)].into()).unwrap()
}

#[test]
fn the_whole_path_is_within_the_objective() {
    let loose = chain(5_000);
    assert!(loose.latency_us > 1_260.0, "{loose:?}");
    // On each kind every service would be in time if the others were on the faster one.
    let tight = chain(1_260);
    assert!(tight.latency_us <= 1_260.0, "{tight:?}");
    assert_eq!(tight.violations, [] as [&str; 0]);
    assert!(tight.requests_per_joule < loose.requests_per_joule);
}

#[test]
fn where_nothing_meets_the_objective_the_fastest_is_chosen() {
    let impossible = chain(1_000);
    assert_eq!(impossible.latency_us, 1_200.0);
    assert_eq!(
        impossible.violations,
        ["the longest path takes 1200 us, the objective is 1000 us"]
    );
}

/// Another placer may by luck be a little faster than what the search finds.
const ROOM: f64 = 1.05;

#[test]
fn joules_meet_an_objective_that_another_placer_meets() {
    let (profiles, mut met) = (profiles(), 0);
    for (cluster, _) in CLUSTERS {
        let topology = topology(cluster);
        for (name, _) in APPS {
            let mut app = with_possible_replicas(app(name), &topology);
            let others = ["hcm", "hcm-kind", "spread", "nicfirst", "hosts-only"];
            let fastest = others
                .iter()
                .filter_map(|placer| Some(judged(placer, &app, &topology, &profiles)?.latency_us))
                .fold(f64::INFINITY, f64::min);
            let Some(loose) = judged("joules", &app, &topology, &profiles) else {
                continue;
            };
            if loose.latency_us <= fastest * ROOM {
                continue;
            }
            app.spec.objective.latency = Nanos((fastest * ROOM * 1e3) as u64);
            let tight = judged("joules", &app, &topology, &profiles).unwrap();
            let objective_us = app.spec.objective.latency.as_secs_f64() * 1e6;
            println!(
                "{name} on {cluster}: {:.0} us, within {objective_us:.0} us: {:.0} us, {:.2} of the requests/J",
                loose.latency_us,
                tight.latency_us,
                tight.requests_per_joule / loose.requests_per_joule
            );
            assert!(tight.latency_us <= objective_us, "{name} on {cluster}");
            met += 1;
        }
    }
    assert!(met >= 10, "{met} cases in which it matters");
}
