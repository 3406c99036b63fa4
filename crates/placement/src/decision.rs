//! Decisions with their reasons.

use crate::cluster::Cluster;
use crate::misfit::{Misfit, names};
use crate::node_state::NodeState;
use crate::request::{Preference, Request};
use e3_model::plan::Role;
use e3_model::{Accelerators, Nanos, NodeId, NodeKind, ServiceId, ShardId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An instance: replica 0 is the primary.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct InstanceKey {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// 0 = primary, 1.. = backups.
    pub replica: u16,
}

impl InstanceKey {
    /// Its part at deployment.
    pub fn role(&self) -> Role {
        match self.replica {
            0 => Role::Primary,
            _ => Role::Backup,
        }
    }
}

/// Distance of two nodes, closest first (E3, ATC 2019, Algorithm 1; further racks added).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// 1: the same node.
    SameNode,
    /// 2: another node of the same server.
    SameServer,
    /// 3: a SmartNIC of another server of the rack.
    RackSmartNic,
    /// 4: a host of another server of the rack.
    RackHost,
    /// 5: a SmartNIC in another rack.
    FarSmartNic,
    /// 6: a host in another rack.
    FarHost,
}

/// How a node was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The fitting node of the closest level that leaves the least free.
    BestFit,
    /// The first fitting node, whatever its distance.
    FirstFit,
    /// Nothing fits: the node that is exceeded least.
    Closest,
    /// The request needs the fewest joules this way, of the ways that were tried.
    FewestJoules,
    /// The service's instances are spread evenly, then the node with the most free.
    Even,
    /// A SmartNIC with enough memory if there is one.
    SmartNicFirst,
    /// Decided before.
    Given,
    /// The result of simulated annealing.
    Annealed,
    /// The result of an integer program.
    Optimised,
    /// A backup: another rack if there is one, then the node that would be the least loaded if all
    /// its backups took over.
    Spread,
}

/// What a distance is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Near {
    /// The parent's shard, or for a backup its primary.
    pub instance: InstanceKey,
    /// Where that is.
    pub node: NodeId,
}

/// Where an instance goes, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Which instance.
    pub key: InstanceKey,
    /// Where it goes.
    pub node: NodeId,
    /// What it should be near to; None for the source of the DAG.
    pub near: Option<Near>,
    /// Distance from there.
    pub level: Option<Level>,
    /// How the node was chosen.
    pub rule: Rule,
    /// Which kind of node the service should run on.
    pub preference: Preference,
    /// Nodes that were tried before and do not fit, at most [`crate::limits::REJECTED_MAX`].
    pub rejected: Vec<(NodeId, Misfit)>,
    /// Nodes that were tried beyond those.
    pub rejected_more: u32,
    /// What a request would cost on nodes that were considered, the cheapest first, at most
    /// [`crate::limits::CONSIDERED_MAX`]; empty for placers that do not look at costs.
    #[serde(default)]
    pub considered: Vec<Cost>,
    /// Set if the node is overcommitted: what it lacks.
    pub overcommitted: Option<Misfit>,
}

/// What it would cost to have one instance of a service on a node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Node.
    pub node: NodeId,
    /// Modelled energy that a request of a client adds at the knee, in microjoules.
    pub uj: f64,
    /// Service time there, if the profile knows it.
    pub service_time: Option<Nanos>,
}

/// Decisions for all instances of an application.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Placement {
    /// In the order in which they were taken: all primaries, then all backups.
    pub decisions: Vec<Decision>,
}

impl Placement {
    /// Nodes of a shard's replicas, the primary first.
    pub fn replicas(&self, service: ServiceId, shard: ShardId) -> Vec<NodeId> {
        let of_shard = |d: &&Decision| d.key.service == service && d.key.shard == shard;
        let mut found: Vec<_> = self.decisions.iter().filter(of_shard).collect();
        found.sort_by_key(|d| d.key.replica);
        found.iter().map(|d| d.node).collect()
    }

    /// Decisions that exceed a node.
    pub fn overcommitted(&self) -> impl Iterator<Item = &Decision> {
        let exceeds = |d: &&Decision| d.overcommitted.is_some();
        self.decisions.iter().filter(exceeds)
    }
}

/// Why an application or an instance cannot be placed at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError {
    /// No node is allowed.
    #[error(
        "service {service:?}: none of {nodes} nodes can run it; a node must be up, in service, and match its pin"
    )]
    NoNode {
        /// Service.
        service: String,
        /// Nodes of the cluster.
        nodes: usize,
    },
    /// Every node that it might run on lacks an accelerator.
    #[error(
        "service {service:?}: none of {nodes} nodes that may run it has the accelerators that it requires; {closest} comes closest: {} missing", names(*.missing)
    )]
    Accelerators {
        /// Service.
        service: String,
        /// Nodes that are up, in service, and match its pin.
        nodes: usize,
        /// The node that lacks fewest.
        closest: String,
        /// What it lacks.
        missing: Accelerators,
    },
    /// The solver has no solution.
    #[error("the solver gives no placement: {0}")]
    Solver(String),
    /// Too few servers.
    #[error(
        "service {service:?}: {replicas} replicas need {replicas} fault domains (servers), usable: {domains}"
    )]
    FaultDomains {
        /// Service.
        service: String,
        /// Replicas, the primary included.
        replicas: u16,
        /// Servers with a member that the service may run on.
        domains: usize,
    },
}

/// A decision as one line of text.
pub struct Explanation<'a> {
    decision: &'a Decision,
    request: &'a Request<'a>,
    cluster: &'a Cluster,
}

impl Decision {
    /// One line: what goes where, by which rule, and which nodes were rejected why.
    pub fn explain<'a>(
        &'a self,
        request: &'a Request<'a>,
        cluster: &'a Cluster,
    ) -> Explanation<'a> {
        Explanation {
            decision: self,
            request,
            cluster,
        }
    }
}

impl Level {
    /// All of them, closest first.
    pub const ALL: [Level; 6] = [
        Level::SameNode,
        Level::SameServer,
        Level::RackSmartNic,
        Level::RackHost,
        Level::FarSmartNic,
        Level::FarHost,
    ];

    /// Number as in the paper's Algorithm 1.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// In words, following "on".
    pub fn words(self) -> &'static str {
        match self {
            Level::SameNode => "same node",
            Level::SameServer => "same server",
            Level::RackSmartNic => "smartnic in the same rack",
            Level::RackHost => "host in the same rack",
            Level::FarSmartNic => "smartnic in another rack",
            Level::FarHost => "host in another rack",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::BestFit => "best fit",
            Rule::FirstFit => "first fit",
            Rule::Closest => "nothing fits, closest to fitting",
            Rule::FewestJoules => "fewest joules a request",
            Rule::Even => "spread evenly, least allocated",
            Rule::SmartNicFirst => "smartnics first, by memory",
            Rule::Given => "decided before",
            Rule::Annealed => "simulated annealing",
            Rule::Optimised => "integer program",
            Rule::Spread => "backup in another fault domain, least loaded after fail-over",
        })
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preference::None => f.write_str("no kind preferred"),
            Preference::Latency { kind } => {
                write!(f, "prefers {}: the other kind is too slow", kind.name())
            }
            Preference::Joules {
                kind,
                uj,
                uj_other,
                provenance,
            } => write!(
                f,
                "prefers {}: {uj:.1} uJ a request against {uj_other:.1} (modelled, profile: {})",
                kind.name(),
                provenance.name()
            ),
        }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.decision;
        let node = |id: NodeId| self.cluster.get(id).map_or("?", |n| n.name.as_str());
        let name = |s: ServiceId| &self.request.app.service(s).name;
        write!(f, "{}/{} ", name(d.key.service), d.key.shard)?;
        match d.key.replica {
            0 => write!(f, "primary")?,
            n => write!(f, "backup {n}")?,
        }
        write!(f, " -> {}: ", node(d.node))?;
        if let (Some(level), Some(near)) = (d.level, d.near) {
            write!(f, "level {} ({}", level.number(), level.words())?;
            match d.key.replica {
                0 => write!(
                    f,
                    " as {}/{}), ",
                    name(near.instance.service),
                    near.instance.shard
                )?,
                _ => write!(f, " seen from its primary), ")?,
            }
        }
        write!(f, "{}; {}", d.rule, d.preference)?;
        for (id, why) in &d.rejected {
            write!(f, "; {} rejected: {why}", node(*id))?;
        }
        if d.rejected_more > 0 {
            write!(f, "; {} more rejected", d.rejected_more)?;
        }
        if let Some(why) = &d.overcommitted {
            write!(f, "; OVERCOMMITTED: {why}")?;
        }
        Ok(())
    }
}

/// Distance between two nodes.
pub(crate) fn level(from: (NodeId, &NodeState), to: (NodeId, &NodeState)) -> Level {
    let smartnic = to.1.kind == NodeKind::SmartNic;
    if from.0 == to.0 {
        Level::SameNode
    } else if from.1.server == to.1.server {
        Level::SameServer
    } else if from.1.rack == to.1.rack {
        if smartnic {
            Level::RackSmartNic
        } else {
            Level::RackHost
        }
    } else if smartnic {
        Level::FarSmartNic
    } else {
        Level::FarHost
    }
}
