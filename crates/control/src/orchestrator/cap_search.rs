//! Which instances may leave a server or rack that draws more than its cap, and where they go.
//!
//! A host draws less with each instance that leaves. A SmartNIC draws its whole active power while it serves
//! anything, so only all of its instances together free something there.

use super::cap::{Watched, kind};
use super::following::Seen;
use super::moving::Moving;
use super::power::Picture;
use super::watch::{InstanceWatch, has_room};
use crate::limits::{DESTINATIONS_MAX, MOVE_BYTES_MIN, POWER_FREED_MIN_W};
use crate::state::Control;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ShardKey};
use e3_placement::limits::REJECTED_MAX;
use e3_placement::{Cluster, fits_within, pick_primary};

/// Nodes of a rack that are looked at as destinations within it.
const INSIDE_MAX: usize = 64;

/// A primary that may leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) key: ShardKey,
    pub(super) from: NodeId,
    pub(super) cpu_permille: u64,
    bytes: u64,
}

/// A primary with its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) leaving: Leaving,
    pub(super) to: NodeId,
}

/// Moves that free power together.
#[derive(Clone, Debug)]
pub(super) struct Shed {
    pub(super) moves: Vec<Step>,
    /// Watts that the server or rack draws less.
    pub(super) freed_w: f64,
    /// Watts that other servers draw more.
    pub(super) added_w: f64,
    pub(super) bytes: u64,
}

/// Why an instance cannot leave, by node.
pub(super) struct Rejected {
    pub(super) key: ShardKey,
    pub(super) nodes: Vec<(NodeId, String)>,
}

/// The search for one server or rack.
pub(super) struct Search<'s> {
    pub(super) watched: &'s [Watched],
    pub(super) at: usize,
}

impl Shed {
    /// Watts for each byte.
    pub(super) fn ratio(&self) -> f64 {
        self.freed_w / self.bytes as f64
    }
}

impl Step {
    /// Cores that the instance keeps busy where it is, and where it goes.
    pub(super) fn cores(&self, moving: &Moving<'_>, seen: &Seen<'_>) -> (f64, f64) {
        let (here, there) = (kind(seen, self.leaving.from), kind(seen, self.to));
        let comes = moving.cpu_permille_on(here, there);
        (self.leaving.cpu_permille as f64 / 1e3, comes as f64 / 1e3)
    }
}

impl Search<'_> {
    pub(super) fn domain(&self) -> &Watched {
        &self.watched[self.at]
    }

    /// Instances that may leave together, those first that would free most watts for each byte.
    pub(super) fn groups(&self, picture: &Picture<'_>, cluster: &Cluster) -> Vec<Vec<Leaving>> {
        let mut groups: Vec<(f64, Vec<Leaving>)> = Vec::new();
        for node in self.domain().nodes() {
            let Some(reports) = picture.seen.reports.get(node.index()) else {
                continue;
            };
            let all = reports.busiest();
            let leaving: Vec<Leaving> = all
                .iter()
                .filter_map(|i| leaving(picture, node, i))
                .collect();
            let busy = picture.busy_cores(node).unwrap_or(0.0);
            let freed_w = |group: &[Leaving]| {
                let cores: u64 = group.iter().map(|l| l.cpu_permille).sum();
                let after = (busy - cores as f64 / 1e3).max(0.0);
                let after = if after < 1e-6 { 0.0 } else { after };
                let freed_w = cluster.active_w(node, busy) - cluster.active_w(node, after);
                freed_w / group.iter().map(|l| l.bytes).sum::<u64>().max(1) as f64
            };
            match kind(picture.seen, node) {
                NodeKind::Host => {
                    let single = leaving.into_iter().map(|l| vec![l]);
                    groups.extend(single.map(|group| (freed_w(&group), group)));
                }
                NodeKind::SmartNic if leaving.len() == all.len() && !all.is_empty() => {
                    groups.push((freed_w(&leaving), leaving));
                }
                NodeKind::SmartNic => {}
            }
        }
        groups.sort_by(|a, b| b.0.total_cmp(&a.0));
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Where a group goes, or why one of it can go nowhere. What it changes in the cluster is taken back by
    /// the caller.
    pub(super) fn shed(
        &self,
        picture: &Picture<'_>,
        cluster: &mut Cluster,
        group: &[Leaving],
    ) -> Result<Shed, Rejected> {
        let mut after = picture.fork();
        let (mut moves, mut why_of_first) = (Vec::new(), Vec::new());
        for leaving in group {
            let nowhere = |nodes| Rejected {
                key: leaving.key,
                nodes,
            };
            let Some(moving) = leaving.moving(picture.control) else {
                return Err(nowhere(Vec::new()));
            };
            let (to, rejected) = self.destination(&mut after, cluster, leaving, &moving);
            let Some(to) = to else {
                return Err(nowhere(rejected));
            };
            if moves.is_empty() {
                why_of_first = rejected;
            }
            moves.push(Step {
                leaving: *leaving,
                to,
            });
        }
        let watts = |p: &Picture<'_>, servers| p.drawn(cluster, servers).map_or(0.0, |d| d.watts);
        let here = &self.domain().servers;
        let freed_w = watts(picture, here) - watts(&after, here);
        if freed_w < POWER_FREED_MIN_W {
            let (first, to) = (group[0], moves[0].to);
            let why = format!("that would free {freed_w:.1} W");
            let mut nodes = vec![(to, why)];
            nodes.extend(why_of_first);
            return Err(Rejected {
                key: first.key,
                nodes,
            });
        }
        let mut others: Vec<Vec<NodeId>> = Vec::new();
        for step in moves.iter().filter(|s| !self.domain().has(s.to)) {
            let nodes = cluster.server_of(step.to).to_vec();
            if !others.contains(&nodes) {
                others.push(nodes);
            }
        }
        Ok(Shed {
            freed_w,
            added_w: watts(&after, &others) - watts(picture, &others),
            bytes: group.iter().map(|l| l.bytes).sum(),
            moves,
        })
    }

    /// The destination that draws least, of the nodes of the same server and the one that the placer would
    /// choose outside; if there is none, of all nodes within. Notes the move. Also says why others cannot take it.
    fn destination(
        &self,
        picture: &mut Picture<'_>,
        cluster: &mut Cluster,
        leaving: &Leaving,
        moving: &Moving<'_>,
    ) -> (Option<NodeId>, Vec<(NodeId, String)>) {
        let service = leaving.key.service;
        cluster.remove(&moving.request, service, Role::Primary, leaving.from);
        let mut rejected = Vec::new();
        let mut options: Vec<(f64, f64, NodeId)> = Vec::new();
        let near = cluster.server_of(leaving.from).to_vec();
        for to in near.into_iter().filter(|n| *n != leaving.from) {
            match self.takes(picture, cluster, leaving, moving, to) {
                Ok((here_w, all_w)) => options.push((here_w, all_w, to)),
                Err(why) => reject(&mut rejected, to, why),
            }
        }
        options.extend(self.placed(picture, cluster, leaving, moving, &mut rejected));
        if options.is_empty() {
            for to in self.domain().nodes().take(INSIDE_MAX) {
                if to == leaving.from {
                    continue;
                }
                match self.takes(picture, cluster, leaving, moving, to) {
                    Ok((here_w, all_w)) => options.push((here_w, all_w, to)),
                    Err(why) => reject(&mut rejected, to, why),
                }
            }
        }
        let least = |a: &&(f64, f64, NodeId), b: &&(f64, f64, NodeId)| {
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        };
        let best = options.iter().min_by(least).map(|(_, _, to)| *to);
        let at = best.unwrap_or(leaving.from);
        cluster.add(&moving.request, service, Role::Primary, at);
        if let Some(to) = best {
            let step = Step {
                leaving: *leaving,
                to,
            };
            let (leaves, comes) = step.cores(moving, picture.seen);
            picture.note(leaving.from, leaves, to, comes);
        }
        (best, rejected)
    }

    /// Where the placer would put an instance outside of the domain.
    fn placed(
        &self,
        picture: &Picture<'_>,
        cluster: &mut Cluster,
        leaving: &Leaving,
        moving: &Moving<'_>,
        rejected: &mut Vec<(NodeId, String)>,
    ) -> Option<(f64, f64, NodeId)> {
        let mut excluded = Vec::new();
        for (at, watched) in self.watched.iter().enumerate() {
            let is_other = at != self.at && !watched.has(leaving.from);
            if is_other && has_no_headroom(picture, cluster, watched) {
                let (domain, cap_w) = (&watched.domain, watched.cap_w);
                let why = format!("{domain} has no headroom under its power cap of {cap_w:.0} W");
                watched
                    .nodes()
                    .take(1)
                    .for_each(|n| reject(rejected, n, why.clone()));
            } else if at != self.at {
                continue;
            }
            watched
                .nodes()
                .for_each(|n| exclude(cluster, &mut excluded, n));
        }
        exclude(cluster, &mut excluded, leaving.from);
        let mut tried = Tried { excluded, rejected };
        let found = self.pick(picture, cluster, leaving, moving, &mut tried);
        for (node, was_drained) in tried.excluded.into_iter().rev() {
            cluster.set_drained(node, was_drained);
        }
        found
    }

    fn pick(
        &self,
        picture: &Picture<'_>,
        cluster: &mut Cluster,
        leaving: &Leaving,
        moving: &Moving<'_>,
        tried: &mut Tried<'_>,
    ) -> Option<(f64, f64, NodeId)> {
        let Tried { excluded, rejected } = tried;
        let (service, number) = (leaving.key.service, leaving.key.shard);
        let request = &moving.request;
        let parents = picture
            .control
            .primaries_of_parent(leaving.key.app, request, service);
        for _ in 0..DESTINATIONS_MAX {
            let backups = &moving.shard.backups;
            let picked = pick_primary(request, cluster, service, number, &parents, backups);
            let decision = match picked {
                Ok(decision) => decision,
                Err(e) => {
                    if rejected.is_empty() {
                        reject(rejected, leaving.from, e.to_string());
                    }
                    return None;
                }
            };
            for (node, misfit) in &decision.rejected {
                reject(rejected, *node, misfit.to_string());
            }
            if let Some(misfit) = decision.overcommitted {
                reject(rejected, decision.node, misfit.to_string());
                return None;
            }
            match self.takes(picture, cluster, leaving, moving, decision.node) {
                Ok((here_w, all_w)) => return Some((here_w, all_w, decision.node)),
                Err(why) => {
                    reject(rejected, decision.node, why);
                    exclude(cluster, excluded, decision.node);
                }
            }
        }
        None
    }

    /// Whether a node can take an instance: what is reserved there, what it is busy with, and the caps. Gives the
    /// watts that the move adds to what this domain draws, and to what the server of that node draws.
    fn takes(
        &self,
        picture: &Picture<'_>,
        cluster: &Cluster,
        leaving: &Leaving,
        moving: &Moving<'_>,
        to: NodeId,
    ) -> Result<(f64, f64), String> {
        let others = &moving.shard.backups;
        let service = leaving.key.service;
        let request = &moving.request;
        let domain = &self.domain().domain;
        fits_within(request, cluster, service, to, others, domain)
            .map_err(|misfit| misfit.to_string())?;
        let step = Step {
            leaving: *leaving,
            to,
        };
        let (leaves, comes) = step.cores(moving, picture.seen);
        let more_permille = (comes * 1e3).round() as u64;
        let ends = (leaving.from, to);
        has_room(
            picture.now,
            picture.control,
            picture.seen.nodes,
            ends,
            more_permille,
        )?;
        let mut after = picture.fork();
        after.note(leaving.from, leaves, to, comes);
        for (at, watched) in self.watched.iter().enumerate() {
            if at != self.at && watched.has(to) {
                holds(picture, &after, cluster, watched, 1)?;
            }
        }
        let added_w = |servers: &[Vec<NodeId>]| {
            let watts = |p: &Picture<'_>| p.drawn(cluster, servers).map(|d| d.watts);
            Some(watts(&after)? - watts(picture)?)
        };
        let there = [cluster.server_of(to).to_vec()];
        let added = added_w(&self.domain().servers).zip(added_w(&there));
        added.ok_or_else(|| "its load is not known".into())
    }
}

/// Whether the cap of a server or rack holds after some moves, so many margins below it; or the moves add
/// nothing there.
pub(super) fn holds(
    before: &Picture<'_>,
    after: &Picture<'_>,
    cluster: &Cluster,
    watched: &Watched,
    margins: u32,
) -> Result<(), String> {
    let watts = |p: &Picture<'_>| p.drawn(cluster, &watched.servers).map(|d| d.watts);
    let (Some(before_w), Some(after_w)) = (watts(before), watts(after)) else {
        return Err(format!("what {} draws is not known", watched.domain));
    };
    let limit_w = watched.target_w(before.seen.settings, margins);
    if after_w <= before_w || after_w <= limit_w {
        return Ok(());
    }
    let (domain, cap_w) = (&watched.domain, watched.cap_w);
    Err(format!(
        "{domain} would draw {after_w:.1} W, must be at most {limit_w:.1} W under its power cap of {cap_w:.0} W"
    ))
}

fn has_no_headroom(picture: &Picture<'_>, cluster: &Cluster, watched: &Watched) -> bool {
    let drawn = picture.drawn(cluster, &watched.servers);
    drawn.is_none_or(|d| d.watts > watched.target_w(picture.seen.settings, 1))
}

/// What the search for a destination has tried.
struct Tried<'r> {
    /// Nodes that the placer does not look at any more, and whether they were drained before.
    excluded: Vec<(NodeId, bool)>,
    /// Nodes that cannot take the instance, and why.
    rejected: &'r mut Vec<(NodeId, String)>,
}

fn exclude(cluster: &mut Cluster, excluded: &mut Vec<(NodeId, bool)>, node: NodeId) {
    if let Some(drained) = cluster.get(node).map(|n| n.drained) {
        excluded.push((node, drained));
        cluster.set_drained(node, true);
    }
}

fn reject(rejected: &mut Vec<(NodeId, String)>, node: NodeId, why: String) {
    if rejected.len() < REJECTED_MAX && !rejected.iter().any(|(n, _)| *n == node) {
        rejected.push((node, why));
    }
}

/// An instance that may leave its node now.
fn leaving(picture: &Picture<'_>, node: NodeId, instance: &InstanceWatch) -> Option<Leaving> {
    let (control, key): (&Control, ShardKey) = (picture.control, instance.key);
    let orchestration = &control.orchestration;
    let rests_until = orchestration.of(key).map(|d| orchestration.rests_until(d));
    let cpu_permille = instance.cpu_permille;
    let rests = rests_until.is_some_and(|until| picture.now < until);
    if rests || picture.chosen.contains(&key) {
        return None;
    }
    let moving = Moving::new(control, key, node, cpu_permille)?;
    let kind = kind(picture.seen, node);
    let reserved = moving.request.demand(key.service, Role::Primary, kind);
    let state_bytes = match instance.state_bytes {
        0 => reserved.memory_bytes,
        known => known,
    };
    let is_stateful = moving.request.app.service(key.service).stateful;
    let bytes = if is_stateful { state_bytes } else { 0 };
    Some(Leaving {
        key,
        from: node,
        cpu_permille,
        bytes: bytes.max(MOVE_BYTES_MIN),
    })
}
