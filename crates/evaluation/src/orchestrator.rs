//! The orchestrator off and on, after a placement that fills the SmartNICs (section 5.2).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Outcome, Plot, Table};
use crate::range::{ENDS, Headline, RANGE_NOTE, Ranged, headlines};
use crate::words::{assumed, times, times_range};
use crate::world::{Case, EvaluationError, World, map};
use e3_hardware::Estimate;
use e3_model::Nanos;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_perfsim::Report;
use e3_placement::Placement;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "orchestrator",
    title: "The orchestrator off and on",
    section: "5.2",
    about: "The placer nicfirst puts as many services on the SmartNICs of three Type1-SmartNIC servers as their memory \
            holds. The product's orchestrator watches the run, or does not. Each application is offered less and more \
            than the highest rate that this placement carries. Only the last quarter of a run is measured.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
const APPS_QUICK: [&str; 1] = ["rta-shm"];
const CLUSTER: &str = "3x-type1";
const PLACER: &str = "nicfirst";
/// Of the highest rate that the placement carries. At an overload the runs have ranges.
const PARTS: [f64; 2] = [0.8, PART_OVERLOADED];
const PARTS_QUICK: [f64; 1] = [PART_OVERLOADED];
pub(crate) const PART_OVERLOADED: f64 = 1.2;
/// Runs of a higher rate take too long to be repeated for a range, and to last.
const RANGED_RPS_MAX: f64 = 1e5;
/// The product leaves a SmartNIC alone for 15 s after a decision, and the applications need twelve or more decisions about
/// one until it carries an overload: a run has time for sixteen. A quick one has time for two.
const DURATION: Nanos = Nanos::from_secs(240);
const DURATION_QUICK: Nanos = Nanos::from_secs(24);
/// Length of a run of a higher rate than [`RANGED_RPS_MAX`].
const DURATION_SHORT: Nanos = Nanos::from_secs(40);
const MODES: [OrchestratorMode; 2] = [OrchestratorMode::Off, OrchestratorMode::On];

/// A run.
struct Job<'a> {
    case: Case<'a>,
    placement: &'a Placement,
    rate_rps: f64,
    mode: OrchestratorMode,
    duration: Nanos,
}

/// Both runs of an application at a rate.
struct Pair<'a> {
    app: &'a str,
    rate_rps: f64,
    off: &'a Report,
    on: &'a Report,
    /// By how much the orchestrator multiplies the requests that are answered; None without ranges.
    gain: Option<Estimate>,
}

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let cluster = world.cluster(CLUSTER)?;
    let subjects = world.among(if world.quick { &APPS_QUICK } else { &APPS });
    let cases = subjects.iter().map(|s| world.case(s, cluster, PLACER));
    let cases: Vec<Case<'_>> = cases.collect();
    let curves = world.sweeps(&cases)?;
    let placements: Result<Vec<Placement>, _> = cases.iter().map(|c| world.place(c)).collect();
    let placements = placements?;
    let parts = if world.quick {
        &PARTS_QUICK[..]
    } else {
        &PARTS
    };
    let mut jobs = Vec::new();
    let mut counts = Vec::new();
    for ((case, placement), curve) in cases.iter().zip(&placements).zip(&curves) {
        for part in parts {
            let rate_rps = curve.saturates_rps * part;
            let is_ranged = *part == PART_OVERLOADED && rate_rps <= RANGED_RPS_MAX;
            let visits = if is_ranged { &ENDS[..] } else { &ENDS[..1] };
            counts.push(visits.len() * MODES.len());
            let runs = visits.iter().flat_map(|v| MODES.map(|mode| (*v, mode)));
            jobs.extend(runs.map(|(visits, mode)| Job {
                case: case.with(visits),
                placement,
                rate_rps,
                mode,
                duration: duration(world, rate_rps),
            }));
        }
    }
    let reports = map(world.pool, &jobs, |job| job.run(world));
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
    let (mut jobs, mut reports) = (&jobs[..], &reports[..]);
    let mut pairs = Vec::new();
    for count in counts {
        let (of_pair, of_others) = reports.split_at(count);
        pairs.push(Pair {
            app: &jobs[0].case.subject.app.name,
            rate_rps: jobs[0].rate_rps,
            off: &of_pair[0],
            on: &of_pair[1],
            gain: gain_of(of_pair),
        });
        (jobs, reports) = (&jobs[count..], of_others);
    }
    let mut outcome = EXPERIMENT.outcome();
    outcome.parameters = world.parameters();
    let parameters = [
        ("placer", PLACER.to_string()),
        (
            "simulated time",
            match world.quick {
                true => seconds(DURATION_QUICK),
                false => format!(
                    "{}; at more than {RANGED_RPS_MAX} requests/s {}",
                    seconds(DURATION),
                    seconds(DURATION_SHORT)
                ),
            },
        ),
        (
            "cool-down of a SmartNIC after a decision",
            format!("{} s", OrchestratorSettings::default().node_cooldown_s),
        ),
    ];
    outcome
        .parameters
        .extend(parameters.map(|(name, value)| (name.to_string(), value)));
    let gains: Vec<Headline> = pairs
        .iter()
        .filter(|pair| pair.gain.is_some())
        .map(|pair| (format!("{}, {:.0}/s", pair.app, pair.rate_rps), pair.gain))
        .collect();
    outcome.tables.push(table(&pairs));
    outcome.tables.push(headlines(
        "Requests/s with the orchestrator over without",
        2,
        &gains,
    ));
    outcome.plots.push(plot(&pairs));
    outcome.plots.push(gain_plot(&gains));
    outcome.comparisons.extend(comparison(&pairs));
    outcome.notes = vec![
        "A run that ends with more and more requests in flight is saturated: its latencies depend on how long it lasts, \
         and there are none if no request was answered that had arrived in what is measured."
            .into(),
        "In this model the time of a handler does not grow with the load of its node, so the orchestrator sees host \
         starvation, not microservice overload."
            .into(),
        "The orchestrator decides once in 15 s about a SmartNIC, so an overload that needs many moves lasts for minutes. A run \
         that has too many messages in flight for the simulator breaks off; its last quarter is then shorter."
            .into(),
        format!("{RANGE_NOTE} Here only overloads of at most {RANGED_RPS_MAX} requests/s have ranges."),
    ];
    let all = pairs.iter().flat_map(|pair| [pair.off, pair.on]);
    outcome.notes.extend(assumed(all));
    Ok(outcome)
}

fn seconds(time: Nanos) -> String {
    format!("{} s", time.0 / 1_000_000_000)
}

fn duration(world: &World<'_>, rate_rps: f64) -> Nanos {
    match (world.quick, rate_rps > RANGED_RPS_MAX) {
        (true, _) => DURATION_QUICK,
        (false, true) => DURATION_SHORT,
        (false, false) => DURATION,
    }
}

impl Job<'_> {
    fn run(&self, world: &World<'_>) -> Result<Report, EvaluationError> {
        let settings = OrchestratorSettings {
            mode: self.mode,
            ..OrchestratorSettings::default()
        };
        world.orchestrate(
            &self.case,
            self.placement,
            self.rate_rps,
            self.duration,
            settings,
        )
    }
}

/// Requests answered with the orchestrator over those without, from the reports off and on for each of [`ENDS`].
fn gain_of(reports: &[Report]) -> Option<Estimate> {
    let gains = reports
        .chunks_exact(MODES.len())
        .map(|pair| gain(&pair[0], &pair[1]));
    let gains: Vec<f64> = gains.collect();
    let gains = <[f64; ENDS.len()]>::try_from(gains).ok()?;
    Some(Ranged::of(gains).figure(|v| *v))
}

fn gain(off: &Report, on: &Report) -> f64 {
    on.achieved_rps / off.achieved_rps
}

/// The gain of an application at a rate, from one pair of short runs: for the experiment `sensitivity`.
pub(crate) fn gain_once(
    world: &World<'_>,
    case: &Case<'_>,
    rate_rps: f64,
) -> Result<f64, EvaluationError> {
    let placement = world.place(case)?;
    let run = |mode| {
        let job = Job {
            case: case.clone(),
            placement: &placement,
            rate_rps,
            mode,
            duration: DURATION_QUICK,
        };
        job.run(world)
    };
    Ok(gain(&run(MODES[0])?, &run(MODES[1])?))
}

fn table(pairs: &[Pair<'_>]) -> Table {
    let row = |pair: &Pair<'_>, mode: &str, report: &Report| -> Vec<Cell> {
        let saturated = if report.saturated { "yes" } else { "no" };
        vec![
            pair.app.into(),
            pair.rate_rps.into(),
            mode.into(),
            report.achieved_rps.into(),
            report.latency_us_avg().into(),
            report.latency_us_p99().into(),
            report.requests_per_joule.into(),
            (report.disruption.moves as f64).into(),
            saturated.into(),
        ]
    };
    let rows = pairs
        .iter()
        .flat_map(|pair| [row(pair, "off", pair.off), row(pair, "on", pair.on)]);
    Table {
        title: "In the last quarter of each run".into(),
        columns: vec![
            Column::given("application"),
            Column::modelled("offered requests/s", 0),
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
    let bars = |name: &str, of: fn(&Pair<'_>) -> f64| {
        Bars::plain(name, pairs.iter().map(|pair| Some(of(pair))).collect())
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

fn gain_plot(gains: &[Headline]) -> Plot {
    let words = gains.iter().filter_map(|(of, gain)| {
        let gain = gain.as_ref()?;
        Some(format!(
            "{of}: {:.2}, from {:.2} to {:.2}",
            gain.value, gain.low, gain.high
        ))
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: "Gain by the orchestrator".into(),
        alt: format!(
            "Bars: requests answered with the orchestrator over those without, with their range. {}.",
            words.join("; ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("requests/s, on over off"),
            groups: gains.iter().map(|(of, _)| of.clone()).collect(),
            bars: vec![Bars::ranged(
                "on over off",
                &gains.iter().map(|g| g.1).collect::<Vec<_>>(),
            )],
        },
    }
}

fn comparison(pairs: &[Pair<'_>]) -> Option<Comparison> {
    let of = |pair: &Pair<'_>| gain(pair.off, pair.on);
    let most = pairs.iter().max_by(|a, b| of(a).total_cmp(&of(b)))?;
    let words = match &most.gain {
        Some(gain) => times_range(gain),
        None => times(of(most)),
    };
    Some(Comparison {
        what: "Highest gain in requests/s by the orchestrator".into(),
        paper: "our reference states no figure for section 5.2".into(),
        ours: format!("{} at {:.0} requests/s: {words}", most.app, most.rate_rps),
        why: "The orchestrator moves one shard at a time. A shard that moves is answered by the other cores of its server; \
              what waited meanwhile is answered late."
            .into(),
    })
}
