//! A measured figure, and the report of a group.

use crate::Machine;
use serde::{Deserialize, Serialize};

/// Which values of a figure are better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// High ones.
    Higher,
    /// Low ones.
    Lower,
}

/// A figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Such as `engine.echo_64b`.
    pub name: String,
    /// None if it could not be measured; the note says why.
    pub value: Option<f64>,
    /// Unit.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
    /// The value to reach; None if there is no aim.
    pub aim: Option<f64>,
    /// Whether the aim is met; None if there is none.
    pub pass: Option<bool>,
    /// What was run, absolute figures, or why there is no value.
    pub note: String,
}

impl Figure {
    /// A figure without an aim.
    pub fn new(name: impl Into<String>, value: f64, unit: &str, better: Better) -> Figure {
        Figure {
            name: name.into(),
            value: Some(value),
            unit: unit.into(),
            better,
            aim: None,
            pass: None,
            note: String::new(),
        }
    }

    /// The figure with an aim, which a figure without a value misses.
    pub fn aim(mut self, aim: f64) -> Figure {
        self.aim = Some(aim);
        self.pass = Some(self.value.is_some_and(|value| match self.better {
            Better::Higher => value >= aim,
            Better::Lower => value <= aim,
        }));
        self
    }

    /// The figure with an aim for what happens under a load. It misses the aim if the load was not held,
    /// whatever its value.
    pub fn aim_under_load(self, aim: f64, is_held: bool) -> Figure {
        let mut figure = self.aim(aim);
        figure.pass = figure.pass.map(|pass| pass && is_held);
        figure
    }

    /// The figure with a note.
    pub fn note(mut self, note: impl Into<String>) -> Figure {
        self.note = note.into();
        self
    }
}

/// What stands behind figures, where one line is too little.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns, with the unit.
    pub columns: Vec<String>,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<String>>,
    /// What the reader must know.
    pub note: String,
}

/// One run of a group.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Name of the group.
    pub group: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// Its figures.
    pub results: Vec<Figure>,
    /// Tables behind them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
}

impl Report {
    /// A report on this machine.
    pub fn new(group: &'static str, results: Vec<Figure>) -> Report {
        Report {
            group,
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            results,
            tables: Vec::new(),
        }
    }

    /// The report with tables.
    pub fn tables(self, tables: Vec<Table>) -> Report {
        Report { tables, ..self }
    }

    /// Names of the figures that miss their aim.
    pub fn missed(&self) -> Vec<&str> {
        let missed = self.results.iter().filter(|r| r.pass == Some(false));
        missed.map(|r| r.name.as_str()).collect()
    }
}

/// The median; the upper one of two.
///
/// # Panics
/// If there is no value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_met_at_its_bound() {
        let figure = |value, better| Figure::new("a", value, "us", better).aim(2.0).pass;
        assert_eq!(figure(2.0, Better::Lower), Some(true));
        assert_eq!(figure(2.1, Better::Lower), Some(false));
        assert_eq!(figure(2.0, Better::Higher), Some(true));
        assert_eq!(figure(1.9, Better::Higher), Some(false));
        let mut none = Figure::new("a", 0.0, "us", Better::Lower);
        none.value = None;
        assert_eq!(none.aim(2.0).pass, Some(false));
    }

    #[test]
    fn an_aim_under_a_load_that_was_not_held_is_missed() {
        let pass = |value, is_held| {
            let figure = Figure::new("a", value, "us", Better::Lower);
            figure.aim_under_load(2.0, is_held).pass
        };
        assert_eq!(pass(2.0, true), Some(true));
        assert_eq!(pass(2.0, false), Some(false));
        assert_eq!(pass(2.1, true), Some(false));
    }
}
