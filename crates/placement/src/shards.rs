//! From counts to shards: which shard's primary and backups stand where.
//!
//! Primaries stand near the shard of their parent as far as the counts allow. Backups get servers
//! that hold no other replica of their shard, in another rack if possible, by augmenting paths (Kuhn
//! 1955): the counts allow it for every shard.

use crate::assignment::{self, Assignment};
use crate::cluster::Cluster;
use crate::decision::{Cost, Placement, Rule};
use crate::hcm::parent_shard;
use crate::model::{Counts, Model};
use crate::request::Request;
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId, ShardId};

/// Turns counts into decisions and reserves what they take. None if the replicas of some shard cannot
/// be parted.
pub(crate) fn reserve(
    request: &Request<'_>,
    cluster: &mut Cluster,
    model: &Model,
    counts: &Counts,
    rule: Rule,
    costs: impl Fn(usize, Role) -> Vec<Cost>,
) -> Option<Placement> {
    let walk = request.walk();
    let place = |s: ServiceId| walk.iter().position(|(w, _)| *w == s);
    let parents: Vec<Option<usize>> = walk.iter().map(|(_, p)| p.and_then(place)).collect();
    let sites = assign(cluster, model, counts, &parents)?;
    let nodes = |replicas: Vec<usize>| replicas.iter().map(|s| model.sites[*s].id).collect();
    let of_part = |shards: Vec<Vec<usize>>| shards.into_iter().map(nodes).collect();
    let assignment: Assignment = sites.into_iter().map(of_part).collect();
    Some(assignment::reserve(
        request,
        cluster,
        &assignment,
        rule,
        costs,
    ))
}

/// By part of the model, by shard: the sites of its replicas, the primary first.
type Sites = Vec<Vec<Vec<usize>>>;

/// Assigns all replicas. `parents` gives the part that each is near to. None if no way was found to
/// part the replicas of all shards; with two replicas there always is one.
fn assign(
    cluster: &Cluster,
    model: &Model,
    counts: &Counts,
    parents: &[Option<usize>],
) -> Option<Sites> {
    let mut all: Sites = Vec::new();
    for (i, part) in model.parts.iter().enumerate() {
        let near = |shard: u16| {
            let parent = &all[parents[i]?];
            let of = parent_shard(ShardId(shard), part.shards as u16, parent.len() as u16);
            Some(model.sites[parent[usize::from(of.0)][0]].id)
        };
        let mut left = counts.of(i, Role::Primary).to_vec();
        let shards = (0..part.shards as u16).map(|shard| {
            let site = nearest(cluster, model, &left, near(shard));
            left[site] -= 1;
            vec![site]
        });
        let mut shards: Vec<Vec<usize>> = shards.collect();
        let mut left = counts.of(i, Role::Backup).to_vec();
        for _ in 1..part.replicas {
            backups(cluster, model, &mut shards, &mut left);
        }
        if !repair(model, &mut shards, &mut left, part.replicas) {
            return None;
        }
        all.push(shards);
    }
    Some(all)
}

/// Gives shards that lack replicas those that are left, if need be by way of another shard. False if
/// there is no such way.
fn repair(model: &Model, shards: &mut [Vec<usize>], left: &mut [u16], replicas: usize) -> bool {
    let server = |site: usize| model.sites[site].server;
    let is_on = |shard: &[usize], site: usize| shard.iter().any(|s| server(*s) == server(site));
    for lacks in 0..shards.len() {
        while shards[lacks].len() < replicas {
            let sites = (0..left.len()).filter(|s| left[*s] > 0);
            let found = sites.clone().find(|s| !is_on(&shards[lacks], *s));
            if let Some(site) = found {
                left[site] -= 1;
                shards[lacks].push(site);
                continue;
            }
            let others = sites.flat_map(|site| (0..shards.len()).map(move |other| (site, other)));
            let by_way = others.filter(|(site, other)| !is_on(&shards[*other], *site));
            let mut by_way = by_way.flat_map(|(site, other)| {
                let backups = 1..shards[other].len();
                backups.map(move |replica| (site, other, replica))
            });
            let swap =
                by_way.find(|(_, other, replica)| !is_on(&shards[lacks], shards[*other][*replica]));
            let Some((site, other, replica)) = swap else {
                return false;
            };
            left[site] -= 1;
            let given = std::mem::replace(&mut shards[other][replica], site);
            shards[lacks].push(given);
        }
    }
    true
}

/// Of the sites with something left, the closest.
fn nearest(cluster: &Cluster, model: &Model, left: &[u16], near: Option<NodeId>) -> usize {
    let distance = |site: &usize| Some(cluster.level(near?, model.sites[*site].id));
    let sites = (0..left.len()).filter(|site| left[*site] > 0);
    sites.min_by_key(distance).expect("as many sites as shards")
}

/// One more replica for each shard.
fn backups(cluster: &Cluster, model: &Model, shards: &mut [Vec<usize>], left: &mut [u16]) {
    let server = |site: usize| model.sites[site].server;
    let rack = |site: usize| cluster.node(model.sites[site].id).rack;
    let mut slots: Vec<usize> = Vec::new();
    // Of a service with more than two replicas the servers with most left go first, so that the
    // later rounds find enough different ones.
    for _ in 0..shards.len() {
        let site = (0..left.len()).max_by_key(|s| (left[*s], usize::MAX - s));
        let site = site
            .filter(|s| left[*s] > 0)
            .expect("as many sites as backups");
        left[site] -= 1;
        slots.push(site);
    }
    let apart = |shard: &[usize], slot: usize| shard.iter().all(|s| server(*s) != server(slot));
    let far = |shard: &[usize], slot: usize| {
        cluster.racks() > 1 && shard.iter().all(|s| rack(*s) != rack(slot))
    };
    let mut shard_of_slot = vec![None; slots.len()];
    for is_far in [true, false] {
        for shard in 0..shards.len() {
            if shard_of_slot.contains(&Some(shard)) {
                continue;
            }
            let allowed = |shard: usize, slot: usize| {
                let (replicas, site) = (&shards[shard], slots[slot]);
                apart(replicas, site) && (!is_far || far(replicas, site))
            };
            let mut seen = vec![false; slots.len()];
            augment(shard, &allowed, &mut seen, &mut shard_of_slot);
        }
    }
    for (slot, shard) in shard_of_slot.into_iter().enumerate() {
        match shard {
            Some(shard) => shards[shard].push(slots[slot]),
            None => left[slots[slot]] += 1,
        }
    }
}

/// Finds a slot for a shard, moving others if need be.
fn augment(
    shard: usize,
    allowed: &impl Fn(usize, usize) -> bool,
    seen: &mut [bool],
    shard_of_slot: &mut [Option<usize>],
) -> bool {
    let is_free =
        |slot: &usize| shard_of_slot[*slot].is_none() && !seen[*slot] && allowed(shard, *slot);
    let free = (0..shard_of_slot.len()).find(is_free);
    if let Some(slot) = free {
        shard_of_slot[slot] = Some(shard);
        return true;
    }
    for slot in 0..shard_of_slot.len() {
        if seen[slot] || !allowed(shard, slot) {
            continue;
        }
        seen[slot] = true;
        let is_free = match shard_of_slot[slot] {
            None => true,
            Some(other) => augment(other, allowed, seen, shard_of_slot),
        };
        if is_free {
            shard_of_slot[slot] = Some(shard);
            return true;
        }
    }
    false
}
