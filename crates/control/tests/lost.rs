//! Who counts as lost: heartbeats against the clock of a controller that listens, stutters, is paused
//! or restarts.

use crate::script::{Script, all_nodes};
use e3_control::Membership;
use e3_model::{Nanos, NodeId, Timestamp};

const TURN_MS: u64 = 100;

/// A controller that listens: heartbeats and turns in virtual time.
struct Listener {
    script: Script,
    membership: Membership,
    now_ms: u64,
    /// Nodes whose heartbeats arrive.
    heard: Vec<NodeId>,
}

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Nanos::from_millis(ms)
}

impl Listener {
    fn new() -> Listener {
        let mut listener = Listener {
            script: Script::all(),
            membership: Membership::new(at(0), Nanos::from_secs(1)),
            now_ms: 0,
            heard: all_nodes(),
        };
        assert_eq!(listener.listen(1_000), []);
        listener
    }

    fn beat(&mut self) {
        for node in &self.heard {
            let incarnation = self.script.control.members[node].incarnation;
            let now = at(self.now_ms);
            self.membership.on_heartbeat(now, *node, incarnation);
        }
    }

    fn turn(&mut self) -> Vec<NodeId> {
        let lost = self.membership.lost(at(self.now_ms), &self.script.control);
        lost.into_keys().collect()
    }

    /// Listens for this long; returns the first nodes that are found lost.
    fn listen(&mut self, span_ms: u64) -> Vec<NodeId> {
        let end_ms = self.now_ms + span_ms;
        while self.now_ms < end_ms {
            self.now_ms += TURN_MS;
            self.beat();
            let lost = self.turn();
            if !lost.is_empty() {
                return lost;
            }
        }
        Vec::new()
    }
}

#[test]
fn a_silent_node_is_lost_after_the_timeout() {
    let mut l = Listener::new();
    l.heard = vec![NodeId(0), NodeId(2)];
    let begin_ms = l.now_ms;
    let lost = l.listen(2_000);
    assert_eq!(lost, [1, 3, 4, 5].map(NodeId), "all that fell silent");
    assert!((1_000..=1_300).contains(&(l.now_ms - begin_ms)));
}

#[test]
fn a_controller_that_was_paused_blames_nobody() {
    for pause_ms in [1_200, 3_000, 10_000, 3_600_000] {
        let mut l = Listener::new();
        l.now_ms += pause_ms;
        // Nothing has come yet when the first turn runs, and one node is slow.
        assert_eq!(l.turn(), [], "{pause_ms}");
        l.heard = (1..6).map(NodeId).collect();
        assert_eq!(l.listen(800), [], "{pause_ms}");
        l.heard = all_nodes();
        assert_eq!(l.listen(3_000), [], "{pause_ms}");
        // It still finds who is silent from here on.
        l.heard.pop();
        assert_eq!(l.listen(2_000), [NodeId(5)], "{pause_ms}");
    }
}

#[test]
fn a_controller_that_stutters_or_whose_clock_runs_fast_blames_nobody() {
    // Turns so rare that each follows a gap.
    let mut l = Listener::new();
    for _ in 0..100 {
        l.now_ms += 400;
        assert_eq!(l.turn(), []);
    }
    // A clock that counts a second while the process lives through three turns.
    let mut l = Listener::new();
    l.heard.remove(0);
    for _ in 0..4 {
        l.now_ms += 300;
        l.beat();
        assert_eq!(l.turn(), []);
    }
}

#[test]
fn a_controller_that_hears_nobody_may_be_cut_off() {
    let mut l = Listener::new();
    l.heard.clear();
    assert_eq!(l.listen(60_000), []);
    let now = at(l.now_ms);
    assert!(
        all_nodes()
            .iter()
            .all(|n| l.membership.is_silent(now, *n, 1))
    );
    // The first is heard again; the others get the full time to follow.
    l.heard = vec![NodeId(3)];
    assert_eq!(l.listen(900), []);
    l.heard = all_nodes();
    assert_eq!(l.listen(5_000), []);
}

#[test]
fn a_controller_that_restarts_waits_for_the_nodes() {
    let mut l = Listener::new();
    l.membership = Membership::new(at(l.now_ms), Nanos::from_secs(1));
    l.heard = vec![NodeId(1)];
    let begin_ms = l.now_ms;
    assert_eq!(l.listen(10_000).len(), 5);
    assert!(l.now_ms - begin_ms > 3_000);
}

#[test]
fn late_heartbeats_of_an_old_process_do_not_hide_the_new_one() {
    let mut l = Listener::new();
    l.script.restart(NodeId(0));
    l.heard.remove(0);
    l.membership.on_heartbeat(at(l.now_ms), NodeId(0), 2);
    l.membership.on_heartbeat(at(l.now_ms + 1), NodeId(0), 1);
    assert_eq!(l.listen(2_000), [NodeId(0)]);
}
