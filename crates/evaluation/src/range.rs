//! Figures with their range over what is plausible for the messages per request of an application.
//!
//! Each case runs with the messages per request as they were counted, with the fewest and with the most that
//! are plausible (docs/applications/flows.md). The range of a figure is from the lowest to the highest of the three.

use crate::outcome::{Cell, Column, Table};
use crate::world::{Case, EvaluationError, Subject, World, map};
use e3_hardware::Estimate;
use e3_perfsim::{Effort, Report, Sweep};

/// What readers are told.
pub(crate) const RANGE_NOTE: &str = "Ranges, and the thin lines in the plots, are over what is plausible for the messages per request of each application: \
all at their fewest, and all at their most.";

/// A result as messages were counted, and at both ends of what is plausible.
#[derive(Clone, Debug)]
pub(crate) struct Ranged<T> {
    pub usual: T,
    pub fewest: T,
    pub most: T,
}

/// Which messages per request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Visits {
    Usual,
    Fewest,
    Most,
}

pub(crate) const ENDS: [Visits; 3] = [Visits::Usual, Visits::Fewest, Visits::Most];

impl Visits {
    pub(crate) fn of(self, subject: &Subject) -> &[f64] {
        match self {
            Visits::Usual => &subject.visits,
            Visits::Fewest => &subject.visits_range.0,
            Visits::Most => &subject.visits_range.1,
        }
    }
}

impl<T> Ranged<T> {
    /// From the results for [`ENDS`], in their order.
    pub(crate) fn of(results: [T; ENDS.len()]) -> Ranged<T> {
        let [usual, fewest, most] = results;
        Ranged {
            usual,
            fewest,
            most,
        }
    }

    /// A figure with its range. If one of the three is not a number, the range is none.
    pub(crate) fn figure(&self, of: impl Fn(&T) -> f64) -> Estimate {
        let [value, fewest, most] = [of(&self.usual), of(&self.fewest), of(&self.most)];
        if fewest.is_nan() || most.is_nan() {
            return Estimate {
                low: f64::NAN,
                value,
                high: f64::NAN,
            };
        }
        Estimate {
            low: value.min(fewest).min(most),
            value,
            high: value.max(fewest).max(most),
        }
    }

    /// A figure of two results with its range; both have the same messages per request.
    pub(crate) fn figure_of<U>(&self, other: &Ranged<U>, of: impl Fn(&T, &U) -> f64) -> Estimate {
        let values = Ranged::of([
            of(&self.usual, &other.usual),
            of(&self.fewest, &other.fewest),
            of(&self.most, &other.most),
        ]);
        values.figure(|v| *v)
    }
}

impl World<'_> {
    /// The curves of all cases at both ends too, or why there is none. The ends have runs of half the length.
    pub(crate) fn ranged(&self, cases: &[Case<'_>]) -> Vec<Result<Ranged<Sweep>, EvaluationError>> {
        let all = self.effort();
        let half = Effort {
            search: all.search / 2.0,
            point: all.point / 2.0,
        };
        let jobs: Vec<(&Case<'_>, Visits)> = cases
            .iter()
            .flat_map(|case| ENDS.map(|visits| (case, visits)))
            .collect();
        let sweeps = map(self.pool, &jobs, |(case, visits)| {
            let effort = if *visits == Visits::Usual { all } else { half };
            self.sweep_within(&case.with(*visits), effort)
        });
        let mut sweeps = sweeps.into_iter();
        let mut next = || sweeps.next().expect("three for each case");
        let of_case = |_| {
            let ends = [next(), next(), next()];
            let [usual, fewest, most] = ends;
            Ok(Ranged::of([usual?, fewest?, most?]))
        };
        cases.iter().map(of_case).collect()
    }

    /// The same; the first that fails is the error.
    pub(crate) fn ranged_sweeps(
        &self,
        cases: &[Case<'_>],
    ) -> Result<Vec<Ranged<Sweep>>, EvaluationError> {
        self.ranged(cases).into_iter().collect()
    }
}

impl<'a> Case<'a> {
    /// The same with other messages per request.
    pub(crate) fn with(&self, visits: Visits) -> Case<'a> {
        Case {
            visits: visits.of(self.subject),
            ..self.clone()
        }
    }
}

/// A figure of the knee with its range.
pub(crate) fn at_knee(sweep: &Ranged<Sweep>, of: fn(&Report) -> f64) -> Estimate {
    sweep.figure(|s| of(&s.knee))
}

/// A headline: what it is, and its value with its range; None where there is none.
pub(crate) type Headline = (String, Option<Estimate>);

/// The headlines of an experiment.
pub(crate) fn headlines(title: &str, digits: usize, headlines: &[Headline]) -> Table {
    let row = |(what, value): &Headline| -> Vec<Cell> {
        let of = |end: fn(&Estimate) -> f64| value.as_ref().map(end).into();
        vec![
            what.as_str().into(),
            of(|v| v.low),
            of(|v| v.value),
            of(|v| v.high),
        ]
    };
    Table {
        title: format!("{title}, with its range over plausible messages per request"),
        columns: vec![
            Column::given("of"),
            Column::modelled("lowest", digits),
            Column::modelled("as counted", digits),
            Column::modelled("highest", digits),
        ],
        rows: headlines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_value_whichever_end_is_lower() {
        let ranged = Ranged::of([2.0, 3.0, 1.0]);
        let figure = ranged.figure(|v| *v);
        assert_eq!((figure.low, figure.value, figure.high), (1.0, 2.0, 3.0));
        let twice = Ranged::of([4.0, 6.0, 2.0]);
        let ratio = ranged.figure_of(&twice, |a, b| b / a);
        assert_eq!((ratio.low, ratio.value, ratio.high), (2.0, 2.0, 2.0));
        let table = headlines("gain", 2, &[("a".into(), Some(figure)), ("b".into(), None)]);
        assert_eq!(table.rows[0][1..], [1.0.into(), 2.0.into(), 3.0.into()]);
        assert_eq!(table.rows[1][1..], [Cell::None, Cell::None, Cell::None]);
    }
}
