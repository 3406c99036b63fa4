//! As many services on SmartNICs as their memory holds, whatever that does to their cores; the rest as
//! [`crate::Hcm`] places it. On the same kind of node a replica goes to another rack first. E3's experiment on overload (ATC 2019, 5.2) starts from this.

use crate::assignment::{Assignment, reserve};
use crate::cluster::Cluster;
use crate::decision::{InstanceKey, PlaceError, Placement, Rule};
use crate::find::{Find, Indexed, Wanted};
use crate::fit::{Ask, wanted};
use crate::hcm::instance;
use crate::index::Need;
use crate::request::{Demand, Request};
use crate::search::{PRINTED, Search};
use e3_model::{NodeId, ShardId};

/// Places a whole application and reserves what it takes.
pub(crate) fn place(request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
    let assignment = cluster.try_out(|cluster| assign(request, cluster))?;
    Ok(reserve(
        request,
        cluster,
        &assignment,
        Rule::SmartNicFirst,
        |_, _| Vec::new(),
    ))
}

/// Primaries first, so that no backup takes a primary's place.
fn assign(request: &Request<'_>, cluster: &mut Cluster) -> Result<Assignment, PlaceError> {
    let shards = |s| vec![Vec::new(); usize::from(request.app.service(s).shards)];
    let mut assignment: Assignment = request.walk().iter().map(|(s, _)| shards(*s)).collect();
    let replicas = request.services().map(|s| request.app.service(s).replicas);
    for replica in 0..replicas.max().unwrap_or(0) {
        for (place, (service, _)) in request.walk().iter().enumerate() {
            let spec = request.app.service(*service);
            if replica >= spec.replicas {
                continue;
            }
            for (shard, nodes) in (0..).map(ShardId).zip(&mut assignment[place]) {
                let key = instance(*service, shard, replica);
                let node = node(request, cluster, key, nodes)?;
                cluster.add(request, *service, key.role(), node);
                nodes.push(node);
            }
        }
    }
    Ok(assignment)
}

fn node(
    request: &Request<'_>,
    cluster: &Cluster,
    key: InstanceKey,
    apart: &[NodeId],
) -> Result<NodeId, PlaceError> {
    let ask = Ask::new(key.service, key.role(), apart);
    let wanted = wanted(request, cluster, ask);
    let memory_only = wanted.need.smartnic.map(|need| Demand {
        cpu_cores: f64::NEG_INFINITY,
        bandwidth_gbps: f64::NEG_INFINITY,
        ..need
    });
    let on_smartnics = wanted.with(Need {
        host: None,
        smartnic: memory_only,
    });
    let first = |wanted: Wanted| {
        let mut racks = wanted.other_racks_first(cluster, apart);
        racks.find_map(|wanted| Indexed.first(cluster, &wanted, &mut |_| ()))
    };
    match first(on_smartnics).or_else(|| first(wanted)) {
        Some(node) => Ok(node),
        None => Search::new(request, cluster, PRINTED).closest(ask),
    }
}
