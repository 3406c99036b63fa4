//! Tables, profiles and topologies as committed, against each other and against what the literature
//! says of them.

#![expect(clippy::disallowed_methods, reason = "reads files of the repository")]

use e3_model::document::{parse_profile, parse_topology};
use e3_model::{NodeKind, Topology};
use e3_power::{PowerModel, paper};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn topology(name: &str) -> Topology {
    let file = format!("{name}.yaml");
    let text = std::fs::read_to_string(repository("topologies").join(&file)).unwrap();
    parse_topology(&file, &text).unwrap()
}

fn near(value: f64, expected: f64, part: f64) -> bool {
    (value / expected - 1.0).abs() <= part
}

#[test]
fn committed_profiles_are_those_that_the_table_gives() {
    let rows = paper::table1();
    assert_eq!(rows.len(), 16);
    let mut filled = BTreeMap::new();
    for row in &rows {
        let name = &row.service;
        let file = format!("{name}.yaml");
        let text = std::fs::read_to_string(repository("profiles/paper").join(&file)).unwrap();
        assert_eq!(
            text,
            paper::profile_yaml(row),
            "run the example paper_profiles"
        );
        let profile = parse_profile(&file, &text).unwrap();
        for (kind, peak) in [
            (NodeKind::Host, row.host),
            (NodeKind::SmartNic, row.smartnic),
        ] {
            let time = profile.service_time(kind, 512).unwrap().as_secs_f64();
            assert!(
                near(peak.cores / time, peak.rate_rps, 1e-3),
                "{name}: {time}"
            );
        }
        for (kind, node) in &profile.spec.nodes {
            if node.lower_bound {
                filled
                    .entry(*kind)
                    .or_insert_with(Vec::new)
                    .push(name.clone());
            }
        }
    } // The port was full before the cores were.
    assert_eq!(filled[&NodeKind::Host], ["count", "ema", "kvs", "flowmon"]);
    assert_eq!(
        filled[&NodeKind::SmartNic],
        ["nids", "natv4", "count", "ema", "kvs", "flowmon", "ddos"]
    );
}

#[test]
fn the_fit_of_table_1_is_the_documented_one() {
    let model = PowerModel::paper();
    let host = model.host();
    assert!(near(host.fixed_w, 20.1, 0.01), "{host}");
    assert!(near(host.per_core_w, 7.53, 0.01), "{host}");
    assert!(host.r_squared > 0.99 && host.error_mean < 0.03, "{host}");
    assert!((18.8..24.7).contains(&model.smartnic().0));
}

#[test]
fn table_4_bounds_every_server() {
    let model = PowerModel::paper();
    for name in ["3x-type1", "3x-beefy", "1x-type1"] {
        for server in topology(name).spec.racks.iter().flat_map(|r| &r.servers) {
            let system = &model.systems()[&server.system];
            let cores: Vec<f64> = server.nodes.iter().map(|n| f64::from(n.cores)).collect();
            let full = model.server(server, &cores).unwrap().total();
            assert!(near(full.0, system.peak_w, 1e-9), "{name}: {full:?}");
            let idle = model
                .server(server, &vec![0.0; cores.len()])
                .unwrap()
                .total();
            assert_eq!(idle.0, system.idle_w);
            let mut last = 0.0;
            for step in 0..=100 {
                let busy: Vec<f64> = cores.iter().map(|c| c * f64::from(step) / 100.0).collect();
                let watts = model.server(server, &busy).unwrap().total().0;
                assert!(
                    watts > last && watts <= system.peak_w + 1e-9,
                    "{name}: {step} %"
                );
                last = watts;
            }
        }
    }
}

#[test]
fn residuals_are_reported_and_unknown_systems_named() {
    let model = PowerModel::paper();
    let lines: Vec<String> = model.residuals().iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 4);
    // The whole of Type2 is far less than the sum of its parts.
    let type2 = lines.iter().find(|l| l.starts_with("Type2")).unwrap();
    assert!(
        type2.contains("peak minus idle 107 W (Table 4), +1"),
        "{type2}"
    );
    let mut topology = topology("1x-type1");
    let server = &mut topology.spec.racks[0].servers[0];
    server.system = "Toaster".into();
    let error = model.server(server, &[0.0, 0.0]).unwrap_err().to_string();
    assert!(
        error.starts_with("server \"s1\": no power model for system \"Toaster\", known are"),
        "{error}"
    );
}
