//! The servers that placers of whole applications consider.

use crate::cluster::Cluster;
use crate::limits::CANDIDATES_MAX;
use crate::request::{Demand, Request};
use e3_model::ServiceId;
use e3_model::application::Pin;

/// Servers in the order in which they would be used.
pub(crate) fn servers(request: &Request<'_>, cluster: &Cluster) -> Vec<usize> {
    let mut ranked: Vec<(bool, f64, usize)> = Vec::new();
    for (index, nodes) in cluster.servers().iter().enumerate() {
        let nodes = nodes.iter().map(|id| cluster.node(*id));
        let usable = nodes.clone().filter(|n| n.member && !n.drained);
        let left = usable.map(|n| n.cpu_left_cores().max(0.0)).sum::<f64>();
        if left > 0.0 {
            let is_asleep = nodes.clone().all(|n| n.used == Demand::default());
            ranked.push((is_asleep, -left, index));
        }
    }
    let by_rank = |a: &(bool, f64, usize), b: &(bool, f64, usize)| {
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    };
    // Awake servers and as many sleeping ones: more would not be used.
    if ranked.len() > 4 * CANDIDATES_MAX {
        ranked.select_nth_unstable_by(4 * CANDIDATES_MAX, by_rank);
        ranked.truncate(4 * CANDIDATES_MAX);
    }
    ranked.sort_unstable_by(by_rank);
    let ranked: Vec<usize> = ranked.into_iter().map(|(_, _, index)| index).collect();
    let replicas = request.services().map(|s| request.app.service(s).replicas);
    let needed = usize::from(replicas.max().unwrap_or(1));
    let mut servers = if needed > 1 && cluster.racks() > 1 {
        racks_in_turn(cluster, &ranked, needed)
    } else {
        ranked
    };
    let pinned = request
        .services()
        .filter_map(|s| pinned_server(request, cluster, s));
    for server in pinned {
        servers.retain(|s| *s != server);
        servers.insert(0, server);
    }
    for service in request.services() {
        equipped_first(request, cluster, service, &mut servers);
    }
    servers.truncate(CANDIDATES_MAX.max(needed));
    servers
}

/// Puts servers with the accelerators that a service requires first, if too few are among those that will be
/// considered.
fn equipped_first(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    servers: &mut Vec<usize>,
) {
    let required = request.accelerators_required(service);
    let has_all = |server: &usize| {
        let nodes = cluster.servers()[*server]
            .iter()
            .map(|id| cluster.node(*id));
        let mut usable = nodes.filter(|n| n.member && !n.drained);
        usable.any(|n| n.accelerators.include(required))
    };
    let replicas = usize::from(request.app.service(service).replicas);
    let first = servers.iter().take(CANDIDATES_MAX);
    if first.filter(|s| has_all(s)).count() >= replicas {
        return;
    }
    let equipped = (0..cluster.servers().len()).filter(|s| has_all(s));
    let equipped: Vec<usize> = equipped.take(CANDIDATES_MAX.min(replicas)).collect();
    servers.retain(|s| !equipped.contains(s));
    servers.splice(0..0, equipped);
}

fn pinned_server(request: &Request<'_>, cluster: &Cluster, service: ServiceId) -> Option<usize> {
    match request.app.service(service).pin.as_ref()? {
        Pin::Node(name) => Some(cluster.node(cluster.named(name)?).server),
        Pin::Kind(_) => None,
    }
}

/// As many racks in turn, a server of each, as a shard has replicas; then the rest.
fn racks_in_turn(cluster: &Cluster, ranked: &[usize], replicas: usize) -> Vec<usize> {
    let rack = |server: usize| cluster.node(cluster.servers()[server][0]).rack;
    let mut racks: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut rest = Vec::new();
    for server in ranked {
        let of = rack(*server);
        match racks.iter().position(|(known, _)| *known == of) {
            Some(at) => racks[at].1.push(*server),
            None if racks.len() < replicas => racks.push((of, vec![*server])),
            None => rest.push(*server),
        }
    }
    let most = racks.iter().map(|(_, servers)| servers.len()).max();
    let turns = (0..most.unwrap_or(0)).flat_map(|turn| {
        racks
            .iter()
            .filter_map(move |(_, servers)| servers.get(turn))
    });
    turns.chain(&rest).copied().collect()
}
