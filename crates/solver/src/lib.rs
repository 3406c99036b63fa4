//! The placer `ilp`: the placement problem as an integer program, solved by HiGHS (Huangfu and Hall,
//! "Parallelizing the dual revised simplex method", 2018).
//!
//! HiGHS runs as a process of its own, `highs`, with a time limit. Its best solution so far counts when
//! the time is up, with the gap to the bound that it has proved.

mod highs;

pub use highs::{Highs, Solution, SolverError};

use e3_placement::ilp::Program;
use e3_placement::{Cluster, PlaceError, Placement, Placer, Request};
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
    /// Modelled energy of a request that no placement can be below, in microjoules.
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
