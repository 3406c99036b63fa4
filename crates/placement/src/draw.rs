//! What servers and racks draw under reservations that are tried out beside the cluster's own, against their
//! power budgets and caps. The same sums as in [`crate::budget`].

use crate::cluster::Cluster;
use crate::limits::ROUNDING;
use crate::request::Demand;
use e3_model::NodeId;

/// Whether the server or the rack of a node draws more than it may because of a demand that is part of what is
/// used on it. What adds nothing exceeds nothing.
pub(crate) fn is_over(cluster: &Cluster, used: &[Demand], id: NodeId, demand: &Demand) -> bool {
    let Some(budgets) = cluster.budgets() else {
        return false;
    };
    let (server, rack) = (cluster.node(id).server, cluster.node(id).rack);
    let drawn_w = server_w(cluster, used, server);
    if drawn_w - without_w(cluster, used, id, demand) <= ROUNDING {
        return false;
    }
    let (rack_max_w, servers) = budgets.rack_max_w(rack);
    let rack_w = || servers.map(|s| server_w(cluster, used, s)).sum::<f64>();
    drawn_w > budgets.server_max_w(server) + ROUNDING
        || (rack_max_w.is_finite() && rack_w() > rack_max_w + ROUNDING)
}

/// What a server draws.
fn server_w(cluster: &Cluster, used: &[Demand], server: usize) -> f64 {
    let nodes = || cluster.servers()[server].iter();
    let is_awake = cluster.is_capped(server) || nodes().any(|id| is_used(&used[id.index()]));
    let nodes_w = nodes().map(|id| node_w(cluster, *id, used[id.index()].cpu_cores));
    idle_w(cluster, server, is_awake) + nodes_w.sum::<f64>()
}

/// What the server of a node draws without a demand that is used on it.
fn without_w(cluster: &Cluster, used: &[Demand], id: NodeId, demand: &Demand) -> f64 {
    let here = &used[id.index()];
    let server = cluster.node(id).server;
    let mut others = cluster.servers()[server].iter().filter(|n| **n != id);
    let is_awake = cluster.is_capped(server)
        || here.memory_bytes > demand.memory_bytes
        || others.any(|n| is_used(&used[n.index()]));
    let others = cluster.servers()[server].iter().filter(|n| **n != id);
    let others_w = others.map(|n| node_w(cluster, *n, used[n.index()].cpu_cores));
    let left = (here.cpu_cores - demand.cpu_cores).max(0.0);
    idle_w(cluster, server, is_awake) + others_w.sum::<f64>() + node_w(cluster, id, left)
}

/// Whether anything is on a node. Every instance takes memory.
fn is_used(used: &Demand) -> bool {
    used.memory_bytes > 0
}

fn idle_w(cluster: &Cluster, server: usize, is_awake: bool) -> f64 {
    if is_awake {
        cluster.scale(server).idle_w
    } else {
        0.0
    }
}

fn node_w(cluster: &Cluster, id: NodeId, busy_cores: f64) -> f64 {
    let node = cluster.node(id);
    node.watts(cluster.power(), busy_cores) * cluster.scale(node.server).factor
}
