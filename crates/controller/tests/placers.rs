//! A new application is placed by the algorithm that its deployment names.

use crate::common::{APP, Controller, NODES, deployment, free_port};
use e3_model::api::*;

fn with_placer(manifest: &str, placer: &str) -> DeployRequest {
    DeployRequest {
        placer: Some(placer.into()),
        ..deployment(manifest)
    }
}

#[test]
fn the_placer_is_chosen_by_name_and_its_decisions_survive_a_restart() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    for node in NODES {
        controller.join(node, 1);
    }
    let (status, body) = controller.post("/v1/apps", &with_placer(APP, "magic"));
    assert_eq!(status, 422, "{body}");
    assert!(
        body.contains("no placer \\\"magic\\\", there are hcm, hcm-kind, joules"),
        "{body}"
    );
    assert_eq!(controller.get("/v1/apps/two-services").0, 404);

    let (status, body) = controller.post("/v1/apps", &with_placer(APP, "spread"));
    assert_eq!(status, 200, "{body}");
    let reasons = |controller: &Controller| {
        let view: Vec<InstanceView> = controller.view("/v1/instances?app=two-services");
        let of = |i: &InstanceView| (i.instance.clone(), i.node.clone());
        view.iter().map(of).collect::<Vec<_>>()
    };
    let before = reasons(&controller);
    let (_, text) = controller.get("/v1/apps/two-services");
    assert!(text.contains("spread evenly, least allocated"), "{text}");

    let changed = APP.replacen("5ms", "6ms", 1);
    let (status, body) = controller.post("/v1/apps", &with_placer(&changed, "joules"));
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("a placer is for new applications"), "{body}");
    let (status, body) = controller.post("/v1/apps", &deployment(&changed));
    assert_eq!(status, 200, "{body}");
    drop(controller);

    let controller = Controller::start(tmp.path(), address);
    assert_eq!(reasons(&controller), before);
}
