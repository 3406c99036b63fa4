//! What servers and racks draw: as meters say where they were read, and otherwise modelled from the cores that
//! the reports of nodes show as busy. A server draws its idle power also with nothing on it.

use super::following::Seen;
use crate::limits::REPORT_AGE_MAX;
use crate::state::Control;
use e3_model::meter::MeterScope;
use e3_model::{NodeId, ShardKey, Timestamp};
use e3_placement::Cluster;
use std::collections::{BTreeMap, BTreeSet};

/// What the meter of a node shows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeterReading {
    /// Watts.
    pub watts: f64,
    /// What they contain.
    pub scope: MeterScope,
}

/// The last readings of meters, by node.
#[derive(Debug, Default)]
pub(super) struct Meters(BTreeMap<NodeId, (Timestamp, MeterReading)>);

impl Meters {
    /// Takes a reading; none if the node has no meter that measures its own hardware.
    pub(super) fn on_reading(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reading: Option<MeterReading>,
    ) {
        match reading.filter(|r| r.watts.is_finite() && r.watts > 0.0) {
            Some(reading) => drop(self.0.insert(node, (now, reading))),
            None => drop(self.0.remove(&node)),
        }
    }

    fn of(&self, now: Timestamp, node: NodeId) -> Option<MeterReading> {
        let (at, reading) = self.0.get(&node)?;
        (now.since(*at) <= REPORT_AGE_MAX).then_some(*reading)
    }

    /// What meters say of a whole server: one that contains all of it, or one for each node.
    fn of_server(&self, now: Timestamp, nodes: &[NodeId]) -> Option<f64> {
        let readings = || nodes.iter().filter_map(|n| self.of(now, *n));
        if let Some(whole) = readings().find(|r| r.scope == MeterScope::Server) {
            return Some(whole.watts);
        }
        let own = readings().filter(|r| r.scope == MeterScope::Node);
        (own.clone().count() == nodes.len()).then(|| own.map(|r| r.watts).sum())
    }
}

/// What some servers draw.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Drawn {
    pub(super) watts: f64,
    pub(super) servers_measured: u32,
    pub(super) servers: u32,
}

impl Drawn {
    /// Where the figure comes from, in a word.
    pub(super) fn source(&self) -> &'static str {
        if self.servers_measured == self.servers {
            "measured"
        } else {
            "modelled"
        }
    }
}

/// What the nodes draw at a time, and what they would draw after some moves.
pub(super) struct Picture<'a> {
    pub(super) now: Timestamp,
    pub(super) control: &'a Control,
    pub(super) seen: &'a Seen<'a>,
    pub(super) meters: &'a Meters,
    /// Cores that decided moves add to nodes, or take from them.
    pub(super) moved: BTreeMap<NodeId, f64>,
    /// Instances that these moves are of.
    pub(super) chosen: BTreeSet<ShardKey>,
}

impl Picture<'_> {
    /// The same, to try further moves.
    pub(super) fn fork(&self) -> Self {
        Picture {
            moved: self.moved.clone(),
            chosen: self.chosen.clone(),
            ..*self
        }
    }
}

impl Picture<'_> {
    /// Cores that are busy on a node; none if that is not known. A node that is not heard does nothing.
    pub(super) fn busy_cores(&self, node: NodeId) -> Option<f64> {
        if !self.control.is_up(node) {
            return Some(0.0);
        }
        let reports = self.seen.reports.get(node.index());
        let reports = reports.filter(|r| r.is_known(self.now))?;
        Some(reports.busy_cores())
    }

    fn busy_after(&self, node: NodeId) -> Option<f64> {
        let moved = self.moved.get(&node).copied().unwrap_or(0.0);
        // Sums of fractions leave a rest, and a SmartNIC draws its power as soon as it does anything.
        let busy = self.busy_cores(node)? + moved;
        Some(if busy < 1e-6 { 0.0 } else { busy })
    }

    /// What servers draw, as lists of their nodes; none if the load of a node is not known.
    pub(super) fn drawn(&self, cluster: &Cluster, servers: &[Vec<NodeId>]) -> Option<Drawn> {
        let mut sum = Drawn::default();
        for nodes in servers {
            let Some(first) = nodes.first() else { continue };
            let (mut before_w, mut after_w) = (cluster.idle_w(*first), cluster.idle_w(*first));
            for node in nodes {
                before_w += cluster.active_w(*node, self.busy_cores(*node)?);
                after_w += cluster.active_w(*node, self.busy_after(*node)?);
            }
            let measured = self.meters.of_server(self.now, nodes);
            sum.servers += 1;
            sum.servers_measured += u32::from(measured.is_some());
            // What moves change is modelled in any case.
            sum.watts += measured.unwrap_or(before_w) + (after_w - before_w);
        }
        Some(sum)
    }

    /// Notes a move.
    pub(super) fn note(&mut self, from: NodeId, leaves_cores: f64, to: NodeId, comes_cores: f64) {
        *self.moved.entry(from).or_default() -= leaves_cores;
        *self.moved.entry(to).or_default() += comes_cores;
    }
}
