//! What a default scheduler of a cluster does: each instance goes where its service has the fewest
//! instances so far (even spread over servers) and, of those, to the node with the most free
//! (least allocated). Replicas of a shard go to different racks first, if there are several. Distance, energy and kinds of node do not count.

use crate::assignment::{Assignment, reserve};
use crate::cluster::Cluster;
use crate::decision::{InstanceKey, PlaceError, Placement, Rule};
use crate::find::Wanted;
use crate::fit::{Ask, wanted};
use crate::hcm::instance;
use crate::index::slack_taken;
use crate::request::Request;
use crate::search::{PRINTED, Search};
use e3_model::{NodeId, ShardId};
use std::collections::BTreeMap;

/// Instances of a service, by server.
type OnServers = BTreeMap<usize, u16>;

/// Places a whole application and reserves what it takes.
pub(crate) fn place(request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
    let assignment = cluster.try_out(|cluster| assign(request, cluster))?;
    Ok(reserve(
        request,
        cluster,
        &assignment,
        Rule::Even,
        |_, _| Vec::new(),
    ))
}

fn assign(request: &Request<'_>, cluster: &mut Cluster) -> Result<Assignment, PlaceError> {
    let mut assignment = Assignment::new();
    for (service, _) in request.walk() {
        let spec = request.app.service(*service);
        let mut on_servers = OnServers::new();
        let mut shards = Vec::new();
        for shard in (0..spec.shards).map(ShardId) {
            let mut replicas = Vec::new();
            for replica in 0..spec.replicas {
                let key = instance(*service, shard, replica);
                let node = node(request, cluster, key, &replicas, &on_servers)?;
                cluster.add(request, *service, key.role(), node);
                *on_servers.entry(cluster.node(node).server).or_default() += 1;
                replicas.push(node);
            }
            shards.push(replicas);
        }
        assignment.push(shards);
    }
    Ok(assignment)
}

fn node(
    request: &Request<'_>,
    cluster: &Cluster,
    key: InstanceKey,
    apart: &[NodeId],
    on_servers: &OnServers,
) -> Result<NodeId, PlaceError> {
    let ask = Ask::new(key.service, key.role(), apart);
    let wanted = wanted(request, cluster, ask);
    let most = on_servers.values().max().copied().unwrap_or(0);
    let mut racks = wanted.other_racks_first(cluster, apart);
    let found = racks.find_map(|wanted| {
        (0..=most).find_map(|most| most_free(cluster, &wanted, on_servers, most))
    });
    match found {
        Some(node) => Ok(node),
        None => Search::new(request, cluster, PRINTED).closest(ask),
    }
}

/// Of the servers with at most so many instances of the service, the node with the most free.
fn most_free(
    cluster: &Cluster,
    wanted: &Wanted,
    on_servers: &OnServers,
    most: u16,
) -> Option<NodeId> {
    let mut best: Option<(f64, NodeId)> = None;
    for class in &cluster.index().classes {
        let Some(need) = wanted.need.of(class.kind) else {
            continue;
        };
        let accept = |id: NodeId| {
            let node = cluster.node(id);
            let there = on_servers.get(&node.server).copied().unwrap_or(0);
            there <= most && wanted.accepts(cluster, id)
        };
        if let Some((slack, id)) = class.by_slack.last(need, accept) {
            let left = slack - slack_taken(need, class.cores, class.memory_bytes);
            if best.is_none_or(|(b, other)| left > b || (left == b && id < other)) {
                best = Some((left, id));
            }
        }
    }
    best.map(|(_, id)| id)
}
