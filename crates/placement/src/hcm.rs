//! Hierarchical, communication-aware placement: E3 (ATC 2019), Algorithm 1.
//!
//! Breadth-first from the source of the DAG, each service once, from the first parent that reaches
//! it. A shard of the source goes to the first node that fits. A shard of another service goes near
//! a shard of its parent: the levels seen from there are tried closest first, by best fit within a
//! level; if none fits, the first node that fits anywhere; if there is none, the node that is
//! exceeded least, flagged as overcommitted.
//!
//! What the printed algorithm leaves open, and how it is filled here:
//!
//! - *Which shard of the parent.* The one that owns the middle of the child's key slots. It spreads
//!   the children evenly over the parent's shards, and where a channel keeps the key of its
//!   request, it is the very shard that their messages come from.
//! - *First fit.* Servers in the topology's order, SmartNICs before the host, since their cores are
//!   powered in any case.
//! - *Backups* follow when all primaries stand, so that they never take a primary's place near its
//!   parent. They never share a server with another replica; another rack is better than the same,
//!   then the node that would be the least loaded if all its backups took over, so that the load of a
//!   lost server spreads over all others.
//!
//! The variant [`Levels::KindFirst`] prefers, among nodes at an equal distance in servers, the kind
//! that needs fewer joules for a request; see there.

use crate::cluster::Cluster;
use crate::decision::{InstanceKey, Near, PlaceError, Placement};
use crate::request::Request;
use crate::search::{Search, Variant};
use e3_model::limits::SLOTS;
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId, ShardId, Slot};
use std::collections::BTreeMap;

/// Places a whole application and reserves what it takes.
pub(crate) fn place(
    request: &Request<'_>,
    cluster: &mut Cluster,
    variant: Variant<'_>,
) -> Result<Placement, PlaceError> {
    let mut placement = Placement::default();
    let mut primaries: BTreeMap<ServiceId, Vec<NodeId>> = BTreeMap::new();
    for &(service, parent) in request.walk() {
        let shards = request.app.service(service).shards;
        for shard in (0..shards).map(ShardId) {
            let near = parent.map(|parent| near(shard, shards, parent, &primaries[&parent]));
            let search = Search::new(request, cluster, variant);
            let decision = search.primary(instance(service, shard, 0), near, &[])?;
            cluster.add(request, service, Role::Primary, decision.node);
            primaries.entry(service).or_default().push(decision.node);
            placement.decisions.push(decision);
        }
    }
    for &(service, _) in request.walk() {
        let s = request.app.service(service);
        for shard in (0..s.shards).map(ShardId) {
            let mut replicas = vec![primaries[&service][usize::from(shard.0)]];
            for replica in 1..s.replicas {
                let search = Search::new(request, cluster, variant);
                let decision = search.backup(instance(service, shard, replica), &replicas)?;
                cluster.add(request, service, Role::Backup, decision.node);
                replicas.push(decision.node);
                placement.decisions.push(decision);
            }
        }
    }
    Ok(placement)
}

/// What the primary of a shard should be near to, of its parent's primaries by shard.
pub(crate) fn near(shard: ShardId, shards: u16, parent: ServiceId, nodes: &[NodeId]) -> Near {
    let of = parent_shard(shard, shards, nodes.len() as u16);
    Near {
        instance: instance(parent, of, 0),
        node: nodes[usize::from(of.0)],
    }
}

pub(crate) fn instance(service: ServiceId, shard: ShardId, replica: u16) -> InstanceKey {
    InstanceKey {
        service,
        shard,
        replica,
    }
}

/// The shard of `parents` that owns the middle of the slots of shard `shard` of `shards`.
pub(crate) fn parent_shard(shard: ShardId, shards: u16, parents: u16) -> ShardId {
    let middle = (u32::from(shard.0) * 2 + 1) * u32::from(SLOTS) / (u32::from(shards) * 2);
    Slot(middle as u16).shard(parents)
}
