//! Placement for the fewest joules a request, under the latency objective.
//!
//! The application is looked at whole, by the modelled energy of a request at its knee: what the
//! instances make their nodes draw, divided by the rate at which the first resource reaches its
//! limit. Servers that run nothing sleep.
//!
//! 1. *Servers.* Those that are awake come first, the most free ones before the others; with replicas
//!    and several racks, as many racks in turn as a shard has replicas.
//! 2. *Kinds.* By comparative advantage: services in the order of their core time on a SmartNIC
//!    against that on a host. A prefix of this order goes to SmartNICs, the rest to hosts; the split
//!    that needs the fewest joules wins, of those that hold the latency objective. A kind on which a service
//!    cannot hold it is not used.
//!    Within a kind the load is balanced, the largest shards first.
//! 3. *How many servers.* The fewest whose energy is within [`CONSOLIDATION`] of the best.
//! 4. *Descent.* Single changes are made as long as they save energy, or bring a path that is too long
//!    closer to the objective.
//! 5. *Shards.* Primaries near their parents' shards as far as the counts allow; replicas apart.
//!
//! With several racks a rack gets no more instances of a service than allow that the replicas of each shard are in
//! different racks. If there is no such placement, racks do not count.
//!
//! If the reservations at the load of the manifest leave no such placement, the application is placed as
//! `hcm-kind` does, which looks at all nodes and exceeds them as little as it can.

mod descent;
mod follow;
mod layout;

use crate::candidates;
use crate::cluster::Cluster;
use crate::decision::{Cost, PlaceError, Placement, Rule};
use crate::limits::CONSIDERED_MAX;
use crate::model::{Knee, Model, Reserved};
use crate::request::Request;
use crate::search::KIND_FIRST;
use crate::{hcm, shards};
use e3_model::plan::Role;
use layout::{Layout, Within};

pub use follow::{Carried, Following, Move, Offered, carried, follow};

/// Servers are left asleep if the energy of a request is at most so much above the best.
const CONSOLIDATION: f64 = 1.02;
/// Splits of the shards between hosts and SmartNICs that are tried at a time.
const SPLITS_TRIED: usize = 64;
/// Numbers of servers that are tried after the best one so far.
const PATIENCE: usize = 3;

/// Places a whole application and reserves what it takes.
pub(crate) fn place(request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
    let servers = candidates::servers(request, cluster);
    let model = Model::new(request, cluster, &servers, Reserved::All);
    let in_racks = cluster.racks() > 1;
    let layout = (in_racks.then(|| best(&model, true)).flatten()).or_else(|| best(&model, false));
    let placement = layout.and_then(|layout| {
        let costs = |part, role| considered(request, &layout, part, role);
        let (counts, rule) = (&layout.counts, Rule::FewestJoules);
        shards::reserve(request, cluster, &model, counts, rule, costs)
    });
    match placement {
        Some(placement) => Ok(placement),
        None => hcm::place(request, cluster, KIND_FIRST),
    }
}

/// The layout that is descended from, and its descent.
fn best(model: &Model, in_racks: bool) -> Option<Layout<'_>> {
    let needed = model.parts.iter().map(|p| p.replicas).max().unwrap_or(1);
    let mut tried: Vec<(Knee, Layout<'_>)> = Vec::new();
    let mut best: Option<Knee> = None;
    let mut since = 0;
    for servers in needed..=model.servers.len() {
        let within = Within {
            servers,
            primaries: servers,
            in_racks,
        };
        let Some((knee, layout)) = on_servers(model, within) else {
            continue;
        };
        tried.push((knee, layout));
        if best.is_none_or(|best| knee.is_better(&best, 0.0)) {
            (best, since) = (Some(knee), 0);
        } else {
            since += 1;
        }
        if since == PATIENCE {
            break;
        }
    }
    let best = best?;
    let chosen = tried.into_iter().find(|(knee, _)| {
        knee.late_us <= best.late_us && knee.joules <= best.joules * CONSOLIDATION
    });
    chosen.map(|(_, layout)| descent::descend(layout))
}

/// The best layout on so many servers. If its paths are too long, the primaries are gathered on fewer of them,
/// where messages have no way to go.
fn on_servers(model: &Model, within: Within) -> Option<(Knee, Layout<'_>)> {
    let mut best = best_split(model, within)?;
    for primaries in (1..within.servers).rev() {
        if best.0.late_us == 0.0 {
            break;
        }
        let gathered = best_split(
            model,
            Within {
                primaries,
                ..within
            },
        );
        best = gathered
            .filter(|(knee, _)| knee.is_better(&best.0, 0.0))
            .unwrap_or(best);
    }
    Some(best)
}

/// The best of the balanced layouts, one for each split of the services.
fn best_split(model: &Model, within: Within) -> Option<(Knee, Layout<'_>)> {
    let mut order: Vec<usize> = (0..model.parts.len()).collect();
    order.sort_by(|a, b| {
        let advantage = |i: &usize| model.parts[*i].advantage().unwrap_or(f64::INFINITY);
        advantage(a).total_cmp(&advantage(b))
    });
    let shards: Vec<usize> = order.iter().map(|i| model.parts[*i].shards).collect();
    let all: usize = shards.iter().sum();
    let split = |on_smartnics: usize| {
        let mut left = on_smartnics;
        let mut by_part = vec![0; model.parts.len()];
        for (part, shards) in order.iter().zip(&shards) {
            by_part[*part] = left.min(*shards);
            left -= by_part[*part];
        }
        let layout = Layout::balanced(model, within, &by_part)?;
        Some((on_smartnics, layout.knee()?, layout))
    };
    // Of many shards some splits are tried, then those between the best one's neighbours.
    let (mut from, mut to) = (0, all);
    let mut best: Option<(usize, Knee, Layout<'_>)> = None;
    loop {
        let step = (to - from).div_ceil(SPLITS_TRIED).max(1);
        let tried = (from..to).step_by(step).chain([to]);
        for found in tried.filter_map(split) {
            if best
                .as_ref()
                .is_none_or(|best| found.1.is_better(&best.1, 0.0))
            {
                best = Some(found);
            }
        }
        let at = best.as_ref()?.0;
        if step == 1 {
            return best.map(|(_, knee, layout)| (knee, layout));
        }
        (from, to) = (at.saturating_sub(step), (at + step).min(all));
    }
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
