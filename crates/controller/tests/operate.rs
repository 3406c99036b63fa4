//! What operators change: nodes out of service and back, copies, versions. All of it survives a kill.

use crate::common::{APP, Controller, NODES, beat, free_port, good_report};
use e3_model::api::*;
use e3_model::plan::{NodeWelcome, Role};
use serde_json::json;
use std::path::Path;

struct Cluster {
    controller: Controller,
    nodes: Vec<NodeWelcome>,
    _beats: std::sync::Arc<()>,
}

impl Cluster {
    /// All nodes, and the sample, whose first version has started.
    fn start(dir: &Path) -> Cluster {
        let address = free_port();
        let controller = Controller::start(dir, address);
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let _beats = beat(address, nodes.clone());
        assert_eq!(controller.deploy(APP).0, 200);
        for node in &nodes {
            controller.report(&good_report(&controller.plan(node), node));
        }
        Cluster {
            controller,
            nodes,
            _beats,
        }
    }

    fn restart(self, dir: &Path) -> Cluster {
        let Cluster {
            controller,
            nodes,
            _beats,
        } = self;
        let address = controller.address;
        drop(controller);
        let controller = Controller::start_again(dir, address, &nodes);
        Cluster {
            controller,
            nodes,
            _beats,
        }
    }

    /// The status and the error of a request that is refused.
    fn refused(&self, path: &str, body: serde_json::Value) -> (u16, String) {
        let before = self.controller.plan(&self.nodes[0]);
        let (status, text) = self.controller.post(path, &body);
        assert_eq!(self.controller.plan(&self.nodes[0]), before, "{text}");
        let error: ErrorView = serde_json::from_str(&text).unwrap();
        (status, error.error)
    }

    fn node(&self, name: &str) -> NodeView {
        self.controller.view(&format!("/v1/nodes/{name}"))
    }

    fn app(&self) -> AppView {
        self.controller.view("/v1/apps/two-services")
    }
}

/// The controller made a process a member and ended before it could say so, and with it all other nodes.
#[test]
fn a_shard_that_no_node_may_hold_is_shown_as_one_that_waits() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let beats = beat(address, nodes.clone());
    let front = "      stateful: true\n      replicas: 2\n      resources: {cpu: 0.5, memory: 64Mi}\n      \
                 collections:\n        - {name: seen, kind: counter}\n";
    assert!(APP.contains(front));
    let pinned = "      pin: {node: s1-nic0}\n      resources: {cpu: 0.5, memory: 64Mi}\n";
    let (status, body) = controller.deploy(&APP.replacen(front, pinned, 1));
    assert_eq!(status, 200, "{body}");
    let lost = nodes[1];
    let others: Vec<_> = nodes
        .iter()
        .filter(|n| n.node != lost.node)
        .copied()
        .collect();
    let before = controller.plan(&others[0]).version;
    let _beats = beat(address, others.clone());
    drop(beats);
    let first = || -> InstanceView {
        let all: Vec<InstanceView> = controller.view("/v1/instances");
        let front = all
            .into_iter()
            .find(|i| i.instance == "two-services/front/0");
        front.unwrap()
    };
    let path = format!(
        "/v1/nodes/{}/plan?incarnation=1&after={before}&wait_ms=15000",
        others[0].node.0
    );
    assert_eq!(controller.get(&path).0, 200, "the loss is noticed");
    let front = first();
    assert_eq!(
        (front.role, front.status),
        (Role::Primary, InstanceStatus::Waiting)
    );
    assert_eq!(controller.get("/v1/apps/two-services").0, 200);
    assert_eq!(controller.get("/v1/apps").0, 200);
    assert_eq!(controller.get("/metrics").0, 200);
    assert_eq!(controller.get("/readyz").0, 503);
}

#[test]
fn a_process_that_was_not_told_that_it_joined_keeps_nobody_waiting() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let nodes = NODES.map(|n| c.join(n, 1));
    let address = c.address;
    drop(c);
    let c = Controller::start(tmp.path(), address);
    std::thread::scope(|s| {
        for (name, before) in NODES.iter().zip(&nodes) {
            let (c, is_told) = (&c, before.node != nodes[0].node);
            s.spawn(move || {
                // A new process says that the one before has ended.
                let welcome = c.join(name, if is_told { 2 } else { 1 });
                assert_eq!(welcome.incarnation, before.incarnation + u32::from(is_told));
            });
        }
    });
}

#[test]
fn a_drained_node_says_what_is_left_and_stays_drained() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let primary = c.controller.plan(&c.nodes[0]).apps[0].shards[0].primary;
    let name = NODES[primary.index()];
    let drain = DrainRequest {
        node: name.into(),
        best_effort: false,
    };
    let (status, body) = c.controller.post("/v1/drain", &drain);
    let answer: DrainResponse = serde_json::from_str(&body).unwrap();
    assert!(status == 200 && answer.drained && answer.changed, "{body}");
    let c = c.restart(tmp.path());
    let view = c.node(name);
    assert!(view.up && view.drained && !view.undrained.is_empty());
    assert!(
        view.undrained
            .iter()
            .any(|l| l.why.starts_with("moving to "))
    );
    let welcome = c.nodes.iter().find(|n| n.node == primary).unwrap();
    let mut report = good_report(&c.controller.plan(welcome), welcome);
    for instance in &mut report.instances {
        instance.error = Some("the node's disk is full".into());
    }
    c.controller.report(&report);
    let undrained = c.node(name).undrained;
    let names_it = |l: &UndrainedView| l.why.ends_with("; there: the node's disk is full");
    assert!(undrained.iter().all(names_it), "{undrained:?}");
    let to = json!({"instance": "two-services/back/0", "to": name});
    let on_it = view
        .undrained
        .iter()
        .any(|l| l.instance == "two-services/back/0");
    if !on_it {
        let (status, error) = c.refused("/v1/migrations", to);
        assert_eq!(status, 422, "{error}");
        assert!(
            error.ends_with("the node is out of service (drained or cordoned)"),
            "{error}"
        );
    }
    let (_, body) = c.controller.post("/v1/resume", &json!({"node": name}));
    let answer: DrainResponse = serde_json::from_str(&body).unwrap();
    assert!(!answer.drained && answer.changed, "{body}");
    assert!(!c.node(name).drained);
}

#[test]
fn services_are_scaled_and_versions_go_back() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let scale = json!({"service": "two-services/back", "replicas": 3});
    let (status, body) = c.controller.post("/v1/scale", &scale);
    let answer: ScaleResponse = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!((answer.replicas_before, answer.replicas), (2, 3));
    let c = c.restart(tmp.path());
    let back = c.app().services[1].clone();
    assert_eq!((back.replicas, back.replicas_in_manifest), (3, Some(2)));

    assert_eq!(c.app().earlier_version, None);
    let other = APP.replace("latency: 5ms", "latency: 6ms");
    assert_eq!(c.controller.deploy(&other).0, 200);
    assert_eq!(c.app().services[1].replicas_in_manifest, None);
    assert_eq!(c.app().earlier_version, Some(1));
    let c = c.restart(tmp.path());
    let rollback = json!({"app": "two-services"});
    let (status, body) = c.controller.post("/v1/rollback", &rollback);
    let answer: RollbackResponse = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!((answer.from, answer.to, answer.code_version), (2, 1, 3));
    assert_eq!(c.app().rollbacks.len(), 1);
    // A repeat would deploy the version again that was left.
    let (status, error) = c.refused("/v1/rollback", rollback.clone());
    let already =
        "goes back from version 2 to version 1 already, which has not started at every primary yet";
    assert!(status == 409 && error.ends_with(already), "{error}");
    // Unless the version that came back does not start.
    for welcome in &c.nodes {
        let mut report = good_report(&c.controller.plan(welcome), welcome);
        for instance in &mut report.instances {
            instance.code_version = 2;
            instance.error = Some("e3_init failed".into());
        }
        c.controller.report(&report);
    }
    assert_eq!(c.controller.post("/v1/rollback", &rollback).0, 200);
    assert_eq!(c.app().rollbacks.len(), 2);
    // Without its modules, an earlier version cannot be deployed.
    assert_eq!(c.controller.deploy(&other).0, 200);
    let blobs = std::fs::read_dir(tmp.path().join("blobs")).unwrap();
    for blob in blobs {
        std::fs::remove_file(blob.unwrap().path()).unwrap();
    }
    let (status, error) = c.refused("/v1/rollback", rollback);
    assert_eq!(status, 409);
    assert_eq!(
        error,
        "application \"two-services\" cannot go back: the module of service \"front\" in version 1 is no longer stored"
    );
}

#[test]
fn the_present_number_of_shards_withdraws_a_change_that_waits() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    // A third copy that nobody reports to be complete: the change waits for it.
    let scale = json!({"service": "two-services/back", "replicas": 3});
    assert_eq!(c.controller.post("/v1/scale", &scale).0, 200);
    let reshard = |c: &Cluster, shards: u16| -> ReshardResponse {
        let body = json!({"service": "two-services/back", "shards": shards});
        let (status, body) = c.controller.post("/v1/reshard", &body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    assert!(reshard(&c, 4).changed);
    assert_eq!(c.app().services[1].shards_wanted, Some(4));
    let c = c.restart(tmp.path());
    let other = json!({"service": "two-services/back", "shards": 8});
    let (status, body) = c.controller.post("/v1/reshard", &other);
    let hint = "to withdraw that change: e3 scale two-services/back --shards 2";
    assert!(status == 409 && body.contains(hint), "{body}");
    let withdrawn = reshard(&c, 2);
    assert_eq!((withdrawn.shards_before, withdrawn.changed), (2, true));
    let c = c.restart(tmp.path());
    let back = c.app().services[1].clone();
    assert_eq!((back.shards, back.shards_wanted), (2, None));
    assert!(!reshard(&c, 2).changed);
}

#[test]
fn a_host_is_removed_after_the_smartnics_that_relay_its_traffic() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let topology = "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: more}\nspec:\n  racks:\n    - name: rack9\n      servers:\n        - name: s9\n          system: Type1-SmartNIC\n          nodes:\n            - {name: s9-host, kind: host, cores: 12, memory: 64Gi}\n            - {name: s9-nic0, kind: smartnic, cores: 12, memory: 4Gi, relay: true}\n";
    let add = json!({"file": "more.yaml", "topology": topology});
    let (status, body) = c.controller.post("/v1/nodes", &add);
    assert_eq!(status, 200, "{body}");
    let (status, error) = c.refused("/v1/remove", json!({"node": "s9-host"}));
    assert_eq!(status, 409);
    assert!(error.ends_with("(e3 node remove s9-nic0)"), "{error}");
    for node in ["s9-nic0", "s9-host"] {
        let (status, body) = c.controller.post("/v1/remove", &json!({"node": node}));
        assert_eq!(status, 200, "{body}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let shard = c.controller.plan(&c.nodes[0]).apps[0].shards[1].clone();
    let node = |n: e3_model::NodeId| NODES[n.index()];
    let beside_backup = node(e3_model::NodeId(shard.backups[0].0 ^ 1));
    let back = |to: &str| json!({"instance": "two-services/back/0", "to": to});
    let instance = |name: &str| json!({"instance": name, "to": "s1-host"});
    let scale = |service: &str, replicas: u64| json!({"service": service, "replicas": replicas});
    let cases = [
        (
            "/v1/drain",
            json!({"node": "s9"}),
            404,
            "there is no node \"s9\"; the topology has s1-host",
        ),
        (
            "/v1/resume",
            json!({"node": "s9"}),
            404,
            "there is no node \"s9\"",
        ),
        (
            "/v1/scale",
            scale("two-services", 2),
            404,
            "\"two-services\" names no service",
        ),
        (
            "/v1/scale",
            scale("none/back", 2),
            404,
            "there is no application \"none\"",
        ),
        (
            "/v1/scale",
            scale("two-services/up", 2),
            404,
            "application \"two-services\" has no service \"up\"; it has front, back",
        ),
        (
            "/v1/scale",
            scale("two-services/back", 0),
            422,
            "service \"back\": replicas is 0, must be 1..=7",
        ),
        (
            "/v1/scale",
            scale("two-services/back", 4),
            422,
            "service \"back\": 4 replicas need 4 fault domains (servers), usable: 3",
        ),
        (
            "/v1/rollback",
            json!({"app": "none"}),
            404,
            "there is no application \"none\"",
        ),
        (
            "/v1/rollback",
            json!({"app": "two-services"}),
            409,
            "application \"two-services\" has no earlier version that ran",
        ),
        ("/v1/migrations", back("s9"), 404, "there is no node \"s9\""),
        (
            "/v1/migrations",
            back(node(shard.primary)),
            409,
            "two-services/back/0 is already on node",
        ),
        (
            "/v1/migrations",
            back(beside_backup),
            422,
            "its server already holds a replica of this shard",
        ),
        (
            "/v1/migrations",
            instance("two-services/back/9"),
            404,
            "there is no instance \"two-services/back/9\"",
        ),
        (
            "/v1/migrations",
            instance("two-services/up/0"),
            404,
            "there is no instance \"two-services/up/0\"",
        ),
        (
            "/v1/migrations",
            instance("none/back/0"),
            404,
            "there is no instance \"none/back/0\"",
        ),
        (
            "/v1/migrations",
            instance("back"),
            404,
            "\"back\" names no instance",
        ),
        (
            "/v1/migrations",
            instance("two-services/back/-1"),
            404,
            "there is no instance",
        ),
    ];
    for (path, body, status, error) in cases {
        let refused = c.refused(path, body);
        assert_eq!(refused.0, status, "{refused:?}");
        assert!(refused.1.contains(error), "{refused:?}");
    }
    // What fits on hosts only does not go to a SmartNIC.
    let large = APP
        .replace("two-services", "large")
        .replace("memory: 64Mi", "memory: 5Gi");
    let (status, body) = c.controller.deploy(&large);
    assert_eq!(status, 200, "{body}");
    let at = c.controller.plan(&c.nodes[0]).apps[1].shards[0].primary;
    let to = node(e3_model::NodeId(at.0 ^ 1));
    let (status, error) = c.refused(
        "/v1/migrations",
        json!({"instance": "large/front/0", "to": to}),
    );
    assert_eq!(status, 422, "{error}");
    assert!(error.contains("of memory,"), "{error}");
}
