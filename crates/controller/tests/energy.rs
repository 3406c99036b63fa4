//! Measured energy: what the controller makes of the meters of its nodes. The nodes are simulated.

use crate::common::{APP, Controller, NODES, beat, free_port, good_report};
use e3_model::api::{AppView, NodeMeterView, NodeView, ServiceMeterView};
use e3_model::meter::{MeterScope, MeteredEnergy};
use e3_model::plan::{NodeWelcome, ShardCounts};
use e3_model::profile::Provenance;
use e3_model::{AppId, Nanos, ServiceId, ShardId, ShardKey};
use std::sync::Arc;

/// Names of two services.
const FRONT: u16 = 0;
const BACK: u16 = 1;

/// A controller with all nodes and the sample deployed.
struct Cluster {
    controller: Controller,
    nodes: Vec<NodeWelcome>,
    _beats: Arc<()>,
    _dir: tempfile::TempDir,
}

/// What a node's process has done since it started.
#[derive(Clone, Copy, Default)]
struct Done {
    /// Processor time in seconds.
    cpu: f64,
    /// Seconds in handlers, and requests, of the services `front` and `back`.
    front: (f64, u64),
    back: (f64, u64),
}

/// A meter of a machine with four cores that has shown so many joules in so many seconds.
fn meter(joules: f64, seconds: f64) -> MeteredEnergy {
    MeteredEnergy {
        meter: "rapl:package-0".into(),
        scope: MeterScope::Processor,
        joules,
        metered_seconds: seconds,
        watts: 100.0,
        cores: 4,
        machine: "a".into(),
        ..MeteredEnergy::default()
    }
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let address = free_port();
        let controller = Controller::start(dir.path(), address);
        let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
        let beats = beat(address, nodes.clone());
        assert_eq!(controller.deploy(APP).0, 200);
        Cluster {
            controller,
            nodes,
            _beats: beats,
            _dir: dir,
        }
    }

    fn report(&self, node: usize, energy: Option<MeteredEnergy>, done: Done) {
        let node = &self.nodes[node];
        let mut report = good_report(&self.controller.plan(&self.nodes[0]), node);
        let counts = |service, (seconds, handled): (f64, u64)| ShardCounts {
            key: ShardKey {
                app: AppId(1),
                service: ServiceId(service),
                shard: ShardId(0),
            },
            handled,
            failed: 0,
            dead_lettered: 0,
            expired: 0,
            calls: 0,
            busy: Nanos((seconds * 1e9) as u64),
        };
        report.counts = vec![counts(FRONT, done.front), counts(BACK, done.back)];
        report.stats.cpu_seconds = done.cpu;
        report.stats.energy = energy;
        self.controller.report(&report);
    }

    /// A first report, from which on a node's meter counts.
    fn begin(&self, node: usize) {
        self.report(node, Some(meter(10.0, 1.0)), Done::default());
    }

    fn node(&self, node: usize) -> Option<NodeMeterView> {
        let path = format!("/v1/nodes/{}", NODES[node]);
        self.controller.view::<NodeView>(&path).measured
    }

    fn service(&self, service: u16) -> Option<ServiceMeterView> {
        let app: AppView = self.controller.view("/v1/apps/two-services");
        app.services[usize::from(service)].measured.clone()
    }

    /// Joules of services, platform and idle, which must add up to the node's.
    #[track_caller]
    fn parts(&self, node: usize) -> [f64; 3] {
        let view = self.node(node).expect("has a meter");
        let parts = [view.service_joules, view.platform_joules, view.idle_joules];
        let sum: f64 = parts.iter().sum();
        assert!((sum - view.joules).abs() < 1e-9, "{view:?}");
        parts.map(|p| (p * 1e6).round() / 1e6)
    }

    fn services(&self) -> f64 {
        let joules = |s| self.service(s).map_or(0.0, |s| s.joules);
        joules(FRONT) + joules(BACK)
    }
}

/// Three of the four seconds that four cores have in one second are not used.
const DONE: Done = Done {
    cpu: 1.0,
    front: (0.5, 100),
    back: (0.25, 50),
};

#[test]
fn services_platform_and_idle_add_up_to_what_the_meter_shows() {
    let cluster = Cluster::new();
    cluster.begin(0);
    cluster.report(0, Some(meter(110.0, 2.0)), DONE);
    assert_eq!(cluster.parts(0), [18.75, 6.25, 75.0]);
    let node = cluster.node(0).unwrap();
    assert_eq!(node.provenance, Provenance::Measured);
    assert_eq!((node.meter.as_str(), node.watts), ("rapl:package-0", 100.0));
    assert_eq!((node.metered_seconds, node.unmetered_seconds), (1.0, 0.0));
    let front = cluster.service(FRONT).unwrap();
    assert_eq!((front.joules, front.handled), (12.5, 100));
    assert_eq!(front.joules_per_request, Some(0.125));
    assert_eq!(front.provenance, Provenance::Measured);
    assert_eq!(cluster.services(), 18.75);
    let metric = |name: &str| cluster.controller.metric(name);
    let joules = |part: &str| {
        let labels = format!("node=\"s1-host\",part=\"{part}\",provenance=\"measured\"");
        metric(&format!("e3_node_joules_total{{{labels}}}"))
    };
    assert_eq!(
        [joules("services"), joules("platform"), joules("idle")],
        [18.75, 6.25, 75.0]
    );
    let labels = "app=\"two-services\",provenance=\"measured\",service=\"front\"";
    assert_eq!(
        metric(&format!("e3_service_joules_total{{{labels}}}")),
        12.5
    );
    // 12.5 J over 100 requests.
    let per_request = metric(&format!("e3_service_joules_per_request{{{labels}}}"));
    assert_eq!(per_request, 0.125);
    let labels = "meter=\"rapl:package-0\",node=\"s1-host\",scope=\"processor\"";
    assert_eq!(metric(&format!("e3_node_meter_ok{{{labels}}}")), 1.0);
}

#[test]
fn the_sum_holds_over_several_nodes_and_many_reports() {
    let cluster = Cluster::new();
    let machine = |name: &str, m: MeteredEnergy| MeteredEnergy {
        machine: name.into(),
        ..m
    };
    for node in [0, 2] {
        cluster.report(
            node,
            Some(machine(NODES[node], meter(10.0, 1.0))),
            Done::default(),
        );
    }
    for second in 1..=20u64 {
        for node in [0, 2] {
            let n = second as f64;
            let done = Done {
                cpu: n * 0.7,
                front: (n * 0.1 * (1 + node) as f64, second * 10),
                back: (n * 0.03, second * 7),
            };
            let shown = meter(10.0 + n * (50.0 + n), 1.0 + n);
            cluster.report(node, Some(machine(NODES[node], shown)), done);
        }
    }
    let mut services = 0.0;
    for node in [0, 2] {
        services += cluster.parts(node)[0];
        assert!((cluster.node(node).unwrap().joules - 20.0 * 70.0).abs() < 1e-6);
    }
    assert!((services - cluster.services()).abs() < 1e-5);
    assert_eq!(cluster.service(BACK).unwrap().handled, 2 * 140);
}

#[test]
fn an_emulated_node_gets_what_its_process_used_of_the_machine() {
    let cluster = Cluster::new();
    cluster.begin(1);
    cluster.report(1, Some(meter(110.0, 2.0)), DONE);
    assert_eq!(cluster.parts(1), [18.75, 6.25, 0.0]);
    assert_eq!(cluster.node(1).unwrap().provenance, Provenance::Emulated);
    let front = cluster.service(FRONT).unwrap();
    assert_eq!(
        (front.provenance, front.joules),
        (Provenance::Emulated, 12.5)
    );
}

#[test]
fn nodes_that_share_a_machine_do_not_count_it_twice() {
    let cluster = Cluster::new();
    for node in [0, 2] {
        cluster.begin(node);
    }
    for node in [0, 2] {
        cluster.report(node, Some(meter(110.0, 2.0)), DONE);
    }
    for node in [0, 2] {
        assert_eq!(cluster.parts(node), [18.75, 6.25, 0.0]);
        assert_eq!(cluster.node(node).unwrap().provenance, Provenance::Emulated);
    }
}

#[test]
fn what_is_used_between_two_readings_of_the_meter_is_kept_for_the_next() {
    let cluster = Cluster::new();
    cluster.begin(0);
    cluster.report(0, Some(meter(10.0, 1.0)), DONE);
    assert_eq!(cluster.parts(0), [0.0; 3]);
    cluster.report(0, Some(meter(110.0, 2.0)), DONE);
    assert_eq!(cluster.parts(0), [18.75, 6.25, 75.0]);
}

#[test]
fn handlers_get_no_more_than_the_process_used() {
    let cluster = Cluster::new();
    cluster.begin(0);
    // 40 s in handlers in one second of one core.
    let done = Done {
        cpu: 1.0,
        front: (30.0, 3),
        back: (10.0, 1),
    };
    cluster.report(0, Some(meter(110.0, 2.0)), done);
    assert_eq!(cluster.parts(0), [25.0, 0.0, 75.0]);
    assert_eq!(cluster.service(FRONT).unwrap().joules, 18.75);
}

#[test]
fn a_gap_is_counted_as_such_and_its_requests_have_no_energy() {
    let cluster = Cluster::new();
    cluster.begin(0);
    let gap = MeteredEnergy {
        unmetered_seconds: 15.0,
        error: Some("the meter is gone".into()),
        ..meter(10.0, 1.0)
    };
    cluster.report(0, Some(gap.clone()), DONE);
    let node = cluster.node(0).unwrap();
    assert_eq!((node.joules, node.unmetered_seconds), (0.0, 15.0));
    assert_eq!(node.error.as_deref(), Some("the meter is gone"));
    let labels = "meter=\"rapl:package-0\",node=\"s1-host\",scope=\"processor\"";
    assert_eq!(
        cluster
            .controller
            .metric(&format!("e3_node_meter_ok{{{labels}}}")),
        0.0
    );
    assert_eq!(cluster.service(FRONT), None);
    let after = MeteredEnergy {
        unmetered_seconds: 15.0,
        ..meter(110.0, 2.0)
    };
    cluster.report(0, Some(after), DONE);
    assert_eq!(cluster.parts(0), [0.0, 0.0, 100.0]);
}

#[test]
fn a_restart_of_a_node_takes_nothing_from_the_totals() {
    let mut cluster = Cluster::new();
    cluster.begin(0);
    cluster.report(0, Some(meter(110.0, 2.0)), DONE);
    cluster.nodes[0] = cluster.controller.join(NODES[0], 2);
    cluster.report(0, Some(meter(5.0, 1.0)), Done::default());
    assert_eq!(cluster.parts(0), [18.75, 6.25, 75.0]);
    cluster.report(0, Some(meter(105.0, 2.0)), DONE);
    assert_eq!(cluster.parts(0), [37.5, 12.5, 150.0]);
}

#[test]
fn absurd_reports_change_nothing() {
    let cluster = Cluster::new();
    cluster.begin(0);
    let wrong = [
        meter(1e300, 2.0),
        meter(-1e300, 3.0),
        meter(1e300, 1e300),
        meter(1e308, 1e308),
        meter(0.0, -1e308),
        meter(10.0, 0.0),
    ];
    for energy in wrong {
        cluster.report(0, Some(energy), DONE);
        assert_eq!(cluster.parts(0), [0.0; 3]);
    }
    cluster.report(0, Some(meter(10.0, 1.0)), DONE);
    cluster.report(0, Some(meter(110.0, 2.0)), DONE);
    assert_eq!(cluster.parts(0)[2], 100.0);
}

#[test]
fn without_a_meter_energy_is_modelled_and_nothing_is_measured() {
    let cluster = Cluster::new();
    cluster.report(0, None, Done::default());
    cluster.report(0, None, DONE);
    assert_eq!(cluster.node(0), None);
    assert_eq!(cluster.service(FRONT), None);
    let node: NodeView = cluster.controller.view("/v1/nodes/s1-host");
    assert_eq!(node.energy.unwrap().provenance, Provenance::Modelled);
    let (_, text) = cluster.controller.get("/metrics");
    assert!(text.contains("e3_node_modelled_joules_total{"), "{text}");
    assert!(!text.contains("e3_node_joules_total"), "{text}");
    assert!(!text.contains("e3_service_joules_total"), "{text}");
}
