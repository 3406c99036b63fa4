//! Placers that search until their time is up. The controller runs them beside its state machine.

use crate::limits::{ANNEALING_TIME, ILP_TIME};
use crate::{Ilp, NAME};
use e3_placement::{Annealing, Cluster, PlaceError, Placement, Placer, Request};
use std::path::Path;
use std::time::{Duration, Instant};

/// Name of the placer that anneals.
const ANNEALING: &str = "annealing";

/// A placer with a time budget.
#[derive(Clone, Debug)]
pub enum Timed {
    /// Simulated annealing for so long; then its best so far.
    Annealing(Duration),
    /// The integer program.
    Ilp(Ilp),
}

impl Timed {
    /// The placer of that name, if it is one with a time budget. `limit` is the budget, by default the
    /// placer's own; `highs` the program of the solver.
    pub fn by_name(name: &str, limit: Option<Duration>, highs: &Path) -> Option<Timed> {
        match name {
            ANNEALING => Some(Timed::Annealing(limit.unwrap_or(ANNEALING_TIME))),
            NAME => Some(Timed::Ilp(Ilp::new(highs, limit.unwrap_or(ILP_TIME)))),
            _ => None,
        }
    }

    /// Its time budget.
    pub fn limit(&self) -> Duration {
        match self {
            Timed::Annealing(limit) => *limit,
            Timed::Ilp(ilp) => ilp.highs.limit,
        }
    }
}

impl Placer for Timed {
    fn name(&self) -> &'static str {
        match self {
            Timed::Annealing(_) => ANNEALING,
            Timed::Ilp(_) => NAME,
        }
    }

    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        match self {
            Timed::Annealing(limit) => {
                let end = Instant::now() + *limit;
                let mut more = || Instant::now() < end;
                Annealing::default().place_within(request, cluster, &mut more)
            }
            Timed::Ilp(ilp) => ilp.place(request, cluster),
        }
    }
}
