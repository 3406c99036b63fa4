//! What an experiment is.

use crate::outcome::Outcome;
use crate::world::{EvaluationError, World};

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// In one line.
    pub title: &'static str,
    /// Section of the paper.
    pub section: &'static str,
    /// What is asked and how it is answered.
    pub about: &'static str,
    pub(crate) run: fn(&World<'_>) -> Result<Outcome, EvaluationError>,
}

impl Experiment {
    /// Runs it.
    pub fn run(&self, world: &World<'_>) -> Result<Outcome, EvaluationError> {
        (self.run)(world)
    }

    /// An outcome without figures.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            experiment: self.name,
            title: self.title,
            section: self.section,
            about: self.about,
            parameters: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            comparisons: Vec::new(),
            notes: Vec::new(),
        }
    }
}
