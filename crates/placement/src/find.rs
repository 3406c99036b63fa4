//! The four questions that a search asks of a cluster, answered by the index or, for comparison, by
//! walking all nodes. Both give the same answers.

use crate::cluster::Cluster;
use crate::decision::Level;
use crate::fit::{Ask, check_hard, excess};
use crate::index::{Class, Free, Need, Visit, slack, slack_taken, standby};
use crate::limits::ROUNDING;
use crate::node_state::NodeState;
use crate::request::{Demand, Request};
use e3_model::NodeId;
use std::ops::Range;

/// What a node is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What it must have, by kind.
    pub(crate) need: Need,
    /// The node to which it is pinned; Some(None) if there is no such node.
    pub(crate) only: Option<Option<NodeId>>,
    /// Servers that hold another replica of the shard.
    pub(crate) apart: Vec<usize>,
    /// Racks that are not used.
    pub(crate) avoided: Vec<usize>,
}

/// Nodes that were looked at and are too small.
pub(crate) type TooSmall<'a> = &'a mut dyn FnMut(&[NodeId]);

/// A way to find nodes.
pub(crate) trait Find {
    /// The first in the order of first fit.
    fn first(&self, cluster: &Cluster, wanted: &Wanted, small: TooSmall<'_>) -> Option<NodeId>;
    /// Of those at a distance the one that the instance leaves the least of; of equal ones that with
    /// the lowest id.
    fn best(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        from: NodeId,
        at: Level,
        small: TooSmall<'_>,
    ) -> Option<NodeId>;
    /// The one with the fewest cores in use after all backups took over, the instance's `full`
    /// demand included, as a part of its cores; none in `racks`.
    fn least_loaded(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        full: &Need,
        racks: &[usize],
    ) -> Option<(f64, NodeId)>;
    /// The one that is exceeded least of those that are allowed at all; of equal ones that with the
    /// lowest id.
    fn exceeded_least(
        &self,
        cluster: &Cluster,
        request: &Request<'_>,
        ask: Ask<'_>,
    ) -> Option<NodeId>;
}

/// Uses the cluster's index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indexed;

/// Walks all nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear;

impl Wanted {
    /// The same under other needs.
    pub(crate) fn with(&self, need: Need) -> Wanted {
        Wanted {
            need,
            ..self.clone()
        }
    }

    /// The same in other racks than those of the shard's other replicas, if there are several racks; then the
    /// same in all.
    pub(crate) fn other_racks_first(
        self,
        cluster: &Cluster,
        replicas: &[NodeId],
    ) -> impl Iterator<Item = Wanted> {
        let known = replicas.iter().filter_map(|id| cluster.get(*id));
        let avoided: Vec<usize> = known.map(|n| n.rack).collect();
        let is_any = cluster.racks() > 1 && !avoided.is_empty();
        let first = is_any.then(|| Wanted {
            avoided,
            ..self.clone()
        });
        first.into_iter().chain([self])
    }

    /// Whether a node is large enough.
    fn fits(&self, node: &NodeState) -> bool {
        let need = self.need.of(node.kind);
        need.is_some_and(|need| Free::of(node).holds(need))
    }

    /// Whether a node that is large enough may be taken.
    pub(crate) fn accepts(&self, cluster: &Cluster, id: NodeId) -> bool {
        let node = cluster.node(id);
        let is_powered = |need| cluster.power_misfit(id, need).is_none();
        self.only.is_none_or(|only| only == Some(id))
            && !self.apart.contains(&node.server)
            && !self.avoided.contains(&node.rack)
            && self.need.of(node.kind).is_none_or(is_powered)
    }
}

/// What is left of a node after an instance, then its slack before: smaller is a better fit.
type Score = (f64, f64, NodeId);

fn score(wanted: &Wanted, id: NodeId, node: &NodeState) -> Option<Score> {
    let need = wanted.need.of(node.kind)?;
    let slack = slack(node);
    let left = slack - slack_taken(need, node.cores, node.memory_bytes);
    Some((left, slack, id))
}

/// As [`score`], by load.
fn load_score(full: &Need, id: NodeId, node: &NodeState) -> Option<Score> {
    let need = full.of(node.kind)?;
    let standby = standby(node);
    Some(((standby + need.cpu_cores) / node.cores, standby, id))
}

fn lower(best: &mut Option<Score>, score: Option<Score>) {
    if let Some(score) = score
        && best.is_none_or(|b| score < b)
    {
        *best = Some(score);
    }
}

/// Whether a node is at a distance from another.
fn is_at(cluster: &Cluster, from: NodeId, to: NodeId, at: Level) -> bool {
    cluster.level(from, to) == at
}

/// Searches some nodes one by one.
fn best_of(
    cluster: &Cluster,
    wanted: &Wanted,
    nodes: impl Iterator<Item = NodeId>,
    small: TooSmall<'_>,
) -> Option<Score> {
    let mut best = None;
    for id in nodes {
        let node = cluster.node(id);
        if !wanted.fits(node) {
            small(&[id]);
        } else if wanted.accepts(cluster, id) {
            lower(&mut best, score(wanted, id, node));
        }
    }
    best
}

impl Find for Indexed {
    fn first(&self, cluster: &Cluster, wanted: &Wanted, small: TooSmall<'_>) -> Option<NodeId> {
        let order = cluster.first_fit_order();
        let visit = |visit| match visit {
            Visit::Fits(at) => wanted.accepts(cluster, order[at]),
            Visit::TooSmall(range) => {
                small(&order[range]);
                false
            }
        };
        let first_fit = &cluster.index().first_fit;
        let found = first_fit.search(0..order.len(), &wanted.need, visit);
        found.map(|at| order[at])
    }

    fn best(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        from: NodeId,
        at: Level,
        small: TooSmall<'_>,
    ) -> Option<NodeId> {
        let best = match at {
            // All nodes are at the levels of a rack.
            Level::SameNode | Level::SameServer | Level::FarSmartNic | Level::FarHost
                if !cluster.shows_levels() =>
            {
                None
            }
            Level::SameNode => best_of(cluster, wanted, [from].into_iter(), small),
            Level::SameServer => {
                let server = cluster.server_of(from).iter().copied();
                best_of(cluster, wanted, server.filter(|id| *id != from), small)
            }
            Level::RackSmartNic | Level::RackHost => {
                let rack = cluster.rack_of(from);
                best_in_rack(cluster, wanted, from, at, rack, small)
            }
            Level::FarSmartNic | Level::FarHost => best_elsewhere(cluster, wanted, from, at),
        };
        best.map(|(_, _, id)| id)
    }

    fn least_loaded(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        full: &Need,
        racks: &[usize],
    ) -> Option<(f64, NodeId)> {
        let mut best = None;
        for class in &cluster.index().classes {
            let Some(need) = wanted.need.of(class.kind) else {
                continue;
            };
            let accept = |id| {
                let node = cluster.node(id);
                wanted.accepts(cluster, id) && !racks.contains(&node.rack)
            };
            let found = class.by_standby.first(f64::NEG_INFINITY, need, accept);
            let score = found.and_then(|(_, id)| load_score(full, id, cluster.node(id)));
            lower(&mut best, score);
        }
        best.map(|(load, _, id)| (load, id))
    }

    fn exceeded_least(
        &self,
        cluster: &Cluster,
        request: &Request<'_>,
        ask: Ask<'_>,
    ) -> Option<NodeId> {
        let index = cluster.index();
        let mut best = None;
        for class in &index.classes {
            let demand = request.demand(ask.service, ask.role, class.kind);
            // The most free nodes are the least exceeded ones, mostly.
            for (max, nodes) in class.by_slack.blocks().rev() {
                let least = least_excess(class, max, &demand);
                let has_all = max.accelerators.include(demand.accelerators);
                if has_all && best.is_none_or(|(excess, _)| least <= excess) {
                    for id in nodes {
                        less_exceeded(&mut best, cluster, request, ask, id);
                    }
                }
            }
        }
        for id in &index.waiting {
            less_exceeded(&mut best, cluster, request, ask, *id);
        }
        best.map(|(_, id)| id)
    }
}

/// By how much a node would be exceeded, as [`excess`] has it, and the node.
type Exceeded = ((bool, f64), NodeId);

fn less_exceeded(
    best: &mut Option<Exceeded>,
    cluster: &Cluster,
    request: &Request<'_>,
    ask: Ask<'_>,
    id: NodeId,
) {
    let exceeded = (excess(request, cluster, id, ask), id);
    let is_less = best.is_none_or(|b| exceeded < b);
    if is_less && check_hard(request, cluster, ask, id).is_ok() {
        *best = Some(exceeded);
    }
}

/// No node of a class that has at most `max` left is exceeded less.
fn least_excess(class: &Class, max: Free, demand: &Demand) -> (bool, f64) {
    let used_bytes = class.memory_bytes.saturating_sub(max.memory_bytes);
    let bytes = used_bytes.saturating_add(demand.memory_bytes);
    let cores = class.cores - max.cpu_cores + demand.cpu_cores;
    let ratio = (bytes as f64 / class.memory_bytes as f64).max(cores / class.cores);
    let is_over = bytes > class.memory_bytes || demand.disk_bytes > max.disk_bytes;
    (is_over, ratio - ROUNDING)
}

fn best_in_rack(
    cluster: &Cluster,
    wanted: &Wanted,
    from: NodeId,
    at: Level,
    rack: Range<usize>,
    small: TooSmall<'_>,
) -> Option<Score> {
    let order = cluster.first_fit_order();
    let mut best = None;
    let visit = |visit| {
        match visit {
            Visit::Fits(place) => {
                let (id, node) = (order[place], cluster.node(order[place]));
                if is_at(cluster, from, id, at) && wanted.accepts(cluster, id) {
                    lower(&mut best, score(wanted, id, node));
                }
            }
            Visit::TooSmall(range) => small(&order[range]),
        }
        false
    };
    let first_fit = &cluster.index().first_fit;
    first_fit.search(rack, &of_level(&wanted.need, at), visit);
    best
}

/// What a demand is at a distance at which there is one kind of node only.
fn of_level(need: &Need, at: Level) -> Need {
    match at {
        Level::RackSmartNic | Level::FarSmartNic => Need {
            host: None,
            ..*need
        },
        Level::RackHost | Level::FarHost => Need {
            smartnic: None,
            ..*need
        },
        Level::SameNode | Level::SameServer => *need,
    }
}

fn best_elsewhere(cluster: &Cluster, wanted: &Wanted, from: NodeId, at: Level) -> Option<Score> {
    let rack = cluster.node(from).rack;
    let need = of_level(&wanted.need, at);
    let mut best = None;
    for class in &cluster.index().classes {
        let Some(need) = need.of(class.kind) else {
            continue;
        };
        let accept = |id| {
            let node = cluster.node(id);
            node.rack != rack && wanted.accepts(cluster, id)
        };
        let found = class
            .by_slack
            .first(lowest_slack(need, class), need, accept);
        let score = found.and_then(|(_, id)| score(wanted, id, cluster.node(id)));
        lower(&mut best, score);
    }
    best
}

/// A node with less slack cannot hold the demand; with room for rounding.
fn lowest_slack(need: &Demand, class: &Class) -> f64 {
    slack_taken(need, class.cores, class.memory_bytes) - 2.0 * ROUNDING
}

impl Find for Linear {
    fn first(&self, cluster: &Cluster, wanted: &Wanted, small: TooSmall<'_>) -> Option<NodeId> {
        let mut order = cluster.first_fit_order().iter().copied();
        order.find(|id| {
            let node = cluster.node(*id);
            let fits = wanted.fits(node);
            if !fits {
                small(&[*id]);
            }
            fits && wanted.accepts(cluster, *id)
        })
    }

    fn best(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        from: NodeId,
        at: Level,
        small: TooSmall<'_>,
    ) -> Option<NodeId> {
        let all = cluster.nodes().map(|(id, _)| id);
        let nodes = all.filter(|id| is_at(cluster, from, *id, at));
        best_of(cluster, wanted, nodes, small).map(|(_, _, id)| id)
    }

    fn least_loaded(
        &self,
        cluster: &Cluster,
        wanted: &Wanted,
        full: &Need,
        racks: &[usize],
    ) -> Option<(f64, NodeId)> {
        let mut best = None;
        for (id, node) in cluster.nodes() {
            if wanted.fits(node) && wanted.accepts(cluster, id) && !racks.contains(&node.rack) {
                lower(&mut best, load_score(full, id, node));
            }
        }
        best.map(|(load, _, id)| (load, id))
    }

    fn exceeded_least(
        &self,
        cluster: &Cluster,
        request: &Request<'_>,
        ask: Ask<'_>,
    ) -> Option<NodeId> {
        let mut best = None;
        for (id, _) in cluster.nodes() {
            less_exceeded(&mut best, cluster, request, ask, id);
        }
        best.map(|(_, id)| id)
    }
}
