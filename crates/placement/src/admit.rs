//! Whether an application is admitted. Deploying and its dry run call this and nothing else, so that
//! they never disagree.
//!
//! Memory, disk and power budgets are never overcommitted, and no instance is admitted that asks for more cores than any node
//! has. Beyond that the sum of what is reserved at design load (`resources`, `load`) must be within
//! every node's cores and port, unless the caller accepts overcommitment: then some requests only
//! take longer.

use crate::cluster::Cluster;
use crate::decision::{Decision, PlaceError, Placement};
use crate::fit::{Ask, Kinds, check_hard};
use crate::limits::ROUNDING;
use crate::misfit::{Misfit, PowerBound};
use crate::node_state::NodeState;
use crate::request::Request;
use crate::{HostsOnly, Placer};
use e3_model::{Bytes, NodeId};
use std::fmt;

/// Why an application is not admitted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AdmitError {
    /// The rules leave no node.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// An instance fits on no node, whatever else runs there.
    #[error("{0}, and no node it may run on is large enough")]
    TooLarge(Box<Shortage>),
    /// An instance fits on no node beside what is reserved there.
    #[error("{0}")]
    NoRoom(Box<Shortage>),
}

/// What an instance lacks.
#[derive(Clone, PartialEq, Debug)]
pub struct Shortage {
    /// `service/shard primary` or `service/shard backup N`.
    pub instance: String,
    /// What it asks for, with its unit.
    pub need: String,
    /// The most that one node has free of it, with its unit.
    pub free: String,
    /// The node that has it.
    pub free_on: String,
    /// The node that comes closest to fitting.
    pub closest: String,
    /// What lacks there.
    pub misfit: Misfit,
    /// Instances that do not fit.
    pub over: usize,
    /// Instances of the application.
    pub instances: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "instance {} fits on no node: it asks for {}, the most that one node has free is {} \
             ({}); {} comes closest: {}; {} of {} instances do not fit",
            self.instance,
            self.need,
            self.free,
            self.free_on,
            self.closest,
            self.misfit,
            self.over,
            self.instances
        )
    }
}

impl AdmitError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            AdmitError::Place(PlaceError::Solver(_)) => "choose another placer, such as joules",
            AdmitError::Place(PlaceError::Accelerators { .. }) => {
                "see which accelerators nodes have: e3 describe node"
            }
            AdmitError::Place(_) => "see which nodes are up: e3 get nodes",
            AdmitError::TooLarge(_) => {
                "ask for less in resources, or spread the load over more shards"
            }
            AdmitError::NoRoom(s) => s.hint(),
        }
    }
}

impl Shortage {
    fn hint(&self) -> &'static str {
        match self.misfit {
            Misfit::Memory { .. } => "ask for less memory, or delete another application",
            Misfit::Disk { .. } => "ask for less disk, or delete another application",
            Misfit::Power {
                bound: PowerBound::Budget,
                ..
            } => {
                "ask for less in resources, delete another application, or raise powerBudgetW in the \
                 topology"
            }
            Misfit::Power { .. } => {
                "ask for less in resources, delete another application, or raise the cap: e3 power cap"
            }
            _ => {
                "ask for less in resources, delete another application, or accept slower requests \
                 with --overcommit"
            }
        }
    }
}

/// Places an application, or says why it is not admitted. `overcommit` accepts more cores, bandwidth
/// and waiting requests than nodes have free; never more memory, disk or power. What it takes is reserved; an error
/// leaves the cluster as it was.
pub fn admit(
    placer: &dyn Placer,
    request: &Request<'_>,
    cluster: &mut Cluster,
    overcommit: bool,
) -> Result<Placement, AdmitError> {
    let placement = cluster.try_out(|cluster| placer.place(request, cluster))?;
    accept(placer.name(), request, cluster, &placement, overcommit)?;
    Ok(placement)
}

/// As [`admit`], with the placement of the placer of that name.
pub fn accept(
    placer: &str,
    request: &Request<'_>,
    cluster: &mut Cluster,
    placement: &Placement,
    overcommit: bool,
) -> Result<(), AdmitError> {
    let kinds = if placer == HostsOnly.name() {
        Kinds::HostsOnly
    } else {
        Kinds::All
    };
    cluster.attempt(|cluster| reserve(request, cluster, placement, kinds, overcommit))
}

fn reserve(
    request: &Request<'_>,
    cluster: &mut Cluster,
    placement: &Placement,
    kinds: Kinds,
    overcommit: bool,
) -> Result<(), AdmitError> {
    let mut refused: Option<AdmitError> = None;
    for d in &placement.decisions {
        if let Some(misfit) = &d.overcommitted {
            let search = Lack {
                request,
                cluster: &*cluster,
                placement,
                kinds,
                decision: d,
            };
            let shortage = || Box::new(search.shortage(misfit));
            // Report first what can never fit: nothing else helps.
            if search.too_large(misfit) {
                return Err(AdmitError::TooLarge(shortage()));
            }
            if refused.is_none() && (misfit.is_firm() || !overcommit) {
                refused = Some(AdmitError::NoRoom(shortage()));
            }
        }
        cluster.add(request, d.key.service, d.key.role(), d.node);
    }
    refused.map_or(Ok(()), Err)
}

/// A decision that exceeds its node, beside what was reserved before it.
struct Lack<'a> {
    request: &'a Request<'a>,
    cluster: &'a Cluster,
    placement: &'a Placement,
    kinds: Kinds,
    decision: &'a Decision,
}

impl Lack<'_> {
    /// Nodes that the instance may run on.
    fn allowed(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        let d = self.decision;
        let mut apart = self.placement.replicas(d.key.service, d.key.shard);
        apart.truncate(usize::from(d.key.replica));
        self.cluster.nodes().filter(move |(id, _)| {
            let ask = Ask {
                service: d.key.service,
                role: d.key.role(),
                apart: &apart,
                kinds: self.kinds,
            };
            check_hard(self.request, self.cluster, ask, *id).is_ok()
        })
    }

    fn too_large(&self, misfit: &Misfit) -> bool {
        let d = self.decision;
        self.allowed().all(|(_, n)| {
            let demand = self.request.demand(d.key.service, d.key.role(), n.kind);
            match misfit {
                Misfit::Memory { .. } => demand.memory_bytes > n.memory_bytes,
                Misfit::Disk { .. } => demand.disk_bytes > n.disk_bytes,
                Misfit::Cpu { .. } | Misfit::OneCore { .. } => {
                    demand.cpu_cores > n.cores + ROUNDING
                }
                _ => false,
            }
        })
    }

    /// The node that lacks the fewest watts, and what lacks there.
    fn least_power(&self) -> Option<(NodeId, Misfit)> {
        let d = self.decision;
        let lacking = self.allowed().filter_map(|(id, n)| {
            let demand = self.request.demand(d.key.service, d.key.role(), n.kind);
            let misfit = self.cluster.power_misfit(id, &demand)?;
            Some((id, misfit))
        });
        let missing_w = |misfit: &Misfit| match misfit {
            Misfit::Power { need_w, left_w, .. } => need_w - left_w,
            _ => 0.0,
        };
        lacking.min_by(|a, b| missing_w(&a.1).total_cmp(&missing_w(&b.1)))
    }

    fn shortage(&self, misfit: &Misfit) -> Shortage {
        let d = self.decision;
        let of_power = matches!(misfit, Misfit::Power { .. }).then(|| self.least_power());
        let (closest, misfit) = of_power.flatten().unwrap_or((d.node, misfit.clone()));
        let misfit = &misfit;
        let service = &self.request.app.service(d.key.service).name;
        let part = match d.key.replica {
            0 => "primary".to_string(),
            n => format!("backup {n}"),
        };
        let most = |of: &dyn Fn(&NodeState) -> f64| {
            let nodes = self.allowed().map(|(_, n)| (of(n), n.name.clone()));
            nodes
                .reduce(|most, next| if next.0 > most.0 { next } else { most })
                .expect("it was placed on one")
        };
        let (need, (free, free_on)) = match misfit {
            Misfit::Memory { need_bytes, .. } => {
                let (free, on) = most(&|n| n.memory_left_bytes() as f64);
                let need = format!("{} of memory", Bytes(*need_bytes));
                (need, (Bytes(free as u64).to_string(), on))
            }
            Misfit::Disk { need_bytes, .. } => {
                let (free, on) = most(&|n| n.disk_left_bytes() as f64);
                let need = format!("{} of disk", Bytes(*need_bytes));
                (need, (Bytes(free as u64).to_string(), on))
            }
            Misfit::Bandwidth { need_gbps, .. } => {
                let (free, on) = most(&|n| n.bandwidth_left_gbps());
                let free = format!("{:.3} Gb/s", free.max(0.0));
                (format!("{need_gbps:.3} Gb/s"), (free, on))
            }
            Misfit::Outstanding { bound, .. } => {
                let (waiting, on) = most(&|n| -(n.outstanding as f64));
                let need = format!("a node with at most {bound} waiting requests");
                (need, (format!("one with {}", -waiting), on))
            }
            Misfit::Power { need_w, left_w, .. } => {
                let on = self.cluster.node(closest).name.clone();
                (format!("{need_w:.1} W"), (format!("{left_w:.1} W"), on))
            }
            _ => {
                let demand = self.request.demand(
                    d.key.service,
                    d.key.role(),
                    self.cluster.node(d.node).kind,
                );
                let (free, on) = most(&NodeState::cpu_left_cores);
                let free = format!("{:.2} cores", free.max(0.0));
                (format!("{:.2} cores", demand.cpu_cores), (free, on))
            }
        };
        Shortage {
            instance: format!("{service}/{} {part}", d.key.shard),
            need,
            free,
            free_on,
            closest: self.cluster.node(closest).name.clone(),
            misfit: misfit.clone(),
            over: self.placement.overcommitted().count(),
            instances: self.placement.decisions.len(),
        }
    }
}
