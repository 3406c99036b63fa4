//! The cluster before the run: nodes take the plan of the product's controller, check each other's clocks and get
//! their leases, over a network that takes no time.

use crate::limits::{BOOT, BOOT_STEP};
use e3_control::Control;
use e3_dataplane::{Config, Output, Worker};
use e3_model::application::Durability;
use e3_model::plan::NodePlan;
use e3_model::topology::NodeRef;
use e3_model::{Address, Application, Formats, NodeId, NodeKind, Timestamp};
use e3_perfsim::Input;
use e3_simcontrol::{CLUSTER, node_address, node_of};
use std::collections::VecDeque;
use std::sync::Arc;

/// When the run begins, also in the controller's time.
pub(crate) const BEGIN: Timestamp = e3_simcontrol::START;
/// Nothing is written to disk.
const JOURNAL_LEN_MIN: u64 = 1 << 30;

/// Address of the client.
pub(crate) fn client_address() -> Address {
    let mut ip = [0; 16];
    ip[0] = 2;
    Address { ip, port: 1 }
}

/// Nodes that are ready.
pub(crate) struct Cluster {
    pub workers: Vec<Worker>,
    /// What the nodes did meanwhile that the executor must know.
    pub outputs: Vec<(u32, Output)>,
}

/// Starts all nodes, and lets them run until the run begins.
pub(crate) fn start(input: &Input<'_>, control: &Control) -> Cluster {
    let worker = |place: NodeRef<'_>| {
        let incarnation = control.members.get(&place.id).map_or(0, |m| m.incarnation);
        worker(place.id, incarnation, place.node.kind)
    };
    let nodes: Vec<NodeRef<'_>> = input.topology.nodes().collect();
    let plans = nodes.iter().map(|n| Arc::new(control.plan_for(n.id)));
    let plans: Vec<Arc<NodePlan>> = plans.collect();
    let mut cluster = Cluster {
        workers: nodes.into_iter().map(worker).collect(),
        outputs: Vec::new(),
    };
    cluster.run(Timestamp(BEGIN.0 - BOOT.0), &plans);
    cluster
}

/// The application in memory: nothing is written to disk.
pub(crate) fn in_memory(app: &Application) -> Application {
    let mut app = app.clone();
    for service in &mut app.spec.services {
        service.durability = Some(Durability::Memory);
    }
    app
}

fn worker(node: NodeId, incarnation: u32, kind: NodeKind) -> Worker {
    Worker::new(Config {
        node,
        incarnation,
        cluster: CLUSTER,
        formats: Formats::PROGRAM,
        kind,
        journal_len_min: JOURNAL_LEN_MIN,
        // Service times and cores are those of the models of the hardware.
        slowed: false,
        emulated: None,
    })
}

impl Cluster {
    fn run(&mut self, begin: Timestamp, plans: &[Arc<NodePlan>]) {
        let mut now = begin;
        for (worker, plan) in self.workers.iter_mut().zip(plans) {
            worker.handle_controller_time(now, now, now);
            worker.handle_plan(now, plan.clone());
        }
        let mut wire: VecDeque<(u32, Address, Vec<u8>)> = VecDeque::new();
        while now < BEGIN {
            for _ in 0..wire.len() {
                if let Some((to, from, bytes)) = wire.pop_front() {
                    self.workers[to as usize].handle_datagram(now, from, &bytes);
                }
            }
            for (node, worker) in (0u32..).zip(&mut self.workers) {
                worker.handle_tick(now);
                while let Some(output) = worker.poll_output() {
                    match output {
                        Output::Send { to, bytes } => {
                            if let Some(to) = node_of(to) {
                                wire.push_back((to.0, node_address(NodeId(node)), bytes));
                            }
                        }
                        other => self.outputs.push((node, other)),
                    }
                }
            }
            now += BOOT_STEP;
        }
        // What is still in flight arrives as the run begins.
        for (to, from, bytes) in wire {
            self.workers[to as usize].handle_datagram(BEGIN, from, &bytes);
        }
    }
}
