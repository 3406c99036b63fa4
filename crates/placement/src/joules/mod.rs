//! Placement for the fewest joules a request, under the latency objective.
//!
//! The application is looked at whole, by the modelled energy of a request at its knee: what the
//! instances make their nodes draw, divided by the rate at which the first resource reaches its
//! limit. Servers that run nothing sleep.
//!
//! 1. *Servers.* Those that are awake come first, the most free ones before the others; with replicas
//!    and several racks, two racks in turn.
//! 2. *Kinds.* By comparative advantage: services in the order of their core time on a SmartNIC
//!    against that on a host. A prefix of this order goes to SmartNICs, the rest to hosts; the split
//!    that needs the fewest joules wins. A kind that cannot hold the latency objective is not used.
//!    Within a kind the load is balanced, the largest shards first.
//! 3. *How many servers.* The fewest whose energy is within [`CONSOLIDATION`] of the best.
//! 4. *Descent.* Single changes are made as long as they save energy.
//! 5. *Shards.* Primaries near their parents' shards as far as the counts allow; replicas apart.
//!
//! What fits nowhere by these rules is placed as `hcm-kind` places it, with its flags.

mod assign;
mod descent;
mod layout;
mod model;

use crate::cluster::Cluster;
use crate::decision::{Cost, Decision, InstanceKey, PlaceError, Placement, Rule};
use crate::fit::{Ask, Kinds, check, level};
use crate::hcm::{instance, near};
use crate::request::{Demand, Request};
use crate::{HcmKind, Placer};
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId};
use layout::Layout;
use model::Model;
use std::collections::BTreeMap;

/// Servers are left asleep if the energy of a request is at most so much above the best.
const CONSOLIDATION: f64 = 1.02;
/// Servers that are considered.
const SERVERS_MAX: usize = 16;
/// Numbers of servers that are tried after the best one so far.
const PATIENCE: usize = 3;

/// Places a whole application and reserves what it takes.
pub(crate) fn place(
    request: &Request<'_>,
    cluster: &mut Cluster,
) -> Result<Placement, PlaceError> {
    let model = Model::new(request, cluster, &servers(request, cluster));
    match best(&model) {
        Some(layout) => Ok(reserve(request, cluster, &layout)),
        None => HcmKind.place(request, cluster),
    }
}

/// Servers in the order in which they would be used.
fn servers(request: &Request<'_>, cluster: &Cluster) -> Vec<usize> {
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
    if ranked.len() > 4 * SERVERS_MAX {
        ranked.select_nth_unstable_by(4 * SERVERS_MAX, by_rank);
        ranked.truncate(4 * SERVERS_MAX);
    }
    ranked.sort_unstable_by(by_rank);
    let ranked: Vec<usize> = ranked.into_iter().map(|(_, _, index)| index).collect();
    let has_replicas = request.services().any(|s| request.app.service(s).replicas > 1);
    let mut servers = match has_replicas && cluster.racks() > 1 {
        true => two_racks_in_turn(cluster, &ranked),
        false => ranked,
    };
    let replicas = request.services().map(|s| request.app.service(s).replicas);
    let needed = usize::from(replicas.max().unwrap_or(1));
    let pinned = request.services().filter_map(|s| pinned_server(request, cluster, s));
    for server in pinned {
        servers.retain(|s| *s != server);
        servers.insert(0, server);
    }
    servers.truncate(SERVERS_MAX.max(needed));
    servers
}

fn pinned_server(request: &Request<'_>, cluster: &Cluster, service: ServiceId) -> Option<usize> {
    match request.app.service(service).pin.as_ref()? {
        e3_model::application::Pin::Node(name) => Some(cluster.node(cluster.named(name)?).server),
        e3_model::application::Pin::Kind(_) => None,
    }
}

/// The first server, the next one in another rack, and so on with these two racks; then the rest.
fn two_racks_in_turn(cluster: &Cluster, ranked: &[usize]) -> Vec<usize> {
    let rack = |server: &usize| cluster.node(cluster.servers()[*server][0]).rack;
    let Some(one) = ranked.first().map(rack) else {
        return Vec::new();
    };
    let Some(other) = ranked.iter().map(rack).find(|r| *r != one) else {
        return ranked.to_vec();
    };
    let of = |wanted: usize| ranked.iter().copied().filter(move |s| rack(s) == wanted);
    let (mut ones, mut others) = (of(one), of(other));
    let mut servers = Vec::new();
    loop {
        let pair = [ones.next(), others.next()];
        if pair == [None, None] {
            break;
        }
        servers.extend(pair.into_iter().flatten());
    }
    let rest = ranked.iter().copied();
    servers.extend(rest.filter(|s| rack(s) != one && rack(s) != other));
    servers
}

/// The layout that is descended from, and its descent.
fn best(model: &Model) -> Option<Layout<'_>> {
    let needed = model.parts.iter().map(|p| p.replicas).max().unwrap_or(1);
    let mut tried: Vec<(f64, Layout<'_>)> = Vec::new();
    let mut lowest = f64::INFINITY;
    let mut since = 0;
    for servers in needed..=model.servers.len() {
        let Some((joules, layout)) = best_split(model, servers) else {
            continue;
        };
        tried.push((joules, layout));
        since = if joules < lowest { 0 } else { since + 1 };
        lowest = lowest.min(joules);
        if since == PATIENCE {
            break;
        }
    }
    let chosen = tried.into_iter().find(|(joules, _)| *joules <= lowest * CONSOLIDATION);
    chosen.map(|(_, layout)| descent::descend(layout))
}

/// The best of the balanced layouts on so many servers, one for each split of the services.
fn best_split(model: &Model, servers: usize) -> Option<(f64, Layout<'_>)> {
    let mut order: Vec<usize> = (0..model.parts.len()).collect();
    order.sort_by(|a, b| {
        let advantage = |i: &usize| model.parts[*i].advantage().unwrap_or(f64::INFINITY);
        advantage(a).total_cmp(&advantage(b))
    });
    let shards: Vec<usize> = order.iter().map(|i| model.parts[*i].shards).collect();
    let all: usize = shards.iter().sum();
    let mut best: Option<(f64, Layout<'_>)> = None;
    for on_smartnics in 0..=all {
        let mut left = on_smartnics;
        let mut by_part = vec![0; model.parts.len()];
        for (part, shards) in order.iter().zip(&shards) {
            by_part[*part] = left.min(*shards);
            left -= by_part[*part];
        }
        let Some(layout) = Layout::balanced(model, servers, &by_part) else {
            continue;
        };
        let Some(knee) = layout.knee() else { continue };
        if best.as_ref().is_none_or(|(joules, _)| knee.joules < *joules) {
            best = Some((knee.joules, layout));
        }
    }
    best
}

/// Turns counts into decisions and reserves what they take.
fn reserve(request: &Request<'_>, cluster: &mut Cluster, layout: &Layout<'_>) -> Placement {
    let model = layout.model;
    let walk = request.walk();
    let place = |s: ServiceId| walk.iter().position(|(w, _)| *w == s);
    let parents: Vec<Option<usize>> = walk.iter().map(|(_, p)| p.and_then(place)).collect();
    let sites = assign::assign(cluster, model, &layout.counts, &parents);
    let mut primaries: BTreeMap<ServiceId, Vec<NodeId>> = BTreeMap::new();
    let mut placement = Placement::default();
    for is_primary in [true, false] {
        for (part, &(service, parent)) in walk.iter().enumerate() {
            let considered = considered(request, layout, part, is_primary);
            for (shard, replicas) in (0..).map(e3_model::ShardId).zip(&sites[part]) {
                let nodes: Vec<NodeId> = replicas.iter().map(|s| model.sites[*s].id).collect();
                let of_role = if is_primary { 0..1 } else { 1..nodes.len() };
                for replica in of_role {
                    let near = match (is_primary, parent) {
                        (true, None) => None,
                        (true, Some(parent)) => {
                            let shards = request.app.service(service).shards;
                            Some(near(shard, shards, parent, &primaries[&parent]))
                        }
                        (false, _) => Some(crate::Near {
                            instance: instance(service, shard, 0),
                            node: nodes[0],
                        }),
                    };
                    let key = instance(service, shard, replica as u16);
                    let apart = &nodes[..replica];
                    let mut decision = decision(request, cluster, key, nodes[replica], apart, near);
                    decision.considered = considered.clone();
                    let role = role(key);
                    cluster.add(request, service, role, decision.node);
                    placement.decisions.push(decision);
                }
                if is_primary {
                    primaries.entry(service).or_default().push(nodes[0]);
                }
            }
        }
    }
    placement
}

fn role(key: InstanceKey) -> Role {
    match key.replica {
        0 => Role::Primary,
        _ => Role::Backup,
    }
}

fn decision(
    request: &Request<'_>,
    cluster: &Cluster,
    key: InstanceKey,
    node: NodeId,
    apart: &[NodeId],
    near: Option<crate::Near>,
) -> Decision {
    let with = |id: NodeId| (id, cluster.node(id));
    let ask = Ask {
        service: key.service,
        role: role(key),
        apart,
        kinds: Kinds::All,
    };
    Decision {
        key,
        node,
        near,
        level: near.map(|near| level(with(near.node), with(node))),
        rule: Rule::FewestJoules,
        preference: request.preference(key.service),
        rejected: Vec::new(),
        rejected_more: 0,
        considered: Vec::new(),
        overcommitted: check(request, cluster, ask, node).err(),
    }
}

/// What a request would cost with one instance of a service elsewhere: on each node that was
/// considered, the cheapest ones first.
fn considered(
    request: &Request<'_>,
    layout: &Layout<'_>,
    part: usize,
    is_primary: bool,
) -> Vec<Cost> {
    let role = if is_primary { Role::Primary } else { Role::Backup };
    let model = layout.model;
    let counts = layout.counts.of(part, role);
    let Some(from) = (0..counts.len()).find(|s| counts[*s] > 0) else {
        return Vec::new();
    };
    let mut without = layout.clone();
    without.remove(part, role, from);
    let mut costs = Vec::new();
    for site in 0..layout.sites() {
        let s = &model.sites[site];
        let fits = site == from || without.fits(part, role, site);
        let knee = fits.then(|| {
            let mut trial = without.clone();
            trial.add(part, role, site);
            trial.knee()
        });
        let time = request.cost(model.parts[part].service, s.kind).time;
        if let Some(knee) = knee.flatten() {
            costs.push(Cost {
                node: s.id,
                uj: knee.joules * 1e6,
                service_time: time,
            });
        }
    }
    costs.sort_by(|a, b| a.uj.total_cmp(&b.uj).then(a.node.cmp(&b.node)));
    costs.truncate(crate::limits::CONSIDERED_MAX);
    costs
}
