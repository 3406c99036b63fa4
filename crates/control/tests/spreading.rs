//! Shards of a scaled service that keep one node busy go apart. Nothing flaps, and what cannot be done is an event.

use crate::load::{Cluster, HOST};
use crate::scaling::{APP, BACK, events, run, scaled, shards, stop_all};
use e3_control::{Command, NodeLoad};
use e3_model::NodeId;
use e3_model::event::EventKind as K;
use e3_model::orchestrator::OrchestratorMode;

/// How many of the service's shards each host serves, which has one core for handlers.
fn on_hosts(c: &Cluster) -> [usize; 3] {
    let all = shards(c);
    [0, 2, 4].map(|host| all.iter().filter(|s| s.primary == NodeId(host)).count())
}

/// Eight shards of the service on a host, which runs handlers on one core.
fn crowded() -> Cluster {
    let mut c = scaled();
    for key in shards(&c)
        .iter()
        .map(|s| c.script.control.apps[&APP].plan.key(s))
        .collect::<Vec<_>>()
    {
        c.bring(key, HOST);
    }
    for shards in [4, 8] {
        let (app, service) = (APP, BACK);
        c.script.ok(Command::Reshard {
            app,
            service,
            shards,
        });
        stop_all(&mut c);
    }
    c
}

#[test]
fn shards_that_are_busy_together_go_to_other_nodes() {
    let mut c = crowded();
    assert_eq!(on_hosts(&c), [8, 0, 0]);
    // 20 % of a core each is too little for a split, but three of them are much of a core.
    run(&mut c, 1_600, 300);
    assert_eq!(shards(&c).len(), 8);
    assert!(on_hosts(&c).iter().all(|n| *n <= 2), "{:?}", on_hosts(&c));
    let spreads = events(&c, K::OrchestratorSpread);
    assert!(
        spreads[0]
            .why
            .starts_with("load: 8 shards of the service there use 1.60 cores of 1"),
        "{:?}",
        spreads[0]
    );
    assert_eq!(spreads[0].figures["togetherPermille"], 1_600);
    assert_eq!(spreads[0].figures["cpuPermille"], 200);
    let count = spreads.len();
    // That is even: nothing moves any more.
    run(&mut c, 1_600, 1_000);
    assert_eq!(events(&c, K::OrchestratorSpread).len(), count);
    assert_eq!(c.script.control.apps[&APP].state_lost, 0);
    c.script.check();
}

#[test]
fn shards_stay_together_while_they_leave_a_core_free_or_the_load_is_followed() {
    let mut c = crowded();
    run(&mut c, 560, 120);
    let mut followed = crowded();
    followed.set(|s| s.follow_interval_s = 3_600);
    run(&mut followed, 1_600, 120);
    for c in [c, followed] {
        assert_eq!(events(&c, K::OrchestratorSpread), Vec::new());
    }
}

#[test]
fn a_dry_run_records_where_a_shard_would_go() {
    let mut c = crowded();
    c.mode(OrchestratorMode::DryRun);
    let before = on_hosts(&c);
    run(&mut c, 1_600, 40);
    let recorded = events(&c, K::OrchestratorDryRun);
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert!(recorded[0].to.is_some(), "{recorded:?}");
    assert_eq!(on_hosts(&c), before);
}

#[test]
fn shards_that_no_other_node_can_take_stay_and_an_event_says_why() {
    let mut c = crowded();
    let busy = NodeLoad {
        busy_permille: 65_000,
        ..Default::default()
    };
    c.nodes.extend((0..6).map(|n| (NodeId(n), busy)));
    let before = on_hosts(&c);
    run(&mut c, 1_600, 40);
    let stuck = events(&c, K::OrchestratorStuck);
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    assert!(
        stuck[0].why.contains("; no node can take it ("),
        "{stuck:?}"
    );
    assert_eq!(on_hosts(&c), before);
}
