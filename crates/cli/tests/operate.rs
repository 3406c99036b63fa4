//! An operator takes nodes out of service and scales services under load.

use crate::common::E3;
use crate::common::running::{CHAIN, all_handled, primary, signal, start_load};
use rustix::process::Signal;
use serde_json::Value;

fn replicas_on(e3: &E3, node: &str) -> usize {
    let all = e3.json(&["get", "instances", "--node", node]);
    all.as_array().unwrap().len()
}

fn copies(e3: &E3, shard: &str) -> usize {
    let all = e3.json(&["get", "instances"]);
    let runs = |i: &&Value| i["instance"] == shard && i["status"] == "running";
    all.as_array().unwrap().iter().filter(runs).count()
}

#[test]
fn nodes_leave_and_services_grow_while_they_serve() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let chain = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &chain, "--wait"]);
    let load = start_load(&e3, "6s");
    let node = primary(&e3, "chain/back/0");
    let said = e3.good(&["node", "drain", &node]);
    assert!(said.contains("is drained after"), "{said}");
    assert_eq!(replicas_on(&e3, &node), 0);
    let nodes = e3.good(&["get", "nodes"]);
    assert!(nodes.contains("up, drained"), "{nodes}");
    let said = e3.good(&["scale", "chain/back", "--replicas", "3", "--wait"]);
    assert!(
        said.contains("scaled chain/back from 2 to 3 replicas of each shard; the manifest says 2"),
        "{said}"
    );
    assert_eq!(copies(&e3, "chain/back/0"), 3);
    let text = e3.good(&["describe", "service", "chain/back"]);
    assert!(
        text.contains("3 replicas each (scaled; the manifest says 2)"),
        "{text}"
    );
    e3.good(&["scale", "chain/back", "--replicas", "2", "--wait"]);
    assert_eq!(copies(&e3, "chain/back/0"), 2);
    assert!(
        e3.good(&["node", "undrain", &node])
            .contains("in service again")
    );
    all_handled(load);

    // With every server but two drained, the copies on one of them can go nowhere: nothing changes.
    for node in ["s2-host", "s2-nic0", "s3-host"] {
        e3.good(&["node", "drain", node]);
    }
    let refused = e3.run(&["node", "drain", "s3-nic0"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(
        refused
            .err
            .contains("no other server with a node in service is left"),
        "{refused:?}"
    );
    assert_eq!(
        e3.json(&["describe", "node", "s3-nic0"])["node"]["drained"],
        false
    );
    // What could leave only to a node that is silent stays, and says why.
    signal(&e3, "s2-host", Signal::STOP);
    e3.until("the node is silent", |e3| {
        e3.json(&["describe", "node", "s2-host"])["node"]["up"] == false
    });
    e3.good(&["node", "resume", "s2-host"]);
    let failed = e3.run(&["node", "drain", "s3-nic0"]);
    assert_eq!(failed.code, 5, "{failed:?}");
    assert!(
        failed.err.contains("no other node can take it"),
        "{failed:?}"
    );
    let text = e3.good(&["describe", "node", "s3-nic0"]);
    assert!(text.contains("Left to drain"), "{text}");
    signal(&e3, "s2-host", Signal::CONT);
    let said = e3.good(&["node", "drain", "s3-nic0", "--no-wait"]);
    assert!(said.contains("s3-nic0 is being drained: "), "{said}");
    for (arguments, code) in [
        (&["node", "drain", "s9"][..], 3),
        (&["scale", "chain", "--replicas", "2"], 2),
        (&["scale", "chain/none", "--replicas", "2"], 3),
        (&["scale", "chain/back", "--replicas", "0"], 2),
        (&["rollback", "chain"], 4),
        (&["get", "nodes", "--node", "s9"], 3),
        (&["get", "instances", "--app", "none"], 3),
        (&["backup", "chain", "-o", "/"], 2),
        (&["backup", "chain", "-o", "/no/such/file"], 3),
        (&["chaos", "chain", "--history", "/no/such/file"], 3),
        (&["chaos", "chain", "--controller", "http://127.0.0.1:1"], 2),
        (&["down", "--controller", "http://127.0.0.1:1"], 2),
    ] {
        let refused = e3.run(arguments);
        assert_eq!(refused.code, code, "{arguments:?}: {refused:?}");
    }
}
