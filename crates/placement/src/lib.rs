//! Placement of instances on nodes: E3 (ATC 2019), sections 3.2 and 3.5.
//!
//! A [`Placer`] gets a [`Request`] (an application with its costs on each kind of node) and a
//! [`Cluster`] (what each node has left), and answers with a [`Placement`] in which every decision
//! carries its reasons. Placers are chosen by name. [`pick_primary`], [`pick_backup`] and [`fits`]
//! answer the same questions for one instance of a running application.
//!
//! Nothing here reads a clock, and random numbers come from a seed: the same input gives the same output.

mod admit;
mod annealing;
mod assignment;
mod better;
mod budget;
mod candidates;
mod cluster;
mod counts;
mod decision;
mod draw;
pub mod evaluate;
mod find;
mod fit;
mod hcm;
pub mod ilp;
mod index;
mod joules;
mod knee;
mod latency;
pub mod limits;
mod misfit;
mod model;
mod nicfirst;
mod node_state;
mod objective;
mod parents;
mod placers;
mod request;
mod search;
mod shards;
mod spread;
mod weigh;

pub use admit::{AdmitError, Shortage, accept, admit};
pub use assignment::given;
pub use better::{better_backup, better_primary};
pub use budget::{BudgetError, CapError, check_budgets, check_caps, idle_w};
pub use cluster::{Changes, Cluster};
pub use decision::{
    Cost, Decision, Explanation, InstanceKey, Level, Near, PlaceError, Placement, Rule,
};
pub use evaluate::{Score, evaluate, with_possible_replicas};
pub use joules::{Carried, Following, Move, Offered, carried, follow};
pub use misfit::{Misfit, PowerBound};
pub use node_state::NodeState;
pub use placers::{
    Annealing, Hcm, HcmKind, HcmLinear, HostsOnly, Joules, NicFirst, PLACER_DEFAULT, PLACERS,
    Spread, by_name,
};
pub use request::{Demand, KindCost, Preference, Request, Reservation};
pub use weigh::{Alternatives, Price, Weighed, weigh};

use e3_model::plan::Role;
use e3_model::{NodeId, PowerDomain, ServiceId, ShardId};
use fit::Ask;
use search::{KIND_FIRST, Search};

/// A way to place applications.
pub trait Placer {
    /// Name in the configuration.
    fn name(&self) -> &'static str;
    /// Places all instances of an application beside what is reserved already, and reserves what they
    /// take. Some decisions may be flagged as overcommitted. An error leaves the cluster as it was.
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError>;
}

/// A node for the primary of one shard: near the shard of its first parent, whose primaries are on
/// `parents` (by shard; empty for the source of the DAG), and apart from its backups.
pub fn pick_primary(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    shard: ShardId,
    parents: &[NodeId],
    backups: &[NodeId],
) -> Result<Decision, PlaceError> {
    let near = near_parent(request, service, shard, parents);
    let key = InstanceKey {
        service,
        shard,
        replica: 0,
    };
    search(request, cluster).primary(key, near, backups)
}

/// What the primary of a shard should be near to.
fn near_parent(
    request: &Request<'_>,
    service: ServiceId,
    shard: ShardId,
    parents: &[NodeId],
) -> Option<Near> {
    let walk = request.walk().iter();
    let parent = walk.filter(|(s, _)| *s == service).find_map(|(_, p)| *p);
    parent.filter(|_| !parents.is_empty()).map(|parent| {
        let shards = request.app.service(service).shards;
        hcm::near(shard, shards, parent, parents)
    })
}

/// A node for a new backup of a shard whose other replicas are on `replicas`, the primary first.
/// The decision is flagged if no node has enough free, with a firm [`Misfit`] only if every node has one.
pub fn pick_backup(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    shard: ShardId,
    replicas: &[NodeId],
) -> Result<Decision, PlaceError> {
    let key = InstanceKey {
        service,
        shard,
        replica: replicas.len() as u16,
    };
    search(request, cluster).backup(key, replicas)
}

/// Whether an operator may move an instance to a node: membership, drain, pin, fault domain of the shard's
/// `others` (without the instance that moves), accelerators, memory and disk. Cores and bandwidth are the
/// operator's risk; see [`fits_firmly`] for power and [`fits_fully`].
pub fn fits(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    role: Role,
    to: NodeId,
    others: &[NodeId],
) -> Result<(), Misfit> {
    let ask = Ask::new(service, role, others);
    fit::check_hard(request, cluster, ask, to)?;
    fit::check_space(request, cluster, ask, to)
}

/// As [`fits`], and power too: what no plan may break ([`Misfit::is_firm`]).
pub fn fits_firmly(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    role: Role,
    to: NodeId,
    others: &[NodeId],
) -> Result<(), Misfit> {
    fit::check_firm(request, cluster, Ask::new(service, role, others), to)
}

/// As [`fits`], and cores, bandwidth and outstanding requests too.
pub fn fits_fully(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    role: Role,
    to: NodeId,
    others: &[NodeId],
) -> Result<(), Misfit> {
    fit::check(request, cluster, Ask::new(service, role, others), to)
}

/// As [`fits_fully`] for a primary, but what is reserved may exceed the power cap of this server or rack: the
/// instance leaves another node of it, so that it draws less.
pub fn fits_within(
    request: &Request<'_>,
    cluster: &Cluster,
    service: ServiceId,
    to: NodeId,
    others: &[NodeId],
    domain: &PowerDomain,
) -> Result<(), Misfit> {
    let ask = Ask::new(service, Role::Primary, others);
    match fit::check(request, cluster, ask, to) {
        Err(Misfit::Power {
            bound: PowerBound::Cap,
            what,
            ..
        }) if what == domain.to_string() => fit::check_load(request, cluster, ask, to),
        checked => checked,
    }
}

fn search<'a>(request: &'a Request<'a>, cluster: &'a Cluster) -> Search<'a> {
    Search::new(request, cluster, KIND_FIRST)
}
