//! Nodes in a fixed order, found by the first that fits.

use super::free::{Free, Need};
use e3_model::NodeKind;
use std::ops::Range;

/// Nodes of a group of the lowest level.
const BLOCK: usize = 32;
/// Groups of a group of the next level.
const FAN_OUT: usize = 16;

/// Maxima of a group, hosts and SmartNICs apart.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Maxima {
    host: Free,
    smartnic: Free,
}

/// What a search does about nodes.
pub(crate) enum Visit {
    /// The node at this position is large enough.
    Fits(usize),
    /// None of these is.
    TooSmall(Range<usize>),
}

/// Nodes in a fixed order with maxima of groups above them.
#[derive(Clone, Debug)]
pub(crate) struct FirstFit {
    nodes: Vec<(NodeKind, Free)>,
    /// Level 0: groups of [`BLOCK`] nodes; each further one: groups of [`FAN_OUT`] groups.
    levels: Vec<Vec<Maxima>>,
}

impl Maxima {
    const NOTHING: Maxima = Maxima {
        host: Free::NOTHING,
        smartnic: Free::NOTHING,
    };

    fn add(&mut self, kind: NodeKind, free: Free) {
        match kind {
            NodeKind::Host => self.host = self.host.max(free),
            NodeKind::SmartNic => self.smartnic = self.smartnic.max(free),
        }
    }

    fn may_hold(&self, need: &Need) -> bool {
        need.host.is_some_and(|n| self.host.holds(&n))
            || need.smartnic.is_some_and(|n| self.smartnic.holds(&n))
    }
}

impl FirstFit {
    /// Nodes of these kinds that are all empty.
    pub(crate) fn new(kinds: impl Iterator<Item = NodeKind>) -> FirstFit {
        let nodes: Vec<_> = kinds.map(|kind| (kind, Free::NOTHING)).collect();
        let mut levels = Vec::new();
        let mut groups = nodes.len().div_ceil(BLOCK);
        loop {
            levels.push(vec![Maxima::NOTHING; groups]);
            if groups <= 1 {
                return FirstFit { nodes, levels };
            }
            groups = groups.div_ceil(FAN_OUT);
        }
    }

    /// Sets what the node at a position has left.
    pub(crate) fn set(&mut self, position: usize, free: Free) {
        self.nodes[position].1 = free;
        let mut group = position / BLOCK;
        let from = group * BLOCK;
        let to = (from + BLOCK).min(self.nodes.len());
        let mut maxima = Maxima::NOTHING;
        for (kind, free) in &self.nodes[from..to] {
            maxima.add(*kind, *free);
        }
        for level in 0..self.levels.len() {
            if std::mem::replace(&mut self.levels[level][group], maxima) == maxima {
                return;
            }
            group /= FAN_OUT;
            let from = group * FAN_OUT;
            let below = &self.levels[level];
            let to = (from + FAN_OUT).min(below.len());
            maxima = Maxima::NOTHING;
            for m in &below[from..to] {
                maxima.host = maxima.host.max(m.host);
                maxima.smartnic = maxima.smartnic.max(m.smartnic);
            }
        }
    }

    /// Visits the positions of `range` in their order until `visit` returns true.
    pub(crate) fn search(
        &self,
        range: Range<usize>,
        need: &Need,
        mut visit: impl FnMut(Visit) -> bool,
    ) -> Option<usize> {
        let mut at = range.start;
        while at < range.end {
            let next = self.skip(at, need);
            if next > at {
                visit(Visit::TooSmall(at..next.min(range.end)));
                at = next;
                continue;
            }
            let (kind, free) = &self.nodes[at];
            if need.of(*kind).is_some_and(|n| free.holds(n)) {
                if visit(Visit::Fits(at)) {
                    return Some(at);
                }
            } else {
                visit(Visit::TooSmall(at..at + 1));
            }
            at += 1;
        }
        None
    }

    /// The end of the largest group that begins at a position and holds no node that fits; the
    /// position itself if there is none.
    fn skip(&self, at: usize, need: &Need) -> usize {
        let mut size = BLOCK;
        let mut end = at;
        for level in &self.levels {
            if !at.is_multiple_of(size) || level[at / size].may_hold(need) {
                break;
            }
            end = at + size;
            size *= FAN_OUT;
        }
        end
    }
}
