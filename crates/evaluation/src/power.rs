//! Power against offered load, from idle to peak (section 5.1).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
use crate::range::{Headline, RANGE_NOTE, Ranged, headlines};
use crate::words::assumed;
use crate::world::{EvaluationError, Subject, World};
use e3_perfsim::{Point, Sweep};
use e3_power::paper::table4;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "power",
    title: "Power against offered load",
    section: "5.1",
    about: "Power of all servers at rates from 2 % of the highest one on, on three Beefy and on three Type1-SmartNIC \
            servers. Proportionality is the power at a tenth of the highest rate over that at the knee: 0.1 if \
            power followed the load, 1 if it did not depend on it.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
/// Cluster, and the system of Table 4 of which it has three.
const CLUSTERS: [(&str, &str); 2] = [("3x-beefy", "Beefy"), ("3x-type1", "Type1-SmartNIC")];
const PLACER: &str = "joules";

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let subjects = world.among(&APPS);
    let mut cases = Vec::new();
    for subject in &subjects {
        for (cluster, _) in CLUSTERS {
            cases.push(world.case(subject, world.cluster(cluster)?, PLACER));
        }
    }
    let ranged = world.ranged_sweeps(&cases)?;
    let proportional: Vec<Headline> = cases
        .iter()
        .zip(&ranged)
        .map(|(case, sweep)| {
            let of = format!("{} on {}", case.subject.app.name, case.topology.name);
            (of, Some(sweep.figure(proportionality)))
        })
        .collect();
    let sweeps: Vec<Sweep> = ranged.into_iter().map(|r: Ranged<Sweep>| r.usual).collect();
    let mut tables = vec![headlines(
        "Power at a tenth of the highest rate over power at the knee",
        3,
        &proportional,
    )];
    let mut plots = vec![proportionality_plot(&subjects, &proportional)];
    for (subject, pair) in subjects.iter().zip(sweeps.chunks(CLUSTERS.len())) {
        let app = &subject.app.name;
        tables.push(table(app, pair));
        plots.push(plot(app, pair));
    }
    let mut parameters = world.parameters();
    parameters.push(("placer".into(), PLACER.into()));
    let mut notes: Vec<String> = assumed(sweeps.iter().map(|s| &s.knee))
        .into_iter()
        .collect();
    notes.extend([
            "Idle and peak of a server are Table 4's and calibrate the model; between them it is a fit of Table 1. A \
             SmartNIC draws its whole active power from its first message on, since its cores never sleep."
                .into(),
            RANGE_NOTE.into(),
    ]);
    Ok(Outcome {
        parameters,
        tables,
        plots,
        comparisons: comparisons(&sweeps),
        notes,
        ..EXPERIMENT.outcome()
    })
}

/// Power at a tenth of the highest rate over that at the knee.
pub(crate) fn proportionality(sweep: &Sweep) -> f64 {
    let tenth = 0.1 * sweep.saturates_rps;
    let off = |p: &&Point| (p.offered_rps / tenth).ln().abs();
    let low = carried(sweep).min_by(|a, b| off(a).total_cmp(&off(b)));
    low.map_or(f64::NAN, |p| p.watts_total) / sweep.knee.watts_total
}

fn proportionality_plot(subjects: &[&Subject], all: &[Headline]) -> Plot {
    let words = all
        .iter()
        .filter_map(|(of, v)| Some(format!("{of} {:.2}", v.as_ref()?.value)));
    let words: Vec<String> = words.collect();
    let bars = CLUSTERS.iter().enumerate().map(|(at, (cluster, _))| {
        let own = all.iter().skip(at).step_by(CLUSTERS.len());
        Bars::ranged(cluster, &own.map(|(_, v)| *v).collect::<Vec<_>>())
    });
    Plot {
        title: "Power at a tenth of the load over peak".into(),
        alt: format!(
            "Bars: power at a tenth of the highest rate over power at the knee, with its range: {}.",
            words.join("; ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("part of the power at the knee"),
            groups: subjects.iter().map(|s| s.app.name.clone()).collect(),
            bars: bars.collect(),
        },
    }
}

fn carried(sweep: &Sweep) -> impl Iterator<Item = &Point> {
    sweep.points.iter().filter(|p| !p.saturated)
}

fn table(app: &str, pair: &[Sweep]) -> Table {
    let rows = CLUSTERS.iter().zip(pair).flat_map(|((cluster, _), sweep)| {
        carried(sweep).map(|p| {
            vec![
                (*cluster).into(),
                p.offered_rps.into(),
                p.watts_total.into(),
                (p.achieved_rps / p.watts_total).into(),
            ]
        })
    });
    Table {
        title: format!("Power of {app}"),
        columns: vec![
            Column::given("cluster"),
            Column::modelled("offered requests/s", 0),
            Column::modelled("W", 1),
            Column::modelled("requests/J", 1),
        ],
        rows: rows.collect(),
    }
}

fn plot(app: &str, pair: &[Sweep]) -> Plot {
    let lines = CLUSTERS.iter().zip(pair).map(|((cluster, _), sweep)| Line {
        name: (*cluster).into(),
        points: carried(sweep)
            .map(|p| (p.offered_rps, p.watts_total))
            .collect(),
    });
    let ends = CLUSTERS
        .iter()
        .zip(pair)
        .filter_map(|((cluster, _), sweep)| {
            let (first, last) = (carried(sweep).next()?, carried(sweep).last()?);
            Some(format!(
                "{cluster} from {:.0} W at {:.0} requests/s to {:.0} W at {:.0}",
                first.watts_total, first.offered_rps, last.watts_total, last.offered_rps
            ))
        });
    let ends: Vec<String> = ends.collect();
    Plot {
        title: format!("Power of {app}"),
        alt: format!(
            "Lines: power against offered load of {app}: {}.",
            ends.join("; ")
        ),
        drawing: Drawing::Lines {
            x: Axis::linear("offered requests/s"),
            y: Axis::linear("W"),
            lines: lines.collect(),
        },
    }
}

/// Table 4 beside the lowest and the highest load.
fn comparisons(sweeps: &[Sweep]) -> Vec<Comparison> {
    let rows = table4();
    let of = |(at, (cluster, system)): (usize, &(&str, &str))| {
        let row = rows.iter().find(|r| r.system == *system)?;
        let own = || sweeps.iter().skip(at).step_by(CLUSTERS.len());
        let watts = |s: &Sweep| carried(s).map(|p| p.watts_total).collect::<Vec<_>>();
        let all: Vec<f64> = own().flat_map(watts).collect();
        let low = all.iter().copied().min_by(f64::total_cmp)?;
        let high = all.iter().copied().max_by(f64::total_cmp)?;
        Some(Comparison {
            what: format!("Power of {cluster}, lowest and highest"),
            paper: format!("idle {:.0} W, peak {:.0} W", 3.0 * row.idle_w, 3.0 * row.peak_w),
            ours: format!("{low:.0} W to {high:.0} W"),
            why: "Table 4 bounds the model, so this is no evidence for it. Ours begins at 2 % of the highest rate, not \
                  at idle, and ends where the first resource is full: other nodes are not then."
                .into(),
        })
    };
    CLUSTERS.iter().enumerate().filter_map(of).collect()
}
