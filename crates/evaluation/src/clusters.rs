//! Five clusters of equal network bandwidth: requests per joule and per dollar (section 5.5).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
use crate::range::{Headline, RANGE_NOTE, Ranged, at_knee, headlines};
use crate::words::{assumed, times_range};
use crate::world::{Case, EvaluationError, SHARDS_NOTE, Subject, World};
use e3_hardware::Estimate;
use e3_model::Topology;
use e3_perfsim::{Report, Sweep};
use e3_power::paper::table4;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "clusters",
    title: "Five clusters: requests per joule and per dollar",
    section: "5.5",
    about: "The five clusters of Table 4, with 80 Gb/s each. Cost efficiency is throughput * T / (CAPEX + power * T * \
            electricity) over T years of ownership at the knee.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
/// Cluster, and its row in Table 4.
pub(crate) const CLUSTERS: [(&str, &str); 5] = [
    ("4x-beefy", "4xBeefy"),
    ("4x-wimpy", "4xWimpy"),
    ("2x-beefy-2x-wimpy", "2xBeefy+2xWimpy"),
    ("2x-type2", "2xType2-SmartNIC"),
    ("1x-superbeefy", "1xSuperBeefy"),
];
/// That with SmartNICs.
const SMARTNICS: usize = 3;
const PLACER: &str = "joules";
const DOLLARS_PER_KWH: f64 = 0.0733;
const HOURS_PER_YEAR: f64 = 8766.0;
const YEARS: [u32; 5] = [1, 2, 3, 4, 5];
const YEARS_MOST: u32 = 5;
const BEST: &str =
    "Requests per dollar of 2x-type2 over those of the best other cluster, after 5 years";

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let subjects = world.among(&APPS);
    let mut fitted = Vec::new();
    for subject in &subjects {
        for (cluster, _) in CLUSTERS {
            let topology = world.cluster(cluster)?;
            fitted.push((fit(subject, topology), topology));
        }
    }
    let cases: Vec<Case<'_>> = fitted
        .iter()
        .map(|(s, t)| world.case(s, t, PLACER))
        .collect();
    let mut notes = vec![
        "One server is one fault domain, so on 1x-superbeefy every shard has a single replica, where the other clusters \
         have the manifest's. This favours 1x-superbeefy."
            .into(),
        "CAPEX is that of Table 4, power and throughput are those of the knee all year round; people, space, cooling and \
         failures cost nothing."
            .into(),
    ];
    notes.push(SHARDS_NOTE.into());
    notes.push(RANGE_NOTE.into());
    let mut knees = Vec::new();
    for result in world.ranged(&cases) {
        match result {
            Ok(sweep) => knees.push(Some(sweep)),
            Err(e @ EvaluationError::Place { .. }) => {
                notes.push(format!("No value: {e}."));
                knees.push(None);
            }
            Err(e) => return Err(e),
        }
    }
    notes.extend(assumed(knees.iter().flatten().map(|s| &s.usual.knee)));
    let best: Vec<Headline> = subjects
        .iter()
        .zip(knees.chunks(CLUSTERS.len()))
        .map(|(subject, knees)| (subject.app.name.clone(), ranged_against_best(knees)))
        .collect();
    let mut plots = vec![joules_plot(&subjects, &knees), best_plot(&best)];
    for (subject, knees) in subjects.iter().zip(knees.chunks(CLUSTERS.len())) {
        plots.push(cost_plot(&subject.app.name, knees));
    }
    let mut parameters = world.parameters();
    parameters.push(("placer".into(), PLACER.into()));
    parameters.push((
        "electricity".into(),
        format!("${DOLLARS_PER_KWH}/kWh (section 5.5)"),
    ));
    parameters.push(("hours of a year".into(), HOURS_PER_YEAR.to_string()));
    Ok(Outcome {
        parameters,
        tables: vec![table(&cases, &knees), headlines(BEST, 2, &best)],
        plots,
        comparisons: comparisons(&subjects, &knees),
        notes,
        ..EXPERIMENT.outcome()
    })
}

/// The application with no more replicas than the cluster has servers.
pub(crate) fn fit(subject: &Subject, topology: &Topology) -> Subject {
    let servers: usize = topology.spec.racks.iter().map(|r| r.servers.len()).sum();
    let mut subject = subject.clone();
    for service in &mut subject.app.spec.services {
        service.replicas = service.replicas.min(servers as u16);
    }
    subject
}

fn capex_usd(cluster: usize) -> f64 {
    let rows = table4();
    let row = rows.iter().find(|r| r.system == CLUSTERS[cluster].1);
    row.map_or(f64::NAN, |r| r.cost_usd)
}

/// Requests for a dollar over so many years of ownership.
fn per_dollar(rate_rps: f64, watts: f64, capex_usd: f64, years: u32) -> f64 {
    let hours = HOURS_PER_YEAR * f64::from(years);
    let electricity_usd = watts / 1e3 * hours * DOLLARS_PER_KWH;
    rate_rps * hours * 3600.0 / (capex_usd + electricity_usd)
}

/// The same of a cluster at its knee.
fn at_knee_usd(knee: &Report, cluster: usize, years: u32) -> f64 {
    per_dollar(
        knee.achieved_rps,
        knee.watts_total,
        capex_usd(cluster),
        years,
    )
}

/// Requests per dollar with SmartNICs over those of the best other cluster; the clusters in the order of
/// [`CLUSTERS`].
pub(crate) fn against_best(knees: &[Option<&Report>]) -> Option<f64> {
    let of = |at: usize| Some(at_knee_usd(knees[at]?, at, YEARS_MOST));
    let others = (0..knees.len()).filter(|at| *at != SMARTNICS);
    let best = others.filter_map(of).reduce(f64::max);
    Some(of(SMARTNICS)? / best?)
}

/// The same with its range.
fn ranged_against_best(knees: &[Option<Ranged<Sweep>>]) -> Option<Estimate> {
    let of = |end: fn(&Ranged<Sweep>) -> &Sweep| {
        let knees = knees.iter().map(|k| k.as_ref().map(|k| &end(k).knee));
        against_best(&knees.collect::<Vec<_>>())
    };
    let ends = [of(|r| &r.usual)?, of(|r| &r.fewest)?, of(|r| &r.most)?];
    Some(Ranged::of(ends).figure(|v| *v))
}

fn table(cases: &[Case<'_>], knees: &[Option<Ranged<Sweep>>]) -> Table {
    let row = |(at, (case, ranged)): (usize, (&Case<'_>, &Option<Ranged<Sweep>>))| {
        let cluster = at % CLUSTERS.len();
        let knee = ranged.as_ref().map(|r| &r.usual.knee);
        let of = |value: fn(&Report) -> f64| knee.map(value);
        let joules = ranged
            .as_ref()
            .map(|r| at_knee(r, |k| k.requests_per_joule));
        let mut cells = vec![
            case.subject.app.name.as_str().into(),
            case.topology.name.as_str().into(),
            capex_usd(cluster).into(),
            of(|k| k.achieved_rps).into(),
            of(|k| k.watts_total).into(),
            of(|k| k.requests_per_joule).into(),
            joules.map(|j| j.low).into(),
            joules.map(|j| j.high).into(),
            knee.map_or(Cell::None, |k| k.bottleneck.what.words().into()),
        ];
        cells.extend(YEARS.map(|years| {
            let millions = knee.map(|k| at_knee_usd(k, cluster, years) / 1e6);
            millions.into()
        }));
        cells
    };
    let mut columns = vec![
        Column::given("application"),
        Column::given("cluster"),
        Column::modelled("CAPEX $", 0).from(e3_model::profile::Provenance::Paper),
        Column::modelled("requests/s", 0),
        Column::modelled("W", 0),
        Column::modelled("requests/J", 1),
        Column::modelled("lowest", 1),
        Column::modelled("highest", 1),
        Column::given("most used"),
    ];
    let name = |years| format!("million requests/$, {years} y");
    columns.extend(YEARS.map(|years| Column::modelled(&name(years), 1)));
    Table {
        title: "At the knee".into(),
        columns,
        rows: cases.iter().zip(knees).enumerate().map(row).collect(),
    }
}

fn joules_plot(subjects: &[&Subject], knees: &[Option<Ranged<Sweep>>]) -> Plot {
    let values = |at: usize| -> Vec<Option<Estimate>> {
        let own = knees.iter().skip(at).step_by(CLUSTERS.len());
        own.map(|k| Some(at_knee(k.as_ref()?, |k| k.requests_per_joule)))
            .collect()
    };
    let bars: Vec<Bars> = (0..CLUSTERS.len())
        .map(|at| Bars::ranged(CLUSTERS[at].0, &values(at)))
        .collect();
    let words = bars.iter().map(|b| {
        let values = subjects.iter().zip(&b.values);
        let values = values.map(|(s, v)| match v {
            Some(v) => format!("{} {v:.0}", s.app.name),
            None => format!("{} none", s.app.name),
        });
        format!("{}: {}", b.name, values.collect::<Vec<_>>().join(", "))
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: "Requests per joule at the knee, by cluster".into(),
        alt: format!("Bars: requests per joule by cluster. {}.", words.join("; ")),
        drawing: Drawing::Bars {
            x: Axis::linear("requests/J"),
            groups: subjects.iter().map(|s| s.app.name.clone()).collect(),
            bars,
        },
    }
}

fn best_plot(best: &[Headline]) -> Plot {
    let words = best.iter().map(|(app, v)| match v {
        Some(v) => format!("{app} {:.2}, from {:.2} to {:.2}", v.value, v.low, v.high),
        None => format!("{app} none"),
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: "Requests per dollar, 2x-type2 over the best other".into(),
        alt: format!("Bars: {BEST}: {}.", words.join("; ")),
        drawing: Drawing::Bars {
            x: Axis::linear("requests/$, 2x-type2 over the best other cluster"),
            groups: best.iter().map(|(app, _)| app.clone()).collect(),
            bars: vec![Bars::ranged(
                "2x-type2",
                &best.iter().map(|(_, v)| *v).collect::<Vec<_>>(),
            )],
        },
    }
}

fn cost_plot(app: &str, knees: &[Option<Ranged<Sweep>>]) -> Plot {
    let lines = knees.iter().enumerate().filter_map(|(at, knee)| {
        let knee = &knee.as_ref()?.usual.knee;
        let points = YEARS.map(|y| (f64::from(y), at_knee_usd(knee, at, y) / 1e6));
        Some(Line {
            name: CLUSTERS[at].0.into(),
            points: points.into(),
        })
    });
    let lines: Vec<Line> = lines.collect();
    let words = lines.iter().map(|l| {
        let last = l.points.last().map_or(0.0, |p| p.1);
        format!("{} {last:.0}", l.name)
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: format!("Cost efficiency of {app}"),
        alt: format!(
            "Lines: million requests per dollar of {app} over years of ownership. After five years: {}.",
            words.join("; ")
        ),
        drawing: Drawing::Lines {
            x: Axis::linear("years of ownership"),
            y: Axis::linear("million requests/$"),
            lines,
        },
    }
}

fn comparisons(subjects: &[&Subject], knees: &[Option<Ranged<Sweep>>]) -> Vec<Comparison> {
    // Against each other cluster, over applications and years.
    let mut ratios: Vec<(Estimate, String)> = Vec::new();
    for (subject, knees) in subjects.iter().zip(knees.chunks(CLUSTERS.len())) {
        let Some(own) = &knees[SMARTNICS] else {
            continue;
        };
        for (at, other) in knees.iter().enumerate().filter(|(at, _)| *at != SMARTNICS) {
            let Some(other) = other else { continue };
            for years in YEARS {
                let ratio = own.figure_of(other, |own, other| {
                    at_knee_usd(&own.knee, SMARTNICS, years) / at_knee_usd(&other.knee, at, years)
                });
                let case = format!("{}, {}, {years} years", subject.app.name, CLUSTERS[at].0);
                ratios.push((ratio, case));
            }
        }
    }
    let most = ratios.iter().max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let least = ratios.iter().min_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let (Some(most), Some(least)) = (most, least) else {
        return Vec::new();
    };
    vec![Comparison {
        what: "Cost efficiency of 2x-type2 against the other clusters".into(),
        paper: "up to 1.9 times".into(),
        ours: format!(
            "highest {}: {}, lowest {}: {}",
            most.1,
            times_range(&most.0),
            least.1,
            times_range(&least.0)
        ),
        why: "The reference does not say for which application, cluster and year it holds. Ours is by modelled throughput, \
              in which each service runs as fast as alone in Table 1, and 1x-superbeefy has no replicas here."
            .into(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_buys_what_the_formula_of_section_5_5_says() {
        // 1000 W for a year are 8766 kWh, which cost $642.55.
        let requests = per_dollar(1.0, 1_000.0, 1_000.0, 1);
        let expected = 8_766.0 * 3_600.0 / (1_000.0 + 8_766.0 * 0.0733);
        assert!((requests / expected - 1.0).abs() < 1e-12);
        assert!((requests - 19_212.4).abs() < 1.0, "{requests}");
    }

    #[test]
    fn each_cluster_has_a_price() {
        let prices = [0, 1, 2, 3, 4].map(capex_usd);
        assert_eq!(prices, [18_000.0, 8_836.0, 13_018.0, 13_500.0, 12_550.0]);
    }
}
