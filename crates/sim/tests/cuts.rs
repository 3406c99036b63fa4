//! Cuts that leave the node's heartbeats alone: where another copy can serve, no request waits for the healing.

use e3_sim::{Act, Fault, Scenario, Summary, run};

/// How long the cuts last.
const CUT_MS: u64 = 14_000;
/// Within which time a request must be handled.
const DEADLINE_MS: u64 = 10_000;
/// Of 2,000 requests, so many may try only the nodes that do not serve: the simulated clients choose the next node
/// at random. Without a fail-over, hundreds expire.
const UNLUCKY_MAX: u64 = 4;
const NODES: u32 = 4;

/// Four servers; every node is primary of one shard or more.
fn scenario(script: Vec<Act>) -> Scenario {
    let client = serde_json::json!({
        "app": 0, "requests": 1_000, "burst": 1, "isRushing": false, "keys": 1_000,
        "deadlineMs": DEADLINE_MS, "isKeyed": false, "offsetMs": 0, "vanishesMs": null,
    });
    let scenario = serde_json::json!({
        "seed": 7,
        "servers": [0, 0, 0, 0],
        "apps": [{
            "admittedMax": 1_000, "attempts": 1,
            "services": [{
                "stateful": true, "shards": 8, "replicas": 3, "refusesAlone": false,
                "serviceUs": 50, "failsPermille": 0, "stateBytes": 0,
            }],
            "channels": [],
        }],
        "clients": [client, client],
        "network": {"lossPermille": 0, "repeatPermille": 0, "damagePermille": 0, "delayUsMax": 40},
        "clocks": [],
        "sparesLastCopies": true,
        "faultsMs": 20_000,
        "script": [],
    });
    let scenario: Scenario = serde_json::from_value(scenario).unwrap();
    Scenario { script, ..scenario }
}

fn act(at_ms: u64, fault: Fault) -> Act {
    Act {
        at_ms,
        for_ms: CUT_MS,
        fault,
    }
}

/// All requests are handled before their deadlines.
#[track_caller]
fn all_are_handled(script: Vec<Act>) -> Summary {
    let summary = run(&scenario(script.clone()));
    let summary = summary.unwrap_or_else(|failure| panic!("{script:?}: {failure:#?}"));
    let expired = summary.requests - summary.done;
    assert!(expired <= UNLUCKY_MAX, "{expired} expired: {script:?}");
    summary
}

#[test]
fn a_primary_that_is_cut_off_from_its_peers_is_replaced() {
    for node in 0..NODES {
        all_are_handled(vec![act(2_000, Fault::CutPeers(node))]);
    }
}

#[test]
fn a_primary_whose_datagrams_reach_nobody_is_replaced() {
    for node in 0..NODES {
        let peers = (0..NODES).filter(|peer| *peer != node);
        let mute = peers.map(|peer| act(2_000, Fault::OneWay(node, peer)));
        all_are_handled(mute.collect());
    }
}

#[test]
fn a_new_primary_that_does_not_receive_its_plan_is_replaced() {
    let mut replaced = 0;
    for deaf in 0..NODES {
        for paused in (0..NODES).filter(|node| *node != deaf) {
            let script = vec![
                act(2_000, Fault::Deaf(deaf)),
                act(2_500, Fault::Pause(paused)),
            ];
            replaced += all_are_handled(script).withheld;
        }
    }
    assert!(replaced > 0, "every node received its plans");
}
