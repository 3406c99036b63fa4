//! Five clusters of equal network bandwidth: requests per joule and per dollar (section 5.5).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
use crate::words::times;
use crate::world::{Case, EvaluationError, SHARDS_NOTE, Subject, World, map};
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
const CLUSTERS: [(&str, &str); 5] = [
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
    let mut knees = Vec::new();
    for result in map(world.pool, &cases, |c| world.sweep(c)) {
        match result {
            Ok(Sweep { knee, .. }) => knees.push(Some(knee)),
            Err(e @ EvaluationError::Place { .. }) => {
                notes.push(format!("No value: {e}."));
                knees.push(None);
            }
            Err(e) => return Err(e),
        }
    }
    let mut plots = vec![joules_plot(&subjects, &knees)];
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
        tables: vec![table(&cases, &knees)],
        plots,
        comparisons: comparisons(&subjects, &knees),
        notes,
        ..EXPERIMENT.outcome()
    })
}

/// The application with no more replicas than the cluster has servers.
fn fit(subject: &Subject, topology: &Topology) -> Subject {
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
fn at_knee(knee: &Report, cluster: usize, years: u32) -> f64 {
    per_dollar(
        knee.achieved_rps,
        knee.watts_total,
        capex_usd(cluster),
        years,
    )
}

fn table(cases: &[Case<'_>], knees: &[Option<Report>]) -> Table {
    let row = |(at, (case, knee)): (usize, (&Case<'_>, &Option<Report>))| {
        let cluster = at % CLUSTERS.len();
        let of = |value: fn(&Report) -> f64| knee.as_ref().map(value);
        let mut cells = vec![
            case.subject.app.name.as_str().into(),
            case.topology.name.as_str().into(),
            capex_usd(cluster).into(),
            of(|k| k.achieved_rps).into(),
            of(|k| k.watts_total).into(),
            of(|k| k.requests_per_joule).into(),
            knee.as_ref()
                .map_or(Cell::None, |k| k.bottleneck.what.words().into()),
        ];
        cells.extend(YEARS.map(|years| {
            let millions = knee.as_ref().map(|k| at_knee(k, cluster, years) / 1e6);
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

fn joules_plot(subjects: &[&Subject], knees: &[Option<Report>]) -> Plot {
    let values = |at: usize| {
        let own = knees.iter().skip(at).step_by(CLUSTERS.len());
        own.map(|k| k.as_ref().map(|k| k.requests_per_joule))
            .collect()
    };
    let bars: Vec<Bars> = (0..CLUSTERS.len())
        .map(|at| Bars {
            name: CLUSTERS[at].0.into(),
            values: values(at),
        })
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

fn cost_plot(app: &str, knees: &[Option<Report>]) -> Plot {
    let lines = knees.iter().enumerate().filter_map(|(at, knee)| {
        let knee = knee.as_ref()?;
        let points = YEARS.map(|y| (f64::from(y), at_knee(knee, at, y) / 1e6));
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

fn comparisons(subjects: &[&Subject], knees: &[Option<Report>]) -> Vec<Comparison> {
    // Against each other cluster, over applications and years.
    let mut ratios: Vec<(f64, String)> = Vec::new();
    for (subject, knees) in subjects.iter().zip(knees.chunks(CLUSTERS.len())) {
        let Some(own) = &knees[SMARTNICS] else {
            continue;
        };
        for (at, other) in knees.iter().enumerate().filter(|(at, _)| *at != SMARTNICS) {
            let Some(other) = other else { continue };
            for years in YEARS {
                let ratio = at_knee(own, SMARTNICS, years) / at_knee(other, at, years);
                let case = format!("{}, {}, {years} years", subject.app.name, CLUSTERS[at].0);
                ratios.push((ratio, case));
            }
        }
    }
    let most = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let least = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(most), Some(least)) = (most, least) else {
        return Vec::new();
    };
    vec![Comparison {
        what: "Cost efficiency of 2x-type2 against the other clusters".into(),
        paper: "up to 1.9 times".into(),
        ours: format!(
            "highest {} ({}), lowest {} ({})",
            times(most.0),
            most.1,
            times(least.0),
            least.1
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
