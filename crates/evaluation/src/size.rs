//! Requests per joule against the size of a request (Fig. 2).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
use crate::range::{RANGE_NOTE, Ranged};
use crate::words::{assumed, times_range};
use crate::world::{EvaluationError, REQUEST_BYTES, Subject, World};
use e3_hardware::Estimate;
use e3_model::profile::ServiceTime;
use e3_model::{Nanos, Profile};
use e3_perfsim::Sweep;
use std::collections::BTreeMap;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "size",
    title: "Requests per joule against the size of a request",
    section: "2.2 (Fig. 2)",
    about: "NFV-FIN on three Beefy and on three Type1-SmartNIC servers with requests of 64 to 1024 bytes. Table 1 has \
            service times at 512 bytes only, so two assumptions bound the others: a service takes the same time for \
            every size, or a time in proportion to the size.",
    run,
};

const APP: &str = "nfv-fin";
const CLUSTERS: [&str; 2] = ["3x-beefy", "3x-type1"];
const PLACER: &str = "joules";
const SIZES: [u32; 5] = [64, 128, 256, 512, 1024];
const SIZES_QUICK: [u32; 2] = [64, 1024];
const ASSUMPTIONS: [(&str, bool); 2] = [("constant time", false), ("proportional time", true)];

type Profiles = BTreeMap<String, Profile>;

/// One assumption at one size, with the knee on each cluster.
struct Row<'a> {
    app: &'a str,
    assumption: &'static str,
    bytes: u32,
    sweeps: &'a [Ranged<Sweep>],
}

impl Row<'_> {
    fn ratio(&self) -> Estimate {
        let joules = |s: &Sweep| s.knee.requests_per_joule;
        self.sweeps[0].figure_of(&self.sweeps[1], |without, with| {
            joules(with) / joules(without)
        })
    }
}

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let sizes: &[u32] = if world.quick { &SIZES_QUICK } else { &SIZES };
    let mut sized: Vec<(Subject, Profiles, u32, &'static str)> = Vec::new();
    for subject in world.among(&[APP]) {
        for (name, proportional) in ASSUMPTIONS {
            for &bytes in sizes {
                let mut subject = subject.clone();
                if let Some(load) = &mut subject.app.spec.load {
                    load.request_bytes = bytes;
                }
                sized.push((subject, profiles(world, bytes, proportional), bytes, name));
            }
        }
    }
    let mut cases = Vec::new();
    for (subject, profiles, bytes, _) in &sized {
        for cluster in CLUSTERS {
            let mut case = world.case(subject, world.cluster(cluster)?, PLACER);
            (case.profiles, case.request_bytes) = (profiles, *bytes);
            cases.push(case);
        }
    }
    let sweeps = world.ranged_sweeps(&cases)?;
    let rows: Vec<Row<'_>> = sized
        .iter()
        .zip(sweeps.chunks(CLUSTERS.len()))
        .map(|((subject, _, bytes, assumption), sweeps)| Row {
            app: &subject.app.name,
            assumption,
            bytes: *bytes,
            sweeps,
        })
        .collect();
    let mut parameters = world.parameters();
    parameters.retain(|(name, _)| name != "request size");
    parameters.push(("placer".into(), PLACER.into()));
    let mut notes = vec![
            "Service times of sizes other than 512 bytes are an assumption, not Table 1's: what is between the two lines of \
             a figure is possible. Accelerators for larger requests are contained in Table 1 at 512 bytes only."
                .into(),
            RANGE_NOTE.into(),
    ];
    notes.extend(assumed(sweeps.iter().map(|s| &s.usual.knee)));
    Ok(Outcome {
        parameters,
        tables: vec![table(&rows)],
        plots: rows
            .chunks(sizes.len() * ASSUMPTIONS.len())
            .map(plot)
            .collect(),
        comparisons: comparisons(&rows),
        notes,
        ..EXPERIMENT.outcome()
    })
}

/// The profiles with the time of one size, by an assumption.
fn profiles(world: &World<'_>, bytes: u32, proportional: bool) -> Profiles {
    let mut profiles = world.profiles.clone();
    for profile in profiles.values_mut() {
        let kinds: Vec<_> = profile.spec.nodes.keys().copied().collect();
        for kind in kinds {
            let known = profile.service_time(kind, REQUEST_BYTES);
            let part = if proportional {
                f64::from(bytes) / f64::from(REQUEST_BYTES)
            } else {
                1.0
            };
            if let (Some(time), Some(cost)) = (known, profile.spec.nodes.get_mut(&kind)) {
                cost.service_time = vec![ServiceTime {
                    bytes,
                    time: Nanos((time.0 as f64 * part).round() as u64),
                    instructions: None,
                }];
            }
        }
    }
    profiles
}

fn table(rows: &[Row<'_>]) -> Table {
    let row = |r: &Row<'_>| {
        let knee = |at: usize| &r.sweeps[at].usual.knee;
        let most = |at: usize| knee(at).bottleneck.what.words().into();
        let ratio = r.ratio();
        vec![
            r.app.into(),
            r.assumption.into(),
            f64::from(r.bytes).into(),
            knee(0).requests_per_joule.into(),
            knee(1).requests_per_joule.into(),
            ratio.value.into(),
            ratio.low.into(),
            ratio.high.into(),
            most(0),
            most(1),
        ]
    };
    Table {
        title: "At the knee".into(),
        columns: vec![
            Column::given("application"),
            Column::given("service time"),
            Column::given("bytes"),
            Column::modelled("requests/J on 3x-beefy", 0),
            Column::modelled("requests/J on 3x-type1", 0),
            Column::modelled("ratio", 2),
            Column::modelled("lowest", 2),
            Column::modelled("highest", 2),
            Column::given("most used on 3x-beefy"),
            Column::given("most used on 3x-type1"),
        ],
        rows: rows.iter().map(row).collect(),
    }
}

fn plot(rows: &[Row<'_>]) -> Plot {
    let app = rows.first().map_or("", |r| r.app);
    let lines = ASSUMPTIONS.map(|(name, _)| Line {
        name: name.into(),
        points: rows
            .iter()
            .filter(|r| r.assumption == name)
            .map(|r| (f64::from(r.bytes), r.ratio().value))
            .collect(),
    });
    let words = rows.iter().map(|r| {
        format!(
            "{:.2} at {} bytes with {}",
            r.ratio().value,
            r.bytes,
            r.assumption
        )
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: format!("Gain of {app} with SmartNICs by request size"),
        alt: format!(
            "Lines: requests per joule on 3x-type1 over those on 3x-beefy, by request size: {}.",
            words.join("; ")
        ),
        drawing: Drawing::Lines {
            x: Axis::log("request size (bytes)"),
            y: Axis::linear("requests/J, 3x-type1 over 3x-beefy"),
            lines: lines.into(),
        },
    }
}

fn comparisons(rows: &[Row<'_>]) -> Vec<Comparison> {
    let best = |assumption: &str| {
        let own = rows.iter().filter(|r| r.assumption == assumption);
        own.max_by(|a, b| a.ratio().value.total_cmp(&b.ratio().value))
    };
    let words = ASSUMPTIONS.iter().filter_map(|(name, _)| {
        let r = best(name)?;
        Some(format!(
            "with {name}, most at {} B: {}",
            r.bytes,
            times_range(&r.ratio())
        ))
    });
    vec![Comparison {
        what: "Size at which SmartNICs gain most".into(),
        paper: "256 to 512 B; below 128 B bound by computation, above 512 B by the network".into(),
        ours: words.collect::<Vec<_>>().join("; "),
        why: "The paper measured each size. Ours follows from the two assumptions about service times, so only the effect \
              of the network is predicted, not where the best size is."
            .into(),
    }]
}
