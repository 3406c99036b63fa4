//! Shards that have lost their last copy, or have none to lose: where they begin again.

use crate::script::{AT, KEY, NODES, Script, all_nodes};
use e3_control::limits::LOSSES_MAX;
use e3_control::{Command, CommandError, Loss, Probation, Seen};
use e3_model::document::parse_application;
use e3_model::plan::{NodeEvent, NodeHello, Role};
use e3_model::{Address, AppId, Nanos, NodeId, ServiceId, ShardId, ShardKey};
use std::collections::BTreeMap;

/// Two services without state.
const STATELESS: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: stateless}
spec:
  objective: {latency: 5ms}
  ingress: front
  services:
    - name: front
      module: front.wasm
      resources: {cpu: 0.5, memory: 64Mi}
    - name: back
      module: back.wasm
      resources: {cpu: 0.5, memory: 64Mi}
  channels:
    - {from: front, to: back}
";

const FRONT: ShardKey = ShardKey {
    app: AppId(1),
    service: ServiceId(0),
    shard: ShardId(0),
};

fn stateless(text: &str) -> Script {
    let mut s = Script::all();
    s.deploy_manifest(text).unwrap();
    s
}

impl Script {
    /// Has the primary of a shard without state on this node.
    fn bring(&mut self, key: ShardKey, to: NodeId) {
        let from = self.shard(key).primary;
        if from != to {
            self.ok(Command::Migrate {
                key,
                from,
                to,
                cold: false,
            });
        }
    }

    /// A node reaches nobody.
    fn isolate(&mut self, node: NodeId) {
        let others = all_nodes().into_iter().filter(|n| *n != node);
        let ways: Vec<_> = others.map(|n| (node, n)).collect();
        self.cut_ways(&ways);
    }
}

#[test]
fn a_shard_without_state_goes_to_its_parent() {
    for (front, back) in [(3, 5), (2, 0), (0, 4)] {
        let (front, back) = (NodeId(front), NodeId(back));
        let mut s = stateless(STATELESS);
        s.bring(FRONT, front);
        s.bring(KEY, back);
        s.lose(back);
        assert_eq!(s.shard(KEY).primary, front);
        assert_eq!(s.shard(FRONT).primary, front);
        s.check();
    }
}

#[test]
fn a_shard_without_state_leaves_a_node_that_reaches_nobody() {
    for node in all_nodes() {
        let mut s = stateless(STATELESS);
        s.bring(FRONT, node);
        s.bring(KEY, node);
        s.isolate(node);
        for key in [FRONT, KEY] {
            assert_ne!(s.shard(key).primary, node);
            assert!(s.control.is_up(s.shard(key).primary));
        }
        s.check();
    }
}

#[test]
fn a_shard_that_may_go_nowhere_waits_in_one_view() {
    let pinned = STATELESS.replacen(
        "module: front.wasm",
        "module: front.wasm\n      pin: {node: s2-host}",
        1,
    );
    let mut s = stateless(&pinned);
    let node = s.shard(FRONT).primary;
    s.isolate(node);
    let orphan = s.shard(FRONT);
    assert_eq!(orphan.role(node), None);
    // Whatever happens elsewhere.
    let elsewhere = NodeId(node.0 ^ 1);
    s.lose(elsewhere);
    s.hear(elsewhere);
    assert_eq!(s.shard(FRONT), orphan);
    s.cut_ways(&[]);
    let after = s.shard(FRONT);
    assert_eq!((after.primary, after.view), (node, orphan.view + 1));
    s.check();
}

#[test]
fn a_version_is_not_left_because_a_shard_waits_for_a_place() {
    let pinned = STATELESS.replacen(
        "module: front.wasm",
        "module: front.wasm\n      pin: {node: s2-host}",
        1,
    );
    let mut s = stateless(&pinned);
    s.ok(Command::Started {
        app: AppId(1),
        code_version: 1,
    });
    let node = s.shard(FRONT).primary;
    s.isolate(node);
    s.ok(Command::Deploy {
        app: Box::new(parse_application("a.yaml", &pinned).unwrap()),
        modules: vec!["next".into(), "m".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: false,
        restored: None,
        placed: Vec::new(),
    });
    let orphan = s.shard(FRONT);
    let app = &s.control.apps[&AppId(1)];
    assert!(app.is_orphan(&orphan) && s.control.is_up(orphan.primary));
    let mut probation = Probation::default();
    let mut look = |s: &mut Script| {
        let now = s.next_second();
        !(probation.look(now, &s.control, |_| Seen::default())).is_empty()
    };
    assert!(!(0..400).any(|_| look(&mut s)), "nothing can start");
    // Once it has its place, the time counts.
    s.cut_ways(&[]);
    assert!(!(0..180).any(|_| look(&mut s)));
    assert!((0..5).any(|_| look(&mut s)));
    s.check();
}

#[test]
fn a_shard_that_waits_for_a_place_is_split_and_merged_without_one() {
    let pinned = STATELESS.replacen(
        "module: front.wasm",
        "module: front.wasm\n      pin: {node: s2-host}",
        1,
    );
    let mut s = stateless(&pinned);
    let node = s.shard(FRONT).primary;
    s.lose(node);
    s.ok(Command::Drain { node });
    s.hear(node);
    let fronts = |s: &Script| {
        let all = s.shards().into_iter();
        let fronts = all.filter(|shard| shard.service == FRONT.service);
        fronts.map(|f| f.role(node)).collect::<Vec<_>>()
    };
    for shards in [2, 4, 1, 2] {
        s.ok(Command::Reshard {
            app: FRONT.app,
            service: FRONT.service,
            shards,
        });
        assert_eq!(fronts(&s), vec![None; usize::from(shards)]);
        s.check();
    }
    s.ok(Command::Resume { node });
    assert_eq!(fronts(&s), vec![Some(Role::Primary); 2]);
    s.check();
}

/// Nothing would be gained: wherever it went, it would reach nobody.
#[test]
fn a_shard_without_state_stays_when_two_nodes_are_left_that_do_not_reach_each_other() {
    let mut s = Script::up(&["s1-host", "s2-host"]);
    s.deploy_manifest(STATELESS).unwrap();
    let before = s.shards();
    let (a, b) = (NodeId(0), NodeId(2));
    s.cut(a, &[b].into());
    s.cut(b, &[a].into());
    assert_eq!(s.shards(), before);
    s.check();
}

#[test]
fn a_shard_that_was_given_up_waits_for_nobody() {
    let mut s = Script::filled();
    s.lose_all(&all_nodes());
    assert_eq!(s.waits_for(KEY).len(), 2);
    let forget = Command::Forget { key: KEY, at: AT };
    s.ok(forget.clone());
    assert_eq!(s.waits_for(KEY), []);
    let again = s.apply(forget);
    assert!(matches!(again, Err(CommandError::NotWaiting(_))));
    assert_eq!(s.state_lost(), 1);
    s.check();
}

#[test]
fn a_shard_that_is_given_up_does_not_wait_for_a_copy_that_has_left() {
    let mut s = Script::filled();
    let before = s.shard(KEY);
    let backup = before.backups[0];
    s.lose(backup);
    let view = s.shard(KEY).view;
    s.ok(Command::Event(NodeEvent::Installed { key: KEY, view }));
    assert_eq!(s.shard(KEY).leaving, [backup]);
    s.lose(before.primary);
    s.ok(Command::Forget { key: KEY, at: AT });
    let after = s.shard(KEY);
    assert!(s.control.is_up(after.primary));
    assert_eq!((s.state_lost(), after.filled), (1, false));
    assert_eq!(s.waits_for(KEY), []);
    s.settle();
    s.check();
}

#[test]
fn the_latest_losses_are_remembered() {
    let mut s = Script::filled();
    let mut losses: Vec<Loss> = Vec::new();
    // All three shards lose their state each time.
    for round in 0..LOSSES_MAX as u64 / 3 + 2 {
        s.lose_all(&all_nodes());
        let at = AT + Nanos::from_secs(round);
        for (name, process) in NODES.iter().zip(round * 10 + 5_000..) {
            let hello = NodeHello {
                name: (*name).into(),
                address: Address::default(),
                process,
                on_disk: None,
                ..NodeHello::default()
            };
            s.ok(Command::Join { hello, at });
        }
        s.settle();
        s.fill();
        let app = &s.control.apps[&AppId(1)];
        let new = usize::try_from(app.state_lost).unwrap() - losses.len();
        losses.extend(app.losses.range(app.losses.len() - new..));
        assert_eq!(new, 3);
        assert!(losses[losses.len() - new..].iter().all(|l| l.at == at));
        let latest = losses.len().saturating_sub(LOSSES_MAX);
        assert_eq!(app.losses, losses[latest..].to_vec());
    }
    s.check();
}
