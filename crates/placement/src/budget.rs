//! Power budgets of servers and racks, which the topology has, and power caps, which operators set.
//!
//! What counts is the modelled power of what is reserved: a node's part above idle with its reserved
//! cores busy, and the idle power of its server as soon as anything is on it. A server with nothing on
//! it sleeps. A cap is of what is really drawn, and nobody switches off servers, so a server under a cap, its
//! own or its rack's, counts as awake in any case.

use crate::limits::ROUNDING;
use crate::misfit::{Misfit, PowerBound};
use crate::node_state::NodeState;
use crate::request::Demand;
use e3_model::topology::Server;
use e3_model::{NodeId, PowerCaps, PowerDomain, Topology};
use e3_power::{PowerModel, Scale};
use std::ops::Range;

/// A budget that not even an idle cluster keeps.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "{what}: power budget {budget_w:.0} W, must be at least {idle_w:.0} W: that is what it draws when idle"
)]
pub struct BudgetError {
    /// `server NAME` or `rack NAME`.
    pub what: String,
    /// Its budget.
    pub budget_w: f64,
    /// Its idle power.
    pub idle_w: f64,
}

/// A power cap that not even an idle cluster keeps.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{domain}: power cap {cap_w} W, must be at least {} W: that is what it draws when idle", idle_w.ceil())]
pub struct CapError {
    /// What it is the cap of.
    pub domain: PowerDomain,
    /// The cap.
    pub cap_w: u32,
    /// Its idle power.
    pub idle_w: f64,
}

/// What bounds a part of the cluster, and what it draws.
#[derive(Clone, Debug)]
struct Domain {
    name: String,
    /// The lower of its budget and its cap.
    max_w: f64,
    /// Which of the two that is.
    bound: PowerBound,
    drawn_w: f64,
}

impl Domain {
    fn new(name: &str, budget_w: Option<f64>, cap_w: Option<u32>) -> Domain {
        let budget_w = budget_w.unwrap_or(f64::INFINITY);
        let cap_w = cap_w.map_or(f64::INFINITY, f64::from);
        Domain {
            name: name.to_string(),
            max_w: budget_w.min(cap_w),
            bound: if cap_w < budget_w {
                PowerBound::Cap
            } else {
                PowerBound::Budget
            },
            drawn_w: 0.0,
        }
    }
}

/// The budgets of a cluster that has any.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    servers: Vec<Domain>,
    racks: Vec<Domain>,
    /// By node: its part.
    node_w: Vec<f64>,
    is_used: Vec<bool>,
    /// By server: whether a cap, its own or its rack's, applies.
    is_capped: Vec<bool>,
    /// By server: its nodes, which follow one another.
    nodes_of: Vec<Vec<NodeId>>,
    /// By rack: its servers.
    servers_of: Vec<Range<usize>>,
}

/// Checks that each budget is at least the idle power.
pub fn check_budgets(topology: &Topology, power: &PowerModel) -> Result<(), BudgetError> {
    let check = |what: String, budget_w: Option<f64>, idle_w: f64| match budget_w {
        Some(budget_w) if budget_w < idle_w || budget_w.is_nan() => Err(BudgetError {
            what,
            budget_w,
            idle_w,
        }),
        _ => Ok(()),
    };
    for rack in &topology.spec.racks {
        let mut rack_w = 0.0;
        for server in &rack.servers {
            let nodes = server.nodes.iter().map(|n| (n.kind, f64::from(n.cores)));
            let idle_w = power.scale(&server.system, nodes).idle_w;
            check(
                format!("server {:?}", server.name),
                server.power_budget_w,
                idle_w,
            )?;
            rack_w += idle_w;
        }
        check(format!("rack {:?}", rack.name), rack.power_budget_w, rack_w)?;
    }
    Ok(())
}

/// Idle power of a server or rack; None if the topology does not have it.
pub fn idle_w(topology: &Topology, power: &PowerModel, domain: &PowerDomain) -> Option<f64> {
    let of_server = |server: &Server| {
        let nodes = server.nodes.iter().map(|n| (n.kind, f64::from(n.cores)));
        power.scale(&server.system, nodes).idle_w
    };
    let mut racks = topology.spec.racks.iter();
    match domain {
        PowerDomain::Rack(name) => {
            let rack = racks.find(|r| r.name == *name)?;
            Some(rack.servers.iter().map(of_server).sum())
        }
        PowerDomain::Server(name) => {
            let mut servers = racks.flat_map(|r| &r.servers);
            servers.find(|s| s.name == *name).map(of_server)
        }
    }
}

/// Checks that each cap is at least the idle power.
pub fn check_caps(
    topology: &Topology,
    power: &PowerModel,
    caps: &PowerCaps,
) -> Result<(), CapError> {
    for (domain, cap_w) in caps.iter() {
        let idle_w = idle_w(topology, power, &domain).unwrap_or(0.0);
        if f64::from(cap_w) < idle_w {
            return Err(CapError {
                domain,
                cap_w,
                idle_w,
            });
        }
    }
    Ok(())
}

impl Budgets {
    /// The budgets of a topology, and the caps; None if nothing is bounded.
    pub(crate) fn new(topology: &Topology, caps: &PowerCaps) -> Option<Budgets> {
        let racks = || topology.spec.racks.iter();
        let servers = || racks().flat_map(|r| &r.servers);
        let any = racks().any(|r| r.power_budget_w.is_some())
            || servers().any(|s| s.power_budget_w.is_some())
            || !caps.is_empty();
        let nodes = topology.table_len();
        let mut nodes_of = vec![Vec::new(); servers().count()];
        for node in topology.nodes() {
            nodes_of[node.server].push(node.id);
        }
        any.then(|| Budgets {
            servers: servers()
                .map(|s| Domain::new(&s.name, s.power_budget_w, caps.of_server(&s.name)))
                .collect(),
            racks: racks()
                .map(|r| Domain::new(&r.name, r.power_budget_w, caps.of_rack(&r.name)))
                .collect(),
            is_capped: are_capped(topology, caps),
            node_w: vec![0.0; nodes],
            is_used: vec![false; nodes],
            nodes_of,
            servers_of: ranges(racks().map(|r| r.servers.len())),
        })
    }

    /// Takes up what has changed about a node.
    pub(crate) fn update(
        &mut self,
        id: NodeId,
        node: &NodeState,
        power: &PowerModel,
        scale: Scale,
    ) {
        let at = id.index();
        self.node_w[at] = node_w(node, node.used.cpu_cores, power, scale);
        self.is_used[at] = node.used != Demand::default();
        let idle_w = if self.is_awake(node.server) {
            scale.idle_w
        } else {
            0.0
        };
        let of_server = self.nodes_of[node.server].iter();
        let nodes_w: f64 = of_server.map(|id| self.node_w[id.index()]).sum();
        self.servers[node.server].drawn_w = idle_w + nodes_w;
        // Summed again: what a rack draws depends on what is on it, not on how it came there.
        let of_rack = &self.servers[self.servers_of[node.rack].clone()];
        self.racks[node.rack].drawn_w = of_rack.iter().map(|s| s.drawn_w).sum();
    }

    /// Whether anything is on a server, or a cap counts it as awake.
    fn is_awake(&self, server: usize) -> bool {
        let mut nodes = self.nodes_of[server].iter();
        self.is_capped[server] || nodes.any(|id| self.is_used[id.index()])
    }

    /// Whether a cap applies to a server: then its idle power counts in any case.
    pub(crate) fn is_capped(&self, server: usize) -> bool {
        self.is_capped[server]
    }

    /// Watts that a demand adds at a node.
    fn added_w(
        &self,
        id: NodeId,
        node: &NodeState,
        need: &Demand,
        power: &PowerModel,
        scale: Scale,
    ) -> f64 {
        let with = node_w(node, node.used.cpu_cores + need.cpu_cores, power, scale);
        let wakes = !self.is_awake(node.server);
        with - self.node_w[id.index()] + if wakes { scale.idle_w } else { 0.0 }
    }

    /// The budget or cap that a demand at a node would exceed. What adds nothing exceeds nothing, so that a
    /// cap below what is reserved does not keep work off cores that draw their power in any case.
    pub(crate) fn misfit(
        &self,
        id: NodeId,
        node: &NodeState,
        need: &Demand,
        power: &PowerModel,
        scale: Scale,
    ) -> Option<Misfit> {
        let need_w = self.added_w(id, node, need, power, scale);
        let server = ("server", &self.servers[node.server]);
        let rack = ("rack", &self.racks[node.rack]);
        let over = |(_, domain): &(_, &Domain)| {
            need_w > ROUNDING && domain.drawn_w + need_w > domain.max_w + ROUNDING
        };
        [server, rack]
            .into_iter()
            .find(over)
            .map(|(what, domain)| Misfit::Power {
                what: format!("{what} {}", domain.name),
                bound: domain.bound,
                max_w: domain.max_w,
                need_w,
                left_w: (domain.max_w - domain.drawn_w).max(0.0),
            })
    }

    /// The most that a server may draw.
    pub(crate) fn server_max_w(&self, server: usize) -> f64 {
        self.servers[server].max_w
    }

    /// The most that a rack may draw, and its servers.
    pub(crate) fn rack_max_w(&self, rack: usize) -> (f64, Range<usize>) {
        (self.racks[rack].max_w, self.servers_of[rack].clone())
    }

    /// Watts that a server and its rack may draw beyond what is reserved.
    pub(crate) fn left_w(&self, server: usize, rack: usize) -> (f64, f64) {
        let left = |domain: &Domain| domain.max_w - domain.drawn_w;
        (left(&self.servers[server]), left(&self.racks[rack]))
    }
}

/// By server: whether a cap, its own or its rack's, applies.
fn are_capped(topology: &Topology, caps: &PowerCaps) -> Vec<bool> {
    let mut capped = Vec::new();
    for rack in &topology.spec.racks {
        let of_rack = caps.of_rack(&rack.name).is_some();
        let of_server = |s: &Server| of_rack || caps.of_server(&s.name).is_some();
        capped.extend(rack.servers.iter().map(of_server));
    }
    capped
}

/// Consecutive ranges of these lengths.
fn ranges(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |length| {
        let start = end;
        end += length;
        start..end
    };
    lengths.map(range).collect()
}

fn node_w(node: &NodeState, busy: f64, power: &PowerModel, scale: Scale) -> f64 {
    node.watts(power, busy) * scale.factor
}
