//! Whether an instance that runs would stand better elsewhere, by the placer's own measure.
//!
//! The placer chooses among equal nodes by what is free, which changes with every move. So its choice
//! alone would have instances follow each other around. Here a node is better only if it comes first
//! in what the placer looks at before that: an overcommitted node, the latency objective, the
//! distance, the kind of node with its joules; for a backup also a load that is lower by
//! [`LOAD_GAIN_MIN`]. Every such move lowers the same measure, so a series of them ends.

use crate::cluster::Cluster;
use crate::decision::{Decision, Level};
use crate::fit::{Ask, check, load_after_fail_over};
use crate::limits::LOAD_GAIN_MIN;
use crate::node_state::NodeState;
use crate::request::Request;
use crate::{near_parent, pick_backup, pick_primary};
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ServiceId, ShardId};

/// A better node for the primary on `at`, apart from its backups and near its parent, whose primaries
/// are on `parents`. The cluster is without the instance. None if the placer's choice is no better.
pub fn better_primary(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    shard: ShardId,
    at: NodeId,
    backups: &[NodeId],
    parents: &[NodeId],
) -> Option<Decision> {
    let decision = pick_primary(request, cluster, service, shard, parents, backups).ok()?;
    let near = near_parent(request, service, shard, parents).map(|near| near.node);
    let cost = |id| {
        let node = cluster.get(id)?;
        let ask = Ask::new(service, Role::Primary, backups);
        let exceeds = check(request, cluster, ask, id).is_err();
        let near = near.filter(|near| cluster.get(*near).is_some());
        let level = near.map(|near| cluster.level(near, id));
        let late = request.cost(service, node.kind).late;
        let other_kind = is_other_kind(request, service, node.kind);
        Some((exceeds, late, level.map(reach), other_kind, level))
    };
    (decision.overcommitted.is_none() && cost(decision.node)? < cost(at)?).then_some(decision)
}

/// A better node for the backup on `at` of a shard whose other replicas are on `replicas`, the primary
/// first. The cluster is without the instance. None if the placer's choice is no better.
pub fn better_backup(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    shard: ShardId,
    at: NodeId,
    replicas: &[NodeId],
) -> Option<Decision> {
    let decision = pick_backup(request, cluster, service, shard, replicas).ok()?;
    let shares_rack = |node: &NodeState| {
        let mut others = replicas.iter().filter_map(|r| cluster.get(*r));
        cluster.racks() > 1 && others.any(|other| other.rack == node.rack)
    };
    let cost = |id| {
        let node = cluster.get(id)?;
        let ask = Ask::new(service, Role::Backup, replicas);
        let exceeds = check(request, cluster, ask, id).is_err();
        let other_kind = is_other_kind(request, service, node.kind);
        let load = load_after_fail_over(request, node, service);
        Some(((exceeds, shares_rack(node), other_kind), load))
    };
    let ((there, load_there), (here, load_here)) = (cost(decision.node)?, cost(at)?);
    let is_better = there < here || (there == here && load_there + LOAD_GAIN_MIN < load_here);
    (decision.overcommitted.is_none() && is_better).then_some(decision)
}

/// Whether the service should run on the other kind of node.
fn is_other_kind(request: &Request<'_>, service: ServiceId, kind: NodeKind) -> bool {
    let preferred = request.preference(service).kind();
    preferred.is_some_and(|p| p != kind)
}

/// How far a level reaches: the server, the rack, other racks.
fn reach(level: Level) -> u8 {
    (level.number() - 1) / 2
}
