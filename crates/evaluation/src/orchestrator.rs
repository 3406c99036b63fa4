//! The orchestrator off and on, after a placement that fills the SmartNICs (section 5.2).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Outcome, Plot, Table};
use crate::words::times;
use crate::world::{Case, EvaluationError, World, map};
use e3_model::Nanos;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_perfsim::Report;
use e3_placement::Placement;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "orchestrator",
    title: "The orchestrator off and on",
    section: "5.2",
    about: "The placer nicfirst puts as many services on the SmartNICs of three Type1-SmartNIC servers as their memory \
            holds. The product's orchestrator watches the run, or does not. Each application is offered parts of the \
            rate that it has at the knee when joules places it. Only the last quarter of a run is measured.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
const CLUSTER: &str = "3x-type1";
const PLACER: &str = "nicfirst";
/// The placer whose knee gives the rates.
const PLACER_OF_RATES: &str = "joules";
/// Of that rate.
const PARTS: [f64; 2] = [0.25, 0.5];
const PARTS_QUICK: [f64; 1] = [0.25];
/// Some rests of a SmartNIC after a decision, 15 s each.
const DURATION: Nanos = Nanos::from_secs(80);
const DURATION_QUICK: Nanos = Nanos::from_secs(8);

/// An application at a rate.
struct Job<'a> {
    case: &'a Case<'a>,
    placement: &'a Placement,
    rate_rps: f64,
    mode: OrchestratorMode,
}

/// Both runs of an application at a rate.
struct Pair<'a> {
    app: &'a str,
    rate_rps: f64,
    off: Report,
    on: Report,
}

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let cluster = world.cluster(CLUSTER)?;
    let subjects = world.among(&APPS);
    let case = |placer| subjects.iter().map(move |s| world.case(s, cluster, placer));
    let cases: Vec<Case<'_>> = case(PLACER).collect();
    let knees = world.sweeps(&case(PLACER_OF_RATES).collect::<Vec<_>>())?;
    let placements: Result<Vec<Placement>, _> = cases.iter().map(|c| world.place(c)).collect();
    let placements = placements?;
    let (parts, duration) = if world.quick {
        (&PARTS_QUICK[..], DURATION_QUICK)
    } else {
        (&PARTS[..], DURATION)
    };
    let mut jobs = Vec::new();
    for ((case, placement), knee) in cases.iter().zip(&placements).zip(&knees) {
        for part in parts {
            for mode in [OrchestratorMode::Off, OrchestratorMode::On] {
                jobs.push(Job {
                    case,
                    placement,
                    rate_rps: knee.knee.achieved_rps * part,
                    mode,
                });
            }
        }
    }
    let reports = map(world.pool, &jobs, |job| {
        let settings = OrchestratorSettings {
            mode: job.mode,
            ..OrchestratorSettings::default()
        };
        world.orchestrate(job.case, job.placement, job.rate_rps, duration, settings)
    });
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
    let mut reports = reports.into_iter();
    let mut pairs = Vec::new();
    for job in jobs.iter().step_by(2) {
        if let (Some(off), Some(on)) = (reports.next(), reports.next()) {
            pairs.push(Pair {
                app: &job.case.subject.app.name,
                rate_rps: job.rate_rps,
                off,
                on,
            });
        }
    }
    let mut outcome = EXPERIMENT.outcome();
    outcome.parameters = world.parameters();
    let parameters = [
        ("placer", PLACER.to_string()),
        (
            "simulated time",
            format!("{} s", duration.0 / 1_000_000_000),
        ),
    ];
    outcome
        .parameters
        .extend(parameters.map(|(name, value)| (name.to_string(), value)));
    outcome.tables.push(table(&pairs));
    outcome.plots.push(plot(&pairs));
    outcome.comparisons.extend(comparison(&pairs));
    outcome.notes = vec![
        "A run that ends with more and more requests in flight is saturated: its latencies depend on how long it lasts."
            .into(),
        "In this model the time of a handler does not grow with the load of its node, so the orchestrator sees host \
         starvation, not microservice overload."
            .into(),
    ];
    Ok(outcome)
}

fn table(pairs: &[Pair<'_>]) -> Table {
    let row = |pair: &Pair<'_>, mode: &str, report: &Report| -> Vec<Cell> {
        let saturated = if report.saturated { "yes" } else { "no" };
        vec![
            pair.app.into(),
            pair.rate_rps.into(),
            mode.into(),
            report.achieved_rps.into(),
            report.latency.avg_us.into(),
            report.latency.p99_us.into(),
            report.requests_per_joule.into(),
            (report.disruption.moves as f64).into(),
            saturated.into(),
        ]
    };
    let rows = pairs
        .iter()
        .flat_map(|pair| [row(pair, "off", &pair.off), row(pair, "on", &pair.on)]);
    Table {
        title: "In the last quarter of each run".into(),
        columns: vec![
            Column::given("application"),
            Column::given("offered requests/s"),
            Column::given("orchestrator"),
            Column::modelled("requests/s", 0),
            Column::modelled("mean latency us", 1),
            Column::modelled("p99 latency us", 1),
            Column::modelled("requests/J", 1),
            Column::modelled("moves", 0),
            Column::given("saturated"),
        ],
        rows: rows.collect(),
    }
}

fn plot(pairs: &[Pair<'_>]) -> Plot {
    let words = pairs.iter().map(|pair| {
        let (off, on) = (pair.off.achieved_rps, pair.on.achieved_rps);
        format!("{} at {:.0}: {off:.0} and {on:.0}", pair.app, pair.rate_rps)
    });
    let words: Vec<String> = words.collect();
    let bars = |name: &str, of: fn(&Pair<'_>) -> f64| Bars {
        name: name.into(),
        values: pairs.iter().map(|pair| Some(of(pair))).collect(),
    };
    Plot {
        title: "Requests answered".into(),
        alt: format!(
            "Bars: requests answered per second with the orchestrator off and on, by application and offered rate. {}.",
            words.join("; ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("requests/s"),
            groups: pairs
                .iter()
                .map(|pair| format!("{}, {:.0}/s", pair.app, pair.rate_rps))
                .collect(),
            bars: vec![
                bars("off", |pair| pair.off.achieved_rps),
                bars("on", |pair| pair.on.achieved_rps),
            ],
        },
    }
}

fn comparison(pairs: &[Pair<'_>]) -> Option<Comparison> {
    let gain = |pair: &Pair<'_>| pair.on.achieved_rps / pair.off.achieved_rps;
    let most = pairs.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
    Some(Comparison {
        what: "Highest gain in requests/s by the orchestrator".into(),
        paper: "our reference states no figure for section 5.2".into(),
        ours: format!(
            "{} ({} at {:.0} requests/s)",
            times(gain(most)),
            most.app,
            most.rate_rps
        ),
        why: "A SmartNIC rests for 15 s after each decision, so the orchestrator moves a few shards in a run.".into(),
    })
}
