//! Leases between nodes: a primary serves only while its backups promise not to replace it.
//!
//! The holder counts from the moment it asked, the granter from the moment it answered, which is
//! later; with clocks that run at nearly the same speed the promise outlives the holder's use of it
//! (Gray and Cheriton, SOSP 1989). A node that has replaced another grants it nothing more until
//! that one has applied a plan that says so. None of this needs the controller.

use crate::deliberate::{self, Fault};
use crate::limits::CLOCK_SKEW_MAX;
use e3_model::timing::*;
use e3_model::{NodeId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Leases held from and granted to other nodes.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// By node.
    held_until: Vec<Timestamp>,
    /// When each node was asked, as long as a grant can be of use.
    asked: BTreeMap<NodeId, VecDeque<Timestamp>>,
    /// By node: the process that has this node's promise, and until when.
    granted: BTreeMap<NodeId, (u32, Timestamp)>,
    /// The plan that a node must have applied before it is granted anything.
    plan_required: BTreeMap<NodeId, u64>,
    /// Nodes that were granted leases and have newer plans than this one: which.
    ahead: BTreeMap<NodeId, u64>,
}

impl Leases {
    /// Notes that a node is asked for its lease.
    pub(crate) fn on_asked(&mut self, now: Timestamp, node: NodeId) {
        let asked = self.asked.entry(node).or_default();
        asked.push_back(now);
        while asked.front().is_some_and(|at| *at + LEASE < now) {
            asked.pop_front();
        }
    }

    /// Whether to grant a request; notes the grant. A node whose clock is far from this one's gets
    /// none: what its clock says would become the time of its shards.
    pub(crate) fn on_request(
        &mut self,
        now: Timestamp,
        (from, incarnation): (NodeId, u32),
        sent: Timestamp,
        plan_version: u64,
    ) -> bool {
        if now.since(sent).max(sent.since(now)) > CLOCK_SKEW_MAX {
            return false;
        }
        if self
            .plan_required
            .get(&from)
            .is_some_and(|v| plan_version < *v)
            && !deliberate::is(Fault::LeaseForReplaced)
        {
            return false;
        }
        self.granted.insert(from, (incarnation, now + LEASE));
        true
    }

    /// Notes that a node with a lease from this one has a newer plan.
    pub(crate) fn on_ahead(&mut self, node: NodeId, version: u64) {
        self.ahead.insert(node, version);
    }

    /// The nodes that may be primaries, or may have been, by plans that this node does not have.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = NodeId> {
        self.ahead.keys().copied()
    }

    /// This node has applied a plan.
    pub(crate) fn on_plan(&mut self, version: u64) {
        self.ahead.retain(|_, newer| *newer > version);
    }

    /// Takes a grant that answers the request of `sent`. False if that node was not asked then.
    pub(crate) fn on_grant(&mut self, from: NodeId, sent: Timestamp) -> bool {
        if self.asked.get(&from).is_none_or(|all| !all.contains(&sent)) {
            return false;
        }
        let until = sent + (LEASE - LEASE_MARGIN);
        let node = from.index();
        if self.held_until.len() <= node {
            self.held_until.resize(node + 1, Timestamp::ZERO);
        }
        self.held_until[node] = until.max(self.held_until[node]);
        true
    }

    /// The node's process is gone, and with it all memory of what it promised. What this node
    /// promised it holds.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.asked.remove(&node);
        if let Some(until) = self.held_until.get_mut(node.index()) {
            *until = Timestamp::ZERO;
        }
    }

    /// Whether the node's promise holds now.
    pub(crate) fn holds(&self, now: Timestamp, from: NodeId) -> bool {
        self.held_until
            .get(from.index())
            .is_some_and(|until| now < *until)
    }

    /// Whether this node's promise to another one holds now.
    pub(crate) fn grants(&self, now: Timestamp, to: NodeId) -> bool {
        self.granted.get(&to).is_some_and(|(_, until)| now < *until)
    }

    /// This node replaces `predecessor` by plan `version`: when it may begin. A process up to the
    /// incarnation `exited` has ended, and makes no use of what it was promised.
    pub(crate) fn succeed(
        &mut self,
        now: Timestamp,
        predecessor: NodeId,
        version: u64,
        exited: u32,
    ) -> Timestamp {
        self.plan_required.insert(predecessor, version);
        match self.granted.get(&predecessor) {
            Some((incarnation, until)) if *incarnation > exited => now.max(*until),
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::Nanos;

    #[test]
    fn the_holder_stops_before_the_successor_begins() {
        let (a, b) = (NodeId(0), NodeId(1));
        let (mut holder, mut granter) = (Leases::default(), Leases::default());
        let (asked, answered) = (Timestamp(5_000), Timestamp(9_000));
        assert!(granter.on_request(answered, (a, 1), asked, 1));
        holder.on_asked(asked, b);
        assert!(holder.on_grant(b, asked));
        let begins = granter.succeed(Timestamp(10_000), a, 2, 0);
        assert!(holder.holds(Timestamp(asked.0 + 1), b));
        assert!(!holder.holds(begins, b));
        // Nothing more is granted before the holder knows that it was replaced.
        assert!(!granter.on_request(Timestamp(11_000), (a, 1), asked, 1));
        assert!(granter.on_request(Timestamp(12_000), (a, 1), asked, 2));
    }

    #[test]
    fn what_was_promised_to_a_process_that_has_ended_is_not_kept() {
        let a = NodeId(0);
        let (asked, answered) = (Timestamp(5_000), Timestamp(9_000));
        let begins = |incarnation, exited| {
            let mut granter = Leases::default();
            assert!(granter.on_request(answered, (a, incarnation), asked, 1));
            granter.succeed(Timestamp(10_000), a, 2, exited)
        };
        assert_eq!(begins(3, 3), Timestamp(10_000));
        assert_eq!(begins(2, 3), Timestamp(10_000));
        // The promise is to a later process, which may live.
        assert_eq!(begins(3, 2), answered + LEASE);
    }

    #[test]
    fn a_grant_of_what_was_not_asked_is_none() {
        let mut holder = Leases::default();
        holder.on_asked(Timestamp(4_000), NodeId(1));
        for sent in [3_999, 4_001, 5_001, u64::MAX].map(Timestamp) {
            assert!(!holder.on_grant(NodeId(1), sent));
        }
        assert!(!holder.on_grant(NodeId(2), Timestamp(4_000)));
        assert!(!holder.holds(Timestamp(5_000), NodeId(1)));
        assert!(holder.on_grant(NodeId(1), Timestamp(4_000)));
        for n in 0..1_000 {
            holder.on_asked(Timestamp::ZERO + LEASE_INTERVAL * n, NodeId(1));
        }
        assert!(holder.asked[&NodeId(1)].len() < 10);
    }

    #[test]
    fn a_lease_ends_at_its_time_and_a_clock_may_be_off_by_the_limit() {
        let (holder, granter) = (NodeId(0), NodeId(1));
        let now = Timestamp(1 << 60);
        let begin = Timestamp(now.0 - CLOCK_SKEW_MAX.0);
        for (sent, is_granted) in [
            (begin, true),
            (Timestamp(begin.0 - 1), false),
            (now + CLOCK_SKEW_MAX, true),
            (now + CLOCK_SKEW_MAX + Nanos(1), false),
        ] {
            let mut leases = Leases::default();
            assert_eq!(leases.on_request(now, (holder, 1), sent, 1), is_granted);
            let last = Timestamp(now.0 + LEASE.0 - 1);
            assert_eq!(leases.grants(last, holder), is_granted);
            assert!(!leases.grants(now + LEASE, holder));
        }
        let mut leases = Leases::default();
        leases.on_asked(now, granter);
        assert!(leases.on_grant(granter, now));
        let end = now + (LEASE - LEASE_MARGIN);
        assert!(leases.holds(Timestamp(end.0 - 1), granter));
        assert!(!leases.holds(end, granter));
    }
}
