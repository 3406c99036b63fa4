//! Which peers can be reached, there and back.
//!
//! Every node asks every other one in short periods, so that a node that is cut off from the others,
//! but not from the controller, is noticed whether or not they have anything to say to each other.
//! Misses are counted, not timed: a process that was paused has asked nobody meanwhile.

use crate::limits::{PROBES_ANSWERED, PROBES_MISSED};
use e3_model::plan::Peer;
use e3_model::{NodeId, Timestamp};
use std::collections::BTreeMap;

/// What is known of the way to each peer.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    ways: BTreeMap<NodeId, Way>,
    unreachable: Vec<NodeId>,
}

/// The way to a peer and back.
#[derive(Debug)]
struct Way {
    incarnation: u32,
    /// When the latest probe left that counts.
    asked: Timestamp,
    is_answered: bool,
    /// Answered probes, or unanswered ones, in a row.
    run: u32,
    /// It was open since the peer's process joined. One that never was is no news.
    was_open: bool,
    is_cut: bool,
}

impl Reach {
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
        for node in &others {
            let incarnation = peers[node].incarnation;
            match self.ways.get_mut(node) {
                Some(way) => way.on_period(now),
                None => drop(self.ways.insert(*node, Way::new(now, incarnation))),
            }
        }
        // Ways that are being cut together are reported together.
        if !self.ways.values().any(Way::is_nearly_cut) {
            let cut = self.ways.iter().filter(|(_, way)| way.is_cut);
            self.unreachable = cut.map(|(node, _)| *node).collect();
        }
        others.into_iter()
    }

    /// A peer answers the probe of `sent`. Late answers do not count.
    pub(crate) fn on_answer(&mut self, from: NodeId, sent: Timestamp) {
        if let Some(way) = self.ways.get_mut(&from).filter(|w| w.asked == sent) {
            way.is_answered = true;
        }
    }

    /// Peers that could be reached before and cannot be now.
    pub(crate) fn unreachable(&self) -> Vec<NodeId> {
        self.unreachable.clone()
    }
}

impl Way {
    fn new(now: Timestamp, incarnation: u32) -> Way {
        Way {
            incarnation,
            asked: now,
            is_answered: false,
            run: 0,
            was_open: false,
            is_cut: false,
        }
    }

    /// It may become cut within a few periods.
    fn is_nearly_cut(&self) -> bool {
        self.was_open && !self.is_cut && self.run >= PROBES_MISSED / 2
    }

    fn on_period(&mut self, now: Timestamp) {
        self.was_open |= self.is_answered;
        // What agrees with the state ends the run of what does not.
        self.run = if self.is_answered == self.is_cut {
            self.run + 1
        } else {
            0
        };
        let needed = if self.is_cut {
            PROBES_ANSWERED
        } else {
            PROBES_MISSED
        };
        if self.was_open && self.run >= needed {
            (self.is_cut, self.run) = (!self.is_cut, 0);
        }
        (self.asked, self.is_answered) = (now, false);
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

        /// Periods with answers or without; whether the peer is unreachable then.
        fn periods(&mut self, count: u32, answered: bool) -> bool {
            for _ in 0..count {
                self.now += 1;
                let now = Timestamp(self.now);
                let asked: Vec<_> = self.reach.ask(now, THIS, &self.peers).collect();
                assert_eq!(asked, [PEER]);
                if answered {
                    self.reach.on_answer(PEER, now);
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
    fn a_late_answer_does_not_count_and_a_new_process_begins_anew() {
        let mut pair = Pair::new();
        pair.periods(2, true);
        assert!(pair.periods(PROBES_MISSED + 1, false));
        pair.reach.on_answer(PEER, Timestamp(pair.now - 1));
        assert!(pair.periods(1, false));
        pair.peers.get_mut(&PEER).unwrap().incarnation = 2;
        assert!(!pair.periods(100, false));
    }
}
