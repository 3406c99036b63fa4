//! Placers with a time budget. One of them is `ilp`: the placement problem as an integer program, solved by
//! HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018).
//!
//! HiGHS runs as a process of its own, `highs`, with a time limit. Its best solution so far counts when
//! the time is up, with the gap to the bound that it has proved.

mod highs;
pub mod limits;
mod timed;

pub use highs::{Highs, Solution, SolverError};
pub use timed::Timed;

use e3_placement::ilp::Program;
use e3_placement::{Cluster, PlaceError, Placement, Placer, Request};
use limits::STOP_GRACE;
use std::path::PathBuf;
use std::time::Duration;

/// Name of the placer.
pub const NAME: &str = "ilp";

/// The placer.
#[derive(Clone, Debug)]
pub struct Ilp {
    /// The solver.
    pub highs: Highs,
}

/// A placement with what the solver proved about it.
#[derive(Clone, Debug)]
pub struct Solved {
    /// The placement.
    pub placement: Placement,
    /// Servers that the program may use. The bound holds for placements on them.
    pub servers: usize,
    /// Servers of the cluster.
    pub servers_all: usize,
    /// Modelled energy of a request that no placement on these servers can be below, in microjoules.
    pub bound_uj: f64,
    /// How far the objective of the solution is above the bound, as a part of the objective.
    pub gap: f64,
    /// The solver had to stop before it had proved its solution the best.
    pub timed_out: bool,
}

impl Ilp {
    /// With the program `highs` at this path, or of that name among the programs of the system.
    pub fn new(program: impl Into<PathBuf>, limit: Duration) -> Ilp {
        Ilp {
            highs: Highs {
                program: program.into(),
                limit,
                grace: STOP_GRACE,
            },
        }
    }

    /// Places a whole application and reserves what it takes. An error leaves the cluster as it was.
    pub fn solve(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
    ) -> Result<Solved, PlaceError> {
        let program = Program::new(request, cluster)?;
        let solution = self.highs.solve(&program.text);
        let solution = solution.map_err(|e| PlaceError::Solver(e.to_string()))?;
        let placement =
            cluster.attempt(|cluster| program.place(request, cluster, &solution.values))?;
        Ok(Solved {
            placement,
            servers: program.servers,
            servers_all: program.servers_all,
            bound_uj: solution.bound,
            gap: solution.gap(),
            timed_out: solution.timed_out,
        })
    }
}

impl Placer for Ilp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        Ok(self.solve(request, cluster)?.placement)
    }
}
