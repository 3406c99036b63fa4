//! Faults that a run injects, and which nodes and links are down because of them.
//!
//! A link that is down loses what is sent over it. After `link_detection_ms` (a guess) the switches know
//! and choose among the other links (ECMP); only the flows of the lost link change (E3, ATC 2019, 3.2).

use e3_hardware::network::ecmp;
use e3_model::{Nanos, NodeId};

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failing {
    /// A node: its process, its memory and, of a SmartNIC, its port.
    Node(NodeId),
    /// The link between a node's port and the switch of its rack.
    Link(NodeId),
    /// A link between the switch of a rack and the switches above it.
    Uplink {
        /// Rack, from 0.
        rack: usize,
        /// Link, from 0.
        link: usize,
    },
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What fails.
    pub what: Failing,
    /// When.
    pub from: Nanos,
    /// When it works again; none if it does not.
    pub until: Option<Nanos>,
}

/// A link and whether it works.
#[derive(Clone, Copy, Default)]
struct Health {
    is_down: bool,
    /// Since when the switches send nothing over it.
    avoided_from: Option<u64>,
}

/// What is down.
#[derive(Default)]
pub(crate) struct Outages {
    /// Nothing has failed so far.
    pub is_calm: bool,
    nodes: Vec<bool>,
    /// By node: how often it has failed.
    failures: Vec<u32>,
    /// By node: its link to the switch.
    links: Vec<Health>,
    /// By rack, then by link.
    uplinks: Vec<Health>,
    uplinks_per_rack: usize,
    detection_ns: u64,
}

impl Outages {
    pub fn new(nodes: usize, racks: usize, uplinks: usize, detection_ns: u64) -> Outages {
        Outages {
            is_calm: true,
            nodes: vec![false; nodes],
            failures: vec![0; nodes],
            links: vec![Health::default(); nodes],
            uplinks: vec![Health::default(); racks * uplinks],
            uplinks_per_rack: uplinks,
            detection_ns,
        }
    }

    #[inline]
    pub fn is_down(&self, node: u32) -> bool {
        self.nodes[node as usize]
    }

    pub fn failures(&self, node: usize) -> u32 {
        self.failures[node]
    }

    pub fn set_node(&mut self, node: usize, now: u64, is_down: bool) {
        self.is_calm = false;
        self.nodes[node] = is_down;
        self.failures[node] += u32::from(is_down);
        self.note_port(node, now);
    }

    pub fn set_link(&mut self, node: usize, now: u64, is_down: bool) {
        self.is_calm = false;
        self.links[node].is_down = is_down;
        self.note_port(node, now);
    }

    /// The switch avoids a port while its link or its node is down.
    fn note_port(&mut self, node: usize, now: u64) {
        let fails = self.nodes[node] || self.links[node].is_down;
        let from = now + self.detection_ns;
        let health = &mut self.links[node];
        health.avoided_from = if fails {
            Some(health.avoided_from.unwrap_or(from))
        } else {
            None
        };
    }

    pub fn set_uplink(&mut self, rack: usize, link: usize, now: u64, is_down: bool) {
        self.is_calm = false;
        let from = now + self.detection_ns;
        self.uplinks[rack * self.uplinks_per_rack + link] = Health {
            is_down,
            avoided_from: is_down.then_some(from),
        };
    }

    /// Whether what is sent through a node's port arrives.
    pub fn port_works(&self, node: usize) -> bool {
        !self.nodes[node] && !self.links[node].is_down
    }

    pub fn avoids_port(&self, node: usize, now: u64) -> bool {
        self.links[node]
            .avoided_from
            .is_some_and(|from| now >= from)
    }

    /// Path of a flow between racks, and whether it works there and here.
    pub fn uplink(&self, ends: [u32; 2], racks: [usize; 2], now: u64) -> (usize, [bool; 2]) {
        let at = |rack: usize, link: usize| &self.uplinks[rack * self.uplinks_per_rack + link];
        let is_known = |h: &Health| h.avoided_from.is_some_and(|from| now >= from);
        let is_avoided = |link: usize| racks.iter().any(|r| is_known(at(*r, link)));
        let link = chosen(ends, self.uplinks_per_rack, is_avoided);
        (link, racks.map(|rack| !at(rack, link).is_down))
    }
}

/// The path of a flow out of `count`; one of the others if it is avoided and there is one.
pub(crate) fn chosen(ends: [u32; 2], count: usize, is_avoided: impl Fn(usize) -> bool) -> usize {
    let first = ecmp(ends[0], ends[1], count);
    if !is_avoided(first) {
        return first;
    }
    let rest: Vec<usize> = (0..count).filter(|path| !is_avoided(*path)).collect();
    match rest.len() {
        0 => first,
        len => rest[ecmp(ends[0], ends[1], len)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flows_of_the_lost_link_change() {
        for to in 0..200 {
            let before = chosen([7, to], 4, |_| false);
            let after = chosen([7, to], 4, |path| path == 2);
            assert_ne!(after, 2);
            assert!(before == 2 || before == after);
        }
        assert_eq!(chosen([7, 7], 1, |_| true), 0);
    }

    #[test]
    fn a_link_is_avoided_after_its_loss_is_detected_and_until_it_is_back() {
        let mut outages = Outages::new(2, 1, 1, 100);
        outages.set_link(1, 50, true);
        assert!(!outages.port_works(1) && !outages.avoids_port(1, 149));
        assert!(outages.avoids_port(1, 150));
        outages.set_node(1, 120, true);
        outages.set_link(1, 200, false);
        assert!(!outages.port_works(1), "the node is still down");
        outages.set_node(1, 300, false);
        assert!(outages.port_works(1) && !outages.avoids_port(1, 300));
        assert_eq!((outages.failures(0), outages.failures(1)), (0, 1));
    }
}
