//! The experiments of the paper, E3 (USENIX ATC 2019), section 5: what is simulated, and what comes of it as
//! tables, plots and the paper's figures beside ours.
//!
//! An [`Experiment`] runs on a [`World`] and gives an [`Outcome`]. Whoever runs it renders the outcome, and
//! lends threads and a clock. Nothing is tuned to the paper's results: where ours differ, the outcome
//! says both. The design is in docs/design/028-evaluation.md.

mod bandwidth;
mod clusters;
mod efficiency;
mod experiment;
mod hops;
mod orchestrator;
mod outcome;
mod placement;
mod power;
mod range;
mod scale;
mod sensitivity;
mod size;
mod words;
mod world;

pub use experiment::Experiment;
pub use outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
pub use world::{Case, EvaluationError, Pool, REQUEST_BYTES, Subject, Timer, World};

/// All experiments, in the order of the report.
pub const EXPERIMENTS: &[Experiment] = &[
    efficiency::EXPERIMENT,
    power::EXPERIMENT,
    orchestrator::EXPERIMENT,
    bandwidth::EXPERIMENT,
    placement::EXPERIMENT,
    clusters::EXPERIMENT,
    size::EXPERIMENT,
    hops::EXPERIMENT,
    scale::EXPERIMENT,
    sensitivity::EXPERIMENT,
];

/// The applications of the paper.
pub const APPS: [&str; 8] = [
    "nfv-fin", "nfv-din", "nfv-ifid", "rta-ptc", "rta-sf", "rta-shm", "iot-dh", "iot-ts",
];
/// Those of a quick run.
pub const APPS_QUICK: [&str; 2] = ["nfv-fin", "rta-shm"];
/// The clusters that experiments use.
pub const CLUSTERS: [&str; 7] = [
    "3x-beefy",
    "3x-type1",
    "4x-beefy",
    "4x-wimpy",
    "2x-beefy-2x-wimpy",
    "2x-type2",
    "1x-superbeefy",
];

/// The experiment of this name.
pub fn named(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|e| e.name == name)
}
