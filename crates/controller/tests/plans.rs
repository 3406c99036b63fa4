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
