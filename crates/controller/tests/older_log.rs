//! A log that is older than what nodes have seen: a restored copy, or a disk that lost writes.

use crate::common::{APP, Controller, NODES, beat as heartbeats, free_port, heartbeat_key, tagged};
use e3_model::api::*;
use e3_model::plan::{CopyOnDisk, NodeHello, NodePlan, NodeWelcome, OnDisk};
use e3_model::{AppId, Formats, ServiceId, ShardId, ShardKey};
use e3_wire::heartbeat::Heartbeat;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

#[test]
fn nothing_is_decided_from_a_log_that_is_older_than_what_nodes_have_seen() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let log = tmp.path().join("log/log");
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let older = std::fs::read(&log).unwrap();
    assert_eq!(controller.deploy(APP).0, 200);
    let applied = controller.plan(&nodes[0]).version;
    drop(controller);
    let newest = std::fs::read(&log).unwrap();
    assert!(newest.len() > older.len());

    std::fs::write(&log, &older).unwrap();
    let controller = Controller::start(tmp.path(), address);
    let missing = controller.view::<ClusterView>("/v1/cluster").plan_version;
    assert!(missing < applied);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let beat = Heartbeat {
        plan_version_low: applied as u32,
        ..Heartbeat::default()
    };
    let key = heartbeat_key(address, &nodes[3]).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let refusal = loop {
        socket
            .send_to(&tagged(&nodes[3], &key, &beat), address)
            .unwrap();
        let (status, body) = controller.get("/readyz");
        if body.contains("restore the log") {
            break (status, body);
        }
        assert!(Instant::now() < until, "not noticed: {body}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let told = format!(
        "node {} has applied plan {applied}, but the controller's log ends with plan {missing}",
        NODES[3]
    );
    assert!(refusal.0 == 503 && refusal.1.contains(&told), "{refusal:?}");
    let (status, body) = controller.deploy(APP);
    assert!(status == 507 && body.contains(&told), "{status}: {body}");
    drop(controller);
    assert_eq!(std::fs::read(&log).unwrap(), older, "nothing was decided");

    std::fs::write(&log, &newest).unwrap();
    let controller = Controller::start(tmp.path(), address);
    assert_eq!(controller.plan(&nodes[0]).version, applied);
    // It decides once it hears a node.
    let _beats = heartbeats(address, nodes);
    let renamed = APP.replace("two-services", "another");
    assert_eq!(controller.deploy(&renamed).0, 200);
}

/// A controller whose log lacks the join of a node's later process; the version of that process's plan.
struct LacksJoin {
    controller: Controller,
    nodes: Vec<NodeWelcome>,
    later: NodeWelcome,
    applied: u64,
    _dir: tempfile::TempDir,
    _beats: std::sync::Arc<()>,
}

impl LacksJoin {
    /// The other nodes have been heard, and nobody waits for the process before: the later one, which has no
    /// plan yet, is no member.
    fn new() -> LacksJoin {
        let tmp = tempfile::tempdir().unwrap();
        let address = free_port();
        let controller = Controller::start(tmp.path(), address);
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let log = tmp.path().join("log/log");
        let older = std::fs::read(&log).unwrap();
        let later = controller.join(NODES[0], 2);
        let applied = controller.plan(&later).version;
        drop(controller);
        std::fs::write(&log, &older).unwrap();

        let controller = Controller::start(tmp.path(), address);
        assert_eq!(ask(&controller, &later, 0).0, 503, "it may be a member");
        let others: Vec<_> = nodes[1..].to_vec();
        let beats = heartbeats(address, others.clone());
        others.iter().for_each(|node| drop(controller.plan(node)));
        let until = Instant::now() + Duration::from_secs(2);
        while ask(&controller, &later, 0).0 != 409 {
            assert!(Instant::now() < until, "the process before is waited for");
            std::thread::sleep(Duration::from_millis(10));
        }
        LacksJoin {
            controller,
            nodes,
            later,
            applied,
            _dir: tmp,
            _beats: beats,
        }
    }

    #[track_caller]
    fn decides_nothing(&self) {
        let (status, body) = self.controller.deploy(APP);
        assert!(status == 507 && body.contains("restore the log"), "{body}");
    }
}

/// A node asks for a plan before it sends a heartbeat.
#[test]
fn requests_for_plans_show_what_nodes_have_seen() {
    let cluster = LacksJoin::new();
    let (controller, node) = (&cluster.controller, &cluster.nodes[1]);
    assert_eq!(ask(controller, node, cluster.applied).0, 204);
    cluster.decides_nothing();
}

/// It would lose what it holds in memory, perhaps the only copy.
#[test]
fn a_process_is_not_expelled_whose_plan_shows_that_the_log_lacks_its_join() {
    let cluster = LacksJoin::new();
    let (status, body) = ask(&cluster.controller, &cluster.later, cluster.applied);
    assert_eq!(status, 503, "{body}");
    cluster.decides_nothing();
}

/// Its log lacks a decision, and has others in its place when a node comes back that knows of it.
#[test]
fn what_an_earlier_process_sent_shows_that_the_log_lacked_it() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    assert_eq!(controller.deploy(APP).0, 200);
    let log = tmp.path().join("log/log");
    let older = std::fs::read(&log).unwrap();
    let beats = heartbeats(address, nodes.clone());
    let cordon = |controller: &Controller, node: usize| {
        let request = NodeRequest {
            node: NODES[node].into(),
        };
        let (status, body) = controller.post("/v1/cordon", &request);
        assert_eq!(status, 200, "{body}");
    };
    cordon(&controller, 5);
    let (status, source, body) = controller.plan_after(&nodes[0], 0, None);
    assert_eq!(status, 200, "{body}");
    let applied: NodePlan = serde_json::from_str(&body).unwrap();
    drop((controller, beats));

    std::fs::write(&log, &older).unwrap();
    let controller = Controller::start(tmp.path(), address);
    let others: Vec<_> = nodes[1..].to_vec();
    let _beats = heartbeats(address, others.clone());
    others.iter().for_each(|node| drop(controller.plan(node)));
    cordon(&controller, 3);
    cordon(&controller, 4);
    assert!(controller.plan(&others[0]).version >= applied.version);
    controller.plan_after(&nodes[0], applied.version, source.as_deref());
    let (status, body) = controller.deploy(&APP.replace("two-services", "another"));
    let told = format!("has applied plan {} of an earlier process", applied.version);
    assert!(status == 507 && body.contains(&told), "{status}: {body}");
}

/// The same of a copy on a disk: its view was given again before the node came back.
#[test]
fn a_copy_on_a_disk_shows_that_the_log_lacked_its_view() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    assert_eq!(controller.deploy(APP).0, 200);
    let plan = controller.plan(&nodes[0]);
    let app = &plan.apps[0];
    let (shard, first) = (app.key(&app.shards[0]), app.shards[0].primary);
    drop(controller);

    let controller = Controller::start(tmp.path(), address);
    let others: Vec<_> = nodes.iter().filter(|n| n.node != first).copied().collect();
    let _beats = heartbeats(address, others.clone());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let plans: Vec<NodePlan> = others.iter().map(|node| controller.plan(node)).collect();
        let view = plans[0].apps[0].shards[0].view;
        if view >= 2 {
            break;
        }
        assert!(Instant::now() < until, "its primary is not replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
    let copies = vec![CopyOnDisk {
        key: shard,
        era: 1,
        view: 2,
    }];
    let cluster = nodes[0].cluster;
    let hello = NodeHello {
        name: NODES[first.index()].into(),
        process: 2,
        on_disk: Some(OnDisk { cluster, copies }),
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    };
    let (status, body) = controller.post("/v1/nodes/hello", &hello);
    assert!(
        status == 507 && body.contains("of view 2 on its disk"),
        "{status}: {body}"
    );
}

/// A node with this plan asks for a newer one.
fn ask(controller: &Controller, node: &NodeWelcome, after: u64) -> (u16, String) {
    let (id, incarnation) = (node.node.0, node.incarnation);
    controller.get(&format!(
        "/v1/nodes/{id}/plan?incarnation={incarnation}&after={after}"
    ))
}

/// All nodes have ended, so no heartbeat says it.
#[test]
fn nothing_is_decided_from_a_log_that_is_older_than_the_copies_on_a_disk() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    assert_eq!(controller.deploy(APP).0, 200);
    drop(controller);
    let log = tmp.path().join("log/log");
    let older = std::fs::read(&log).unwrap();
    let of_app = |app, view| {
        let key = ShardKey {
            app: AppId(app),
            service: ServiceId(1),
            shard: ShardId(0),
        };
        let copies = vec![CopyOnDisk { key, era: 1, view }];
        let cluster = nodes[0].cluster;
        Some(OnDisk { cluster, copies })
    };
    let hello = |on_disk| NodeHello {
        name: NODES[0].into(),
        process: 2,
        on_disk,
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    };
    for (on_disk, told) in [
        (
            of_app(1, 7),
            "has a copy of shard two-services/back/0 of view 7 on its disk, but the controller's log ends with its view 1",
        ),
        (
            of_app(2, 1),
            "has a copy of a shard of application a2 on its disk, which the controller's log does not have",
        ),
    ] {
        let controller = Controller::start(tmp.path(), address);
        let (status, body) = controller.post("/v1/nodes/hello", &hello(on_disk));
        assert!(status == 507 && body.contains(told), "{status}: {body}");
        let (status, body) = controller.deploy(APP);
        assert!(status == 507 && body.contains(told), "{status}: {body}");
        drop(controller);
        assert_eq!(std::fs::read(&log).unwrap(), older, "nothing was decided");
    }
}

/// The directory of the controller was moved away, and the processes of the cluster before still run.
#[test]
fn a_process_of_another_cluster_shows_nothing_of_the_log() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let of_cluster = |cluster: u64| {
        let (id, incarnation) = (nodes[0].node.0, nodes[0].incarnation);
        controller.get(&format!(
            "/v1/nodes/{id}/plan?cluster={cluster}&incarnation={incarnation}&after=5000"
        ))
    };
    let (status, body) = of_cluster(nodes[0].cluster + 1);
    assert!(
        status == 409 && body.contains("of another cluster"),
        "{body}"
    );
    let (status, body) = controller.deploy(APP);
    assert_eq!(status, 200, "{body}");
    of_cluster(nodes[0].cluster);
    let (status, body) = controller.deploy(&APP.replace("two-services", "another"));
    assert!(status == 507 && body.contains("restore the log"), "{body}");
}
