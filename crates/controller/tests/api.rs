//! The controller from outside: HTTP clients, simulated nodes, kill and restart, garbage.

use crate::common::{
    APP, Controller, NODES, beat, config, free_port, heartbeat_key, node_token, owner_token, tagged,
};
use e3_controller::{Access, ControllerError, ROUTES, openapi};
use e3_model::api::*;
use e3_model::plan::{NodeEvent, NodePlan, NodeReport, NodeWelcome};
use e3_model::{AppId, Format, NodeId, ShardKey};
use e3_wire::heartbeat::{self, Heartbeat};
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_killed_controller_has_lost_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let (status, body) = controller.deploy(APP);
    assert_eq!(status, 200, "{body}");
    let before = controller.plan(&nodes[0]);
    assert_eq!(before.apps.len(), 1);
    drop(controller);
    let controller = Controller::start(tmp.path(), address);
    assert_eq!(controller.plan(&nodes[0]), before);
    // The same process joins again: it is the same member.
    let again = controller.join(NODES[0], 1);
    assert!(again.now > nodes[0].now);
    let now = nodes[0].now;
    assert_eq!(NodeWelcome { now, ..again }, nodes[0]);
    let (status, body) = controller.get("/v1/apps/two-services");
    let view: AppView = serde_json::from_str(&body).unwrap();
    assert_eq!((status, view.instances, view.placed.len()), (200, 6, 6));
    assert!(controller.get("/metrics").1.contains("e3_node_up"));
}

#[test]
fn a_silent_node_is_lost_and_its_shards_move() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let beats = beat(address, nodes.clone());
    assert_eq!(controller.deploy(APP).0, 200);
    let plan = controller.plan(&nodes[0]);
    let victim = plan.apps[0].shards[0].primary;
    let others: Vec<_> = nodes.iter().filter(|n| n.node != victim).copied().collect();
    let _beats = beat(address, others.clone());
    drop(beats);
    let w = others[0];
    let path = format!(
        "/v1/nodes/{}/plan?incarnation={}&after={}&wait_ms=15000",
        w.node.0, w.incarnation, plan.version
    );
    let (status, body) = controller.get(&path);
    assert_eq!(
        status, 200,
        "the plan changes when the loss is noticed: {body}"
    );
    let after: NodePlan = serde_json::from_str(&body).unwrap();
    assert_eq!(after.apps[0].shards[0].leaving, [victim]);
    assert_ne!(after.apps[0].shards[0].primary, victim);
    assert_eq!(controller.get("/readyz").0, 503);
    // The silent process keeps its copy until its successor has confirmed the new view.
    // Then it sends heartbeats again.
    let silent = nodes[victim.index()];
    let told = controller.plan(&silent);
    assert!(told.apps[0].shards[0].keeps(victim));
    let _beats = beat(address, vec![silent]);
    let path = format!(
        "/v1/nodes/{}/plan?incarnation=1&after={}&wait_ms=15000",
        victim.0, told.version
    );
    assert_eq!(controller.get(&path).0, 200, "it is a member again");
    let view: NodeView = controller.view(&format!("/v1/nodes/{}", NODES[victim.index()]));
    assert_eq!((view.up, view.incarnation), (true, 1));
}

#[test]
fn nobody_speaks_for_a_node_without_its_key() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes[1..].to_vec());
    let (victim, other) = (nodes[0], nodes[1]);
    let [its_key, other_key] =
        [victim, other].map(|w| heartbeat_key(address, &w).expect("a member"));
    assert_ne!(its_key, other_key);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |bytes: &[u8]| socket.send_to(bytes, address).unwrap();
    let view = || controller.view::<NodeView>(&format!("/v1/nodes/{}", NODES[0]));
    let load = |port_permille| Heartbeat {
        port_permille,
        ..Heartbeat::default()
    };
    let first = tagged(&victim, &its_key, &load(1));
    let last = tagged(&victim, &its_key, &load(2));
    let until = Instant::now() + Duration::from_secs(20);
    while view().port_use != 0.002 {
        send(&last);
        assert!(Instant::now() < until, "not heard: {:?}", view());
    }
    // Under the key of another node, without a tag, recorded: none keeps the node up.
    let w = victim;
    let older = Format(Format::HEARTBEAT_TAGS.0 - 1);
    let forged = [
        tagged(&victim, &other_key, &load(3)),
        heartbeat::encode(older, w.cluster, w.node, w.incarnation, &load(4)),
        first,
        last,
    ];
    while view().up {
        for bytes in &forged {
            send(bytes);
        }
        assert!(Instant::now() < until, "it is up");
        std::thread::sleep(Duration::from_millis(10));
    }
    for bytes in &forged {
        send(bytes);
    }
    send(&tagged(&victim, &its_key, &load(5)));
    while !view().up {
        assert!(Instant::now() < until, "it is not up again");
    }
    assert_eq!(view().port_use, 0.005);
}

#[test]
fn a_move_follows_what_nodes_report_and_survives_a_kill() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let mut controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    assert_eq!(controller.deploy(APP).0, 200);
    let shard = |c: &Controller| c.plan(&nodes[0]).apps[0].shards[1].clone();
    let before = shard(&controller);
    let to = NodeId(before.primary.0 ^ 1);
    let request = MigrateRequest {
        instance: "two-services/back/0".into(),
        to: NODES[to.index()].into(),
        cold: false,
    };
    let (status, body) = controller.post("/v1/migrations", &request);
    assert_eq!(status, 200, "{body}");
    assert_eq!(controller.post("/v1/migrations", &request).0, 409);
    let key = ShardKey {
        app: AppId(1),
        service: before.service,
        shard: before.shard,
    };
    let primary = nodes[before.primary.index()];
    let report = |c: &Controller, event: NodeEvent| {
        let report = NodeReport {
            node: primary.node,
            incarnation: primary.incarnation,
            events: vec![event],
            ..NodeReport::default()
        };
        let path = format!("/v1/nodes/{}/report", primary.node.0);
        let (status, body) = c.post(&path, &report);
        assert_eq!(status, 200, "{body}");
    };
    let view = shard(&controller).view;
    let synced = NodeEvent::Synced {
        key,
        view,
        backup: to,
    };
    report(&controller, synced);
    report(&controller, synced);
    assert!(shard(&controller).frozen);
    drop(controller);
    controller = Controller::start(tmp.path(), address);
    let frozen = shard(&controller);
    assert!(frozen.frozen, "the move continues where it was");
    let view = frozen.view;
    report(&controller, NodeEvent::Frozen { key, view });
    let after = shard(&controller);
    assert_eq!((after.primary, after.fenced), (to, true));
    assert_eq!(after.staying().collect::<Vec<_>>(), before.backups);
    assert_eq!(after.leaving, [before.primary]);
    // Reports of a process that is not the node's current one are refused.
    let stale = NodeReport {
        node: primary.node,
        incarnation: 77,
        ..NodeReport::default()
    };
    let path = format!("/v1/nodes/{}/report", primary.node.0);
    assert_eq!(controller.post(&path, &stale).0, 409);
    let (_, text) = controller.get("/metrics");
    assert!(text.contains("# TYPE e3_requests_total counter"), "{text}");
}

#[test]
fn every_refusal_has_the_same_shape() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    for path in [
        "/v1/nodes/x/plan",
        "/v1/nodes/0/plan?after=x",
        "/v1/nodes/99999/plan?incarnation=1",
        "/v1/nodes/0/plan?incarnation=1",
        "/v1/nodes/0/plan?incarnation=1&wait_ms=30001",
        "/v1/apps/%2e%2e%2f%2e%2e",
        "/v1/apps/..%2f/secrets/..%2f..%2fetc",
        "/v1/blobs/..%2fsecrets",
        "/v1/%ff",
        "/nowhere",
        "/v1/migrations",
    ] {
        let (status, body) = controller.get(path);
        assert!((400..500).contains(&status), "{path}: {status} {body}");
        let error: Result<ErrorView, _> = serde_json::from_str(&body);
        assert!(error.is_ok_and(|e| !e.error.is_empty()), "{path}: {body}");
    }
    let node = controller.join(NODES[0], 1);
    let (id, incarnation) = (node.node.0, node.incarnation);
    let path = format!("/v1/nodes/{id}/plan?incarnation={incarnation}&wait_ms=30001");
    let (status, body) = controller.get(&path);
    assert_eq!(status, 400, "a longer wait than the bound is refused");
    assert!(
        body.contains("wait_ms is 30001, must be at most 30000"),
        "{body}"
    );
    let (status, body) = controller.post("/v1/nodes/hello", &"x");
    assert_eq!(status, 422);
    assert!(serde_json::from_str::<ErrorView>(&body).is_ok(), "{body}");
}

#[test]
fn a_damaged_log_is_an_error_that_says_where() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    controller.join(NODES[0], 1);
    controller.join(NODES[1], 1);
    drop(controller);
    let log = tmp.path().join("log/log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let error = e3_controller::run(config(tmp.path(), address)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("log/log: byte 0: a record's content is damaged"),
        "{text}"
    );
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing is written");
}

#[test]
fn bad_input_is_refused_in_one_line_and_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let before = controller.plan(&nodes[0]);
    for (from, to, says) in [
        (
            "shards: 2",
            "shards: 0",
            "app.yaml:19: spec.services[1].shards",
        ),
        ("ingress: front", "ingres: front", "unknown field `ingres`"),
        (
            "memory: 64Mi",
            "memory: 65Gi",
            "the largest node that it may use has 64Gi",
        ),
        (
            "replicas: 2",
            "replicas: 4",
            "4 replicas need 4 fault domains (servers), usable: 3",
        ),
        (
            "module: back.wasm",
            "module: none.wasm",
            "\"none.wasm\" is named but was not sent",
        ),
    ] {
        let (status, body) = controller.deploy(&APP.replacen(from, to, 1));
        let error: ErrorView = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 422, "{body}");
        assert!(
            error.error.contains(says) && !error.error.contains('\n'),
            "{}",
            error.error
        );
    }
    assert_eq!(controller.get("/v1/apps/none").0, 404);
    let migrate = |i: &str| MigrateRequest {
        instance: i.into(),
        to: "s1-host".into(),
        cold: false,
    };
    assert_eq!(controller.post("/v1/migrations", &migrate("x")).0, 404);
    assert_eq!(controller.plan(&nodes[0]), before);
    // Random bytes to both ports.
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = e3_testkit::Random::new(1);
    for i in 0..300usize {
        let bytes = random.bytes(i);
        let _ = udp.send_to(&bytes, address);
        if i % 10 == 0 {
            let mut tcp = std::net::TcpStream::connect(address).unwrap();
            let _ = std::io::Write::write_all(&mut tcp, &bytes);
        }
    }
    assert_eq!(controller.get("/healthz").0, 200);
    assert_eq!(controller.plan(&nodes[0]), before);
}

#[test]
fn an_update_whose_calls_could_wait_for_those_of_the_running_version_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    for node in NODES {
        controller.join(node, 1);
    }
    let app = |of_left: &str, of_right: &str| {
        let service = |name: &str, calls: &str| {
            format!(
                "    - name: {name}\n      module: back.wasm\n      calls: [{calls}]\n      \
                 resources: {{cpu: 0.1, memory: 64Mi}}\n"
            )
        };
        let called = service("left", of_left) + &service("right", of_right);
        let app = APP.replacen(
            "module: front.wasm\n",
            "module: front.wasm\n      calls: [left, right]\n",
            1,
        );
        app.replacen("  channels:\n", &format!("{called}  channels:\n"), 1)
    };
    let deploy = |of_left: &str, of_right: &str| controller.deploy(&app(of_left, of_right));
    assert_eq!(deploy("right", "").0, 200);
    let (status, body) = deploy("", "left");
    assert_eq!(status, 409, "{body}");
    let error: ErrorView = serde_json::from_str(&body).unwrap();
    let cycles = ["left -> right -> left", "right -> left -> right"];
    let says = |cycle: &&str| {
        error.error
            == format!(
                "calls and channels of the new version and of version 1, which runs until the new one has \
                 started, form a cycle: {cycle}"
            )
    };
    assert!(cycles.iter().any(says), "{error:?}");
    let view: AppView = controller.view("/v1/apps/two-services");
    assert_eq!(view.code_version, 1);
    // One step after the other.
    assert_eq!(deploy("", "").0, 200);
    let (status, body) = deploy("", "left");
    assert_eq!(status, 200, "{body}");
}

#[test]
fn two_controllers_do_not_share_a_directory_or_a_port() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let _controller = Controller::start(tmp.path(), address);
    let other = e3_controller::run(config(tmp.path(), free_port()));
    assert!(matches!(other, Err(ControllerError::Store(_))), "{other:?}");
    let elsewhere = tempfile::tempdir().unwrap();
    let same_port = e3_controller::run(config(elsewhere.path(), address));
    assert!(
        matches!(same_port, Err(ControllerError::InUse(_))),
        "{same_port:?}"
    );
    let open = e3_controller::run(config(elsewhere.path(), "0.0.0.0:0".parse().unwrap()));
    assert!(
        matches!(open, Err(ControllerError::NotLoopback(_))),
        "{open:?}"
    );
}

#[test]
fn every_route_is_served_and_described() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    for r in ROUTES {
        let path = r
            .path
            .replace("{name}", "1")
            .replace("{id}", "1")
            .replace("{secret}", "s")
            .replace("{token}", "t")
            .replace("{digest}", "d")
            .replace("{backup}", "1")
            .replace("{restore}", "1")
            .replace("{part}", "0-0")
            .replace("{file}", "0-0");
        let url = format!("http://{}{path}", controller.address);
        let token = match r.access {
            Access::Node => node_token(),
            _ => owner_token(),
        };
        let (agent, token) = (Controller::agent(), token.authorization());
        let answer = match r.method {
            "get" => agent.get(url).header("Authorization", token).call(),
            "delete" => agent.delete(url).header("Authorization", token).call(),
            _ => agent.post(url).header("Authorization", token).send("x"),
        };
        let mut answer = answer.unwrap();
        let body = answer.body_mut().read_to_string().unwrap();
        let status = answer.status().as_u16();
        assert!(
            ![401, 403, 405].contains(&status),
            "{} {}",
            r.method,
            r.path
        );
        assert!(!body.contains("no such path"), "{} {}", r.method, r.path);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let text = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    if std::env::var("E3_UPDATE").is_ok() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == text,
        "docs/openapi.json is out of date: run E3_UPDATE=1 cargo test -p e3-controller"
    );
}

/// All references in a document.
fn references<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(|r| r.as_str()));
            fields.values().for_each(|v| references(v, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_one_document() {
    let document = openapi();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > ROUTES.len(), "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#');
        let target = pointer.and_then(|p| document.pointer(p));
        assert!(target.is_some(), "{reference} does not resolve");
    }
    for r in ROUTES {
        let operation = &document["paths"][r.path][r.method];
        let takes_body = r.method == "post";
        assert_eq!(
            operation["requestBody"].is_object(),
            takes_body,
            "{}",
            r.path
        );
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let has_content = answer["content"].is_object();
            assert_eq!(has_content, status != "204", "{} {status}", r.path);
        }
        let takes_token = r.access != Access::Open;
        let security = operation["security"].as_array().unwrap();
        assert_eq!(!security.is_empty(), takes_token, "{}", r.path);
    }
}
