//! From nodes that an algorithm has chosen for all instances to decisions.

use crate::cluster::Cluster;
use crate::decision::{Cost, Decision, InstanceKey, Near, Placement, Rule, level};
use crate::fit::{Ask, check};
use crate::hcm::{instance, near};
use crate::request::Request;
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId, ShardId};
use std::collections::BTreeMap;

/// By service in the order of the walk, by shard: the nodes of its replicas, the primary first.
pub(crate) type Assignment = Vec<Vec<Vec<NodeId>>>;

/// The placement that puts each instance on the node that `node_of` gives, with what it lacks there;
/// reserves what the instances take. An error is an instance without a node, or with one that is not
/// in the cluster.
pub fn given(
    request: &Request<'_>,
    cluster: &mut Cluster,
    node_of: impl Fn(InstanceKey) -> Option<NodeId>,
) -> Result<Placement, InstanceKey> {
    let mut assignment = Assignment::new();
    for (service, _) in request.walk() {
        let spec = request.app.service(*service);
        let nodes = |shard| {
            let keys = (0..spec.replicas).map(move |replica| instance(*service, shard, replica));
            let known = |key| {
                node_of(key)
                    .filter(|id| cluster.get(*id).is_some())
                    .ok_or(key)
            };
            keys.map(known).collect::<Result<Vec<_>, _>>()
        };
        let shards = (0..spec.shards).map(ShardId);
        assignment.push(shards.map(nodes).collect::<Result<_, _>>()?);
    }
    Ok(reserve(
        request,
        cluster,
        &assignment,
        Rule::Given,
        |_, _| Vec::new(),
    ))
}

/// Decides as assigned, primaries first, and reserves what the instances take. `costs` gives what was
/// considered for a service, by its place in the walk.
pub(crate) fn reserve(
    request: &Request<'_>,
    cluster: &mut Cluster,
    assignment: &Assignment,
    rule: Rule,
    costs: impl Fn(usize, Role) -> Vec<Cost>,
) -> Placement {
    let mut primaries: BTreeMap<ServiceId, Vec<NodeId>> = BTreeMap::new();
    let mut placement = Placement::default();
    for role in [Role::Primary, Role::Backup] {
        for (place, &(service, parent)) in request.walk().iter().enumerate() {
            let considered = costs(place, role);
            for (shard, nodes) in (0..).map(ShardId).zip(&assignment[place]) {
                let near = match (role, parent) {
                    (Role::Primary, None) => None,
                    (Role::Primary, Some(parent)) => {
                        let shards = request.app.service(service).shards;
                        Some(near(shard, shards, parent, &primaries[&parent]))
                    }
                    _ => Some(Near {
                        instance: instance(service, shard, 0),
                        node: nodes[0],
                    }),
                };
                let replicas = match role {
                    Role::Primary => 0..1,
                    _ => 1..nodes.len(),
                };
                for replica in replicas {
                    let key = instance(service, shard, replica as u16);
                    let mut decision = decision(request, cluster, key, nodes, near, rule);
                    decision.considered.clone_from(&considered);
                    cluster.add(request, service, role, decision.node);
                    placement.decisions.push(decision);
                }
                if role == Role::Primary {
                    primaries.entry(service).or_default().push(nodes[0]);
                }
            }
        }
    }
    placement
}

fn decision(
    request: &Request<'_>,
    cluster: &Cluster,
    key: InstanceKey,
    nodes: &[NodeId],
    near: Option<Near>,
    rule: Rule,
) -> Decision {
    let (before, node) = (
        &nodes[..usize::from(key.replica)],
        nodes[usize::from(key.replica)],
    );
    let with = |id: NodeId| (id, cluster.node(id));
    let ask = Ask::new(key.service, key.role(), before);
    Decision {
        key,
        node,
        near,
        level: near.map(|near| level(with(near.node), with(node))),
        rule,
        preference: request.preference(key.service),
        rejected: Vec::new(),
        rejected_more: 0,
        considered: Vec::new(),
        overcommitted: check(request, cluster, ask, node).err(),
    }
}
