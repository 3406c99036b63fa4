//! What nodes are sent of the plan: what has changed, if they say who sent them theirs.

use crate::common::{APP, Controller, NODES, beat, free_port};
use e3_model::plan::NodePlan;
use e3_model::plan_change::PlanChange;

#[test]
fn a_node_is_sent_what_has_changed_since_the_plan_that_it_has() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let node = nodes[0];
    let (status, source, body) = controller.plan_after(&node, 0, None);
    let before: NodePlan = serde_json::from_str(&body).unwrap();
    assert_eq!((status, before.apps.len()), (200, 0));
    let source = source.expect("the controller says who it is");

    assert_eq!(controller.deploy(APP).0, 200);
    let (status, _, body) = controller.plan_after(&node, before.version, Some(&source));
    assert_eq!(status, 226, "{body}");
    let change: PlanChange = serde_json::from_str(&body).unwrap();
    assert!(change.peers.is_empty() && change.apps.len() == 1);
    let whole = controller.plan(&node);
    assert_eq!(before.changed(change), Some(whole.clone()));
    assert_eq!(
        controller.plan_after(&node, whole.version, Some(&source)).0,
        204
    );
}

#[test]
fn nodes_of_older_releases_and_other_processes_are_sent_the_whole_plan() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let before = controller.plan(&nodes[0]);
    let (_, source, _) = controller.plan_after(&nodes[0], 0, None);
    assert_eq!(controller.deploy(APP).0, 200);
    let whole = controller.plan(&nodes[0]);
    let check = |controller: &Controller, source: Option<&str>| {
        let (status, _, body) = controller.plan_after(&nodes[0], before.version, source);
        assert_eq!(
            (status, serde_json::from_str(&body).ok()),
            (200, Some(whole.clone()))
        );
    };
    check(&controller, None);
    drop(controller);
    // Its log leads to the same plan, but it cannot know what the process before it sent.
    let controller = Controller::start(tmp.path(), address);
    check(&controller, source.as_deref());
}

#[test]
fn a_node_has_the_routes_of_what_it_hosts_and_of_what_it_asks_for() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(controller.address, nodes.clone());
    let (_, source, _) = controller.plan_after(&nodes[0], 0, None);
    let source = source.expect("the controller says who it is");
    assert_eq!(controller.deploy(APP).0, 200);
    let all = controller.plan(&nodes[0]);
    let app = all.apps[0].id.0.to_string();
    let hosts = |node| all.apps[0].shards.iter().any(|shard| shard.keeps(node));
    for node in &nodes {
        let (status, _, body) = controller.plan_for(node, (0, &source), ("", ""));
        let plan: NodePlan = serde_json::from_str(&body).unwrap();
        assert_eq!((status, plan.directory.len()), (200, 1));
        assert_eq!(plan.apps.len(), usize::from(hosts(node.node)));
        let at = (plan.version, source.as_str());
        let has = if hosts(node.node) { app.as_str() } else { "" };
        assert_eq!(controller.plan_for(node, at, (has, "")).0, 204);
        let (status, _, body) = controller.plan_for(node, at, ("", &app));
        let change: PlanChange = serde_json::from_str(&body).unwrap();
        assert_eq!((status, change.apps.len()), (226, 1), "at the same version");
        // Another version that does not concern it: cordoned nodes are in no plan.
        let cordon = format!("/v1/nodes/{}/cordon", NODES[0]);
        controller.post(&cordon, &serde_json::json!({}));
        let (status, version, body) = controller.plan_for(node, at, (has, ""));
        assert_eq!((status, body.as_str()), (204, ""));
        if let Some(version) = version {
            assert!(version > plan.version);
        }
    }
    let bad = controller.plan_for(&nodes[0], (0, &source), ("x", ""));
    assert_eq!(bad.0, 400, "{}", bad.2);
}
