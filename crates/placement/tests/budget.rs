//! Power budgets bind every placer.

use crate::common::application;
use e3_model::document::parse_topology;
use e3_model::{NodeKind, Topology};
use e3_placement::{AdmitError, Cluster, Misfit, PLACERS, Request, admit, by_name, check_budgets};
use e3_power::PowerModel;
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

/// Four servers in two racks, each bounded.
fn topology(server_w: f64, rack_w: f64) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: bounded}\nspec:\n  racks:\n"
            .to_string();
    for rack in 0..2 {
        text += &format!("    - name: r{rack}\n      powerBudgetW: {rack_w}\n      servers:\n");
        for server in 0..2 {
            let name = format!("r{rack}s{server}");
            text += &format!(
                "        - name: {name}\n          system: Type1-SmartNIC\n          powerBudgetW: {server_w}\n          nodes:\n            - {{name: {name}h, kind: host, cores: 12, memory: 8Gi}}\n            - {{name: {name}n, kind: smartnic, cores: 12, memory: 4Gi}}\n"
            );
        }
    }
    parse_topology("bounded", &text).unwrap()
}

/// Modelled power of what is reserved, by server.
fn drawn(cluster: &Cluster) -> Vec<f64> {
    let power = PowerModel::paper();
    let scale = power.scale(
        "Type1-SmartNIC",
        [(NodeKind::Host, 12.0), (NodeKind::SmartNic, 12.0)].into_iter(),
    );
    let mut servers = [0.0; 4];
    for (_, node) in cluster.nodes() {
        servers[node.server] +=
            power.node_w(node.kind, node.cores, node.used.cpu_cores) * scale.factor;
    }
    let on = |server: usize| {
        cluster
            .nodes()
            .any(|(_, n)| n.server == server && n.used.memory_bytes > 0)
    };
    (0..4)
        .map(|s| {
            if on(s) {
                servers[s] + scale.idle_w
            } else {
                0.0
            }
        })
        .collect()
}

#[test]
fn no_placer_exceeds_a_budget_unless_it_says_so() {
    let (mut placed, mut refused) = (0, 0);
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let (server_w, rack_w) = (120.0 + random.unit() * 60.0, 210.0 + random.unit() * 80.0);
        let topology = topology(server_w, rack_w);
        let apps: Vec<_> = (0..6).map(|_| application(&mut random)).collect();
        for name in PLACERS {
            let placer = by_name(name).unwrap();
            let mut cluster = Cluster::new(&topology);
            for app in &apps {
                let request = Request::new(app, &BTreeMap::new());
                match admit(&*placer, &request, &mut cluster, true) {
                    Ok(_) => placed += 1,
                    Err(AdmitError::NoRoom(s)) => {
                        refused += usize::from(matches!(s.misfit, Misfit::Power { .. }))
                    }
                    Err(_) => {}
                }
                let drawn = drawn(&cluster);
                let at = format!("seed {seed}, {name}: {drawn:?} W of {server_w} and {rack_w}");
                assert!(drawn.iter().all(|w| *w <= server_w + 0.01), "{at}");
                assert!(
                    drawn
                        .chunks(2)
                        .all(|rack| rack.iter().sum::<f64>() <= rack_w + 0.01),
                    "{at}"
                );
            }
        }
    }
    println!("{placed} placed, {refused} refused for power");
    assert!(
        placed > 300 && refused > 100,
        "{placed} placed, {refused} refused"
    );
}

#[test]
fn a_budget_below_idle_is_refused_with_both_figures() {
    let power = PowerModel::paper();
    check_budgets(&topology(98.0, 196.0), &power).unwrap();
    let error = check_budgets(&topology(97.0, 500.0), &power)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "server \"r0s0\": power budget 97 W, must be at least 98 W: that is what it draws when idle"
    );
    let error = check_budgets(&topology(150.0, 195.0), &power)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("rack \"r0\": power budget 195 W, must be at least 196 W"),
        "{error}"
    );
}
