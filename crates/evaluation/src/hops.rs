//! Round trips between nodes by kind of hop (Fig. 3).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Column, Comparison, Drawing, Outcome, Plot, Table};
use crate::world::{Case, EvaluationError, Subject, World, map};
use e3_model::document::{parse_application, parse_profile};
use e3_model::{Nanos, Profile};
use std::collections::BTreeMap;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "hops",
    title: "Round trips by kind of hop",
    section: "2.2 (Fig. 3)",
    about: "A request visits one node, another one, and the first one again, in a cluster that does nothing else. The \
            round trip is its latency less that of a request whose three visits are on the first node. The unit is the \
            round trip between hosts through the switch, with kernel bypass, at the same size.",
    run,
};

/// Kind of hop, cluster, and its two nodes; the unit first.
const HOPS: [(&str, &str, [&str; 2]); 5] = [
    ("host - host, switch", "3x-type1", ["s1-host", "s2-host"]),
    (
        "SmartNIC - host, other server",
        "3x-type1",
        ["s1-nic0", "s2-host"],
    ),
    ("SmartNIC - host, PCIe", "3x-type1", ["s1-nic0", "s1-host"]),
    (
        "SmartNIC - SmartNIC, switch",
        "3x-type1",
        ["s1-nic0", "s2-nic0"],
    ),
    (
        "SmartNIC - SmartNIC, one server",
        "2x-type2",
        ["s1-nic0", "s1-nic1"],
    ),
];
const SIZES: [u32; 3] = [64, 512, 1024];
/// What the paper says of Fig. 3: hop, and by how much it is below the unit at most.
const PAPER: [(usize, f64); 2] = [(3, 0.862), (2, 0.833)];
const RATE_RPS: f64 = 2_000.0;
const DURATION: Nanos = Nanos(1_000_000_000);

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let mut walks = Vec::new();
    for (_, cluster, [from, to]) in HOPS {
        for bytes in SIZES {
            for middle in [from, to] {
                let subject = walk([from, middle, from], bytes);
                walks.push((subject, profiles(bytes), bytes, cluster));
            }
        }
    }
    let mut cases = Vec::new();
    for (subject, profiles, bytes, cluster) in &walks {
        let mut case = world.case(subject, world.cluster(cluster)?, "hcm");
        (case.profiles, case.request_bytes) = (profiles, *bytes);
        // Only the hops differ between two walks.
        case.options.sleep = false;
        case.options.guesses.service_variation = 0.0;
        cases.push(case);
    }
    let latency = |case: &Case<'_>| {
        let placement = world.place(case)?;
        let report = world.simulate(case, &placement, RATE_RPS, DURATION)?;
        Ok(report.latency_us_avg())
    };
    let found = map(world.pool, &cases, latency);
    let found: Vec<f64> = found.into_iter().collect::<Result<_, EvaluationError>>()?;
    // By hop, then by size.
    let trips: Vec<f64> = found.chunks(2).map(|pair| pair[1] - pair[0]).collect();
    let trips: Vec<&[f64]> = trips.chunks(SIZES.len()).collect();
    let parameters = [
        ("seed", world.seed.to_string()),
        ("requests/s", RATE_RPS.to_string()),
        ("simulated time", "1 s".to_string()),
    ];
    Ok(Outcome {
        parameters: parameters.map(|(n, v)| (n.to_string(), v)).into(),
        tables: vec![table(&trips)],
        plots: vec![plot(&trips)],
        comparisons: comparisons(&trips),
        notes: vec![
            "The fixed part of each hop is Fig. 3's ratio, so agreement with the paper is no evidence for the model. The \
             simulator adds the time of the bytes on ports and DMA engines. The unit in microseconds is a guess \
             (round_trip_hosts_us). All hosts bypass the kernel here. Fig. 3 gives no ratio for the Linux stack, which the \
             simulator models by a guess (e3 sim --stack linux, linux_stack_us)."
                .into(),
        ],
        ..EXPERIMENT.outcome()
    })
}

/// Three services, each on a node.
fn walk(nodes: [&str; 3], bytes: u32) -> Subject {
    let service = |(at, node): (usize, &&str)| {
        format!(
            "    - {{name: s{at}, module: m, profile: hop, resources: {{cpu: 0.01, memory: 1Mi}}, pin: {{node: {node}}}}}\n"
        )
    };
    let services: String = nodes.iter().enumerate().map(service).collect();
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: hops}}\nspec:\n  objective: {{latency: 5ms}}\n  \
         load: {{rateRps: {RATE_RPS}, requestBytes: {bytes}}}\n  ingress: s0\n  services:\n{services}  channels:\n    \
         - {{from: s0, to: s1}}\n    - {{from: s1, to: s2}}\n"
    );
    Subject {
        app: parse_application("hops", &text).expect("made to be valid"),
        visits: vec![1.0; nodes.len()],
        visits_range: (vec![1.0; nodes.len()], vec![1.0; nodes.len()]),
    }
}

/// A service that takes 1 us everywhere.
fn profiles(bytes: u32) -> BTreeMap<String, Profile> {
    let cost = |kind: &str| {
        format!(
            "    {kind}:\n      serviceTime: [{{bytes: {bytes}, time: 1us}}]\n      activePowerW: 20\n      activeCores: 1\n"
        )
    };
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: hop}}\nspec:\n  provenance: modelled\n  source: \
         experiment hops\n  nodes:\n{}{}",
        cost("host"),
        cost("smartnic")
    );
    let profile = parse_profile("hop", &text).expect("made to be valid");
    BTreeMap::from([(profile.name.clone(), profile)])
}

fn table(trips: &[&[f64]]) -> Table {
    let rows = HOPS.iter().zip(trips).flat_map(|((name, ..), own)| {
        SIZES.iter().enumerate().map(|(at, bytes)| {
            vec![
                (*name).into(),
                f64::from(*bytes).into(),
                own[at].into(),
                (own[at] / trips[0][at]).into(),
            ]
        })
    });
    Table {
        title: "Round trips".into(),
        columns: vec![
            Column::given("hop"),
            Column::given("bytes"),
            Column::modelled("us", 2),
            Column::modelled("of host - host", 3),
        ],
        rows: rows.collect(),
    }
}

fn plot(trips: &[&[f64]]) -> Plot {
    let bars = SIZES.iter().enumerate().map(|(at, bytes)| {
        let values = trips.iter().map(|own| Some(own[at] / trips[0][at]));
        Bars::plain(&format!("{bytes} B"), values.collect())
    });
    let words = HOPS.iter().zip(trips).map(|((name, ..), own)| {
        let parts: Vec<String> = (0..SIZES.len())
            .map(|at| format!("{:.3}", own[at] / trips[0][at]))
            .collect();
        format!("{name} {}", parts.join(", "))
    });
    let words: Vec<String> = words.collect();
    Plot {
        title: "Round trips against host - host".into(),
        alt: format!(
            "Bars: round trips as parts of that between hosts, with 64, 512 and 1024 bytes. {}.",
            words.join("; ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear("part of the round trip between hosts"),
            groups: HOPS.iter().map(|(name, ..)| name.to_string()).collect(),
            bars: bars.collect(),
        },
    }
}

fn comparisons(trips: &[&[f64]]) -> Vec<Comparison> {
    let of = |(hop, below): (usize, f64)| {
        let parts = (0..SIZES.len()).map(|at| 1.0 - trips[hop][at] / trips[0][at]);
        let most = parts.fold(f64::MIN, f64::max);
        Comparison {
            what: format!("{}, below host - host", HOPS[hop].0),
            paper: format!("up to {:.1} %", below * 100.0),
            ours: format!("up to {:.1} %", most * 100.0),
            why: "The ratio is an input of the model. What differs is the time of the bytes on ports and DMA engines, which \
                  comes on top here."
                .into(),
        }
    };
    PAPER.map(of).into()
}
