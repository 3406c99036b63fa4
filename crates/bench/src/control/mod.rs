//! The control plane in large clusters: how long placement and re-planning take, how good placements
//! are, what nodes are sent, how many heartbeats the orchestrator takes, and how soon it decides.

mod growth;
mod heartbeats;
mod logged;
mod members;
mod memory;
mod orchestrator;
mod plans;
mod quality;
mod scene;
pub mod times;

use crate::{Better, Figure, Table, median};
use e3_model::{Application, Profile, Topology};
use e3_placement::{Hcm, HcmLinear, Joules, Placer};
use e3_solver::Ilp;
use scene::{Scene, Times};
use std::collections::BTreeMap;

/// What the group runs.
pub const ABOUT: &str = "\
Placement in this process. The clusters are racks of 40 Type2 servers (a host and four SmartNICs), 90 % full of
instances that came and went at random; applications of 2 to 12 services, sizes mixed, come and the oldest go, so that
the cluster stays as full. A decision is one instance placed, its reservation included. The index and the walk over all
nodes place the same applications in turn. The quality is the modelled requests per joule at the knee, servers without
an instance asleep, on the paper's eight applications and the five clusters of its Table 4; where a cluster has one
server the replicas are left out. The growth is the slope of the logarithms of time and servers (the sizes of the paper's
Table 6 and beyond); an application has 10 s, after which annealing and the integer program give their best so far.
The integer program models at most 16 candidate servers, whatever the cluster has.
Moves and losses are of the controller's state machine with 1,000 applications of ten services, their replicas at random
nodes. A loss is over when each shard has a primary and a new backup in the plan: the command, the confirmations that
copies leave, after which new backups are chosen, and what nodes are sent; the log is left out. The memory is the peak
while a snapshot is written: state, index, the last plan, the table of heartbeats, the orchestrator, a report of each node.
Heartbeats come from memory, in random order of the nodes, and are handled by the code of the controller program: decode,
find the member, note when it was heard, its load and its version; lock and clock for 64 at a time; one core. The checksum
(CRC-32C) and the authentication tag (SipHash-2-4, under a key that is derived for each heartbeat) are verified.
A turn of the orchestrator is what the controller program does: decide, apply, append to a log on the disk, wait for the
disk, note the plan. The moves are done between turns, so that the next turn decides about other SmartNICs.";

const HCM_1K_AIM_US: f64 = 5.0;
const HCM_50K_AIM_US: f64 = 25.0;
const HCM_50K_P99_AIM_US: f64 = 250.0;
const JOULES_1K_AIM_US: f64 = 100.0;
const JOULES_VS_HCM_AIM: f64 = 1.1;
const JOULES_GAP_AIM_PERCENT: f64 = 5.0;

/// Instances that are placed in a measurement.
const INSTANCES: usize = 10_000;
/// Of those that the walk over all nodes places too.
const LINEAR_INSTANCES: usize = 2_000;

/// What the quality is judged on.
pub struct Paper {
    /// The eight applications.
    pub apps: Vec<Application>,
    /// The five clusters.
    pub clusters: Vec<Topology>,
    /// The profiles of their services.
    pub profiles: BTreeMap<String, Profile>,
    /// The integer program that bounds it.
    pub ilp: Ilp,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Time of a placement decision.
    Placement,
    /// Requests per joule of each placer.
    Quality,
    /// Growth of the time of a decision with the cluster.
    Growth,
    /// Moves, losses and memory of the controller's state.
    Plans,
    /// Distance to what no placement on the candidate servers can exceed.
    Gap,
    /// Heartbeats and decisions of the orchestrator.
    Orchestrator,
}

/// Runs parts of the group; gives their figures, and tables of what stands behind some.
pub fn run(paper: &Paper, parts: &[Part]) -> (Vec<Figure>, Vec<Table>) {
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for part in parts {
        figures.extend(match part {
            Part::Placement => placement(),
            Part::Quality => quality::figures(paper, JOULES_VS_HCM_AIM),
            Part::Growth => {
                let (figures, table) = growth::figures(&paper.ilp);
                tables.push(table);
                figures
            }
            Part::Plans => plans::figures(),
            Part::Gap => vec![quality::gap(paper, &paper.ilp, JOULES_GAP_AIM_PERCENT)],
            Part::Orchestrator => orchestrator::figures(scene::SERVERS_MAX),
        });
    }
    (figures, tables)
}

fn placement() -> Vec<Figure> {
    let mut figures = vec![hcm_1k()];
    figures.extend(hcm_50k());
    figures.push(joules());
    figures
}

/// HCM beside the walk over all nodes.
struct Hcms {
    indexed: Times,
    note: String,
}

fn hcm(servers: usize) -> Hcms {
    let mut scene = Scene::new(servers, 1);
    let linear_us = scene.time(&HcmLinear, LINEAR_INSTANCES).mean_us();
    let indexed = scene.time(&Hcm, INSTANCES);
    let note = format!(
        "{} instances on {servers} servers ({} nodes), {:.0} % of the cores reserved: {:.2} us, median {:.2} us; a walk \
         over all nodes takes {linear_us:.0} us, {:.0} times as long",
        indexed.instances,
        servers * scene::NODES_PER_SERVER,
        scene.used() * 100.0,
        indexed.mean_us(),
        median(indexed.us.clone()),
        linear_us / indexed.mean_us(),
    );
    Hcms { indexed, note }
}

fn hcm_1k() -> Figure {
    let Hcms { indexed, note } = hcm(1_000);
    let figure = Figure::new("control.hcm_1k_us", indexed.mean_us(), "us", Better::Lower);
    figure.aim(HCM_1K_AIM_US).note(note)
}

fn hcm_50k() -> [Figure; 2] {
    let Hcms { indexed, note } = hcm(scene::SERVERS_MAX);
    let mean = Figure::new("control.hcm_50k_us", indexed.mean_us(), "us", Better::Lower);
    let p99 = Figure::new(
        "control.hcm_50k_us_p99",
        indexed.p99_us(),
        "us",
        Better::Lower,
    );
    let of = format!(
        "of the same {} instances, by application",
        indexed.instances
    );
    [
        mean.aim(HCM_50K_AIM_US).note(note),
        p99.aim(HCM_50K_P99_AIM_US).note(of),
    ]
}

fn joules() -> Figure {
    let mut scene = Scene::new(1_000, 2);
    let times = scene.time(&Joules, INSTANCES);
    let note = format!(
        "{} instances on 1,000 servers, {:.0} % of the cores reserved; {} takes {:.1} us on the same",
        times.instances,
        scene.used() * 100.0,
        Hcm.name(),
        scene.time(&Hcm, INSTANCES).mean_us(),
    );
    let mean = Figure::new("control.joules_1k_us", times.mean_us(), "us", Better::Lower);
    mean.aim(JOULES_1K_AIM_US).note(note)
}
