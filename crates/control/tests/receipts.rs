//! Nodes whose heartbeats arrive, but which do not receive plans.

use crate::script::{APP, KEY, Script, all_nodes};
use e3_control::limits::RECEIPT_TIMEOUT;
use e3_control::{Membership, Receipts};
use e3_model::timing::{HEARTBEAT_TIMEOUT, TURN_GAP_MAX};
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Between two turns.
const TURN: Nanos = Nanos::from_millis(50);

/// A controller, and what its nodes say of the plans that they have.
struct Watch {
    script: Script,
    membership: Membership,
    receipts: Receipts,
    now: Timestamp,
    /// By node and shard: the view that its last report says.
    taken: BTreeMap<(NodeId, ShardKey), u32>,
}

impl Watch {
    /// Every shard has this many copies, and all nodes have the plan.
    fn new(replicas: u16) -> Watch {
        let mut script = Script::all();
        let manifest = APP.replace("replicas: 2", &format!("replicas: {replicas}"));
        script.deploy_manifest(&manifest).unwrap();
        script.fill();
        script.settle();
        let now = Timestamp::ZERO + Nanos::from_secs(100);
        let mut watch = Watch {
            script,
            membership: Membership::new(now, HEARTBEAT_TIMEOUT),
            receipts: Receipts::default(),
            now,
            taken: BTreeMap::new(),
        };
        watch.take_but(&[]);
        watch.turns(RECEIPT_TIMEOUT + RECEIPT_TIMEOUT);
        watch
    }

    /// All nodes but these apply the plan, and report it.
    fn take_but(&mut self, others: &[NodeId]) {
        let control = &self.script.control;
        for node in all_nodes().into_iter().filter(|n| !others.contains(n)) {
            self.membership.on_applied(node, control.version as u32);
            for key in control.shards_on(node) {
                let shard = control.apps[&key.app].shard(key).unwrap();
                self.taken.insert((node, key), shard.view);
            }
        }
    }

    /// A node without the plan reports the views of all its shards but this one.
    fn take_all_but(&mut self, node: NodeId, other: ShardKey) {
        for key in self.script.control.shards_on(node) {
            if key != other {
                self.taken.insert((node, key), self.script.shard(key).view);
            }
        }
    }

    /// Who is overdue in this turn.
    fn turn(&mut self, after: Nanos) -> Vec<NodeId> {
        self.now += after;
        self.receipts.on_turn(self.now);
        let taken = |node, key| self.taken.get(&(node, key)).copied().unwrap_or(0);
        let (control, membership) = (&self.script.control, &self.membership);
        let overdue = self.receipts.overdue(self.now, control, membership, taken);
        assert!(overdue.values().all(|incarnation| *incarnation == 1));
        overdue.into_keys().collect()
    }

    /// Who is overdue at the end of a time in which nobody was before.
    fn turns(&mut self, span: Nanos) -> Vec<NodeId> {
        let end = self.now + span;
        loop {
            let overdue = self.turn(TURN);
            if self.now >= end || !overdue.is_empty() {
                return overdue;
            }
        }
    }

    /// The shard fails over; its new primary, and a backup that stays.
    fn fail_over(&mut self) -> (NodeId, NodeId) {
        let old = self.script.shard(KEY).primary;
        self.script.lose(old);
        let new = self.script.shard(KEY);
        let backup = new.staying().find(|n| *n != old).unwrap_or(new.primary);
        (new.primary, backup)
    }
}

#[test]
fn a_new_primary_without_its_plan_is_overdue_after_the_time_and_not_before() {
    let mut w = Watch::new(3);
    let (primary, _) = w.fail_over();
    w.take_but(&[primary]);
    assert_eq!(
        w.turns(RECEIPT_TIMEOUT + TURN),
        [],
        "the time begins with the first turn"
    );
    assert_eq!(w.turn(TURN), [primary]);
    // As soon as its heartbeats say that it has the plan, it is not.
    w.take_but(&[]);
    assert_eq!(w.turn(TURN), []);
}

#[test]
fn a_backup_that_commits_wait_for_is_overdue_too() {
    let mut w = Watch::new(3);
    let (_, backup) = w.fail_over();
    w.take_but(&[backup]);
    assert_eq!(w.turns(RECEIPT_TIMEOUT + TURN * 2), [backup]);
}

#[test]
fn a_node_for_which_no_shard_waits_is_not_overdue() {
    let mut w = Watch::new(2);
    w.fail_over();
    let control = &w.script.control;
    let is_idle = |node: &NodeId| {
        let view = |key: &ShardKey| control.apps[&key.app].shard(*key).unwrap().view;
        let mut shards = control.shards_on(*node).into_iter();
        control.is_up(*node)
            && shards.all(|key| view(&key) == w.taken.get(&(*node, key)).copied().unwrap_or(0))
    };
    let idle: Vec<NodeId> = all_nodes().into_iter().filter(is_idle).collect();
    assert!(!idle.is_empty());
    w.take_but(&idle);
    assert_eq!(w.turns(RECEIPT_TIMEOUT * 3), []);
}

#[test]
fn nobody_waits_for_a_copy_that_still_joins() {
    let mut w = Watch::new(3);
    let staying: Vec<NodeId> = w.script.shard(KEY).staying().collect();
    w.script.lose(staying[0]);
    w.script.leave();
    w.take_but(&[]);
    assert_eq!(w.turns(RECEIPT_TIMEOUT * 2), []);
    let shard = w.script.shard(KEY);
    let joining = shard.joining.first().copied().expect("a copy is replaced");
    // The next view of the shard never reaches it.
    w.script.lose(shard.primary);
    assert!(w.script.shard(KEY).joining.contains(&joining));
    w.take_but(&[joining]);
    w.take_all_but(joining, KEY);
    assert_eq!(w.turns(RECEIPT_TIMEOUT * 3), []);
}

#[test]
fn a_node_that_lacks_only_what_does_not_concern_its_shards_is_not_overdue() {
    let mut w = Watch::new(3);
    let primary = w.script.shard(KEY).primary;
    let mut idle = all_nodes().into_iter();
    let idle = idle.find(|node| w.script.control.shards_on(*node).is_empty());
    w.script.lose(idle.expect("a node without shards"));
    w.take_but(&[primary]);
    assert_eq!(w.turns(RECEIPT_TIMEOUT * 3), []);
}

#[test]
fn the_last_complete_copy_is_waited_for() {
    let mut w = Watch::new(2);
    let (primary, _) = w.fail_over();
    w.take_but(&[primary]);
    let only_here = |w: &Watch| {
        let shard = w.script.shard(KEY);
        shard.staying().all(|n| !w.script.control.is_up(n))
    };
    assert!(only_here(&w), "{:?}", w.script.shard(KEY));
    let overdue = w.turns(RECEIPT_TIMEOUT * 3);
    assert!(!overdue.contains(&primary), "{overdue:?}");
}

#[test]
fn nobody_is_overdue_where_no_node_receives_the_plan() {
    let mut w = Watch::new(3);
    w.fail_over();
    assert_eq!(w.turns(RECEIPT_TIMEOUT * 3), []);
}

#[test]
fn the_time_in_which_the_controller_was_paused_does_not_count() {
    let mut w = Watch::new(3);
    let (primary, _) = w.fail_over();
    w.take_but(&[primary]);
    assert_eq!(w.turn(TURN), []);
    assert_eq!(w.turn(RECEIPT_TIMEOUT * 2), []);
    // A turn that is late, but not too late, counts.
    let most = TURN_GAP_MAX;
    let mut spent = Nanos::ZERO;
    let overdue = loop {
        spent += most;
        let overdue = w.turn(most);
        if !overdue.is_empty() {
            break overdue;
        }
        assert!(spent <= RECEIPT_TIMEOUT + most, "it is never overdue");
    };
    assert_eq!(overdue, [primary]);
    assert!(spent > RECEIPT_TIMEOUT - most, "overdue after {spent:?}");
}

#[test]
fn a_process_that_is_withheld_returns_with_the_version_that_it_lacked() {
    let mut receipts = Receipts::default();
    let (node, other) = (NodeId(1), NodeId(2));
    receipts.withhold(node, 3, 70);
    assert!(receipts.is_withheld(node, 3));
    assert!(!receipts.is_withheld(node, 4) && !receipts.is_withheld(other, 3));
    assert!(receipts.withholds(node, 3, 69));
    for applied in [70, 71] {
        assert!(!receipts.withholds(node, 3, applied));
    }
    assert!(!receipts.withholds(node, 4, 69), "another process");
    assert!(!receipts.withholds(other, 3, 69));
}
