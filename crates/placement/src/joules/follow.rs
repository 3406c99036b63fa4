//! Moves of a running application that follow its load.
//!
//! [`place`](super::place) looks at the knee: how far an application can grow. A running application is offered
//! a rate, and its idle servers cost power meanwhile. This search starts from where the instances are
//! and changes as little as possible: a change is made if, over the time for which the rate is expected to
//! last, it saves more energy than the moves cost. A placement that cannot carry the rate with its
//! reserve comes first: it is changed until it can.
//!
//! Changes: a node or a server is emptied; a service changes its kind of node; one instance leaves
//! the node that bounds the rate.

use super::layout::Layout;
use crate::candidates;
use crate::cluster::Cluster;
use crate::decision::InstanceKey;
use crate::hcm::instance;
use crate::model::{Model, Reserved};
use crate::request::Request;
use e3_model::plan::Role;
use e3_model::{Nanos, NodeId, ServiceId, ShardId};

/// Changes that are made at most.
const STEPS_MAX: usize = 200;
/// Part of the energy that a change must save.
const GAIN_MIN: f64 = 1e-3;

/// What a running application must carry.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offered {
    /// Requests per second.
    pub rate_rps: f64,
    /// The placement must carry this many times the rate: room for the load to grow until the next
    /// moves.
    pub reserve: f64,
    /// How long the rate is expected to last.
    pub horizon: Nanos,
    /// Energy that the move of one instance costs.
    pub move_joules: f64,
}

/// The move of one instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The instance.
    pub key: InstanceKey,
    /// Where it is.
    pub from: NodeId,
    /// Where it goes.
    pub to: NodeId,
}

/// Moves that pay back, and what they change.
#[derive(Clone, PartialEq, Debug)]
pub struct Following {
    /// The moves. Made one after another in this order, none brings two replicas of a shard together on a server.
    pub moves: Vec<Move>,
    /// Power that the application adds at the rate, before the moves.
    pub watts_before: f64,
    /// The same after them.
    pub watts_after: f64,
    /// The rate at which the first resource reaches its limit, before the moves.
    pub knee_before_rps: f64,
    /// The same after them.
    pub knee_after_rps: f64,
}

/// What a placement carries and draws.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Carried {
    /// The rate at which the first resource reaches its limit, in requests per second.
    pub knee_rps: f64,
    /// Power that the application adds at the rate that was asked for.
    pub watts: f64,
}

/// What the instances of an application carry where they are, and what they draw at a rate: as
/// [`follow`] sees it, with the same arguments. None if an instance is on a node that the cluster does
/// not have.
pub fn carried(
    request: &Request<'_>,
    cluster: &Cluster,
    node_of: impl Fn(InstanceKey) -> Option<NodeId>,
    rate_rps: f64,
) -> Option<Carried> {
    let servers = servers(request, cluster, &node_of)?;
    let model = Model::new(request, cluster, &servers, Reserved::Memory);
    let standing = Standing::of(&model, &node_of)?;
    Some(Carried {
        knee_rps: standing.layout.knee()?.rate_rps,
        watts: model.watts_at(&standing.layout.counts, rate_rps),
    })
}

/// The moves that follow the load. `node_of` says where the instances are; the cluster is without them.
/// Only memory and the hard rules bind: what else is reserved is for the manifest's load, not for
/// this one. None if nothing is better, or an instance is on a node that the cluster does not have.
pub fn follow(
    request: &Request<'_>,
    cluster: &Cluster,
    node_of: impl Fn(InstanceKey) -> Option<NodeId>,
    offered: Offered,
) -> Option<Following> {
    let model = Model::new(
        request,
        cluster,
        &servers(request, cluster, &node_of)?,
        Reserved::Memory,
    );
    let start = Standing::of(&model, &node_of)?;
    let before = start.score(&offered, &start)?;
    let mut now = start.clone();
    let mut score = before;
    for _ in 0..STEPS_MAX {
        let mut best: Option<(Score, Standing<'_>)> = None;
        now.each_change(score.bound, |changed| {
            let Some(found) = changed.score(&offered, &start) else {
                return;
            };
            let than = best.as_ref().map_or(&score, |(s, _)| s);
            if found.is_better(than) {
                best = Some((found, changed));
            }
        });
        let Some((found, changed)) = best else { break };
        (score, now) = (found, changed);
    }
    let moves = start.moves_to(&now);
    (!moves.is_empty()).then_some(Following {
        moves,
        watts_before: before.watts,
        watts_after: score.watts,
        knee_before_rps: before.knee_rps,
        knee_after_rps: score.knee_rps,
    })
}

/// Servers that are looked at: those in use, then those that would be used next.
fn servers(
    request: &Request<'_>,
    cluster: &Cluster,
    node_of: &impl Fn(InstanceKey) -> Option<NodeId>,
) -> Option<Vec<usize>> {
    let mut servers: Vec<usize> = Vec::new();
    for service in request.services() {
        let spec = request.app.service(service);
        for shard in (0..spec.shards).map(ShardId) {
            for replica in 0..spec.replicas {
                let node = node_of(instance(service, shard, replica))?;
                servers.push(cluster.get(node)?.server);
            }
        }
    }
    servers.sort_unstable();
    servers.dedup();
    for next in candidates::servers(request, cluster) {
        if !servers.contains(&next) {
            servers.push(next);
        }
    }
    Some(servers)
}

/// How good a placement is under an offered load.
#[derive(Clone, Copy)]
struct Score {
    /// How far the rate with its reserve is beyond what it carries; 0 if it carries it.
    excess: f64,
    /// By how much the longest path exceeds the latency objective, in microseconds.
    late_us: f64,
    knee_rps: f64,
    watts: f64,
    /// Energy over the horizon, with that of the moves that lead here.
    joules: f64,
    /// The site that bounds the rate.
    bound: usize,
}

impl Score {
    fn is_better(&self, than: &Score) -> bool {
        let part = 1.0 - GAIN_MIN;
        if self.excess > 0.0 || than.excess > 0.0 {
            return self.excess < than.excess * part;
        }
        if self.late_us > than.late_us * (1.0 + GAIN_MIN) {
            return false;
        }
        self.late_us < than.late_us * part || self.joules < than.joules * part
    }
}

/// By part of the model, by shard: the sites of its replicas, the primary first.
type Sites = Vec<Vec<Vec<usize>>>;

/// Where the instances are.
#[derive(Clone)]
struct Standing<'a> {
    layout: Layout<'a>,
    at: Sites,
}

fn key(service: ServiceId, shard: usize, replica: usize) -> InstanceKey {
    instance(service, ShardId(shard as u16), replica as u16)
}

fn role(replica: usize) -> Role {
    if replica == 0 {
        Role::Primary
    } else {
        Role::Backup
    }
}

impl<'a> Standing<'a> {
    fn of(
        model: &'a Model,
        node_of: &impl Fn(InstanceKey) -> Option<NodeId>,
    ) -> Option<Standing<'a>> {
        let mut layout = Layout::new(model, model.servers.len());
        let mut at = Sites::new();
        for (i, part) in model.parts.iter().enumerate() {
            let mut shards = Vec::new();
            for shard in 0..part.shards {
                let mut sites = Vec::new();
                for replica in 0..part.replicas {
                    let node = node_of(key(part.service, shard, replica))?;
                    let site = model.sites.iter().position(|s| s.id == node)?;
                    layout.add(i, role(replica), site);
                    sites.push(site);
                }
                shards.push(sites);
            }
            at.push(shards);
        }
        Some(Standing { layout, at })
    }

    fn score(&self, offered: &Offered, start: &Standing<'_>) -> Option<Score> {
        let knee = self.layout.knee()?;
        let model = self.layout.model;
        let watts = model.watts_at(&self.layout.counts, offered.rate_rps);
        let moves = self.instances().filter(|i| self.site(*i) != start.site(*i));
        let moved = moves.count() as f64 * offered.move_joules;
        Some(Score {
            excess: model.excess(&self.layout.counts, offered.rate_rps * offered.reserve),
            late_us: knee.late_us,
            knee_rps: knee.rate_rps,
            watts,
            joules: watts * offered.horizon.as_secs_f64() + moved,
            bound: knee.bound,
        })
    }

    /// Part, shard and replica of every instance.
    fn instances(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let parts = self.layout.model.parts.iter().enumerate();
        parts.flat_map(|(i, part)| {
            (0..part.shards).flat_map(move |s| (0..part.replicas).map(move |r| (i, s, r)))
        })
    }

    fn site(&self, (part, shard, replica): (usize, usize, usize)) -> usize {
        self.at[part][shard][replica]
    }

    fn server(&self, site: usize) -> usize {
        self.layout.model.sites[site].server
    }

    /// All changes of one step.
    fn each_change(&self, bound: usize, mut consider: impl FnMut(Standing<'a>)) {
        let sites = 0..self.layout.sites();
        let in_use = |site: usize| self.layout.counts.on(site) > 0;
        for leave in sites.clone().filter(|s| in_use(*s)) {
            let server = self.server(leave);
            let mut empty = |leaves: &dyn Fn(usize) -> bool, enters: &dyn Fn(usize) -> bool| {
                if let Some(changed) = self.moved(|i| leaves(self.site(i)), enters) {
                    consider(changed);
                }
            };
            empty(&|s| s == leave, &|s| s != leave && in_use(s));
            empty(&|s| s == leave, &|s| s != leave && self.server(s) == server);
            empty(&|s| self.server(s) == server, &|s| {
                self.server(s) != server && in_use(s)
            });
        }
        for part in 0..self.at.len() {
            let kind = |site: usize| self.layout.model.sites[site].kind;
            for leave in sites.clone().filter(|s| in_use(*s)) {
                let changed = self.moved(
                    |i| i.0 == part && i.2 == 0 && self.site(i) == leave,
                    |s| kind(s) != kind(leave) && self.server(s) == self.server(leave),
                );
                changed.into_iter().for_each(&mut consider);
            }
            for replica in 0..self.layout.model.parts[part].replicas {
                let mut of_part = self.instances().filter(|i| (i.0, i.2) == (part, replica));
                let Some(one) = of_part.find(|i| self.site(*i) == bound) else {
                    continue;
                };
                for to in sites.clone().filter(|to| *to != bound) {
                    let changed = self.moved(|i| i == one, |s| s == to);
                    changed.into_iter().for_each(&mut consider);
                }
            }
        }
    }

    /// The instances that leave on the least used of the sites that they may enter; None if one has no
    /// place or none leaves.
    fn moved(
        &self,
        leaves: impl Fn((usize, usize, usize)) -> bool,
        enters: impl Fn(usize) -> bool,
    ) -> Option<Standing<'a>> {
        let leaving: Vec<_> = self.instances().filter(|i| leaves(*i)).collect();
        if leaving.is_empty() {
            return None;
        }
        let mut changed = self.clone();
        for i @ (part, shard, replica) in leaving {
            changed.layout.remove(part, role(replica), self.site(i));
            let (site, _) = {
                let others = &changed.at[part][shard];
                let apart = |site: usize| {
                    let mut others = others.iter().enumerate().filter(|(r, _)| *r != replica);
                    others.all(|(_, other)| self.server(*other) != self.server(site))
                };
                let may = |site: usize| enters(site) && apart(site);
                changed.layout.least_used(part, role(replica), may)?
            };
            changed.layout.add(part, role(replica), site);
            changed.at[part][shard][replica] = site;
        }
        Some(changed)
    }

    /// The moves from here to there, in an order that keeps replicas apart. Replicas that would have to
    /// change places with each other stay.
    fn moves_to(&self, there: &Standing<'_>) -> Vec<Move> {
        let model = self.layout.model;
        let mut at = self.at.clone();
        let mut open: Vec<_> = self.instances().collect();
        open.retain(|i| self.site(*i) != there.site(*i));
        let mut moves = Vec::new();
        loop {
            let next = open.iter().position(|i @ &(part, shard, replica)| {
                let to = self.server(there.site(*i));
                let mut others = at[part][shard].iter().enumerate();
                others.all(|(r, other)| r == replica || self.server(*other) != to)
            });
            let Some(next) = next else { return moves };
            let i @ (part, shard, replica) = open.remove(next);
            let (from, to) = (self.site(i), there.site(i));
            at[part][shard][replica] = to;
            moves.push(Move {
                key: key(model.parts[part].service, shard, replica),
                from: model.sites[from].id,
                to: model.sites[to].id,
            });
        }
    }
}
