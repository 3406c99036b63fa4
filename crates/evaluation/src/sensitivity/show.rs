//! Effects as tables, plots and words: one of each for a headline.

use super::parameters::Parameter;
use super::runs::{Effects, HEADLINES};
use crate::outcome::{Axis, Bars, Cell, Column, Drawing, Outcome, Plot, Table};
use crate::words::percent;

/// Parameters that a plot shows: the strongest.
const SHOWN_MAX: usize = 10;

/// Adds what all headlines show.
pub(super) fn all(outcome: &mut Outcome, parameters: &[Parameter], effects: &[Effects<'_>]) {
    for at in 0..HEADLINES.len() {
        outcome.tables.push(table(at, parameters, effects));
        outcome.plots.extend(plot(at, parameters, effects));
        outcome
            .notes
            .extend(effects.iter().filter_map(|e| note(at, parameters, e)));
    }
}

fn table(at: usize, parameters: &[Parameter], effects: &[Effects<'_>]) -> Table {
    let (name, what) = HEADLINES[at];
    let mut columns = vec![Column::given("parameter"), Column::given("from, to")];
    for e in effects {
        columns
            .extend(["low", "high"].map(|end| Column::modelled(&format!("{}, {end}", e.app), 3)));
    }
    let row = |name: &str, range: &str, ends: &dyn Fn(&Effects<'_>) -> [Option<f64>; 2]| {
        let mut row: Vec<Cell> = vec![name.into(), range.into()];
        row.extend(effects.iter().flat_map(ends).map(Cell::from));
        row
    };
    let mut rows = vec![row("none", "", &|e| [e.usual[at]; 2])];
    for (i, p) in parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| p.is_in_play())
    {
        rows.push(row(p.name, &p.range, &|e| {
            let [low, high] = &e.ends[i];
            [low[at], high[at]]
        }));
    }
    Table {
        title: format!("{name}: {what}"),
        columns,
        rows,
    }
}

/// By how much a parameter changes a headline at most, as a part with its sign.
fn swing(at: usize, effects: &Effects<'_>, parameter: usize) -> Option<f64> {
    let usual = effects.usual[at]?;
    let ends = effects.ends[parameter].iter();
    let changes = ends.filter_map(|end| Some(end[at]? / usual - 1.0));
    changes.max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

/// Parameters by what they do to a headline, the strongest first; those that do nothing are left out.
fn strongest(at: usize, parameters: &[Parameter], effects: &[Effects<'_>]) -> Vec<usize> {
    let most = |parameter: usize| {
        let swings = effects.iter().filter_map(|e| swing(at, e, parameter));
        swings.fold(0.0, |most: f64, s| most.max(s.abs()))
    };
    let mut sorted: Vec<(usize, f64)> = (0..parameters.len()).map(|i| (i, most(i))).collect();
    sorted.retain(|(_, most)| *most > 0.0);
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    sorted.into_iter().map(|(i, _)| i).collect()
}

fn plot(at: usize, parameters: &[Parameter], effects: &[Effects<'_>]) -> Option<Plot> {
    let (name, what) = HEADLINES[at];
    let mut shown = strongest(at, parameters, effects);
    shown.truncate(SHOWN_MAX);
    if shown.is_empty() {
        return None;
    }
    let bars = effects.iter().filter(|e| e.usual[at].is_some()).map(|e| {
        let changes = shown.iter().map(|i| Some(swing(at, e, *i)? * 100.0));
        Bars::plain(e.app, changes.collect())
    });
    let words: Vec<String> = effects
        .iter()
        .filter_map(|e| note(at, parameters, e))
        .collect();
    Some(Plot {
        title: format!("What moves {name}"),
        alt: format!(
            "Bars: largest change of {name} ({what}) by each parameter at the ends of its range. {}",
            words.join(" ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("largest change (%)"),
            groups: shown
                .iter()
                .map(|i| parameters[*i].name.to_string())
                .collect(),
            bars: bars.collect(),
        },
    })
}

fn note(at: usize, parameters: &[Parameter], effects: &Effects<'_>) -> Option<String> {
    let (name, what) = HEADLINES[at];
    let usual = effects.usual[at]?;
    let ends = || effects.ends.iter().flatten().filter_map(|end| end[at]);
    let (low, high) = (ends().fold(usual, f64::min), ends().fold(usual, f64::max));
    let first = strongest(at, parameters, std::slice::from_ref(effects))
        .into_iter()
        .next();
    let most = match first {
        Some(i) => format!(
            "{} moves it most, by {}",
            parameters[i].name,
            percent(swing(at, effects, i)?)
        ),
        None => "nothing moves it".into(),
    };
    Some(format!(
        "{}, {name} ({what}): {usual:.2}, {low:.2} to {high:.2} with one parameter at an end of its range; {most}.",
        effects.app
    ))
}
