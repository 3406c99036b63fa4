//! What `e3 place --explain` adds: for each decision of any placer the nodes that it could have been, with what
//! each would cost and how that compares, or why it is rejected.

use crate::ui::output::Table;
use e3_model::{Profile, Topology};
use e3_placement::{Alternatives, Cluster, Placement, Price, Request, Weighed, weigh};
use serde::Serialize;
use std::collections::BTreeMap;

/// Decisions that are alike, with the nodes that they could have been.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AlternativesView {
    /// `service/shard`: instances of one service in one role on one node, whose shards have their other replicas on
    /// the same nodes.
    pub instances: Vec<String>,
    /// 0 = primary.
    pub replica: u16,
    /// Their node.
    pub node: String,
    /// How it was chosen.
    pub rule: String,
    /// Nodes, the cheapest first, rejected ones last.
    pub nodes: Vec<NodeView>,
    /// Nodes of the cluster beyond those.
    pub more: usize,
}

/// A node that a decision could have been.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Node.
    pub node: String,
    /// What the placement costs with one of the instances there and everything else as placed. Modelled.
    pub price: Option<Price>,
    /// Service time there in microseconds, if the profile knows it.
    pub service_time_us: Option<f64>,
    /// Why it is rejected, or what it lacks if it was chosen nevertheless.
    pub misfit: Option<String>,
}

/// The alternatives to all decisions of a placement on an empty cluster.
pub fn alternatives(
    request: &Request<'_>,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placement: &Placement,
) -> Vec<AlternativesView> {
    let cluster = Cluster::new(topology);
    let view = |group: Alternatives| {
        let first = &placement.decisions[group.decisions[0]];
        let service = first.key.service;
        let node = |weighed: Weighed| {
            let node = cluster.node(weighed.node);
            let time = request.cost(service, node.kind).time;
            NodeView {
                node: node.name.clone(),
                price: weighed.price,
                service_time_us: time.map(|t| t.as_secs_f64() * 1e6 / node.speed),
                misfit: weighed.misfit.map(|misfit| misfit.to_string()),
            }
        };
        let name = &request.app.service(service).name;
        let shards = group.decisions.iter();
        let shards = shards.map(|at| placement.decisions[*at].key.shard);
        AlternativesView {
            instances: shards.map(|shard| format!("{name}/{shard}")).collect(),
            replica: first.key.replica,
            node: cluster.node(first.node).name.clone(),
            rule: first.rule.to_string(),
            nodes: group.nodes.into_iter().map(node).collect(),
            more: group.more,
        }
    };
    let groups = weigh(request, topology, profiles, placement);
    groups.into_iter().map(view).collect()
}

/// All of them as tables.
pub fn tables(all: &[AlternativesView]) -> String {
    let head = "\nwith one of the instances there and everything else as placed, modelled:\n";
    let each = all.iter().map(|group| {
        let role = match group.replica {
            0 => "primary".to_string(),
            n => format!("backup {n}"),
        };
        let more = match group.more {
            0 => String::new(),
            n => format!("{n} more nodes\n"),
        };
        format!(
            "\n{} {role} -> {}: {}\n{}{more}",
            group.instances.join(", "),
            group.node,
            group.rule,
            table(group).render()
        )
    });
    head.to_string() + &each.collect::<String>()
}

fn table(group: &AlternativesView) -> Table {
    let mut table = Table::new(&[
        "NODE",
        ">UJ/REQUEST",
        ">PATH US",
        ">BETWEEN US",
        ">SERVICE US",
        "",
    ]);
    let chosen = group.nodes.iter().find(|n| n.node == group.node);
    let chosen = chosen.and_then(|n| n.price);
    for n in &group.nodes {
        let note = match (&n.misfit, n.price.zip(chosen)) {
            (Some(misfit), _) if n.node == group.node => format!("chosen, OVERCOMMITTED: {misfit}"),
            (None, _) if n.node == group.node => "chosen".to_string(),
            (Some(misfit), _) => format!("rejected: {misfit}"),
            (None, Some((price, chosen))) => against(price, chosen),
            (None, None) => String::new(),
        };
        let of = |value: fn(&Price) -> f64| match &n.price {
            Some(price) => format!("{:.1}", value(price)),
            None => "-".to_string(),
        };
        table.row([
            n.node.clone(),
            of(|p| p.uj),
            of(|p| p.path_us),
            of(|p| p.between_us),
            n.service_time_us
                .map_or_else(|| "-".into(), |t| format!("{t:.1}")),
            note,
        ]);
    }
    table
}

/// A price against that of the chosen node.
fn against(price: Price, chosen: Price) -> String {
    format!(
        "{:+.1} % energy, {:+.1} us on the longest path",
        (price.uj / chosen.uj - 1.0) * 100.0,
        price.path_us - chosen.path_us
    )
}
