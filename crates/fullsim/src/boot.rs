//! The cluster before the run: the product's controller makes the plan, nodes join, check each other's clocks and
//! get their leases, over a network that takes no time.

use crate::SimulateError;
use crate::limits::{BOOT, BOOT_STEP, NODES_MAX};
use e3_control::{Applied, Command, CommandError, Control, Placed};
use e3_dataplane::{Config, Output, Worker};
use e3_model::application::Durability;
use e3_model::plan::{NodeHello, NodePlan};
use e3_model::{Address, AppId, Formats, NodeId, NodeKind, Timestamp};
use e3_perfsim::Input;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const CLUSTER: u64 = 7;
/// When the run begins.
pub(crate) const BEGIN: Timestamp = Timestamp(1_000_000_000_000_000);
/// Nothing is written to disk.
const JOURNAL_LEN_MIN: u64 = 1 << 30;

/// Address of a node.
pub(crate) fn node_address(node: u32) -> Address {
    let mut ip = [0; 16];
    ip[0] = 1;
    Address {
        ip,
        port: node as u16 + 1,
    }
}

/// Address of the client.
pub(crate) fn client_address() -> Address {
    let mut ip = [0; 16];
    ip[0] = 2;
    Address { ip, port: 1 }
}

/// The node of an address; none if it is the client's.
pub(crate) fn node_of(address: Address) -> Option<u32> {
    (address.ip[0] == 1).then(|| u32::from(address.port) - 1)
}

/// What the controller decided.
pub(crate) struct Cluster {
    pub workers: Vec<Worker>,
    pub app: AppId,
    pub control: Control,
    /// What the nodes did meanwhile that the executor must know.
    pub outputs: Vec<(u32, Output)>,
}

/// Starts all nodes, and lets them run until the run begins.
pub(crate) fn start(input: &Input<'_>) -> Result<Cluster, SimulateError> {
    let nodes = input.topology.nodes().count();
    if nodes > NODES_MAX {
        return Err(SimulateError::Nodes {
            topology: input.topology.name.clone(),
            nodes,
            max: NODES_MAX,
        });
    }
    let begin = Timestamp(BEGIN.0 - BOOT.0);
    let mut control = Control::new(CLUSTER, input.topology.clone());
    let refused = |source: CommandError| SimulateError::Plan {
        app: input.app.name.clone(),
        source: Box::new(source),
    };
    let mut workers = Vec::new();
    for place in input.topology.nodes() {
        let join = Command::Join {
            hello: NodeHello {
                name: place.node.name.clone(),
                address: node_address(place.id.0),
                process: u64::from(place.id.0) + 1,
                formats: Formats::PROGRAM,
                ..NodeHello::default()
            },
            at: begin,
        };
        let Applied::Joined(welcome) = control.apply(&join).map_err(refused)? else {
            unreachable!("a node that joins is welcomed");
        };
        workers.push(worker(place.id, welcome.incarnation, place.node.kind));
    }
    let deployed = control.apply(&deploy(input)).map_err(refused);
    deployed?;
    let app = *control.apps.keys().next().expect("it was deployed");
    let plans = (0..nodes).map(|n| control.plan_for(NodeId::of_index(n)));
    let plans: Vec<Arc<NodePlan>> = plans.map(Arc::new).collect();
    let mut cluster = Cluster {
        workers,
        app,
        control,
        outputs: Vec::new(),
    };
    cluster.run(begin, &plans);
    Ok(cluster)
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

/// The application where the placement says, in memory.
fn deploy(input: &Input<'_>) -> Command {
    let mut app = input.app.clone();
    for service in &mut app.spec.services {
        service.durability = Some(Durability::Memory);
    }
    let placed = |d: &e3_placement::Decision| Placed {
        key: d.key,
        node: d.node,
        why: "as simulated".into(),
    };
    Command::Deploy {
        modules: vec![String::new(); app.spec.services.len()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: true,
        restored: None,
        placed: input.placement.decisions.iter().map(placed).collect(),
        app: Box::new(app),
    }
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
                                wire.push_back((to, node_address(node), bytes));
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
