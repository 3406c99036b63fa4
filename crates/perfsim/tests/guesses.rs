//! Each guess changes something where it has an effect, and nothing elsewhere; where the effect can be computed by hand,
//! it is that.

mod common;

use common::{Scene, at, fixed, iot_ts, racks};
use e3_hardware::guesses::{Concerns, GUESSES};
use e3_hardware::interconnect::Interconnect;
use e3_hardware::stack::Stack;
use e3_model::document::parse_profile;
use e3_model::{Nanos, NodeId, ServiceId, ShardId};
use e3_perfsim::{
    Action, Controller, Failing, Fault, Heartbeat, InstanceCount, Load, NoController, NodeLoad,
    Outcome, Report, Run, Simulator,
};

/// What is not run again where a guess has no effect would give the same.
#[test]
fn a_guess_changes_nothing_where_it_has_no_effect() {
    for topology in ["3x-beefy", "3x-type1"] {
        let run = |guess: Option<(&str, f64)>| {
            let mut scene = iot_ts(topology, "joules");
            if let Some((name, value)) = guess {
                scene.options.guesses.set(name, value).unwrap();
            }
            scene.run(at(5_000.0, 0.1))
        };
        let usual = run(None);
        for guess in GUESSES {
            let has_effect = match guess.concerns {
                // Placers look at it, and the placement is the same here.
                Concerns::Every => guess.name != "knee_utilisation",
                Concerns::Hosts | Concerns::HyperThreading | Concerns::Backups => true,
                Concerns::SmartNics | Concerns::Pcie => topology == "3x-type1",
                Concerns::Racks
                | Concerns::Roce
                | Concerns::LinuxStack
                | Concerns::SmallRequests
                | Concerns::Moves
                | Concerns::LinkFailures => false,
            };
            let ends = [guess.low, guess.high].map(|value| run(Some((guess.name, value))));
            let changes = ends.iter().any(|end| *end != usual);
            // A traffic manager holds nothing at this load.
            if guess.name != "traffic_manager_waiting_max" {
                assert_eq!(changes, has_effect, "{} on {topology}", guess.name);
            }
        }
    }
}

/// The reports with a guess at both ends of its range.
fn ends(scene: &mut Scene, name: &str, run: &Run) -> [Report; 2] {
    let guess = GUESSES.iter().find(|g| g.name == name).unwrap();
    [guess.low, guess.high].map(|value| with(scene, name, value, run))
}

fn with(scene: &mut Scene, name: &str, value: f64, run: &Run) -> Report {
    let usual = scene.options.guesses.clone();
    scene.options.guesses.set(name, value).unwrap();
    let report = scene.run(run.clone());
    scene.options.guesses = usual;
    report
}

#[track_caller]
fn near(us: f64, expected_us: f64) {
    assert!(
        (us - expected_us).abs() < 0.01,
        "{us} us, not {expected_us}"
    );
}

fn smartnics(cores: u16) -> [(&'static str, &'static str, u16, f64); 2] {
    [
        ("n", "smartnic", cores, 10.0),
        ("m", "smartnic", cores, 10.0),
    ]
}

/// A request and its answer pass four switches each: up, on top, down, the other rack's.
#[test]
fn each_switch_between_racks_adds_its_time() {
    let (nodes, run) = (smartnics(12), at(1_000.0, 0.2));
    let services = [("a", "n", 1_000), ("b", "m", 1_000)];
    let mut apart = fixed(racks(&[&nodes[..1], &nodes[1..]]), &services);
    let [low, high] = ends(&mut apart, "switch_us", &run);
    near(high.latency_us_avg() - low.latency_us_avg(), 8.0 * 0.7);
    let mut together = fixed(racks(&[&nodes]), &services);
    let [low, high] = ends(&mut together, "switch_us", &run);
    assert_eq!(low, high);
}

/// The rack's 10 Gb/s are divided by its uplinks and by the oversubscription: 578 bytes take an uplink of 10/4 Gb/s
/// 1,850 ns and one of 10/64 Gb/s 29,594 ns. A request and its answer take two links each.
#[test]
fn messages_take_longer_on_narrower_uplinks() {
    let (nodes, run) = (smartnics(12), at(1_000.0, 0.2));
    let services = [("a", "n", 1_000), ("b", "m", 1_000)];
    let mut apart = fixed(racks(&[&nodes[..1], &nodes[1..]]), &services);
    let [few, many] = ends(&mut apart, "uplinks_per_rack", &run);
    let (few_us, many_us) = (few.latency_us_avg(), many.latency_us_avg());
    // At 1,000 requests/s one in thirty waits for another one.
    let more_us = many_us - few_us;
    assert!((more_us / (4.0 * 27.744) - 1.0).abs() < 0.05, "{more_us}");
    apart.options.guesses.set("uplinks_per_rack", 4.0).unwrap();
    let [flat, over] = ends(&mut apart, "oversubscription", &run);
    let more_us = over.latency_us_avg() - flat.latency_us_avg();
    assert!(
        (more_us / (4.0 * 3.0 * 1.8496) - 1.0).abs() < 0.02,
        "{more_us}"
    );
    assert!(over.bottleneck.utilisation < 0.02, "{:?}", over.bottleneck);
}

/// One thread runs both services of each request in turn, and switches twice.
#[test]
fn each_switch_of_services_costs_the_context_switch() {
    let run = at(100.0, 1.0);
    let both = [("a", "n", 10_000), ("b", "n", 20_000)];
    let mut scene = fixed(racks(&[&smartnics(1)]), &both);
    let [none, most] = ends(&mut scene, "context_switch_us", &run);
    near(
        most.services[0].sojourn_us - none.services[0].sojourn_us,
        3.0,
    );
    near(
        most.services[1].sojourn_us - none.services[1].sojourn_us,
        3.0,
    );
    // Alone it switches once, at the beginning.
    let mut alone = fixed(racks(&[&smartnics(1)]), &both[..1]);
    let [none, most] = ends(&mut alone, "context_switch_us", &run);
    near(most.latency_us_avg(), none.latency_us_avg());
}

#[test]
fn services_that_share_a_smartnic_take_longer_by_the_contention() {
    let run = at(100.0, 1.0);
    let sojourns = |scene: &mut Scene, value: f64| {
        let report = with(scene, "smartnic_contention", value, &run);
        [report.services[0].sojourn_us, report.services[1].sojourn_us]
    };
    let both = [("a", "n", 10_000), ("b", "n", 20_000)];
    let mut scene = fixed(racks(&[&smartnics(12)]), &both);
    let [a, b] = sojourns(&mut scene, 0.25);
    near(a, 12.5);
    near(b, 25.0);
    let apart = [("a", "n", 10_000), ("b", "m", 20_000)];
    let mut scene = fixed(racks(&[&smartnics(12)]), &apart);
    let [a, b] = sojourns(&mut scene, 0.25);
    near(a, 10.0);
    near(b, 20.0);
}

/// With two sizes in the profile, a size between them takes a time between theirs, on a straight line.
#[test]
fn service_times_are_interpolated_between_sizes_and_refused_beyond() {
    let mut scene = fixed(racks(&[&smartnics(12)]), &[("a", "n", 1)]);
    let text = "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {name: a}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    smartnic:\n      serviceTime: [{bytes: 256, time: 10us}, {bytes: 1024, time: 40us}]\n      activePowerW: 20\n      activeCores: 12\n";
    scene
        .profiles
        .insert("a".into(), parse_profile("a", text).unwrap());
    for (bytes, expected_us) in [(256, 10.0), (448, 17.5), (640, 25.0), (1024, 40.0)] {
        scene.bytes = bytes;
        let report = scene.run(at(100.0, 0.5));
        near(report.services[0].sojourn_us, expected_us);
        assert!(report.assumptions.is_empty(), "{:?}", report.assumptions);
    }
    scene.bytes = 1025;
    let error = scene.try_run(at(100.0, 0.5)).unwrap_err().to_string();
    assert!(
        error.contains("requests of 256..=1024 bytes, not of 1025"),
        "{error}"
    );
}

/// Without batching the card needs its time for each message.
#[test]
fn a_roce_card_is_used_for_its_time_by_each_message() {
    let mut scene = fixed(
        racks(&[&smartnics(12)]),
        &[("a", "n", 100), ("b", "m", 100)],
    );
    scene.bytes = 64;
    scene.options.interconnect = Interconnect::Roce { batching: false };
    let run = at(500_000.0, 0.02);
    let [low, high] = ends(&mut scene, "roce_message_us", &run);
    // Two messages a request leave the first node, 104 ns each on the wire and 500 ns at the card.
    for (report, ns) in [(low, 104.0), (high, 500.0)] {
        let expected = report.offered_rps * 2.0 * ns * 1e-9;
        let found = report.nodes[0].port_utilisation;
        assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
    }
}

/// A request passes the stack of the first host, both of the hop to the second one, and as many on its way back; clients
/// bypass the kernel.
#[test]
fn linux_sockets_add_their_latency_at_each_host() {
    let hosts = [("n", "host", 12, 20.0), ("m", "host", 12, 20.0)];
    let mut scene = fixed(racks(&[&hosts]), &[("kvs", "n", 1), ("ema", "m", 1)]);
    for text in [
        include_str!("../../../profiles/paper/kvs.yaml"),
        include_str!("../../../profiles/paper/ema.yaml"),
    ] {
        let profile = parse_profile("paper", text).unwrap();
        scene.profiles.insert(profile.name.clone(), profile);
    }
    scene.options.sleep = false;
    let run = at(1_000.0, 0.2);
    let [low, high] = ends(&mut scene, "linux_stack_us", &run);
    assert_eq!(low, high);
    scene.options.stack = Stack::Linux;
    let [low, high] = ends(&mut scene, "linux_stack_us", &run);
    near(high.latency_us_avg() - low.latency_us_avg(), 6.0 * 27.0);
}

#[test]
fn small_requests_take_less_by_the_part_in_proportion_to_their_bytes() {
    let mut scene = fixed(racks(&[&smartnics(12)]), &[("a", "n", 20_000)]);
    scene.bytes = 128;
    let [same, less] = ends(&mut scene, "per_byte_part", &at(100.0, 0.5));
    near(same.services[0].sojourn_us, 20.0);
    near(less.services[0].sojourn_us, 5.0);
}

/// Messages on a link that is down are lost until switches avoid it.
#[test]
fn messages_are_lost_until_a_lost_link_is_detected() {
    let text = include_str!("../../../topologies/2x-type2.yaml");
    let topology = e3_model::document::parse_topology("2x-type2", text).unwrap();
    let mut scene = fixed(
        topology,
        &[("a", "s2-nic0", 1_000), ("b", "s1-host", 1_000)],
    );
    // The flow takes one of four ports; each of them fails in turn.
    let fail = |name: &str| {
        let mut nodes = scene.topology.nodes();
        let id = nodes.find(|n| n.node.name == name).unwrap().id;
        Fault {
            what: Failing::Link(id),
            from: Nanos::from_millis(100),
            until: None,
        }
    };
    let names = ["s1-nic0", "s1-nic1", "s1-nic2", "s1-nic3"];
    let lost = |scene: &mut Scene, value: f64| {
        let report = with(scene, "link_detection_ms", value, &at(2_000.0, 1.5));
        report.disruption.messages_lost
    };
    let faults = names.map(fail);
    let mut most = [0, 0];
    for fault in faults {
        scene.options.faults = vec![fault];
        let found = [1.0, 100.0].map(|ms| lost(&mut scene, ms));
        most = [most[0].max(found[0]), most[1].max(found[1])];
    }
    // Two messages a millisecond, and each sent again every 50 ms until then.
    assert!(most[0] <= 10, "{most:?}");
    assert!((150..=500).contains(&most[1]), "{most:?}");
}

/// Copies the shard of the only service to another node, stops it there, and lets it serve here.
#[derive(Default)]
struct Mover {
    begun: bool,
    copied_at: Option<Nanos>,
}

const MOVED: (ServiceId, ShardId) = (ServiceId(0), ShardId(0));
const TO: NodeId = NodeId(1);

impl Controller for Mover {
    fn on_loads(&mut self, _: Nanos, _: &[NodeLoad]) {}

    fn heartbeat_interval(&self) -> Option<Nanos> {
        Some(Nanos::from_millis(20))
    }

    fn on_heartbeats(&mut self, _: Nanos, _: &[Heartbeat], _: &[InstanceCount]) -> Vec<Action> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let (service, shard) = MOVED;
        vec![Action::Copy {
            number: 1,
            service,
            shard,
            to: TO,
        }]
    }

    fn on_outcome(&mut self, now: Nanos, outcome: Outcome) -> Vec<Action> {
        let (service, shard) = MOVED;
        match outcome {
            Outcome::Copied { .. } => {
                self.copied_at = Some(now);
                vec![Action::Stop { service, shard }]
            }
            Outcome::Stopped { .. } => vec![Action::Serve {
                service,
                shard,
                primary: TO,
                is_prepared: true,
                backups: Vec::new(),
            }],
        }
    }
}

/// The state is half of the 8 MiB that are reserved. The copy begins when the instance runs, 100 ms after the first
/// heartbeat. A part of 16 KiB leaves when the one before has arrived, since two ports and the hop take 27.7 us, longer than
/// the 26.2 us of 625 MB/s: 256 parts take 7.1 ms. The pause is the 5 ms of the cut-over.
#[test]
fn a_move_takes_its_start_its_bytes_and_its_cut_over() {
    let mut scene = fixed(racks(&[&smartnics(12)]), &[("a", "n", 1_000)]);
    let service = &mut scene.app.spec.services[0];
    service.resources.memory = e3_model::Bytes(8 << 20);
    let run = |name: &str, value: f64| {
        let mut options = scene.options.clone();
        options.guesses.set(name, value).unwrap();
        let input = e3_perfsim::Input {
            options: &options,
            ..scene.input()
        };
        let run = Run {
            load: Load::Constant(20_000.0),
            warm_up: Nanos(0),
            ..at(1.0, 1.5)
        };
        let mut mover = Mover::default();
        let report = Simulator::new(&input, run).unwrap().run(&mut mover);
        let copied_ms = mover.copied_at.unwrap().0 as f64 / 1e6 - 20.0;
        (copied_ms, report)
    };
    for (name, value, copied_ms, bytes, pause_ms) in [
        ("state_fill", 0.5, 107.1, 4 << 20, 5.0),
        ("state_fill", 1.0, 114.2, 8 << 20, 5.0),
        ("copy_mb_per_s", 125.0, 133.5, 4 << 20, 5.0),
        ("instance_start_ms", 400.0, 407.1, 4 << 20, 5.0),
        ("cut_over_ms", 50.0, 107.1, 4 << 20, 50.0),
    ] {
        let (found_ms, report) = run(name, value);
        let label = format!("{name} {value}: {found_ms} ms, {report:?}");
        assert!((found_ms - copied_ms).abs() < 0.1, "{label}");
        let d = &report.disruption;
        assert_eq!((d.moves, d.copied_bytes), (1, bytes), "{label}");
        let pause = report.longest_pause_ms;
        assert!((pause - pause_ms).abs() < 0.5, "{pause} ms, {label}");
    }
    let still = Simulator::new(&scene.input(), at(20_000.0, 0.1)).unwrap();
    assert_eq!(still.run(&mut NoController).disruption.moves, 0);
}
