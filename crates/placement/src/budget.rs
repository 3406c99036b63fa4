//! Power budgets of servers and racks.
//!
//! What counts is the modelled power of what is reserved: a node's part above idle with its reserved
//! cores busy, and the idle power of its server as soon as anything is on it. A server with nothing on
//! it sleeps.

use crate::decision::Misfit;
use crate::limits::ROUNDING;
use crate::node_state::NodeState;
use crate::request::Demand;
use e3_model::{NodeId, Topology};
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

/// What bounds a part of the cluster, and what it draws.
#[derive(Clone, Debug)]
struct Domain {
    name: String,
    max_w: f64,
    drawn_w: f64,
}

/// The budgets of a cluster that has any.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    servers: Vec<Domain>,
    racks: Vec<Domain>,
    /// By node: its part.
    node_w: Vec<f64>,
    is_used: Vec<bool>,
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

impl Budgets {
    /// The budgets of a topology; None if it has none.
    pub(crate) fn new(topology: &Topology) -> Option<Budgets> {
        let racks = || topology.spec.racks.iter();
        let servers = || racks().flat_map(|r| &r.servers);
        let any = racks().any(|r| r.power_budget_w.is_some())
            || servers().any(|s| s.power_budget_w.is_some());
        let domain = |name: &str, max_w: Option<f64>| Domain {
            name: name.to_string(),
            max_w: max_w.unwrap_or(f64::INFINITY),
            drawn_w: 0.0,
        };
        let nodes = topology.table_len();
        let mut nodes_of = vec![Vec::new(); servers().count()];
        for node in topology.nodes() {
            nodes_of[node.server].push(node.id);
        }
        any.then(|| Budgets {
            servers: servers()
                .map(|s| domain(&s.name, s.power_budget_w))
                .collect(),
            racks: racks().map(|r| domain(&r.name, r.power_budget_w)).collect(),
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

    /// Whether anything is on a server.
    fn is_awake(&self, server: usize) -> bool {
        let mut nodes = self.nodes_of[server].iter();
        nodes.any(|id| self.is_used[id.index()])
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

    /// The budget that a demand at a node would exceed.
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
        let over = |(_, domain): &(_, &Domain)| domain.drawn_w + need_w > domain.max_w + ROUNDING;
        [server, rack]
            .into_iter()
            .find(over)
            .map(|(what, domain)| Misfit::Power {
                what: format!("{what} {}", domain.name),
                need_w,
                left_w: (domain.max_w - domain.drawn_w).max(0.0),
            })
    }

    /// Watts that a server and its rack may draw beyond what is reserved.
    pub(crate) fn left_w(&self, server: usize, rack: usize) -> (f64, f64) {
        let left = |domain: &Domain| domain.max_w - domain.drawn_w;
        (left(&self.servers[server]), left(&self.racks[rack]))
    }
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
