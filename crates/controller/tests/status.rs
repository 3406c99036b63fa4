//! What the controller shows of the nodes' reports: readiness, failures, counts, moves, admission. The
//! nodes are simulated.

use crate::common::{APP, Controller, NODES, beat, deployment, free_port, good_report};
use e3_model::api::*;
use e3_model::plan::{
    ChannelReport, IngressCounts, NodeEvent, NodePlan, NodeReport, NodeWelcome, ShardCounts,
};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardId, ShardKey};
use std::net::SocketAddr;
use std::sync::Arc;

const FRONT: ShardKey = ShardKey {
    app: AppId(1),
    service: ServiceId(0),
    shard: ShardId(0),
};

/// A controller with all nodes and the sample deployed; all reports are good.
struct Cluster {
    dir: tempfile::TempDir,
    address: SocketAddr,
    controller: Option<Controller>,
    nodes: Vec<NodeWelcome>,
    beats: Option<Arc<()>>,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let address = free_port();
        let controller = Controller::start(dir.path(), address);
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let beats = Some(beat(address, nodes.clone()));
        assert_eq!(controller.deploy(APP).0, 200);
        let cluster = Cluster {
            dir,
            address,
            controller: Some(controller),
            nodes,
            beats,
        };
        cluster.all_good();
        cluster
    }

    fn c(&self) -> &Controller {
        self.controller.as_ref().unwrap()
    }

    fn restart(&mut self) {
        self.controller = None;
        let controller = Controller::start_again(self.dir.path(), self.address, &self.nodes);
        self.controller = Some(controller);
    }

    fn plan(&self) -> NodePlan {
        self.c().plan(&self.nodes[0])
    }

    fn good(&self, node: usize) -> NodeReport {
        good_report(&self.plan(), &self.nodes[node])
    }

    fn all_good(&self) {
        for node in 0..self.nodes.len() {
            self.c().report(&self.good(node));
        }
    }

    fn app(&self) -> AppView {
        self.c().view("/v1/apps/two-services")
    }

    fn primary(&self, key: ShardKey) -> usize {
        let plan = self.plan();
        let app = &plan.apps[0];
        let shard = app.shards.iter().find(|s| app.key(s) == key).unwrap();
        shard.primary.index()
    }

    /// Reports a change to a primary; everything else is good.
    fn tell(&self, key: ShardKey, change: impl FnOnce(&mut e3_model::plan::InstanceReport)) {
        let mut report = self.good(self.primary(key));
        let found = report.instances.iter_mut().find(|i| i.key == key);
        change(found.unwrap());
        self.c().report(&report);
    }

    fn not_ready(&self, says: &str) {
        let app = self.app();
        assert_eq!((app.ready, app.health), (false, Health::NotReady));
        let said = app.problems.iter().any(|p| p.contains(says));
        assert!(said, "{says:?} is not in {:?}", app.problems);
        let (status, body) = self.c().get("/readyz");
        assert!(status == 503 && body.contains(says), "{status} {body}");
    }

    fn ready(&self) {
        let app = self.app();
        assert_eq!(app.problems, [""; 0]);
        assert_eq!((app.ready, app.health), (true, Health::Ready));
        assert_eq!(self.c().get("/readyz").0, 200);
    }
}

#[test]
fn ready_means_that_every_shard_can_commit_and_has_its_copies() {
    let cluster = Cluster::new();
    cluster.ready();
    let name = |n: NodeId| NODES[n.index()];

    cluster.tell(FRONT, |i| {
        i.serving = false;
        i.backups[0].leased = false;
    });
    let plan = cluster.plan();
    let backup = name(plan.apps[0].shards[0].backups[0]);
    let primary = name(plan.apps[0].shards[0].primary);
    let says = format!(
        "two-services/front/0: 1 of 2 replicas run (blocked on {primary}: no lease from {backup})"
    );
    cluster.not_ready(&says);

    cluster.tell(FRONT, |i| i.serving = false);
    cluster.not_ready("the leases of the primary before it still run");

    cluster.tell(FRONT, |i| {
        (i.op, i.commit) = (7, 3);
        i.stalled = Nanos::from_millis(1_500);
        i.backups[0].acked = 3;
    });
    let says =
        format!("stalled on {primary}: no commit for 1.5 s, no acknowledgement from {backup}");
    cluster.not_ready(&says);

    cluster.tell(FRONT, |i| {
        i.op = 9;
        i.backups[0].synced = false;
    });
    cluster.not_ready(&format!(
        "syncing on {backup}: its copy is not complete: entry 0 of 9"
    ));

    cluster.tell(FRONT, |i| i.error = Some("does not start: boom".into()));
    cluster.not_ready(&format!("failed on {primary}: does not start: boom"));

    cluster.tell(FRONT, |i| i.view -= 1);
    cluster.not_ready(&format!(
        "starting on {primary}: the node has not applied the plan yet"
    ));

    cluster.all_good();
    cluster.ready();
    let words = cluster
        .c()
        .metric("e3_app_instances_by_status{app=\"two-services\",status=\"running\"}");
    assert_eq!(words, 6.0);
}

#[test]
fn a_backup_is_never_shown_ahead_of_its_primary() {
    let cluster = Cluster::new();
    let plan = cluster.plan();
    let backup = plan.apps[0].shards[0].backups[0].index();
    cluster.tell(FRONT, |i| {
        (i.op, i.commit) = (10, 8);
        i.backups[0].acked = 9;
    });
    // The backup reports later, when the log has grown.
    let mut report = cluster.good(backup);
    for i in &mut report.instances {
        (i.op, i.commit) = (50, 50);
    }
    cluster.c().report(&report);
    let all: Vec<InstanceView> = cluster.c().view("/v1/instances");
    let of_front = all.iter().filter(|i| i.instance == "two-services/front/0");
    let shown: Vec<(u64, u64)> = of_front.map(|i| (i.op, i.commit)).collect();
    assert_eq!(shown, [(10, 8), (9, 8)]);
}

fn counts(key: ShardKey, handled: u64, dead_lettered: u64, expired: u64) -> ShardCounts {
    ShardCounts {
        key,
        handled,
        failed: dead_lettered.saturating_mul(2),
        dead_lettered,
        expired,
        calls: 0,
        busy: Nanos(handled.saturating_mul(1_000)),
    }
}

#[test]
fn failures_show_everywhere() {
    let cluster = Cluster::new();
    let node = cluster.primary(FRONT);
    let mut report = cluster.good(node);
    report.counts = vec![counts(FRONT, 100, 14, 5)];
    let told = IngressCounts {
        admitted: 90,
        overloaded: 11,
    };
    report.stats.ingress = [(AppId(1), told)].into();
    for i in report.instances.iter_mut().filter(|i| i.key == FRONT) {
        i.last_failure = Some("boom".into());
        i.dead_letters = 14;
    }
    cluster.c().report(&report);
    let app = cluster.app();
    assert_eq!((app.ready, app.health), (true, Health::Degraded));
    let says = "two-services: 14 requests were dead-lettered in the last 60 s, 5 of them because the \
                deadline had passed";
    assert_eq!(app.problems, [says]);
    assert_eq!(
        (app.admitted, app.overloaded, app.dead_letters),
        (90, 11, 14)
    );
    let front = &app.services[0];
    assert_eq!((front.handled, front.failed), (100, 28));
    assert_eq!((front.dead_lettered, front.expired), (14, 5));
    assert_eq!(front.last_failure.as_deref(), Some("boom"));
    let (status, body) = cluster.c().get("/readyz");
    assert!(status == 503 && body.contains(says), "{status} {body}");
    let of = "{app=\"two-services\",service=\"front\"}";
    for (metric, value) in [
        (format!("e3_service_handled_requests_total{of}"), 100.0),
        (format!("e3_service_failed_attempts_total{of}"), 28.0),
        (format!("e3_service_dead_lettered_requests_total{of}"), 14.0),
        (format!("e3_service_expired_requests_total{of}"), 5.0),
        (
            "e3_app_requests_total{app=\"two-services\",result=\"overloaded\"}".into(),
            11.0,
        ),
        (
            "e3_app_health{app=\"two-services\",health=\"degraded\"}".into(),
            1.0,
        ),
    ] {
        assert_eq!(cluster.c().metric(&metric), value, "{metric}");
    }
    // The same report again changes nothing.
    cluster.c().report(&report);
    assert_eq!(cluster.app().services[0].handled, 100);
}

#[test]
fn a_report_of_any_numbers_is_taken() {
    let cluster = Cluster::new();
    let node = cluster.primary(FRONT);
    let unknown = ShardKey {
        service: ServiceId(99),
        ..FRONT
    };
    let report = |node, handled| {
        let mut report = cluster.good(node);
        report.counts = [FRONT, unknown]
            .map(|key| counts(key, handled, handled, handled))
            .into();
        let told = IngressCounts {
            admitted: handled,
            overloaded: handled,
        };
        report.stats.ingress = [(AppId(1), told)].into();
        report.stats.channels = vec![ChannelReport {
            app: AppId(1),
            name: "back".into(),
            from: "front/0".into(),
            to: "back/0".into(),
            sent: u64::MAX,
            durable: 0,
            waiting: u32::MAX,
        }];
        for instance in &mut report.instances {
            instance.dead_letters = u64::MAX;
            instance.queue = u32::MAX;
        }
        report
    };
    // Both nodes' counts are added.
    for node in [node, 0, 2, node] {
        cluster.c().report(&report(node, u64::MAX));
        cluster.c().report(&report(node, u64::MAX - 1));
    }
    assert_eq!(cluster.app().services[0].handled, u64::MAX);
    for path in ["/v1/nodes", "/v1/instances", "/v1/channels", "/metrics"] {
        assert_eq!(cluster.c().get(path).0, 200, "{path}");
    }
}

#[test]
fn counts_never_fall_while_the_controller_lives_and_begin_together_after() {
    let mut cluster = Cluster::new();
    let total = |c: &Cluster| c.app().services[0].handled;
    let tell = |c: &Cluster, node: usize, handled: u64| {
        let mut report = c.good(node);
        report.counts = vec![counts(FRONT, handled, 0, 0)];
        c.c().report(&report);
    };
    let (a, b) = (0, 2);
    tell(&cluster, a, 100);
    tell(&cluster, b, 7);
    assert_eq!(total(&cluster), 107);
    // The shard moves away from a, which still reports what it did.
    tell(&cluster, a, 130);
    tell(&cluster, b, 40);
    assert_eq!(total(&cluster), 170);
    // A process restarts: its counts begin at 0, the sum does not.
    cluster.nodes[a] = cluster.c().join(NODES[a], 99);
    cluster.beats = Some(beat(cluster.address, cluster.nodes.clone()));
    assert_eq!(cluster.nodes[a].incarnation, 2);
    assert_eq!(total(&cluster), 170);
    tell(&cluster, a, 5);
    assert_eq!(total(&cluster), 175);
    let metric = "e3_service_handled_requests_total{app=\"two-services\",service=\"front\"}";
    assert_eq!(cluster.c().metric(metric), 175.0);
    // A new controller counts from 0, although some processes still report their totals.
    cluster.restart();
    tell(&cluster, a, 6);
    assert_eq!(total(&cluster), 0);
    tell(&cluster, b, 41);
    tell(&cluster, a, 8);
    assert_eq!(total(&cluster), 2);
    tell(&cluster, b, 51);
    assert_eq!(total(&cluster), 12);
}

#[test]
fn energy_is_modelled_from_the_counts_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_port();
    let controller = Controller::start(dir.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let apigw = include_str!("../../../profiles/paper/apigw.yaml");
    let request = DeployRequest {
        profiles: vec![apigw.into()],
        ..deployment(&APP.replacen(
            "module: front.wasm",
            "module: front.wasm\n      profile: apigw",
            1,
        ))
    };
    let (status, body) = controller.post("/v1/apps", &request);
    assert_eq!(status, 200, "{body}");
    let mut report = good_report(&controller.plan(&nodes[0]), &nodes[0]);
    report.counts = vec![counts(FRONT, 1_000, 0, 0)];
    controller.report(&report);
    let app: AppView = controller.view("/v1/apps/two-services");
    let energy = app.services[0].energy.as_ref().unwrap();
    // Table 1: 110.6 W on 12 cores, 7.574 us a request.
    let each = 110.6 / 12.0 * 7_574e-9;
    assert!((energy.joules - 1_000.0 * each).abs() < 1e-9, "{energy:?}");
    assert!((energy.joules_per_request.unwrap() - each).abs() < 1e-12);
    let (_, text) = controller.get("/v1/apps/two-services");
    assert!(text.contains("\"provenance\":\"modelled\""), "{text}");
    assert_eq!(app.services[1].energy, None, "no profile, no number");
    assert_eq!(app.modelled_joules_per_request, None);
    let node: NodeView = controller.view("/v1/nodes/s1-host");
    let energy = node.energy.unwrap();
    assert!(
        energy.active_joules > 0.0 && energy.idle_joules > 0.0,
        "{energy:?}"
    );
    assert!(energy.source.contains("Type1-SmartNIC"), "{energy:?}");
    let metric = "e3_service_modelled_joules_total{app=\"two-services\",service=\"front\"}";
    assert!((controller.metric(metric) - 1_000.0 * each).abs() < 1e-9);
    let metric = "e3_service_modelled_joules_per_request{app=\"two-services\",service=\"front\"}";
    assert!((controller.metric(metric) - each).abs() < 1e-12);
    let metric = "e3_node_modelled_joules_total{node=\"s1-host\",part=\"active\"}";
    assert!(controller.metric(metric) > 0.0);
}

#[test]
fn a_move_is_remembered_with_its_outcome_over_a_kill() {
    let mut cluster = Cluster::new();
    let key = ShardKey {
        service: ServiceId(1),
        ..FRONT
    };
    let from = cluster.primary(key);
    let to = from ^ 1;
    let request = MigrateRequest {
        instance: "two-services/back/0".into(),
        to: NODES[to].into(),
        cold: false,
    };
    let (status, body) = cluster.c().post("/v1/migrations", &request);
    assert_eq!(status, 200, "{body}");
    let id = serde_json::from_str::<MigrateResponse>(&body).unwrap().id;
    let phase = |c: &Cluster| {
        let app = c.app();
        let mut all = app.migrations.into_iter().chain(app.moves);
        all.find(|m| m.id == id).map(|m| m.phase)
    };
    let event = |c: &Cluster, event: &dyn Fn(u32) -> NodeEvent| {
        let plan = c.plan();
        let shard = plan.apps[0]
            .shards
            .iter()
            .find(|s| plan.apps[0].key(s) == key);
        let mut report = c.good(from);
        report.events = vec![event(shard.unwrap().view)];
        c.c().report(&report);
    };
    assert_eq!(phase(&cluster), Some(MovePhase::Copying));
    let backup = NodeId(to as u32);
    event(&cluster, &|view| NodeEvent::Synced { key, view, backup });
    assert_eq!(phase(&cluster), Some(MovePhase::Freezing));
    cluster.restart();
    assert_eq!(phase(&cluster), Some(MovePhase::Freezing));
    event(&cluster, &|view| NodeEvent::Frozen { key, view });
    assert_eq!(phase(&cluster), Some(MovePhase::Done));
    // The new primary has not reported yet, but the move is done.
    cluster.not_ready(&format!("starting on {}", NODES[to]));
    cluster.restart();
    assert_eq!(phase(&cluster), Some(MovePhase::Done));
    // Done, then moved on: this move stays done.
    let back = MigrateRequest {
        to: NODES[from].into(),
        ..request
    };
    assert_eq!(cluster.c().post("/v1/migrations", &back).0, 200);
    assert_eq!(phase(&cluster), Some(MovePhase::Done));
}

#[test]
fn a_dry_run_answers_as_deploying_does_and_changes_nothing() {
    let cluster = Cluster::new();
    let before = cluster.plan();
    let blobs = || {
        std::fs::read_dir(cluster.dir.path().join("blobs"))
            .unwrap()
            .count()
    };
    let (held, other) = (blobs(), APP.replace("two-services", "other"));
    for (from, to, status, says) in [
        ("shards: 2", "shards: 2", 200, ""),
        (
            "cpu: 0.5",
            "cpu: 1000",
            422,
            "app.yaml: instance front/0 primary fits on no node: it asks for 1000.00 cores",
        ),
        (
            "memory: 64Mi",
            "memory: 33Gi",
            422,
            "fits on no node: it asks for 33Gi of memory",
        ),
        ("replicas: 2", "replicas: 4", 422, "need 4 fault domains"),
        (
            "name: other",
            "name: two-services\n  description: changed",
            200,
            "",
        ),
        (
            "module: back",
            "module: gone",
            422,
            "gone.wasm\\\" is named but was not sent",
        ),
    ] {
        let request = deployment(&other.replace(from, to));
        let dry = cluster.c().post("/v1/apps?dryRun=true", &request);
        assert_eq!(dry.0, status, "{to}: {}", dry.1);
        assert!(dry.1.contains(says), "{to}: {}", dry.1);
        assert_eq!(cluster.plan(), before, "{to}");
        assert_eq!(blobs(), held, "{to}");
        if status != 200 {
            assert_eq!(cluster.c().post("/v1/apps", &request), dry, "{to}");
        }
    }
    let changed = deployment(&APP.replace("shards: 2", "shards: 3"));
    let dry = cluster.c().post("/v1/apps?dryRun=true", &changed);
    assert_eq!((dry.0, cluster.c().post("/v1/apps", &changed)), (409, dry));
    let accepted = DeployRequest {
        overcommit: true,
        placer: None,
        time_limit_ms: None,
        restore: None,
        ..deployment(&other.replace("cpu: 0.5", "cpu: 11.99"))
    };
    assert_eq!(cluster.c().post("/v1/apps", &accepted).0, 200);
}
