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
//! If the reservations at the load of the manifest leave no such placement, only memory binds, and the
//! decisions that exceed a node are flagged. What does not fit even so is placed as `hcm-kind` does.

mod assign;
mod descent;
mod layout;
mod model;

use crate::assignment::{self, Assignment};
use crate::cluster::Cluster;
use crate::decision::{Cost, PlaceError, Placement, Rule};
use crate::limits::CONSIDERED_MAX;
use crate::request::{Demand, Request};
use crate::{HcmKind, Placer};
use e3_model::ServiceId;
use e3_model::application::Pin;
use e3_model::plan::Role;
use layout::Layout;
use model::{Model, Reserved};

/// Servers are left asleep if the energy of a request is at most so much above the best.
const CONSOLIDATION: f64 = 1.02;
/// Servers that are considered.
const SERVERS_MAX: usize = 16;
/// Numbers of servers that are tried after the best one so far.
const PATIENCE: usize = 3;

/// Places a whole application and reserves what it takes.
pub(crate) fn place(request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
    let servers = servers(request, cluster);
    for reserved in [Reserved::All, Reserved::Memory] {
        let model = Model::new(request, cluster, &servers, reserved);
        let layout = best(&model);
        let placement = layout.and_then(|layout| reserve(request, cluster, &layout));
        if let Some(placement) = placement {
            return Ok(placement);
        }
    }
    HcmKind.place(request, cluster)
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
    let has_replicas = request
        .services()
        .any(|s| request.app.service(s).replicas > 1);
    let mut servers = match has_replicas && cluster.racks() > 1 {
        true => two_racks_in_turn(cluster, &ranked),
        false => ranked,
    };
    let replicas = request.services().map(|s| request.app.service(s).replicas);
    let needed = usize::from(replicas.max().unwrap_or(1));
    let pinned = request
        .services()
        .filter_map(|s| pinned_server(request, cluster, s));
    for server in pinned {
        servers.retain(|s| *s != server);
        servers.insert(0, server);
    }
    servers.truncate(SERVERS_MAX.max(needed));
    servers
}

fn pinned_server(request: &Request<'_>, cluster: &Cluster, service: ServiceId) -> Option<usize> {
    match request.app.service(service).pin.as_ref()? {
        Pin::Node(name) => Some(cluster.node(cluster.named(name)?).server),
        Pin::Kind(_) => None,
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
    let chosen = tried
        .into_iter()
        .find(|(joules, _)| *joules <= lowest * CONSOLIDATION);
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
        if best
            .as_ref()
            .is_none_or(|(joules, _)| knee.joules < *joules)
        {
            best = Some((knee.joules, layout));
        }
    }
    best
}

/// Turns counts into decisions and reserves what they take.
fn reserve(request: &Request<'_>, cluster: &mut Cluster, layout: &Layout<'_>) -> Option<Placement> {
    let model = layout.model;
    let walk = request.walk();
    let place = |s: ServiceId| walk.iter().position(|(w, _)| *w == s);
    let parents: Vec<Option<usize>> = walk.iter().map(|(_, p)| p.and_then(place)).collect();
    let sites = assign::assign(cluster, model, &layout.counts, &parents)?;
    let nodes = |replicas: Vec<usize>| replicas.iter().map(|s| model.sites[*s].id).collect();
    let of_part = |shards: Vec<Vec<usize>>| shards.into_iter().map(nodes).collect();
    let assignment: Assignment = sites.into_iter().map(of_part).collect();
    let costs = |part, role| considered(request, layout, part, role);
    let rule = Rule::FewestJoules;
    Some(assignment::reserve(
        request,
        cluster,
        &assignment,
        rule,
        costs,
    ))
}

/// What a request would cost with one instance of a service elsewhere: on each node that was
/// considered, the cheapest ones first.
fn considered(request: &Request<'_>, layout: &Layout<'_>, part: usize, role: Role) -> Vec<Cost> {
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
    costs.truncate(CONSIDERED_MAX);
    costs
}
