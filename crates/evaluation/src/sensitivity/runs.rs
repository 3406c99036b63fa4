//! The runs: each headline needs some curves, and one a pair of runs with the orchestrator off and on.

use super::parameters::Parameter;
use crate::clusters::{self, CLUSTERS};
use crate::words::assumed;
use crate::world::{Case, EvaluationError, Subject, World, map};
use crate::{orchestrator, placement, power};
use e3_perfsim::{Effort, Report, Sweep};

/// Applications whose runs with the orchestrator are short enough to be repeated for each parameter.
const APPS_ORCHESTRATED: [&str; 2] = ["rta-shm", "iot-ts"];

/// The curves of an application: without and with SmartNICs, by hcm and by joules, and the five clusters.
const BEEFY: usize = 0;
const TYPE1: usize = 1;
const HCM: usize = 2;
const JOULES: usize = 3;
const FIVE: usize = 4;
const CURVES: usize = FIVE + CLUSTERS.len();

const PLACER: &str = "joules";

/// Names of the headlines, and what they are.
pub(super) const HEADLINES: [(&str, &str); 8] = [
    ("requests/J", "3x-type1 over 3x-beefy at the knee"),
    ("requests/s", "3x-type1 over 3x-beefy at the knee"),
    ("mean latency", "3x-type1 over 3x-beefy at the knee"),
    ("p99 latency", "3x-type1 over 3x-beefy at the knee"),
    (
        "requests/$",
        "2x-type2 over the best of the other four clusters after 5 years",
    ),
    ("requests/J by placer", "joules over hcm on 3x-type1"),
    (
        "requests/s by orchestrator",
        "on over off on 3x-type1 after nicfirst",
    ),
    (
        "proportionality",
        "power at a tenth of the highest rate over power at the knee on 3x-type1",
    ),
];

/// The headlines of one setting, in the order of [`HEADLINES`]; None where there is none.
pub(super) type Headlines = [Option<f64>; HEADLINES.len()];

/// What the headlines of an application are as predicted, and with each parameter at both ends.
pub(super) struct Effects<'a> {
    pub(super) app: &'a str,
    /// What the simulator assumed beyond the profiles.
    pub(super) assumed: Option<String>,
    pub(super) usual: Headlines,
    pub(super) ends: Vec<[Headlines; 2]>,
}

/// The results of one setting.
#[derive(Clone)]
struct Results {
    curves: Vec<Option<Sweep>>,
    orchestrated: Option<f64>,
}

/// Requests of a run: fewer than in the other experiments, since there are many.
pub(super) fn effort(world: &World<'_>) -> Effort {
    if world.quick {
        return world.effort();
    }
    Effort {
        search: 4_000.0,
        point: 15_000.0,
    }
}

/// All effects on an application.
pub(super) fn effects<'a>(
    world: &World<'_>,
    subject: &'a Subject,
    parameters: &[Parameter],
) -> Result<Effects<'a>, EvaluationError> {
    let pinned = placement::pinned(subject);
    let fitted: Result<Vec<_>, EvaluationError> = CLUSTERS
        .iter()
        .map(|(name, _)| {
            let topology = world.cluster(name)?;
            Ok((clusters::fit(subject, topology), topology))
        })
        .collect();
    let fitted = fitted?;
    let type1 = world.cluster("3x-type1")?;
    let mut cases = vec![
        world.case(subject, world.cluster("3x-beefy")?, PLACER),
        world.case(subject, type1, PLACER),
        world.case(&pinned, type1, "hcm"),
        world.case(&pinned, type1, PLACER),
    ];
    cases.extend(fitted.iter().map(|(s, t)| world.case(s, t, PLACER)));
    let nicfirst = world.case(subject, type1, "nicfirst");
    let curves = map(world.pool, &cases, |case| curve(world, case));
    let curves: Vec<Option<Sweep>> = curves.into_iter().collect::<Result<_, _>>()?;
    let overload_rps = |s: Sweep| s.saturates_rps * orchestrator::PART_OVERLOADED;
    let rate_rps = if is_orchestrated(world, subject) {
        curve(world, &nicfirst)?.map(overload_rps)
    } else {
        None
    };
    let gain = |case: &Case<'_>| {
        let rate_rps = rate_rps.expect("only where there is one");
        orchestrator::gain_once(world, case, rate_rps)
    };
    let usual = Results {
        orchestrated: rate_rps.map(|_| gain(&nicfirst)).transpose()?,
        curves,
    };
    // The longest first, so that no core waits for them at the end.
    let mut jobs = Vec::new();
    for (at, parameter) in parameters.iter().enumerate() {
        let is_run = !world.quick || parameter.is_of_moves();
        if rate_rps.is_some() && is_run && parameter.matters(&nicfirst, true) {
            jobs.extend([0, 1].map(|end| (at, end, None)));
        }
    }
    for (at, parameter) in parameters.iter().enumerate() {
        for (curve, case) in cases.iter().enumerate() {
            if parameter.matters(case, false) {
                jobs.extend([0, 1].map(|end| (at, end, Some(curve))));
            }
        }
    }
    let found = map(world.pool, &jobs, |(at, end, curve)| {
        let change = parameters[*at].ends[*end];
        match curve {
            Some(curve) => self::curve(world, &change.of(&cases[*curve]))
                .map(|sweep| Found::Curve(sweep.map(Box::new))),
            None => gain(&change.of(&nicfirst)).map(Found::Gain),
        }
    });
    let mut ends = vec![[usual.clone(), usual.clone()]; parameters.len()];
    for (parameter, ends) in parameters.iter().zip(&mut ends) {
        if parameter.matters(&nicfirst, true) {
            // Of the run with the change, or not known.
            ends.iter_mut().for_each(|end| end.orchestrated = None);
        }
    }
    for ((at, end, curve), found) in jobs.iter().zip(found) {
        let results = &mut ends[*at][*end];
        match (found?, curve) {
            (Found::Curve(sweep), Some(curve)) => {
                results.curves[*curve] = sweep.map(|sweep| *sweep)
            }
            (Found::Gain(gain), _) => results.orchestrated = Some(gain),
            (Found::Curve(_), None) => {}
        }
    }
    let knees = usual.curves.iter().flatten().map(|s| &s.knee);
    Ok(Effects {
        app: &subject.app.name,
        assumed: assumed(knees),
        usual: headlines(&usual),
        ends: ends
            .iter()
            .map(|[low, high]| [headlines(low), headlines(high)])
            .collect(),
    })
}

/// What came of the runs with one parameter at one end of its range.
enum Found {
    /// Latency by load; none if the application cannot be placed.
    Curve(Option<Box<Sweep>>),
    /// Of the orchestrator.
    Gain(f64),
}

/// The curve of a case; None if it cannot be placed.
fn curve(world: &World<'_>, case: &Case<'_>) -> Result<Option<Sweep>, EvaluationError> {
    match world.sweep_within(case, effort(world)) {
        Ok(sweep) => Ok(Some(sweep)),
        Err(EvaluationError::Place { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

fn headlines(results: &Results) -> Headlines {
    let knee = |at: usize| results.curves[at].as_ref().map(|s| &s.knee);
    let ratio = |over: usize, under: usize, of: fn(&Report) -> f64| {
        Some(of(knee(over)?) / of(knee(under)?))
    };
    let five: Vec<Option<&Report>> = (FIVE..CURVES).map(knee).collect();
    [
        ratio(TYPE1, BEEFY, |r| r.requests_per_joule),
        ratio(TYPE1, BEEFY, |r| r.achieved_rps),
        ratio(TYPE1, BEEFY, |r| r.latency_us_avg()),
        ratio(TYPE1, BEEFY, |r| r.latency_us_p99()),
        clusters::against_best(&five),
        ratio(JOULES, HCM, |r| r.requests_per_joule),
        results.orchestrated,
        results.curves[TYPE1].as_ref().map(power::proportionality),
    ]
}

/// Whether an application has runs with the orchestrator.
fn is_orchestrated(world: &World<'_>, subject: &Subject) -> bool {
    world.named || APPS_ORCHESTRATED.contains(&subject.app.name.as_str())
}
