//! The orchestrator scales the number of shards of a service by load, within the bounds of its manifest.
//! Nothing flaps, and nothing is done that does not fit.

use crate::load::{Cluster, Work, cluster};
use crate::script;
use e3_control::{Command, CommandError, Control};
use e3_model::event::{Event, EventKind as K};
use e3_model::orchestrator::OrchestratorMode;
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::{AppId, Format, NodeId, ServiceId};
use e3_testkit::{Random, seeds};

pub const APP: AppId = AppId(2);
pub const BACK: ServiceId = ServiceId(1);
const MANIFEST: (&str, &str) = ("shards: 2", "shards: {min: 2, max: 8}");

/// An application whose second service may have two to eight shards, and nothing else.
fn scaled_by(bounds: &str) -> Cluster {
    let mut c = cluster();
    let app = c.script.control.apps[&AppId(1)].plan.app.name.clone();
    c.script.ok(Command::Delete { app });
    c.script.deploy_manifest(&manifest(bounds)).unwrap();
    c.script.fill_all();
    c.script.ok(Command::Started {
        app: APP,
        code_version: 1,
    });
    c
}

fn manifest(bounds: &str) -> String {
    let manifest = script::APP.replace("name: two-services", "name: scaled");
    manifest
        .replace(MANIFEST.0, bounds)
        .replace("cpu: 0.5", "cpu: 0.1")
}

pub fn scaled() -> Cluster {
    scaled_by(MANIFEST.1)
}

pub fn shards(c: &Cluster) -> Vec<ShardPlan> {
    let all = c.script.control.apps[&APP].plan.shards.iter();
    all.filter(|s| s.service == BACK).cloned().collect()
}

/// All shards of the service together use so many thousandths of a core from now on.
fn load(c: &mut Cluster, permille: u64) {
    c.work.clear();
    let all = shards(c);
    let plan = &c.script.control.apps[&APP].plan;
    for shard in &all {
        let work = Work {
            requests: 100,
            execution_us: permille * 10 / all.len() as u64,
        };
        c.work.insert(plan.key(shard), work);
    }
}

/// Primaries that are to stop confirm it.
pub fn stop_all(c: &mut Cluster) {
    for shard in shards(c).iter().filter(|s| s.frozen && s.quiet) {
        let key = c.script.control.apps[&APP].plan.key(shard);
        let view = shard.view;
        c.script.ok(Command::Event(NodeEvent::Frozen { key, view }));
    }
}

/// Time passes with this load; what is to stop stops.
pub fn run(c: &mut Cluster, permille: u64, seconds: u64) {
    for _ in 0..seconds {
        load(c, permille);
        c.run(1);
        stop_all(c);
        let numbers = shards(c).len();
        assert!((2..=8).contains(&numbers), "{numbers} are out of bounds");
    }
}

pub fn events(c: &Cluster, kind: K) -> Vec<Event> {
    let all = c.decisions().into_iter();
    all.filter(|e| e.kind == kind).collect()
}

#[test]
fn shards_are_split_when_the_load_rises_and_merged_when_it_falls() {
    let mut c = scaled();
    run(&mut c, 600, 60);
    assert_eq!(shards(&c).len(), 2, "30 % of a core each");
    run(&mut c, 1_600, 30);
    assert_eq!(shards(&c).len(), 4);
    let split = events(&c, K::OrchestratorSplit).pop().unwrap();
    assert!(
        split.why.starts_with(
            "load: the busiest of 2 shards uses 80.0 % of a core, 80.0 % on average; at least 60 %, for 3 checks; 4 shards"
        ),
        "{split:?}"
    );
    assert_eq!(split.app.as_deref(), Some("scaled"));
    for (name, value) in [
        ("shardsBefore", 2),
        ("shardsAfter", 4),
        ("busiestPermille", 800),
        ("rounds", 3),
        ("thresholdPercent", 60),
    ] {
        assert_eq!(split.figures[name], value, "{name}");
    }
    // 40 % each: neither is due.
    run(&mut c, 1_600, 300);
    assert_eq!(shards(&c).len(), 4);
    // As many as may be.
    run(&mut c, 7_600, 300);
    assert_eq!(shards(&c).len(), 8);
    run(&mut c, 100, 600);
    assert_eq!(shards(&c).len(), 2);
    assert_eq!(events(&c, K::OrchestratorMerge).len(), 2);
    assert_eq!(c.script.control.apps[&APP].state_lost, 0);
    c.script.check();
}

#[test]
fn a_replay_of_the_log_gives_the_same_decisions_and_cooldowns() {
    let mut c = scaled();
    run(&mut c, 1_600, 30);
    run(&mut c, 100, 300);
    assert_eq!(events(&c, K::OrchestratorMerge).len(), 1);
    // Replays all commands, and compares the state.
    c.script.check();
    let snapshot = serde_json::to_string(&c.script.control).unwrap();
    let restored: Control = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(restored, c.script.control);
}

#[test]
fn a_short_peak_and_a_short_lull_change_nothing() {
    let mut c = scaled();
    for _ in 0..20 {
        run(&mut c, 1_600, 8);
        run(&mut c, 600, 8);
    }
    assert_eq!(shards(&c).len(), 2);
    run(&mut c, 1_600, 30);
    for _ in 0..20 {
        run(&mut c, 100, 30);
        run(&mut c, 1_600, 10);
    }
    assert_eq!(shards(&c).len(), 4);
}

#[test]
fn oscillating_load_merges_ever_less_often() {
    let mut c = scaled();
    for _ in 0..40 {
        run(&mut c, 1_600, 100);
        run(&mut c, 100, 100);
    }
    let merges = events(&c, K::OrchestratorMerge);
    assert!((3..=10).contains(&merges.len()), "{}", merges.len());
    let gap = |pair: &[Event]| pair[1].at_unix_ms - pair[0].at_unix_ms;
    let gaps: Vec<u64> = merges.windows(2).map(gap).collect();
    assert!(gaps.last().unwrap() > &(3 * gaps[0]), "{gaps:?}");
}

#[test]
fn a_dry_run_records_it_and_changes_nothing() {
    let mut c = scaled();
    c.mode(OrchestratorMode::DryRun);
    run(&mut c, 1_600, 400);
    assert_eq!(shards(&c).len(), 2);
    // At once, after 60 s, 120 s more and 240 s more.
    let recorded = events(&c, K::OrchestratorDryRun);
    assert!((2..=3).contains(&recorded.len()), "{recorded:?}");
    assert_eq!(recorded[0].figures["shardsAfter"], 4);
    assert_eq!(c.decisions().len(), recorded.len());
}

#[test]
fn nothing_scales_without_bounds_or_when_it_is_turned_off() {
    let mut c = scaled_by("shards: 2");
    run(&mut c, 1_600, 60);
    let mut off = scaled();
    off.set(|s| s.scale_interval_s = 0);
    run(&mut off, 1_600, 60);
    for c in [c, off] {
        assert_eq!((shards(&c).len(), c.decisions()), (2, Vec::new()));
    }
}

#[test]
fn a_split_on_a_node_without_free_cores_is_an_event_that_says_so() {
    let mut c = scaled();
    let node = shards(&c)[0].primary;
    // All cores of the node are busy.
    let busy = e3_control::NodeLoad {
        busy_permille: 65_000,
        ..Default::default()
    };
    c.nodes.insert(node, busy);
    // Those of all others as well.
    c.nodes.extend((0..6).map(|n| (NodeId(n), busy)));
    run(&mut c, 1_600, 40);
    assert_eq!(shards(&c).len(), 2);
    let stuck = events(&c, K::OrchestratorStuck);
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    let why = &stuck[0].why;
    assert!(
        why.contains("no other can take one of those that it becomes (")
            && why.contains("65.00 of"),
        "{why}"
    );
    // One has free cores: there a part of the load can go.
    let free = (0..6).map(NodeId).find(|n| !copies(&c).contains(n));
    c.nodes.remove(&free.expect("four copies on six nodes"));
    run(&mut c, 1_600, 90);
    assert_eq!(shards(&c).len(), 4);
}

/// The nodes that have copies of the service's shards.
fn copies(c: &Cluster) -> Vec<NodeId> {
    let nodes = |s: &ShardPlan| [vec![s.primary], s.backups.clone()].concat();
    shards(c).iter().flat_map(nodes).collect()
}

#[test]
fn a_split_that_no_node_has_memory_for_is_not_begun() {
    let mut c = scaled_by("shards: {min: 2, max: 4096}");
    let spec = &c.script.control.apps[&APP].plan.app.spec.services[1];
    assert!(spec.is_scaled());
    // Doubled until the reservations do not fit any more.
    for _ in 0..12 {
        let next = Command::Reshard {
            app: APP,
            service: BACK,
            shards: 2 * shards(&c).len() as u16,
        };
        if c.script.apply(next).is_err() {
            break;
        }
        stop_all(&mut c);
    }
    let before = shards(&c).len();
    assert!((4..4096).contains(&before), "{before}");
    // Those that are on one node go apart first, and make room.
    let mut seconds = 0;
    let stuck = loop {
        let now = shards(&c).len();
        load(&mut c, 800 * now as u64);
        c.run(1);
        stop_all(&mut c);
        seconds += 1;
        let mut stuck = events(&c, K::OrchestratorStuck).into_iter();
        if let Some(stuck) = stuck.find(|e| e.why.contains("cannot go to node")) {
            break stuck;
        }
        assert!(seconds < 2_000, "it always fits");
    };
    let after = shards(&c).len();
    assert_eq!(stuck.figures["shardsBefore"], after as u64);
    assert!((before..4096).contains(&after), "{after}");
}

#[test]
fn load_on_one_key_is_not_split() {
    let mut c = scaled_by("shards: {min: 2, max: 32}");
    for _ in 0..2 {
        let shards = 2 * shards(&c).len() as u16;
        let (app, service) = (APP, BACK);
        c.script.ok(Command::Reshard {
            app,
            service,
            shards,
        });
        stop_all(&mut c);
    }
    for _ in 0..40 {
        c.work.clear();
        let all = shards(&c);
        for (n, shard) in all.iter().enumerate() {
            let execution_us = if n == 3 { 9_000 } else { 10 };
            let key = c.script.control.apps[&APP].plan.key(shard);
            let requests = 100;
            c.work.insert(
                key,
                Work {
                    requests,
                    execution_us,
                },
            );
        }
        c.run(1);
    }
    assert_eq!(shards(&c).len(), 8);
    let stuck = events(&c, K::OrchestratorStuck).pop().unwrap();
    assert!(stuck.why.contains("its load is in few shards"), "{stuck:?}");
}

#[test]
fn nothing_is_changed_while_a_node_is_drained_or_silent() {
    let mut c = scaled();
    let node = shards(&c)[0].primary;
    c.silent.push(node);
    run(&mut c, 1_600, 60);
    assert_eq!(shards(&c).len(), 2, "nothing is known of the shard there");
    c.silent.clear();
    c.stuck = true;
    c.script.ok(Command::Drain { node });
    for _ in 0..60 {
        load(&mut c, 1_600);
        c.run(1);
    }
    assert_eq!(shards(&c).len(), 2, "its copies are to move");
}

#[test]
fn a_node_that_is_lost_in_the_middle_delays_the_split() {
    let mut c = scaled();
    c.stuck = true;
    for _ in 0..20 {
        load(&mut c, 1_600);
        c.run(1);
    }
    let frozen = shards(&c);
    assert!(frozen.iter().all(|s| s.frozen), "they are to stop");
    c.script.lose(frozen[0].primary);
    assert!(shards(&c).iter().all(|s| !s.frozen), "they serve on");
    c.script.hear(frozen[0].primary);
    c.stuck = false;
    for _ in 0..8 {
        c.script.settle_reachable();
        stop_all(&mut c);
    }
    assert_eq!(shards(&c).len(), 4);
    assert_eq!(events(&c, K::OrchestratorSplit).len(), 1);
    assert_eq!(c.script.control.apps[&APP].state_lost, 0);
    c.script.check();
}

#[test]
fn an_operator_scales_within_the_bounds() {
    let mut c = scaled();
    let reshard = |c: &mut Cluster, shards| {
        c.script.apply(Command::Reshard {
            app: APP,
            service: BACK,
            shards,
        })
    };
    for wanted in [1, 6, 16] {
        let error = reshard(&mut c, wanted).unwrap_err();
        assert!(matches!(error, CommandError::ShardBounds { .. }));
        assert!(
            error.to_string().starts_with(&format!(
                "scaled/back cannot have {wanted} shards: its manifest allows 2 to 8"
            )),
            "{error}"
        );
    }
    reshard(&mut c, 8).unwrap();
    stop_all(&mut c);
    assert_eq!(shards(&c).len(), 8);
}

#[test]
fn an_update_keeps_the_number_and_may_change_the_bounds() {
    let mut c = scaled();
    run(&mut c, 1_600, 30);
    assert_eq!(shards(&c).len(), 4);
    let before = c.script.control.version;
    // The same manifest says two, and four are there: nothing changes.
    c.script.deploy_manifest(&manifest(MANIFEST.1)).unwrap();
    assert_eq!(c.script.control.version, before);
    c.script
        .deploy_manifest(&manifest("shards: {min: 4, max: 16}"))
        .unwrap();
    assert_eq!(shards(&c).len(), 4);
    let error = c
        .script
        .deploy_manifest(&manifest("shards: {min: 8, max: 16}"))
        .unwrap_err();
    assert!(matches!(error, CommandError::BoundsMiss { now: 4, .. }));
    // A fixed number must be the present one.
    let error = c.script.deploy_manifest(&manifest("shards: 2"));
    assert!(matches!(error, Err(CommandError::Fixed { .. })));
    c.script.deploy_manifest(&manifest("shards: 4")).unwrap();
}

#[test]
fn an_older_format_has_no_bounds() {
    let mut s = script::Script::founded(Format::OLDEST);
    for node in script::NODES {
        s.join(node, 100);
    }
    let error = s.deploy_manifest(&manifest(MANIFEST.1)).unwrap_err();
    assert!(matches!(error, CommandError::OlderFormat { .. }), "{error}");
}

/// Script checks after each command that the state is valid, and that a replay gives the same.
#[test]
fn random_loads_stay_within_the_bounds_and_lose_nothing() {
    let mut changes = 0;
    for seed in seeds(4) {
        let mut random = Random::new(seed);
        let mut c = scaled();
        c.set(|s| {
            s.scale_cooldown_s = 10;
            s.merge_rounds = 3;
            s.moves_per_server_max = 8;
        });
        for _ in 0..20 {
            let permille = random.below(6_000);
            run(&mut c, permille, 1 + random.below(40));
            let node = NodeId(random.below(6) as u32);
            if random.one_in(5) {
                if c.script.control.drained.contains(&node) {
                    drop(c.script.ok(Command::Resume { node }));
                } else {
                    drop(c.script.apply(Command::Drain { node }));
                }
                c.script.settle_within(2_000);
            }
        }
        changes += events(&c, K::OrchestratorSplit).len();
        c.script.check();
        assert_eq!(c.script.control.apps[&APP].state_lost, 0);
    }
    assert!(changes > 0, "no load led to a change");
}
