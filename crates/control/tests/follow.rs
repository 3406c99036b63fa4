//! The orchestrator follows the load: instances move to where the present rate needs less energy, and
//! to where it is carried at all. Nothing flaps.

use crate::load::{Cluster, HOST, Work, cluster};
use crate::script;
use e3_control::Command;
use e3_model::event::{Event, EventKind as K};
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::{AppId, NodeId, Timestamp};
use e3_testkit::{Random, seeds};
use std::collections::BTreeSet;

/// Of two services with 24 shards each, whose requests take 10 us on a core.
const APP: AppId = AppId(2);
/// A small part of what a node carries.
const NIGHT_RPS: u64 = 100;
/// With the reserve more than a server carries.
const DAY_RPS: u64 = 1_000_000;

/// The application runs, and its clients ask this much; the orchestrator looks every five seconds.
fn following(rate_rps: u64) -> Cluster {
    let mut c = cluster();
    let app = c.script.control.apps[&AppId(1)].plan.app.name.clone();
    c.script.ok(Command::Delete { app });
    let manifest = script::APP
        .replace("two-services", "wide")
        .replace("      shards: 2\n", "")
        .replace("      replicas: 2\n", "      shards: 24\n")
        .replace("cpu: 0.5", "cpu: 0.1");
    c.script.deploy_manifest(&manifest).unwrap();
    c.script.fill_all();
    c.script.ok(Command::Started {
        app: APP,
        code_version: 1,
    });
    c.clients.insert(APP, rate_rps);
    c.set(|s| {
        s.follow_interval_s = 5;
        s.moves_per_server_max = 8;
    });
    c
}

/// The same, after the application has been spread by day and the cool-down is over.
fn spread() -> Cluster {
    let mut c = following(DAY_RPS);
    c.run(400);
    assert_eq!(servers(&c), 2);
    c
}

fn follows(c: &Cluster) -> Vec<Event> {
    let all = c.decisions().into_iter();
    all.filter(|e| e.kind == K::OrchestratorFollow).collect()
}

/// The first event of each plan.
fn plans(c: &Cluster) -> Vec<Event> {
    let mut all = follows(c);
    all.dedup_by(|a, b| a.why == b.why);
    all
}

/// Servers with an instance.
fn servers(c: &Cluster) -> usize {
    let shards = &c.script.control.apps[&APP].plan.shards;
    let servers: BTreeSet<u32> = shards.iter().map(|s| s.primary.0 / 2).collect();
    servers.len()
}

#[test]
fn by_day_the_application_is_spread_and_at_night_it_comes_together() {
    let mut c = spread();
    let plan = plans(&c).pop().unwrap();
    assert!(
        plan.why
            .starts_with("load: 1000000 requests/s, 1500000 with the reserve"),
        "{plan:?}"
    );
    assert_eq!(plan.figures["rateRps"], DAY_RPS);
    assert!(plan.figures["kneeBeforeRps"] < 1_500_000, "{plan:?}");
    assert!(plan.figures["kneeAfterRps"] >= 1_500_000, "{plan:?}");

    c.clients.insert(APP, NIGHT_RPS);
    c.run(60);
    assert_eq!(servers(&c), 1);
    let plan = plans(&c).pop().unwrap();
    assert!(
        plan.why.starts_with("load: 100 requests/s; power"),
        "{plan:?}"
    );
    let of = |name: &str| plan.figures[name];
    assert!(
        of("powerAfterMilliwatts") + 90_000 < of("powerBeforeMilliwatts"),
        "{plan:?}"
    );
    assert_eq!(of("moveCostJoules"), 20 * of("moves"));
    assert!(of("paybackMs") < 3_600_000, "{plan:?}");

    // A load that the placement does not carry does not wait for the cool-down.
    c.clients.insert(APP, DAY_RPS);
    c.run(20);
    assert_eq!(servers(&c), 2);
    c.script.check();
}

#[test]
fn nobody_follows_unless_told_to() {
    let mut c = following(DAY_RPS);
    c.set(|s| s.follow_interval_s = OrchestratorSettings::default().follow_interval_s);
    c.run(60);
    assert_eq!(follows(&c), []);
}

#[test]
fn a_dry_run_records_each_plan_once_and_moves_nothing() {
    let mut c = following(DAY_RPS);
    c.mode(OrchestratorMode::DryRun);
    let before = servers(&c);
    c.run(1_000);
    assert_eq!(servers(&c), before);
    let decisions = c.decisions();
    assert!(decisions.iter().all(|e| e.kind == K::OrchestratorDryRun));
    // At once, after 300 s and after 600 s more.
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert!(decisions[0].figures["moves"] > 1);
}

#[test]
fn a_short_lull_moves_nothing() {
    let mut c = spread();
    let before = follows(&c).len();
    for _ in 0..20 {
        c.clients.insert(APP, NIGHT_RPS);
        c.run(8);
        c.clients.insert(APP, DAY_RPS);
        c.run(30);
    }
    assert_eq!(follows(&c).len(), before);
}

#[test]
fn oscillating_load_moves_an_application_ever_less_often() {
    let mut c = following(DAY_RPS);
    let mut together: Vec<Timestamp> = Vec::new();
    // Four minutes each, for six hours.
    for period in 0..90 {
        c.clients.insert(APP, [DAY_RPS, NIGHT_RPS][period % 2]);
        for _ in 0..24 {
            let before = servers(&c);
            c.run(10);
            if servers(&c) < before {
                together.push(c.now);
            }
        }
    }
    assert!((3..=12).contains(&together.len()), "{together:?}");
    let gaps = together.windows(2).map(|w| w[1].since(w[0]).as_secs());
    let gaps: Vec<u64> = gaps.collect();
    assert!(gaps.last().unwrap() > &(3 * gaps[0]), "{gaps:?}");
    c.script.check();
}

#[test]
fn nothing_moves_to_save_energy_while_the_moves_would_not_pay_back() {
    let mut c = spread();
    let before = follows(&c).len();
    c.set(|s| {
        s.follow_horizon_s = 10;
        s.follow_move_joules = 10_000;
    });
    c.clients.insert(APP, NIGHT_RPS);
    c.run(400);
    assert_eq!(follows(&c).len(), before);
}

#[test]
fn without_the_reports_of_a_node_the_rate_is_not_known() {
    let mut c = spread();
    let before = follows(&c).len();
    c.clients.insert(APP, NIGHT_RPS);
    c.silent.push(HOST);
    c.run(120);
    assert_eq!(follows(&c).len(), before);
    c.silent.clear();
    c.run(60);
    assert_eq!(servers(&c), 1);
}

#[test]
fn what_services_handle_without_requests_of_clients_counts_too() {
    let mut c = following(0);
    c.run(60);
    assert_eq!(servers(&c), 1);
    for shard in c.script.control.apps[&APP].plan.shards.clone() {
        let key = c.script.control.apps[&APP].plan.key(&shard);
        let each = Work {
            requests: DAY_RPS / 24,
            execution_us: 10,
        };
        c.work.insert(key, each);
    }
    c.run(40);
    assert_eq!(servers(&c), 2);
}

#[test]
fn moves_wait_for_the_budget() {
    let mut c = following(DAY_RPS);
    c.set(|s| s.moves_max = 1);
    c.stuck = true;
    c.run(60);
    assert_eq!((c.in_flight(), follows(&c).len()), (1, 1));
    c.stuck = false;
    c.run(60);
    assert_eq!(servers(&c), 2);
}

#[test]
fn an_application_with_an_instance_on_a_drained_node_is_left_alone() {
    let mut c = following(DAY_RPS);
    let node = c.script.control.apps[&APP].plan.shards[0].primary;
    c.stuck = true;
    c.script.ok(Command::Drain { node });
    c.run(60);
    assert_eq!(follows(&c), []);
}

/// Cluster checks after each step that no more moves are in flight than may be, and that each move is valid.
#[test]
fn random_loads_keep_the_budget_and_lose_nothing() {
    let mut moves = 0;
    for seed in seeds(6) {
        let mut random = Random::new(seed);
        let mut c = following(NIGHT_RPS);
        c.set(|s| {
            s.moves_max = 4;
            s.follow_cooldown_s = 20;
        });
        for _ in 0..30 {
            c.clients.insert(APP, 10u64.pow(1 + random.below(6) as u32));
            c.stuck = random.one_in(4);
            let node = NodeId(random.below(6) as u32);
            if !c.stuck && random.one_in(6) {
                if c.script.control.drained.contains(&node) {
                    drop(c.script.ok(Command::Resume { node }))
                } else {
                    drop(c.script.apply(Command::Drain { node }))
                }
                c.script.settle_within(2_000);
            }
            c.run(1 + random.below(40));
        }
        moves += follows(&c).len();
        c.stuck = false;
        c.run(1);
        c.script.check();
        assert_eq!(c.script.control.apps[&APP].state_lost, 0);
    }
    assert!(moves > 0, "no load led to a move");
}
