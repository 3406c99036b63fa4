//! What an instance would cost on other nodes, by the measure of [`evaluate()`], with everything else as placed.
//! So each decision of any placer can be compared with what it could have been.

use crate::cluster::Cluster;
use crate::decision::{Decision, Placement};
use crate::evaluate::evaluate;
use crate::fit::{Ask, check};
use crate::limits::WEIGHED_MAX;
use crate::misfit::Misfit;
use crate::request::Request;
use e3_model::{NodeId, Profile, ServiceId, Topology};
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole placement with an instance on a certain node. All of it is modelled.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// Energy of a client's request at the knee, in microjoules.
    pub uj: f64,
    /// Time of the longest path through an idle cluster, in microseconds.
    pub path_us: f64,
    /// Time that the messages of a request spend between nodes, in microseconds; one direction.
    pub between_us: f64,
}

/// A node for an instance.
#[derive(Clone, PartialEq, Debug)]
pub struct Weighed {
    /// Node.
    pub node: NodeId,
    /// What it would cost there. None if the node is rejected, or the profiles do not know all services.
    pub price: Option<Price>,
    /// Why the node is rejected, or what it lacks if the instance is on it nevertheless.
    pub misfit: Option<Misfit>,
}

/// The nodes of one decision, or of several that are alike.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternatives {
    /// Decisions by their place in the placement: instances of one service in one role on one node, whose shards
    /// have their other replicas on the same nodes, and all of which fit or none. Each would cost the same elsewhere.
    pub decisions: Vec<usize>,
    /// Nodes, at most [`WEIGHED_MAX`]: the cheapest first, rejected ones last.
    pub nodes: Vec<Weighed>,
    /// Nodes of the cluster beyond those.
    pub more: usize,
}

/// What decides whether two decisions are alike.
type Key = (ServiceId, bool, NodeId, Vec<NodeId>, bool);

fn key(placement: &Placement, d: &Decision) -> Key {
    let replicas = placement.replicas(d.key.service, d.key.shard).into_iter();
    let others = replicas.enumerate();
    let others = others.filter(|(replica, _)| *replica != usize::from(d.key.replica));
    let others = others.map(|(_, node)| node).collect();
    let is_over = d.overcommitted.is_some();
    (d.key.service, d.key.replica == 0, d.node, others, is_over)
}

/// Weighs all decisions of a placement on a cluster that runs nothing else, in the order in which they were taken.
pub fn weigh(
    request: &Request<'_>,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placement: &Placement,
) -> Vec<Alternatives> {
    let mut order: Vec<Key> = Vec::new();
    let mut alike: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (at, decision) in placement.decisions.iter().enumerate() {
        let key = key(placement, decision);
        if !alike.contains_key(&key) {
            order.push(key.clone());
        }
        alike.entry(key).or_default().push(at);
    }
    let mut cluster = Cluster::new(topology);
    for d in &placement.decisions {
        cluster.add(request, d.key.service, d.key.role(), d.node);
    }
    let nodes = nodes(&cluster, placement);
    let more = cluster.nodes().count() - nodes.len();
    let groups = order.into_iter().map(|key| {
        let decisions = alike.remove(&key).expect("it was put there");
        let at = decisions[0];
        let (d, others) = (&placement.decisions[at], key.3);
        let role = d.key.role();
        cluster.remove(request, d.key.service, role, d.node);
        let mut trial = placement.clone();
        let weighed = nodes.iter().map(|node| {
            let misfit = if *node == d.node {
                d.overcommitted.clone()
            } else {
                let ask = Ask::new(d.key.service, role, &others);
                check(request, &cluster, ask, *node).err()
            };
            let price = (*node == d.node || misfit.is_none()).then(|| {
                trial.decisions[at].node = *node;
                evaluate(request, topology, profiles, &trial).ok()
            });
            Weighed {
                node: *node,
                price: price.flatten().map(|score| Price {
                    uj: 1e6 / score.requests_per_joule,
                    path_us: score.latency_us,
                    between_us: score.communication_us,
                }),
                misfit,
            }
        });
        let mut weighed: Vec<Weighed> = weighed.collect();
        cluster.add(request, d.key.service, role, d.node);
        let uj = |w: &Weighed| w.price.map_or(f64::INFINITY, |price| price.uj);
        let is_out = |w: &Weighed| w.misfit.is_some() && w.node != d.node;
        weighed.sort_by(|a, b| {
            let by_cost = is_out(a).cmp(&is_out(b)).then(uj(a).total_cmp(&uj(b)));
            by_cost.then((a.node != d.node).cmp(&(b.node != d.node)))
        });
        Alternatives {
            decisions,
            nodes: weighed,
            more,
        }
    });
    groups.collect()
}

/// The nodes that are weighed: those that the placement uses, the rest of their servers, then the others.
fn nodes(cluster: &Cluster, placement: &Placement) -> Vec<NodeId> {
    let used = |id: &NodeId| placement.decisions.iter().any(|d| d.node == *id);
    let is_awake = |server: usize| cluster.servers()[server].iter().any(used);
    let mut nodes: Vec<(bool, bool, NodeId)> = cluster
        .nodes()
        .map(|(id, node)| (!used(&id), !is_awake(node.server), id))
        .collect();
    nodes.sort_unstable();
    // What is used is weighed in any case.
    let used = nodes.iter().filter(|(is_unused, ..)| !is_unused).count();
    nodes.truncate(WEIGHED_MAX.max(used));
    nodes.into_iter().map(|(.., id)| id).collect()
}
