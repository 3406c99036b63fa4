//! What an experiment gives: tables, plots, the paper's figures beside ours, and notes. Plain data; whoever
//! runs it renders it.

use e3_hardware::Estimate;
use e3_model::profile::Provenance;
use serde::Serialize;

/// The result of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// In one line.
    pub title: &'static str,
    /// Section of the paper.
    pub section: &'static str,
    /// What is asked and how it is answered.
    pub about: &'static str,
    /// Name and value of what was set.
    pub parameters: Vec<(String, String)>,
    /// Figures.
    pub tables: Vec<Table>,
    /// Pictures of them.
    pub plots: Vec<Plot>,
    /// What the paper says beside what came out.
    pub comparisons: Vec<Comparison>,
    /// What the reader must know: sources, assumptions, what failed.
    pub notes: Vec<String>,
}

/// A table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Column {
    /// Heading, with the unit.
    pub name: String,
    /// Where its numbers come from; None if it has words or what was set.
    pub provenance: Option<Provenance>,
    /// Digits after the point that people are shown.
    pub digits: usize,
}

/// A cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number.
    Number(f64),
    /// No value; a note says why.
    None,
}

impl Column {
    /// A column of words, or of numbers that were set.
    pub fn given(name: &str) -> Column {
        Column {
            name: name.into(),
            provenance: None,
            digits: 0,
        }
    }

    /// Numbers of a model.
    pub fn modelled(name: &str, digits: usize) -> Column {
        Column {
            name: name.into(),
            provenance: Some(Provenance::Modelled),
            digits,
        }
    }

    /// The same with numbers of another provenance.
    pub fn from(self, provenance: Provenance) -> Column {
        Column {
            provenance: Some(provenance),
            ..self
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

/// What is not a number, such as the latency of no request, is no value.
impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        if number.is_finite() {
            Cell::Number(number)
        } else {
            Cell::None
        }
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Cell {
        number.map_or(Cell::None, Cell::from)
    }
}

/// An axis.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Axis {
    /// Label, with the unit.
    pub label: String,
    /// Logarithmic; all values are above 0.
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str) -> Axis {
        Axis {
            label: label.into(),
            log: false,
        }
    }

    /// A logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis {
            label: label.into(),
            log: true,
        }
    }
}

/// A line.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
}

/// Bars of one colour.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bars {
    /// Name in the legend.
    pub name: String,
    /// A value for each group.
    pub values: Vec<Option<f64>>,
    /// The range of each value, lowest and highest; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Option<(f64, f64)>>,
}

impl Bars {
    /// Values without ranges.
    pub fn plain(name: &str, values: Vec<Option<f64>>) -> Bars {
        Bars {
            name: name.into(),
            values,
            ranges: Vec::new(),
        }
    }

    /// Values with their ranges.
    pub fn ranged(name: &str, values: &[Option<Estimate>]) -> Bars {
        let is_known =
            |v: &&Estimate| v.low.is_finite() && v.value.is_finite() && v.high.is_finite();
        let known = || values.iter().map(|v| v.as_ref().filter(is_known));
        Bars {
            name: name.into(),
            values: known().map(|v| Some(v?.value)).collect(),
            ranges: known().map(|v| Some((v?.low, v?.high))).collect(),
        }
    }
}

/// A plot.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What is to be seen, for those who do not see it.
    pub alt: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawing {
    /// Lines with marks.
    Lines {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// Lines.
        lines: Vec<Line>,
    },
    /// Groups of horizontal bars.
    Bars {
        /// Axis of the values.
        x: Axis,
        /// Names of the groups.
        groups: Vec<String>,
        /// Series.
        bars: Vec<Bars>,
    },
}

/// What the paper says, and what came out here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub what: String,
    /// The paper's figure.
    pub paper: String,
    /// Ours.
    pub ours: String,
    /// The difference, and why we think that it is so.
    pub why: String,
}
