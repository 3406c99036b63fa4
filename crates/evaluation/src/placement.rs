//! The placers, judged by the simulator (section 5.4).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Drawing, Outcome, Plot, Table};
use crate::range::{Headline, RANGE_NOTE, Ranged, headlines};
use crate::words::assumed;
use crate::world::{Case, EvaluationError, Subject, World};
use e3_hardware::Estimate;
use e3_model::NodeKind;
use e3_model::application::Pin;
use e3_perfsim::Sweep;
use e3_power::paper::{Peak, table1};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "placement",
    title: "Placement algorithms, judged by the simulator",
    section: "5.4",
    about: "Each application on three Type1-SmartNIC servers as each algorithm places it, without an orchestrator. As in \
            the paper, the services that cost more energy on a SmartNIC by Table 1 are pinned to hosts.",
    run,
};

pub(crate) const CLUSTER: &str = "3x-type1";
const PLACERS: [&str; 5] = ["hcm", "hcm-kind", "annealing", "ilp", "joules"];

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let subjects: Vec<Subject> = world.subjects.iter().map(pinned).collect();
    let mut cases = Vec::new();
    for subject in &subjects {
        for placer in PLACERS {
            cases.push(world.case(subject, world.cluster(CLUSTER)?, placer));
        }
    }
    let mut notes = vec![
        "The reference that this is compared with states no figure for this experiment.".into(),
        "ilp is a program of another project with a time limit; where it runs out of time, its result may differ from \
         run to run. joules and ilp know the energy of each service, hcm and annealing do not."
            .into(),
        RANGE_NOTE.into(),
    ];
    let mut found = Vec::new();
    for (case, result) in cases.iter().zip(world.ranged(&cases)) {
        match result {
            Ok(sweep) => found.push(Some(sweep)),
            // One placer that fails here is a result; what cannot be simulated is the user's mistake.
            Err(e @ EvaluationError::Place { .. }) => {
                notes.push(format!("No value for {}: {e}.", case.placer));
                found.push(None);
            }
            Err(e) => return Err(e),
        }
    }
    notes.extend(assumed(found.iter().flatten().map(|s| &s.usual.knee)));
    Ok(Outcome {
        parameters: world.parameters(),
        tables: vec![
            table(&cases, &found),
            means(&found),
            headlines(
                "Requests/J against hcm, geometric mean over the applications",
                2,
                &gains(&found),
            ),
        ],
        plots: vec![
            plot(
                &subjects,
                &found,
                "Requests per joule at the knee",
                Axis::linear("requests/J"),
                |s| s.knee.requests_per_joule,
            ),
            plot(
                &subjects,
                &found,
                "Mean latency at the knee",
                Axis::log("mean latency (us)"),
                |s| s.knee.latency_us_avg(),
            ),
        ],
        notes,
        ..EXPERIMENT.outcome()
    })
}

/// The application with its problem services pinned to hosts.
pub(crate) fn pinned(subject: &Subject) -> Subject {
    let efficiency = |peak: &Peak| peak.rate_rps / peak.active_w;
    let rows = table1();
    let problem = |profile: &str| {
        let mut rows = rows.iter();
        rows.any(|r| r.service == profile && efficiency(&r.smartnic) < efficiency(&r.host))
    };
    let mut subject = subject.clone();
    for service in &mut subject.app.spec.services {
        if service.pin.is_none() && problem(service.profile()) {
            service.pin = Some(Pin::Kind(NodeKind::Host));
        }
    }
    subject
}

fn table(cases: &[Case<'_>], found: &[Option<Ranged<Sweep>>]) -> Table {
    let row = |(case, sweep): (&Case<'_>, &Option<Ranged<Sweep>>)| {
        let knee = sweep.as_ref().map(|s| &s.usual.knee);
        vec![
            case.subject.app.name.as_str().into(),
            case.placer.into(),
            knee.map(|k| k.achieved_rps).into(),
            knee.map(|k| k.requests_per_joule).into(),
            knee.map(|k| k.latency_us_avg()).into(),
            knee.map(|k| k.latency_us_p99()).into(),
            knee.map_or(Cell::None, |k| k.bottleneck.what.words().into()),
        ]
    };
    Table {
        title: "At the knee on 3x-type1".into(),
        columns: vec![
            Column::given("application"),
            Column::given("placer"),
            Column::modelled("requests/s", 0),
            Column::modelled("requests/J", 1),
            Column::modelled("mean latency us", 1),
            Column::modelled("p99 latency us", 1),
            Column::given("most used"),
        ],
        rows: cases.iter().zip(found).map(row).collect(),
    }
}

/// Geometric mean of a figure of a placer against that of hcm, over the applications for which both have one.
fn against_hcm(
    found: &[Option<Ranged<Sweep>>],
    at: usize,
    of: impl Fn(&Ranged<Sweep>) -> f64,
) -> Option<f64> {
    let pairs = found.chunks(PLACERS.len());
    let ratios = pairs.filter_map(|c| Some(of(c[at].as_ref()?) / of(c[0].as_ref()?)));
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Requests per joule of each placer against hcm.
fn gains(found: &[Option<Ranged<Sweep>>]) -> Vec<Headline> {
    let gain = |at: usize| {
        let of = |end: fn(&Ranged<Sweep>) -> &Sweep| {
            against_hcm(found, at, |r| end(r).knee.requests_per_joule)
        };
        let ends = [of(|r| &r.usual)?, of(|r| &r.fewest)?, of(|r| &r.most)?];
        Some(Ranged::of(ends).figure(|v| *v))
    };
    let of_placer = |at: usize| (PLACERS[at].to_string(), gain(at));
    (1..PLACERS.len()).map(of_placer).collect()
}

fn means(found: &[Option<Ranged<Sweep>>]) -> Table {
    let row = |at: usize| -> Vec<Cell> {
        let mean = |of: fn(&Sweep) -> f64| against_hcm(found, at, |r| of(&r.usual));
        vec![
            PLACERS[at].into(),
            mean(|s| s.knee.requests_per_joule).into(),
            mean(|s| s.knee.achieved_rps).into(),
            mean(|s| s.knee.latency_us_avg()).into(),
            mean(|s| s.knee.latency_us_p99()).into(),
        ]
    };
    Table {
        title: "Against hcm, geometric mean over the applications".into(),
        columns: vec![
            Column::given("placer"),
            Column::modelled("requests/J", 2),
            Column::modelled("requests/s", 2),
            Column::modelled("mean latency", 2),
            Column::modelled("p99 latency", 2),
        ],
        rows: (0..PLACERS.len()).map(row).collect(),
    }
}

fn plot(
    subjects: &[Subject],
    found: &[Option<Ranged<Sweep>>],
    title: &str,
    x: Axis,
    of: fn(&Sweep) -> f64,
) -> Plot {
    let values = |at: usize| -> Vec<Option<Estimate>> {
        let own = found.iter().skip(at).step_by(PLACERS.len());
        own.map(|s| Some(s.as_ref()?.figure(of))).collect()
    };
    let words = |at: usize| {
        let values = subjects.iter().zip(values(at));
        let values = values.map(|(s, v)| match v {
            Some(v) => format!("{} {:.0}", s.app.name, v.value),
            None => format!("{} none", s.app.name),
        });
        format!("{}: {}", PLACERS[at], values.collect::<Vec<_>>().join(", "))
    };
    let all: Vec<String> = (0..PLACERS.len()).map(words).collect();
    let bars = (0..PLACERS.len()).map(|at| Bars::ranged(PLACERS[at], &values(at)));
    Plot {
        title: format!("{title}, by placer"),
        alt: format!("Bars: {}, by placer. {}.", x.label, all.join("; ")),
        drawing: Drawing::Bars {
            x,
            groups: subjects.iter().map(|s| s.app.name.clone()).collect(),
            bars: bars.collect(),
        },
    }
}
