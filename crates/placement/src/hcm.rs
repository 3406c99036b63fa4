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
//! - *Which kind of node.* The one that needs fewer joules for a request, among those that hold the
//!   latency objective. Levels of equal reach (1 and 2: the server; 3 and 4: the rack; 5 and 6: other
//!   racks) are tried on the preferred kind first, so that distance in servers still goes before
//!   joules. A kind that breaks the objective comes after all levels of the other. Where nothing
//!   distinguishes the kinds, the levels keep the printed order.
//! - *First fit.* Servers in the topology's order, the preferred kind first; without preference
//!   SmartNICs before the host, since their cores are powered in any case.
//! - *Backups* follow when all primaries stand, so that they never take a primary's place near its
//!   parent. They never share a server with another replica; another rack is better than the same,
//!   then the preferred kind, then the node that would be the least loaded if all its backups took
//!   over, so that the load of a lost server spreads over all others.

use crate::cluster::{Cluster, NodeState};
use crate::decision::{Decision, InstanceKey, Level, Misfit, Near, PlaceError, Placement, Rule};
use crate::fit::{Ask, Kinds, check, check_hard, excess, left_after, level, load_after_fail_over};
use crate::limits::REJECTED_MAX;
use crate::request::Request;
use e3_model::limits::SLOTS;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ServiceId, ShardId, Slot};
use std::collections::BTreeMap;

/// Looks for nodes; holds nothing of its own.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) cluster: &'a Cluster,
    pub(crate) kinds: Kinds,
}

/// Nodes that were tried and did not fit.
#[derive(Default)]
struct Rejected {
    list: Vec<(NodeId, Misfit)>,
    more: u32,
}

impl Rejected {
    fn add(&mut self, id: NodeId, why: Misfit) {
        if self.list.iter().any(|(other, _)| *other == id) {
            return;
        }
        if self.list.len() < REJECTED_MAX {
            self.list.push((id, why));
        } else {
            self.more += 1;
        }
    }
}

/// Places a whole application.
pub(crate) fn place(
    request: &Request<'_>,
    cluster: &Cluster,
    kinds: Kinds,
) -> Result<Placement, PlaceError> {
    let mut cluster = cluster.clone();
    let mut placement = Placement::default();
    let mut primaries: BTreeMap<ServiceId, Vec<NodeId>> = BTreeMap::new();
    for &(service, parent) in request.walk() {
        let shards = request.app.service(service).shards;
        for shard in (0..shards).map(ShardId) {
            let near = parent.map(|parent| {
                let nodes = &primaries[&parent];
                let shard = parent_shard(shard, shards, nodes.len() as u16);
                Near {
                    instance: instance(parent, shard, 0),
                    node: nodes[usize::from(shard.0)],
                }
            });
            let search = Search {
                request,
                cluster: &cluster,
                kinds,
            };
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
                let search = Search {
                    request,
                    cluster: &cluster,
                    kinds,
                };
                let decision = search.backup(instance(service, shard, replica), &replicas)?;
                cluster.add(request, service, Role::Backup, decision.node);
                replicas.push(decision.node);
                placement.decisions.push(decision);
            }
        }
    }
    Ok(placement)
}

fn instance(service: ServiceId, shard: ShardId, replica: u16) -> InstanceKey {
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

impl Search<'_> {
    /// A node for a primary, near another instance or anywhere, apart from its shard's backups.
    pub(crate) fn primary(
        &self,
        key: InstanceKey,
        near: Option<Near>,
        apart: &[NodeId],
    ) -> Result<Decision, PlaceError> {
        let ask = Ask {
            service: key.service,
            role: Role::Primary,
            apart,
            kinds: self.kinds,
        };
        let mut rejected = Rejected::default();
        let by_level = near.and_then(|near| self.by_level(ask, near.node, &mut rejected));
        let (node, rule) = match by_level {
            Some(node) => (node, Rule::BestFit),
            None => match self.first_fit(ask, &mut rejected) {
                Some(node) => (node, Rule::FirstFit),
                None => (self.closest(ask)?, Rule::Closest),
            },
        };
        Ok(self.decision(key, ask, node, rule, near, rejected))
    }

    /// A node for a backup of a shard whose other replicas are on `replicas`, the primary first.
    pub(crate) fn backup(
        &self,
        key: InstanceKey,
        replicas: &[NodeId],
    ) -> Result<Decision, PlaceError> {
        let ask = Ask {
            service: key.service,
            role: Role::Backup,
            apart: replicas,
            kinds: self.kinds,
        };
        let near = replicas.first().map(|node| Near {
            instance: InstanceKey { replica: 0, ..key },
            node: *node,
        });
        let same_rack = |node: &NodeState| {
            let mut known = replicas.iter().filter_map(|r| self.cluster.get(*r));
            self.cluster.racks() > 1 && known.any(|other| other.rack == node.rack)
        };
        let mut rejected = Rejected::default();
        let mut best: Option<((bool, usize, bool, f64), NodeId)> = None;
        for (id, node) in self.cluster.nodes() {
            if let Err(why) = check(self.request, self.cluster, ask, id) {
                // That a replica's own server is no choice goes without saying.
                if !matches!(why, Misfit::FaultDomain { .. }) {
                    rejected.add(id, why);
                }
                continue;
            }
            let load = load_after_fail_over(self.request, node, key.service);
            let rank = self.rank(key.service, node.kind);
            let score = (same_rack(node), rank, load > 1.0, load);
            if best.as_ref().is_none_or(|(b, _)| score < *b) {
                best = Some((score, id));
            }
        }
        let (node, rule) = match best {
            Some((_, node)) => (node, Rule::Spread),
            None => (self.closest(ask)?, Rule::Closest),
        };
        Ok(self.decision(key, ask, node, rule, near, rejected))
    }

    fn decision(
        &self,
        key: InstanceKey,
        ask: Ask<'_>,
        node: NodeId,
        rule: Rule,
        near: Option<Near>,
        rejected: Rejected,
    ) -> Decision {
        let to = (node, self.cluster.node(node));
        let from = |near: Near| Some((near.node, self.cluster.get(near.node)?));
        Decision {
            key,
            node,
            near,
            level: near.and_then(from).map(|from| level(from, to)),
            rule,
            preference: self.request.preference(key.service),
            rejected: rejected.list,
            rejected_more: rejected.more,
            overcommitted: check(self.request, self.cluster, ask, node).err(),
        }
    }

    /// 0 for the preferred kind, 1 for the other; 0 for both if nothing distinguishes them.
    fn rank(&self, service: ServiceId, kind: NodeKind) -> usize {
        let preferred = self.request.preference(service).kind();
        usize::from(preferred.is_some_and(|p| p != kind))
    }

    /// Best fit in the closest group of nodes, as the module's text says.
    fn by_level(&self, ask: Ask<'_>, from: NodeId, rejected: &mut Rejected) -> Option<NodeId> {
        let origin = (from, self.cluster.get(from)?);
        let late = |kind| self.request.cost(ask.service, kind).late;
        // If both kinds are too slow, neither is put off.
        let both = late(NodeKind::Host) && late(NodeKind::SmartNic);
        let put_off = |kind| late(kind) && !both;
        for round in [false, true] {
            for reach in 0..3 {
                let mut groups: BTreeMap<(usize, Level), Vec<NodeId>> = BTreeMap::new();
                for id in self.reach(from, reach) {
                    let node = self.cluster.node(id);
                    if put_off(node.kind) != round {
                        continue;
                    }
                    let group = (self.rank(ask.service, node.kind), level(origin, (id, node)));
                    groups.entry(group).or_default().push(id);
                }
                let found = groups
                    .values()
                    .find_map(|group| self.best_fit(ask, group, rejected));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Nodes by reach: 0 the server, 1 the rest of the rack, 2 other racks.
    fn reach(&self, from: NodeId, reach: usize) -> Vec<NodeId> {
        let origin = self.cluster.node(from);
        let server = |id: NodeId| self.cluster.node(id).server;
        match reach {
            0 => self.cluster.server_of(from).to_vec(),
            1 => {
                let rack = self.cluster.rack_of(from).iter().copied();
                rack.filter(|id| server(*id) != origin.server).collect()
            }
            _ => {
                let all = self.cluster.nodes();
                let far = all.filter(|(_, n)| n.rack != origin.rack);
                far.map(|(id, _)| id).collect()
            }
        }
    }

    fn best_fit(&self, ask: Ask<'_>, group: &[NodeId], rejected: &mut Rejected) -> Option<NodeId> {
        let mut best: Option<(f64, NodeId)> = None;
        for &id in group {
            if let Err(why) = check(self.request, self.cluster, ask, id) {
                rejected.add(id, why);
                continue;
            }
            let left = left_after(self.request, self.cluster.node(id), ask);
            if best.is_none_or(|(b, _)| left < b) {
                best = Some((left, id));
            }
        }
        best.map(|(_, id)| id)
    }

    fn first_fit(&self, ask: Ask<'_>, rejected: &mut Rejected) -> Option<NodeId> {
        for rank in 0..2 {
            for &id in self.cluster.first_fit_order() {
                if self.rank(ask.service, self.cluster.node(id).kind) != rank {
                    continue;
                }
                match check(self.request, self.cluster, ask, id) {
                    Ok(()) => return Some(id),
                    Err(why) => rejected.add(id, why),
                }
            }
        }
        None
    }

    /// The node that is exceeded least among those that are allowed at all.
    fn closest(&self, ask: Ask<'_>) -> Result<NodeId, PlaceError> {
        let mut best: Option<((bool, f64), NodeId)> = None;
        for (id, node) in self.cluster.nodes() {
            if check_hard(self.request, self.cluster, ask, id).is_err() {
                continue;
            }
            let over = excess(self.request, node, ask);
            if best.as_ref().is_none_or(|(b, _)| over < *b) {
                best = Some((over, id));
            }
        }
        best.map(|(_, id)| id).ok_or_else(|| self.nowhere(ask))
    }

    fn nowhere(&self, ask: Ask<'_>) -> PlaceError {
        let s = self.request.app.service(ask.service);
        if ask.apart.is_empty() {
            return PlaceError::NoNode {
                service: s.name.clone(),
                nodes: self.cluster.nodes().count(),
            };
        }
        PlaceError::FaultDomains {
            service: s.name.clone(),
            replicas: s.replicas,
            domains: self.cluster.fault_domains(s.pin.as_ref()),
        }
    }
}
