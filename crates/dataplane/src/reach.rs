//! Which peers can be reached, there and back, and whose clocks agree with this node's.
//!
//! Every node asks every other one in short periods, so that a node that is cut off from the others,
//! but not from the controller, is noticed whether or not they have anything to say to each other.
//! A peer whose clock is far from this one's could get no lease, so it counts as unreachable; if most
//! clocks are, it is this node's that is wrong. The controller's clock, compared when the node joined,
//! decides where peers do not: of two nodes whose clocks differ, without peers, and when too few answer.
//!
//! Misses are counted, not timed: a process that was paused has asked nobody meanwhile.

use crate::limits::CLOCK_SKEW_MAX;
use e3_model::plan::Peer;
use e3_model::timing::*;
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// What peers say of this node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockCheck {
    /// The process is new, and too few peers have told it the time to say.
    Open,
    /// It is far from the clocks of more than half of all nodes; or from that of the controller, and
    /// no majority says otherwise.
    Off,
    /// It is not, or nobody can tell.
    Right,
}

/// What is known of the way to each peer.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    ways: BTreeMap<NodeId, Way>,
    /// Periods in which there were peers, up to [`PROBES_FIRST_MAX`].
    periods: u32,
    unreachable: Vec<NodeId>,
    /// The controller's clock was far from this node's.
    is_controller_far: bool,
    /// When the latest probes left whose answers count.
    asked: VecDeque<Timestamp>,
}

/// The way to a peer and back.
#[derive(Debug, Default)]
struct Way {
    incarnation: u32,
    /// In this period.
    is_answered: bool,
    /// Answered periods in a row.
    answered: u32,
    /// Periods without an answer in a row.
    missed: u32,
    /// The peer's process has answered since it joined. A way that never was open is no news.
    was_open: bool,
    is_cut: bool,
    /// The last answer came with a time that is far from this node's.
    is_clock_far: bool,
}

impl Reach {
    /// Time between two probes of each of so many peers.
    pub(crate) fn period(peers: usize) -> Nanos {
        let least = Nanos(Nanos::from_secs(1).0 * peers as u64 / PROBES_PER_S_MAX);
        least.max(PROBE_INTERVAL)
    }

    /// Begins a period: the peers are asked again. What was not answered is a miss.
    pub(crate) fn ask(
        &mut self,
        now: Timestamp,
        this: NodeId,
        peers: &BTreeMap<NodeId, Peer>,
    ) -> impl Iterator<Item = NodeId> + use<> {
        self.ways.retain(|node, way| {
            let peer = peers.get(node);
            peer.is_some_and(|p| p.incarnation == way.incarnation)
        });
        let others: Vec<NodeId> = peers.keys().copied().filter(|n| *n != this).collect();
        if !others.is_empty() {
            self.periods = (self.periods + 1).min(PROBES_FIRST_MAX);
        }
        for node in &others {
            match self.ways.get_mut(node) {
                Some(way) => way.on_period(),
                None => drop(self.ways.insert(*node, Way::new(peers[node].incarnation))),
            }
        }
        self.asked.push_back(now);
        if self.asked.len() > PROBES_MISSED as usize {
            self.asked.pop_front();
        }
        // Ways that are being cut together are reported together.
        if !self.ways.values().any(Way::is_nearly_cut) {
            let cut = self.ways.iter().filter(|(_, way)| way.is_cut);
            self.unreachable = cut.map(|(node, _)| *node).collect();
        }
        others.into_iter()
    }

    /// A peer answers the probe of `sent`, when its clock shows `theirs`. On a busy machine an answer
    /// may take several periods; one that is older than what makes a way count as cut says nothing
    /// about it.
    pub(crate) fn on_answer(
        &mut self,
        now: Timestamp,
        from: NodeId,
        sent: Timestamp,
        theirs: Timestamp,
    ) {
        if self.asked.contains(&sent)
            && let Some(way) = self.ways.get_mut(&from)
        {
            way.is_clock_far = is_far(now, sent, theirs);
            way.is_answered = !way.is_clock_far;
            way.was_open = true;
        }
    }

    /// The controller answered what this node sent at `sent`, when its clock showed `theirs`.
    pub(crate) fn on_controller_time(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        theirs: Timestamp,
    ) {
        self.is_controller_far = is_far(now, sent, theirs);
    }

    /// What so many peers, and the controller, say of this node's clock.
    pub(crate) fn check_clock(&self, peers: usize) -> ClockCheck {
        let far = self.ways.values().filter(|w| w.is_clock_far).count();
        let told = self.ways.values().filter(|w| w.was_open).count();
        let are_most = |n: usize| n * 2 > peers + 1;
        let is_open = told * 2 < peers || are_most(far + peers.saturating_sub(told));
        let is_tie = peers == 0 || far * 2 == peers + 1;
        if are_most(far) {
            ClockCheck::Off
        } else if is_open && self.periods < PROBES_FIRST_MAX {
            ClockCheck::Open
        } else if (is_open || is_tie) && self.is_controller_far {
            ClockCheck::Off
        } else {
            ClockCheck::Right
        }
    }

    /// Peers that could be reached before and cannot be now.
    pub(crate) fn unreachable(&self) -> Vec<NodeId> {
        self.unreachable.clone()
    }

    /// Whether a lease that is granted to the peer would hardly arrive.
    pub(crate) fn is_lease_futile(&self, peer: NodeId) -> bool {
        let way = self.ways.get(&peer);
        way.is_some_and(|w| w.was_open && w.missed >= PROBES_MISSED_UNLEASED)
    }
}

/// Whether a clock that showed `theirs` between `sent` and `now` of this node's is certainly far from
/// it.
fn is_far(now: Timestamp, sent: Timestamp, theirs: Timestamp) -> bool {
    theirs.since(now).max(sent.since(theirs)) > CLOCK_SKEW_MAX
}

impl Way {
    fn new(incarnation: u32) -> Way {
        Way {
            incarnation,
            ..Way::default()
        }
    }

    /// It may become cut within a few periods.
    fn is_nearly_cut(&self) -> bool {
        self.was_open && !self.is_cut && self.missed > PROBES_MISSED / 2
    }

    fn on_period(&mut self) {
        if std::mem::take(&mut self.is_answered) {
            (self.answered, self.missed) = (self.answered + 1, 0);
        } else {
            (self.answered, self.missed) = (0, self.missed + 1);
        }
        self.is_cut = if self.is_cut {
            self.answered < PROBES_ANSWERED
        } else {
            self.was_open && self.missed >= PROBES_MISSED
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::Address;

    const THIS: NodeId = NodeId(0);
    const PEER: NodeId = NodeId(1);

    struct Pair {
        reach: Reach,
        peers: BTreeMap<NodeId, Peer>,
        now: u64,
    }

    impl Pair {
        fn new() -> Pair {
            let peer = |incarnation| Peer {
                name: String::new(),
                server: 0,
                incarnation,
                address: Address::default(),
            };
            Pair {
                reach: Reach::default(),
                peers: [(THIS, peer(1)), (PEER, peer(1))].into(),
                now: 1,
            }
        }

        /// The peer answers a probe, with the same clock.
        fn answer(&mut self, sent: Timestamp) {
            let now = Timestamp(self.now);
            self.reach.on_answer(now, PEER, sent, now);
        }

        /// Periods with answers or without; whether the peer is unreachable then.
        fn periods(&mut self, count: u32, answered: bool) -> bool {
            for _ in 0..count {
                self.now += 1;
                let now = Timestamp(self.now);
                let asked: Vec<_> = self.reach.ask(now, THIS, &self.peers).collect();
                assert_eq!(asked, [PEER]);
                if answered {
                    self.reach.on_answer(now, PEER, now, now);
                }
            }
            self.reach.unreachable() == [PEER]
        }
    }

    #[test]
    fn a_peer_is_unreachable_after_misses_in_a_row_and_reachable_after_answers_in_a_row() {
        let mut pair = Pair::new();
        assert!(!pair.periods(100, false), "it never answered");
        assert!(!pair.periods(2, true));
        for _ in 0..50 {
            assert!(!pair.periods(PROBES_MISSED - 1, false));
            assert!(!pair.periods(1, true));
        }
        assert!(pair.periods(PROBES_MISSED + 1, false));
        for _ in 0..50 {
            assert!(pair.periods(PROBES_ANSWERED - 1, true));
            assert!(pair.periods(1, false));
        }
        assert!(!pair.periods(PROBES_ANSWERED + 1, true));
    }

    #[test]
    fn a_slow_answer_counts_an_old_one_does_not_and_a_new_process_begins_anew() {
        let mut pair = Pair::new();
        pair.periods(2, true);
        let window = u64::from(PROBES_MISSED);
        for _ in 0..50 {
            let sent = Timestamp(pair.now + 1);
            assert!(!pair.periods(PROBES_MISSED, false));
            pair.answer(sent);
        }
        for _ in 0..window {
            pair.periods(1, false);
            pair.answer(Timestamp(pair.now - window));
        }
        assert!(pair.periods(1, false));
        pair.peers.get_mut(&PEER).unwrap().incarnation = 2;
        assert!(!pair.periods(100, false));
    }

    #[test]
    fn a_peer_that_hears_nothing_is_granted_nothing_until_it_answers() {
        let mut pair = Pair::new();
        pair.periods(100, false);
        assert!(!pair.reach.is_lease_futile(PEER), "it may have just joined");
        pair.periods(2, true);
        pair.periods(PROBES_MISSED_UNLEASED, false);
        assert!(!pair.reach.is_lease_futile(PEER));
        pair.periods(PROBES_MISSED, false);
        assert!(pair.reach.is_lease_futile(PEER));
        // Sooner than it counts as reachable.
        assert!(pair.periods(2, true));
        assert!(!pair.reach.is_lease_futile(PEER));
    }

    #[test]
    fn a_peer_whose_clock_is_far_away_is_unreachable_and_most_of_them_show_the_own_fault() {
        let far = Nanos(CLOCK_SKEW_MAX.0 + 1);
        let begin = Timestamp::ZERO + far;
        let peer = |node| (NodeId(node), Pair::new().peers[&PEER].clone());
        let peers: BTreeMap<NodeId, Peer> = (0..4).map(peer).collect();
        for (off, is_own_fault) in [(0, false), (1, false), (2, false), (3, true)] {
            let mut reach = Reach::default();
            let mut now = begin;
            for period in 0..=PROBES_MISSED {
                let theirs = if period % 2 == 0 {
                    now - far
                } else {
                    now + far
                };
                for (number, node) in (0..).zip(reach.ask(now, THIS, &peers)) {
                    let clock = if number < off { theirs } else { now };
                    reach.on_answer(now, node, now, clock);
                }
                let is_off = reach.check_clock(3) == ClockCheck::Off;
                assert_eq!(is_off, is_own_fault);
                now += PROBE_INTERVAL;
            }
            let _ = reach.ask(now, THIS, &peers);
            assert_eq!(reach.unreachable().len(), off);
        }
    }

    #[test]
    fn a_new_process_hears_the_time_from_half_of_its_peers_or_waits_in_vain_for_a_while() {
        let peer = |node| (NodeId(node), Pair::new().peers[&PEER].clone());
        let peers: BTreeMap<NodeId, Peer> = (0..5).map(peer).collect();
        let mut reach = Reach::default();
        assert_eq!(reach.check_clock(0), ClockCheck::Right);
        assert_eq!(reach.check_clock(4), ClockCheck::Open);
        let now = Timestamp(1);
        let asked: Vec<NodeId> = reach.ask(now, THIS, &peers).collect();
        reach.on_answer(now, asked[0], now, now);
        assert_eq!(reach.check_clock(4), ClockCheck::Open);
        reach.on_answer(now, asked[1], now, now);
        assert_eq!(reach.check_clock(4), ClockCheck::Right);

        // Far from half of them: the others decide.
        let mut reach = Reach::default();
        let now = Timestamp(1_000_000_000_000);
        let asked: Vec<NodeId> = reach.ask(now, THIS, &peers).collect();
        for (node, expected) in asked.iter().zip([
            ClockCheck::Open,
            ClockCheck::Open,
            ClockCheck::Off,
            ClockCheck::Off,
        ]) {
            reach.on_answer(now, *node, now, now + Nanos::from_secs(10));
            assert_eq!(reach.check_clock(4), expected);
        }

        let mut reach = Reach::default();
        for _ in 0..PROBES_FIRST_MAX {
            assert_eq!(reach.check_clock(4), ClockCheck::Open);
            let _ = reach.ask(now, THIS, &peers);
        }
        assert_eq!(reach.check_clock(4), ClockCheck::Right);
    }

    #[test]
    fn in_a_large_cluster_each_peer_is_asked_less_often() {
        assert_eq!(Reach::period(3), PROBE_INTERVAL);
        assert_eq!(Reach::period(400), Nanos::from_secs(1));
    }

    #[test]
    fn a_clock_may_be_off_by_the_limit() {
        for (off, expected) in [(0, ClockCheck::Right), (1, ClockCheck::Off)] {
            let mut pair = Pair::new();
            let now = Timestamp(1 << 60);
            let _ = pair.reach.ask(now, THIS, &pair.peers);
            let theirs = now + CLOCK_SKEW_MAX + Nanos(off);
            pair.reach.on_answer(now, PEER, now, theirs);
            assert_eq!(pair.reach.ways[&PEER].is_clock_far, off > 0);
            assert_eq!(pair.reach.check_clock(0), expected);
        }
    }

    #[test]
    fn the_clock_is_right_when_those_who_have_not_answered_cannot_show_it_wrong() {
        // So many peers; how many of them answer with a far clock, and how many with the same.
        for (count, far, near, expected) in [
            (6, 0, 2, ClockCheck::Open),
            (6, 0, 3, ClockCheck::Right),
            (4, 1, 1, ClockCheck::Open),
            (4, 1, 2, ClockCheck::Right),
        ] {
            let peer = |node| (NodeId(node), Pair::new().peers[&PEER].clone());
            let peers: BTreeMap<NodeId, Peer> = (0..=count).map(peer).collect();
            let mut reach = Reach::default();
            let now = Timestamp(1 << 60);
            let asked: Vec<NodeId> = reach.ask(now, THIS, &peers).collect();
            for (at, node) in asked.iter().take(far + near).enumerate() {
                let off = Nanos::from_secs(if at < far { 10 } else { 0 });
                reach.on_answer(now, *node, now, now + off);
            }
            let found = reach.check_clock(count as usize);
            assert_eq!(found, expected, "{far} far and {near} near of {count}");
        }
    }

    #[test]
    fn the_controllers_clock_decides_what_peers_do_not() {
        const FAR: Nanos = Nanos::from_secs(10);
        // So many peers; how many answer with a far clock, and how many with the same; what is found
        // at last if the controller's clock is near, and if it is far.
        for (count, far, near, with_near, with_far) in [
            (0, 0, 0, ClockCheck::Right, ClockCheck::Off),
            (1, 1, 0, ClockCheck::Right, ClockCheck::Off),
            (1, 0, 1, ClockCheck::Right, ClockCheck::Right),
            (1, 0, 0, ClockCheck::Right, ClockCheck::Off),
            (2, 1, 1, ClockCheck::Right, ClockCheck::Right),
            (2, 2, 0, ClockCheck::Off, ClockCheck::Off),
            (3, 2, 1, ClockCheck::Right, ClockCheck::Off),
            (4, 0, 1, ClockCheck::Right, ClockCheck::Off),
            (4, 0, 2, ClockCheck::Right, ClockCheck::Right),
        ] {
            for (is_far, expected) in [(false, with_near), (true, with_far)] {
                let peer = |node| (NodeId(node), Pair::new().peers[&PEER].clone());
                let peers: BTreeMap<NodeId, Peer> = (0..=count).map(peer).collect();
                let mut reach = Reach::default();
                let mut now = Timestamp(1 << 60);
                let off = if is_far { FAR } else { Nanos::ZERO };
                reach.on_controller_time(now, now, now + off);
                for _ in 0..PROBES_FIRST_MAX {
                    let asked: Vec<NodeId> = reach.ask(now, THIS, &peers).collect();
                    for (at, node) in asked.iter().take(far + near).enumerate() {
                        let off = if at < far { FAR } else { Nanos::ZERO };
                        reach.on_answer(now, *node, now, now + off);
                    }
                    now += PROBE_INTERVAL;
                }
                let found = reach.check_clock(count as usize);
                assert_eq!(
                    found, expected,
                    "{far} far, {near} near of {count}: {is_far}"
                );
            }
        }
    }

    #[test]
    fn ways_that_are_cut_within_a_few_periods_are_reported_together() {
        let peer = |node| (NodeId(node), Pair::new().peers[&PEER].clone());
        let peers: BTreeMap<NodeId, Peer> = (0..3).map(peer).collect();
        let half = PROBES_MISSED / 2;
        for later in [half - 1, half] {
            let mut reach = Reach::default();
            let mut reported = Vec::new();
            for period in 1..=20 {
                let now = Timestamp(period);
                // Node 1 is silent from period 5 on, node 2 somewhat later.
                for node in reach.ask(now, THIS, &peers) {
                    let answered = if node.0 == 1 { 4 } else { 4 + u64::from(later) };
                    if period <= answered {
                        reach.on_answer(now, node, now, now);
                    }
                }
                reported.push(reach.unreachable());
            }
            reported.dedup();
            let both = vec![NodeId(1), NodeId(2)];
            let expected = if later < half {
                vec![vec![], both]
            } else {
                vec![vec![], vec![NodeId(1)], both]
            };
            assert_eq!(reported, expected, "{later} periods later");
        }
    }
}
