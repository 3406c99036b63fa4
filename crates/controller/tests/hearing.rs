//! What nodes send, however much it is.

use crate::common::{APP, Controller, NODES, beat_with, free_port, good_report};
use e3_model::api::NodeView;
use e3_model::plan::{CopyOnDisk, NodeHello, NodePlan, NodeWelcome, OnDisk, ShardPlan};
use e3_model::{Address, AppId, Formats, NodeId, ServiceId, ShardId, ShardKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn a_node_with_thousands_of_copies_on_its_disk_joins() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), free_port());
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    assert_eq!(controller.deploy(APP).0, 200);
    // An old copy changes nothing.
    let copy = CopyOnDisk {
        key: ShardKey {
            app: AppId(1),
            service: ServiceId(0),
            shard: ShardId(0),
        },
        era: 0,
        view: 0,
    };
    let hello = NodeHello {
        name: NODES[1].into(),
        address: Address::default(),
        process: 2,
        on_disk: Some(OnDisk {
            cluster: nodes[1].cluster,
            copies: vec![copy; 20_000],
        }),
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    };
    let (status, body) = controller.post("/v1/nodes/hello", &hello);
    assert_eq!(status, 200, "{body}");
}

/// A shard whose primary falls silent while the new one receives no plans, although its heartbeats arrive.
struct FailedOver {
    controller: Controller,
    nodes: Vec<NodeWelcome>,
    heir: NodeId,
    /// Versions that the heir has applied, and the others.
    applied_by_heir: Arc<AtomicU32>,
    applied: Arc<AtomicU32>,
    /// Another node that keeps the shard, if there is one.
    other: Option<NodeId>,
    _dir: tempfile::TempDir,
    _beats: [Arc<()>; 2],
}

impl FailedOver {
    fn new(copies: usize) -> FailedOver {
        let dir = tempfile::tempdir().unwrap();
        let controller = Controller::start(dir.path(), free_port());
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let app = APP.replace("replicas: 2", &format!("replicas: {copies}"));
        let (status, body) = controller.deploy(&app);
        assert_eq!(status, 200, "{body}");
        let plan = controller.plan(&nodes[0]);
        for node in &nodes {
            controller.report(&good_report(&plan, node));
        }
        let shard = &plan.apps[0].shards[0];
        let (first, heir) = (shard.primary, shard.backups[0]);
        let beats = |of: &dyn Fn(NodeId) -> bool| {
            let of = nodes.iter().filter(|n| of(n.node)).copied();
            let applied = Arc::new(AtomicU32::new(plan.version as u32));
            let beats = beat_with(controller.address, of.collect(), applied.clone());
            (beats, applied)
        };
        let (of_heir, applied_by_heir) = beats(&|n| n == heir);
        let (of_others, applied) = beats(&|n| n != heir && n != first);
        drop(beats(&|n| n == first));
        let failed_over = FailedOver {
            heir,
            applied_by_heir,
            applied,
            other: shard.backups.get(1).copied(),
            _dir: dir,
            _beats: [of_heir, of_others],
            nodes,
            controller,
        };
        failed_over.until(|s| s.primary == heir);
        failed_over
    }

    /// Another node asks for the plan and carries it out, until this holds.
    fn until(&self, is_due: impl Fn(&ShardPlan) -> bool) -> NodePlan {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let plan = self.turn();
            if is_due(&plan.apps[0].shards[0]) {
                return plan;
            }
            assert!(Instant::now() < until, "{:?}", plan.apps[0].shards[0]);
        }
    }

    fn turn(&self) -> NodePlan {
        let is_other = |n: &&NodeWelcome| match self.other {
            Some(other) => n.node == other,
            None => n.node != self.heir,
        };
        let node = self.nodes.iter().find(is_other).unwrap();
        let plan = self.controller.plan(node);
        self.controller.report(&good_report(&plan, node));
        self.applied.store(plan.version as u32, Ordering::Relaxed);
        sleep(Duration::from_millis(50));
        plan
    }

    fn is_heir_up(&self) -> bool {
        let views: Vec<NodeView> = self.controller.view("/v1/nodes");
        views.iter().any(|v| v.id == self.heir.0 && v.up)
    }
}

#[test]
fn a_primary_that_does_not_receive_the_plan_is_replaced_although_its_heartbeats_arrive() {
    let cluster = FailedOver::new(3);
    cluster.until(|s| Some(s.primary) == cluster.other);
    // More heartbeats change nothing, until it has applied what it missed.
    for _ in 0..20 {
        assert!(!cluster.is_heir_up(), "a node without the plan is heard");
        cluster.turn();
    }
    let version = cluster.turn().version as u32;
    cluster.applied_by_heir.store(version, Ordering::Relaxed);
    cluster.until(|_| cluster.is_heir_up());
}

#[test]
fn the_last_copy_counts_as_heard_although_its_node_does_not_receive_the_plan() {
    let cluster = FailedOver::new(2);
    // Longer than another node would be waited for.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let plan = cluster.turn();
        assert_eq!(plan.apps[0].shards[0].primary, cluster.heir);
        assert!(cluster.is_heir_up());
    }
}

#[test]
fn no_node_is_lost_where_none_receives_the_plan() {
    let cluster = FailedOver::new(3);
    // As if the fail-over had reached nobody: the controller's connections may be cut.
    let before = cluster.applied_by_heir.load(Ordering::Relaxed);
    cluster.applied.store(before, Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert!(cluster.is_heir_up());
        sleep(Duration::from_millis(50));
    }
}
