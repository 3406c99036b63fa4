//! Whether a node can hold one more instance.

use crate::cluster::Cluster;
use crate::find::Wanted;
use crate::index::Need;
use crate::limits::ROUNDING;
use crate::misfit::Misfit;
use crate::node_state::NodeState;
use crate::request::Request;
use e3_model::application::Pin;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ServiceId};

/// Kinds of nodes that a placer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kinds {
    All,
    /// As if there were no SmartNICs; pins to them do not count.
    HostsOnly,
}

/// What is asked of a node: an instance of `service` in `role`, apart from the nodes in `apart`.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) service: ServiceId,
    pub(crate) role: Role,
    pub(crate) apart: &'a [NodeId],
    pub(crate) kinds: Kinds,
}

impl<'a> Ask<'a> {
    /// By a placer that uses all kinds of nodes.
    pub(crate) fn new(service: ServiceId, role: Role, apart: &'a [NodeId]) -> Ask<'a> {
        Ask {
            service,
            role,
            apart,
            kinds: Kinds::All,
        }
    }
}

/// What an instance takes on the kinds of node that the placer uses and the pin allows.
pub(crate) fn allowed(request: &Request<'_>, ask: Ask<'_>) -> Need {
    let pin = request.app.service(ask.service).pin.as_ref();
    let of = |kind| {
        let excluded = match (ask.kinds, pin) {
            (Kinds::HostsOnly, _) => kind == NodeKind::SmartNic,
            (Kinds::All, Some(Pin::Kind(pinned))) => kind != *pinned,
            (Kinds::All, _) => false,
        };
        (!excluded).then(|| request.demand(ask.service, ask.role, kind))
    };
    Need {
        host: of(NodeKind::Host),
        smartnic: of(NodeKind::SmartNic),
    }
}

/// What a node is looked for: the same conditions as [`check`], for a search of many.
pub(crate) fn wanted(request: &Request<'_>, cluster: &Cluster, ask: Ask<'_>) -> Wanted {
    let over = |kind| one_core(request, kind, ask).is_some_and(|(n, bound)| n > bound + ROUNDING);
    let allowed = allowed(request, ask);
    let of = |kind| allowed.of(kind).copied().filter(|_| !over(kind));
    let apart = ask.apart.iter().filter_map(|id| cluster.get(*id));
    Wanted {
        need: Need {
            host: of(NodeKind::Host),
            smartnic: of(NodeKind::SmartNic),
        },
        only: match &request.app.service(ask.service).pin {
            Some(Pin::Node(name)) if !is_dropped(cluster, ask, name) => Some(cluster.named(name)),
            _ => None,
        },
        apart: apart.map(|n| n.server).collect(),
        avoided: Vec::new(),
    }
}

/// Whether a pin to a node does not count, since the placer does not use SmartNICs.
fn is_dropped(cluster: &Cluster, ask: Ask<'_>, name: &str) -> bool {
    let pinned = cluster.named(name).map(|id| cluster.node(id).kind);
    ask.kinds == Kinds::HostsOnly && pinned == Some(NodeKind::SmartNic)
}

/// Checks what no overcommitment may break: membership, drain, pin, accelerators, fault domain.
pub(crate) fn check_hard(
    request: &Request<'_>,
    cluster: &Cluster,
    ask: Ask<'_>,
    id: NodeId,
) -> Result<(), Misfit> {
    let node = cluster.get(id).ok_or(Misfit::Unknown(id))?;
    if !node.member {
        return Err(Misfit::NotMember);
    }
    if node.drained {
        return Err(Misfit::Drained);
    }
    if ask.kinds == Kinds::HostsOnly && node.kind != NodeKind::Host {
        return Err(Misfit::Excluded(node.kind));
    }
    match &request.app.service(ask.service).pin {
        Some(Pin::Kind(kind)) if *kind != node.kind && ask.kinds == Kinds::All => {
            return Err(Misfit::Pin(format!("nodes of kind {}", kind.name())));
        }
        Some(Pin::Node(name)) if *name != node.name && !is_dropped(cluster, ask, name) => {
            return Err(Misfit::Pin(format!("node {name:?}")));
        }
        _ => {}
    }
    let required = request.accelerators_required(ask.service);
    if !node.accelerators.include(required) {
        let missing = required.without(node.accelerators);
        return Err(Misfit::Accelerators { missing });
    }
    let near = |other: &&NodeId| {
        cluster
            .get(**other)
            .is_some_and(|o| o.server == node.server)
    };
    match ask.apart.iter().find(near) {
        Some(other) => Err(Misfit::FaultDomain {
            other: cluster.node(*other).name.clone(),
        }),
        None => Ok(()),
    }
}

/// Checks memory and disk.
pub(crate) fn check_space(
    request: &Request<'_>,
    cluster: &Cluster,
    ask: Ask<'_>,
    id: NodeId,
) -> Result<(), Misfit> {
    let node = cluster.get(id).ok_or(Misfit::Unknown(id))?;
    let demand = request.demand(ask.service, ask.role, node.kind);
    let (need_bytes, left_bytes) = (demand.memory_bytes, node.memory_left_bytes());
    if need_bytes > left_bytes {
        return Err(Misfit::Memory {
            need_bytes,
            left_bytes,
        });
    }
    let (need_bytes, left_bytes) = (demand.disk_bytes, node.disk_left_bytes());
    if need_bytes > left_bytes {
        return Err(Misfit::Disk {
            need_bytes,
            left_bytes,
        });
    }
    Ok(())
}

/// Checks what no plan may break: see [`Misfit::is_firm`].
pub(crate) fn check_firm(
    request: &Request<'_>,
    cluster: &Cluster,
    ask: Ask<'_>,
    id: NodeId,
) -> Result<(), Misfit> {
    check_hard(request, cluster, ask, id)?;
    check_space(request, cluster, ask, id)?;
    let demand = request.demand(ask.service, ask.role, cluster.node(id).kind);
    cluster.power_misfit(id, &demand).map_or(Ok(()), Err)
}

/// Checks everything.
pub(crate) fn check(
    request: &Request<'_>,
    cluster: &Cluster,
    ask: Ask<'_>,
    id: NodeId,
) -> Result<(), Misfit> {
    // Before what an operator may accept to be exceeded.
    check_firm(request, cluster, ask, id)?;
    check_load(request, cluster, ask, id)
}

/// Checks cores, bandwidth and outstanding requests.
pub(crate) fn check_load(
    request: &Request<'_>,
    cluster: &Cluster,
    ask: Ask<'_>,
    id: NodeId,
) -> Result<(), Misfit> {
    let node = cluster.node(id);
    let demand = request.demand(ask.service, ask.role, node.kind);
    if let Some((need, bound)) = one_core(request, node.kind, ask)
        && need > bound + ROUNDING
    {
        return Err(Misfit::OneCore { need, bound });
    }
    if demand.cpu_cores > node.cpu_left_cores() + ROUNDING {
        return Err(Misfit::Cpu {
            need: demand.cpu_cores,
            left: node.cpu_left_cores(),
        });
    }
    if demand.bandwidth_gbps > node.bandwidth_left_gbps() + ROUNDING {
        return Err(Misfit::Bandwidth {
            need_gbps: demand.bandwidth_gbps,
            left_gbps: node.bandwidth_left_gbps(),
        });
    }
    let bound = node.outstanding_max();
    if node.outstanding > bound {
        return Err(Misfit::Outstanding {
            outstanding: node.outstanding,
            bound,
        });
    }
    Ok(())
}

/// Cores that a shard needs as a primary (a backup must be able to take over) and those that it can
/// get. None if that binds nothing: stateless work uses many cores, and a service time that is only
/// an upper bound proves nothing.
fn one_core(request: &Request<'_>, kind: NodeKind, ask: Ask<'_>) -> Option<(f64, f64)> {
    let service = request.app.service(ask.service);
    let known = !request.cost(ask.service, kind).lower_bound;
    let need = request.demand(ask.service, Role::Primary, kind);
    (service.stateful && known).then(|| (need.cpu_cores, service.resources.cpu.max(1.0)))
}

/// How far a node would be exceeded: what is firm first, since a node that runs out of memory or disk stops
/// working and one that runs out of cores is only slow; then the worst ratio of what is used to what is
/// there.
pub(crate) fn excess(
    request: &Request<'_>,
    cluster: &Cluster,
    id: NodeId,
    ask: Ask<'_>,
) -> (bool, f64) {
    let node = cluster.node(id);
    let demand = request.demand(ask.service, ask.role, node.kind);
    let memory = node.used.memory_bytes.saturating_add(demand.memory_bytes);
    let disk = node.used.disk_bytes.saturating_add(demand.disk_bytes);
    let misfit = cluster.power_misfit(id, &demand);
    let power = match misfit.filter(|_| cluster.ranks_power) {
        Some(Misfit::Power {
            max_w,
            need_w,
            left_w,
            ..
        }) => Some(1.0 + (need_w - left_w) / max_w),
        _ => None,
    };
    let ratio = (memory as f64 / node.memory_bytes as f64)
        .max((node.used.cpu_cores + demand.cpu_cores) / node.cores)
        .max((node.used.bandwidth_gbps + demand.bandwidth_gbps) / node.bandwidth_gbps)
        .max(disk as f64 / node.disk_bytes as f64)
        .max(power.unwrap_or(0.0))
        .max(one_core(request, node.kind, ask).map_or(0.0, |(need, bound)| need / bound));
    let is_over = memory > node.memory_bytes || disk > node.disk_bytes || power.is_some();
    (is_over, ratio)
}

/// Part of its cores that a node would need for this instance and all it has, if all the backups on
/// it took over.
pub(crate) fn load_after_fail_over(
    request: &Request<'_>,
    node: &NodeState,
    service: ServiceId,
) -> f64 {
    let full = request.demand(service, Role::Primary, node.kind);
    (node.used.cpu_cores + node.standby_cpu_cores + full.cpu_cores) / node.cores
}
