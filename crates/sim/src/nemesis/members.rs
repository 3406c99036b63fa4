//! The operator changes the nodes: cordons and uncordons them, drains and removes them, removes those
//! whose process is dead, and adds servers. What the cluster has is read from the controller's state, since
//! a power cut may hide from the operator that a command was stored.
//!
//! A removal that has begun ends after the healing at the latest, or the controller says why it cannot, or
//! the operator gives it up since services need the node.

use super::Run;
use super::controller::ControllerProcess;
use crate::scenario::{Act, Fault};
use e3_control::{Command, Stays};
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long after the healing the controller must say that no other node can take what is on a drained
/// node, until the operator takes it back into service.
const PATIENCE: Nanos = Nanos::from_secs(3);

/// What the operator does to the nodes.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The nodes that are to be removed.
    removing: BTreeSet<u32>,
    /// Since when no other node can take what is on them.
    stuck: BTreeMap<u32, Timestamp>,
    /// Nodes that could not be drained, and were taken back into service.
    given_up: u64,
    /// After the healing, nodes are drained again, so that moves that stalled meanwhile are tried again.
    drains_again: bool,
    /// The nodes that were added and whose processes were started.
    started: BTreeSet<u32>,
    /// The nodes that clients know.
    known: Vec<u32>,
}

impl Members {
    pub(super) fn begin_removal(&mut self, node: u32) {
        self.removing.insert(node);
    }
}

impl ControllerProcess {
    /// Whether the node of this name was removed.
    pub(super) fn is_removed(&self, name: &str) -> bool {
        self.control.removed.values().any(|removed| removed == name)
    }
}

impl Run<'_> {
    /// The nodes of the cluster, in the order of their ids.
    pub(super) fn nodes(&self) -> Vec<u32> {
        let nodes = self.controller.control.topology.nodes();
        let mut nodes: Vec<u32> = nodes.map(|n| n.id.0).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Whether the cluster has this node.
    pub(super) fn has_node(&self, node: u32) -> bool {
        let topology = &self.controller.control.topology;
        topology.node(NodeId(node)).is_some()
    }

    /// Goes on with what the operator does to nodes.
    pub(super) fn change_nodes(&mut self) {
        for what in std::mem::take(&mut self.controller.misplaced) {
            self.violation(what);
        }
        if !self.scenario.has_members() {
            return;
        }
        self.cordon();
        self.add();
        self.remove();
        self.give_up_drains();
        self.tell_clients();
    }

    fn nodes_of_acts(&self, of: impl Fn(&Fault) -> Option<u32>) -> BTreeSet<u32> {
        let acts = self.active.iter();
        let nodes = acts.filter_map(|act: &Act| of(&act.fault));
        nodes.filter(|node| self.has_node(*node)).collect()
    }

    fn cordon(&mut self) {
        let wanted = self.nodes_of_acts(|fault| match fault {
            Fault::Cordon(node) => Some(*node),
            _ => None,
        });
        let wanted: BTreeSet<NodeId> = wanted.into_iter().map(NodeId).collect();
        let (now, control) = (self.cluster.now, &self.controller.control);
        let cordoned = control.cordoned.clone();
        let is_in_service = |n: &&NodeId| !cordoned.contains(n) && !control.drained.contains(n);
        let begin: Vec<NodeId> = wanted.iter().filter(is_in_service).copied().collect();
        for node in begin {
            self.controller.execute(now, &Command::Cordon { node });
        }
        for node in cordoned.difference(&wanted).copied() {
            self.controller.execute(now, &Command::Resume { node });
        }
    }

    /// Adds servers, and starts the processes of nodes that are new.
    fn add(&mut self) {
        let acts = self.active.iter();
        let servers: Vec<(u32, u8)> = acts
            .filter_map(|act| match act.fault {
                Fault::Add(server, nics) => Some((server, nics)),
                _ => None,
            })
            .collect();
        for (server, nics) in servers {
            let topology = &self.controller.control.topology;
            let name = format!("s{server}");
            let is_there = topology.nodes().any(|n| n.in_server.name == name);
            if !is_there {
                let racks = self.scenario.new_server(server, nics);
                let add = Command::AddNodes { racks };
                self.controller.execute(self.cluster.now, &add);
            }
        }
        for node in self.nodes() {
            if node >= self.scenario.nodes() && self.members.started.insert(node) {
                self.releases.next.insert(node, true);
                self.revive(node);
            }
        }
    }

    /// Removes nodes if nothing is left on them.
    fn remove(&mut self) {
        let mut due = self.nodes_of_acts(|fault| match fault {
            Fault::RemoveDead(node) => Some(*node),
            _ => None,
        });
        due.retain(|node| !self.agents.is_up(*node));
        due.extend(&self.members.removing);
        for node in due {
            if self.leaves_enough(node) {
                let command = Command::RemoveNode { node: NodeId(node) };
                self.controller.execute(self.cluster.now, &command);
            }
        }
        let topology = self.controller.control.topology.clone();
        let removing = &mut self.members.removing;
        removing.retain(|node| topology.node(NodeId(*node)).is_some());
    }

    /// Whether the services can serve without a node: one that refuses requests while it has no backup
    /// needs two servers.
    fn leaves_enough(&self, node: u32) -> bool {
        let nodes = self.controller.control.topology.nodes();
        let others = nodes.filter(|n| n.id.0 != node).map(|n| n.server);
        let mut services = self.scenario.apps.iter().flat_map(|app| &app.services);
        let needed = if services.any(|s| s.refuses_alone) {
            2
        } else {
            1
        };
        others.collect::<BTreeSet<_>>().len() >= needed
    }

    /// The nodes that are drained so that they can be removed.
    pub(super) fn to_remove(&self) -> BTreeSet<NodeId> {
        if self.has_healed() && !self.members.drains_again {
            return BTreeSet::new();
        }
        let control = &self.controller.control;
        let nodes = self.members.removing.iter().map(|node| NodeId(*node));
        let may = |n: &NodeId| control.drained.contains(n) || control.check_drain(*n).is_ok();
        nodes.filter(may).collect()
    }

    fn has_healed(&self) -> bool {
        self.healed_at <= self.cluster.now
    }

    /// Takes nodes back into service that cannot be drained, as the controller says.
    fn give_up_drains(&mut self) {
        if !self.has_healed() {
            return;
        }
        let (now, control) = (self.cluster.now, &self.controller.control);
        let removing = self.members.removing.clone();
        let drained = |node: &u32| control.drained.contains(&NodeId(*node));
        if !self.members.drains_again {
            self.members.drains_again = !removing.iter().any(drained);
            return;
        }
        for node in removing {
            let id = NodeId(node);
            let left = control.undrained(id);
            let has_no_room = |stays: &Stays| matches!(stays, Stays::NoRoom(_));
            let is_stuck = !self.leaves_enough(node)
                || if drained(&node) {
                    !left.is_empty() && left.iter().all(|u| has_no_room(&u.stays))
                } else {
                    control.check_drain(id).is_err()
                };
            if !is_stuck {
                self.members.stuck.remove(&node);
            } else if *self.members.stuck.entry(node).or_insert(now) + PATIENCE <= now {
                self.members.removing.remove(&node);
                self.members.given_up += 1;
            }
        }
    }

    /// Clients learn which nodes there are.
    fn tell_clients(&mut self) {
        let nodes = self.nodes();
        if self.members.known != nodes {
            self.cluster.set_nodes_of_clients(&nodes);
            self.members.known = nodes;
        }
    }

    /// Whether nodes are still to be removed, or processes of nodes to join or to end.
    pub(super) fn members_change(&self) -> bool {
        let members = || self.controller.control.members.iter();
        let up = || members().filter(|(_, m)| m.up).map(|(n, _)| n.0);
        self.scenario.has_members()
            && (!self.members.removing.is_empty()
                || self.cluster.up() != self.nodes()
                || self.agents.nodes() != self.nodes()
                || !up().eq(self.nodes()))
    }

    /// Checks that nodes that were to be removed are, and that processes, members and topology agree.
    pub(super) fn check_nodes(&mut self) {
        if !self.scenario.has_members() {
            return;
        }
        let control = &self.controller.control;
        let mut wrong = Vec::new();
        for node in &self.members.removing {
            let left = control.undrained(NodeId(*node));
            wrong.push(format!("node {node} is not removed: {left:?} is left"));
        }
        let nodes = self.nodes();
        let mut ids = nodes.clone();
        ids.extend(control.removed.keys().map(|node| node.0));
        ids.sort_unstable();
        if !ids.iter().copied().eq(0..ids.len() as u32) {
            wrong.push(format!("the nodes that there were are {ids:?}"));
        }
        let members: Vec<(u32, bool)> = control.members.iter().map(|(n, m)| (n.0, m.up)).collect();
        if self.members_change() {
            let (processes, agents) = (self.cluster.up(), self.agents.nodes());
            wrong.push(format!(
                "the cluster has the nodes {nodes:?}, the members (heard or not) {members:?}, processes on {processes:?} and agents on {agents:?}"
            ));
        }
        for what in wrong {
            self.violation(what);
        }
    }

    /// Nodes that were added, that were removed, and that could not be.
    pub(super) fn members_summary(&self) -> [u64; 3] {
        let removed = self.controller.control.removed.len() as u64;
        let added = self.members.started.len() as u64;
        [added, removed, self.members.given_up]
    }
}
