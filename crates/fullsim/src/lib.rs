//! The full fidelity of the performance simulator: each node is the product's own [`e3_dataplane::Worker`], with
//! plans of the product's [`e3_control::Control`], and every message is a datagram of the product. Handlers
//! are stubs that take the profile's service time and send what the table of visits says.
//!
//! Hardware, load and report are those of [`e3_perfsim`], so both fidelities answer with the same report. The
//! design is in docs/design/030-twin-and-fidelities.md.

mod boot;
pub mod limits;
mod nodes;
mod requests;
mod stub;

use e3_control::CommandError;
use e3_model::orchestrator::OrchestratorSettings;
use e3_perfsim::{
    Effort, Input, ModelError, NoController, Report, Run, Simulator, Sweep, sweep_with,
};
use e3_simcontrol::{ProductController, Setup};
use limits::NODES_MAX;
use nodes::Nodes;

/// How closely the nodes are simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fidelity {
    /// Messages by the table of visits.
    Fast,
    /// The product's data plane.
    Full,
}

/// What cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// In any fidelity.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The product's controller refuses the application.
    #[error("application {app:?}: {source}")]
    Plan {
        /// Application.
        app: String,
        /// Why.
        source: Box<CommandError>,
    },
    /// It has no faults.
    #[error("the full fidelity simulates no faults; use the fast one")]
    Faults,
    /// Too many nodes.
    #[error(
        "topology {topology:?} has {nodes} nodes, the full fidelity simulates at most {max}; use the fast one"
    )]
    Nodes {
        /// Topology.
        topology: String,
        /// Its nodes.
        nodes: usize,
        /// Bound.
        max: usize,
    },
}

/// A simulator of one load, and the product's controller for its run. Run it with [`NoController`] to have nothing
/// move.
pub fn simulator(
    fidelity: Fidelity,
    input: &Input<'_>,
    run: Run,
    settings: OrchestratorSettings,
) -> Result<(Simulator, ProductController), SimulateError> {
    let seed = run.seed;
    let simulator = Simulator::new(input, run)?;
    let refused = |source: CommandError| SimulateError::Plan {
        app: input.app.name.clone(),
        source: Box::new(source),
    };
    let setup = Setup {
        app: input.app,
        profiles: input.profiles,
        topology: input.topology,
        placement: input.placement,
        settings,
    };
    if fidelity == Fidelity::Fast {
        let controller = ProductController::new(&setup).map_err(refused)?;
        return Ok((simulator, controller));
    }
    if !input.options.faults.is_empty() {
        return Err(SimulateError::Faults);
    }
    let nodes = input.topology.nodes_count();
    if nodes > NODES_MAX {
        return Err(SimulateError::Nodes {
            topology: input.topology.name.clone(),
            nodes,
            max: NODES_MAX,
        });
    }
    let app = &boot::in_memory(input.app);
    let (controller, exchange) =
        ProductController::with_nodes(&Setup { app, ..setup }).map_err(refused)?;
    let nodes = Nodes::new(input, seed, &controller, exchange);
    Ok((simulator.with_plane(Box::new(nodes)), controller))
}

/// Runs one load on a cluster in which nothing moves.
pub fn simulate(fidelity: Fidelity, input: &Input<'_>, run: Run) -> Result<Report, SimulateError> {
    if fidelity == Fidelity::Fast {
        return Ok(Simulator::new(input, run)?.run(&mut NoController));
    }
    let (simulator, _) = simulator(fidelity, input, run, OrchestratorSettings::default())?;
    Ok(simulator.run(&mut NoController))
}

/// Runs at many rates and finds the knee.
pub fn sweep(fidelity: Fidelity, input: &Input<'_>, run: &Run) -> Result<Sweep, SimulateError> {
    sweep_with(run, Effort::default(), |run| simulate(fidelity, input, run))
}
