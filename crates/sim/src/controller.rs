//! The controller in virtual time. It makes the product's decisions. Its connection to the nodes is
//! reliable, but plans reach them late and one at a time.

use crate::cluster::Cluster;
use crate::network::node_address;
use e3_control::{Applied, Command, CommandError, Control, Membership};
use e3_model::plan::{NodeHello, ShardPlan};
use e3_model::timing::{HEARTBEAT_TIMEOUT, SILENCE_CHECK_INTERVAL};
use e3_model::{Application, Nanos, NodeId, ShardKey, Topology};
use std::collections::BTreeMap;

/// A controller that drives a simulated cluster.
pub struct Controller {
    /// Its decisions.
    pub control: Control,
    membership: Membership,
    /// The version of the plan that each node was sent.
    sent: u64,
    next_process: u64,
}

impl Controller {
    /// A controller of this topology, all of whose nodes start and join.
    pub fn new(cluster: &mut Cluster, topology: Topology) -> Controller {
        let nodes: Vec<u32> = topology.nodes().map(|n| n.id.0).collect();
        let mut controller = Controller {
            control: Control::new(crate::cluster::CLUSTER, topology),
            membership: Membership::new(cluster.now, HEARTBEAT_TIMEOUT),
            sent: 0,
            next_process: 1,
        };
        for node in nodes {
            controller.start(cluster, node);
        }
        controller
    }

    /// Starts a node's process, which joins.
    pub fn start(&mut self, cluster: &mut Cluster, node: u32) {
        let topology = &self.control.topology;
        let name = topology
            .node(NodeId(node))
            .expect("a node of the topology")
            .node
            .name
            .clone();
        let hello = NodeHello {
            name,
            address: node_address(node),
            process: self.next_process,
            on_disk: None,
            ..NodeHello::default()
        };
        self.next_process += 1;
        let joined = self.apply(&Command::Join {
            hello,
            at: cluster.now,
        });
        let Ok(Applied::Joined(welcome)) = joined else {
            panic!("{joined:?}")
        };
        self.membership
            .on_heartbeat(cluster.now, welcome.node, welcome.incarnation);
        cluster.start(node, welcome.incarnation);
        self.sent = 0;
    }

    /// Deploys an application without profiles.
    pub fn deploy(&mut self, app: Application) -> Result<Applied, CommandError> {
        let modules = vec![String::new(); app.spec.services.len()];
        let (assets, profiles) = (BTreeMap::new(), BTreeMap::new());
        self.apply(&Command::Deploy {
            app: Box::new(app),
            modules,
            assets,
            profiles,
            overcommit: false,
            restored: None,
            placed: Vec::new(),
        })
    }

    /// Applies a command.
    pub fn apply(&mut self, command: &Command) -> Result<Applied, CommandError> {
        let applied = self.control.apply(command);
        self.control.validate();
        applied
    }

    /// The plan of a shard.
    pub fn shard(&self, key: ShardKey) -> &ShardPlan {
        self.control.apps[&key.app]
            .shard(key)
            .expect("a shard of the application")
    }

    /// Runs the cluster for this long: takes the reports of nodes and sends them new plans.
    pub fn run(&mut self, cluster: &mut Cluster, span: Nanos) {
        let end = cluster.now + span;
        while cluster.now < end {
            self.look(cluster);
            cluster.run(SILENCE_CHECK_INTERVAL.min(end.since(cluster.now)));
        }
    }

    fn look(&mut self, cluster: &mut Cluster) {
        let members: Vec<(NodeId, u32)> = self
            .control
            .members
            .iter()
            .map(|(n, m)| (*n, m.incarnation))
            .collect();
        for (node, incarnation) in &members {
            if cluster.incarnation(node.0) == Some(*incarnation) {
                self.membership
                    .on_heartbeat(cluster.now, *node, *incarnation);
                let (node, incarnation, at) = (*node, *incarnation, cluster.now);
                let hear = Command::Hear {
                    node,
                    incarnation,
                    at,
                };
                self.apply(&hear).expect("heartbeats are never refused");
                let unreachable = cluster.worker(node.0).map(|w| w.unreachable());
                let reach = Command::Reach {
                    node,
                    incarnation,
                    unreachable: unreachable.unwrap_or_default().into_iter().collect(),
                    at,
                };
                self.apply(&reach).expect("reports are never refused");
                for event in cluster.events(node.0) {
                    self.apply(&Command::Event(event))
                        .expect("events are never refused");
                }
            }
        }
        let nodes = self.membership.lost(cluster.now, &self.control);
        if !nodes.is_empty() {
            let at = cluster.now;
            let lose = Command::Lose { nodes, at };
            self.apply(&lose).expect("losses are never refused");
        }
        if self.sent != self.control.version {
            self.sent = self.control.version;
            for (node, _) in &members {
                cluster.plan(self.control.plan_for(*node));
            }
        }
    }
}
