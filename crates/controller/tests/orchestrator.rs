//! The orchestrator over real sockets: heartbeats and reports of simulated nodes, events and settings
//! through the API. All of it survives a kill.

use crate::common::{
    APP, Controller, NODES, deployment, free_port, good_report, heartbeat_key, tagged,
};
use e3_model::api::*;
use e3_model::plan::{NodeWelcome, ShardCounts};
use e3_model::{Nanos, NodeId};
use e3_wire::heartbeat::Heartbeat;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Loads = Arc<Mutex<BTreeMap<NodeId, Heartbeat>>>;

struct Cluster {
    controller: Controller,
    nodes: Vec<NodeWelcome>,
    /// What the heartbeats of each node say; other nodes are idle.
    loads: Loads,
}

/// Sends heartbeats of all nodes while the loads are there.
fn beat(controller: SocketAddr, nodes: Vec<NodeWelcome>, loads: &Loads) {
    let loads = Arc::downgrade(loads);
    let keys = nodes.iter().map(|w| heartbeat_key(controller, w).unwrap());
    let keys: Vec<_> = keys.collect();
    std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while let Some(loads) = loads.upgrade() {
            for (w, key) in nodes.iter().zip(&keys) {
                let load = loads.lock().unwrap().get(&w.node).copied();
                let bytes = tagged(w, key, &load.unwrap_or_default());
                let _ = socket.send_to(&bytes, controller);
            }
            drop(loads);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

impl Cluster {
    fn start(dir: &Path) -> Cluster {
        let address = free_port();
        let controller = Controller::start(dir, address);
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let loads = Loads::default();
        beat(address, nodes.clone(), &loads);
        // It puts the first service on a SmartNIC.
        let request = DeployRequest {
            placer: Some("hcm-kind".into()),
            ..deployment(APP)
        };
        assert_eq!(controller.post("/v1/apps", &request).0, 200);
        Cluster {
            controller,
            nodes,
            loads,
        }
    }

    fn events(&self, since: u64, wait_s: u64) -> Vec<Event> {
        self.controller
            .view(&format!("/v1/events?since={since}&wait={wait_s}"))
    }

    /// The first event of a kind after a number.
    #[track_caller]
    fn event(&self, kind: EventKind, mut since: u64) -> Event {
        for _ in 0..20 {
            let events = self.events(since, 15);
            assert!(!events.is_empty(), "no {kind}");
            if let Some(event) = events.iter().find(|e| e.kind == kind) {
                return event.clone();
            }
            since = events.last().map_or(since, |e| e.number);
        }
        panic!("no {kind}");
    }

    /// The node that has the primary of a shard.
    fn primary(&self, shard: usize) -> NodeId {
        self.controller.plan(&self.nodes[0]).apps[0].shards[shard].primary
    }

    /// Reports of a node whose primaries are busy, until the condition holds.
    fn work_on(&self, node: NodeId, is_enough: impl Fn() -> bool) {
        let welcome = &self.nodes[node.index()];
        for round in 1..=150 {
            if is_enough() {
                return;
            }
            let plan = self.controller.plan(welcome);
            let mut report = good_report(&plan, welcome);
            let app = &plan.apps[0];
            let here = app.shards.iter().filter(|s| s.primary == node);
            report.stats.datagrams_in = 1_000 * round;
            report.counts = here
                .map(|s| ShardCounts {
                    key: app.key(s),
                    handled: 1_000 * round,
                    failed: 0,
                    dead_lettered: 0,
                    expired: 0,
                    calls: 0,
                    busy: Nanos::from_millis(10 * round),
                })
                .collect();
            self.controller.report(&report);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_starved_smartnic_begins_a_migration_that_the_events_show() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let deployed = c.event(EventKind::AppDeployed, 0);
    assert_eq!(deployed.app.as_deref(), Some("two-services"));
    assert!(deployed.at_unix_ms > 0);
    let nic = c.primary(0);
    assert_eq!(nic.index() % 2, 1, "the first service is on a SmartNIC");
    let starving = Heartbeat {
        queue_len: 500,
        busy_permille: 3_000,
        port_permille: 40,
        ..Heartbeat::default()
    };
    c.loads.lock().unwrap().insert(nic, starving);
    // Before there are two reports nothing is known that could move.
    let is_decided = || {
        let events = c.events(0, 0);
        events.iter().any(|e| e.kind == EventKind::OrchestratorMove)
    };
    c.work_on(nic, is_decided);
    let moved = c.event(EventKind::OrchestratorMove, deployed.number);
    assert_eq!(moved.node.as_deref(), Some(NODES[nic.index()]));
    assert_eq!(moved.to.as_deref(), Some(NODES[nic.index() - 1]));
    assert!(
        moved
            .why
            .starts_with("starvation: 500 requests wait and 4.0 % of the port")
    );
    assert_eq!(moved.figures["queueLen"], 500);
    let view: OrchestratorView = c.controller.view("/v1/orchestrator");
    assert!(view.active && view.settings.mode == OrchestratorMode::On);
    assert_eq!(view.moves_in_flight, 1);
    let app = &c.controller.plan(&c.nodes[0]).apps[0];
    assert!(app.shards.iter().any(|s| s.joining == [NodeId(nic.0 - 1)]));

    let before = c.events(0, 0);
    let Cluster {
        controller,
        nodes,
        loads,
        ..
    } = c;
    let address = controller.address;
    drop(controller);
    let controller = Controller::start(tmp.path(), address);
    let c = Cluster {
        controller,
        nodes,
        loads,
    };
    assert_eq!(c.events(0, 0)[..before.len()], before);
}

#[test]
fn settings_change_while_it_runs_and_are_checked() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let set = |body: serde_json::Value| c.controller.post("/v1/orchestrator", &body);
    let (status, body) = set(json!({"mode": "dry-run", "numbers": {"movesMax": 2}}));
    let view: OrchestratorView = serde_json::from_str(&body).unwrap();
    assert_eq!((status, view.settings.moves_max), (200, 2));
    let event = c.event(EventKind::OrchestratorSet, 0);
    assert_eq!(event.why, "mode dry-run");
    for (wrong, why) in [
        (
            json!({"numbers": {"movesMax": 0}}),
            "orchestrator: movesMax is 0, must be 1..=1024",
        ),
        (
            json!({"numbers": {"moves": 1}}),
            "there is no setting \"moves\"; there are starvationQueueMin",
        ),
    ] {
        let (status, body) = set(wrong);
        assert_eq!(status, 422, "{body}");
        let error: ErrorView = serde_json::from_str(&body).unwrap();
        assert!(error.error.contains(why), "{body}");
    }
    assert_eq!(set(json!({"mode": "sometimes"})).0, 422);
    let view: ClusterView = c.controller.view("/v1/cluster");
    assert_eq!(view.orchestrator, OrchestratorMode::DryRun);
}

#[test]
fn a_request_for_events_waits_for_one() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Cluster::start(tmp.path());
    let last = c.events(0, 0).last().unwrap().number;
    assert_eq!(c.events(last, 0), []);
    assert_eq!(c.controller.get("/v1/events?wait=31").0, 400);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| c.events(last, 15));
        let drain = json!({"node": NODES[0]});
        assert_eq!(c.controller.post("/v1/drain", &drain).0, 200);
        let events = waiting.join().unwrap();
        assert_eq!(events[0].kind, EventKind::NodeDrained);
        assert_eq!(events[0].node.as_deref(), Some(NODES[0]));
        assert_eq!(events[0].number, last + 1);
    });
}
