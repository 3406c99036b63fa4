//! The search for one instance's node, shared by the placers and by the moves of running instances.

use crate::cluster::Cluster;
use crate::decision::{Decision, InstanceKey, Level, Near, PlaceError, Rule, level};
use crate::find::{Find, Indexed, Wanted};
use crate::fit::{Ask, Kinds, check, check_hard, wanted};
use crate::index::Need;
use crate::limits::REJECTED_MAX;
use crate::misfit::Misfit;
use crate::request::Request;
use e3_model::plan::Role;
use e3_model::{Accelerators, NodeId, NodeKind};

/// The order in which levels and kinds of nodes are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Levels {
    /// As the paper prints it: distance alone.
    AsPrinted,
    /// Levels of equal reach (1 and 2: the server; 3 and 4: the rack; 5 and 6: other racks) are tried
    /// on the kind first that needs fewer joules for a request, so that distance in servers still goes
    /// before joules. A kind that breaks the latency objective comes after all levels of the other.
    KindFirst,
}

/// A variant of the algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Variant<'a> {
    pub(crate) kinds: Kinds,
    pub(crate) levels: Levels,
    pub(crate) find: &'a dyn Find,
}

pub(crate) const PRINTED: Variant<'static> = Variant {
    kinds: Kinds::All,
    levels: Levels::AsPrinted,
    find: &Indexed,
};

pub(crate) const KIND_FIRST: Variant<'static> = Variant {
    levels: Levels::KindFirst,
    ..PRINTED
};

/// Looks for nodes; holds nothing of its own.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    request: &'a Request<'a>,
    cluster: &'a Cluster,
    kinds: Kinds,
    levels: Levels,
    find: &'a dyn Find,
}

/// Nodes that were tried and did not fit.
#[derive(Default)]
struct Rejected {
    nodes: Vec<NodeId>,
    more: u32,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        request: &'a Request<'a>,
        cluster: &'a Cluster,
        variant: Variant<'a>,
    ) -> Search<'a> {
        Search {
            request,
            cluster,
            kinds: variant.kinds,
            levels: variant.levels,
            find: variant.find,
        }
    }

    /// A node for a primary, near another instance or anywhere, apart from its shard's backups.
    pub(crate) fn primary(
        &self,
        key: InstanceKey,
        near: Option<Near>,
        apart: &[NodeId],
    ) -> Result<Decision, PlaceError> {
        let ask = self.ask(key, Role::Primary, apart);
        let wanted = wanted(self.request, self.cluster, ask);
        let mut rejected = Rejected::default();
        let by_level = near
            .filter(|near| self.cluster.get(near.node).is_some())
            .and_then(|near| self.by_level(ask, &wanted, near.node, &mut rejected));
        let (node, rule) = match by_level {
            Some(node) => (node, Rule::BestFit),
            None => match self.first_fit(ask, &wanted, &mut rejected) {
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
        let ask = self.ask(key, Role::Backup, replicas);
        let wanted = wanted(self.request, self.cluster, ask);
        let near = replicas.first().map(|node| Near {
            instance: InstanceKey { replica: 0, ..key },
            node: *node,
        });
        let (node, rule) = match self.spread(ask, &wanted, replicas) {
            Some(node) => (node, Rule::Spread),
            None => (self.closest(ask)?, Rule::Closest),
        };
        Ok(self.decision(key, ask, node, rule, near, Rejected::default()))
    }

    /// Another rack first, then the preferred kind, then the lowest load after fail-over.
    fn spread(&self, ask: Ask<'_>, wanted: &Wanted, replicas: &[NodeId]) -> Option<NodeId> {
        let known = replicas.iter().filter_map(|r| self.cluster.get(*r));
        let racks: Vec<usize> = known.map(|n| n.rack).collect();
        let of = |kind| Some(self.request.demand(ask.service, Role::Primary, kind));
        let full = Need {
            host: of(NodeKind::Host),
            smartnic: of(NodeKind::SmartNic),
        };
        let other_racks = (self.cluster.racks() > 1).then_some(&racks[..]);
        for racks in other_racks.into_iter().chain([&[][..]]) {
            for rank in 0..2 {
                let wanted = self.of_kinds(wanted, |kind| self.rank(ask, kind) == rank);
                let find = self.find.least_loaded(self.cluster, &wanted, &full, racks);
                if let Some((_, node)) = find {
                    return Some(node);
                }
            }
        }
        None
    }

    fn ask<'b>(&self, key: InstanceKey, role: Role, apart: &'b [NodeId]) -> Ask<'b> {
        Ask {
            service: key.service,
            role,
            apart,
            kinds: self.kinds,
        }
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
        let misfit = |id: &NodeId| {
            let why = check(self.request, self.cluster, ask, *id).err()?;
            // The servers of the other replicas are never a choice, so they are not listed.
            (!matches!(why, Misfit::FaultDomain { .. })).then_some((*id, why))
        };
        Decision {
            key,
            node,
            near,
            level: near.and_then(from).map(|from| level(from, to)),
            rule,
            preference: self.request.preference(key.service),
            rejected: rejected.nodes.iter().filter_map(misfit).collect(),
            rejected_more: rejected.more,
            considered: Vec::new(),
            overcommitted: check(self.request, self.cluster, ask, node).err(),
        }
    }

    /// 0 for the preferred kind, 1 for the other; 0 for both if nothing distinguishes them.
    fn rank(&self, ask: Ask<'_>, kind: NodeKind) -> usize {
        let preferred = match self.levels {
            Levels::AsPrinted => None,
            Levels::KindFirst => self.request.preference(ask.service).kind(),
        };
        usize::from(preferred.is_some_and(|p| p != kind))
    }

    /// Best fit in the closest level, as [`Levels`] orders them.
    fn by_level(
        &self,
        ask: Ask<'_>,
        wanted: &Wanted,
        from: NodeId,
        rejected: &mut Rejected,
    ) -> Option<NodeId> {
        let late = |kind| self.request.cost(ask.service, kind).late;
        // If both kinds are too slow, neither is put off.
        let both = late(NodeKind::Host) && late(NodeKind::SmartNic);
        let put_off = |kind| self.levels == Levels::KindFirst && late(kind) && !both;
        for is_put_off in [false, true] {
            for reach in Level::ALL.chunks(2) {
                for rank in 0..2 {
                    let is_wanted =
                        |kind| put_off(kind) == is_put_off && self.rank(ask, kind) == rank;
                    let wanted = self.of_kinds(wanted, is_wanted);
                    if !is_wanted(NodeKind::Host) && !is_wanted(NodeKind::SmartNic) {
                        continue;
                    }
                    for level in reach {
                        let mut small = |nodes: &[NodeId]| self.reject(rejected, nodes, is_wanted);
                        let cluster = self.cluster;
                        let found = self.find.best(cluster, &wanted, from, *level, &mut small);
                        if found.is_some() {
                            return found;
                        }
                    }
                }
            }
        }
        None
    }

    fn of_kinds(&self, wanted: &Wanted, is_wanted: impl Fn(NodeKind) -> bool) -> Wanted {
        let of = |kind| wanted.need.of(kind).copied().filter(|_| is_wanted(kind));
        wanted.with(Need {
            host: of(NodeKind::Host),
            smartnic: of(NodeKind::SmartNic),
        })
    }

    fn first_fit(&self, ask: Ask<'_>, wanted: &Wanted, rejected: &mut Rejected) -> Option<NodeId> {
        (0..2).find_map(|rank| {
            let is_wanted = |kind| self.rank(ask, kind) == rank;
            let wanted = self.of_kinds(wanted, is_wanted);
            let mut small = |nodes: &[NodeId]| self.reject(rejected, nodes, is_wanted);
            self.find.first(self.cluster, &wanted, &mut small)
        })
    }

    /// Notes those nodes of the kinds in question that were too small; beyond the first ones it only
    /// counts.
    fn reject(
        &self,
        rejected: &mut Rejected,
        nodes: &[NodeId],
        is_wanted: impl Fn(NodeKind) -> bool,
    ) {
        for (at, id) in nodes.iter().enumerate() {
            if rejected.nodes.len() == REJECTED_MAX {
                rejected.more += (nodes.len() - at) as u32;
                return;
            }
            if is_wanted(self.cluster.node(*id).kind) && !rejected.nodes.contains(id) {
                rejected.nodes.push(*id);
            }
        }
    }

    /// The node that is exceeded least among those that are allowed at all.
    pub(crate) fn closest(&self, ask: Ask<'_>) -> Result<NodeId, PlaceError> {
        let found = self.find.exceeded_least(self.cluster, self.request, ask);
        found.ok_or_else(|| self.nowhere(ask))
    }

    fn nowhere(&self, ask: Ask<'_>) -> PlaceError {
        let s = self.request.app.service(ask.service);
        if let Some(lacking) = self.lacking(ask) {
            return lacking;
        }
        if ask.apart.is_empty() {
            return PlaceError::NoNode {
                service: s.name.clone(),
                nodes: self.cluster.nodes().count(),
            };
        }
        PlaceError::FaultDomains {
            service: s.name.clone(),
            replicas: s.replicas,
            domains: self
                .cluster
                .fault_domains(s.pin.as_ref(), s.accelerators_required()),
        }
    }

    /// That only accelerators keep the service off all nodes, if so.
    fn lacking(&self, ask: Ask<'_>) -> Option<PlaceError> {
        let ask = Ask { apart: &[], ..ask };
        let mut nodes = 0;
        let mut closest: Option<(usize, &str, Accelerators)> = None;
        for (id, node) in self.cluster.nodes() {
            match check_hard(self.request, self.cluster, ask, id) {
                Ok(()) => return None,
                Err(Misfit::Accelerators { missing }) => {
                    nodes += 1;
                    let count = missing.iter().count();
                    if closest.is_none_or(|(least, ..)| count < least) {
                        closest = Some((count, &node.name, missing));
                    }
                }
                Err(_) => {}
            }
        }
        let (_, closest, missing) = closest?;
        Some(PlaceError::Accelerators {
            service: self.request.app.service(ask.service).name.clone(),
            nodes,
            closest: closest.to_string(),
            missing,
        })
    }
}
