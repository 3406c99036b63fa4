//! Requests per joule and latency of the applications with and without SmartNICs (section 5.1).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Cell, Column, Comparison, Drawing, Outcome, Plot, Table};
use crate::range::{Headline, RANGE_NOTE, Ranged, at_knee, headlines};
use crate::words::{assumed, percent, times_range};
use crate::world::{Case, EvaluationError, SHARDS_NOTE, World, map};
use e3_hardware::Estimate;
use e3_model::Nanos;
use e3_perfsim::{Report, Sweep};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "efficiency",
    title: "Requests per joule and latency, with and without SmartNICs",
    section: "5.1",
    about: "Each application on three Beefy servers and on three Type1-SmartNIC servers, at the knee of its curve of \
            latency against throughput: where throughput over mean latency is highest.",
    run,
};

const CLUSTERS: [&str; 2] = ["3x-beefy", "3x-type1"];
/// Places for joules with SmartNICs; without them all placers choose among hosts.
const PLACER: &str = "joules";

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let mut cases = Vec::new();
    for subject in &world.subjects {
        for cluster in CLUSTERS {
            cases.push(world.case(subject, world.cluster(cluster)?, PLACER));
        }
    }
    let sweeps = world.ranged_sweeps(&cases)?;
    let pairs: Vec<(&str, &Report, &Report)> = cases
        .chunks(2)
        .zip(sweeps.chunks(2))
        .map(|(case, pair)| {
            let app = case[0].subject.app.name.as_str();
            (app, &pair[0].usual.knee, &pair[1].usual.knee)
        })
        .collect();
    let equal = equal_rates(world, &cases, &pairs)?;
    let gains = over(&pairs, &sweeps, |r| r.requests_per_joule);
    let delays = over(&pairs, &sweeps, |r| r.latency_us_avg());
    let mut parameters = world.parameters();
    parameters.push(("placer".into(), PLACER.into()));
    let mut notes = vec![
            "Power is that of all servers of the cluster, idle power included.".into(),
            "The knee of the two clusters is at different rates; each latency is at the knee of its own cluster. At equal \
             rate, both clusters carry what is the knee of 3x-beefy."
                .into(),
            SHARDS_NOTE.into(),
            RANGE_NOTE.into(),
    ];
    notes.extend(assumed(sweeps.iter().map(|s| &s.usual.knee)));
    Ok(Outcome {
        parameters,
        tables: vec![
            table(&pairs),
            ratios(&pairs, &equal),
            headlines("Requests/J, with SmartNICs over without", 2, &gains),
            headlines(
                "Mean latency at the knee, with SmartNICs over without",
                2,
                &delays,
            ),
        ],
        plots: plots(&pairs, &sweeps),
        comparisons: comparisons(&pairs, &gains, &delays, &equal),
        notes,
        ..EXPERIMENT.outcome()
    })
}

type Pairs<'a> = [(&'a str, &'a Report, &'a Report)];

/// The cluster with SmartNICs at the rate of the other one's knee.
fn equal_rates(
    world: &World<'_>,
    cases: &[Case<'_>],
    pairs: &Pairs<'_>,
) -> Result<Vec<Report>, EvaluationError> {
    let with_smartnics = cases.iter().skip(1).step_by(CLUSTERS.len());
    let jobs: Vec<(&Case<'_>, f64)> = with_smartnics
        .zip(pairs)
        .map(|(case, (_, beefy, _))| (case, beefy.offered_rps))
        .collect();
    let reports = map(world.pool, &jobs, |(case, rate_rps)| {
        let placement = world.place(case)?;
        let duration = Nanos((world.effort().point / rate_rps * 1e9) as u64);
        world.simulate(case, &placement, *rate_rps, duration)
    });
    reports.into_iter().collect()
}

/// A figure of the knee with SmartNICs over that without, by application.
fn over(pairs: &Pairs<'_>, sweeps: &[Ranged<Sweep>], of: fn(&Report) -> f64) -> Vec<Headline> {
    let ratio = |without: &Sweep, with: &Sweep| of(&with.knee) / of(&without.knee);
    let of_apps = pairs.iter().zip(sweeps.chunks(CLUSTERS.len()));
    let headline =
        of_apps.map(|((app, ..), s)| (app.to_string(), Some(s[0].figure_of(&s[1], ratio))));
    headline.collect()
}

fn table(pairs: &Pairs<'_>) -> Table {
    let row = |app: &str, cluster: &str, knee: &Report| {
        vec![
            app.into(),
            cluster.into(),
            knee.achieved_rps.into(),
            knee.requests_per_joule.into(),
            knee.watts_total.into(),
            knee.latency_us_avg().into(),
            knee.latency_us_p99().into(),
            format!("{} {}", knee.bottleneck.what.words(), knee.bottleneck.node)
                .trim()
                .into(),
        ]
    };
    let rows = pairs.iter().flat_map(|(app, beefy, type1)| {
        [row(app, CLUSTERS[0], beefy), row(app, CLUSTERS[1], type1)]
    });
    Table {
        title: "At the knee".into(),
        columns: vec![
            Column::given("application"),
            Column::given("cluster"),
            Column::modelled("requests/s", 0),
            Column::modelled("requests/J", 1),
            Column::modelled("W", 0),
            Column::modelled("mean latency us", 1),
            Column::modelled("p99 latency us", 1),
            Column::given("most used"),
        ],
        rows: rows.collect(),
    }
}

fn ratios(pairs: &Pairs<'_>, equal: &[Report]) -> Table {
    let row = |((app, beefy, type1), equal): (&(&str, &Report, &Report), &Report)| -> Vec<Cell> {
        vec![
            (*app).into(),
            (type1.requests_per_joule / beefy.requests_per_joule).into(),
            (type1.achieved_rps / beefy.achieved_rps).into(),
            (type1.latency_us_avg() / beefy.latency_us_avg()).into(),
            (type1.latency_us_p99() / beefy.latency_us_p99()).into(),
            (equal.latency_us_avg() / beefy.latency_us_avg()).into(),
            (equal.latency_us_p99() / beefy.latency_us_p99()).into(),
        ]
    };
    Table {
        title: "With SmartNICs over without".into(),
        columns: vec![
            Column::given("application"),
            Column::modelled("requests/J", 2),
            Column::modelled("requests/s", 2),
            Column::modelled("mean latency", 2),
            Column::modelled("p99 latency", 2),
            Column::modelled("mean latency at equal rate", 2),
            Column::modelled("p99 latency at equal rate", 2),
        ],
        rows: pairs.iter().zip(equal).map(row).collect(),
    }
}

fn plots(pairs: &Pairs<'_>, sweeps: &[Ranged<Sweep>]) -> Vec<Plot> {
    let plot = |title: &str, x: Axis, of: fn(&Report) -> f64, unit: &str| {
        let groups = pairs.iter().map(|(app, ..)| app.to_string());
        let words = pairs
            .iter()
            .map(|(app, beefy, type1)| format!("{app} {:.0} and {:.0}", of(beefy), of(type1)));
        let words: Vec<String> = words.collect();
        let bars = CLUSTERS.iter().enumerate().map(|(at, name)| {
            let own = sweeps.iter().skip(at).step_by(CLUSTERS.len());
            let values: Vec<Option<Estimate>> = own.map(|s| Some(at_knee(s, of))).collect();
            Bars::ranged(name, &values)
        });
        Plot {
            title: title.into(),
            alt: format!(
                "Bars: {title}, in {unit}, on {} and on {}. {}.",
                CLUSTERS[0],
                CLUSTERS[1],
                words.join("; ")
            ),
            drawing: Drawing::Bars {
                x,
                groups: groups.collect(),
                bars: bars.collect(),
            },
        }
    };
    vec![
        plot(
            "Requests per joule at the knee",
            Axis::linear("requests/J"),
            |r| r.requests_per_joule,
            "requests/J",
        ),
        plot(
            "Mean latency at the knee",
            Axis::log("mean latency (us)"),
            |r| r.latency_us_avg(),
            "us",
        ),
        plot(
            "p99 latency at the knee",
            Axis::log("p99 latency (us)"),
            |r| r.latency_us_p99(),
            "us",
        ),
    ]
}

fn comparisons(
    pairs: &Pairs<'_>,
    gains: &[Headline],
    delays: &[Headline],
    equal: &[Report],
) -> Vec<Comparison> {
    let highest = |all: &[Headline]| {
        let known = all.iter().filter_map(|(app, v)| Some(((*v)?, app.clone())));
        known.max_by(|a, b| a.0.value.total_cmp(&b.0.value))
    };
    let equals = pairs
        .iter()
        .zip(equal)
        .map(|((app, b, _), e)| (e.latency_us_avg() / b.latency_us_avg(), *app));
    let (Some(gain), Some(knee), Some(equal)) = (
        highest(gains),
        highest(delays),
        equals.max_by(|a, b| a.0.total_cmp(&b.0)),
    ) else {
        return Vec::new();
    };
    vec![
        Comparison {
            what: "Highest gain in requests per joule".into(),
            paper: "up to 3 times".into(),
            ours: format!("{}: {}", gain.1, times_range(&gain.0)),
            why: "The paper's is over all of its clusters and measured. Here each service runs as fast as alone in Table 1, \
                  servers without work draw their idle power, and a stateful shard has one thread."
                .into(),
        },
        Comparison {
            what: "Largest change of mean latency".into(),
            paper: "at most 4 % longer".into(),
            ours: format!(
                "{} at the knees ({}; {} to {}), {} at equal rate ({})",
                percent(knee.0.value - 1.0),
                knee.1,
                percent(knee.0.low - 1.0),
                percent(knee.0.high - 1.0),
                percent(equal.0 - 1.0),
                equal.1
            ),
            why: "The paper compares latencies that it measured at the peak of each cluster. Ours at the knees are at \
                  different rates, with queues of different length; at equal rate the cluster with SmartNICs is less \
                  loaded, but a service on a SmartNIC's slower cores takes longer."
                .into(),
        },
    ]
}
