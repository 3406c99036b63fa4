//! Moves that follow the load of a running application.

use crate::common::{application, paper, topology};
use e3_model::document::parse_application;
use e3_model::{Application, Nanos, NodeId, Profile, Topology};
use e3_placement::{Cluster, Following, InstanceKey, Offered, Request, by_name, carried, follow};
use e3_testkit::{Random, seeds};
use std::collections::{BTreeMap, BTreeSet};

type At = BTreeMap<InstanceKey, NodeId>;

fn iot_ts() -> (Application, BTreeMap<String, Profile>, Topology) {
    let app = parse_application("iot-ts", include_str!("iot-ts.yaml")).unwrap();
    (app, paper::profiles(), paper::topology("3x-type1"))
}

fn placed(placer: &str, request: &Request<'_>, topology: &Topology) -> Option<At> {
    let mut cluster = Cluster::new(topology);
    let placement = by_name(placer).unwrap().place(request, &mut cluster).ok()?;
    Some(
        placement
            .decisions
            .iter()
            .map(|d| (d.key, d.node))
            .collect(),
    )
}

/// The moves for a rate, made.
fn followed(
    request: &Request<'_>,
    topology: &Topology,
    at: &mut At,
    offered: Offered,
) -> Option<Following> {
    let cluster = Cluster::new(topology);
    let found = follow(request, &cluster, |key| at.get(&key).copied(), offered)?;
    for m in &found.moves {
        assert_eq!(at.insert(m.key, m.to), Some(m.from), "{m:?}");
        let server = |id: NodeId| cluster.node(id).server;
        let same = |key: &InstanceKey| (key.service, key.shard) == (m.key.service, m.key.shard);
        let replicas = at.iter().filter(|(key, _)| same(key));
        let servers: Vec<usize> = replicas.map(|(_, node)| server(*node)).collect();
        let different: BTreeSet<usize> = servers.iter().copied().collect();
        assert_eq!(
            servers.len(),
            different.len(),
            "two replicas on a server after {m:?}"
        );
    }
    Some(found)
}

fn servers(topology: &Topology, at: &At) -> usize {
    let cluster = Cluster::new(topology);
    let used: BTreeSet<usize> = at.values().map(|id| cluster.node(*id).server).collect();
    used.len()
}

fn offered(rate_rps: f64) -> Offered {
    Offered {
        rate_rps,
        reserve: 1.5,
        horizon: Nanos::from_secs(3_600),
        move_joules: 20.0,
    }
}

#[test]
fn at_night_a_server_sleeps_and_by_day_it_is_woken_again() {
    let (app, profiles, topology) = iot_ts();
    let request = Request::new(&app, &profiles);
    let mut at = placed("hcm-kind", &request, &topology).unwrap();
    assert_eq!(servers(&topology, &at), 3);

    let cluster = Cluster::new(&topology);
    let before = carried(&request, &cluster, |key| at.get(&key).copied(), 100.0).unwrap();
    let night = followed(&request, &topology, &mut at, offered(100.0)).unwrap();
    assert_eq!(servers(&topology, &at), 2);
    assert_eq!(before.watts, night.watts_before);
    assert_eq!(before.knee_rps, night.knee_before_rps);
    assert!(night.watts_after < night.watts_before - 90.0, "{night:?}");
    assert!(night.knee_after_rps >= 150.0);
    assert_eq!(followed(&request, &topology, &mut at, offered(100.0)), None);

    let rate = night.knee_after_rps;
    let day = followed(&request, &topology, &mut at, offered(rate)).unwrap();
    assert!(day.knee_before_rps < rate * 1.5);
    assert!(day.knee_after_rps >= rate * 1.5, "{day:?}");
    assert_eq!(followed(&request, &topology, &mut at, offered(rate)), None);
}

#[test]
fn moves_that_do_not_pay_back_are_not_made() {
    let (app, profiles, topology) = iot_ts();
    let request = Request::new(&app, &profiles);
    let mut at = placed("hcm-kind", &request, &topology).unwrap();
    let brief = Offered {
        horizon: Nanos::from_secs(1),
        ..offered(100.0)
    };
    // A sleeping server saves about 100 J in a second, and its 54 moves cost more.
    assert_eq!(followed(&request, &topology, &mut at, brief), None);
}

#[test]
fn a_load_beyond_every_placement_is_spread_and_comes_to_rest() {
    let (app, profiles, topology) = iot_ts();
    let request = Request::new(&app, &profiles);
    let mut at = placed("hcm-kind", &request, &topology).unwrap();
    followed(&request, &topology, &mut at, offered(1e9)).unwrap();
    assert_eq!(servers(&topology, &at), 3);
    assert_eq!(followed(&request, &topology, &mut at, offered(1e9)), None);
}

#[test]
fn any_application_on_any_cluster_follows_any_load_and_comes_to_rest() {
    let mut moved = 0;
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let topology = topology(&mut random);
        let app = application(&mut random);
        let request = Request::new(&app, &BTreeMap::new());
        let Some(mut at) = placed("hcm", &request, &topology) else {
            continue;
        };
        for _ in 0..4 {
            let offered = offered(10f64.powf(random.unit() * 6.0));
            for round in 0.. {
                let Some(found) = followed(&request, &topology, &mut at, offered) else {
                    break;
                };
                moved += found.moves.len();
                assert!(
                    round < 10,
                    "seed {seed}: {offered:?} moves without end: {found:?}"
                );
            }
        }
    }
    assert!(moved > 100, "{moved}");
}
