//! Heartbeats, to the nanosecond and the turn: who counts as heard, as silent, and as lost.

use crate::script::Script;
use e3_control::limits::{START_GRACE, START_SILENCE};
use e3_control::{Control, Membership};
use e3_model::plan::NodeHello;
use e3_model::timing::{SILENT_TURNS_MIN, TOGETHER, TURN_GAP_MAX};
use e3_model::{Nanos, NodeId, Timestamp};

const TIMEOUT: Nanos = Nanos::from_secs(2);
/// Between two turns.
const TURN: Nanos = Nanos::from_millis(50);
const TICK: Nanos = Nanos(1);
const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);

/// A controller of two nodes, and its clock.
struct Listener {
    script: Script,
    membership: Membership,
    now: Timestamp,
}

impl Listener {
    fn new() -> Listener {
        let now = Timestamp::ZERO + Nanos::from_secs(100);
        Listener {
            script: Script::up(&["s1-host", "s1-nic0"]),
            membership: Membership::new(now, TIMEOUT),
            now,
        }
    }

    /// The same, when it has listened for as long as a silence takes.
    fn listening() -> Listener {
        let mut listener = Listener::new();
        listener.turns(listener.now + TIMEOUT + TICK, &[]);
        listener
    }

    /// A node is heard, and asks for its plan.
    fn beat(&mut self, node: NodeId) {
        self.membership.on_heartbeat(self.now, node, 1);
        self.ask(node, 1);
    }

    fn ask(&mut self, node: NodeId, incarnation: u32) {
        let control = &self.script.control;
        self.membership.on_plan_request(node, incarnation, control);
    }

    fn hello(&mut self, name: &str, process: u64) {
        let hello = NodeHello {
            name: name.into(),
            process,
            ..NodeHello::default()
        };
        self.membership.on_hello(&hello, &self.script.control);
    }

    fn turn(&mut self) -> Vec<NodeId> {
        let lost = self.membership.lost(self.now, &self.script.control);
        lost.into_keys().collect()
    }

    /// Turns up to a time, at which there is one too; `beats` is heard before each.
    fn turns(&mut self, until: Timestamp, beats: &[NodeId]) -> Vec<NodeId> {
        let mut lost = Vec::new();
        while self.now < until {
            self.now = (self.now + TURN).min(until);
            for node in beats {
                self.beat(*node);
            }
            lost = self.turn();
        }
        lost
    }

    fn is_settled(&self, at: Timestamp) -> bool {
        self.membership.is_settled(at, &self.script.control)
    }
}

#[test]
fn a_start_is_settled_when_all_are_heard_or_had_the_time() {
    let mut l = Listener::new();
    let begin = l.now;
    assert!(!l.is_settled(begin));
    l.turns(begin + START_GRACE, &[A]);
    assert!(!l.is_settled(begin + START_GRACE));
    assert!(l.is_settled(begin + START_GRACE + TICK));

    // Who hears none does not know whether its log is the newest.
    let mut l = Listener::new();
    l.turns(begin + START_SILENCE, &[]);
    assert!(!l.is_settled(begin + START_SILENCE));
    assert!(l.is_settled(begin + START_SILENCE + TICK));

    // A process cannot say what it has seen if it asks whether it has joined, or has ended since another process of its node asks.
    let own = |l: &Listener, node: NodeId| l.script.control.members[&node].process;
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut l = Listener::listening();
        let (a, b) = (own(&l, A) + a, own(&l, B) + b);
        for (name, process, settles) in [
            ("s9-host", 300, false),
            ("s1-host", a, false),
            ("s1-nic0", b, true),
        ] {
            l.hello(name, process);
            assert_eq!(l.is_settled(l.now), settles, "process {process} of {name}");
        }
    }

    // So has a later process ended it, which joined by a decision that is lost. An earlier one says nothing.
    for (incarnation, settles) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut l = Listener::listening();
        l.beat(A);
        let control = &l.script.control;
        l.membership.on_stranger(NodeId(9), 2, control);
        l.membership.on_stranger(B, incarnation, control);
        assert_eq!(l.is_settled(l.now), settles, "incarnation {incarnation}");
        // It has no plan yet, so that it sends no heartbeats.
        let mut l = Listener::listening();
        l.beat(A);
        l.ask(B, incarnation);
        assert_eq!(l.is_settled(l.now), settles, "incarnation {incarnation}");
    }

    // Until it asks for a plan, one may be on its way to it.
    let mut l = Listener::listening();
    l.beat(A);
    l.membership.on_heartbeat(l.now, B, 1);
    assert!(!l.is_settled(l.now));
    l.ask(B, 1);
    assert!(l.is_settled(l.now));

    // The other one may have seen more.
    let mut l = Listener::new();
    l.hello("s1-host", own(&l, A));
    l.turns(begin + START_SILENCE, &[]);
    assert!(!l.is_settled(begin + START_SILENCE));
    assert!(l.is_settled(begin + START_SILENCE + TICK));

    let mut l = Listener::listening();
    l.beat(A);
    assert!(!l.is_settled(l.now));
    l.beat(B);
    assert!(l.is_settled(l.now));

    // A process that was paused heard nothing meanwhile.
    let mut l = Listener::new();
    let paused_until = begin + START_GRACE * 3;
    assert!(!l.is_settled(paused_until));
    l.turns(paused_until, &[A]);
    l.now = paused_until;
    assert!(l.is_settled(paused_until));
    l.now = paused_until + START_GRACE * 3;
    assert!(!l.is_settled(l.now), "before the turn");
    l.turn();
    assert!(!l.is_settled(l.now), "after the turn");
    l.turns(l.now + TIMEOUT, &[]);
    assert!(!l.is_settled(l.now));
    assert!(l.is_settled(l.now + TICK));

    // One that is down may have been heard again, and one that has ended may have joined again, by decisions
    // that are lost.
    for ends in [false, true] {
        let mut l = Listener::new();
        l.script.lose(B);
        if ends {
            l.script.exit(B);
        }
        l.turns(begin + START_GRACE, &[A]);
        assert!(!l.is_settled(l.now), "B is awaited");
        l.turns(l.now + TICK, &[A]);
        assert!(l.is_settled(l.now), "A is heard, and B had the time");

        let mut l = Listener::listening();
        l.script.lose(B);
        l.beat(A);
        l.hello("s1-nic0", 300);
        assert!(l.is_settled(l.now), "its next process asks to join");
    }
}

#[test]
fn a_start_listens_for_processes_that_its_log_does_not_know() {
    let mut l = Listener::new();
    let begin = l.now;
    l.turns(begin + TIMEOUT, &[A, B]);
    assert!(!l.is_settled(l.now), "all members are heard");
    l.turns(begin + TIMEOUT + TICK, &[]);
    assert!(l.is_settled(l.now));

    // Time in which it had no turns does not count; gaps between turns do not matter.
    let mut l = Listener::new();
    for _ in 0..SILENT_TURNS_MIN {
        l.now += TIMEOUT;
        l.beat(A);
        l.beat(B);
        l.turn();
        assert!(!l.is_settled(l.now));
    }
    l.turn();
    assert!(l.is_settled(l.now));

    // A log without members may have lost them, unless the cluster is new.
    let new = Control::new(1, l.script.control.topology.clone());
    let membership = Membership::new(begin, TIMEOUT);
    assert!(!membership.is_settled(begin, &new));
    assert!(membership.of_new_cluster().is_settled(begin, &new));
    let mut l = Listener::new();
    l.script.control = new;
    l.turns(begin + TIMEOUT, &[]);
    assert!(!l.is_settled(l.now));
    l.turns(begin + TIMEOUT + TICK, &[]);
    assert!(l.is_settled(l.now));
}

#[test]
fn a_heartbeat_is_of_one_process() {
    let mut l = Listener::new();
    let first = l.now;
    l.membership.on_heartbeat(first, A, 2);
    assert_eq!(l.membership.heard(A, 2), Some(first));
    assert_eq!(l.membership.heard(A, 1), None);
    assert_eq!(l.membership.heard(B, 1), None);
    // A late one of the process before.
    l.membership.on_heartbeat(first + TICK, A, 1);
    assert_eq!(l.membership.heard(A, 2), Some(first));
    l.membership.on_heartbeat(first + TICK, A, 2);
    assert_eq!(l.membership.heard(A, 2), Some(first + TICK));
}

#[test]
fn silence_counts_from_the_last_heartbeat() {
    let mut l = Listener::new();
    l.turns(l.now + Nanos::from_secs(1), &[A, B]);
    let last = l.now;
    assert_eq!(l.turns(last + TIMEOUT, &[A]), []);
    let is_silent = |l: &Listener, node| l.membership.is_silent(l.now, node, 1);
    assert!(!is_silent(&l, B), "no longer than the timeout");
    assert!(!is_silent(&l, A));
    assert_eq!(l.turns(last + TIMEOUT + TICK, &[A]), [B]);
    assert!(is_silent(&l, B));
    assert!(!is_silent(&l, A));
    assert!(!l.membership.is_deaf());
}

/// What another process of its node sends says nothing of a member.
#[test]
fn a_heartbeat_of_another_process_does_not_count() {
    let mut l = Listener::new();
    let begin = l.now;
    l.turns(begin + START_GRACE + TIMEOUT + Nanos::from_secs(1), &[A, B]);
    l.membership.on_heartbeat(l.now, A, 2);
    l.now += TURN;
    assert_eq!(l.turn(), [A]);
}

#[test]
fn silence_counts_in_turns_too() {
    let mut l = Listener::new();
    l.membership = Membership::new(l.now, TURN_GAP_MAX * 2);
    l.turns(l.now + Nanos::from_secs(1), &[A, B]);
    // The clock runs fast, as far as it may without a gap.
    l.beat(A);
    l.beat(B);
    for turn in 1..=SILENT_TURNS_MIN {
        l.now += TURN_GAP_MAX;
        l.beat(A);
        assert_eq!(l.turn(), [], "turn {turn}");
    }
    l.now += TURN_GAP_MAX;
    l.beat(A);
    assert_eq!(l.turn(), [B]);
}

#[test]
fn a_node_that_was_never_heard_has_the_grace_of_a_start_once() {
    let timeout = Nanos(START_GRACE.0 / 2);
    let mut l = Listener::new();
    l.membership = Membership::new(l.now, timeout);
    let begin = l.now;
    assert_eq!(l.turns(begin + START_GRACE, &[A]), []);
    assert_eq!(l.turns(begin + START_GRACE + TICK, &[A]), [B]);
    // After a gap the node has the timeout.
    let mut l = Listener::new();
    l.membership = Membership::new(l.now, timeout);
    l.turns(l.now + TURN, &[A]);
    let gap_end = l.now + TURN_GAP_MAX + TICK;
    l.now = gap_end;
    l.beat(A);
    assert_eq!(l.turn(), []);
    assert_eq!(l.turns(gap_end + timeout, &[A]), []);
    assert_eq!(l.turns(gap_end + timeout + TICK, &[A]), [B]);
}

#[test]
fn a_gap_is_longer_than_its_bound() {
    let mut l = Listener::new();
    l.turns(l.now + Nanos::from_secs(1), &[A, B]);
    let last = l.now;
    l.turns(last + TIMEOUT - TURN_GAP_MAX, &[A]);
    // As long as the bound: B has been silent for all that time.
    l.now += TURN_GAP_MAX;
    l.beat(A);
    assert_eq!(l.turn(), []);
    assert_eq!(l.turns(last + TIMEOUT + TICK, &[A]), [B]);
}

#[test]
fn those_who_fall_silent_together_are_named_together() {
    const C: NodeId = NodeId(2);
    let start = || {
        let mut l = Listener::new();
        l.script.join("s2-host", 7);
        l.turns(l.now + Nanos::from_secs(1), &[A, B, C]);
        l
    };
    // C was heard by just so much later that it may be falling silent with B.
    let mut l = start();
    let last = l.now;
    l.turns(last + TOGETHER - TICK, &[A]);
    l.beat(C);
    let (b_silent, c_silent) = (last + TIMEOUT, l.now + TIMEOUT);
    assert_eq!(l.turns(b_silent + TICK, &[A]), [], "C is near");
    assert_eq!(l.turns(c_silent + TICK, &[A]), [B, C]);
    // It was heard later: B is lost alone.
    let mut l = start();
    let last = l.now;
    l.turns(last + TOGETHER + TICK, &[A]);
    l.beat(C);
    assert_eq!(l.turns(last + TIMEOUT + TICK, &[A]), [B]);
    // C goes on being near: B is not waited for without end.
    let mut l = start();
    let last = l.now;
    // One of the turns is at the very end of the wait.
    l.turns(last + TIMEOUT + TOGETHER - TURN * 3, &[A]);
    let mut first_lost = None;
    while first_lost.is_none() {
        l.now += TURN;
        l.beat(A);
        l.membership.on_heartbeat(l.now + TICK * 2 - TIMEOUT, C, 1);
        first_lost = (!l.turn().is_empty()).then_some(l.now);
        assert!(l.now < last + TIMEOUT * 2);
    }
    let waited = last.until(first_lost.unwrap_or_default());
    assert!(waited > TIMEOUT + TOGETHER, "{waited:?}");
    assert!(waited <= TIMEOUT + TOGETHER + TURN, "{waited:?}");
}

#[test]
fn a_controller_that_hears_nobody_is_deaf_until_it_hears_somebody() {
    let mut l = Listener::new();
    l.turns(l.now + Nanos::from_secs(1), &[A, B]);
    let end = l.now + TIMEOUT * 3;
    assert_eq!(l.turns(end, &[]), []);
    assert!(l.membership.is_deaf());
    assert!(l.membership.is_silent(l.now, A, 1));
    l.beat(A);
    assert!(!l.membership.is_deaf());
    assert!(
        !l.membership.is_silent(l.now, B, 1),
        "it has the time to follow"
    );
    // Without members there is nobody to hear.
    let mut empty = Listener::new();
    assert!(!empty.script.control.members.is_empty());
    empty.script = Script::new();
    assert!(empty.script.control.members.is_empty());
    assert_eq!(empty.turn(), []);
    assert!(!empty.membership.is_deaf());
}
