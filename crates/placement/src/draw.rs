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
    let now = |id: NodeId| used[id.index()];
    let drawn_w = server_w(cluster, server, now);
    let without_w = server_w(cluster, server, |other| {
        let mut rest = now(other);
        if other == id {
            rest.cpu_cores = (rest.cpu_cores - demand.cpu_cores).max(0.0);
            rest.memory_bytes = rest.memory_bytes.saturating_sub(demand.memory_bytes);
        }
        rest
    });
    if drawn_w - without_w <= ROUNDING {
        return false;
    }
    let (rack_max_w, servers) = budgets.rack_max_w(rack);
    let rack_w = || servers.map(|s| server_w(cluster, s, now)).sum::<f64>();
    drawn_w > budgets.server_max_w(server) + ROUNDING
        || (rack_max_w.is_finite() && rack_w() > rack_max_w + ROUNDING)
}

/// What a server draws if this is used on its nodes.
fn server_w(cluster: &Cluster, server: usize, used: impl Fn(NodeId) -> Demand) -> f64 {
    let nodes = || cluster.servers()[server].iter().copied();
    // Every instance takes memory.
    let is_awake = cluster.is_capped(server) || nodes().any(|id| used(id).memory_bytes > 0);
    let nodes_w = nodes().map(|id| node_w(cluster, id, used(id).cpu_cores));
    let idle_w = if is_awake {
        cluster.scale(server).idle_w
    } else {
        0.0
    };
    idle_w + nodes_w.sum::<f64>()
}

fn node_w(cluster: &Cluster, id: NodeId, busy_cores: f64) -> f64 {
    let node = cluster.node(id);
    node.watts(cluster.power(), busy_cores) * cluster.scale(node.server).factor
}
