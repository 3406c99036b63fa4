//! Nodes join and leave the topology, and take no new instances for a while, at an operator's word.
//!
//! The topology in the log is the truth: the document that founded the cluster is not read again. A
//! node's id and name stay used when it is removed, so that nothing late can be taken for another
//! node's: neither a message nor a process. Design: docs/design/024.

use crate::command::{Applied, CommandError};
use crate::deliberate::{self, Fault};
use crate::state::{AppState, Control};
use e3_model::application::Pin;
use e3_model::plan::ShardPlan;
use e3_model::topology::{NodeRef, Rack};
use e3_model::{Format, NodeId, Topology};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What older logs do not have.
const CHANGES: &str = "nodes that are added, cordoned or removed";

impl Control {
    /// Adds hardware. Its nodes have not joined yet.
    pub(crate) fn add_nodes(&mut self, racks: &[Rack]) -> Result<Applied, CommandError> {
        let (topology, added) = self.grow(racks)?;
        self.topology = topology.into();
        self.forget_index();
        // Shards whose move stalled may have a better target as soon as the nodes have joined.
        self.stalled.clear();
        Ok(Applied::Added(added))
    }

    /// The topology with this hardware, and the ids of its nodes.
    fn grow(&self, racks: &[Rack]) -> Result<(Topology, Vec<NodeId>), CommandError> {
        self.check_format(Format::NODES, CHANGES)?;
        let servers = racks.iter().flat_map(|rack| &rack.servers);
        let mut nodes = servers.flat_map(|server| &server.nodes);
        let removed: BTreeSet<&String> = self.removed.values().collect();
        if let Some(node) = nodes.find(|n| removed.contains(&n.name)) {
            return Err(CommandError::NameUsed(node.name.clone()));
        }
        let next = self.removed.last_key_value();
        let next = next.map_or(0, |(id, _)| id.index() + 1);
        let mut topology = Topology::clone(&self.topology);
        let added = topology.add(racks, next);
        Ok((topology, added.map_err(CommandError::Hardware)?))
    }

    /// What the topology would be with this hardware, or why it cannot be added. What a release of the
    /// active format cannot read is refused here and not in a replay, since old logs may have it.
    pub fn grown(&self, racks: &[Rack]) -> Result<Topology, CommandError> {
        let servers = racks.iter().flat_map(|rack| &rack.servers);
        let mut nodes = servers.flat_map(|server| &server.nodes);
        if nodes.any(|node| node.disk.is_some()) {
            self.check_format(Format::CONSTRAINTS, "sizes of disks of added nodes")?;
        }
        self.grow(racks).map(|(topology, _)| topology)
    }

    /// From now on the node gets no new instances; it keeps those that it has.
    pub(crate) fn cordon(&mut self, node: NodeId) -> Result<Applied, CommandError> {
        self.check_format(Format::NODES, CHANGES)?;
        self.check_node(node)?;
        if self.is_out_of_service(node) {
            return Ok(Applied::Nothing);
        }
        self.cordoned.insert(node);
        self.returned.remove(&node);
        Ok(Applied::Changed)
    }

    /// Removes a node on which nothing is left.
    pub(crate) fn remove_node(&mut self, node: NodeId) -> Result<Applied, CommandError> {
        self.check_format(Format::NODES, CHANGES)?;
        self.check_node(node)?;
        let name = self.node_name(node);
        if self.topology.nodes_count() == 1 {
            return Err(CommandError::LastNode(name));
        }
        let left = self.replicas_on(node);
        if !left.is_empty() && !deliberate::is(Fault::RemovedInUse) {
            return Err(CommandError::InUse { node: name, left });
        }
        Arc::make_mut(&mut self.topology).remove(node);
        self.members.remove(&node);
        let missing = self.index().cut.clone();
        for other in missing {
            if let Some(member) = self.members.get_mut(&other) {
                member.unreachable.remove(&node);
            }
        }
        self.drained.remove(&node);
        self.cordoned.remove(&node);
        self.returned.remove(&node);
        self.removed.insert(node, name);
        self.orchestration.forget_home(node);
        self.power_caps.keep_known(&self.topology);
        self.forget_index();
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Refuses to remove a host whose traffic SmartNICs relay: without it the topology would break a rule, and
    /// nothing could be added to it. Old logs may have such removals, so a replay does not ask.
    pub fn check_remove(&self, node: NodeId) -> Result<(), CommandError> {
        self.check_node(node)?;
        let relays = self.index().relays.get(&node).cloned().unwrap_or_default();
        relays.first().map_or(Ok(()), |relay| {
            Err(CommandError::Relayed {
                node: self.node_name(node),
                relay: self.node_name(*relay),
            })
        })
    }

    /// Whether an operator keeps new instances off the node.
    pub(crate) fn is_out_of_service(&self, node: NodeId) -> bool {
        self.drained.contains(&node) || self.cordoned.contains(&node)
    }

    /// What is on a node, as users name it, and what is its only copy.
    fn replicas_on(&self, node: NodeId) -> Vec<String> {
        let mut left = Vec::new();
        for app in self.apps.values() {
            let shards = app.plan.shards.iter();
            for shard in shards.filter(|s| s.keeps(node) || s.primary == node) {
                let shard_name = self.shard_name(app.plan.key(shard));
                let is_only = shard.primary == node && shard.staying().next().is_none();
                left.push(if app.is_orphan(shard) {
                    format!(
                        "{shard_name} (no copy is left, and no node has room for one: add a node, or delete the application)"
                    )
                } else if is_only {
                    format!("{shard_name} (its only copy)")
                } else {
                    shard_name
                });
            }
        }
        left
    }

    /// Refuses to drain a node if a replica on it could go nowhere, whatever room there is: no other
    /// server may hold it. It would stay for ever.
    pub fn check_drain(&self, node: NodeId) -> Result<(), CommandError> {
        self.check_node(node)?;
        for app in self.apps.values() {
            let shards = app.plan.shards.iter();
            for shard in shards.filter(|s| s.keeps(node) && !app.is_orphan(s)) {
                if !self.may_leave(app, shard, node) {
                    let service = app.plan.app.service(shard.service);
                    return Err(CommandError::NoDomain {
                        shard: self.shard_name(app.plan.key(shard)),
                        node: self.node_name(node),
                        service: format!("{}/{}", app.plan.app.name, service.name),
                        replicas: service.replicas,
                        pin: service.pin.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether a node in service, up or not, may take the replica of a shard that is on `from`.
    fn may_leave(&self, app: &AppState, shard: &ShardPlan, from: NodeId) -> bool {
        let servers = self.servers();
        let service = app.plan.app.service(shard.service);
        let (pin, required) = (&service.pin, service.accelerators_required());
        let moving = app.migrations.iter();
        let key = app.plan.key(shard);
        let goes = moving.clone().any(|m| m.key == key && m.from == from);
        if goes || shard.leaving.contains(&from) {
            return true;
        }
        let others = [shard.primary].into_iter().chain(shard.staying());
        let taken: Vec<usize> = others
            .filter(|n| *n != from)
            .map(|n| servers[n.index()])
            .collect();
        let may_take = |n: NodeRef<'_>| {
            let is_meant = match pin {
                None => true,
                Some(Pin::Kind(kind)) => n.node.kind == *kind,
                Some(Pin::Node(name)) => n.node.name == *name,
            };
            let is_equipped = n.node.accelerators.include(required);
            n.id != from
                && !self.is_out_of_service(n.id)
                && is_meant
                && is_equipped
                && !taken.contains(&n.server)
        };
        self.topology.nodes().any(may_take)
    }

    pub(crate) fn check_node(&self, node: NodeId) -> Result<(), CommandError> {
        if self.index().cluster.get(node).is_some() {
            return Ok(());
        }
        if let Some(name) = self.removed.get(&node) {
            return Err(CommandError::Removed(name.clone()));
        }
        let known = self.topology.nodes().map(|n| n.node.name.clone()).collect();
        let name = node.to_string();
        Err(CommandError::NoNode { name, known })
    }
}
