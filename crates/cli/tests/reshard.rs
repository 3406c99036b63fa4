//! The number of shards changes under load, on real processes, and the state with it.

use crate::common::running::kill;
use crate::common::{E3, Ended, ended};
use serde_json::Value;

fn shards(e3: &E3) -> u64 {
    let app = e3.json(&["describe", "app", "kvs"]);
    app["services"][0]["shards"].as_u64().unwrap()
}

/// Every request has one outcome, and the state agrees with the ledger.
#[track_caller]
fn proved(ended: &Ended) {
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{report}");
    let ledger = &report["ledger"];
    assert_eq!(ledger["done"], ledger["sent"], "{ledger}");
}

fn handled(e3: &E3) -> u64 {
    let app = e3.json(&["describe", "app", "kvs"]);
    app["services"][0]["handled"].as_u64().unwrap()
}

#[test]
fn shards_are_split_and_merged_under_load_and_survive_a_power_cut() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    e3.deploy_shipped("kvs");
    let before = shards(&e3);
    let load = e3.spawn("load kvs --rate 200 --duration 16s -o json");
    e3.until("the load has begun", |e3| handled(e3) > 200);
    let twice = (2 * before).to_string();
    let said = e3.good(&["scale", "kvs/kvs", "--shards", &twice]);
    assert!(said.contains(&format!("now has {twice} shards")), "{said}");
    assert_eq!(shards(&e3), 2 * before);
    let said = e3.good(&["scale", "kvs/kvs", "--shards", &before.to_string()]);
    assert!(said.contains(&format!("kvs/kvs had {twice}")), "{said}");
    e3.good(&["scale", "kvs/kvs", "--shards", &twice]);
    // All processes end at once.
    let nodes = e3.json(&["get", "nodes"]);
    let nodes: Vec<String> = nodes
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["name"].as_str().unwrap().to_string())
        .collect();
    for name in nodes.iter().map(String::as_str).chain(["controller"]) {
        kill(&e3, name);
    }
    proved(&ended(load.wait_with_output().unwrap()));
    assert_eq!(shards(&e3), 2 * before);

    let odd = (2 * before + 1).to_string();
    for (arguments, code, says) in [
        (
            &["scale", "kvs/kvs", "--shards", &odd][..],
            2,
            "a multiple or a divisor",
        ),
        (&["scale", "kvs/none", "--shards", "4"], 3, "none"),
        (&["scale", "kvs/kvs"], 2, "--replicas"),
    ] {
        let refused = e3.run(arguments);
        assert_eq!(refused.code, code, "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(says), "{refused:?}");
    }
    assert_eq!(shards(&e3), 2 * before);
}
