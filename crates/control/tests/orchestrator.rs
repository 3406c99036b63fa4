//! The orchestrator: what it takes for a fault, where it moves what, and that nothing flaps.

use crate::load;
use crate::load::{Cluster, HOST, NIC, Work, cluster, full, starved};
use crate::script;
use crate::script::{AT, KEY, Script};
use e3_control::Command;
use e3_model::event::EventKind as K;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::{AppId, Format, NodeId, ServiceId, ShardId, ShardKey};
use e3_testkit::{Random, seeds};

const OTHER: ShardKey = ShardKey {
    shard: ShardId(1),
    ..KEY
};

fn work(requests: u64, execution_us: u64) -> Work {
    Work {
        requests,
        execution_us,
    }
}

/// Two instances work on the SmartNIC, [`KEY`] more than the other.
fn busy() -> Cluster {
    let mut c = cluster();
    c.bring(OTHER, NIC);
    c.work.insert(KEY, work(1_000, 500));
    c.work.insert(OTHER, work(1_000, 200));
    let normal = load::starved();
    let load = e3_control::NodeLoad {
        queue_len: 2,
        port_permille: 600,
        ..normal
    };
    c.nodes.insert(NIC, load);
    c.run(15);
    assert_eq!(c.decisions(), []);
    c
}

#[test]
fn a_starved_smartnic_loses_its_busiest_instance_to_the_host() {
    let mut c = busy();
    c.nodes.insert(NIC, starved());
    c.run(2);
    let decisions = c.decisions();
    let [moved] = &decisions[..] else {
        panic!("{decisions:?}");
    };
    assert_eq!(moved.kind, K::OrchestratorMove);
    assert_eq!(moved.instance.as_deref(), Some("two-services/back/0"));
    assert_eq!(moved.node.as_deref(), Some("s1-nic0"));
    assert_eq!(moved.to.as_deref(), Some("s1-host"));
    assert_eq!(
        moved.why,
        "starvation: 300 requests wait and 10.0 % of the port are used, for 50 heartbeats"
    );
    assert_eq!(moved.figures["queueLen"], 300);
    assert_eq!(moved.figures["cpuPermille"], 500);
    assert_eq!((c.primary(KEY), c.primary(OTHER)), (HOST, NIC));
    c.script.check();
}

#[test]
fn a_node_that_does_not_measure_its_port_is_never_starved() {
    let mut c = cluster();
    c.work.insert(KEY, work(1_000, 500));
    let unmeasured = e3_control::NodeLoad {
        port_permille: 0,
        ..starved()
    };
    c.nodes.insert(NIC, unmeasured);
    c.run(30);
    assert_eq!(c.decisions(), []);
}

#[test]
fn a_queue_that_comes_and_goes_is_no_starvation() {
    let mut c = busy();
    let calm = c.nodes[&NIC];
    for _ in 0..30 {
        c.nodes.insert(NIC, starved());
        // One heartbeat less than it takes.
        for _ in 0..49 {
            c.run_step();
        }
        c.nodes.insert(NIC, calm);
        c.run_step();
    }
    assert_eq!(c.decisions(), []);
}

#[test]
fn an_execution_time_above_its_average_on_a_full_smartnic_is_an_overload() {
    let mut c = busy();
    c.nodes.insert(NIC, full());
    c.work.insert(OTHER, work(1_000, 230));
    c.run(20);
    assert_eq!(c.decisions(), [], "15 % more is none");
    c.work.insert(OTHER, work(1_000, 300));
    c.run(8);
    let decisions = c.decisions();
    let [moved] = &decisions[..] else {
        panic!("{decisions:?}");
    };
    // The one with the highest CPU use goes, not the one that is slow.
    assert_eq!(moved.instance.as_deref(), Some("two-services/back/0"));
    assert!(
        moved
            .why
            .starts_with("overload: two-services/back/1 takes 300 us"),
        "{moved:?}"
    );
    assert_eq!(moved.figures["reports"], 5);
    assert!((200..=231_000).contains(&moved.figures["averageNs"]));
    assert_eq!(c.primary(KEY), HOST);
    c.script.check();
}

#[test]
fn the_average_does_not_learn_the_overload_while_it_lasts() {
    let mut c = busy();
    c.mode(OrchestratorMode::DryRun);
    c.nodes.insert(NIC, full());
    c.work.insert(OTHER, work(1_000, 300));
    c.run(600);
    let decisions = c.decisions();
    let last = decisions.last().unwrap();
    assert!(decisions.len() >= 3);
    assert_eq!(last.figures["averageNs"], 200_000);
}

#[test]
fn slower_work_on_a_smartnic_with_free_cores_is_no_overload() {
    let mut c = busy();
    c.work.insert(OTHER, work(1_000, 900));
    c.run(30);
    assert_eq!(c.decisions(), []);
}

#[test]
fn oscillating_load_moves_an_instance_ever_less_often() {
    let mut c = busy();
    let calm = c.nodes[&NIC];
    // Half a minute each; the queue stands while the busy instance is there.
    for second in 0..3 * 3_600 {
        let is_high = second / 30 % 2 == 0;
        let stands = is_high && c.primary(KEY) == NIC;
        c.nodes.insert(NIC, if stands { starved() } else { calm });
        c.work
            .insert(KEY, work(if is_high { 1_000 } else { 100 }, 500));
        c.run(1);
    }
    let times = &c.moved[&KEY];
    assert!((4..=14).contains(&times.len()), "{times:?}");
    let gaps: Vec<u64> = times
        .windows(2)
        .map(|w| w[1].since(w[0]).as_secs())
        .collect();
    assert!(gaps.last().unwrap() > &(4 * gaps[0]), "{gaps:?}");
    c.script.check();
}

#[test]
fn no_more_migrations_are_in_flight_than_the_budget_allows() {
    let mut c = busy();
    for (shard, nic) in [(KEY, NodeId(1)), (OTHER, NodeId(3))] {
        c.bring(shard, nic);
        c.nodes.insert(nic, c.nodes[&NIC]);
    }
    c.run(5);
    c.set(|s| s.moves_max = 1);
    c.stuck = true;
    c.nodes.insert(NodeId(1), starved());
    c.nodes.insert(NodeId(3), starved());
    c.run(60);
    assert_eq!((c.in_flight(), c.count(K::OrchestratorMove)), (1, 1));
    c.stuck = false;
    c.run(5);
    assert_eq!(c.count(K::OrchestratorMove), 2);
}

#[test]
fn a_server_takes_part_in_no_more_migrations_than_its_budget() {
    let mut c = busy();
    c.stuck = true;
    c.nodes.insert(NIC, starved());
    c.run(120);
    assert_eq!((c.in_flight(), c.count(K::OrchestratorMove)), (1, 1));
    c.set(|s| s.moves_per_server_max = 2);
    c.run(60);
    assert_eq!((c.in_flight(), c.count(K::OrchestratorMove)), (2, 2));
}

#[test]
fn an_instance_returns_when_its_load_has_fallen_and_not_before() {
    let mut c = busy();
    let calm = c.nodes[&NIC];
    c.nodes.insert(NIC, starved());
    c.run(2);
    c.nodes.insert(NIC, calm);
    c.run(300);
    assert_eq!(c.primary(KEY), HOST, "its load is the same");
    c.work.insert(KEY, work(100, 500));
    c.run(3);
    assert_eq!(c.primary(KEY), NIC);
    let decisions = c.decisions();
    let back = decisions.last().unwrap();
    assert_eq!(back.kind, K::OrchestratorReturn);
    assert_eq!(
        back.why,
        "load fell: it would use 0.05 cores there, 0.50 at most since it left"
    );
    c.script.check();
}

#[test]
fn what_an_operator_moves_stays_there() {
    let mut c = busy();
    let calm = c.nodes[&NIC];
    c.nodes.insert(NIC, starved());
    c.run(2);
    c.nodes.insert(NIC, calm);
    c.work.insert(KEY, work(100, 500));
    c.bring(KEY, NodeId(3));
    c.run(600);
    assert_eq!(c.primary(KEY), NodeId(3));
}

#[test]
fn a_dry_run_records_its_decisions_and_moves_nothing() {
    let mut c = busy();
    c.mode(OrchestratorMode::DryRun);
    c.nodes.insert(NIC, starved());
    c.run(100);
    assert_eq!((c.primary(KEY), c.moved.len()), (NIC, 0));
    let decisions = c.decisions();
    assert!(decisions.iter().all(|d| d.kind == K::OrchestratorDryRun));
    // At 0, 15, 45 and so on, not with each heartbeat.
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert_eq!(decisions[0].to.as_deref(), Some("s1-host"));
}

#[test]
fn nothing_is_decided_while_it_is_off_or_the_format_is_older() {
    let mut c = busy();
    c.mode(OrchestratorMode::Off);
    c.nodes.insert(NIC, starved());
    c.run(60);
    assert_eq!(c.decisions(), []);
    c.mode(OrchestratorMode::On);
    c.run(2);
    assert_eq!(c.count(K::OrchestratorMove), 1);

    let mut older = Script::filled();
    let settings = OrchestratorSettings::default();
    let set = Command::SetOrchestrator { settings, at: AT };
    assert!(!older.control.is_orchestrated());
    assert_eq!(
        older.apply(set).unwrap_err().to_string(),
        "settings and decisions of the orchestrator need format 8, the cluster writes format 7; raise it \
         first (e3 upgrade --finish)"
    );
    assert_eq!(Format::ORCHESTRATED, Format(8));
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let mut c = cluster();
    let settings = OrchestratorSettings {
        moves_max: 5_000,
        ..OrchestratorSettings::default()
    };
    let refused = c
        .script
        .apply(Command::SetOrchestrator { settings, at: AT });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "orchestrator: movesMax is 5000, must be 1..=1024"
    );
}

#[test]
fn a_node_that_is_drained_or_lost_meanwhile_is_left_alone() {
    let mut c = busy();
    c.nodes.insert(NIC, starved());
    c.script.ok(Command::Drain { node: NIC });
    c.script.settle();
    c.run(10);
    assert_eq!(c.decisions(), []);
    c.script.ok(Command::Resume { node: NIC });
    c.script.settle();

    let mut c = busy();
    c.nodes.insert(NIC, starved());
    // One heartbeat before the decision.
    for _ in 0..49 {
        c.run_step();
    }
    c.silent.push(NIC);
    c.script.lose_and_leave(NIC);
    c.script.settle();
    c.run(30);
    assert_eq!(c.decisions(), []);
}

#[test]
fn a_displaced_instance_waits_while_its_home_is_drained_or_lost() {
    let mut c = busy();
    let calm = c.nodes[&NIC];
    c.nodes.insert(NIC, starved());
    c.run(2);
    c.nodes.insert(NIC, calm);
    c.work.insert(KEY, work(100, 500));
    c.script.ok(Command::Drain { node: NIC });
    c.script.settle();
    c.run(300);
    assert_ne!(c.primary(KEY), NIC);
    c.script.ok(Command::Resume { node: NIC });
    c.script.settle();
    c.run(3);
    assert_eq!(c.primary(KEY), NIC);
}

#[test]
fn a_displaced_instance_forgets_a_home_that_was_removed() {
    let mut c = busy();
    c.nodes.insert(NIC, starved());
    c.run(2);
    let displaced = |c: &Cluster| c.script.control.orchestration.displaced().len();
    assert!(displaced(&c) > 0);
    c.silent.push(NIC);
    c.script.ok(Command::Drain { node: NIC });
    c.script.settle();
    c.script.ok(Command::RemoveNode { node: NIC });
    assert_eq!(displaced(&c), 0);
}

#[test]
fn without_a_destination_the_event_says_what_is_missing_and_is_not_repeated_each_heartbeat() {
    let mut c = busy();
    for host in [0, 2, 4] {
        let load = e3_control::NodeLoad {
            busy_permille: 11_500,
            ..e3_control::NodeLoad::default()
        };
        c.nodes.insert(NodeId(host), load);
    }
    for nic in [1, 3, 5] {
        c.nodes.insert(NodeId(nic), starved());
    }
    c.run(3);
    let decisions = c.decisions();
    let of_it = |e: &&e3_model::event::Event| e.node.as_deref() == Some("s1-nic0");
    let of_it: Vec<_> = decisions.iter().filter(of_it).collect();
    let [stuck] = &of_it[..] else {
        panic!("{decisions:?}");
    };
    assert_eq!(stuck.kind, K::OrchestratorStuck);
    let why = "s1-host: needs 0.50 cores, 11.50 of 12 are busy, must be at most 80 %";
    assert!(stuck.why.contains(why), "{}", stuck.why);
    assert_eq!(stuck.instance.as_deref(), Some("two-services/back/0"));
    let node = stuck.node.clone();
    let count = |c: &Cluster| {
        let decisions = c.decisions();
        decisions.iter().filter(|e| e.node == node).count()
    };
    c.run(60);
    let first_minute = count(&c);
    c.run(540);
    let again = count(&c);
    assert!((4..=8).contains(&again), "{again} events in ten minutes");
    assert!(c.moved.is_empty());
    // After an hour without overload, events come as often as at first.
    c.nodes.insert(NIC, e3_control::NodeLoad::default());
    c.run(3_600);
    assert_eq!(count(&c), again);
    c.nodes.insert(NIC, starved());
    c.run(63);
    assert_eq!(count(&c), again + first_minute);
}

#[test]
fn a_full_host_is_passed_over_for_another_node() {
    let mut c = busy();
    let load = e3_control::NodeLoad {
        busy_permille: 11_500,
        ..e3_control::NodeLoad::default()
    };
    c.nodes.insert(HOST, load);
    c.nodes.insert(NIC, starved());
    c.run(3);
    assert_eq!(c.count(K::OrchestratorMove), 1);
    let at = c.primary(KEY);
    assert!(at != NIC && at != HOST, "{at:?}");
}

#[test]
fn a_new_version_of_an_application_begins_new_averages() {
    let mut c = busy();
    c.nodes.insert(NIC, full());
    let app = AppId(1);
    let code_version = c.script.control.apps[&app].plan.code_version;
    c.script.ok(Command::Started { app, code_version });
    let slower = script::APP.replace("5ms", "6ms");
    c.script.deploy_manifest(&slower).unwrap();
    assert_ne!(c.script.control.apps[&app].plan.code_version, code_version);
    c.work.insert(OTHER, work(1_000, 400));
    c.run(60);
    assert_eq!(c.decisions(), []);
    assert_eq!(
        c.script.control.apps[&app]
            .plan
            .app
            .service(ServiceId(1))
            .shards,
        2
    );
}

/// Cluster checks after each step that no more moves are in flight than may be, that instances rest,
/// and that each move is valid.
#[test]
fn random_loads_keep_the_budget_and_the_cool_downs() {
    let mut moves = 0;
    for seed in seeds(12) {
        let mut random = Random::new(seed);
        let mut c = cluster();
        let keys: Vec<ShardKey> = [(0, 0), (1, 0), (1, 1)]
            .map(|(service, shard)| ShardKey {
                app: AppId(1),
                service: ServiceId(service),
                shard: ShardId(shard),
            })
            .into();
        c.set(|s| s.moves_max = 2);
        for _ in 0..200 {
            for node in (0..6).map(NodeId) {
                let load = e3_control::NodeLoad {
                    queue_len: random.below(200) as u32,
                    busy_permille: random.below(12_500) as u16,
                    port_permille: random.below(1_000) as u16,
                };
                c.nodes.insert(node, load);
            }
            for key in &keys {
                let load = work(random.below(2_000), 1 + random.below(3_000));
                c.work.insert(*key, load);
            }
            c.stuck = random.one_in(4);
            change_membership(&mut c, &mut random);
            c.run(1 + random.below(6));
        }
        moves += c.moved.values().map(Vec::len).sum::<usize>();
        c.script.check();
    }
    assert!(moves > 0, "no load led to a move");
}

/// Sometimes a node falls silent, is heard again, is drained or resumed.
fn change_membership(c: &mut Cluster, random: &mut Random) {
    if c.stuck || !random.one_in(8) {
        return;
    }
    let node = NodeId(random.below(6) as u32);
    let up = (0..6)
        .filter(|n| c.script.control.is_up(NodeId(*n)))
        .count();
    match random.below(3) {
        0 if up > 4 && c.script.control.is_up(node) => {
            c.silent.push(node);
            c.script.lose_and_leave(node);
        }
        1 => {
            for node in std::mem::take(&mut c.silent) {
                c.script.hear(node);
            }
        }
        _ => drop(if c.script.control.drained.contains(&node) {
            c.script.ok(Command::Resume { node })
        } else {
            c.script.ok(Command::Drain { node })
        }),
    }
    c.script.settle();
}
