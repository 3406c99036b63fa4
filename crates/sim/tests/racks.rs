//! The loss of a rack loses nothing where another rack can have the copies.

use e3_sim::{Act, Fault, Scenario, run};

/// How long the power is away.
const AWAY_MS: u64 = 6_000;

/// Two racks of two servers; three shards with two copies in memory call for four with three.
fn scenario() -> Scenario {
    let service = |shards: u16, replicas: u16| {
        serde_json::json!({
            "stateful": true, "shards": shards, "replicas": replicas, "refusesAlone": false,
            "serviceUs": 50, "failsPermille": 0, "stateBytes": 0,
        })
    };
    let client = |keys: u64| {
        serde_json::json!({
            "app": 0, "requests": 1_000, "burst": 1, "isRushing": false, "keys": keys,
            "deadlineMs": 60_000, "isKeyed": false, "offsetMs": 0, "vanishesMs": null,
        })
    };
    let scenario = serde_json::json!({
        "seed": 7,
        "servers": [1, 0, 1, 0],
        "racks": [2, 2],
        "apps": [{
            "admittedMax": 1_000, "attempts": 1,
            "services": [service(3, 2), service(4, 3)],
            "channels": [{"from": 0, "to": 1, "messages": 1}],
        }],
        "clients": [client(8), client(1_000)],
        "network": {"lossPermille": 0, "repeatPermille": 0, "damagePermille": 0, "delayUsMax": 40},
        "clocks": [],
        "sparesLastCopies": false,
        "faultsMs": 28_000,
        "script": [],
    });
    serde_json::from_value(scenario).unwrap()
}

fn act(at_ms: u64, fault: Fault) -> Act {
    Act {
        at_ms,
        for_ms: AWAY_MS,
        fault,
    }
}

/// Shards whose last copy a scenario destroys.
fn forfeited(scenario: &Scenario) -> usize {
    let summary = run(scenario).unwrap_or_else(|failure| panic!("{failure:#?}"));
    assert!(summary.done > 1_900, "only {} handled", summary.done);
    summary.forfeited
}

#[test]
fn racks_that_are_lost_in_turn_lose_no_state() {
    let mut scenario = scenario();
    // When the first rack is back, copies return to it, so that the second one may be lost.
    scenario.script = vec![
        act(2_000, Fault::RackPowerCut(0)),
        act(14_000, Fault::RackPowerCut(1)),
    ];
    assert_eq!(forfeited(&scenario), 0);
}

#[test]
fn the_same_servers_in_one_rack_lose_state() {
    let mut scenario = scenario();
    scenario.racks.clear();
    scenario.script = vec![
        act(2_000, Fault::PowerCut(0)),
        act(2_000, Fault::PowerCut(1)),
    ];
    assert!(forfeited(&scenario) > 0);
}
