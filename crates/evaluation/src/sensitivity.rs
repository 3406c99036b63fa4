//! How much each guess of the models, and the flows of the applications, move each headline.

use crate::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Drawing, Outcome, Plot, Table};
use crate::words::{percent, times};
use crate::world::{Case, EvaluationError, World};
use e3_hardware::guesses::GUESSES;
use e3_perfsim::{Report, Sweep};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sensitivity",
    title: "How much each guess moves each headline",
    section: "none",
    about: "What three Type1-SmartNIC servers gain over three Beefy servers at their knees, with one parameter at a \
            time at the end of its plausible range: those that no source gives, and the messages per request of each \
            application.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
const CLUSTERS: [&str; 2] = ["3x-beefy", "3x-type1"];
const PLACER: &str = "joules";
/// The parameter beside the guesses.
const VISITS: &str = "messages per request";

/// A headline: SmartNICs over none.
struct Headline {
    name: &'static str,
    of: fn(&Report) -> f64,
}

const HEADLINES: [Headline; 4] = [
    Headline {
        name: "requests/J",
        of: |r| r.requests_per_joule,
    },
    Headline {
        name: "requests/s",
        of: |r| r.achieved_rps,
    },
    Headline {
        name: "mean latency",
        of: |r| r.latency.avg_us,
    },
    Headline {
        name: "p99 latency",
        of: |r| r.latency.p99_us,
    },
];

/// The headlines of one run of both clusters.
type Ratios = [f64; HEADLINES.len()];

/// What an application's headlines are with a parameter at the ends of its range.
struct Effect {
    name: &'static str,
    range: String,
    low: Ratios,
    high: Ratios,
}

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let apps = if world.quick { &APPS[..1] } else { &APPS };
    let subjects = world.among(apps);
    let mut cases = Vec::new();
    for subject in &subjects {
        for cluster in CLUSTERS {
            cases.push(world.case(subject, world.cluster(cluster)?, PLACER));
        }
        let (low, high) = &subject.visits_range;
        for visits in [low, high] {
            for cluster in CLUSTERS {
                let case = world.case(subject, world.cluster(cluster)?, PLACER);
                cases.push(Case { visits, ..case });
            }
        }
        for (guess, value) in GUESSES.iter().flat_map(|g| [(g, g.low), (g, g.high)]) {
            for cluster in CLUSTERS {
                let mut case = world.case(subject, world.cluster(cluster)?, PLACER);
                let set = case.options.guesses.set(guess.name, value);
                set.expect("the end of its own range");
                cases.push(case);
            }
        }
    }
    let sweeps = world.sweeps(&cases)?;
    let of_app = sweeps.len() / subjects.len().max(1);
    let mut outcome = EXPERIMENT.outcome();
    outcome.parameters = world.parameters();
    outcome.parameters.push(("placer".into(), PLACER.into()));
    for (subject, sweeps) in subjects.iter().zip(sweeps.chunks(of_app.max(1))) {
        let app = &subject.app.name;
        let ratios: Vec<Ratios> = sweeps.chunks(CLUSTERS.len()).map(ratios).collect();
        let (usual, ends) = (ratios[0], &ratios[1..]);
        let guesses = GUESSES
            .iter()
            .map(|g| (g.name, format!("{} to {}", g.low, g.high)));
        let effects: Vec<Effect> = std::iter::once((VISITS, "see flows".to_string()))
            .chain(guesses)
            .zip(ends.chunks(2))
            .map(|((name, range), ends)| Effect {
                name,
                range,
                low: ends[0],
                high: ends[1],
            })
            .collect();
        outcome.tables.push(table(app, &usual, &effects));
        outcome.plots.push(plot(app, &usual, &effects));
        outcome.notes.push(note(app, &usual, &effects));
    }
    outcome.notes.push(
        "Each parameter moves alone, and the seed stays the same. The instances stay where they are unless the placer looks \
         at the parameter."
            .into(),
    );
    Ok(outcome)
}

/// SmartNICs over none, from the curves of both clusters.
fn ratios(pair: &[Sweep]) -> Ratios {
    let (without, with) = (&pair[0].knee, &pair[1].knee);
    HEADLINES.map(|headline| (headline.of)(with) / (headline.of)(without))
}

fn table(app: &str, usual: &Ratios, effects: &[Effect]) -> Table {
    let mut columns = vec![Column::given("parameter"), Column::given("from, to")];
    columns.extend(HEADLINES.iter().flat_map(|headline| {
        ["low", "high"].map(|end| Column::modelled(&format!("{}, {end}", headline.name), 3))
    }));
    let row = |effect: &Effect| {
        let mut row: Vec<Cell> = vec![effect.name.into(), effect.range.as_str().into()];
        let ends = effect.low.into_iter().zip(effect.high);
        row.extend(ends.flat_map(|(low, high)| [low.into(), high.into()]));
        row
    };
    let mut none: Vec<Cell> = vec!["none".into(), "".into()];
    none.extend(
        usual
            .iter()
            .flat_map(|value| [(*value).into(), (*value).into()]),
    );
    Table {
        title: format!("With SmartNICs over without: {app}"),
        columns,
        rows: std::iter::once(none)
            .chain(effects.iter().map(row))
            .collect(),
    }
}

/// By how much a parameter changes requests per joule at most, as a part.
fn swing(usual: &Ratios, effect: &Effect) -> f64 {
    let change = |ends: &Ratios| (ends[0] / usual[0] - 1.0).abs();
    change(&effect.low).max(change(&effect.high))
}

/// Parameters by what they do to requests per joule, the strongest first.
fn strongest<'a>(usual: &Ratios, effects: &'a [Effect]) -> Vec<&'a Effect> {
    let mut sorted: Vec<&Effect> = effects.iter().collect();
    sorted.sort_by(|a, b| swing(usual, b).total_cmp(&swing(usual, a)));
    sorted
}

fn plot(app: &str, usual: &Ratios, effects: &[Effect]) -> Plot {
    let sorted = strongest(usual, effects);
    let change = |ends: &Ratios| Some((ends[0] / usual[0] - 1.0) * 100.0);
    Plot {
        title: format!("Requests per joule of {app}, SmartNICs over none"),
        alt: format!(
            "Bars: change of {} in requests per joule of {app} by each parameter at the ends of its range. {}",
            times(usual[0]),
            note(app, usual, effects)
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("change (%)"),
            groups: sorted.iter().map(|e| e.name.to_string()).collect(),
            bars: vec![
                Bars {
                    name: "lowest".into(),
                    values: sorted.iter().map(|e| change(&e.low)).collect(),
                },
                Bars {
                    name: "highest".into(),
                    values: sorted.iter().map(|e| change(&e.high)).collect(),
                },
            ],
        },
    }
}

fn note(app: &str, usual: &Ratios, effects: &[Effect]) -> String {
    let all = effects.iter().flat_map(|e| [e.low[0], e.high[0]]);
    let low = all.clone().fold(usual[0], f64::min);
    let high = all.fold(usual[0], f64::max);
    let strongest = strongest(usual, effects).into_iter().next();
    let name = strongest.map_or("none", |e| e.name);
    let most = strongest.map_or(0.0, |e| swing(usual, e));
    format!(
        "{app}: SmartNICs give {} the requests per joule, {} to {} with one parameter at an end of its range; {name} moves it \
         most, by {}.",
        times(usual[0]),
        times(low),
        times(high),
        percent(most)
    )
}
